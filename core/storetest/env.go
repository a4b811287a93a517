package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem/core/store"
)

// env is the store under test in one case, with the checks that the cases are
// written in. The checks end the case when they fail, so they belong to the
// case's own goroutine.
type env struct {
	testing.TB
	Instance
	can     store.Capabilities                        // the store's
	bounded func(tb testing.TB, records int) Instance // for cases that need bounds
	disturb func()                                    // for cases that need faults
}

const (
	// short is a lease or retention that a case waits out.
	short = 40 * time.Millisecond
	// slack is waited on top of it where the clock is a real one, since that of the
	// store may tick in steps.
	slack = 10 * time.Millisecond
	// long is one that stands for as long as the case lasts.
	long = time.Hour
)

// tolerance is how far off what remains may be where the clock can be moved: the store may count in steps of a
// millisecond, or let its clock run on between two calls of Advance. The spans that are compared are whole seconds.
const tolerance = time.Second / 2

// patience bounds the wait for what must happen at once. It is only ever waited out
// for a store that fails; the test of the suite, which has many of those, shortens it.
var patience = 10 * time.Second

// digest is the fingerprint of the claims that the cases make.
const digest = "c2a36fed15128e9e878583caaafefde9"

// standing returns a claim of a new owner that stands for as long as the case.
func standing() store.Claim {
	return store.Claim{Owner: store.NewOwner(), Fingerprint: digest, Lease: long, Retention: long}
}

// lapsing returns a claim of a new owner with a short lease, which is remembered
// for long.
func lapsing() store.Claim {
	c := standing()
	c.Lease = short
	return c
}

// taking returns a claim of a new owner that stands and may take over.
func taking() store.Claim {
	c := standing()
	c.Takeover = true
	return c
}

// pass lets d go by on the store's clock.
func (s *env) pass(d time.Duration) {
	if s.Advance != nil {
		s.Advance(d)
		return
	}
	time.Sleep(d + slack)
}

// spread says which handle on the records each of several callers uses: if the
// instance has a peer, every second one uses that. It is called in the case's own
// goroutine, what it returns in any.
func (s *env) spread() func(caller int) store.Store {
	s.Helper()
	stores := []store.Store{s.Store}
	if s.Peer != nil {
		peer := s.Peer()
		if peer == nil {
			s.Fatal("storetest: the instance's Peer made no store")
		}
		stores = append(stores, peer)
	}
	return func(caller int) store.Store { return stores[caller%len(stores)] }
}

// rounds is how often a case repeats a race. A store across a network gets fewer, also
// if its clock can be moved: that takes a round trip, too.
func (s *env) rounds() int {
	if s.can.Local {
		return 300
	}
	return 40
}

func (s *env) acquire(key string, c store.Claim) store.Grant {
	s.Helper()
	g, err := s.Store.Acquire(s.Context(), key, c)
	if err != nil {
		s.Fatalf("Acquire(%q): %v", key, err)
	}
	return g
}

// meet acquires and expects to meet with a record in state want.
func (s *env) meet(key string, c store.Claim, want store.State, attempt uint64) store.Grant {
	s.Helper()
	g := s.acquire(key, c)
	if g.State != want || g.Attempt != attempt {
		s.Fatalf("Acquire(%q) met with %v, attempt %d; want %v, attempt %d", key, g.State, g.Attempt, want, attempt)
	}
	if g.Free {
		s.Fatalf("Acquire(%q) met with a free record, attempt %d", key, g.Attempt)
	}
	if want == store.Acquired && (g.Fingerprint != "" || len(g.Result) != 0) {
		s.Fatalf("Acquire(%q) came with the leftovers of a former record: %+v", key, g)
	}
	return g
}

// meetFree acquires a claim of a free record.
func (s *env) meetFree(key string, c store.Claim, attempt uint64) {
	s.Helper()
	if g := s.acquire(key, c); g.State != store.Acquired || g.Attempt != attempt || !g.Free {
		s.Fatalf("Acquire(%q) met with %v, attempt %d, free %t; want a free record, attempt %d", key, g.State, g.Attempt, g.Free, attempt)
	}
}

// look expects a record in state want under key, and leaves it alone.
func (s *env) look(key string, want store.State, attempt uint64) store.Grant {
	s.Helper()
	if want == store.Acquired {
		s.Fatal("storetest: look would create a record")
	}
	return s.meet(key, standing(), want, attempt)
}

// begin acquires a claim that nothing stands in the way of.
func (s *env) begin(key string, c store.Claim) {
	s.Helper()
	s.meet(key, c, store.Acquired, 1)
}

func (s *env) renew(key string, owner store.Owner, lease time.Duration) {
	s.Helper()
	if err := s.Store.Renew(s.Context(), key, owner, lease); err != nil {
		s.Fatalf("Renew(%q): %v", key, err)
	}
}

func (s *env) complete(key string, owner store.Owner, result []byte, retention time.Duration) {
	s.Helper()
	if err := s.Store.Complete(s.Context(), key, owner, result, retention); err != nil {
		s.Fatalf("Complete(%q): %v", key, err)
	}
}

