//go:build race

package fiber3idem_test

// raceEnabled: the race detector makes allocations of its own, and takes its time.
const raceEnabled = true
