// Package race tells tests whether the race detector is on.
package race

import (
	"regexp"
	"testing"
)

// measuring are the names of tests that CI runs once more, without the race detector.
var measuring = regexp.MustCompile(`Allocations|Growth|RunsOn`)

// Skip skips a test that the race detector distorts: it makes allocations of its own, drops what a sync.Pool is given, takes its time,
// and finds the races of others. The name of the test has to tell CI that it measures.
func Skip(tb testing.TB, why string) {
	tb.Helper()
	if !measuring.MatchString(tb.Name()) {
		tb.Fatalf("CI does not run %s without the race detector: its name needs one of %s", tb.Name(), measuring)
	}
	if Enabled {
		tb.Skip(why)
	}
}
