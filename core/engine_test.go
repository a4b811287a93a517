package core_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/core/operations"
	"github.com/idem-go/idem/core/store"
)

func TestFirstThenReplay(t *testing.T) {
	var ledger atomic.Int64
	g := core.MustNew(core.Config{User: byUser}).MustGuard(core.Policy{})

	first := serve(t, g, post(`{"sku":"a","qty":1}`, &ledger))
	assert.Equal(t, 201, first.response.Status)
	assert.False(t, first.replayed(), "the first response carries no marker")
	assert.Equal(t, 1, first.delivered)

	// Other order of members, fresh timestamp: the same operation.
	again := serve(t, g, post(`{"qty":1, "sku":"a", "timestamp":7}`, &ledger))
	assert.True(t, again.replayed())
	assert.Equal(t, first.response.Body, again.response.Body)
	assert.Equal(t, 201, again.response.Status)
	assert.Zero(t, again.ran)

	other := serve(t, g, post(`{"sku":"a","qty":2}`, &ledger))
	assert.False(t, other.replayed())
	assert.EqualValues(t, 2, ledger.Load())
}

func TestClientKey(t *testing.T) {
	var ledger atomic.Int64
	var observed events
	g := core.MustNew(core.Config{User: byUser, Observe: observed.add}).MustGuard(core.ClientKey())
	serve(t, g, post(`{"n":1}`, &ledger).withKey("k-1"))

	assert.True(t, serve(t, g, post(`{"n":1}`, &ledger).withKey(`"k-1"`)).replayed(), "quoted and bare are one")

	reused := serve(t, g, post(`{"n":2}`, &ledger).withKey("k-1"))
	assert.Equal(t, 422, reused.response.Status)
	assert.Equal(t, "key_reused", reused.code())
	assert.True(t, serve(t, g, post(`{"n":1}`, &ledger).withKey("k-1")).replayed(), "the record is unchanged")

	for cause, all := range map[string][][]string{
		"the key is empty": {{""}}, "more than one key": {{"a,b"}, {"a", "a"}}, "the closing quote is missing": {{`"a`}},
		`a character that a key may not hold: " "`: {{"a b"}}, "the key is longer than 255 bytes": {{strings.Repeat("k", 256)}},
	} {
		for _, bad := range all {
			c := serve(t, g, post(`{}`, &ledger).withKey(bad...))
			assert.Equal(t, 400, c.response.Status, "%q", bad)
			assert.Equal(t, "key_invalid", c.code(), "%q", bad)
			assert.EqualError(t, observed.last().Err, cause)
		}
	}
	missing := serve(t, g, post(`{}`, &ledger))
	assert.Equal(t, "key_missing", missing.code())
	assert.EqualValues(t, 1, ledger.Load())

	p := core.ClientKey()
	p.Key = core.Header(core.Optional)
	optional := core.MustNew(core.Config{User: byUser}).MustGuard(p)
	for range 2 {
		assert.Equal(t, 1, serve(t, optional, post(`{}`, &ledger)).passed, "without a key it runs each time")
	}
}

func TestKeyReusedWhileRunningAndIgnoreFingerprint(t *testing.T) {
	var ledger atomic.Int64
	e := core.MustNew(core.Config{User: byUser})
	strict := e.MustGuard(core.ClientKey())
	lenient := e.MustGuard(core.ClientKey(core.IgnoreFingerprint()))
	for _, tc := range []struct {
		g    *core.Guard
		key  string
		code string
	}{{strict, "s", "key_reused"}, {lenient, "l", "in_progress"}} {
		outer := post(`{"n":1}`, &ledger).withKey(tc.key).doing(func(context.Context) adapter.Capture {
			inner := serve(t, tc.g, post(`{"n":2}`, &ledger).withKey(tc.key))
			assert.Equal(t, tc.code, inner.code())
			same := serve(t, tc.g, post(`{"n":1}`, &ledger).withKey(tc.key))
			assert.Equal(t, "in_progress", same.code())
			assert.Equal(t, "1", same.response.Get("Retry-After"))
			return answer(200, "")
		})
		serve(t, tc.g, outer)
	}
	assert.Zero(t, ledger.Load())
}

