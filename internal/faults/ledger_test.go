package faults_test

import (
	"slices"
	"sync"
)

// ledger notes executions outside of any store.
type ledger struct {
	mu   sync.Mutex
	runs map[string][]uint64 // the attempt numbers, by operation
}

func newLedger() *ledger { return &ledger{runs: map[string][]uint64{}} }

func (l *ledger) add(operation string, attempt uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs[operation] = append(l.runs[operation], attempt)
}

// of returns how often an operation ran.
func (l *ledger) of(operation string) int { return len(l.attempts(operation)) }

// attempts returns the attempt numbers of the runs of an operation, in their order.
func (l *ledger) attempts(operation string) []uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.runs[operation])
}

// tally is what the ledger says about operations.
type tally struct {
	executions int // how often their handlers ran
	duplicates int // executions beyond the first of each operation
	losses     int // operations that were answered with success and did not take effect
}
