package core_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store"
)

// watchedSpy can be watched, and counts that too. What happens to Acquire may change on the way.
type watchedSpy struct {
	*spy
	watches, stops atomic.Int64
	acquireFault   atomic.Pointer[func(context.Context) error]
}

func newWatchedSpy(t testing.TB) *watchedSpy {
	s := &watchedSpy{spy: &spy{Store: newStore(t)}}
	s.onAcquire(works)
	s.acquire = func(ctx context.Context) error { return (*s.acquireFault.Load())(ctx) }
	return s
}

func works(context.Context) error { return nil }

func (s *watchedSpy) onAcquire(fault func(context.Context) error) { s.acquireFault.Store(&fault) }

func (s *watchedSpy) Watch(ctx context.Context, key string) (<-chan struct{}, func(), error) {
	changed, stop, err := s.Store.(store.Watcher).Watch(ctx, key)
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
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testEnv) {
				var ledger atomic.Int64
				e := core.MustNew(core.Config{User: byUser, Store: wrap(t.store)})
				g := e.MustGuard(core.Policy{Duplicate: core.Wait(time.Minute)})
				first := post("{}", &ledger)
				handler := first.handler
				first.handler = func(ctx context.Context) core.Capture { time.Sleep(10 * time.Second); return handler(ctx) }
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

// resultRecorder keeps the results that it returns, with copies that show a change.
type resultRecorder struct {
	*watchedSpy
	mu     sync.Mutex
	handed [][2][]byte // the result, and a copy
}

func (s *resultRecorder) Acquire(ctx context.Context, key string, claim store.Claim) (store.Grant, error) {
	g, err := s.watchedSpy.Acquire(ctx, key, claim)
	if g.State == store.Done {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.handed = append(s.handed, [2][]byte{g.Result, bytes.Clone(g.Result)})
	}
	return g, err
}

// All waiters are answered with the same bytes. If one of them wrote there, the race
// detector would tell; and pools are poisoned in between, as in TestNothingLeaks.
func TestSharedResultIsOnlyRead(t *testing.T) {
	inBubble(t, func(t *testEnv) {
		var ledger atomic.Int64
		store := &resultRecorder{watchedSpy: t.store}
		g := core.MustNew(core.Config{User: byUser, Store: store}).MustGuard(core.Policy{
			Duplicate: core.Wait(time.Minute), Authorize: func(context.Context, *core.Request) error {
				runtime.Gosched()
				return nil
			}})
		body := bytes.Repeat([]byte("0123456789"), 1000)
		slow := func() *call {
			c := post("{}", &ledger)
			c.handler = func(context.Context) core.Capture { time.Sleep(time.Second / 2); return answer(201, string(body)) }
			return c
		}
		calls, served := t.arrive(g, 500, slow)
		served.Wait()
		replayed := 0
		for _, c := range calls {
			require.Equal(t, body, c.response.Body)
			if c.replayed() {
				replayed++
			}
		}
		assert.Equal(t, 499, replayed)
		require.Len(t, store.handed, 1, "what all were answered with")
		assert.Equal(t, store.handed[0][1], store.handed[0][0])
	})
}

func TestOneOfManyTakesOver(t *testing.T) {
	for name, p := range map[string]core.Policy{"parameters": {}, "client key": core.ClientKey()} {
		p.Duplicate = core.Wait(time.Minute)
		t.Run(name, func(t *testing.T) { oneOfManyTakesOver(t, p) })
	}
}

func oneOfManyTakesOver(t *testing.T, p core.Policy) {
	inBubble(t, func(t *testEnv) {
		var runs, running atomic.Int64
		g := t.MustGuard(p)
		calls, served := t.arrive(g, many, func() *call {
			c := post("{}", nil).withKey("k")
			c.handler = func(context.Context) core.Capture {
				assert.EqualValues(t, 1, running.Add(1), "never two at a time")
				time.Sleep(100 * time.Millisecond)
				running.Add(-1)
				if runs.Add(1) <= 3 {
					return answer(500, "failed")
				}
				return answer(201, "done")
			}
			return c
		})
		t.store.acquires.Store(0)
		served.Wait()
		assert.Equal(t, 400*time.Millisecond, time.Since(t.start))
		assert.EqualValues(t, 4, runs.Load(), "three failed, the fourth did it")
		assertFailed(t, 3, calls)
		assert.LessOrEqual(t, t.store.acquires.Load(), int64(10), "who takes over, and who leads then")
		assert.LessOrEqual(t, t.store.watches.Load(), int64(4))
	})
}

// A limited number of waiters call the store at once. Each frees its slot, so that waiters for more
// operations than there are slots all get their answers as soon as they are there.
func TestManyOperationsWaitedFor(t *testing.T) {
	inBubble(t, func(t *testEnv) {
		g := t.MustGuard(core.Policy{Key: core.Header(core.Required), Duplicate: core.Wait(time.Minute)})
		var all sync.WaitGroup
		for i := range 200 {
			order := func() *call {
				c := post("{}", nil).withKey(strconv.Itoa(i))
				c.handler = func(context.Context) core.Capture { time.Sleep(400 * time.Millisecond); return answer(201, "done") }
				return c
			}
			calls, served := t.arrive(g, 2, order)
			all.Go(func() {
				served.Wait()
				assert.Equal(t, 400*time.Millisecond, time.Since(t.start))
				assert.Equal(t, "done", string(calls[1].response.Body))
			})
		}
		all.Wait()
	})
}

// However long a run takes, the pauses between two calls grow up to a limit: where no message
// comes, its end is found soon all the same.
func TestPausesHaveALimit(t *testing.T) {
	for name, tc := range map[string]struct {
		wrap  func(*watchedSpy) store.Store
		limit time.Duration // of a pause, which is random: half as long again
	}{
		"watched, and the messages are lost": {func(s *watchedSpy) store.Store { return lossyWatcher{s.spy} }, 4 * time.Second},
		"polled":                             {func(s *watchedSpy) store.Store { return s.spy }, 250 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testEnv) {
				var last time.Time
				var longest time.Duration
				t.store.onAcquire(func(context.Context) error { // one who waits leads; nobody else comes
					if !last.IsZero() {
						longest = max(longest, time.Since(last))
					}
					last = time.Now()
					return nil
				})
				g := core.MustNew(core.Config{User: byUser, Store: tc.wrap(t.store)}).MustGuard(core.Policy{Duplicate: core.Wait(time.Hour)})
				calls, served := t.arrive(g, 2, func() *call {
					c := post("{}", nil)
					c.handler = func(context.Context) core.Capture { time.Sleep(100 * tc.limit); return answer(201, "done") }
					return c
				})
				served.Wait()
				assert.True(t, calls[1].replayed())
				assert.LessOrEqual(t, longest, tc.limit*3/2)
				assert.Greater(t, longest, tc.limit, "they grow")
			})
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
			c := post("{}", nil)
			c.handler = func(context.Context) core.Capture {
				ledger.Add(1)
				time.Sleep(10 * time.Millisecond)
				return answer(201, "done")
			}
			return c
		})
		served.Wait()
		assert.EqualValues(t, runs, ledger.Load())
		assert.LessOrEqual(t, time.Since(t.start), runs*40*time.Millisecond, "the second look finds each run ended")
	})
}