func TestFieldsAndFunc(t *testing.T) {
	var observed events
	e := core.MustNew(core.Config{User: byUser, Observe: observed.add})
	fields := e.MustGuard(core.Policy{Key: core.Params(core.Fields("order.id"))})
	serve(t, fields, post(`{"order":{"id":1,"note":"x"}}`, nil))
	assert.True(t, serve(t, fields, post(`{"order":{"note":"y","id":1},"z":1}`, nil)).replayed())
	assert.False(t, serve(t, fields, post(`{"order":{"id":2}}`, nil)).replayed())
	assert.Equal(t, "key_missing", serve(t, fields, post(`{"other":1}`, nil)).code(),
		"requests without the field would all be one operation")
	assert.Equal(t, "key_missing", serve(t, fields, post(`{"order":{"id":1}`, nil)).code(), "malformed")
	named := e.MustGuard(core.Policy{Key: core.Params(core.Fields("sign"))})
	serve(t, named, post(`{"sign":1}`, nil))
	assert.False(t, serve(t, named, post(`{"sign":2}`, nil)).replayed(), "a default name that is named counts")

	fn := e.MustGuard(core.Policy{Key: core.Func(func(r *core.Request) (string, error) {
		switch string(r.Body) {
		case "none":
			return "", nil
		case "bad":
			return "", errors.New("no such key")
		case "longest":
			return strings.Repeat("k", 255), nil
		case "too long":
			return strings.Repeat("k", 256), nil
		}
		return "constant", nil
	})})
	serve(t, fn, post(`{"n":1}`, nil))
	assert.True(t, serve(t, fn, post(`{"n":1}`, nil)).replayed())
	assert.Equal(t, "key_reused", serve(t, fn, post(`{"n":2}`, nil)).code())
	assert.Equal(t, "key_missing", serve(t, fn, post("none", nil)).code())
	assert.Equal(t, "key_invalid", serve(t, fn, post("bad", nil)).code())
	assert.Equal(t, 201, serve(t, fn, post("longest", nil)).response.Status)
	assert.Equal(t, "key_invalid", serve(t, fn, post("too long", nil)).code())
	assert.EqualError(t, observed.last().Err, "the key is longer than 255 bytes")
}

func TestBodyKey(t *testing.T) {
	for name, member := range map[string]string{"key": `"key"`, "a.b": `"a.b"`, "*": `"*"`, `a\b`: `"a\\b"`, "0": `"0"`} {
		g := core.MustNew(core.Config{User: byUser}).MustGuard(core.Policy{Key: core.BodyKey(name, core.Exclude("trace"))})
		json := func(text string) *call { return post(strings.ReplaceAll(text, `"key"`, member), nil) }
		as := func(c *call, contentType string) *call { c.contentType = contentType; return c }
		for _, tc := range []struct {
			c    *call
			want string
		}{
			{json(`{"key":"k-1","n":1}`), "attempt 1"},
			{json(`{"n":1, "trace":7, "key":"k-1"}`), "replay"},
			{json(`{"key":"k-1","n":2}`), "key_reused"},
			{json(`{"key":"k-2","n":1}`), "attempt 1"},
			{json(`{"key":"\u006b-2","n":1}`), "replay"},
			{json(`{"key":"` + strings.Repeat("k", 255) + `"}`), "attempt 1"},
			{json(`{"key":"` + strings.Repeat("k", 256) + `"}`), "key_invalid"},
			{json(`{"n":1}`), "key_missing"},
			{json(`{"n":{"key":"k-1"}}`), "key_missing"},
			{json(``), "key_missing"},
			{json(`["key"]`), "key_missing"},
			{json(`"key"`), "key_missing"},
			{json(`{"key":""}`), "key_invalid"},
			{json(`{"key":null}`), "key_invalid"},
			{json(`{"key":1}`), "key_invalid"},
			{json(`{"key":{"key":"k-1"}}`), "key_invalid"},
			{json(`{"key":"k-1","key":"k-2"}`), "key_invalid"},
			{json(`{"key":"k-1"`), "key_invalid"},
			{as(json(`{"key":"k-3"}`), "application/vnd.acme+json; charset=utf-8"), "attempt 1"},
			{as(json(`{"key":"k-3"}`), "application/vnd.acme+json"), "replay"},
			{as(json(`{"key":"k-3"}`), "application/json"), "key_reused"},
			{as(json(`{"key":"k-3"`), "application/vnd.acme+json"), "key_invalid"},
			{as(json(`{"key":"k-1"}`), "text/plain"), "key_missing"},
			{as(post("key=k-1&a.b=k&*=k", nil), "application/x-www-form-urlencoded"), "key_missing"},
		} {
			assert.Equal(t, tc.want, outcome(t, g, tc.c), "%s: %s", name, tc.c.body)
		}
	}
}

