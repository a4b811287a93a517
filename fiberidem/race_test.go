//go:build race

package fiberidem_test

// raceEnabled: the race detector makes allocations of its own, and takes its time.
const raceEnabled = true