// When the leader leaves, another waiter leads at once, and goes on where it was.
func TestLeaderLeaves(t *testing.T) {
	t.Run("when its client has gone", func(t *testing.T) {
		inBubble(t, func(t *testEnv) {
			g := t.MustGuard(core.Policy{Duplicate: core.Wait(time.Minute)})
			first, leader := post("{}", new(atomic.Int64)), post("{}", nil)
			first.handler = func(context.Context) core.Capture { time.Sleep(900 * time.Millisecond / 2); return answer(201, "done") }
			go serve(t, g, first)
			synctest.Wait()
			ctx, cancel := context.WithCancel(context.Background())
			go func() { assert.NoError(t, g.Serve(ctx, leader)) }()
			synctest.Wait()
			calls, served := t.arrive(g, 3, func() *call { return post("{}", nil) })
			cancel()
			synctest.Wait()
			assert.Equal(t, "in_progress", leader.code())
			assert.Zero(t, time.Since(t.start))
			served.Wait()
			for _, c := range calls {
				assert.Equal(t, "done", string(c.response.Body))
			}
			assert.Equal(t, 450*time.Millisecond, time.Since(t.start))
			assert.EqualValues(t, 1, t.store.watches.Load(), "handed on")
			assert.EqualValues(t, 1+1+3+1, t.store.acquires.Load(), "what the leader knew is known")
		})
	})

	// What has ended there is the caller's time, not the store: who leads next need not poll.
	for name, limit := range map[string]time.Duration{
		"while it begins to watch":               time.Minute,
		"at its limit, while it begins to watch": 100 * time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testEnv) {
				g := core.MustNew(core.Config{User: byUser, Store: &slowWatcher{watchedSpy: t.store}}).
					MustGuard(core.Policy{Duplicate: core.Wait(limit)})
				first, leader := post("{}", new(atomic.Int64)), post("{}", nil)
				first.handler = func(context.Context) core.Capture { time.Sleep(101 * time.Millisecond); return answer(201, "done") }
				go serve(t, g, first)
				synctest.Wait()
				ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
				defer cancel()
				go func() { assert.NoError(t, g.Serve(ctx, leader)) }()
				time.Sleep(50 * time.Millisecond)
				calls, served := t.arrive(g, 3, func() *call { return post("{}", nil) })
				served.Wait()
				synctest.Wait()
				assert.Equal(t, "in_progress", leader.code())
				assert.Equal(t, 101*time.Millisecond, time.Since(t.start), "told at once")
				for _, c := range calls {
					assert.Equal(t, "done", string(c.response.Body))
				}
			})
		})
	}

	t.Run("at its limit", func(t *testing.T) {
		inBubble(t, func(t *testEnv) {
			g := t.MustGuard(core.Policy{Duplicate: core.Wait(time.Second)})
			first := post("{}", nil)
			first.handler = func(context.Context) core.Capture { time.Sleep(1100 * time.Millisecond); return answer(201, "done") }
			go serve(t, g, first)
			synctest.Wait()
			leaders, _ := t.arrive(g, 2, func() *call { return post("{}", nil) })
			time.Sleep(200 * time.Millisecond)
			followers, served := t.arrive(g, 2, func() *call { return post("{}", nil) })
			time.Sleep(800 * time.Millisecond)
			synctest.Wait()
			for _, c := range leaders {
				assert.Equal(t, "in_progress", c.code(), "at the limit")
			}
			served.Wait()
			assert.Equal(t, 1100*time.Millisecond, time.Since(t.start))
			for _, c := range followers {
				assert.Equal(t, "done", string(c.response.Body))
			}
		})
	})

	// What it looks for then is its own last look, and may take long.
	t.Run("at its limit, before its last look", func(t *testing.T) {
		inBubble(t, func(t *testEnv) {
			g := t.MustGuard(core.Policy{Duplicate: core.Wait(time.Second)})
			first, leader := post("{}", nil), post("{}", nil)
			first.handler = func(context.Context) core.Capture { time.Sleep(1100 * time.Millisecond); return answer(201, "done") }
			go serve(t, g, first)
			synctest.Wait()
			answered := make(chan struct{})
			go func() { defer close(answered); serve(t, g, leader) }()
			time.Sleep(200 * time.Millisecond)
			calls, served := t.arrive(g, 3, func() *call { return post("{}", nil) })
			var looked atomic.Bool
			t.store.onAcquire(func(ctx context.Context) error {
				if time.Since(t.start) >= time.Second && looked.CompareAndSwap(false, true) {
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
			assert.Equal(t, "store_unavailable", leader.code())
		})
	})

	// The store that the leader asks does not answer: the leader waits for it, although its
	// client has gone, and the next one asks again.
	t.Run("when its look has failed", func(t *testing.T) {
		inBubble(t, func(t *testEnv) {
			g := t.MustGuard(core.Policy{Duplicate: core.Wait(time.Minute)})
			first, leader := post("{}", nil), post("{}", nil)
			first.handler = func(context.Context) core.Capture {
				time.Sleep(100 * time.Millisecond)
				t.store.onAcquire(hang)
				return answer(201, "done")
			}
			go serve(t, g, first)
			synctest.Wait()
			ctx, cancel := context.WithCancel(context.Background())
			answered := make(chan struct{})
			go func() { defer close(answered); assert.NoError(t, g.Serve(ctx, leader)) }()
			synctest.Wait()
			calls, served := t.arrive(g, 3, func() *call { return post("{}", nil) })
			time.Sleep(time.Second)
			cancel() // it is asking since 900 ms
			synctest.Wait()
			select {
			case <-answered:
				t.Error("a look was cut off half-way")
			default:
			}
			t.store.onAcquire(works)
			served.Wait()
			<-answered
			assert.Equal(t, "store_unavailable", leader.code())
			assert.Equal(t, 2100*time.Millisecond, time.Since(t.start), "the store's deadline, and no longer")
			for _, c := range calls {
				assert.Equal(t, "done", string(c.response.Body))
			}
		})
	})

	t.Run("with a panic of the store", func(t *testing.T) {
		inBubble(t, func(t *testEnv) {
			var ledger atomic.Int64
			g := t.MustGuard(core.Policy{Duplicate: core.Wait(time.Minute)})
			crash(t.T, t.store.Store, g, post("{}", nil), 300*time.Millisecond)
			go func() {
				defer func() { assert.Equal(t, "boom", recover()) }()
				_ = g.Serve(context.Background(), post("{}", &ledger))
			}()
			synctest.Wait()
			calls, served := t.arrive(g, 3, func() *call { return post("{}", &ledger) })
			var panicked atomic.Bool
			t.store.onAcquire(func(context.Context) error {
				if panicked.CompareAndSwap(false, true) {
					panic("boom")
				}
				return nil
			})
			served.Wait()
			assert.True(t, panicked.Load())
			assert.Equal(t, 301*time.Millisecond, time.Since(t.start))
			assert.EqualValues(t, 1, ledger.Load())
			for _, c := range calls {
				assert.Equal(t, 201, c.response.Status)
			}
		})
	})

	// While one thinks about what has become of a run, the others ask for themselves, as each
	// would alone; a hook that panics, or never returns, holds up nobody.
	for name, hook := range map[string]func(){
		"with a panic in Reconcile": func() { panic("boom") },
		"to sleep in Reconcile":     func() { time.Sleep(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testEnv) {
				leader := post("{}", nil)
				g := t.MustGuard(core.Policy{
					Duplicate: core.Wait(time.Minute), Record: core.Record{
						Lease: 300 * time.Millisecond,
						Abandoned: core.Uncertain(func(_ context.Context, u core.Uncertainty) (core.Verdict, error) {
							if u.Request.Native == leader {
								hook()
								return core.Unknown(), nil
							}
							return core.Finished(&core.Response{Status: 201, Body: []byte("found")}), nil
						}),
					}})
				crash(t.T, t.store.Store, g, post("{}", nil), 300*time.Millisecond)
				go func() {
					defer func() { _ = recover() }()
					_ = g.Serve(context.Background(), leader)
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
		})
	}
}

// slowWatcher takes longer for the first Watch than the caller can wait.
type slowWatcher struct {
	*watchedSpy
	begun atomic.Bool
}

func (s *slowWatcher) Watch(ctx context.Context, key string) (<-chan struct{}, func(), error) {
	if s.begun.CompareAndSwap(false, true) {
		return nil, nil, hang(ctx)
	}
	return s.watchedSpy.Watch(ctx, key)
}

// While the answer to a call is on its way, its record may expire, and the
// operation run again. A caller that joins after that waits for the second run, and must not get the answer
// of the first.
func TestAnswerFromBeforeTheCallerJoined(t *testing.T) {
	inBubble(t, func(t *testEnv) {
		var runs atomic.Int64
		t.store.after = true // a look takes effect at once; it is the answer that may be slow
		g := t.MustGuard(core.Policy{Duplicate: core.Wait(time.Minute), Record: core.Record{Retention: 100 * time.Millisecond}})
		order := func() *call {
			c := post("{}", nil)
			c.handler = func(context.Context) core.Capture {
				n := runs.Add(1)
				time.Sleep(400 * time.Millisecond) // the leader does not look before
				return answer(201, "run "+string(rune('0'+n)))
			}
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

func TestWhichCallersShareCalls(t *testing.T) {
	inBubble(t, func(t *testEnv) {
		p := core.Policy{Duplicate: core.Wait(time.Minute)}
		one, same, other := t.MustGuard(p), t.MustGuard(p), core.ClientKey()
		other.Duplicate = p.Duplicate
		keyed := t.MustGuard(other)
		slow := func(user string, answered string) func() *call {
			return func() *call {
				c := post("{}", nil)
				c.header.Set("X-User", user)
				c.handler = func(context.Context) core.Capture { time.Sleep(500 * time.Millisecond); return answer(201, answered) }
				return c
			}
		}
		var all sync.WaitGroup
		for i, tc := range []struct {
			guard *core.Guard
			call  func() *call
		}{
			{one, slow("alice", "alice's")},
			{one, slow("bob", "bob's")},
			{same, slow("alice", "alice's")}, // the key is one, and so is the run
			{keyed, func() *call { return slow("alice", "keyed")().withKey("k") }},
			{keyed, func() *call { return slow("alice", "keyed too")().withKey("l") }},
		} {
			calls, served := t.arrive(tc.guard, 5, tc.call)
			assert.Equal(t, i+1, t.Waited())
			assert.EqualValues(t, i+1, t.store.watches.Load())
			all.Go(func() {
				served.Wait()
				want := string(tc.call().handler(context.Background()).Response.Body)
				for _, c := range calls {
					assert.Equal(t, want, string(c.response.Body))
				}
			})
		}
		all.Wait()
	})
}

// When a run with many waiters fails, another caller may be the first with the same key and
// other parameters. All waiters get key_reused, and those for the other run wait apart.
func TestKeyReusedWhileManyWait(t *testing.T) {
	inBubble(t, func(t *testEnv) {
		p := core.ClientKey()
		p.Duplicate = core.Wait(time.Minute)
		g := t.MustGuard(p)
		sleepy := func(body string, status int) func() *call {
			return func() *call {
				c := post(body, nil).withKey("k")
				c.handler = func(context.Context) core.Capture { time.Sleep(300 * time.Millisecond); return answer(status, body) }
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
			if reached.Add(1) == 1 { // the leader's look, when the run has failed
				<-arrived
			}
			return nil
		})
		time.Sleep(301 * time.Millisecond)
		others, othersServed = t.arrive(g, 10, sleepy(`{"n":2}`, 201))
		assert.Equal(t, 2, t.Waited())
		before := t.store.acquires.Load()
		close(arrived)
		served.Wait()
		assert.Equal(t, before, t.store.acquires.Load(), "one look for all")
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
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testEnv) {
				var ledger atomic.Int64
				g := t.MustGuard(core.Policy{Duplicate: core.Wait(2 * time.Second), FailOpen: failOpen})
				crash(t.T, t.store.Store, g, post("{}", nil), time.Minute)
				calls, served := t.arrive(g, 20, func() *call { return post("{}", &ledger) })
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
				calls, served = t.arrive(g, 20, func() *call { return post("{}", &ledger) })
				served.Wait()
				assert.Equal(t, 4*time.Second, time.Since(t.start))
				for _, c := range calls {
					assert.Equal(t, "in_progress", c.code())
				}
			})
		})
	}
}

// lossyWatcher loses the messages of changes.
type lossyWatcher struct{ *spy }

func (lossyWatcher) Watch(context.Context, string) (<-chan struct{}, func(), error) {
	return make(chan struct{}), func() {}, nil
}

func TestLastCallFindsAnUnpublishedResult(t *testing.T) {
	inBubble(t, func(t *testEnv) {
		var ledger atomic.Int64
		g := core.MustNew(core.Config{User: byUser, Store: lossyWatcher{t.store.spy}}).
			MustGuard(core.Policy{Duplicate: core.Wait(400 * time.Millisecond)})
		first := post("{}", &ledger)
		handler := first.handler
		first.handler = func(ctx context.Context) core.Capture { time.Sleep(200 * time.Millisecond); return handler(ctx) }
		go serve(t, g, first)
		synctest.Wait()
		calls, served := t.arrive(g, 10, func() *call { return post("{}", &ledger) })
		served.Wait()
		for _, c := range calls {
			assert.True(t, c.replayed())
		}
		assert.Equal(t, 400*time.Millisecond, time.Since(t.start))
	})
}

// A run with many waiters crashes, and its outcome is unknown.
func TestManyAreUncertain(t *testing.T) {
	inBubble(t, func(t *testEnv) {
		var ledger, asked atomic.Int64
		p := core.Policy{Key: core.Header(core.Required), Duplicate: core.Wait(time.Minute), Record: core.Record{Lease: time.Second, Abandoned: core.Uncertain(nil)}}
		g := t.MustGuard(p)
		crash(t.T, t.store.Store, g, post("{}", nil).withKey("k"), time.Second)
		calls, served := t.arrive(g, 1000, func() *call { return post("{}", &ledger).withKey("k") })
		t.store.acquires.Store(0)
		served.Wait()
		took := time.Since(t.start) // a random pause may end within the last millisecond
		assert.GreaterOrEqual(t, took, time.Second)
		assert.LessOrEqual(t, took, 1001*time.Millisecond)
		assert.LessOrEqual(t, t.store.acquires.Load(), int64(2), "there is nobody to ask: one look tells all, and one may come before")
		for _, c := range calls {
			require.Equal(t, "uncertain", c.code())
		}

		p.Abandoned = core.Uncertain(func(context.Context, core.Uncertainty) (core.Verdict, error) {
			asked.Add(1)
			return core.RunAgain(), nil
		})
		g = t.MustGuard(p)
		calls, served = t.arrive(g, 1000, func() *call { return post("{}", &ledger).withKey("k") })
		served.Wait()
		assert.EqualValues(t, 1, ledger.Load())
		assert.Positive(t, asked.Load())
		for _, c := range calls {
			require.Equal(t, 201, c.response.Status)
		}
	})
}

// Many waiters ask Reconcile about an abandoned run: concurrently, not one after the other.
func TestWaitersReconcileForThemselves(t *testing.T) {
	inBubble(t, func(t *testEnv) {
		var asked atomic.Int64
		g := t.MustGuard(core.Policy{
			Key: core.Header(core.Required), Duplicate: core.Wait(3 * time.Second), Record: core.Record{
				Lease: time.Second,
				Abandoned: core.Uncertain(func(context.Context, core.Uncertainty) (core.Verdict, error) {
					asked.Add(1)
					return core.Unknown(), nil
				}),
			},
		})
		crash(t.T, t.store.Store, g, post("{}", nil).withKey("k"), time.Second)
		t.store.onAcquire(func(context.Context) error { time.Sleep(time.Millisecond); return nil })
		calls, served := t.arrive(g, 5000, func() *call { return post("{}", nil).withKey("k") })
		served.Wait()
		assert.EqualValues(t, 5000, asked.Load())
		for _, c := range calls {
			require.Equal(t, "uncertain", c.code())
		}
	})
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
				assert.ErrorIs(t, err, core.CodeUncertain)
			}
		})
		synctest.Wait()
		all.Go(func() {
			r, err := run(core.TaskPolicy{})
			assert.NoError(t, err)
			assert.EqualValues(t, 2, r.Attempt)
		})
		synctest.Wait()
		assert.Equal(t, 2, t.Waited())
		all.Wait()
	})
}

