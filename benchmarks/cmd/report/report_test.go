package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden file anew")

func TestTheReportOfSmallResults(t *testing.T) {
	dir, golden := t.TempDir(), filepath.Join("testdata", "RESULTS.md")
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
	assert.Len(t, charts, 5)
	for _, file := range charts {
		assert.Contains(t, string(got), "](charts/"+filepath.Base(file)+")")
		svg, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.NotContains(t, string(svg), "NaN")
		for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
		}
	}
	require.Error(t, write(golden, dir), "there are no results in it")
}

func TestTargets(t *testing.T) {
	const (
		first  = "fiber, first: time added, against what Fiber's own middleware adds"
		first3 = "fiber3, first: time added, against what Fiber's own middleware adds"
		redis  = "Redis, 64 parallel: rate of replays, against plain commands"
		trips  = "Redis: round trips, first"
		rounds = "BenchmarkFiberPeer/own-first-2 1 1100 ns/op\nBenchmarkFiberPeer/own-first-2 1 2100 ns/op\nBenchmarkFiberPeer/bare-2 1 " +
			"100 ns/op\nBenchmarkFiberPeer/bare-2 1 100 ns/op\n"
	)
	for _, c := range []struct{ what, results, reached, mark string }{
		{first, rounds + "BenchmarkFiberPeer/ours-first-2 1 1600 ns/op", "1.50x", "✅"},
		{first, rounds + "BenchmarkFiberPeer/ours-first-2 1 1610 ns/op", "1.51x", "❌"},
		// each with its round
		{first, rounds + "BenchmarkFiberPeer/ours-first-2 1 1100 ns/op\nBenchmarkFiberPeer/ours-first-2 1 3100 ns/op", "1.25x", "✅"},
		{first, rounds, "–", "–"},
		{first3, rounds + "BenchmarkFiberPeer/ours-first-2 1 1400 ns/op", "–", "–"}, // that is Fiber v2's
		{first3, strings.ReplaceAll(rounds, "Fiber", "Fiber3") + "BenchmarkFiber3Peer/ours-first-2 1 1610 ns/op", "1.51x", "❌"},
		{redis, "BenchmarkRedisPeer/replay/store 1 100 ns/op\nBenchmarkRedisPeer/replay/commands 1 120 ns/op", "1.20x", "✅"},
		{redis, "BenchmarkRedisPeer/replay/store 1 100 ns/op\nBenchmarkRedisPeer/replay/commands 1 110 ns/op", "1.10x", "❌"},
		{trips, "BenchmarkRedisPeer/operation/store-16 1 5 ns/op 2 round-trips/op", "2", "✅"},
	} {
		rs, err := parse(c.results)
		require.NoError(t, err)
		for _, target := range targets() {
			if target.what == c.what {
				_, reached, mark := target.judge(rs)
				assert.Equal(t, []string{c.reached, c.mark}, []string{reached, mark}, "%s\n%s", c.what, c.results)
			}
		}
	}
}

func TestParse(t *testing.T) {
	rs, err := parse(
		"cpu: A CPU: 3 GHz\nBenchmarkX/json/200B-8   \t  100\t  1234.5 ns/op\t  3 B/op\t 7e3 my-unit\n    x_test.go:1: a log " +
			"line\nBenchmarkX/json/200B-8\nBenchmarkX log line of 4 words\nBenchmarkX/json/200B-8 1 1000 ns/op\nPASS\nok  \ta/b\t1.0s\n")
	require.NoError(t, err)
	require.Len(t, rs.rows, 1)
	assert.Equal(t, "A CPU: 3 GHz", rs.config["cpu"])
	assert.Equal(t, []string{"ns/op", "B/op", "my-unit"}, rs.rows[0].units)
	assert.Equal(t, 1117.25, rs.median("X/json/200B", "ns/op"))
	for _, wrong := range []string{"", "PASS\n", "BenchmarkA 1 x ns/op", "BenchmarkA 1 1 ns/op 3"} {
		_, err := parse(wrong)
		assert.Error(t, err, wrong)
	}
}
