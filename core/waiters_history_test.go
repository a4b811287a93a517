package core_test

import (
	"context"
	"fmt"
	"math/rand/v2"
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

// faultyStore is a store in which everything goes wrong now and then: calls are slow, on their way
// there or back, fail, with and without effect, hang or panic; watches do so too, end for no
// reason, and lose their message.
type faultyStore struct {
	store.Store
	watches atomic.Int64 // that were not given up
}

// randomFault fails, hangs, panics or is slow in four of so many calls.
func randomFault(ctx context.Context, calls int) error {
	switch rand.IntN(calls) {
	case 0:
		return errDown
	case 1:
		if rand.IntN(20) == 0 {
			return hang(ctx)
		}
	case 2:
		if rand.IntN(4) == 0 {
			panic("the store has crashed")
		}
	case 3:
		time.Sleep(rand.N(20 * time.Millisecond))
	}
	return nil
}

func (s *faultyStore) Acquire(ctx context.Context, key string, claim store.Claim) (store.Grant, error) {
	if err := randomFault(ctx, 40); err != nil {
		return store.Grant{}, err
	}
	grant, err := s.Store.Acquire(ctx, key, claim)
	switch {
	case grant.State == store.Acquired: // that its owner never hears of it is fault enough
		if rand.IntN(10) == 0 {
			err = errDown
		}
	case rand.IntN(4) == 0:
		time.Sleep(rand.N(300 * time.Millisecond))
	default:
		err = randomFault(ctx, 40)
	}
	if err != nil {
		return store.Grant{}, err
	}
	return grant, nil
}

func (s *faultyStore) Capabilities() store.Capabilities { return store.Capabilities{Watch: s.watch} }

func (s *faultyStore) watch(ctx context.Context, key string) (<-chan struct{}, func(), error) {
	if err := randomFault(ctx, 20); err != nil {
		return nil, nil, err
	}
	changed, _, err := s.Store.Capabilities().Watch(ctx, key)
	if err != nil {
		return nil, nil, err
	}
	switch rand.IntN(10) {
	case 0:
		changed = make(chan struct{})
	case 1:
		early := make(chan struct{})
		close(early)
		changed = early
	}
	s.watches.Add(1)
	return changed, func() { s.watches.Add(-1) }, nil
}

// history is what has happened to one operation.
type history struct {
	testing.TB
	name string

	mu      sync.Mutex
	running bool
	stood   map[string]time.Time // until when a run's record may have stood, by its result
}

// run is one run of the operation: it takes its time, and then panics, fails or returns its result.
func (h *history) run() (result string, ok bool) {
	h.mu.Lock()
	assert.False(h, h.running, "%s: two runs at a time", h.name)
	h.running = true
	result = fmt.Sprintf("%s, run %d", h.name, len(h.stood))
	h.stood[result] = time.Now().Add(time.Hour) // until more is known
	h.mu.Unlock()
	time.Sleep(rand.N(60 * time.Millisecond))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running = false
	end := rand.IntN(10)
	if end < 4 {
		h.stood[result] = time.Time{}
	}
	if end == 0 {
		panic("the handler has crashed")
	}
	return result, end >= 4
}

// ended remembers that the record of a run stands, which has just been answered.
func (h *history) ended(result string, retention time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stood[result] = time.Now().Add(retention)
}

// check is for somebody who came then and was told a result.
func (h *history) check(result string, came time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	until, known := h.stood[result]
	assert.True(h, known, "%s was told %q", h.name, result)
	assert.False(h, until.Before(came), "%s, who came at %v, was told %q, gone at %v", h.name, came, result, until)
}

// TestHistoriesOfWaiters compares the answers that waiters get with what has happened, whatever
// store, clients and handlers do: runs come one after the other; an answer is of one's own
// operation, and of a run whose record still stood when one came; it comes in time, and nothing
// is left behind.
func TestHistoriesOfWaiters(t *testing.T) {
	for name, wrap := range map[string]func(*faultyStore) store.Store{
		"watched": func(s *faultyStore) store.Store { return s },
		"polled":  func(s *faultyStore) store.Store { return shared{s} },
	} {
		t.Run(name, func(t *testing.T) {
			var replays int64 // of all rounds: with records that stand for a moment there may be none in one
			for range 8 {
				synctest.Test(t, func(t *testing.T) {
					store := &faultyStore{Store: newStore(t)}
					replays += waiterHistories(t, core.MustNew(core.Config{Service: "shop", User: byUser, Store: wrap(store)}))
					assert.Zero(t, store.watches.Load(), "every watch was given up, once")
				})
			}
			assert.Positive(t, replays)
		})
	}
}

// waiterHistories returns how many duplicates got a result.
func waiterHistories(t *testing.T, e *core.Engine) (answered int64) {
	const clients, operations = 600, 9
	retention := rand.N(20*time.Millisecond) + 1
	p := core.TaskPolicy{Name: "task", Record: core.Record{Lease: 10 * time.Second, Retention: retention}}
	limits := []time.Duration{1, time.Millisecond, 300 * time.Millisecond, 3 * time.Second}
	policies, guards := make([]core.TaskPolicy, len(limits)), make([]*core.Guard, len(limits))
	for i, limit := range limits {
		policies[i] = p
		policies[i].Duplicate = core.Wait(limit)
		guards[i] = e.MustGuard(core.Policy{Name: p.Name, Key: core.Header(core.Required), Duplicate: core.Wait(limit), Record: p.Record})
	}
	histories := make([]*history, operations)
	for i := range histories {
		histories[i] = &history{TB: t, name: fmt.Sprintf("operation %d", i), stood: map[string]time.Time{}}
	}

	var replays atomic.Int64
	var all sync.WaitGroup
	for range clients {
		n, limited := rand.IntN(operations), rand.IntN(len(limits))
		h, limit := histories[n], limits[limited]
		user, key, task := fmt.Sprint(n%3), fmt.Sprint(n/3), n%3 == 2
		ctx, cancel := context.WithCancel(context.Background())
		if rand.IntN(4) == 0 {
			ctx, cancel = context.WithTimeout(ctx, rand.N(500*time.Millisecond))
		}
		all.Go(func() {
			defer cancel()
			came, ran := time.Now(), false
			defer func() {
				_ = recover() // what store and handler panic with
				if took := time.Since(came); !ran {
					// The first look and the last one may each take the store's deadline.
					assert.LessOrEqual(t, took, limit+5*time.Second, "%s: answered late", h.name)
				}
			}()
			if task {
				r, err := do(ctx, e, key, policies[limited], func(context.Context) ([]byte, error) {
					ran = true
					result, ok := h.run()
					if !ok {
						return nil, errDown
					}
					return []byte(result), nil
				})
				switch {
				case err != nil:
				case r.Replayed:
					replays.Add(1)
					h.check(string(r.Value), came)
					clear(r.Value) // it is the caller's own
				default:
					h.ended(string(r.Value), retention)
				}
				return
			}
			c := post("{}", nil).withKey(key)
			c.header.Set("X-User", user)
			c.handler = func(context.Context) adapter.Capture {
				ran = true
				result, ok := h.run()
				if !ok {
					return answer(500, result)
				}
				return answer(201, result)
			}
			serveFor(t, ctx, guards[limited], c)
			switch {
			case c.response.Status != 201:
			case c.replayed():
				replays.Add(1)
				h.check(string(c.response.Body), came)
			default:
				h.ended(string(c.response.Body), retention)
			}
		})
		if rand.IntN(8) == 0 {
			time.Sleep(rand.N(40 * time.Millisecond))
		}
	}
	all.Wait()
	time.Sleep(time.Minute) // what a store that hangs has kept
	assert.Zero(t, e.Waited(), "nobody waits any more")
	assert.Zero(t, e.WaiterCalls(), "every place was given back")
	return replays.Load()
}

// TestNobodyOversleeps: runs end and clients leave at the same moments, so that a waiter leaves while the store is
// asked in its name. Yet the next run begins when the last one has failed, and all who still wait then are told when
// one has done it.
func TestNobodyOversleeps(t *testing.T) {
	for range 50 {
		inBubble(t, nobodyOversleeps)
	}
}

func nobodyOversleeps(t *testEnv) {
	ticks := func(n int) time.Duration { return time.Duration(1+rand.IntN(n)) * 5 * time.Millisecond }
	g := t.MustGuard(core.Policy{Duplicate: core.Wait(time.Minute)})
	var mu sync.Mutex
	runs, last := 0, 5+rand.IntN(30)
	ended := time.Now() // the last run
	var all sync.WaitGroup
	for range 300 {
		c := post("{}", nil).doing(func(context.Context) adapter.Capture {
			mu.Lock()
			assert.Equal(t, ended, time.Now(), "the next one runs at once")
			runs++
			status := 500
			if runs == last {
				status = 201
			}
			mu.Unlock()
			time.Sleep(ticks(3))
			mu.Lock()
			defer mu.Unlock()
			ended = time.Now()
			return answer(status, "")
		})
		ctx, cancel := context.WithCancel(context.Background())
		if rand.IntN(4) > 0 { // who stays is enough for all runs
			ctx, cancel = context.WithTimeout(ctx, ticks(40))
		}
		all.Go(func() {
			defer cancel()
			serveFor(t.T, ctx, g, c)
			if c.replayed() {
				mu.Lock()
				defer mu.Unlock()
				assert.Equal(t, ended, time.Now(), "told at once")
			}
		})
	}
	all.Wait()
	assert.Equal(t, last, runs)
}