func TestCheckKey(t *testing.T) {
	long := core.CheckKey(func(key string) bool { return len(key) >= 3 })
	for body, key := range map[string]core.KeySource{"{}": core.Header(core.Required, long), `{"key":"k-1"}`: core.BodyKey("key", long)} {
		g := core.MustNew(core.Config{User: byUser}).MustGuard(core.Policy{Key: key})
		assert.Equal(t, "attempt 1", outcome(t, g, post(body, nil).withKey(`"k-1"`)))
		short := post(strings.Replace(body, "-1", "", 1), nil).withKey(`"k"`)
		assert.Equal(t, "key_invalid", outcome(t, g, short), "without its quotes")
	}
}

// A key means something within its scope only, and an operator finds it there.
func TestScopeKey(t *testing.T) {
	e := core.MustNew(core.Config{User: byUser})
	scope := core.ScopeKey(func(r *core.Request) string { return r.PathParams[0].Value + " " + string(r.Body[:1]) })
	g := e.MustGuard(core.ClientKey(scope))
	ask := func(id, body string) string {
		c := post(body, nil).withKey("k")
		c.route, c.params = "/sessions/:id", []adapter.Pair{{Name: "id", Value: id}}
		return outcome(t, g, c)
	}
	assert.Equal(t, "attempt 1", ask("1", "a"))
	assert.Equal(t, "attempt 1", ask("2", "a"))
	assert.Equal(t, "attempt 1", ask("1", "b"))
	assert.Equal(t, "replay", ask("1", "a"))
	assert.Equal(t, "key_reused", ask("1", "ab"))

	ops, err := operations.Of(e, operations.Options{})
	require.NoError(t, err)
	op, err := ops.LookupKey(t.Context(), "alice", "POST /sessions/:id", "k")
	require.NoError(t, err)
	assert.Regexp(t, `^idem:U=aliceM=POST%20/sessions/:idS=[0-9a-f]{32}K=k$`, op.Key)
}

func TestReplayed(t *testing.T) {
	var made *core.Response
	p := core.ClientKey(core.EchoKey())
	p.Replayed = func(_ context.Context, r *core.Request, stored *core.Response) *core.Response {
		assert.Equal(t, `{"n":1}`, string(r.Body))
		assert.Equal(t, "true", stored.Get(core.ReplayedHeader))
		return made
	}
	g := core.MustNew(core.Config{User: byUser}).MustGuard(p)
	first := serve(t, g, post(`{"n":1}`, nil).withKey("k"))
	assert.False(t, first.replayed(), "nobody is asked")
	for _, tc := range []struct {
		makes  *core.Response
		status int
		body   string
	}{
		{nil, 201, string(first.response.Body)},
		{&core.Response{Status: 200, Body: []byte("own"), Header: []core.Field{{Name: "x-own", Value: "1"}}}, 200, "own"},
		{&core.Response{Header: []core.Field{{Name: "idempotent-replayed", Value: "no"}}}, 201, ""},
	} {
		made = tc.makes
		c := serve(t, g, post(`{"n":1}`, nil).withKey("k"))
		assert.Equal(t, tc.status, c.response.Status)
		assert.Equal(t, tc.body, string(c.response.Body))
		assert.Equal(t, "true", c.response.Get(core.ReplayedHeader))
		assert.Equal(t, "k", c.response.Get(core.DefaultKeyHeader))
		assert.NotEmpty(t, c.response.Get(core.ExpiresHeader))
	}
	assert.Equal(t, "idempotent-replayed", made.Header[0].Name, "what the hook returns is its own")
}

