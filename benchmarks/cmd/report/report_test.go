package main

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/benchmarks/load"
	"github.com/idem-go/idem/internal/leak"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) { leak.VerifyTestMain(m) }

// TestTheReportOfSmallResults compares the whole report with a golden file.
func TestTheReportOfSmallResults(t *testing.T) {
	dir := t.TempDir()
	golden := filepath.Join("testdata", "RESULTS.md")
	require.NoError(t, write(filepath.Join("testdata", "RESULTS.txt"), dir))
	got, err := os.ReadFile(filepath.Join(dir, "RESULTS.md"))
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile(golden, got, 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got))

	charts, err := filepath.Glob(filepath.Join(dir, "charts", "*.svg"))
	require.NoError(t, err)
	assert.Len(t, charts, 4)
	for _, file := range charts {
		assert.Contains(t, string(got), "](charts/"+filepath.Base(file)+")")
		svg, err := os.ReadFile(file)
		require.NoError(t, err)
		for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
			if _, err := d.Token(); err != nil {
				require.ErrorIs(t, err, io.EOF)
				break
			}
		}
	}
}

func TestNoResultsMakeNoReport(t *testing.T) {
	file := filepath.Join(t.TempDir(), "empty.txt")
	require.NoError(t, os.WriteFile(file, []byte("PASS\n"), 0o600))
	assert.ErrorContains(t, write(file, t.TempDir()), "no results")
	assert.ErrorIs(t, write(file+"x", t.TempDir()), os.ErrNotExist)
}

func TestTargetsAreJudged(t *testing.T) {
	judged := func(text string) map[string]mark {
		rs := parsed(t, text)
		marks := map[string]mark{}
		for _, target := range targets() {
			_, _, m := target.judge(rs)
			marks[target.what] = m
		}
		return marks
	}
	for what, m := range judged("") {
		assert.Equal(t, unmeasured, m, what)
	}
	fiber := func(ours string) string {
		return "BenchmarkFiberPeer/bare 1 100 ns/op\nBenchmarkFiberPeer/own-first 1 1100 ns/op\nBenchmarkFiberPeer/ours-first 1 " + ours + " ns/op\n"
	}
	const added = "fiber, client key, first: time added, against what Fiber's own middleware adds"
	assert.Equal(t, met, judged(fiber("900"))[added])
	assert.Equal(t, missed, judged(fiber("901"))[added])

	redis := func(ours string) string {
		return "BenchmarkRedisPeer/operation/scripts 1 80 ns/op\nBenchmarkRedisPeer/operation/store 1 " + ours + " ns/op 2 round-trips/op\n"
	}
	const rueidis = "Redis, 64 parallel: operations, against rueidis sending the same"
	assert.Equal(t, met, judged(redis("100"))[rueidis])
	assert.Equal(t, missed, judged(redis("101"))[rueidis])
	assert.Equal(t, met, judged(redis("101"))["Redis: round trips, first"])

	stall := func(store, clock string) string {
		return "BenchmarkMemstore/1M/expiry 1 1 ns/op 1 p99.9-ns " + store + " max-ns\nBenchmarkMemstore/none/clock 1 1 ns/op " + clock + " max-ns\n"
	}
	const longest = "memstore, 1M records expiring: the longest Acquire"
	assert.Equal(t, met, judged(stall("1000000", "5000000"))[longest])
	assert.Equal(t, unknown, judged(stall("1000001", "5000000"))[longest], "the machine alone is as slow")
	assert.Equal(t, missed, judged(stall("1000001", "10"))[longest])
	const cpu = "BenchmarkMemstore/1M/expiry 1 1 ns/op 5000000 max-ns "
	assert.Equal(t, met, judged(cpu + "999999 max-cpu-ns\n")[longest], "the machine did something else meanwhile")
	assert.Equal(t, missed, judged(cpu + "1000001 max-cpu-ns\n")[longest])
}

func TestLoadResultsAreLinesThatAreReadAgain(t *testing.T) {
	r := &load.Result{Requests: 3, Elapsed: time.Second, Operations: 2, First: 2, Replayed: 1, Conflicts: 0}
	for _, d := range []time.Duration{10, 20, 30} {
		r.Latency.Record(d)
	}
	r.Late.Record(5)
	want := cell{"gin", "redis2", true, "10"}
	rs := parsed(t, lineOf(want, load.Plan{Rate: 500}, r)+"\n")
	require.Len(t, rs.rows, 1)
	got, ok := cellOf(rs.rows[0])
	require.True(t, ok)
	assert.Equal(t, want, got)
	for unit, v := range map[string]float64{"req/s": 3, "p50-ns": 20, "p99.9-ns": 30, "max-ns": 30, "operations": 2, "replayed": 1, "conflicts": 0, "due/s": 500, "late-p99-ns": 5} {
		assert.Equal(t, v, rs.rows[0].median(unit), unit)
	}
	_, ok = cellOf(&row{name: "Load/gin/memory/ajar/duplicates=10"})
	assert.False(t, ok)
}

