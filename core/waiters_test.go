package core_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/core/store"
)

// watchedSpy can be watched, and counts that too. What happens to its calls may change on the way.
type watchedSpy struct {
	*spy
	watches, stops           atomic.Int64
	acquireFault, watchFault atomic.Pointer[func(context.Context) error]
}

func newWatchedSpy(t testing.TB) *watchedSpy {
	s := &watchedSpy{spy: &spy{Store: newStore(t)}}
	s.onAcquire(works)
	s.onWatch(works)
	s.acquire = func(ctx context.Context) error { return (*s.acquireFault.Load())(ctx) }
	var owners sync.Map
	s.asked = func(_ string, claim store.Claim) {
		_, twice := owners.LoadOrStore(claim.Owner, true)
		assert.False(t, twice, "each Acquire has its own owner")
	}
	return s
}

func works(context.Context) error { return nil }

func (s *watchedSpy) onAcquire(fault func(context.Context) error) { s.acquireFault.Store(&fault) }

func (s *watchedSpy) onWatch(fault func(context.Context) error) { s.watchFault.Store(&fault) }

func (s *watchedSpy) Capabilities() store.Capabilities {
	return store.Capabilities{Watch: s.watch, InProcess: true}
}

func (s *watchedSpy) watch(ctx context.Context, key string) (<-chan struct{}, func(), error) {
	if err := (*s.watchFault.Load())(ctx); err != nil {
		return nil, nil, err
	}
	changed, stop, err := s.Store.Capabilities().Watch(ctx, key)
	if err == nil {
		s.watches.Add(1)
	}
	return changed, func() { s.stops.Add(1); stop() }, err
}

// testEnv is a test in a synctest bubble, with an engine on a watched store.
type testEnv struct {
	*testing.T
	*core.Engine
	store *watchedSpy
	start time.Time
}

func inBubble(t *testing.T, test func(t *testEnv)) {
	synctest.Test(t, func(t *testing.T) {
		s := newWatchedSpy(t)
		e := core.MustNew(core.Config{User: byUser, Store: s})
		test(&testEnv{t, e, s, time.Now()})
		synctest.Wait()
		assert.Zero(t, e.Waited(), "nobody waits any more")
		assert.Zero(t, e.WaiterCalls(), "every place was given back")
		assert.Equal(t, s.watches.Load(), s.stops.Load(), "every watch was given up")
	})
}

func runInBubble(t *testing.T, name string, test func(t *testEnv)) {
	t.Run(name, func(t *testing.T) { inBubble(t, test) })
}

// arrive serves n calls, one after the other has begun to wait if they are few, and returns
// when all of them wait.
func (t *testEnv) arrive(g *core.Guard, n int, newCall func() *call) (calls []*call, served *sync.WaitGroup) {
	served = new(sync.WaitGroup)
	for range n {
		c := newCall()
		calls = append(calls, c)
		served.Go(func() { serve(t, g, c) })
		if n <= 10 {
			synctest.Wait()
		}
	}
	synctest.Wait()
	return calls, served
}

const many = 10_000

func TestOneCallForAllWaiters(t *testing.T) {
	for name, wrap := range map[string]func(*watchedSpy) store.Store{
		"watched": func(s *watchedSpy) store.Store { return s },
		"polled":  func(s *watchedSpy) store.Store { return s.spy },
	} {
		runInBubble(t, name, func(t *testEnv) {
			var ledger atomic.Int64
			e := core.MustNew(core.Config{User: byUser, Store: wrap(t.store)})
			g := e.MustGuard(core.Policy{Duplicate: core.Wait(time.Minute)})
			first := post("{}", &ledger).after(func(context.Context) { time.Sleep(10 * time.Second) })
			go serve(t, g, first)
			synctest.Wait()
			calls, served := t.arrive(g, many, func() *call { return post("{}", &ledger) })
			assert.EqualValues(t, 1+many, t.store.acquires.Load(), "each asks whether it may run")
			assert.Equal(t, 1, e.Waited())

			t.store.acquires.Store(0)
			served.Wait()
			if name == "watched" {
				assert.Equal(t, 10*time.Second, time.Since(t.start))
				assert.LessOrEqual(t, t.store.acquires.Load(), int64(8), "the run's end, and now and then before")
				assert.LessOrEqual(t, t.store.watches.Load(), int64(8))
			} else {
				assert.LessOrEqual(t, t.store.acquires.Load(), int64(2*10*time.Second/(250*time.Millisecond)))
			}
			assert.EqualValues(t, 1, ledger.Load())
			for _, c := range calls {
				require.True(t, c.replayed())
				require.Equal(t, first.response.Body, c.response.Body)
				require.Equal(t, first.response.Header, c.response.Header[:len(c.response.Header)-1])
			}
			assert.Zero(t, e.Waited())
		})
	}
}