func TestOptionalBodyKey(t *testing.T) {
	g := core.MustNew(core.Config{User: byUser}).MustGuard(core.Policy{Key: core.BodyKey("key", core.Optional)})
	for range 2 {
		assert.Equal(t, 1, serve(t, g, post(`{"n":1}`, nil)).passed)
	}
	assert.Equal(t, "key_invalid", outcome(t, g, post(`{"key":1}`, nil)))
	assert.Equal(t, "key_invalid", outcome(t, g, post(`{"n":1`, nil)), "who knows whether it has one")
	nobody := post(`{"n":1}`, nil)
	nobody.header.Del("X-User")
	assert.Equal(t, "user_missing", outcome(t, g, nobody), "the user is looked for before the body is read")
	assert.Equal(t, "attempt 1", outcome(t, g, post(`{"key":"k"}`, nil)))
	assert.Equal(t, "replay", outcome(t, g, post(`{"key":"k"}`, nil)))
}

// Bodies are compared byte by byte; all else, by what it means.
func TestRawBody(t *testing.T) {
	e := core.MustNew(core.Config{User: byUser})
	for name, key := range map[string]core.KeySource{"header": core.Header(core.Required), "member": core.BodyKey("key")} {
		g := e.MustGuard(core.Policy{Compare: core.RawBody, Digest: core.SHA256, Key: key})
		ask := func(body, query string) string {
			c := post(body, nil).withKey(name)
			c.query = query
			return outcome(t, g, c)
		}
		assert.Equal(t, "attempt 1", ask(`{"key":"k","a":1}`, "b=1&c=2"))
		assert.Equal(t, "replay", ask(`{"key":"k","a":1}`, "c=2&b=1"))
		assert.Equal(t, "key_reused", ask(`{"a":1,"key":"k"}`, "b=1&c=2"))
		assert.Equal(t, "key_reused", ask(`{"key":"k","a":1} `, "b=1&c=2"))
		assert.Equal(t, "key_reused", ask(`{"key":"k","a":1}`, "b=1"))
	}
}

func TestSafeMethodsPass(t *testing.T) {
	g := core.MustNew(core.Config{User: byUser}).MustGuard(core.ClientKey())
	for i, method := range []string{"GET", "HEAD", "OPTIONS", "TRACE", "QUERY", "POST", "PUT", "PATCH", "DELETE", "PURGE"} {
		c := post("", nil)
		c.method = method
		serve(t, g, c)
		assert.Equal(t, i < 5, c.passed == 1, method)
		assert.Equal(t, i >= 5, c.code() == "key_missing", method)
	}
}

func TestNothingIsRecordedForRefusedRequests(t *testing.T) {
	var ledger atomic.Int64
	store := &spy{Store: newStore(t)}
	g := core.MustNew(core.Config{User: byUser, Store: store}).MustGuard(core.Policy{BodyLimit: 8})
	for code, f := range map[string]func(*call){
		"body_too_large":  func(c *call) { c.body = "123456789" },
		"body_unreadable": func(c *call) { c.bodyErr = errTruncated },
		"user_missing":    func(c *call) { c.header.Del("X-User") },
	} {
		c := post("{}", &ledger)
		f(c)
		assert.Equal(t, code, serve(t, g, c).code())
	}
	twice := post("{}", &ledger)
	twice.header["X-User"] = []string{"alice", "bob"}
	assert.Equal(t, "user_missing", serve(t, g, twice).code())
	assert.Zero(t, store.acquires.Load())
	assert.Zero(t, ledger.Load())
	assert.Equal(t, 201, serve(t, g, post("12345678", &ledger)).response.Status, "the limit itself is allowed")
}

