package core_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/operations"
	"github.com/idem-go/idem/core/store/memstore"
)

func TestFailedByCode(t *testing.T) {
	response := func(status int, body string, fields ...core.Field) *core.Response {
		return &core.Response{Status: status, Body: []byte(body),
			Header: append(fields, core.Field{Name: "content-type", Value: "application/json; charset=utf-8"})}
	}
	unlisted, listed := core.FailedByCode("code"), core.FailedByCode("code", "0", "OK", "true", "1.50")
	for _, tc := range []struct {
		body             string
		unlisted, listed bool // whether it is a failure
	}{
		{`{"code":0}`, false, false},
		{`{"code":"0"}`, false, false},
		{`{"code":200}`, false, true},
		{`{"code":299}`, false, true},
		{`{"code":"204"}`, false, true},
		{`{"code":199}`, true, true},
		{`{"code":300}`, true, true},
		{`{"code":50001,"msg":"no"}`, true, true},
		{`{"code":"50001"}`, true, true},
		{`{"code":-1}`, true, true},
		{`{"code":"-1"}`, true, true},
		{`{"code":123456789012345678901234567890}`, true, true},
		{`{"code":"OK"}`, false, false},
		{`{"code":"ok"}`, false, true},
		{`{"code":"E_FUNDS"}`, false, true},
		{`{"code":true}`, false, false},
		{`{"code":false}`, false, true},
		{`{"code":1.50}`, false, false},
		{`{"code":1.5}`, false, true},
		{`{"code":""}`, false, true},
		{`{"code":[1]}`, false, true},
		{`{"code":null}`, false, false},
		{`{"Code":50001}`, false, false},
		{`{"data":{"code":50001}}`, false, false},
		{`{}`, false, false},
		{`null`, false, false},
		{`[{"code":50001}]`, false, false},
		{`50001`, false, false},
		{`{"code":50001`, false, false},
		{``, false, false},
	} {
		assert.Equal(t, tc.unlisted, unlisted(response(200, tc.body)), tc.body)
		assert.Equal(t, tc.listed, listed(response(200, tc.body)), tc.body)
		assert.True(t, unlisted(response(402, tc.body)), tc.body)
		assert.True(t, listed(response(500, tc.body)), tc.body)
		assert.False(t, unlisted(response(200, tc.body, core.Field{Name: "Content-Encoding", Value: "gzip"})), tc.body)
	}
	for contentType, failed := range map[string]bool{
		"application/json": true, "application/vnd.api+json": true, "Application/JSON": true, "text/html": false, "": false,
	} {
		r := &core.Response{Status: 200, Body: []byte(`{"code":1}`), Header: []core.Field{{Name: "Content-Type", Value: contentType}}}
		assert.Equal(t, failed, unlisted(r), contentType)
	}
	own := []string{"1"}
	f := core.FailedByCode("code", own...)
	own[0] = "2"
	assert.False(t, f(response(200, `{"code":1}`)), "the successes are its own")
}

