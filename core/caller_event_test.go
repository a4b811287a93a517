package core_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
)

// All deliveries of an event are one operation, whatever key the client's header names.
func TestCallerEvent(t *testing.T) {
	var ledger atomic.Int64
	strict := core.Policy{Key: core.CallerEvent(), User: core.UserFromCaller()}
	lax := strict
	lax.Key = core.CallerEvent(core.IgnoreFingerprint())
	for _, c := range []struct {
		policy core.Policy
		other  string // what another body of the same event gets
	}{{strict, "key_reused"}, {lax, ""}} {
		ledger.Store(0)
		g := core.MustNew(core.Config{}).MustGuard(c.policy)
		ask := func(ctx context.Context, body, key string) *call {
			c := post(body, &ledger).withKey(key)
			require.NoError(t, g.Serve(ctx, c))
			return c
		}
		event := func(id string) context.Context { return core.WithCallerEvent(t.Context(), "stripe", id) }
		assert.False(t, ask(event("evt_1"), "{}", "a").replayed())
		assert.True(t, ask(event("evt_1"), "{}", "b").replayed())
		assert.False(t, ask(event("evt_2"), "{}", "a").replayed())
		assert.False(t, ask(core.WithCallerEvent(t.Context(), "other", "evt_1"), "{}", "a").replayed(), "another sender's event")
		again := ask(event("evt_1"), `{"pending_webhooks":1}`, "a")
		assert.Equal(t, c.other, again.code())
		assert.Equal(t, c.other == "", again.replayed())
		assert.Equal(t, "key_missing", ask(event(""), "{}", "a").code())
		assert.Equal(t, "key_missing", ask(core.WithCaller(event("evt_1"), "stripe"), "{}", "a").code(), "who is nearer to the handler knows of no event")
		assert.EqualValues(t, 3, ledger.Load())
	}
}

// Where the path is the route, whoever changes it would run an event again.
func TestCallerEventNeedsAPattern(t *testing.T) {
	g := core.MustNew(core.Config{}).MustGuard(core.Policy{Key: core.CallerEvent(), User: core.UserFromCaller()})
	r := core.Request{Method: "POST", Route: "/hooks", Headers: post("", nil), Caller: "github", CallerEvent: "evt_1"}
	_, _, err := g.Key(&r)
	require.NoError(t, err)
	r.Unmatched = true
	_, _, err = g.Key(&r)
	var refused *core.Refusal
	require.ErrorAs(t, err, &refused)
	require.Equal(t, codes.KeyInvalid, refused.Code)
}
