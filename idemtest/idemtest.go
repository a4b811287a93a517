// Package idemtest helps you test guarded handlers and tasks. Its engine has an in-process store, has a clock that the test moves, and
// counts runs and replays.
//
//	e := idemtest.New(t, core.Config{User: core.UserFromHeader("X-User")})
//	handler := newHandler(e.Engine)  // the service's own code
//	…                                // the same request twice
//	e.WantRuns("POST /orders", 1)
//
// Each of these situations is hard to produce with a real store, and takes one call here:
//
//   - a duplicate of a running operation: [Engine.NextIsRunning]
//   - an operation that an earlier run has abandoned: [Engine.NextIsAbandoned]
//   - a store that fails: [Engine.Fail]
//   - a lease or a retention that passes: [Engine.Advance]
//   - the context of a second attempt: [Attempt]
//
// An engine also works in a testing/synctest bubble, where sleeping moves its clock as well.
package idemtest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/memstore"
)

// Engine is an engine for a test. Make one with [New]. Its methods are safe for concurrent use.
type Engine struct {
	*core.Engine
	tb    testing.TB
	store *testStore

	mu     sync.Mutex
	events []core.Event
}

// New makes an engine from c, with its own store: c.Store must be nil. c.Observe is called as usual. If c is invalid, the test
// ends.
func New(tb testing.TB, c core.Config) *Engine {
	tb.Helper()
	if c.Store != nil {
		tb.Fatal("idemtest: Config.Store is set, but the engine has its own store")
	}
	e := &Engine{tb: tb, store: new(testStore)}
	records, err := memstore.New(memstore.Config{Now: e.store.now})
	if err != nil {
		tb.Fatal(err)
	}
	e.store.Store, c.Store = records, e.store
	observe := c.Observe
	c.Observe = func(ctx context.Context, event core.Event) {
		if event.Kind == core.StoreIsLocal {
			return // it is not the service's store
		}
		e.mu.Lock()
		e.events = append(e.events, event)
		e.mu.Unlock()
		if observe != nil {
			observe(ctx, event)
		}
	}
	if e.Engine, err = core.New(c); err != nil {
		tb.Fatal(err)
	}
	return e
}

// Advance moves the store's clock forward by d, so that leases and retentions pass. Requests that wait ([core.Wait]) follow the
// wall clock: a waiter looks again when its own timer fires, not when Advance has ended the lease. In a testing/synctest bubble,
// both clocks move while the test sleeps.
func (e *Engine) Advance(d time.Duration) {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	e.store.ahead += d
}

// Call is a method of the store.
type Call string

// The calls that [Engine.Fail] can make fail.
const (
	Acquire  Call = "acquire"
	Renew    Call = "renew"
	Complete Call = "complete"
	Release  Call = "release"
	Abandon  Call = "abandon"
)

// ErrFailing is the error of the calls that [Engine.Fail] makes fail.
var ErrFailing = errors.New("idemtest: the store is made to fail")

// Fail makes these calls of the store, and no others, fail from now on with [ErrFailing]. Without arguments, the store works
// again.
//
// Acquire fails for a store that cannot be reached before the handler runs. Renew, Complete, Release and Abandon fail for one that
// cannot be reached afterwards: a run that ends meanwhile is unsettled ([core.Unsettled]). Once the store works again, the next
// call of its operation settles it. Drain with a context that has ended gives it up ([core.RunUnfinished]).
func (e *Engine) Fail(calls ...Call) {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	e.store.failing = slices.Clone(calls)
}

// NextIsRunning makes the next request or task a duplicate of a running operation with equal parameters. That run never finishes.
// It is abandoned when lease has passed ([Engine.Advance]).
func (e *Engine) NextIsRunning(lease time.Duration) { e.next(lease, 1) }

// NextIsAbandoned makes the next request or task one whose operation has started attempts times before and has never finished. The
// request takes over with the next attempt number, or is refused if its policy says Uncertain.
func (e *Engine) NextIsAbandoned(attempts uint64) { e.next(0, attempts) }

func (e *Engine) next(lease time.Duration, attempts uint64) {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	e.store.earlier = &earlier{lease, attempts}
}

// Events returns a copy of the events so far, in order.
func (e *Engine) Events() []core.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.events)
}

// Count returns the number of events of a kind on a route ("POST /orders"), or for a task ("DO " and its name).
func (e *Engine) Count(kind core.Kind, route string) (n int) {
	for _, event := range e.Events() {
		if event.Kind == kind && event.Route == route {
			n++
		}
	}
	return n
}

