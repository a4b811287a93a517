package core_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/store"
)

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

// crash leaves a claim behind that nobody will finish.
func crash(t *testing.T, records store.Store, g *core.Guard, c *call, lease time.Duration) {
	t.Helper()
	r := core.Request{Headers: c, Body: []byte(c.body)}
	c.Describe(&r)
	key, fingerprint, err := g.Key(&r)
	require.NoError(t, err)
	grant, err := records.Acquire(context.Background(), key.Raw(), store.Claim{
		Owner: store.NewOwner(), Fingerprint: fingerprint, Lease: lease, Retention: time.Hour,
	})
	require.NoError(t, err)
	require.Equal(t, store.Acquired, grant.State)
}

func TestUncertain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		verdict, asked := core.Unknown(), 0
		var failure error
		// What is stored here has just the size of the limit.
		p := core.Policy{Record: core.Record{
			Lease: time.Second,
			Abandoned: core.Uncertain(func(_ context.Context, u core.Uncertainty) (core.Verdict, error) {
				asked++
				assert.EqualValues(t, 1, u.Attempt)
				assert.Equal(t, "/orders", u.Request.Route)
				return verdict, failure
			}),
		}, ResponseLimit: len(`{"order":1}`), StoredHeaders: core.DropHeaders("X-Secret")}
		abandoned := func() (*core.Guard, *atomic.Int64) {
			var ledger atomic.Int64
			store := newStore(t)
			g := core.MustNew(core.Config{User: byUser, Store: store}).MustGuard(p)
			crash(t, store, g, post("{}", &ledger), time.Second)
			assert.Equal(t, "in_progress", serve(t, g, post("{}", &ledger)).code())
			time.Sleep(2 * time.Second)
			return g, &ledger
		}

		g, ledger := abandoned()
		for range 2 {
			c := serve(t, g, post("{}", ledger))
			assert.Equal(t, 409, c.response.Status)
			assert.Equal(t, "uncertain", c.code())
		}
		failure = errDown
		for _, verdict = range []core.Verdict{core.RunAgain(), core.Finished(&core.Response{Status: 201}), core.Unknown()} {
			assert.Equal(t, "uncertain", serve(t, g, post("{}", ledger)).code(), "a verdict beside an error is none")
		}
		failure = nil
		assert.Zero(t, ledger.Load())
		assert.Equal(t, 5, asked)

		verdict = core.Finished(&core.Response{Status: 201, Body: []byte("as we found"),
			Header: []core.Field{{Name: "X-Kept", Value: "1"}, {Name: "X-Secret", Value: "s"}}})
		c := serve(t, g, post("{}", ledger))
		assert.True(t, c.replayed())
		assert.Equal(t, "as we found", string(c.response.Body))
		assert.Equal(t, "1", c.response.Get("X-Kept"))
		assert.Empty(t, c.response.Get("X-Secret"), "StoredHeaders are about it, too")
		assert.Zero(t, ledger.Load())
		verdict = core.Finished[*core.Response](nil)
		assert.True(t, serve(t, g, post("{}", ledger)).replayed(), "it is not asked again")

		g, ledger = abandoned()
		assert.Equal(t, "uncertain", serve(t, g, post("{}", ledger)).code(), "a verdict without a response is none")
		verdict = core.RunAgain()
		assert.Equal(t, 201, serve(t, g, post("{}", ledger)).response.Status)
		assert.True(t, serve(t, g, post("{}", ledger)).replayed())
		assert.EqualValues(t, 1, ledger.Load())

		p.Abandoned = core.Uncertain(nil)
		g, ledger = abandoned()
		assert.Equal(t, "uncertain", serve(t, g, post("{}", ledger)).code())
	})
}

// A verdict is about the run that was asked about, not about one that was begun, and crashed,
// while the hook was thinking.
func TestVerdictsAreAboutOneRun(t *testing.T) {
	for _, decide := range []core.Verdict{core.RunAgain(), core.Finished(&core.Response{Status: 200})} {
		synctest.Test(t, func(t *testing.T) {
			var ledger atomic.Int64
			var asked []uint64
			records := newStore(t)
			g := core.MustNew(core.Config{User: byUser, Store: records}).MustGuard(core.Policy{
				Record: core.Record{
					Lease: time.Second,
					Abandoned: core.Uncertain(func(_ context.Context, u core.Uncertainty) (core.Verdict, error) {
						asked = append(asked, u.Attempt)
						if u.Attempt == 2 {
							return core.Unknown(), nil
						}
						grant, err := records.Acquire(context.Background(), u.Key.Raw(), store.Claim{
							Owner: store.NewOwner(), Lease: time.Second, Retention: time.Hour, Takeover: true})
						require.NoError(t, err)
						require.EqualValues(t, 2, grant.Attempt)
						time.Sleep(2 * time.Second)
						return decide, nil
					}),
				}})
			crash(t, records, g, post("{}", &ledger), time.Second)
			time.Sleep(2 * time.Second)
			assert.Equal(t, "uncertain", serve(t, g, post("{}", &ledger)).code())
			assert.Equal(t, []uint64{1, 2}, asked)
			assert.Zero(t, ledger.Load())
		})
	}
}