// A waiter in Do gets a value of its own, which it may change.
func TestValuesAreNotShared(t *testing.T) {
	inBubble(t, func(t *testEnv) {
		task := t.MustTask(core.TaskPolicy{Name: "n", Duplicate: core.Wait(time.Minute)})
		value := bytes.Repeat([]byte("v"), 1000)
		var runs atomic.Int64
		for range 100 {
			go func() {
				r, err := core.Do(context.Background(), task, core.Call{Key: "k"}, func(context.Context) ([]byte, error) {
					runs.Add(1)
					time.Sleep(500 * time.Millisecond)
					return value, nil
				})
				assert.NoError(t, err)
				if !r.Replayed {
					return
				}
				assert.Equal(t, value, r.Value)
				for i := range r.Value {
					r.Value[i]++ // the race detector watches
				}
			}()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		assert.EqualValues(t, 1, runs.Load())
		assert.EqualValues(t, 1, t.store.watches.Load())
		assert.EqualValues(t, 101, t.store.acquires.Load())
	})
}

func TestOneOfManyTakesOver(t *testing.T) {
	inBubble(t, func(t *testEnv) {
		var runs, running atomic.Int64
		g := t.MustGuard(core.Policy{Duplicate: core.Wait(time.Minute)})
		calls, served := t.arrive(g, many, func() *call {
			c := post("{}", nil).doing(func(context.Context) adapter.Capture {
				assert.EqualValues(t, 1, running.Add(1), "never two at a time")
				time.Sleep(100 * time.Millisecond)
				running.Add(-1)
				if runs.Add(1) <= 3 {
					return answer(500, "failed")
				}
				return answer(201, "done")
			})
			return c
		})
		t.store.acquires.Store(0)
		served.Wait()
		assert.Equal(t, 400*time.Millisecond, time.Since(t.start))
		assert.EqualValues(t, 4, runs.Load(), "three failed, the fourth did it")
		assertFailed(t, 3, calls)
		assert.LessOrEqual(t, t.store.acquires.Load(), int64(4), "one call for each run")
		assert.LessOrEqual(t, t.store.watches.Load(), int64(4))
	})
}

// A claim that a waiter gets is made with its own context: a store may keep of that who runs the operation.
func TestClaimOfAWaiterHasItsOwnContext(t *testing.T) {
	inBubble(t, func(t *testEnv) {
		type name struct{}
		var claimed, runs atomic.Value
		t.store.onAcquire(func(ctx context.Context) error { claimed.Store(ctx.Value(name{})); return nil })
		g := t.MustGuard(core.Policy{Duplicate: core.Wait(time.Minute)})
		for _, who := range []string{"first", "second", "third"} {
			c := post("{}", nil).doing(func(ctx context.Context) adapter.Capture {
				assert.Equal(t, who, claimed.Load())
				runs.Store(who)
				time.Sleep(time.Second)
				return answer(500, "")
			})
			go func() { assert.NoError(t, g.Serve(context.WithValue(context.Background(), name{}, who), c)) }()
			synctest.Wait()
		}
		time.Sleep(2500 * time.Millisecond)
		assert.Equal(t, "third", runs.Load(), "in the order of their arrival")
		time.Sleep(time.Second)
	})
}

// A limited number of calls are made for waiters at once. Each frees its slot, so that waiters for more
// operations than there are slots all get their answers as soon as they are there.
func TestManyOperationsWaitedFor(t *testing.T) {
	inBubble(t, func(t *testEnv) {
		var calling atomic.Int64
		t.store.onAcquire(func(context.Context) error {
			if time.Since(t.start) > 0 {
				assert.LessOrEqual(t, calling.Add(1), int64(64))
				time.Sleep(time.Millisecond)
				calling.Add(-1)
			}
			return nil
		})
		g := t.MustGuard(core.Policy{Key: core.Header(core.Required), Duplicate: core.Wait(time.Minute)})
		var all sync.WaitGroup
		for i := range 200 {
			order := func() *call {
				c := post("{}", nil).withKey(strconv.Itoa(i)).doing(slowly(400*time.Millisecond, 201, "done"))
				return c
			}
			calls, served := t.arrive(g, 2, order)
			all.Go(func() {
				served.Wait()
				assert.LessOrEqual(t, time.Since(t.start), 404*time.Millisecond)
				assert.Equal(t, "done", string(calls[1].response.Body))
			})
		}
		all.Wait()
	})
}

// However long a run takes, the pauses between two calls grow up to a limit: where no message
// comes, its end is found soon all the same.
func TestPausesHaveALimit(t *testing.T) {
	lossy := func(context.Context, string) (<-chan struct{}, func(), error) {
		return make(chan struct{}), func() {}, nil
	}
	for name, tc := range map[string]struct {
		wrap  func(*watchedSpy) store.Store
		limit time.Duration // of a pause, which is random: half as long again
	}{
		"watched, and the messages are lost": {func(s *watchedSpy) store.Store {
			s.can = &store.Capabilities{Watch: lossy, InProcess: true}
			return s.spy
		}, 4 * time.Second},
		"polled": {func(s *watchedSpy) store.Store { return s.spy }, 250 * time.Millisecond},
	} {
		runInBubble(t, name, func(t *testEnv) {
			var last time.Time
			var longest time.Duration
			t.store.onAcquire(func(context.Context) error { // one waits; nobody else comes
				if !last.IsZero() {
					longest = max(longest, time.Since(last))
				}
				last = time.Now()
				return nil
			})
			g := core.MustNew(core.Config{User: byUser, Store: tc.wrap(t.store)}).MustGuard(core.Policy{Duplicate: core.Wait(time.Hour)})
			calls, served := t.arrive(g, 2, func() *call {
				c := post("{}", nil).doing(slowly(100*tc.limit, 201, "done"))
				return c
			})
			served.Wait()
			assert.True(t, calls[1].replayed())
			assert.LessOrEqual(t, longest, tc.limit*3/2)
			assert.Greater(t, longest, tc.limit, "they grow")
		})
	}
}

// Where runs follow one another, the wait for each begins with short pauses, however long the waits
// before it were.
func TestPausesAreShortForEachRun(t *testing.T) {
	inBubble(t, func(t *testEnv) {
		const runs = 50
		var ledger atomic.Int64
		g := core.MustNew(core.Config{User: byUser, Store: t.store.spy}).
			MustGuard(core.Policy{Duplicate: core.Wait(time.Minute), Record: core.Record{OnSuccess: core.Release}})
		_, served := t.arrive(g, runs, func() *call {
			c := post("{}", nil).doing(func(context.Context) adapter.Capture {
				ledger.Add(1)
				time.Sleep(10 * time.Millisecond)
				return answer(201, "done")
			})
			return c
		})
		served.Wait()
		assert.EqualValues(t, runs, ledger.Load())
		assert.LessOrEqual(t, time.Since(t.start), runs*40*time.Millisecond, "the second call finds each run ended")
	})
}

// Each waiter leaves when it has to, and the others go on waiting.
func TestOneWaiterLeaves(t *testing.T) {
	takes := func(d time.Duration) *call {
		c := post("{}", nil).doing(slowly(d, 201, "done"))
		return c
	}
	runInBubble(t, "when its client has gone", func(t *testEnv) {
		g := t.MustGuard(core.Policy{Duplicate: core.Wait(time.Minute)})
		go serve(t, g, takes(450*time.Millisecond))
		synctest.Wait()
		ctx, cancel := context.WithCancel(context.Background())
		gone := post("{}", nil)
		go func() { assert.NoError(t, g.Serve(ctx, gone)) }()
		synctest.Wait()
		calls, served := t.arrive(g, 3, func() *call { return post("{}", nil) })
		cancel()
		synctest.Wait()
		assert.Equal(t, "in_progress", gone.code())
		assert.Zero(t, time.Since(t.start))
		served.Wait()
		for _, c := range calls {
			assert.Equal(t, "done", string(c.response.Body))
		}
		assert.Equal(t, 450*time.Millisecond, time.Since(t.start))
		assert.EqualValues(t, 1, t.store.watches.Load())
		assert.EqualValues(t, 1+1+3+1, t.store.acquires.Load())
	})

	// Its last call is its own, and may take long.
	runInBubble(t, "at its limit", func(t *testEnv) {
		g := t.MustGuard(core.Policy{Duplicate: core.Wait(time.Second)})
		go serve(t, g, takes(1100*time.Millisecond))
		synctest.Wait()
		impatient := post("{}", nil)
		answered := make(chan struct{})
		go func() { defer close(answered); serve(t, g, impatient) }()
		time.Sleep(200 * time.Millisecond)
		calls, served := t.arrive(g, 3, func() *call { return post("{}", nil) })
		var called atomic.Bool
		t.store.onAcquire(func(ctx context.Context) error {
			if time.Since(t.start) >= time.Second && called.CompareAndSwap(false, true) {
				return hang(ctx)
			}
			return nil
		})
		served.Wait()
		assert.Equal(t, 1100*time.Millisecond, time.Since(t.start), "told at once")
		for _, c := range calls {
			assert.Equal(t, "done", string(c.response.Body))
		}
		<-answered
		assert.Equal(t, "store_unavailable", impatient.code())
	})

	// The store that is asked in its name does not answer: it waits for that, although its client has gone, and the store
	// is asked again in the name of the next one.
	runInBubble(t, "when the call in its name has failed", func(t *testEnv) {
		g := t.MustGuard(core.Policy{Duplicate: core.Wait(time.Minute)})
		first, gone := post("{}", nil), post("{}", nil)
		first.handler = func(context.Context) adapter.Capture {
			time.Sleep(100 * time.Millisecond)
			t.store.onAcquire(hang)
			return answer(201, "done")
		}
		go serve(t, g, first)
		synctest.Wait()
		ctx, cancel := context.WithCancel(context.Background())
		answered := make(chan struct{})
		go func() { defer close(answered); assert.NoError(t, g.Serve(ctx, gone)) }()
		synctest.Wait()
		calls, served := t.arrive(g, 3, func() *call { return post("{}", nil) })
		time.Sleep(time.Second)
		cancel() // the call has lasted since 900 ms
		synctest.Wait()
		select {
		case <-answered:
			t.Error("a call was cut off half-way")
		default:
		}
		t.store.onAcquire(works)
		served.Wait()
		<-answered
		assert.Equal(t, "store_unavailable", gone.code())
		assert.Equal(t, 2100*time.Millisecond, time.Since(t.start), "the store's deadline, and no longer")
		for _, c := range calls {
			assert.Equal(t, "done", string(c.response.Body))
		}
	})

	for name, tc := range map[string]struct {
		on    func(*watchedSpy, func(context.Context) error)
		after int64 // so many calls of Acquire: each of the four has one for itself
	}{
		"with a panic of Acquire": {(*watchedSpy).onAcquire, 4},
		"with a panic of Watch":   {(*watchedSpy).onWatch, 0},
	} {
		runInBubble(t, name, func(t *testEnv) {
			var ledger atomic.Int64
			g := t.MustGuard(core.Policy{Duplicate: core.Wait(time.Minute)})
			crash(t.T, t.store.Store, g, post("{}", nil), 300*time.Millisecond)
			var panicked atomic.Bool
			tc.on(t.store, func(context.Context) error {
				if t.store.acquires.Load() > tc.after && panicked.CompareAndSwap(false, true) {
					panic("boom")
				}
				return nil
			})
			go func() {
				defer func() { assert.Equal(t, "boom", recover()) }()
				_ = g.Serve(context.Background(), post("{}", &ledger))
			}()
			synctest.Wait()
			calls, served := t.arrive(g, 3, func() *call { return post("{}", &ledger) })
			served.Wait()
			assert.True(t, panicked.Load())
			assert.Equal(t, 301*time.Millisecond, time.Since(t.start))
			assert.EqualValues(t, 1, ledger.Load())
			for _, c := range calls {
				assert.Equal(t, 201, c.response.Status)
			}
		})
	}

	// Each thinks about what has become of a run: a hook that panics, or never returns, holds up nobody.
	for name, hook := range map[string]func(){
		"with a panic in Reconcile": func() { panic("boom") },
		"to sleep in Reconcile":     func() { time.Sleep(time.Hour) },
	} {
		runInBubble(t, name, func(t *testEnv) {
			slow := post("{}", nil)
			g := t.MustGuard(core.Policy{
				Duplicate: core.Wait(time.Minute), Record: core.Record{
					Lease: 300 * time.Millisecond,
					Abandoned: core.Uncertain(func(_ context.Context, u core.Uncertainty) (core.Verdict, error) {
						if u.Request.Native == slow {
							hook()
							return core.Unknown(), nil
						}
						return core.Finished(&core.Response{Status: 201, Body: []byte("found")}), nil
					}),
				}})
			crash(t.T, t.store.Store, g, post("{}", nil), 300*time.Millisecond)
			go func() {
				defer func() { _ = recover() }()
				_ = g.Serve(context.Background(), slow)
			}()
			synctest.Wait()
			calls, served := t.arrive(g, 5, func() *call { return post("{}", nil) })
			served.Wait()
			assert.Equal(t, 301*time.Millisecond, time.Since(t.start))
			for _, c := range calls {
				assert.Equal(t, "found", string(c.response.Body))
			}
			time.Sleep(2 * time.Hour)
		})
	}
}

// While the answer to a call is on its way, its record may expire, and the
// operation run again. A caller that joins after that waits for the second run, and must not get the answer
// of the first.
func TestAnswerFromBeforeTheCallerJoined(t *testing.T) {
	inBubble(t, func(t *testEnv) {
		var runs atomic.Int64
		t.store.after = true // a call takes effect at once; it is the answer that may be slow
		g := t.MustGuard(core.Policy{Duplicate: core.Wait(time.Minute), Record: core.Record{Retention: 100 * time.Millisecond}})
		order := func() *call {
			c := post("{}", nil).doing(func(context.Context) adapter.Capture {
				n := runs.Add(1)
				time.Sleep(400 * time.Millisecond) // nobody asks before
				return answer(201, "run "+string(rune('0'+n)))
			})
			return c
		}
		first := order()
		go serve(t, g, first)
		synctest.Wait()
		early, earlyServed := t.arrive(g, 3, order)

		var slow atomic.Bool
		slow.Store(true)
		t.store.onAcquire(func(context.Context) error {
			if slow.CompareAndSwap(true, false) {
				time.Sleep(500 * time.Millisecond)
			}
			return nil
		})
		time.Sleep(600 * time.Millisecond) // the record has been found, and its retention has passed
		second := order()
		go serve(t, g, second)
		synctest.Wait()
		require.EqualValues(t, 2, runs.Load())
		late, lateServed := t.arrive(g, 3, order)
		assert.Equal(t, 1, t.Waited())

		earlyServed.Wait()
		assert.Equal(t, 900*time.Millisecond, time.Since(t.start))
		for _, c := range early {
			assert.Equal(t, "run 1", string(c.response.Body))
		}
		lateServed.Wait()
		assert.Equal(t, time.Second, time.Since(t.start))
		for _, c := range late {
			assert.Equal(t, "run 2", string(c.response.Body))
		}
		assert.EqualValues(t, 2, runs.Load())
	})
}

// When a run with many waiters fails, another caller may be the first with the same key and
// other parameters. All waiters get key_reused, but not those for the other run.
func TestKeyReusedWhileManyWait(t *testing.T) {
	inBubble(t, func(t *testEnv) {
		p := core.ClientKey()
		p.Duplicate = core.Wait(time.Minute)
		g := t.MustGuard(p)
		sleepy := func(body string, status int) func() *call {
			return func() *call {
				c := post(body, nil).withKey("k").doing(slowly(300*time.Millisecond, status, body))
				return c
			}
		}
		first := sleepy(`{"n":1}`, 500)()
		go serve(t, g, first)
		synctest.Wait()
		calls, served := t.arrive(g, 1000, sleepy(`{"n":1}`, 500))

		var others []*call
		var othersServed *sync.WaitGroup
		arrived := make(chan struct{})
		var reached atomic.Int64
		t.store.onAcquire(func(context.Context) error {
			if reached.Add(1) == 1 { // when the run has failed
				<-arrived
			}
			return nil
		})
		time.Sleep(301 * time.Millisecond)
		others, othersServed = t.arrive(g, 10, sleepy(`{"n":2}`, 201))
		before := t.store.acquires.Load()
		close(arrived)
		served.Wait()
		assert.Equal(t, before, t.store.acquires.Load(), "one call for all")
		for _, c := range calls {
			require.Equal(t, "key_reused", c.code())
		}
		othersServed.Wait()
		for _, c := range others {
			assert.Equal(t, `{"n":2}`, string(c.response.Body))
		}
	})
}

// At its limit each waiter calls the store once more for itself, and that answer decides.
func TestLastCall(t *testing.T) {
	for name, failOpen := range map[string]bool{"refused": false, "unprotected": true} {
		runInBubble(t, name, func(t *testEnv) {
			g := t.MustGuard(core.Policy{Duplicate: core.Wait(2 * time.Second), FailOpen: failOpen})
			crash(t.T, t.store.Store, g, post("{}", nil), time.Minute)
			calls, served := t.arrive(g, 20, func() *call { return post("{}", nil) })
			t.store.onAcquire(down)
			served.Wait()
			assert.Equal(t, 2*time.Second, time.Since(t.start))
			for _, c := range calls {
				if failOpen {
					assert.Equal(t, 1, c.passed)
				} else {
					assert.Equal(t, "store_unavailable", c.code())
				}
			}
			t.store.onAcquire(works)
			calls, served = t.arrive(g, 20, func() *call { return post("{}", nil) })
			served.Wait()
			assert.Equal(t, 4*time.Second, time.Since(t.start))
			for _, c := range calls {
				assert.Equal(t, "in_progress", c.code())
			}
		})
	}
}

// Watch gets no more time than any call; after that it is as if the store could not be watched.
func TestWaitEndsAlthoughWatchHangs(t *testing.T) {
	inBubble(t, func(t *testEnv) {
		g := t.MustGuard(core.Policy{Duplicate: core.Wait(time.Minute)})
		t.store.onWatch(hang)
		_, served := t.arrive(g, 2, func() *call { return post("{}", nil).doing(slowly(3*time.Second, 201, "")) })
		served.Wait()
		assert.Less(t, time.Since(t.start), 6*time.Second)
	})
}

// A run with many waiters crashes, and its outcome is unknown.
func TestManyAreUncertain(t *testing.T) {
	const waiters = 1000
	for name, tc := range map[string]struct {
		reconciled bool
		verdict    core.Verdict
		asked      int64
		status     int
	}{
		"nobody knows": {status: 409},
		"unknown":      {true, core.Unknown(), waiters, 409},
		"run again":    {true, core.RunAgain(), waiters, 201},
	} {
		runInBubble(t, name, func(t *testEnv) {
			var ledger, asked atomic.Int64
			p := core.Policy{Duplicate: core.Wait(time.Minute), Record: core.Record{Lease: time.Second, Abandoned: core.Uncertain(nil)}}
			if tc.reconciled {
				p.Abandoned = core.Uncertain(func(context.Context, core.Uncertainty) (core.Verdict, error) {
					asked.Add(1)
					return tc.verdict, nil
				})
			}
			g := t.MustGuard(p)
			crash(t.T, t.store.Store, g, post("{}", nil), time.Second)
			calls, served := t.arrive(g, waiters, func() *call { return post("{}", &ledger) })
			t.store.acquires.Store(0)
			served.Wait()
			took := time.Since(t.start) // a random pause may end within the last millisecond
			assert.GreaterOrEqual(t, took, time.Second)
			assert.LessOrEqual(t, took, 1001*time.Millisecond)
			if tc.status == 409 {
				assert.LessOrEqual(t, t.store.acquires.Load(), int64(2), "one call tells all, and one may come before")
			} else {
				assert.EqualValues(t, 1, ledger.Load())
			}
			assert.Equal(t, tc.asked, asked.Load(), "each for itself")
			for _, c := range calls {
				require.Equal(t, tc.status, c.response.Status)
			}
		})
	}
}

// Two tasks of one name wait for the same record: one may take over, the other may not.
func TestTasksDecideForThemselves(t *testing.T) {
	inBubble(t, func(t *testEnv) {
		var key core.Key
		run := func(p core.TaskPolicy) (core.Result[[]byte], error) {
			p.Name, p.Duplicate, p.Lease = "task", core.Wait(time.Minute), time.Second
			return do(t.Context(), t.Engine, "k", p, func(ctx context.Context) ([]byte, error) {
				key = core.RunFrom(ctx).Key()
				return []byte("done"), nil
			})
		}
		_, err := run(core.TaskPolicy{Record: core.Record{OnSuccess: core.Release}})
		require.NoError(t, err)
		crashed := store.Claim{Owner: store.NewOwner(), Lease: time.Second, Retention: time.Hour}
		_, err = t.store.Store.Acquire(t.Context(), key.Raw(), crashed)
		require.NoError(t, err)

		var all sync.WaitGroup
		all.Go(func() {
			r, err := run(core.TaskPolicy{Record: core.Record{Abandoned: core.Uncertain(nil)}})
			if err == nil { // the other one was faster when the lease passed
				assert.True(t, r.Replayed)
			} else {
				assert.ErrorIs(t, err, codes.Uncertain)
			}
		})
		synctest.Wait()
		all.Go(func() {
			r, err := run(core.TaskPolicy{})
			assert.NoError(t, err)
			assert.EqualValues(t, 2, r.Attempt)
		})
		all.Wait()
	})
}

// assertFailed expects that n calls were answered with 500, and the others with "done".
func assertFailed(t assert.TestingT, n int, calls []*call) {
	failed := 0
	for _, c := range calls {
		if c.response.Status == 500 {
			failed++
		} else {
			assert.Equal(t, "done", string(c.response.Body))
		}
	}
	assert.Equal(t, n, failed)
}

// A waiter has time for a store that fails for a moment; and if the failed call has made a
// claim all the same, it does not wait for itself.
func TestWaiterOutlivesAStoreThatFailsForAMoment(t *testing.T) {
	for name, after := range map[string]bool{"before the effect": false, "after the effect": true} {
		for _, watched := range []bool{false, true} {
			bubble(t, fmt.Sprintf("%s, watched %t", name, watched), func(t *testing.T) {
				var ledger atomic.Int64
				records := newWatchedSpy(t)
				records.after = after
				var wrapped store.Store = records.spy
				if watched { // and told at once that nothing runs any more
					wrapped = records
				}
				g := core.MustNew(core.Config{User: byUser, Store: wrapped}).MustGuard(core.Policy{Duplicate: core.Wait(time.Minute)})
				first, second := post("{}", nil), post("{}", &ledger)
				first.handler = func(context.Context) adapter.Capture {
					time.Sleep(10 * time.Second)
					return answer(503, "failed") // so that the waiter's next call claims the key
				}
				second.after(func(ctx context.Context) {
					assert.False(t, core.RunFrom(ctx).Takeover(), "of a claim of its own")
				})
				go serve(t, g, first)
				time.Sleep(time.Second)
				answered := make(chan struct{})
				go func() { defer close(answered); serve(t, g, second) }()
				time.Sleep(time.Second)
				records.onAcquire(down)
				records.acquires.Store(0)
				time.Sleep(10 * time.Second)
				select {
				case <-answered:
					t.Error("it has not gone on waiting")
				default:
				}
				assert.Less(t, records.acquires.Load(), int64(80), "it makes pauses")
				records.onAcquire(works)
				up := time.Now()
				<-answered
				assert.Less(t, time.Since(up), time.Second)
				assert.Equal(t, 201, second.response.Status)
				assert.EqualValues(t, 1, ledger.Load())
			})
		}
	}
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