func TestCells(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range cells([]string{"gin", "echo"}, true) {
		if c.open {
			assert.True(t, seen[loadName(c.framework, c.store, false, c.duplicates)], "%s needs the closed loop's throughput", c.name())
		}
		assert.False(t, seen[c.name()])
		seen[c.name()] = true
		assert.Contains(t, storeNames, c.store)
		assert.Contains(t, shares, c.duplicates)
	}
	assert.Len(t, seen, 1+6+6+7)
	for _, c := range cells([]string{"gin"}, false) {
		assert.NotEqual(t, "redis2", c.store)
	}
}

func TestTheLoadTakesNoMoreThanItsTime(t *testing.T) {
	g := generator{warmup: 500 * time.Millisecond, duration: 3 * time.Second}
	g.fit(30, 5*time.Minute)
	assert.Equal(t, 3*time.Second, g.duration)
	g.fit(30, time.Minute)
	assert.Equal(t, 1200*time.Millisecond, g.duration)
	g.fit(30, time.Second)
	assert.Equal(t, 200*time.Millisecond, g.duration)
	g.fit(0, 0)
}

// program is a benchmark program that says and does what a shell script does.
func program(t *testing.T, script string) *suite {
	t.Helper()
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip("needs a shell")
	}
	file := filepath.Join(t.TempDir(), "x.test")
	require.NoError(t, os.WriteFile(file, []byte("#!/bin/sh\n"+script+"\n"), 0o700))
	return &suite{program: file, dir: ".", function: "BenchmarkX"}
}

func quietProgress() *progress { return newProgress(io.Discard, false, time.Minute, time.Now) }

func TestRoundsAreAsManyAsAskedForOrAsThereIsTimeFor(t *testing.T) {
	s := program(t, `echo "pkg: a"; echo "noise"; echo "BenchmarkX/$IDEM_BENCH_LARGE-2 1 5 ns/op"`)
	out := &strings.Builder{}
	n, note, err := inRounds(t.Context(), options{count: 3, large: true}, []*suite{s, s}, out, quietProgress())
	require.NoError(t, err)
	assert.Equal(t, 3, n)
	assert.Empty(t, note)
	rs := parsed(t, out.String())
	assert.Len(t, rs.row("X/1").values["ns/op"], 2, "the large one runs in the first round only")
	assert.Len(t, rs.row("X/0").values["ns/op"], 4)

	stuck := program(t, `echo "BenchmarkX/a 1 5 ns/op"; exec sleep 600`)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, errTime)
	defer cancel()
	out.Reset()
	n, note, err = inRounds(ctx, options{count: 3}, []*suite{s, stuck, s}, out, quietProgress())
	require.ErrorIs(t, err, errTime)
	assert.Zero(t, n)
	assert.Contains(t, note, "benchmark 2 of 3")
	assert.Contains(t, out.String(), "BenchmarkX/a 1 5", "what was there stands")
}

func TestABenchmarkThatFailsIsAnErrorThatSaysWhy(t *testing.T) {
	s := program(t, `echo "--- FAIL: BenchmarkX"; echo "    the keys were all empty"; exit 1`)
	_, _, err := inRounds(t.Context(), options{count: 3}, []*suite{s}, io.Discard, quietProgress())
	require.ErrorContains(t, err, "the keys were all empty")
}

func TestProgress(t *testing.T) {
	now := time.Unix(0, 0)
	out := &strings.Builder{}
	p := newProgress(out, false, 10*time.Minute, func() time.Time { return now })
	p.show("building")
	now = now.Add(time.Minute)
	p.show(strings.Repeat("x", 100))
	p.show("too soon")
	p.plan(3 * time.Minute)
	now = now.Add(quiet)
	p.show("y")
	p.plan(time.Hour) // more than the budget leaves
	now = now.Add(quiet)
	p.show("z")
	now = now.Add(time.Hour)
	p.show("late")
	p.say("%d rounds", 3)
	assert.Equal(t, `  0 %  0:00 gone, about 10:00 left  building
 10 %  1:00 gone, about 9:00 left  `+strings.Repeat("x", 57)+`...
 29 %  1:10 gone, about 2:50 left  y
 13 %  1:20 gone, about 8:40 left  z
100 %  61:20 gone, about 0:00 left  late
3 rounds
`, out.String())

	out.Reset()
	p = newProgress(out, true, time.Minute, func() time.Time { return now })
	p.show("a long one")
	now = now.Add(time.Second)
	p.show("b")
	p.say("done")
	lines := strings.Split(out.String(), "\r")
	require.Len(t, lines, 5)
	assert.Len(t, lines[2], len(lines[1]), "the line before is covered")
	assert.Equal(t, "done\n", lines[4])
}

