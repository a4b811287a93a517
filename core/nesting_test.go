package core_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
)

// inside makes outer's handler serve inner under g, and answer what inner was answered.
func inside(t *testing.T, outer *call, g *core.Guard, inner *call) *call {
	outer.handler = func(ctx context.Context) core.Capture {
		require.NoError(t, g.Serve(ctx, inner))
		return core.Capture{Response: inner.response}
	}
	return outer
}

func TestGuardsOfTwoEnginesBothClaim(t *testing.T) {
	var ledger atomic.Int64
	shared := newStore(t)
	local := core.MustNew(core.Config{User: byUser}).MustGuard(core.Exclusive())
	remote := core.MustNew(core.Config{User: byUser, Store: shared}).MustGuard(core.Policy{})
	for range 2 {
		inner := post("{}", &ledger)
		serve(t, local, inside(t, post("{}", &ledger), remote, inner))
		assert.Zero(t, inner.passed)
	}
	assert.EqualValues(t, 1, ledger.Load())
}

func TestGuardsOnTheWayAreFoundHoweverFarOut(t *testing.T) {
	var ledger atomic.Int64
	e := core.MustNew(core.Config{User: byUser})
	a, b := e.MustGuard(core.Policy{}), e.MustGuard(core.ClientKey())
	last := post("{}", &ledger)
	middle := inside(t, post("{}", &ledger).withKey("k"), a, last)
	serve(t, a, inside(t, post("{}", &ledger), b, middle))
	assert.Equal(t, 201, last.response.Status)
	assert.Equal(t, 1, last.passed)
}

// What an inner guard has refused was not done: the outer one must not keep the refusal.
func TestInnerRefusalsAreNotKept(t *testing.T) {
	var ledger atomic.Int64
	store := newStore(t)
	e := core.MustNew(core.Config{User: byUser, Store: store})
	outer, inner := e.MustGuard(core.ClientKey()), e.MustGuard(core.Exclusive())

	busy := post("{}", &ledger)
	handler := busy.handler
	busy.handler = func(ctx context.Context) core.Capture {
		refused := serve(t, outer, inside(t, post("{}", &ledger).withKey("k"), inner, post("{}", &ledger)))
		assert.Equal(t, "in_progress", refused.code())
		return handler(ctx)
	}
	serve(t, inner, busy)
	again := serve(t, outer, inside(t, post("{}", &ledger).withKey("k"), inner, post("{}", &ledger)))
	assert.Equal(t, 201, again.response.Status)
	assert.False(t, again.replayed())

	// A task that is refused is the handler's own business.
	tasks := post("{}", &ledger).withKey("tasks")
	tasks.handler = func(ctx context.Context) core.Capture {
		_, err := e.Do(ctx, "", core.Policy{Name: "mail"}, nil)
		assert.ErrorIs(t, err, core.ErrKeyMissing)
		return answer(201, "")
	}
	serve(t, outer, tasks)
	assert.True(t, serve(t, outer, post("{}", &ledger).withKey("tasks")).replayed())
}

// An observer that panics is a bug, but it must not hold a claim for ever.
func TestObserverPanics(t *testing.T) {
	for _, kind := range []core.Kind{core.Started, core.Panicked, core.Released, core.Finished} {
		synctest.Test(t, func(t *testing.T) {
			var ledger atomic.Int64
			armed := true
			g := core.MustNew(core.Config{User: byUser, Observe: func(_ context.Context, e core.Event) {
				if armed && e.Kind == kind {
					panic("observer")
				}
			}}).MustGuard(core.Policy{Lease: time.Second})
			c := post("{}", &ledger)
			if kind != core.Finished {
				c.handler = func(context.Context) core.Capture { panic("handler") }
			}
			assert.Panics(t, func() { _ = g.Serve(context.Background(), c) })
			armed = false
			time.Sleep(time.Minute)
			assert.Equal(t, 201, serve(t, g, post("{}", &ledger)).response.Status, kind)
		})
	}
}

func TestFencingNumbersNeverGoBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ledger atomic.Int64
		store := newStore(t)
		g := core.MustNew(core.Config{User: byUser, Store: store}).MustGuard(core.Policy{Lease: time.Second})
		crash(t, store, g, post("{}", &ledger), time.Second)
		time.Sleep(2 * time.Second)
		for attempt := uint64(2); attempt < 5; attempt++ {
			c := post("{}", &ledger)
			c.handler = func(ctx context.Context) core.Capture {
				run, _ := core.RunFrom(ctx)
				assert.Equal(t, attempt, run.Attempt())
				assert.True(t, run.Takeover())
				return answer(503, "not yet")
			}
			assert.Equal(t, 503, serve(t, g, c).response.Status)
		}
	})
}
