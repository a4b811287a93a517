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

// Who has answered in a handler's place does not know when it ends: the claim is valid.
func TestAHandlerThatRunsOnKeepsItsClaim(t *testing.T) {
	for _, status := range []int{503, 200} {
		synctest.Test(t, func(t *testing.T) {
			var observed events
			store := &spy{Store: newStore(t)}
			g := core.MustNew(core.Config{User: byUser, Store: store, Observe: observed.add}).MustGuard(core.Policy{
				Record: core.Record{OnFailure: core.Keep}})
			tooLate := answer(status, "")
			tooLate.Ending = adapter.RunsOn
			c := serve(t, g, post("{}", nil).doing(func(context.Context) adapter.Capture { return tooLate }))
			assert.Equal(t, status, c.response.Status)
			assert.Equal(t, core.RunUnfinished, observed.last().Kind)
			assert.True(t, observed.last().Failed)
			assert.Equal(t, "in_progress", outcome(t, g, post("{}", nil)))
			time.Sleep(core.DefaultLease + time.Second)
			assert.Zero(t, store.renews.Load(), "nobody renews it")
			assert.Equal(t, "attempt 2", outcome(t, g, post("{}", nil)))
		})
	}
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

// What another guard has refused may have been done in part: it is a failure, whatever its status. A task that is refused
// is the handler's own business.
func TestInnerRefusals(t *testing.T) {
	var observed events
	p := core.ClientKey() // under which a 409 is a result
	p.OnFailure = core.Abandon
	e := core.MustNew(core.Config{User: byUser, Observe: observed.add})
	g := e.MustGuard(p)
	serve(t, g, nested(t, post("{}", nil).withKey("k"), e.MustGuard(core.ClientKey()), post("{}", nil).withKey("a", "b")))
	assert.Equal(t, core.RunAbandoned, observed.last().Kind)
	assert.True(t, observed.last().Failed)

	serve(t, g, post("{}", nil).withKey("tasks").after(func(ctx context.Context) {
		_, err := do(ctx, e, "", core.TaskPolicy{Name: "mail"}, nil)
		assert.ErrorIs(t, err, codes.KeyMissing)
	}))
	assert.Equal(t, "replay", outcome(t, g, post("{}", nil).withKey("tasks")))
}
