package main

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func parsed(t *testing.T, text string) *results {
	t.Helper()
	rs, err := parse(strings.NewReader(text))
	require.NoError(t, err)
	return rs
}

func TestParse(t *testing.T) {
	rs := parsed(t, `goos: linux
cpu: A CPU: 3 GHz
pkg: a/b
BenchmarkX/json/200B-8   	  100	  1234.5 ns/op	 162.0 MB/s	  3 B/op	 1 allocs/op	 7e3 my-unit
    x_test.go:1: a log line
BenchmarkX/json/200B-8   	  100	  1000 ns/op	 162.0 MB/s	  3 B/op	 1 allocs/op	 7e3 my-unit
BenchmarkX/json/200B-8
BenchmarkX log line of four words
Benchmarking is 4 fun
BenchmarkY-8 1 5 ns/op
PASS
ok  	a/b	1.0s
pkg: c
BenchmarkY-8 1 6 ns/op
`)
	require.Len(t, rs.rows, 3)
	r := rs.rows[0]
	assert.Equal(t, "X/json/200B", r.name)
	assert.Equal(t, []string{"ns/op", "MB/s", "B/op", "allocs/op", "my-unit"}, r.units)
	assert.Equal(t, []float64{1234.5, 1000}, r.values["ns/op"])
	assert.Equal(t, 1117.25, r.median("ns/op"))
	assert.Equal(t, 7000.0, r.median("my-unit"))
	assert.True(t, math.IsNaN(r.median("other")))
	assert.Equal(t, "A CPU: 3 GHz", rs.config["cpu"])
	assert.Equal(t, "a/b", rs.rows[1].pkg)
	assert.Equal(t, "c", rs.rows[2].pkg)
	assert.Len(t, rs.groups(), 3, "two packages may have a benchmark of the same name")
	var none *row
	assert.True(t, math.IsNaN(none.median("ns/op")), "a row that is not there has no values")
}

func TestTheNumberOfProcessorsIsTakenOffOnlyIfAllHaveIt(t *testing.T) {
	names := func(text string) (names []string) {
		for _, r := range parsed(t, text).rows {
			names = append(names, r.name)
		}
		return names
	}
	assert.Equal(t, []string{"A/8", "B/x-16"}, names("BenchmarkA/8-4 1 1 ns/op\nBenchmarkB/x-16-4 1 1 ns/op\n"))
	assert.Equal(t, []string{"A/key-64", "B/x"}, names("BenchmarkA/key-64 1 1 ns/op\nBenchmarkB/x 1 1 ns/op\n"))
	assert.Equal(t, []string{"A/key-64", "A/key-32"}, names("BenchmarkA/key-64 1 1 ns/op\nBenchmarkA/key-32 1 1 ns/op\n"))
	assert.Empty(t, names(""))
}

func TestLinesThatMakeNoSenseAreErrors(t *testing.T) {
	for _, line := range []string{"BenchmarkA 1 x ns/op", "BenchmarkA 1 1 ns/op 3"} {
		_, err := parse(strings.NewReader("\n" + line))
		assert.ErrorContains(t, err, "line 2")
	}
}

func FuzzParse(f *testing.F) {
	f.Add("pkg: a\nBenchmarkA/b/c-2 1 2 ns/op 3 B/record\n")
	f.Add("BenchmarkMatrix/gin/bare/none 1 0 ns/op\nBenchmarkMatrix/gin/replay/memory 1 NaN ns/op -1 allocs/op\n")
	f.Add("BenchmarkLoad/gin/memory/open/duplicates=10-2 1 +Inf req/s 5 p50-ns")
	f.Add("BenchmarkKeys/json/1MiB/key 1 1e308 ns/op\nBenchmarkMemstore/1k/operation 1 1 ns/op 0 B/record")
	f.Fuzz(func(_ *testing.T, text string) {
		if rs, err := parse(strings.NewReader(text)); err == nil {
			markdown(rs, draw(rs)) // no panic
		}
	})
}