// WantRuns fails the test unless the operations of a route ("POST /orders"), or of a task ("DO " and its name), have run n times
// in total.
func (e *Engine) WantRuns(route string, n int) {
	e.tb.Helper()
	if got := e.Count(core.Started, route); got != n {
		e.tb.Errorf("%s has run %d times, not %d", route, got, n)
	}
}

// WantReplays fails the test unless n duplicates on a route or of a task have got the first result. A replay is counted after it
// has been written, so WantReplays waits for up to a second.
func (e *Engine) WantReplays(route string, n int) {
	e.tb.Helper()
	for until := time.Now().Add(time.Second); e.Count(core.Replayed, route) < n && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
	if got := e.Count(core.Replayed, route); got != n {
		e.tb.Errorf("%s was replayed %d times, not %d", route, got, n)
	}
}

// Attempt calls fn with the context of a run that has this attempt number, counted from 1. Use it to test what a handler does at a
// takeover. [core.RunFrom] returns that run. The context ends when fn returns.
func Attempt(tb testing.TB, attempt uint64, fn func(ctx context.Context)) {
	tb.Helper()
	if attempt == 0 {
		tb.Fatal("idemtest: attempts are counted from 1")
	}
	e := New(tb, core.Config{})
	if attempt > 1 {
		e.NextIsAbandoned(attempt - 1)
	}
	task := e.MustTask(core.TaskPolicy{Name: "idemtest"})
	_, err := core.Do(tb.Context(), task, core.Call{Key: "attempt"}, func(ctx context.Context) (struct{}, error) {
		fn(ctx)
		return struct{}{}, nil
	})
	if err != nil {
		tb.Fatal(err)
	}
}

// testStore is an in-process store that can be made to fail.
type testStore struct {
	*memstore.Store

	mu      sync.Mutex
	ahead   time.Duration
	failing []Call
	earlier *earlier
}

// earlier describes the earlier runs of the next operation.
type earlier struct {
	lease    time.Duration // zero: it was abandoned
	attempts uint64
}

// Capabilities implements store.Store. The store is not local, so that the engine calls it like one on the network.
func (s *testStore) Capabilities() store.Capabilities {
	can := s.Store.Capabilities()
	can.Local = false
	outlive := can.Outlive
	can.Outlive = func(ctx context.Context, key string, owner store.Owner, result []byte, retention, known time.Duration) error {
		if err := s.fails(Complete); err != nil {
			return err
		}
		return outlive(ctx, key, owner, result, retention, known)
	}
	return can
}

func (s *testStore) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Add(s.ahead)
}

func (s *testStore) fails(call Call) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.failing, call) {
		return ErrFailing
	}
	return nil
}

func (s *testStore) Acquire(ctx context.Context, key string, claim store.Claim) (store.Grant, error) {
	if err := s.fails(Acquire); err != nil {
		return store.Grant{}, err
	}
	s.mu.Lock()
	before := s.earlier
	s.earlier = nil
	s.mu.Unlock()
	if before != nil {
		if err := s.begin(ctx, key, claim, before); err != nil {
			return store.Grant{}, err
		}
	}
	return s.Store.Acquire(ctx, key, claim)
}

// begin makes the record of the earlier runs.
func (s *testStore) begin(ctx context.Context, key string, claim store.Claim, before *earlier) error {
	for range before.attempts {
		other := store.Claim{Owner: store.NewOwner(), Fingerprint: claim.Fingerprint,
			Lease: max(before.lease, time.Nanosecond), Retention: claim.Retention, Takeover: true}
		if _, err := s.Store.Acquire(ctx, key, other); err != nil {
			return err
		}
		if before.lease == 0 {
			if err := s.Store.Abandon(ctx, key, other.Owner); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *testStore) Renew(ctx context.Context, key string, owner store.Owner, lease time.Duration) error {
	if err := s.fails(Renew); err != nil {
		return err
	}
	return s.Store.Renew(ctx, key, owner, lease)
}

func (s *testStore) Complete(ctx context.Context, key string, owner store.Owner, result []byte, retention time.Duration) error {
	if err := s.fails(Complete); err != nil {
		return err
	}
	return s.Store.Complete(ctx, key, owner, result, retention)
}

func (s *testStore) Release(ctx context.Context, key string, owner store.Owner) error {
	if err := s.fails(Release); err != nil {
		return err
	}
	return s.Store.Release(ctx, key, owner)
}

func (s *testStore) Abandon(ctx context.Context, key string, owner store.Owner) error {
	if err := s.fails(Abandon); err != nil {
		return err
	}
	return s.Store.Abandon(ctx, key, owner)
}