// Everything at once: clients that leave, runs that fail and crash, stores that fail, limits.
// There is never more than one run at a time, every caller is answered, and nothing is left behind.
func TestWaitersUnderFaults(t *testing.T) {
	inBubble(t, func(t *testEnv) {
		rnd := rand.New(rand.NewPCG(1, 2))
		var running, answered, done atomic.Int64
		t.store.onAcquire(func(context.Context) error {
			if rand.IntN(20) == 0 {
				return errDown
			}
			return nil
		})
		g := t.MustGuard(core.Policy{Key: core.Header(core.Required), Duplicate: core.Wait(3 * time.Second), Record: core.Record{Lease: 10 * time.Second, Retention: 50 * time.Millisecond}})
		var all sync.WaitGroup
		for range 3000 {
			c := post("{}", nil).withKey("k")
			takes, fails := time.Duration(rnd.IntN(200))*time.Millisecond, rnd.IntN(3) > 0
			c.handler = func(context.Context) core.Capture {
				assert.EqualValues(t, 1, running.Add(1), "never two at a time")
				time.Sleep(takes)
				running.Add(-1)
				if fails {
					return answer(500, "failed")
				}
				done.Add(1)
				return answer(201, "done")
			}
			ctx, cancel := context.WithCancel(context.Background())
			if rnd.IntN(3) == 0 {
				ctx, cancel = context.WithTimeout(ctx, time.Duration(rnd.IntN(1000))*time.Millisecond)
			}
			all.Go(func() {
				defer cancel()
				if err := g.Serve(ctx, c); err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				if c.response != nil {
					answered.Add(1)
				}
			})
			if rnd.IntN(10) == 0 {
				time.Sleep(time.Duration(rnd.IntN(20)) * time.Millisecond)
			}
		}
		all.Wait()
		assert.EqualValues(t, 3000, answered.Load())
		assert.Positive(t, done.Load())
	})
}