func TestFailuresAreReleased(t *testing.T) {
	byKey := core.Func(func(*core.Request) (string, error) { return "k", nil })
	for name, tc := range map[string]struct {
		key            core.KeySource
		failures, kept []int
		retryAfterToo  bool // 4xx with Retry-After are failures
	}{
		"parameters": {core.Params(), []int{400, 402, 404, 406, 409, 412, 415, 422, 428, 429, 499, 500, 503, 599},
			[]int{200, 204, 302}, false},
		"fields": {core.Params(core.Fields("f")), []int{400, 402, 415, 500}, []int{200}, false},
		"client key": {core.Header(core.Required), []int{500, 503, 599, 429, 425, 408, 499},
			[]int{200, 204, 302, 400, 402, 404, 409, 422}, true},
		"own function": {byKey, []int{500, 429, 499}, []int{200, 402}, true},
	} {
		again := func(status int, fields ...core.Field) string {
			g := core.MustNew(core.Config{User: byUser}).MustGuard(core.Policy{Key: tc.key})
			c := post(`{"f":1}`, nil).withKey("k").doing(func(context.Context) adapter.Capture { return answer(status, "body", fields...) })
			require.Equal(t, status, serve(t, g, c).response.Status)
			return outcome(t, g, post(`{"f":1}`, nil).withKey("k"))
		}
		for _, status := range tc.failures {
			assert.Equal(t, "attempt 1", again(status), "%s: the next try runs after %d", name, status)
		}
		for _, status := range tc.kept {
			assert.Equal(t, "replay", again(status), "%s: %d", name, status)
			refusal := core.Field{Name: "idempotency-refused", Value: "in_progress"}
			assert.Equal(t, "attempt 1", again(status, refusal), "%s: a refusal with %d", name, status)
		}
		if tc.retryAfterToo {
			assert.Equal(t, "attempt 1", again(409, core.Field{Name: "Retry-After", Value: "1"}), name)
			assert.Equal(t, "replay", again(201, core.Field{Name: "Retry-After", Value: "1"}), name)
		}
	}
}

// A hook that panics when the handler has done its work must not make it be done again.
func TestPanicBehindTheHandler(t *testing.T) {
	var observed events
	failed := func(*core.Response) bool { panic("hook") }
	g := core.MustNew(core.Config{User: byUser, Observe: observed.add}).MustGuard(core.Policy{Failed: failed})
	c := post("{}", nil).after(func(ctx context.Context) { adapter.PartSent(ctx, false) }) // of a large answer, which is not cut
	assert.Equal(t, "hook", serveUntilPanic(g, c))
	assert.Equal(t, 1, c.delivered)
	assert.Equal(t, core.Completed, observed.last().Kind)
	assert.Equal(t, "result_unavailable", outcome(t, g, post("{}", nil)))

	c = serve(t, g, post(`{"deferred":1}`, nil).doing(deferring))
	assert.PanicsWithValue(t, "hook", func() { c.finish(t, answer(200, "")) })
	assert.Equal(t, 200, c.response.Status, "the client gets its answer")
	assert.Equal(t, "result_unavailable", outcome(t, g, post(`{"deferred":1}`, nil)))
}

func TestResultUnavailable(t *testing.T) {
	for name, capture := range map[string]adapter.Capture{
		"incomplete": {Response: &core.Response{Status: 200}, Incomplete: true},
		"too large":  answer(200, "123456789"),
	} {
		g := core.MustNew(core.Config{User: byUser}).MustGuard(core.Policy{ResponseLimit: 8})
		first := serve(t, g, post("{}", nil).doing(func(context.Context) adapter.Capture { return capture }))
		assert.Equal(t, 200, first.response.Status, name)
		dup := serve(t, g, post("{}", nil))
		assert.Equal(t, "result_unavailable", dup.code(), name)
		assert.Equal(t, 409, dup.response.Status)
		assert.Zero(t, dup.ran, "the handler does not run again")
	}
}

