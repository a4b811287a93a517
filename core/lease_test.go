package core_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/store"
)

// Leases when the store is slow. A store carries a call out at any moment between the question
// and the answer, and another process counts from that moment.

// late is an answer that comes after d, the first time.
func late(d time.Duration) func(context.Context) error {
	var asked atomic.Bool
	return func(context.Context) error {
		if asked.CompareAndSwap(false, true) {
			time.Sleep(d)
		}
		return nil
	}
}

// worksFor is a store that is down after n calls.
func worksFor(n int64) func(context.Context) error {
	var calls atomic.Int64
	return func(context.Context) error {
		if calls.Add(1) > n {
			return errDown
		}
		return nil
	}
}

// processes are two of one service: the first has a slow way to the store that they share.
type processes struct {
	*testing.T
	first, second *core.Guard
	observed      events // what the first one observes
	running       atomic.Int64
	start         time.Time
	served        sync.WaitGroup
}

func inTwoProcesses(t *testing.T, name string, slow func(store.Store) store.Store, timeout time.Duration, p core.Policy,
	test func(*processes)) {
	bubble(t, name, func(t *testing.T) {
		store := newStore(t)
		two := &processes{T: t, start: time.Now()}
		one := core.MustNew(core.Config{User: byUser, Store: slow(store), StoreTimeout: timeout, Observe: two.observed.add})
		two.first = one.MustGuard(p)
		p.Duplicate = core.Wait(time.Minute)
		two.second = core.MustNew(core.Config{User: byUser, Store: store}).MustGuard(p)
		test(two)
		two.served.Wait()
	})
}

// begin serves c in the first process, and returns when the handler waits for something.
func (t *processes) begin(ctx context.Context, c *call) {
	t.served.Go(func() { assert.NoError(t, t.first.Serve(ctx, c)) })
	synctest.Wait()
}

// order is a call whose handler runs until it has taken so long or until its lease is lost.
func (t *processes) order(takes time.Duration) *call {
	return post("{}", nil).doing(func(ctx context.Context) adapter.Capture {
		assert.EqualValues(t, 1, t.running.Add(1), "never two at a time")
		defer t.running.Add(-1)
		select {
		case <-ctx.Done():
		case <-time.After(takes):
		}
		return answer(201, "done")
	})
}

// A run whose lease can't be renewed ends before another one begins.
func TestLostLeaseEndsTheRunBeforeTheNextBegins(t *testing.T) {
	for name, tc := range map[string]struct {
		slow    func(store.Store) store.Store
		timeout time.Duration
		ends    time.Duration
	}{
		"the answer to the claim is late": {func(s store.Store) store.Store {
			return &spy{Store: &spy{Store: s, renew: down}, after: true, acquire: late(1500 * time.Millisecond)}
		}, 2 * time.Second, 3 * time.Second},
		"the answer to a renewal is late": {func(s store.Store) store.Store {
			return &spy{Store: &spy{Store: s, renew: worksFor(1)}, after: true, renew: late(time.Second)}
		}, 2 * time.Second, 4 * time.Second},
		"no answer to a renewal": {func(s store.Store) store.Store {
			return &spy{Store: s, renew: hang}
		}, 10 * time.Second, 3 * time.Second},
	} {
		inTwoProcesses(t, name, tc.slow, tc.timeout, core.Policy{Record: core.Record{Lease: 3 * time.Second}}, func(t *processes) {
			first, second := t.order(time.Hour), t.order(time.Second)
			handler := first.handler
			first.handler = func(ctx context.Context) adapter.Capture {
				captured := handler(ctx)
				assert.ErrorIs(t, context.Cause(ctx), core.ErrLeaseLost)
				assert.Equal(t, tc.ends, time.Since(t.start))
				time.Sleep(time.Second) // it has stopped, and tidies up
				return captured
			}
			t.begin(context.Background(), first)
			serve(t, t.second, second)
			assert.Equal(t, 1, second.ran)
			t.served.Wait()
			assert.Equal(t, 201, first.response.Status, "the client gets the real response")
		})
	}
}