func (s *env) release(key string, owner store.Owner) {
	s.Helper()
	if err := s.Store.Release(s.Context(), key, owner); err != nil {
		s.Fatalf("Release(%q): %v", key, err)
	}
}

func (s *env) abandon(key string, owner store.Owner) {
	s.Helper()
	if err := s.Store.Abandon(s.Context(), key, owner); err != nil {
		s.Fatalf("Abandon(%q): %v", key, err)
	}
}

// done expects a finished record with result under key.
func (s *env) done(key string, attempt uint64, result []byte) store.Grant {
	s.Helper()
	g := s.look(key, store.Done, attempt)
	if !bytes.Equal(g.Result, result) {
		s.Fatalf("the result under %q has %d bytes: %.40q; want %d: %.40q", key, len(g.Result), g.Result, len(result), result)
	}
	return g
}

// powerless expects that owner may do nothing to the record.
func (s *env) powerless(key string, owner store.Owner) {
	s.Helper()
	type made struct {
		name string
		err  error
	}
	var capable []made
	if s.can.Checkpoint != nil {
		capable = []made{
			{"Checkpoint", s.can.Checkpoint(s.Context(), key, owner, numbered(firstNumber, "stale"))},
			{"Fail", s.can.Fail(s.Context(), key, owner, true)},
			{"Fail of what does not go on", s.can.Fail(s.Context(), key, owner, false)},
		}
	}
	if s.can.Outlive != nil {
		capable = append(capable, made{"Outlive", s.can.Outlive(s.Context(), key, owner, []byte("stale"), long, long)})
	}
	for _, call := range append(capable, []made{
		{"Renew", s.Store.Renew(s.Context(), key, owner, long)},
		{"Complete", s.Store.Complete(s.Context(), key, owner, []byte("stale"), long)},
		{"Complete without retention", s.Store.Complete(s.Context(), key, owner, []byte("stale"), 0)},
		{"Release", s.Store.Release(s.Context(), key, owner)},
		{"Abandon", s.Store.Abandon(s.Context(), key, owner)},
	}...) {
		if !errors.Is(call.err, store.ErrLost) {
			s.Fatalf("%s of a record that isn't held: %v, want ErrLost", call.name, call.err)
		}
	}
}

// isSize reports whether a record may tell size of a result of n bytes.
func (s *env) isSize(size, n int) bool { return size == n || s.Encrypts && size > n }

// watch watches key and gives up at the end of the case.
func (s *env) watch(key string) (<-chan struct{}, func()) {
	s.Helper()
	changed, stop, err := s.can.Watch(s.Context(), key)
	if err != nil {
		s.Fatalf("Watch(%q): %v", key, err)
	}
	if changed == nil || stop == nil {
		s.Fatalf("Watch(%q) returned no channel or no stop", key)
	}
	s.Cleanup(stop)
	return changed, stop
}

// recall looks for the finished record under key, whose bytes change after the call.
func (s *env) recall(key string) (store.Grant, uint64, bool) {
	k := []byte(key)
	defer clear(k)
	return s.can.Recall(k)
}

func (s *env) recallsNothing(key, what string) {
	s.Helper()
	if g, raw, ok := s.recall(key); ok {
		s.Fatalf("Recall of a record %s: %+v of the claim %d", what, g, raw)
	}
}

// woken expects changed to be closed.
func (s *env) woken(changed <-chan struct{}, by string) {
	s.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case _, open := <-changed:
		if open {
			s.Fatal("the channel was sent to, not closed: other watchers sleep on")
		}
	case <-timeout.C:
		s.Fatalf("a watcher was not woken by %s", by)
	}
}

// oneOfEight has eight callers claim each of the keys "round 0", "round 1" and so on. One of them must get it, as the run
// of that number; the others meet with that run.
func (s *env) oneOfEight(storeOf func(int) store.Store, rounds int, attempt uint64) {
	for round := range rounds {
		var acquired, running atomic.Int32
		key := fmt.Sprint("round ", round)
		together(8, func(i int) {
			g, err := storeOf(i).Acquire(s.Context(), key, taking())
			switch {
			case err != nil:
				s.Errorf("Acquire: %v", err)
			case g.State == store.Acquired && g.Attempt == attempt:
				acquired.Add(1)
			case g.State == store.Running && g.Attempt == attempt:
				running.Add(1)
			}
		})
		if acquired.Load() != 1 || running.Load() != 7 {
			s.Fatalf("of 8 callers, %d run as attempt %d, and %d met with that run", acquired.Load(), attempt, running.Load())
		}
	}
}

// together calls fn n times at once and returns when all are done.
func together(n int, fn func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			fn(i)
		})
	}
	close(start)
	wg.Wait()
}

// ended returns a context that has been cancelled, and one whose deadline has
// passed.
func ended(tb testing.TB) map[error]context.Context {
	cancelled, cancel := context.WithCancel(tb.Context())
	cancel()
	late, cancelLate := context.WithDeadline(tb.Context(), time.Unix(1, 0))
	tb.Cleanup(cancelLate)
	return map[error]context.Context{context.Canceled: cancelled, context.DeadlineExceeded: late}
}
