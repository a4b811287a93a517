package load

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
)

// recent is from among how many of the latest operations a duplicate is chosen: enough for
// most of them to be done, and few enough for some to be running.
const recent = 1024

// maxFaults is how many faults are kept word for word.
const maxFaults = 10

// An OutcomeError says that a service has not kept what it promises.
type OutcomeError struct {
	// Faults is how many answers and operations were wrong.
	Faults int
	// First are the first of them, at most ten.
	First []error
}

func (e *OutcomeError) Error() string {
	return fmt.Sprintf("%d answers or operations were wrong: %v", e.Faults, errors.Join(e.First...))
}

// Unwrap returns the first faults.
func (e *OutcomeError) Unwrap() []error { return e.First }

// ledger hands out operations and keeps account of what came back for them. It is safe for
// concurrent use.
type ledger struct {
	duplicates float64 // the share of requests that ask again
	bare       bool    // nothing guards the service

	mu         sync.Mutex
	random     *rand.Rand
	operations []account // by number
	first      int       // answers that were the first of their operation
	replayed   int
	conflicts  int
	faults     OutcomeError
}

// account is what is known of an operation.
type account struct {
	asked    int32
	first    int32 // how many answers were unmarked 201s
	answered bool  // body is known
	body     uint64
}

func newLedger(duplicates float64, bare bool, seed uint64) *ledger {
	return &ledger{duplicates: duplicates, bare: bare, random: rand.New(rand.NewPCG(seed, 0))}
}

// next returns the number of the operation to ask for: a new one, or, for a duplicate, one
// of the latest.
func (l *ledger) next() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.operations)
	operation := n
	if n > 0 && l.random.Float64() < l.duplicates {
		operation = n - 1 - l.random.IntN(min(n, recent))
	} else {
		l.operations = append(l.operations, account{})
	}
	l.operations[operation].asked++
	return uint64(operation)
}

// answered takes down an answer to a request for an operation.
func (l *ledger) answered(operation uint64, a answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := &l.operations[operation]
	switch {
	case a.status == http.StatusCreated && !a.replayed:
		o.first++
		l.first++
		if o.first > 1 && !l.bare {
			l.fault("operation %d has %d answers that are not marked as replayed", operation, o.first)
		}
	case a.status == http.StatusCreated && !l.bare:
		l.replayed++
	case a.status == http.StatusConflict && !l.bare:
		l.conflicts++
		if !a.retryAfter {
			l.fault("operation %d: a 409 without Retry-After", operation)
		}
		if o.asked == 1 {
			l.fault("operation %d was asked for once and got 409", operation)
		}
		return
	default:
		l.fault("operation %d was answered with %d (replayed: %t)", operation, a.status, a.replayed)
		return
	}
	if o.answered && o.body != a.body && !l.bare {
		l.fault("operation %d has answers that differ", operation)
	}
	o.answered, o.body = true, a.body
}

// settle compares what was asked for with what the services say they have carried out, one map
// for each, and returns an *OutcomeError if anything was wrong.
func (l *ledger) settle(executions []map[uint64]uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for operation := range l.operations {
		o := &l.operations[operation]
		var carriedOut uint64
		for _, e := range executions {
			carriedOut += e[uint64(operation)]
		}
		switch {
		case l.bare && carriedOut != uint64(o.asked):
			l.fault("operation %d was carried out %d times, without a guard, for %d requests", operation, carriedOut, o.asked)
		case !l.bare && carriedOut != 1:
			l.fault("operation %d was carried out %d times", operation, carriedOut)
		case o.first == 0:
			l.fault("no answer to operation %d was its first", operation)
		}
	}
	for i, e := range executions {
		for operation, n := range e {
			if operation >= uint64(len(l.operations)) {
				l.fault("service %d has carried out operation %d, %d times, and nobody has asked for it", i, operation, n)
			}
		}
	}
	if l.faults.Faults == 0 {
		return nil
	}
	return &l.faults
}

// fault takes down a fault. The caller holds mu.
func (l *ledger) fault(format string, args ...any) {
	l.faults.Faults++
	if len(l.faults.First) < maxFaults {
		l.faults.First = append(l.faults.First, fmt.Errorf(format, args...))
	}
}
