package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/idem-go/idem/benchmarks/load"
)

// errTime is why what runs is ended when the budget is used up.
var errTime = errors.New("there was no time left")

// measure runs the load and the benchmarks and writes their results to out. A benchmark that
// fails, or an operation of the load that was not carried out exactly once, is an error: there
// are no results then. What there was no time for is noted in the results.
func measure(ctx context.Context, o options, matching *regexp.Regexp, out io.Writer, p *progress) error {
	dir, err := os.MkdirTemp("", "idem-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	bounded, cancel := context.WithTimeoutCause(ctx, o.budget, errTime)
	defer cancel()

	p.show("building")
	var suites []*suite
	for folder := range strings.SplitSeq(o.packages, ",") {
		s, err := build(ctx, "go", folder, dir, matching)
		if err != nil {
			return err
		}
		suites = append(suites, s...)
	}
	g := &generator{
		program: filepath.Join(dir, "service"), redis: o.redis, connections: load.DefaultConnections,
		warmup: 500 * time.Millisecond, duration: 3 * time.Second, throughput: map[string]float64{},
	}
	frameworks := strings.Split(o.frameworks, ",")
	if o.quick {
		g.warmup, g.duration, frameworks = 200*time.Millisecond, 800*time.Millisecond, frameworks[:1]
	}
	var notes []string
	var runs []cell
	if o.load {
		c := exec.CommandContext(ctx, "go", "build", "-o", g.program, "./load/service")
		if text, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("the service: %w\n%s", err, text)
		}
		err := ping(o.redis)
		if err != nil {
			notes = append(notes, "no load on Redis: "+withoutPassword(o.redis)+" does not answer")
		}
		runs = cells(frameworks, err == nil)
	}
	if len(suites)+len(runs) == 0 {
		return errors.New("there is nothing to measure")
	}
	g.fit(len(runs), o.budget/2)
	header(out, o, g)

	// The load is first: how long it takes is known, and the rounds fill what is left.
	fmt.Fprintln(out, "pkg: github.com/idem-go/idem/benchmarks/load")
	for i, c := range runs {
		p.show(fmt.Sprintf("%d of %d  %s", i+1, len(runs), c.name()))
		line, err := g.run(bounded, c)
		if errors.Is(err, errTime) && ctx.Err() == nil {
			notes = append(notes, fmt.Sprintf("the load was ended after %d of %d runs: %v", i, len(runs), errTime))
			break
		}
		if err != nil {
			return err
		}
		fmt.Fprintln(out, line)
	}

	rounds, note, err := inRounds(bounded, o, suites, out, p)
	if err != nil && !errors.Is(err, errTime) || ctx.Err() != nil {
		return errors.Join(err, ctx.Err())
	}
	if note != "" {
		notes = append(notes, note)
	}
	if len(notes) > 0 {
		fmt.Fprintln(out, "note:", strings.Join(notes, "; "))
	}
	for _, n := range notes {
		p.say("note: %s", n)
	}
	p.say("%d rounds in %s", rounds, minutes(p.elapsed()))
	return nil
}

// inRounds runs all suites, again and again while there is time for it. It returns how many
// rounds were complete, and what is to be noted if it was not even one.
func inRounds(ctx context.Context, o options, suites []*suite, out io.Writer, p *progress) (rounds int, note string, err error) {
	if len(suites) == 0 {
		return 0, "", nil
	}
	deadline, bounded := ctx.Deadline()
	for rounds < o.count {
		began := time.Now()
		environment := []string{"IDEM_BENCH_LARGE=0"}
		if o.large && rounds == 0 {
			environment = []string{"IDEM_BENCH_LARGE=1"}
		}
		for i, s := range suites {
			show := func(row string) { p.show(fmt.Sprintf("round %d of %d  %s", rounds+1, o.count, row)) }
			show(strings.TrimPrefix(s.function, "Benchmark"))
			err := s.run(ctx, o.benchtime, environment, out, show)
			if errors.Is(err, errTime) {
				if rounds == 0 {
					note = fmt.Sprintf("the first round was ended in %s, benchmark %d of %d: %v", s.function, i+1, len(suites), errTime)
				}
				return rounds, note, err
			}
			if err != nil {
				return rounds, "", err
			}
		}
		rounds++
		took := time.Since(began)
		left := time.Duration(o.count-rounds) * took
		if bounded {
			possible := time.Until(deadline) / max(took, 1)
			left = min(left, possible*took)
			if possible < 1 {
				break
			}
		}
		p.plan(left)
	}
	return rounds, "", nil
}

// header writes what the results belong to. The tests themselves add goos, goarch, pkg and cpu.
func header(out io.Writer, o options, g *generator) {
	fmt.Fprintf(out, "goos: %s\ngoarch: %s\n", runtime.GOOS, runtime.GOARCH)
	if cpu := cpuModel("/proc/cpuinfo"); cpu != "" {
		fmt.Fprintln(out, "cpu:", cpu)
	}
	fmt.Fprintf(out, "goversion: %s\ncores: %d\ndate: %s\nbenchtime: %s\nconnections: %d\n",
		runtime.Version(), runtime.NumCPU(), time.Now().UTC().Format(time.DateOnly), o.benchtime, g.connections)
}

// cpuModel returns the name of the processor as Linux gives it, or "".
func cpuModel(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// ping says whether something listens where the URL points to.
func ping(raw string) error {
	u, err := url.Parse(raw)
	if err != nil {
		return err
	}
	port := u.Port()
	if port == "" {
		port = "6379"
	}
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(u.Hostname(), port), 2*time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}