// A token expires while its users wait. A caller that was in time takes over an abandoned run, even if one that was
// late leads the waiters.
func TestExpiredTokenDoesNotCallForValidOnes(t *testing.T) {
	inBubble(t, func(t *testEnv) {
		var ledger atomic.Int64
		p := checkout(tokensFor(tokenSecret))
		p.Duplicate = core.Wait(time.Hour)
		g := t.MustGuard(p)
		token := tokenFor(t, g, "alice")
		first := submit(token, "", &ledger)
		first.handler = func(ctx context.Context) core.Capture {
			time.Sleep(2 * core.DefaultTokenLifetime)
			core.RunFrom(ctx).Abandon()
			return answer(500, "")
		}
		go serve(t, g, first)
		synctest.Wait()
		time.Sleep(core.DefaultTokenLifetime - time.Millisecond)
		// The answer to who is in time takes so long that who is late begins to wait before.
		t.store.onAcquire(func(context.Context) error { time.Sleep(100 * time.Millisecond); return nil })
		inTime, one := t.arrive(g, 1, func() *call { return submit(token, "", &ledger) })
		t.store.onAcquire(works)
		time.Sleep(time.Millisecond)
		late, other := t.arrive(g, 1, func() *call { return submit(token, "", &ledger) })
		one.Wait()
		other.Wait()
		assert.Equal(t, 201, inTime[0].response.Status, inTime[0].code())
		assert.Equal(t, 201, late[0].response.Status, late[0].code())
		assert.EqualValues(t, 1, ledger.Load())
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