func TestMedianAndSpread(t *testing.T) {
	assert.Equal(t, 2.0, median([]float64{3, 1, 2}))
	assert.Equal(t, 2.5, median([]float64{4, 1, 3, 2}))
	assert.Equal(t, 7.0, median([]float64{7}))
	assert.True(t, math.IsNaN(median(nil)))
	values := []float64{3, 1, 2}
	median(values)
	assert.Equal(t, []float64{3, 1, 2}, values, "the order stays")

	assert.InDelta(t, 0.5, spread([]float64{3, 2, 1.5}), 1e-9)
	assert.Zero(t, spread([]float64{0, 0}))
	assert.True(t, math.IsNaN(spread([]float64{1})))
	assert.True(t, math.IsNaN(spread([]float64{0, 0, 1})))
}

func TestBaselines(t *testing.T) {
	var text strings.Builder
	for _, name := range []string{
		"Matrix/gin/bare/none", "Matrix/gin/replay/redis", "Matrix/echo/replay/redis",
		"FiberPeer/bare", "FiberPeer/own-first", "FiberPeer/ours-first", "FiberPeer/ours-other",
		"Keys/json/1MiB/key", "Keys/json/1MiB/md5", "Keys/json/1MiB/jsontext", "Keys/json/1MiB/jsontext-md5", "Keys/form/1MiB/key", "Keys/form/1MiB/md5",
		"RedisPeer/replay/store", "RedisPeer/replay/cached", "RedisPeer/replay/scripts", "RedisPeer/replay/commands",
	} {
		text.WriteString("Benchmark" + name + " 1 1 ns/op\n")
	}
	rs := parsed(t, text.String())
	for name, want := range map[string]string{
		"Matrix/gin/replay/redis":     "bare: Matrix/gin/bare/none",
		"Matrix/gin/bare/none":        "",
		"Matrix/echo/replay/redis":    "",
		"FiberPeer/ours-first":        "bare: FiberPeer/bare, own: FiberPeer/own-first",
		"FiberPeer/own-first":         "bare: FiberPeer/bare",
		"FiberPeer/ours-other":        "bare: FiberPeer/bare",
		"FiberPeer/bare":              "",
		"Keys/json/1MiB/key":          "md5: Keys/json/1MiB/md5, jsontext-md5: Keys/json/1MiB/jsontext-md5",
		"Keys/json/1MiB/md5":          "",
		"Keys/json/1MiB/jsontext-md5": "",
		"Keys/form/1MiB/key":          "md5: Keys/form/1MiB/md5",
		"RedisPeer/replay/store":      "scripts: RedisPeer/replay/scripts, commands: RedisPeer/replay/commands",
		"RedisPeer/replay/cached":     "commands: RedisPeer/replay/commands",
		"RedisPeer/replay/commands":   "",
	} {
		var got []string
		for _, b := range baselines {
			if found := b.find(rs.row(name), rs.rows); found != nil {
				got = append(got, b.name+": "+found.name)
			}
		}
		assert.Equal(t, want, strings.Join(got, ", "), name)
	}
}

func TestFormats(t *testing.T) {
	nan := math.NaN()
	for got, want := range map[string]string{
		duration(0): "0 ns", duration(7): "7 ns", duration(1.25): "1.25 ns", duration(12.3): "12 ns", duration(999): "999 ns", duration(1234): "1.23 µs", duration(45e6): "45 ms", duration(2e12): "2,000 s", duration(-1500): "-1.50 µs",
		size(504): "504 B", size(1 << 20): "1 MiB", size(1.25 * 1024): "1.25 KiB",
		count(1000): "1k", count(5e6): "5M",
		whole(3): "3", whole(2.5): "2.50", whole(1234567): "1,234,567", whole(-1000): "-1,000",
		ratio(0.8): "0.80x", ratio(nan): nothing, ratio(math.Inf(1)): nothing, value(nan, "ns/op"): nothing, whole(nan): nothing,
		value(250, "B/record"): "250 B", value(1500, "p99-ns"): "1.50 µs", value(2, "round-trips/op"): "2",
		percent(0.034): " ±3 %", percent(nan): "", heading("p99.9-ns"): "p99.9", heading("MB/s"): "MB/s",
		significant(0.001): "0.001",
	} {
		assert.Equal(t, want, got)
	}
	for text, want := range map[string]float64{"1k": 1000, "5M": 5e6, "200B": 200, "4KiB": 4096, "1MiB": 1 << 20, "none": 0, "": 0, "12": 12, "1x": 0} {
		assert.Equal(t, want, amount(text), text)
	}
}
