// Command report runs the benchmarks and the load, and writes what came of it: RESULTS.md with
// tables and charts, and RESULTS.txt with the results as the benchmarks have printed them.
//
//	report                    measure everything, in at most ten minutes
//	report -quick             in about one, for a look: every benchmark once, and briefly
//	report -from FILE         write the report of results that were saved
//	report -old FILE          measure and say with benchstat what has changed since FILE
//	report -old FILE -new FILE    compare two files
//
// It is run in the folder benchmarks. Benchmarks run in rounds, each one once in a round, for as
// long as there is time, up to -count: what disturbs the machine for a while then disturbs one
// run of many benchmarks, and not all runs of one.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// benchstat compares two files of results.
const benchstat = "golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da"

type options struct {
	quick      bool
	budget     time.Duration
	count      int
	benchtime  string
	bench      string
	packages   string
	frameworks string
	large      bool
	load       bool
	redis      string

	out, from, old, new string
}

func main() {
	log.SetFlags(0)
	var o options
	flag.BoolVar(&o.quick, "quick", false, "take about a minute: one short round, less load")
	flag.DurationVar(&o.budget, "budget", 0, "how long to measure at most (10m; -quick: 75s)")
	flag.IntVar(&o.count, "count", 0, "how many rounds at most (6; -quick: 1)")
	flag.StringVar(&o.benchtime, "benchtime", "", "of each benchmark, as for go test (100ms; -quick: 10ms)")
	flag.StringVar(&o.bench, "bench", ".", "a `regexp` that benchmark functions must match")
	flag.StringVar(&o.packages, "packages", ".", "`folders` of packages, separated by commas")
	flag.StringVar(&o.frameworks, "frameworks", "gin,nethttp,echo,fiber", "which to put under load; the first one in every way")
	flag.BoolVar(&o.large, "large", true, "also five million records in a memstore, in the first round, which takes about 5 GB; not with -quick")
	flag.BoolVar(&o.load, "load", true, "also the load over TCP")
	flag.StringVar(&o.redis, "redis", cmp.Or(os.Getenv("IDEM_REDIS_URL"), "redis://127.0.0.1:6379"), "`URL` of the Redis for the load")
	flag.StringVar(&o.out, "out", ".", "the `folder` to write to")
	flag.StringVar(&o.from, "from", "", "a `file` of results to write the report of")
	flag.StringVar(&o.old, "old", "", "a `file` of results to compare with")
	flag.StringVar(&o.new, "new", "", "a `file` of results to compare; without it they are measured")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, os.Stdout, os.Stderr); err != nil {
		stop()
		log.Fatal(err)
	}
}

func run(ctx context.Context, o options, stdout, stderr io.Writer) error {
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if o.new != "" && o.old == "" {
		return errors.New("-new needs -old")
	}
	if o.from != "" && o.old != "" {
		return errors.New("-from and -old exclude each other")
	}
	o.defaults()
	if err := os.MkdirAll(o.out, 0o755); err != nil { // before anything is measured
		return err
	}
	switch {
	case o.from != "":
		return write(o.from, o.out)
	case o.old != "":
		// It is looked for before anything is measured.
		if _, err := os.Stat(o.old); err != nil {
			return err
		}
		if o.new == "" {
			dir, err := os.MkdirTemp("", "idem-bench-")
			if err != nil {
				return err
			}
			defer os.RemoveAll(dir)
			o.new = filepath.Join(dir, "new.txt")
			if err := measureTo(ctx, o, o.new, stderr); err != nil {
				return err
			}
		}
		c := exec.CommandContext(ctx, "go", "run", benchstat, o.old, o.new)
		c.Stdout, c.Stderr = stdout, stderr
		return c.Run()
	}
	raw := filepath.Join(o.out, "RESULTS.txt")
	if err := measureTo(ctx, o, raw, stderr); err != nil {
		return err
	}
	return write(raw, o.out)
}

func (o *options) defaults() {
	if o.quick {
		o.large = false
		o.budget = cmp.Or(o.budget, 75*time.Second)
		o.count = cmp.Or(o.count, 1)
		o.benchtime = cmp.Or(o.benchtime, "10ms")
		return
	}
	o.budget = cmp.Or(o.budget, 10*time.Minute)
	o.count = cmp.Or(o.count, 6)
	o.benchtime = cmp.Or(o.benchtime, "100ms")
}

// measureTo measures, and writes the results to a file when there are any. What was there
// before stands until then.
func measureTo(ctx context.Context, o options, file string, stderr io.Writer) error {
	matching, err := regexp.Compile(o.bench)
	if err != nil {
		return err
	}
	info, err := os.Stderr.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	text := &strings.Builder{}
	err = measure(ctx, o, matching, text, newProgress(stderr, terminal, o.budget, time.Now))
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text.String()), 0o644)
}

// write writes the report of a file of results.
func write(raw, dir string) error {
	f, err := os.Open(raw)
	if err != nil {
		return err
	}
	defer f.Close()
	rs, err := parse(f)
	if err != nil {
		return fmt.Errorf("%s: %w", raw, err)
	}
	if len(rs.rows) == 0 {
		return fmt.Errorf("%s: there are no results in it", raw)
	}
	charts := draw(rs)
	folder := filepath.Join(dir, "charts")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, d := range charts {
		if err := os.WriteFile(filepath.Join(folder, d.file), d.svg, 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "RESULTS.md"), []byte(markdown(rs, charts)), 0o644)
}
