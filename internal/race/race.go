//go:build race

// Package race tells tests whether the race detector is on.
package race

// Enabled tells whether the race detector is on. It makes allocations of its own, drops what a sync.Pool is given, and takes its time.
const Enabled = true