// A record from before a policy said IgnoreFingerprint has a fingerprint that its claims no longer
// have. No verdict can take it over, and nobody may try for ever.
func TestVerdictsThatCannotBeCarriedOut(t *testing.T) {
	for _, verdict := range []core.Verdict{core.RunAgain(), core.Finished(&core.Response{Status: 200})} {
		synctest.Test(t, func(t *testing.T) {
			var ledger atomic.Int64
			store := newStore(t)
			e := core.MustNew(core.Config{User: byUser, Store: store})
			p := core.ClientKey()
			p.Lease, p.Abandoned = time.Second, core.Uncertain(nil)
			strict := e.MustGuard(p)
			asked := 0
			p.Key = core.Header(core.Required, core.IgnoreFingerprint())
			p.Abandoned = core.TakeOver()
			takesOver := e.MustGuard(p)
			p.Abandoned = core.Uncertain(func(context.Context, core.Uncertainty) (core.Verdict, error) { asked++; return verdict, nil })
			lenient := e.MustGuard(p)

			crash(t, store, strict, post("{}", &ledger).withKey("k"), time.Second)
			time.Sleep(2 * time.Second)
			for _, g := range []*core.Guard{lenient, takesOver} {
				assert.Equal(t, "key_reused", serve(t, g, post("{}", &ledger).withKey("k")).code())
			}
			assert.Equal(t, 1, asked)
			assert.Zero(t, ledger.Load())
		})
	}
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
				handler := second.handler
				second.handler = func(ctx context.Context) adapter.Capture {
					assert.False(t, core.RunFrom(ctx).Takeover(), "of a claim of its own")
					return handler(ctx)
				}
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

func TestStoreDownBeforeTheHandler(t *testing.T) {
	for name, hook := range map[string]func(context.Context) error{"refused": down, "hanging": hang} {
		bubble(t, name, func(t *testing.T) {
			var ledger atomic.Int64
			store := &spy{Store: newStore(t), acquire: hook}
			e := core.MustNew(core.Config{User: byUser, Store: store, StoreTimeout: 3 * time.Second})
			start := time.Now()
			c := serve(t, e.MustGuard(core.Policy{}), post("{}", &ledger))
			assert.LessOrEqual(t, time.Since(start), 3*time.Second)
			assert.Equal(t, 503, c.response.Status)
			assert.Equal(t, "store_unavailable", c.code())
			assert.Equal(t, "1", c.response.Get("Retry-After"))
			assert.Zero(t, ledger.Load())

			open := serve(t, e.MustGuard(core.Policy{FailOpen: true}), post("{}", &ledger))
			assert.Equal(t, 201, open.response.Status)
			assert.Equal(t, 1, open.passed)
			synctest.Wait()
		})
	}
}

// An Acquire whose answer is lost may have taken effect. The claim must not then block
// the client's next try for a whole lease.
func TestLostAnswerOfAcquireIsCleanedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := &spy{Store: newStore(t), acquire: hang, after: true}
		g := core.MustNew(core.Config{User: byUser, Store: records}).MustGuard(core.Policy{})
		assert.Equal(t, "store_unavailable", serve(t, g, post("{}", nil)).code())
		synctest.Wait()
		records.acquire = nil
		assert.Equal(t, 201, serve(t, g, post("{}", nil)).response.Status)

		released := records.releases.Load()
		records.acquire = func(context.Context) error { return store.ErrFull }
		assert.Equal(t, "store_unavailable", serve(t, g, post("{}", nil)).code())
		synctest.Wait()
		assert.Equal(t, released, records.releases.Load(), "a store that is full has answered: there is no claim")
	})
}