func TestOptionsThatExcludeEachOtherAreRefused(t *testing.T) {
	for want, o := range map[string]options{
		"-new needs -old": {new: "x"},
		"exclude":         {from: "x", old: "y"},
		"no such file":    {old: filepath.Join(t.TempDir(), "none")},
	} {
		assert.ErrorContains(t, run(t.Context(), o, io.Discard, io.Discard), want)
	}
}

// Ten minutes of measuring must not end at a folder that is not there.
func TestTheFolderIsMadeBeforeAnythingIsMeasured(t *testing.T) {
	o := options{out: filepath.Join(t.TempDir(), "not", "there"), packages: "./nowhere"}
	assert.Error(t, run(t.Context(), o, io.Discard, io.Discard))
	assert.DirExists(t, o.out)
}

// A machine that becomes twice as slow between two rounds changes no ratio.
func TestRatiosAreThoseOfTheSameRound(t *testing.T) {
	ratioOf := func(text string) float64 {
		rs, err := parse(strings.NewReader(text))
		require.NoError(t, err)
		v, _ := quotient("A", "B", "ns/op", duration)(rs)
		return v
	}
	assert.Equal(t, 2.0, ratioOf("BenchmarkA 1 20 ns/op\nBenchmarkB 1 10 ns/op\nBenchmarkA 1 40 ns/op\nBenchmarkB 1 20 ns/op\nBenchmarkA 1 20 ns/op\nBenchmarkB 1 10 ns/op\n"))
	assert.Equal(t, 3.0, ratioOf("BenchmarkA 1 20 ns/op\nBenchmarkA 1 40 ns/op\nBenchmarkB 1 10 ns/op\n"), "one was not measured as often: the medians count")
	assert.True(t, math.IsNaN(ratioOf("BenchmarkA 1 20 ns/op\n")))
}

func TestTheProcessorIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cpuinfo")
	require.NoError(t, os.WriteFile(file, []byte("processor\t: 0\nmodel name\t: Fast One: 9000\nmodel name\t: other\n"), 0o600))
	assert.Equal(t, "Fast One: 9000", cpuModel(file))
	assert.Empty(t, cpuModel(file+"x"))
	assert.NotContains(t, withoutPassword("redis://:secret@host"), "secret")
	assert.Equal(t, "(not a URL)", withoutPassword("redis://%zz"))
}

// TestMeasure measures this package's own benchmark, without the load.
func TestMeasure(t *testing.T) {
	out := &strings.Builder{}
	o := options{budget: time.Minute, count: 2, benchtime: "10x", packages: "."}
	err := measure(t.Context(), o, regexp.MustCompile("^BenchmarkMedian$"), out, quietProgress())
	require.NoError(t, err)
	rs := parsed(t, out.String())
	require.Len(t, rs.rows, 1)
	assert.Len(t, rs.rows[0].values["ns/op"], 2)
	assert.Equal(t, "10x", rs.config["benchtime"])
	assert.Contains(t, markdown(rs, nil), "## Median")

	err = measure(t.Context(), o, regexp.MustCompile("none"), out, quietProgress())
	assert.ErrorContains(t, err, "nothing to measure")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = measure(ctx, o, regexp.MustCompile("Median"), out, quietProgress())
	assert.True(t, errors.Is(err, context.Canceled), "%v", err)
}

func BenchmarkMedian(b *testing.B) {
	values := []float64{5, 1, 4, 2, 3}
	for b.Loop() {
		if median(values) != 3 {
			b.Fatal("not the median")
		}
	}
}

func TestACellThatThereIsNoTimeForIsNoFault(t *testing.T) {
	ctx, cancel := context.WithTimeoutCause(t.Context(), 0, errTime)
	defer cancel()
	g := generator{program: program(t, "echo no such framework >&2; exit 1").program, warmup: time.Second, duration: time.Second}
	_, err := g.run(ctx, cell{"gin", "memory", false, "0"})
	assert.ErrorIs(t, err, errTime)
	_, err = g.run(t.Context(), cell{"gin", "memory", false, "0"})
	assert.ErrorContains(t, err, "no such framework")
}
