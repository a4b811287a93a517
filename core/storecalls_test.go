package core_test

import (
	"context"
	"fmt"
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

// The policy's wait is for a run, not for a store that does not answer.
func TestStoreDownBeforeTheHandler(t *testing.T) {
	for name, hook := range map[string]func(context.Context) error{"refused": down, "hanging": hang} {
		bubble(t, name, func(t *testing.T) {
			var ledger atomic.Int64
			store := &spy{Store: newStore(t), acquire: hook}
			e := core.MustNew(core.Config{User: byUser, Store: store, StoreTimeout: 3 * time.Second})
			start := time.Now()
			c := serve(t, e.MustGuard(core.Policy{Duplicate: core.Wait(time.Minute)}), post("{}", &ledger))
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
	bubble(t, "its answer is lost", func(t *testing.T) {
		var told []string
		records := &spy{Store: newStore(t), acquire: hang, after: true}
		observe := func(_ context.Context, call string, _ time.Duration, _ error) { told = append(told, call) }
		e := core.MustNew(core.Config{User: byUser, Store: records, ObserveStore: observe})
		g := e.MustGuard(core.Policy{})
		assert.Equal(t, "store_unavailable", serve(t, g, post("{}", nil)).code())
		synctest.Wait()
		assert.Zero(t, e.Cleanups())
		assert.Equal(t, []string{"acquire", "release"}, told)
		records.acquire = nil
		assert.Equal(t, 201, serve(t, g, post("{}", nil)).response.Status)

		released := records.releases.Load()
		records.acquire = func(context.Context) error { return store.ErrFull }
		assert.Equal(t, "store_unavailable", serve(t, g, post("{}", nil)).code())
		synctest.Wait()
		assert.Equal(t, released, records.releases.Load(), "a store that is full has answered: there is no claim")
	})
	bubble(t, "after a wait", func(t *testing.T) {
		began, records := time.Now(), &spy{Store: newStore(t)}
		records.acquire = func(context.Context) error {
			if time.Since(began) < time.Second {
				return nil
			}
			return errDown
		}
		g := core.MustNew(core.Config{User: byUser, Store: records}).MustGuard(core.Policy{Duplicate: core.Wait(time.Second)})
		crash(t, records.Store, g, post("{}", nil), time.Hour)
		assert.Equal(t, "store_unavailable", serve(t, g, post("{}", nil)).code())
		time.Sleep(time.Minute)
		assert.EqualValues(t, 2, records.releases.Load())
	})
	bubble(t, "the release overtakes the claim", func(t *testing.T) {
		slow := overtaken{&spy{Store: newStore(t)}}
		e := core.MustNew(core.Config{User: byUser, Store: slow, StoreTimeout: 2 * time.Second})
		g := e.MustGuard(core.Policy{})
		for range 2 {
			assert.Equal(t, "store_unavailable", serve(t, g, post("{}", nil)).code())
			time.Sleep(4 * time.Second)
		}
		assert.EqualValues(t, 4, slow.releases.Load())
		assert.Zero(t, e.Cleanups())
		g = core.MustNew(core.Config{User: byUser, Store: slow.spy}).MustGuard(core.Policy{})
		assert.Equal(t, 201, serve(t, g, post("{}", nil)).response.Status)
	})
}

// overtaken makes claims after it has failed to, as a transaction that ends late does.
type overtaken struct{ *spy }

func (s overtaken) Acquire(_ context.Context, key string, claim store.Claim) (store.Grant, error) {
	time.AfterFunc(time.Second, func() { _, _ = s.spy.Acquire(context.Background(), key, claim) })
	return store.Grant{}, errDown
}

// once fails the first of calls.
func once(calls *atomic.Int64) func(context.Context) error {
	return func(context.Context) error {
		if calls.Load() == 1 {
			return errDown
		}
		return nil
	}
}

// A connection that breaks with the last answer under way must not cost the record. Without an inspector nobody can say what became of it.
func TestBrokenConnectionWhileFinishing(t *testing.T) {
	var observed events
	store := &spy{Store: newStore(t), after: true}
	store.complete = once(&store.completes)
	g := core.MustNew(core.Config{User: byUser, Store: store, Observe: observed.add}).MustGuard(core.Policy{})
	assert.Equal(t, 201, serve(t, g, post("{}", nil)).response.Status)
	assert.Equal(t, []core.Kind{core.StoreIsLocal, core.Started, core.RunUnfinished}, observed.kinds())
	assert.True(t, serve(t, g, post("{}", nil)).replayed())
	assert.EqualValues(t, 2, store.completes.Load())
}

// A store that restarts costs no result, and no more of the client's time than one deadline.
func TestStoreRestartsWhileFinishing(t *testing.T) {
	for outage, want := range map[time.Duration][]core.Kind{
		time.Second: {core.Started, core.Completed}, time.Minute: {core.Started, core.Unsettled},
	} {
		bubble(t, outage.String(), func(t *testing.T) {
			var observed events
			start := time.Now()
			store := &spy{Store: newStore(t), complete: func(context.Context) error {
				if time.Since(start) < outage {
					return errDown
				}
				return nil
			}}
			g := core.MustNew(core.Config{User: byUser, Store: store, Observe: observed.add}).MustGuard(core.Policy{})
			assert.Equal(t, 201, serve(t, g, post("{}", nil)).response.Status)
			assert.Equal(t, want, observed.kinds()[1:])
			assert.LessOrEqual(t, time.Since(start), 2*time.Second)
			assert.Less(t, store.completes.Load(), int64(15), "the pauses grow")
		})
	}
}

// A local store has no deadline, and is not asked again.
func TestFailingLocalStore(t *testing.T) {
	local := &spy{Store: newStore(t), complete: down, can: &store.Capabilities{InProcess: true, Local: true}}
	g := core.MustNew(core.Config{User: byUser, Store: local}).MustGuard(core.Policy{})
	assert.Equal(t, 201, serve(t, g, post("{}", nil)).response.Status)
}

// Each call of the store is told once, with the time that it took; those of one request in their order.
func TestObserveStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		slow := func(ctx context.Context) error { time.Sleep(time.Second); return nil }
		records := &spy{Store: newStore(t), acquire: slow, renew: slow, release: slow, abandon: slow}
		records.complete = once(&records.completes)
		can := records.Store.Capabilities()
		records.can = &store.Capabilities{InProcess: true, Checkpoint: can.Checkpoint, Fail: can.Fail}
		type ofRequest struct{}
		request := context.WithValue(t.Context(), ofRequest{}, "request")
		observe := func(ctx context.Context, call string, took time.Duration, err error) {
			told = append(told, fmt.Sprint(call, " ", took, " ", err))
			assert.Equal(t, "request", ctx.Value(ofRequest{}), call)
		}
		e := core.MustNew(core.Config{User: byUser, Store: records, ObserveStore: observe})
		g := e.MustGuard(core.Policy{Record: core.Record{Lease: 30 * time.Second}})
		long := func(context.Context) { time.Sleep(12 * time.Second) }
		renew := func(ctx context.Context) { require.NoError(t, core.RunFrom(ctx).Renew(ctx)) }
		step := func(ctx context.Context) {
			_, err := core.Step(ctx, "step", func(context.Context) (int, error) { return 1, nil })
			require.NoError(t, err)
		}
		_, err := e.Nonces().Use(request, "key", "nonce", time.Minute)
		require.NoError(t, err)
		for _, tc := range []struct {
			c    *call
			want []string
		}{
			{nil, []string{"acquire 1s <nil>"}},
			{post("{}", nil).after(long),
				[]string{"acquire 1s <nil>", "renew 1s <nil>", "complete 0s " + errDown.Error(), "complete 0s <nil>"}},
			{post("{}", nil), []string{"acquire 1s <nil>"}},
			{post("[1]", nil).doing(handlerOf(500)), []string{"acquire 1s <nil>", "release 1s <nil>"}},
			{post("[3]", nil).doing(handlerOf(502)).after(step), []string{"acquire 1s <nil>", "checkpoint 0s <nil>", "fail 0s <nil>"}},
			{post("[2]", nil).doing(endsWith(adapter.Cut)).after(renew),
				[]string{"acquire 1s <nil>", "renew 1s <nil>", "abandon 1s <nil>"}},
		} {
			if tc.c != nil {
				serveFor(t, request, g, tc.c)
			}
			assert.Equal(t, tc.want, told)
			told = nil
		}
	})
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