// A connection that breaks with the last call under way must not cost the record: the
// next call goes over another connection.
func TestBrokenConnectionWhileFinishing(t *testing.T) {
	once := func(calls *atomic.Int64) func(context.Context) error {
		return func(context.Context) error {
			if calls.Load() == 1 {
				return errDown
			}
			return nil
		}
	}
	for _, broken := range []struct {
		name  string
		after bool // the store has done it, only its answer was lost
		want  core.Kind
	}{
		{"on the way there", false, core.Completed},
		{"on the way back", true, core.RunUnfinished}, // what has become of it is not known
	} {
		t.Run(broken.name, func(t *testing.T) {
			var ledger atomic.Int64
			var kinds []core.Kind
			store := &spy{Store: newStore(t), after: broken.after}
			store.complete = once(&store.completes)
			g := core.MustNew(core.Config{User: byUser, Store: store, Observe: func(_ context.Context, e core.Event) {
				kinds = append(kinds, e.Kind)
			}}).MustGuard(core.Policy{})
			assert.Equal(t, 201, serve(t, g, post("{}", &ledger)).response.Status)
			assert.Equal(t, []core.Kind{core.StoreIsLocal, core.Started, broken.want}, kinds)
			assert.True(t, serve(t, g, post("{}", &ledger)).replayed())
			assert.EqualValues(t, 1, ledger.Load())
			assert.EqualValues(t, 2, store.completes.Load())
		})
	}
	t.Run("release", func(t *testing.T) {
		store := &spy{Store: newStore(t)}
		store.release = once(&store.releases)
		g := core.MustNew(core.Config{User: byUser, Store: store}).MustGuard(core.Exclusive())
		for range 2 {
			assert.Equal(t, 201, serve(t, g, post("{}", nil)).response.Status)
		}
	})
	t.Run("abandon", func(t *testing.T) {
		store := &spy{Store: newStore(t)}
		store.abandon = once(&store.abandons)
		g := core.MustNew(core.Config{User: byUser, Store: store}).MustGuard(core.Policy{Record: core.Record{OnFailure: core.Abandon, Abandoned: core.Uncertain(nil)}})
		serve(t, g, post("{}", nil).doing(handlerOf(502)))
		assert.Equal(t, "uncertain", serve(t, g, post("{}", nil)).code(), "at once, not when the lease has passed")
	})
}

// A store that restarts within the deadline costs no result; one that does not gets no more
// of the client's time than that.
func TestStoreRestartsWhileFinishing(t *testing.T) {
	for outage, want := range map[time.Duration]core.Kind{time.Second: core.Completed, time.Minute: core.RunUnfinished} {
		bubble(t, outage.String(), func(t *testing.T) {
			var last core.Event
			start := time.Now()
			store := &spy{Store: newStore(t), complete: func(context.Context) error {
				if time.Since(start) < outage {
					return errDown
				}
				return nil
			}}
			g := core.MustNew(core.Config{User: byUser, Store: store, Observe: func(_ context.Context, e core.Event) { last = e }}).
				MustGuard(core.Policy{})
			assert.Equal(t, 201, serve(t, g, post("{}", nil)).response.Status)
			assert.Equal(t, want, last.Kind)
			assert.LessOrEqual(t, time.Since(start), 2*time.Second)
			assert.Less(t, store.completes.Load(), int64(15), "the pauses grow")
		})
	}
}

// localSpy fails, and has no deadline.
type localSpy struct{ *spy }

func (localSpy) Capabilities() store.Capabilities {
	return store.Capabilities{InProcess: true, Local: true}
}

func TestFailingLocalStore(t *testing.T) {
	g := core.MustNew(core.Config{User: byUser, Store: localSpy{&spy{Store: newStore(t), complete: down}}}).MustGuard(core.Policy{})
	assert.Equal(t, 201, serve(t, g, post("{}", nil)).response.Status)
}

func TestNoRoomForTheResponse(t *testing.T) {
	var ledger atomic.Int64
	records := &spy{Store: newStore(t)}
	records.complete = func(context.Context) error {
		if records.completes.Load() == 1 {
			return store.ErrFull
		}
		return nil
	}
	var observed events
	g := core.MustNew(core.Config{User: byUser, Store: records, Observe: observed.add}).MustGuard(core.Policy{})
	assert.Equal(t, 201, serve(t, g, post("{}", &ledger)).response.Status)
	require.Equal(t, []core.Kind{core.StoreIsLocal, core.Started, core.Completed}, observed.kinds())
	assert.ErrorIs(t, observed.all[2].Err, store.ErrFull, "somebody has to make room")
	assert.Equal(t, "result_unavailable", serve(t, g, post("{}", &ledger)).code(), "that it was done is kept")
	assert.EqualValues(t, 1, ledger.Load())
}
