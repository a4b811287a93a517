//go:build race

package fiberidem_test

// underRace: the race detector makes allocations of its own, and takes its time.
const underRace = true
