// Command report runs the benchmarks of the folder that it is started in, and that of consumers of messages, which is in
// their module. It writes RESULTS.txt, what they have printed, and RESULTS.md with tables, the targets and charts.
//
//	report                 half an hour: four rounds
//	report -quick          two minutes, for a look: one short round, without the largest store
//	report -from FILE      the report of results that were saved
//
// A round runs each benchmark function once, in a process of its own: none finds what another has left on the heap,
// and what disturbs the machine for a while disturbs one run of many benchmarks, not all runs of one.
package main

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

func main() {
	log.SetFlags(0)
	quick := flag.Bool("quick", false, "one short round")
	count := flag.Int("count", 0, "how many rounds (4; -quick: 1)")
	bench := flag.String("bench", ".", "a `regexp` that benchmark functions must match")
	from := flag.String("from", "", "a `file` of results to write the report of")
	out := flag.String("out", ".", "the `folder` to write to")
	flag.Parse()
	err := os.MkdirAll(*out, 0o755) // before anything is measured
	if err == nil && *from == "" {
		*from = filepath.Join(*out, "RESULTS.txt")
		err = measure(*from, *bench, *quick, *count)
	}
	if err == nil {
		err = write(*from, *out)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// measure runs the benchmarks and writes their results to a file. If one fails, the file stays as it is.
func measure(file, bench string, quick bool, count int) error {
	matching, err := regexp.Compile(bench)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "idem-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	type benchmark struct{ program, function string }
	var benchmarks []benchmark
	for i, module := range []string{".", filepath.Join("..", "amqpidem")} {
		program := filepath.Join(dir, fmt.Sprint(i, ".test"))
		build := exec.Command("go", "test", "-c", "-o", program, ".")
		build.Dir = module
		if text, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("go test -c in %s: %w\n%s", module, err, text)
		}
		list, err := exec.Command(program, "-test.list", "^Benchmark").Output()
		if err != nil {
			return fmt.Errorf("the list of benchmarks in %s: %w", module, err)
		}
		for _, function := range strings.Fields(string(list)) {
			if matching.MatchString(function) {
				benchmarks = append(benchmarks, benchmark{program, function})
			}
		}
	}
	rounds, brief, long, messages, standing := cmp.Or(count, 4), "100ms", "1s", "20000x", "40000x"
	if quick {
		rounds, brief, long, messages, standing = cmp.Or(count, 1), "10ms", "100ms", "2000x", "2000x"
	}
	results := &bytes.Buffer{}
	fmt.Fprintf(results, "goversion: %s\ncores: %d\ndate: %s\n", runtime.Version(), runtime.NumCPU(),
		time.Now().UTC().Format(time.DateOnly))
	for round := range rounds {
		for _, bench := range benchmarks {
			fmt.Fprintf(os.Stderr, "round %d of %d: %s\n", round+1, rounds, bench.function)
			benchtime, memory := brief, true
			switch bench.function {
			case "BenchmarkLoad":
				benchtime, memory = long, false // it would be the client's
			case "BenchmarkStanding":
				benchtime, memory = standing, false
			case "BenchmarkFiberPeer", "BenchmarkFiber3Peer", "BenchmarkRedisPeer", "BenchmarkRedisClients", "BenchmarkRedisServerTime":
				benchtime = long // there are targets for their times, and a brief run is mostly its warm-up
			case "BenchmarkConsumer":
				benchtime = messages // the broker takes a while to say that it has none left
			}
			c := exec.Command(bench.program, "-test.run", "^$", "-test.bench", "^"+bench.function+"$",
				fmt.Sprint("-test.benchmem=", memory), "-test.benchtime", benchtime,
				"-test.timeout", "0", fmt.Sprintf("-test.short=%t", quick || round > 0 && bench.function != "BenchmarkStanding"))
			before, said := results.Len(), &bytes.Buffer{}
			c.Stdout, c.Stderr = results, said
			if err := c.Run(); err != nil {
				return fmt.Errorf("%s: %w\n%s%s", bench.function, err, results.Bytes()[before:], said)
			}
		}
	}
	return os.WriteFile(file, results.Bytes(), 0o644)
}

// write writes the report of a file of results.
func write(file, dir string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	rs, err := parse(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "charts"), 0o755); err != nil {
		return err
	}
	charts := draw(rs)
	for _, c := range charts {
		if err := os.WriteFile(filepath.Join(dir, "charts", c.file), c.svg(), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "RESULTS.md"), []byte(markdown(rs, charts)), 0o644)
}