func TestUnrenderedErrorCountsAsFailure(t *testing.T) {
	boom := errors.New("boom")
	var observed events
	g := core.MustNew(core.Config{User: byUser, Observe: observed.add}).MustGuard(core.Policy{})
	c := post("{}", nil).doing(func(context.Context) adapter.Capture { return adapter.Capture{Ending: adapter.Unrendered, Err: boom} })
	c.err = boom
	assert.Equal(t, boom, g.Serve(context.Background(), c))
	assert.Equal(t, core.Released, observed.last().Kind)
	assert.ErrorIs(t, observed.last().Err, adapter.ErrUnrendered)
	assert.ErrorIs(t, observed.last().Err, boom)
	assert.Equal(t, "attempt 1", outcome(t, g, post("{}", nil)))
}

func TestDeferredOutcome(t *testing.T) {
	g := core.MustNew(core.Config{User: byUser}).MustGuard(core.Policy{})
	deferred := func() *call {
		c := post("{}", nil).doing(deferring)
		c.err = errors.New("rendered further out")
		assert.Error(t, g.Serve(context.Background(), c))
		require.NotNil(t, c.pending)
		assert.Zero(t, c.delivered)
		assert.Equal(t, "in_progress", outcome(t, g, post("{}", nil)), "the claim is valid")
		return c
	}
	assert.NoError(t, deferred().pending.Finish(nil)) // a panic came out instead
	c := deferred()
	c.finish(t, answer(201, "rendered"))
	assert.NoError(t, c.pending.Finish(nil)) // does nothing any more
	dup := serve(t, g, post("{}", nil))
	assert.True(t, dup.replayed())
	assert.Equal(t, 201, dup.response.Status)
	assert.Equal(t, "rendered", string(dup.response.Body))
}

func TestSameGuardTwiceOnTheWay(t *testing.T) {
	g := core.MustNew(core.Config{User: byUser}).MustGuard(core.Policy{})
	inner := post("{}", nil)
	serve(t, g, nested(t, post("{}", nil), g, inner))
	assert.Equal(t, 1, inner.passed)
	assert.Equal(t, "replay", outcome(t, g, post("{}", nil)))
}

func TestRunIsVisibleToTheHandler(t *testing.T) {
	g := core.MustNew(core.Config{User: byUser}).MustGuard(core.Policy{})
	type ctxKey struct{}
	var ended *core.Run
	c := post("{}", nil).after(func(ctx context.Context) {
		run := core.RunFrom(ctx)
		require.NotNil(t, run)
		ended = run
		assert.NoError(t, run.Renew(ctx))
		assert.EqualValues(t, 1, run.Attempt())
		assert.False(t, run.Takeover())
		assert.False(t, run.Owner().IsZero())
		assert.Contains(t, run.Key().Raw(), "U=aliceM=POST%20/ordersP=")
		assert.Equal(t, "outer", ctx.Value(ctxKey{}), "the request's values are still there")
	})
	require.NoError(t, g.Serve(context.WithValue(context.Background(), ctxKey{}, "outer"), c))
	assert.ErrorIs(t, ended.Renew(context.Background()), store.ErrLost)
	run := core.RunFrom(context.Background())
	assert.Nil(t, run)
	assert.NoError(t, run.Renew(context.Background()))
	assert.EqualValues(t, 1, run.Attempt(), "a handler needs no check")
	assert.False(t, run.Takeover())
	assert.Empty(t, run.Key())
	assert.True(t, run.Owner().IsZero())
	run.Keep()
	run.Release()
	run.Abandon()
}

