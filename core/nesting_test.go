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
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/core/store"
)

// nested makes outer's handler serve inner under g, and answer what inner was answered.
func nested(t *testing.T, outer *call, g *core.Guard, inner *call) *call {
	outer.handler = func(ctx context.Context) adapter.Capture {
		require.NoError(t, g.Serve(ctx, inner))
		return adapter.Capture{Response: inner.response}
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
		serve(t, local, nested(t, post("{}", &ledger), remote, inner))
		assert.Zero(t, inner.passed)
	}
	assert.EqualValues(t, 1, ledger.Load())
}

// What an inner guard has refused was not done: the outer one must not keep the refusal.
func TestInnerRefusalsAreNotKept(t *testing.T) {
	store := newStore(t)
	e := core.MustNew(core.Config{User: byUser, Store: store})
	outer, inner := e.MustGuard(core.ClientKey()), e.MustGuard(core.Exclusive())

	busy := post("{}", nil)
	handler := busy.handler
	busy.handler = func(ctx context.Context) adapter.Capture {
		refused := serve(t, outer, nested(t, post("{}", nil).withKey("k"), inner, post("{}", nil)))
		assert.Equal(t, "in_progress", refused.code())
		return handler(ctx)
	}
	serve(t, inner, busy)
	again := serve(t, outer, nested(t, post("{}", nil).withKey("k"), inner, post("{}", nil)))
	assert.Equal(t, 201, again.response.Status)
	assert.False(t, again.replayed())

	// A task that is refused is the handler's own business.
	tasks := post("{}", nil).withKey("tasks").doing(func(ctx context.Context) adapter.Capture {
		_, err := do(ctx, e, "", core.TaskPolicy{Name: "mail"}, nil)
		assert.ErrorIs(t, err, codes.KeyMissing)
		return answer(201, "")
	})
	serve(t, outer, tasks)
	assert.True(t, serve(t, outer, post("{}", nil).withKey("tasks")).replayed())
}

// An observer that panics is a bug, but it must not hold a claim for ever.
func TestObserverPanics(t *testing.T) {
	for _, kind := range []core.Kind{core.Started, core.Released, core.Completed} {
		synctest.Test(t, func(t *testing.T) {
			armed := true
			g := core.MustNew(core.Config{User: byUser, Observe: func(_ context.Context, e core.Event) {
				if armed && e.Kind == kind {
					panic("observer")
				}
			}}).MustGuard(core.Policy{Record: core.Record{Lease: time.Second}})
			c := post("{}", nil)
			if kind != core.Completed {
				c.handler = func(context.Context) adapter.Capture { panic("handler") }
			}
			assert.Panics(t, func() { _ = g.Serve(context.Background(), c) })
			armed = false
			time.Sleep(time.Minute)
			assert.Equal(t, 201, serve(t, g, post("{}", nil)).response.Status, kind)
		})
	}
}

// What another guard has refused may have been done in part: it is a failure, whatever its status.
func TestInnerRefusalsAreFailures(t *testing.T) {
	var last core.Event
	p := core.ClientKey() // under which a 409 is a result
	p.OnFailure = core.Abandon
	e := core.MustNew(core.Config{User: byUser, Observe: func(_ context.Context, e core.Event) { last = e }})
	serve(t, e.MustGuard(p), nested(t, post("{}", nil).withKey("k"), e.MustGuard(core.ClientKey()), post("{}", nil).withKey("a", "b")))
	assert.Equal(t, core.RunAbandoned, last.Kind)
	assert.True(t, last.Failed)
}

// Who has answered in a handler's place does not know when it ends: the claim is valid.
func TestAHandlerThatRunsOnKeepsItsClaim(t *testing.T) {
	for _, status := range []int{503, 200} {
		handlerThatRunsOn(t, status)
	}
}

func handlerThatRunsOn(t *testing.T, status int) {
	synctest.Test(t, func(t *testing.T) {
		var last core.Event
		store := &spy{Store: newStore(t)}
		g := core.MustNew(core.Config{User: byUser, Store: store, Observe: func(_ context.Context, e core.Event) { last = e }}).MustGuard(core.Policy{Record: core.Record{OnFailure: core.Keep}})
		c := post("{}", nil).doing(func(context.Context) adapter.Capture {
			got := answer(status, "too late")
			got.Ending = adapter.RunsOn
			return got
		})
		assert.Equal(t, status, serve(t, g, c).response.Status)
		assert.Equal(t, core.RunUnfinished, last.Kind)
		assert.True(t, last.Failed)
		assert.Equal(t, "in_progress", serve(t, g, post("{}", nil)).code())
		time.Sleep(core.DefaultLease + time.Second)
		assert.Zero(t, store.renews.Load(), "nobody renews it")
		assert.Equal(t, 201, serve(t, g, post("{}", nil)).response.Status)
	})
}

// Preforked processes share what is outside of them, and nothing else.
func TestPreforkedProcesses(t *testing.T) {
	var ledger atomic.Int64
	for want, store := range map[string]store.Store{"store_not_shared": &spy{Store: newStore(t)}, "": shared{newStore(t)}} {
		c := post("{}", &ledger)
		c.preforked = true
		serve(t, core.MustNew(core.Config{Service: "shop", User: byUser, Store: store}).MustGuard(core.Policy{}), c)
		assert.Equal(t, want, c.code())
	}
	assert.EqualValues(t, 1, ledger.Load())
}

func TestAStoreOfTheProcessIsReportedOnce(t *testing.T) {
	var kinds []core.Kind
	observe := func(_ context.Context, e core.Event) { kinds = append(kinds, e.Kind) }
	e := core.MustNew(core.Config{User: byUser, Observe: observe})
	assert.Equal(t, []core.Kind{core.StoreIsLocal}, kinds)
	serve(t, e.MustGuard(core.Policy{}), post("{}", nil))
	serve(t, e.MustGuard(core.Exclusive()), post(`{"n":1}`, nil))
	assert.Equal(t, []core.Kind{core.StoreIsLocal, core.Started, core.Completed, core.Started, core.Released}, kinds)
	kinds = nil
	core.MustNew(core.Config{User: byUser, Observe: observe, Service: "shop", Store: shared{newStore(t)}})
	assert.Empty(t, kinds)
}
