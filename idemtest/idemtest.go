// Package idemtest helps to test handlers and tasks that are protected: an engine whose store
// lives in the test, whose time the test moves, and which counts what ran.
//
//	e := idemtest.New(t, core.Config{User: core.UserFromHeader("X-User")})
//	handler := newHandler(e.Engine)  // the service's own code
//	…                                // the same request twice
//	e.WantRuns("POST /orders", 1)
//
// What is hard to bring about with a real store is one call here: a duplicate that meets with a run
// in progress ([Engine.NextIsRunning]), an operation that an earlier run has abandoned
// ([Engine.NextIsAbandoned]), a store that fails ([Engine.Fail]), a lease or a retention that
// passes ([Engine.Advance]), and the context of a second attempt ([Attempt]).
//
// An engine also works in a bubble of testing/synctest, whose sleeps move its time as well.
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

// Engine is an engine for a test. Its methods are safe for concurrent use.
type Engine struct {
	*core.Engine
	tb    testing.TB
	store *testStore

	mu     sync.Mutex
	events []core.Event
}

// New makes an engine from c with a store of its own: c.Store must be nil. c.Observe is told
// what happens as usual. A fault of c ends the test.
func New(tb testing.TB, c core.Config) *Engine {
	tb.Helper()
	if c.Store != nil {
		tb.Fatal("idemtest: Config.Store is set; the engine brings a store of its own")
	}
	e := &Engine{tb: tb, store: new(testStore)}
	records, err := memstore.New(memstore.Options{Now: e.store.now})
	if err != nil {
		tb.Fatal(err)
	}
	e.store.Store, c.Store = records, e.store
	observe := c.Observe
	c.Observe = func(ctx context.Context, event core.Event) {
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

// Advance lets d pass for leases and retentions.
func (e *Engine) Advance(d time.Duration) {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	e.store.ahead += d
}

// Call is a call of the store.
type Call string

// The calls.
const (
	Acquire  Call = "acquire"
	Renew    Call = "renew"
	Complete Call = "complete"
	Release  Call = "release"
	Abandon  Call = "abandon"
)

// ErrFailing is what a call returns that [Engine.Fail] makes fail.
var ErrFailing = errors.New("idemtest: the store is made to fail")

// Fail makes these calls of the store fail from now on, and no others; none of them: the store
// works again. A store that fails at Acquire is one that cannot be reached before the handler; one
// that fails at Complete, Release and Abandon cannot be reached after it.
func (e *Engine) Fail(calls ...Call) {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	e.store.failing = slices.Clone(calls)
}

// NextIsRunning lets the operation that is asked for next be under way already, with equal
// parameters, for at least lease: a request or task that asks for it is a duplicate. It ends when
// lease has passed ([Engine.Advance]), and is abandoned then.
func (e *Engine) NextIsRunning(lease time.Duration) { e.next(lease, 1) }

// NextIsAbandoned lets the operation that is asked for next have been begun before, attempts
// times, and never finished: a takeover gets the next attempt, and a policy with Uncertain
// its refusal.
func (e *Engine) NextIsAbandoned(attempts uint64) { e.next(0, attempts) }

func (e *Engine) next(lease time.Duration, attempts uint64) {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	e.store.earlier = &earlier{lease, attempts}
}

// Events returns what has happened so far.
func (e *Engine) Events() []core.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.events)
}

// Count returns how many events of a kind there were on a route ("POST /orders"), or by a task ("DO"
// and its name).
func (e *Engine) Count(kind core.Kind, route string) (n int) {
	for _, event := range e.Events() {
		if event.Kind == kind && event.Route == route {
			n++
		}
	}
	return n
}

// WantRuns fails the test unless the operations of a route ("POST /orders", or "DO" and a task's
// name) have run n times in all.
func (e *Engine) WantRuns(route string, n int) {
	e.tb.Helper()
	if got := e.Count(core.Started, route); got != n {
		e.tb.Errorf("%s has run %d times, not %d", route, got, n)
	}
}

// WantReplays fails the test unless n duplicates have been answered with the first result. A replay is reported when
// it has been written: up to a second is waited for those that are lacking.
func (e *Engine) WantReplays(route string, n int) {
	e.tb.Helper()
	for until := time.Now().Add(time.Second); e.Count(core.Replayed, route) < n && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
	if got := e.Count(core.Replayed, route); got != n {
		e.tb.Errorf("%s was replayed %d times, not %d", route, got, n)
	}
}

// Attempt calls fn with the context of a run that has this attempt number (1: the first), for
// testing what a handler does at a takeover. [core.RunFrom] finds the run in it. The context ends
// when fn returns.
func Attempt(tb testing.TB, attempt uint64, fn func(ctx context.Context)) {
	tb.Helper()
	if attempt == 0 {
		tb.Fatal("idemtest: attempts are counted from 1")
	}
	e := New(tb, core.Config{})
	if attempt > 1 {
		e.NextIsAbandoned(attempt - 1)
	}
	task := e.MustTask(core.Policy{Name: "idemtest"})
	_, err := core.Do(tb.Context(), task, core.Call{Key: "attempt"}, func(ctx context.Context) (struct{}, error) {
		fn(ctx)
		return struct{}{}, nil
	})
	if err != nil {
		tb.Fatal(err)
	}
}

// store is an in-process store that a test can disturb. It does not say that it is local, so
// that the engine treats it like one on the network.
type testStore struct {
	*memstore.Store

	mu      sync.Mutex
	ahead   time.Duration
	failing []Call
	earlier *earlier
}

// earlier is what has become of the next operation before.
type earlier struct {
	lease    time.Duration // zero: it was abandoned
	attempts uint64
}

// Local hides that the records are in the process.
func (s *testStore) Local(struct{}) {}

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

// begin makes the record that an earlier run has left.
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
