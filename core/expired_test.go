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

// A key is known for longer than its result: for so long it is refused, whatever comes with it, and then it is forgotten.
func TestRefuseExpired(t *testing.T) {
	key := core.Header(core.Required, core.EchoKey())
	fromStart := core.Policy{Key: key, Record: core.Record{RetainFromStart: true}}
	for name, tc := range map[string]struct {
		policy core.Policy
		first  func(context.Context) adapter.Capture
		takes  time.Duration
		before string // what a duplicate gets while the result is kept
		keeps  time.Duration
	}{
		"a success":      {core.Policy{Key: key}, handlerOf(201), 0, "replay", time.Hour},
		"a function's":   {core.Policy{Key: core.Func(constantKey)}, handlerOf(201), 0, "replay", time.Hour},
		"in the body":    {core.Policy{Key: core.BodyKey("key")}, handlerOf(201), 0, "replay", time.Hour},
		"of an event":    {core.Policy{Key: core.CallerEvent()}, handlerOf(201), 0, "replay", time.Hour},
		"any parameters": {core.Policy{Key: core.Header(core.Required, core.IgnoreFingerprint())}, handlerOf(201), 0, "replay", time.Hour},
		"a kept failure": {core.Policy{Key: key, Record: core.Record{OnFailure: core.Keep}}, handlerOf(503), 0, "replay", time.Hour},
		"rejected":       {core.Policy{Key: key, Duplicate: core.Reject("")}, handlerOf(201), 0, "duplicate", time.Hour},
		"waited for":     {core.Policy{Key: key, Duplicate: core.Wait(time.Second)}, handlerOf(201), 0, "replay", time.Hour},
		"from the start": {fromStart, handlerOf(201), 20 * time.Minute, "replay", 40 * time.Minute},
		"gone at once":   {fromStart, handlerOf(201), time.Hour, "key_expired", 0},
		"only failures are kept": {core.Policy{Key: key, Duplicate: core.Reject(""),
			Record: core.Record{OnSuccess: core.Release, OnFailure: core.Keep}}, handlerOf(503), 0, "duplicate", time.Hour},
		"found by reconcile": {core.Policy{Key: key, Record: core.Record{
			Abandoned: finding(core.Finished(&core.Response{Status: 201}))}}, abandoning, 0, "replay", time.Hour},
	} {
		bubble(t, name, func(t *testing.T) {
			var seen events
			tc.policy.Retention, tc.policy.RefuseExpired = time.Hour, 24*time.Hour
			g := core.MustNew(core.Config{User: byUser, Observe: seen.add}).MustGuard(tc.policy)
			ask := func(body string) *call { return post(body, nil).withKey("k") }
			ctx := core.WithCallerEvent(t.Context(), "sender", "e")
			const same, other = `{"key":"k","n":1}`, `{"key":"k","n":2}`
			first := ask(same).doing(func(ctx context.Context) adapter.Capture { time.Sleep(tc.takes); return tc.first(ctx) })
			serveFor(t, ctx, g, first)
			require.Equal(t, 1, first.ran)
			time.Sleep(time.Nanosecond) // a result that is not to be kept is gone by now
			for range 2 {
				again := serveFor(t, ctx, g, ask(same))
				met := again.code()
				if again.replayed() {
					met = "replay"
				}
				require.Equal(t, tc.before, met)
			}
			time.Sleep(tc.keeps)
			for range 2 {
				for _, body := range []string{same, other} {
					late := serveFor(t, ctx, g, ask(body))
					require.Zero(t, late.ran)
					require.Equal(t, "key_expired", late.code())
					require.Equal(t, 410, late.response.Status)
					require.Equal(t, "key_expired", late.response.Get(core.RefusedHeader))
					require.Empty(t, late.response.Get("Retry-After"))
					require.Empty(t, late.response.Get(core.ExpiresHeader))
					ev := seen.last()
					require.Equal(t, core.Refused, ev.Kind)
					require.Equal(t, codes.KeyExpired, ev.Code)
					require.NotZero(t, ev.ID)
				}
			}
			time.Sleep(24*time.Hour - time.Minute)
			require.Equal(t, "key_expired", serveFor(t, ctx, g, ask(same)).code())
			time.Sleep(time.Minute)
			require.Equal(t, 1, serveFor(t, ctx, g, ask(other)).ran, "the key is forgotten")
		})
	}
}