// A store that is slow, but answers, costs no lease.
func TestSlowStoreCostsNoLease(t *testing.T) {
	for name, tc := range map[string]struct {
		slow    func(store.Store) store.Store
		timeout time.Duration
	}{
		"the answer to the claim takes nearly as long as the lease": {func(s store.Store) store.Store {
			return &spy{Store: s, after: true, acquire: late(2500 * time.Millisecond)}
		}, 5 * time.Second},
		"no answer to a renewal within the store's deadline": {func(s store.Store) store.Store {
			var asked atomic.Bool
			return &spy{Store: s, renew: func(ctx context.Context) error {
				if asked.CompareAndSwap(false, true) {
					return hang(ctx)
				}
				return nil
			}}
		}, 500 * time.Millisecond},
	} {
		inTwoProcesses(t, name, tc.slow, tc.timeout, core.Policy{Record: core.Record{Lease: 3 * time.Second}}, func(t *processes) {
			first, second := t.order(20*time.Second), t.order(0)
			t.begin(context.Background(), first)
			serve(t, t.second, second)
			assert.Zero(t, second.ran)
			assert.True(t, second.replayed())
			t.served.Wait()
			assert.NotContains(t, t.observed.kinds(), core.LeaseLost)
		})
	}
}

// A lost lease is lost once: nobody asks for it again while its handler goes on.
func TestALeaseIsLostOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var observed events
		store := &spy{Store: newStore(t), renew: lost}
		g := core.MustNew(core.Config{User: byUser, Store: store, Observe: observed.add}).MustGuard(core.Policy{
			Record: core.Record{Lease: 3 * time.Second}})
		var served sync.WaitGroup
		for _, body := range []string{"1", "2"} {
			served.Go(func() { serve(t, g, post(body, nil).doing(slowly(time.Minute, 201, ""))) })
			time.Sleep(2 * time.Second)
		}
		served.Wait()
		assert.Equal(t, 2, count(observed.kinds(), core.LeaseLost))
		assert.EqualValues(t, 2, store.renews.Load())
	})
}

// A claim whose lease has passed this moment when the store's answer comes is none. It is released.
func TestClaimThatComesTooLateIsNotRun(t *testing.T) {
	slow := func(s store.Store) store.Store { return &spy{Store: s, after: true, acquire: late(time.Second)} }
	inTwoProcesses(t, "", slow, 0, core.Policy{Record: core.Record{Lease: time.Second}}, func(t *processes) {
		assert.Equal(t, "store_unavailable", outcome(t, t.first, t.order(0)))
		synctest.Wait()
		assert.Equal(t, "attempt 1", outcome(t, t.first, t.order(0)))
	})
}

// A client is told to come back when a dead run's lease has passed. As long as the lease is renewed, nobody knows how
// long the run takes.
func TestRetryAfterOfARunningOperation(t *testing.T) {
	for name, tc := range map[string]struct {
		duplicate core.Duplicate
		renew     func(context.Context) error
		after     time.Duration
		want      string
	}{
		"a run that is alive":      {core.Replay(), nil, 19 * time.Second, "1"},
		"one that may be":          {core.Replay(), down, 11 * time.Second, "1"},
		"a missed renewal":         {core.Replay(), down, 15 * time.Second, "15"},
		"under Reject":             {core.Reject(""), down, 15*time.Second + 1, "15"},
		"at the limit of a wait":   {core.Wait(5 * time.Second), down, 15 * time.Second, "10"},
		"less than a second later": {core.Replay(), down, 29900 * time.Millisecond, "1"},
	} {
		synctest.Test(t, func(t *testing.T) {
			e := core.MustNew(core.Config{User: byUser, Store: &spy{Store: newStore(t), renew: tc.renew}})
			g := e.MustGuard(core.Policy{Duplicate: tc.duplicate})
			go serve(t, g, post("{}", nil).doing(slowly(time.Minute, 201, "")))
			time.Sleep(tc.after)
			assert.Equal(t, tc.want, serve(t, g, post("{}", nil)).response.Get("Retry-After"), name)
			time.Sleep(time.Minute)
		})
	}
}

// Everything in this file runs on synctest's clock: seconds and hours cost nothing.

func TestManyLeasesShareOneTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := core.MustNew(core.Config{Store: &spy{Store: newStore(t)}})
		// Short and long leases, begun at different moments, none of which may be lost.
		for i := range 50 {
			p := core.TaskPolicy{Name: "n", Record: core.Record{Lease: time.Duration(50+97*i) * time.Millisecond}}
			go func() {
				time.Sleep(time.Duration(i*13) * time.Millisecond)
				_, err := do(context.Background(), e, strings.Repeat("k", i+1), p, func(ctx context.Context) ([]byte, error) {
					select {
					case <-ctx.Done():
					case <-time.After(20 * time.Second):
					}
					return nil, context.Cause(ctx)
				})
				assert.NoError(t, err)
			}()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
	})
}
