//go:build race

package fibertest

// Race: the race detector is on. It makes allocations of its own, and takes its time.
const Race = true