// A run that outlasts its retention answers without a date until which the result is kept, and leaves none to who waits for it.
func TestRefuseExpiredOfARunThatOutlastsItsRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := &spy{Store: newStore(t)} // for whose changes waiters poll
		records.can = &store.Capabilities{InProcess: true, Outlive: records.Store.Capabilities().Outlive}
		g := core.MustNew(core.Config{User: byUser, Store: records}).MustGuard(core.Policy{
			Key: core.Header(core.Required, core.EchoKey()), Duplicate: core.Wait(time.Hour), RefuseExpired: time.Hour,
			Record: core.Record{Retention: time.Minute, RetainFromStart: true}})
		waited := post("{}", nil).withKey("k")
		var waiter atomic.Bool
		c := serve(t, g, post("{}", nil).withKey("k").doing(func(context.Context) adapter.Capture {
			go func() { serve(t, g, waited); waiter.Store(true) }()
			time.Sleep(31 * time.Minute)
			return answer(201, "")
		}))
		require.Equal(t, 201, c.response.Status)
		require.Empty(t, c.response.Get(core.ExpiresHeader))
		time.Sleep(time.Second)
		require.True(t, waiter.Load())
		require.Equal(t, "key_expired", waited.code())
		time.Sleep(29*time.Minute - time.Second)
		require.Equal(t, "key_expired", serve(t, g, post("{}", nil).withKey("k")).code())
		time.Sleep(2 * time.Minute)
		require.Equal(t, 1, serve(t, g, post("{}", nil).withKey("k")).ran)
	})
}

// An event has been received, whether its result is still kept or not.
func TestRefuseExpiredOfASignedEvent(t *testing.T) {
	for _, d := range []core.Duplicate{core.Replay(), core.Reject("")} {
		synctest.Test(t, func(t *testing.T) {
			p := core.SignedEvent(core.CompareContent())
			p.Name, p.Duplicate, p.RefuseExpired = "hooks", d, time.Hour
			g := core.MustNew(core.Config{}).MustGuard(p)
			ctx := core.WithCallerEvent(t.Context(), "sender", "e")
			serveFor(t, ctx, g, post(`{"n":1}`, nil).doing(handlerOf(201)))
			time.Sleep(97*time.Hour - time.Second)
			late := serveFor(t, ctx, g, post(`{"n":2}`, nil))
			require.Equal(t, []any{0, true, 200, ""}, []any{late.ran, late.replayed(), late.response.Status, string(late.response.Body)})
			time.Sleep(time.Second)
			require.Equal(t, 1, serveFor(t, ctx, g, post(`{"n":2}`, nil)).ran)
		})
	}
}

// The record knows whether it outlives its result, and not the policy: processes with the old and the new one work side by side.
func TestRefuseExpiredDuringARollout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := core.MustNew(core.Config{User: byUser})
		p := core.Policy{Key: core.Header(core.Required), Record: core.Record{Retention: time.Hour}}
		without := e.MustGuard(p)
		p.RefuseExpired = 24 * time.Hour
		with := e.MustGuard(p)
		serve(t, without, post("{}", nil).withKey("old"))
		serve(t, with, post("{}", nil).withKey("new"))
		time.Sleep(time.Hour)
		assert.Equal(t, "attempt 1", outcome(t, with, post("{}", nil).withKey("old")))
		assert.Equal(t, "key_expired", outcome(t, without, post("{}", nil).withKey("new")))
	})
}

// A store that can't keep a key for longer than its result is found out at the start, and a result for which it has no room is left out.
func TestRefuseExpiredAndTheStore(t *testing.T) {
	p := core.Policy{Key: core.Header(core.Required), RefuseExpired: time.Hour}
	records := &spy{Store: newStore(t)}
	_, err := core.MustNew(core.Config{User: byUser, Store: records}).Guard(p)
	assert.Equal(t, []string{"Policy.RefuseExpired"}, faultyFields(t, err))

	can := store.Capabilities{InProcess: true, Outlive: records.Store.Capabilities().Outlive}
	var asked []int
	outlive := can.Outlive
	can.Outlive = func(ctx context.Context, key string, owner store.Owner, result []byte, retention, known time.Duration) error {
		if asked = append(asked, len(result)); len(result) > 0 {
			return store.ErrFull
		}
		return outlive(ctx, key, owner, result, retention, known)
	}
	records.can = &can
	g := core.MustNew(core.Config{User: byUser, Store: records}).MustGuard(p)
	serve(t, g, post("{}", nil).withKey("k"))
	assert.Equal(t, "result_unavailable", serve(t, g, post("{}", nil).withKey("k")).code())
	require.Len(t, asked, 2)
	assert.Zero(t, records.completes.Load())

	p.RefuseExpired = -1
	_, err = core.MustNew(core.Config{User: byUser}).Guard(p)
	assert.Equal(t, []string{"Policy.RefuseExpired"}, faultyFields(t, err))
}