func TestRefusalsOnTheWire(t *testing.T) {
	c := serve(t, core.MustNew(core.Config{User: byUser}).MustGuard(core.ClientKey()), post("{}", nil))
	assert.Equal(t, "no-store", c.response.Get("Cache-Control"))
	assert.JSONEq(t, `{"type":"https://github.com/idem-go/idem/blob/main/docs/problems.md#key_missing","title":"Idempotency key missing",
		"status":400,"detail":"This operation needs an idempotency key.","code":"key_missing"}`, string(c.response.Body))
	assert.Equal(t, "key_missing", c.response.Get(core.RefusedHeader))

	var asked sync.Map
	shared := &core.Response{Status: 200, Body: []byte("own"), Header: make([]core.Field, 0, 8)} // with room behind its fields
	own := core.MustNew(core.Config{User: byUser, Refuse: func(_ context.Context, r *core.Refusal) *core.Response {
		if r.Code == codes.KeyInvalid {
			return nil
		}
		assert.Equal(t, []any{codes.KeyMissing, 400, "/orders"}, []any{r.Code, r.Status, r.Request.Route})
		asked.Store(r.Request.Native, true)
		*r = core.Refusal{} // its own copy
		return shared
	}}).MustGuard(core.ClientKey())
	ask := func() *core.Response {
		c := serve(t, own, post("{}", nil))
		_, ok := asked.Load(c)
		assert.True(t, ok, "a refusal has the request of its own")
		return c.response
	}
	shared.Header = append(shared.Header, core.Field{Name: "X-Own", Value: "1"},
		core.Field{Name: "cache-control", Value: "public"}, core.Field{Name: core.RefusedHeader, Value: "no"})
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			assert.Equal(t, &core.Response{Status: 200, Body: []byte("own"), Header: []core.Field{{Name: "X-Own", Value: "1"},
				{Name: "Cache-Control", Value: "no-store"}, {Name: core.RefusedHeader, Value: "key_missing"}}},
				ask(), "the marks of a refusal stay")
		})
	}
	all.Wait()
	assert.Equal(t, "no", shared.Get(core.RefusedHeader), "it is the hook's")
	assert.Len(t, shared.Header, 3)
	assert.Zero(t, shared.Header[:4][3])
	shared.Header[1].Value = "private, no-cache" // nothing but a browser's history may keep it
	assert.Equal(t, "private, no-cache", ask().Get("Cache-Control"))
	assert.Equal(t, "key_invalid", serve(t, own, post("{}", nil).withKey("a", "b")).code(), "nil is the default answer")
}

// Services on one store have operations and nonces of their own, also beside one that keeps its keys of 0.1.0.
func TestServicesOfOneStore(t *testing.T) {
	var ledger atomic.Int64
	keys := map[string]bool{}
	records := &spy{Store: newStore(t), asked: func(key string, _ store.Claim) { keys[key] = true }}
	for i, c := range []core.Config{{Service: "mail"}, {Service: "Mail"}, {LegacyPrefix: "idem:"}} {
		c.Store, c.User = records, byUser
		e := core.MustNew(c)
		job := post(`{"job":1}`, &ledger)
		serve(t, e.MustGuard(core.Policy{}), job)
		serve(t, core.MustNew(c).MustGuard(core.Policy{}), job) // in another process of the service
		assert.EqualValues(t, i+1, ledger.Load(), "it runs once for each service")
		unused, err := e.Nonces().Use(t.Context(), "demo", "n", time.Minute)
		require.NoError(t, err)
		assert.True(t, unused)
	}
	for _, prefix := range []string{"idem:mail:", "idem:Mail:", "idem:"} {
		assert.Contains(t, keys, prefix+"N=demo#n")
	}
}

func TestConfigurationFaultsAreReportedAtOnce(t *testing.T) {
	_, err := core.New(core.Config{User: core.UserFromHeader(""), StoreTimeout: -1})
	assert.Equal(t, []string{"Config.User", "Config.StoreTimeout"}, faultyFields(t, err))

	e := core.MustNew(core.Config{})
	_, err = e.Guard(core.Policy{
		Key: core.Params(core.Fields("a..b", ""), core.Exclude("**")), Duplicate: core.Wait(0),
		Record:    core.Record{Lease: 1, Retention: -1, OnSuccess: 9, OnFailure: 9},
		BodyLimit: -1, ResponseLimit: -1, Digest: 9, StoredHeaders: core.KeepHeaders("Connection"),
	})
	assert.ElementsMatch(t, []string{
		"Policy.Key", "Policy.Key", "Policy.Key", "Policy.Duplicate", "Policy.Lease", "Policy.Retention", "Policy.OnSuccess",
		"Policy.OnFailure", "Policy.BodyLimit", "Policy.ResponseLimit", "Policy.Digest", "Policy.StoredHeaders", "Policy.User",
	}, faultyFields(t, err))
	assert.Panics(t, func() { e.MustGuard(core.Policy{}) }, "the user is never guessed")
	assert.NotPanics(t, func() { e.MustGuard(core.Policy{User: core.SharedByAllCallers()}) })
}

