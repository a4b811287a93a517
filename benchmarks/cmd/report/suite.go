package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// suite is one benchmark function: a process of its own, so that none finds what another one
// has left on the heap.
type suite struct {
	program, dir string
	function     string
}

// build compiles the tests of a package, as a folder, and returns its benchmarks whose names
// match.
func build(ctx context.Context, goCommand, dir, into string, matching *regexp.Regexp) ([]*suite, error) {
	program := filepath.Join(into, strings.ReplaceAll(strings.Trim(filepath.ToSlash(dir), "./"), "/", "_")+".test")
	c := exec.CommandContext(ctx, goCommand, "test", "-c", "-o", program, ".")
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go test -c in %s: %w\n%s", dir, err, out)
	}
	if _, err := os.Stat(program); err != nil {
		return nil, fmt.Errorf("%s has no tests", dir)
	}
	c = exec.CommandContext(ctx, program, "-test.list", "^Benchmark")
	c.Dir = dir
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("the benchmarks of %s: %w", dir, err)
	}
	var suites []*suite
	for _, function := range strings.Fields(string(out)) {
		if isBenchmark(function) && matching.MatchString(function) {
			suites = append(suites, &suite{program: program, dir: dir, function: function})
		}
	}
	return suites, nil
}

// run runs the benchmark function once and writes the results, and the configuration in front
// of them, to out. progress is told of each row when it is done. If the process fails, its rows
// so far stand.
func (s *suite) run(ctx context.Context, benchtime string, environment []string, out io.Writer, progress func(row string)) error {
	c := exec.CommandContext(ctx, s.program, "-test.run", "^$", "-test.bench", "^"+s.function+"$",
		"-test.benchmem", "-test.benchtime", benchtime, "-test.timeout", "0")
	c.Dir = s.dir
	c.Env = append(os.Environ(), environment...)
	c.WaitDelay = 5 * time.Second
	said := &strings.Builder{} // what is no result; shown if it fails
	c.Stderr = said
	stdout, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 1<<20)
	var writing error
	for lines.Scan() {
		line := lines.Text()
		switch fields := strings.Fields(line); {
		case len(fields) >= 4 && isBenchmark(fields[0]):
			progress(strings.TrimPrefix(fields[0], "Benchmark"))
			fallthrough
		case configLine.MatchString(line):
			if _, err := fmt.Fprintln(out, line); err != nil && writing == nil {
				writing = err
			}
		case said.Len() < 4000:
			fmt.Fprintln(said, line)
		}
	}
	err = c.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", s.function, err, strings.TrimSpace(said.String()))
	}
	return errors.Join(writing, lines.Err())
}