// Each preset over time: what the same request gets while the first runs, and when.
func TestPresetsOverTime(t *testing.T) {
	const runs, busy, rejected = "runs", "in_progress", "duplicate"
	type moment struct {
		at   time.Duration // since the start of the first
		gets string
	}
	s := time.Second
	released := core.DoubleClick()
	released.OnSuccess, released.OnFailure = core.Release, core.Release
	for name, tc := range map[string]struct {
		policy  core.Policy
		takes   time.Duration
		handler func(context.Context) adapter.Capture
		moments []moment
	}{
		"double click": {core.DoubleClick(), 5 * s, handlerOf(200),
			[]moment{{1 * s, busy}, {6 * s, rejected}, {44 * s, rejected}, {46 * s, runs}}},
		"double click, failed": {core.DoubleClick(), 5 * s, handlerOf(500),
			[]moment{{6 * s, rejected}, {44 * s, rejected}, {46 * s, runs}}},
		"double click, slow":     {core.DoubleClick(), 100 * s, handlerOf(200), []moment{{46 * s, busy}, {99 * s, busy}, {101 * s, runs}}},
		"double click, released": {released, 5 * s, handlerOf(200), []moment{{4 * s, busy}, {6 * s, runs}}},
		"no repeat": {core.NoRepeatSubmit(0, ""), s / 10, handlerOf(200),
			[]moment{{s / 2, rejected}, {9 * s / 10, rejected}, {11 * s / 10, runs}}},
		"no repeat, failed": {core.NoRepeatSubmit(0, ""), s / 10, handlerOf(400), []moment{{s / 20, busy}, {s / 5, runs}}},
		"its own interval":  {core.NoRepeatSubmit(time.Minute, ""), s, handlerOf(200), []moment{{59 * s, rejected}, {61 * s, runs}}},
		"resubmit window": {core.ResubmitWindow(), 30 * s, handlerOf(200),
			[]moment{{29 * s, busy}, {31 * s, rejected}, {49 * s, rejected}, {51 * s, runs}}},
		"resubmit window, failed": {core.ResubmitWindow(), 30 * s, handlerOf(500), []moment{{31 * s, runs}}},
		"exclusive":               {core.Exclusive(), 90 * s, handlerOf(200), []moment{{89 * s, busy}, {91 * s, runs}}},
		"exclusive, failed":       {core.Exclusive(), 90 * s, handlerOf(500), []moment{{89 * s, busy}, {91 * s, runs}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := core.MustNew(core.Config{User: byUser}).MustGuard(tc.policy)
			began := time.Now()
			first := post("{}", nil).doing(func(ctx context.Context) adapter.Capture { time.Sleep(tc.takes); return tc.handler(ctx) })
			go func() { serve(t, g, first) }()
			for _, m := range tc.moments {
				time.Sleep(m.at - time.Since(began))
				c, got := serve(t, g, post("{}", nil)), runs
				if c.ran == 0 {
					got = c.code()
				}
				assert.Equal(t, m.gets, got, "%s, after %v", name, m.at)
			}
			time.Sleep(tc.takes)
		})
	}
	assert.Equal(t, "Wait(10s)", core.OneShotToken(someTokens).Duplicate.String(), "a browser shows the answer to the last click")
	assert.Equal(t, `Reject("Please do not submit twice.")`, core.NoRepeatSubmit(0, "").Duplicate.String())
}
func TestPresetsCompile(t *testing.T) {
	e := core.MustNew(core.Config{User: byUser})
	released, shorter, after := core.DoubleClick(), core.DoubleClick(), core.DoubleClick()
	released.OnSuccess, released.OnFailure = core.Release, core.Release
	shorter.Retention = 2 * time.Second
	after.OnFailure = core.Release
	for _, p := range []core.Policy{core.DoubleClick(), released, shorter, after, core.NoRepeatSubmit(0, ""),
		core.NoRepeatSubmit(time.Minute, "m"), core.ResubmitWindow(), core.Exclusive(), core.ClientKey(),
		core.OneShotToken(someTokens), core.SignedEvent(core.CompareContent())} {
		for _, lease := range []time.Duration{0, time.Second, time.Hour} {
			p.Name, p.Lease = "n", lease
			assert.NotPanics(t, func() { e.MustGuard(p) }, "%+v", p)
		}
		p.Key = core.Header(core.Optional)
		assert.NotPanics(t, func() { e.MustGuard(p) }, "%+v", p)
	}
}

// TestDefaultNames: logs, metrics and records of a policy that nobody has named say what kind it is.
func TestDefaultNames(t *testing.T) {
	var events []core.Event
	records, err := memstore.New(memstore.Config{})
	require.NoError(t, err)
	e := core.MustNew(core.Config{Store: records, User: core.UserFromHeader("X-User"),
		Observe: func(_ context.Context, ev core.Event) { events = append(events, ev) }})
	ops, err := operations.Of(e, operations.Options{})
	require.NoError(t, err)
	for want, p := range map[string]core.Policy{
		"params": {}, "client-key": core.ClientKey(), "double-click": core.DoubleClick(), "no-repeat-submit": core.NoRepeatSubmit(0, ""),
		"resubmit-window": core.ResubmitWindow(), "exclusive": core.Exclusive(), "body-key": {Key: core.BodyKey("key")},
		"func": {Key: core.Func(func(*core.Request) (string, error) { return "k", nil })},
		"mine": {Name: "mine"},
	} {
		events = nil
		c := post(`{"key":"k"}`, nil).withKey("k").doing(func(ctx context.Context) adapter.Capture {
			op, err := ops.Lookup(ctx, core.RunFrom(ctx).ID().String())
			assert.NoError(t, err, want)
			assert.Equal(t, want, op.Policy)
			return answer(201, "{}")
		})
		c.route = "/" + want
		serve(t, e.MustGuard(p), c)
		assert.Equal(t, 1, c.ran, want)
		for _, ev := range events {
			assert.Equal(t, want, ev.Policy)
		}
	}
}