func faultyFields(t *testing.T, err error) (fields []string) {
	t.Helper()
	require.Error(t, err)
	for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
		var fault *core.ConfigError
		require.ErrorAs(t, err, &fault)
		assert.NotEmpty(t, fault.Problem)
		fields = append(fields, fault.Field)
	}
	return fields
}

// The fields of Config say nothing about each other, but for the two that make a prefix. A StoreTimeout has its use on a store of the
// process, too: Drain gives so long to the last runs.
func TestSettingsOfTheEngine(t *testing.T) {
	values := map[string]func(*core.Config){
		"Store":        func(c *core.Config) { c.Store = newStore(t) },
		"User":         func(c *core.Config) { c.User = byUser },
		"Service":      func(c *core.Config) { c.Service = "Shop-1" + strings.Repeat("s", 58) },
		"LegacyPrefix": func(c *core.Config) { c.LegacyPrefix = strings.Repeat("p", 128) },
		"Secrets": func(c *core.Config) {
			c.Secrets = []core.Secret{{Name: "s-1", Key: []byte(strings.Repeat("0123456789", 4))}}
		},
		"Seal":           func(c *core.Config) { c.Seal = sealUnder("a") },
		"StoreTimeout":   func(c *core.Config) { c.StoreTimeout = time.Second },
		"UnsettledLimit": func(c *core.Config) { c.UnsettledLimit = 1 << 20 },
		"Remark":         func(c *core.Config) { c.Remark = func(context.Context) string { return "" } },
		"Observe":        func(c *core.Config) { c.Observe = func(context.Context, core.Event) {} },
		"ObserveStore":   func(c *core.Config) { c.ObserveStore = func(context.Context, string, time.Duration, error) {} },
		"Refuse":         func(c *core.Config) { c.Refuse = func(context.Context, *core.Refusal) *core.Response { return nil } },
	}
	fields := reflect.VisibleFields(reflect.TypeFor[core.Config]())
	require.Len(t, values, len(fields))
	for _, a := range fields {
		for _, b := range fields {
			var c core.Config
			require.Contains(t, values, a.Name)
			values[a.Name](&c)
			values[b.Name](&c)
			_, err := core.New(c)
			if c.Service != "" && c.LegacyPrefix != "" {
				assert.Equal(t, []string{"Config.LegacyPrefix"}, faultyFields(t, err))
			} else {
				assert.NoError(t, err, "%s and %s", a.Name, b.Name)
			}
		}
	}
	var unmade *spy
	for _, prefix := range []string{"a b", "a\tb", "\n", "\x7f"} {
		_, err := core.New(core.Config{LegacyPrefix: prefix})
		assert.Equal(t, []string{"Config.LegacyPrefix"}, faultyFields(t, err), "%q", prefix)
	}
	for _, service := range []string{"a:", "a=", "a b", "a_b", "ä", "a\n", "*", strings.Repeat("s", 65)} {
		_, err := core.New(core.Config{Service: service})
		assert.Equal(t, []string{"Config.Service"}, faultyFields(t, err), "%q", service)
	}
	_, err := core.New(core.Config{Store: shared{newStore(t)}})
	assert.EqualError(t, err, "idem: Config.Service: is empty, and the store is not in-process: two services on one store would answer "+
		"for each other (LegacyPrefix keeps the records of 0.1.0)")
	_, err = core.New(core.Config{Store: unmade, LegacyPrefix: strings.Repeat("p", 129), StoreTimeout: -1, User: core.UserFromHeader("")})
	assert.ElementsMatch(t, []string{"Config.Store", "Config.LegacyPrefix", "Config.StoreTimeout", "Config.User"}, faultyFields(t, err))
}
