package core_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/store"
)

// expires returns how long the result is kept, as an answer says it; zero: it says nothing.
func (c *call) expires(t *testing.T) time.Duration {
	t.Helper()
	at := c.response.Get(core.ExpiresHeader)
	if at == "" {
		return 0
	}
	when, err := http.ParseTime(at)
	require.NoError(t, err)
	require.Positive(t, time.Until(when))
	return time.Until(when)
}

func TestEchoKey(t *testing.T) {
	here := time.Local
	time.Local = time.FixedZone("elsewhere", 2*60*60) // dates are in UTC wherever the service is
	t.Cleanup(func() { time.Local = here })
	for name, tc := range map[string]struct {
		policy  core.Policy
		handler func(context.Context) adapter.Capture
		stands  time.Duration // as the first answer says
	}{
		"a success":      {core.Policy{}, handlerOf(201), 24 * time.Hour},
		"for how long":   {core.Policy{Record: core.Record{Retention: time.Hour}}, handlerOf(201), time.Hour},
		"from the start": {core.Policy{Record: core.Record{Retention: time.Hour, RetainFromStart: true}}, handlerOf(201), 50 * time.Minute},
		"not any more":   {core.Policy{Record: core.Record{Retention: time.Minute, RetainFromStart: true}}, handlerOf(201), 0},
		"a failure":      {core.Policy{}, handlerOf(503), 0},
		"a kept failure": {core.Policy{Record: core.Record{OnFailure: core.Keep}}, handlerOf(503), 24 * time.Hour},
		"released": {core.Policy{}, func(ctx context.Context) adapter.Capture {
			core.RunFrom(ctx).Release()
			return answer(201, "")
		}, 0},
		"abandoned":           {core.Policy{Record: core.Record{OnFailure: core.Abandon}}, handlerOf(503), 0},
		"rejected duplicates": {core.Policy{Duplicate: core.Reject("")}, handlerOf(201), 24 * time.Hour},
	} {
		for _, deferred := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				p := tc.policy
				p.Key = core.Header(core.Required, core.EchoKey())
				g := core.MustNew(core.Config{User: byUser}).MustGuard(p)
				c := post("{}", nil).withKey(`"k 1"`)
				var final adapter.Capture
				c.handler = func(ctx context.Context) adapter.Capture {
					time.Sleep(10 * time.Minute)
					if final = tc.handler(ctx); deferred {
						return deferring(ctx)
					}
					return final
				}
				if serve(t, g, c); deferred {
					c.finish(t, final)
				}
				assert.Equal(t, `"k 1"`, c.response.Get(core.DefaultKeyHeader), name)
				assert.Equal(t, tc.stands, c.expires(t), name)
				if tc.stands == 0 {
					return
				}
				time.Sleep(10 * time.Minute)
				again := serve(t, g, post("{}", nil).withKey(`"k 1"`))
				if p.Duplicate == core.Reject("") {
					assert.Empty(t, again.response.Get(core.ExpiresHeader), "refusals have fields of their own")
					return
				}
				assert.True(t, again.replayed(), name)
				assert.Equal(t, `"k 1"`, again.response.Get(core.DefaultKeyHeader), name)
				assert.Equal(t, tc.stands-10*time.Minute, again.expires(t), name)
			})
		}
	}
}

// A framework's strings may change under the handler's hands.
func TestEchoKeyIsWhatWasSent(t *testing.T) {
	p := core.ClientKey(core.EchoKey())
	sent := []byte("key")
	c := post("{}", nil).withKey(unsafe.String(&sent[0], len(sent)))
	c.handler = func(context.Context) adapter.Capture { copy(sent, "xxx"); return answer(201, "") }
	serve(t, core.MustNew(core.Config{User: byUser}).MustGuard(p), c)
	assert.Equal(t, "key", c.response.Get(core.DefaultKeyHeader))
}

// What the store could not keep has no end that anybody knows.
func TestEchoKeyWithoutAStore(t *testing.T) {
	for _, fault := range []error{errDown, store.ErrLost} {
		synctest.Test(t, func(t *testing.T) {
			store := &spy{Store: newStore(t), complete: func(context.Context) error { return fault }}
			p := core.ClientKey()
			p.Key = core.Header(core.Optional, core.Named("X-Key"), core.EchoKey())
			g := core.MustNew(core.Config{User: byUser, Store: store}).MustGuard(p)
			c := post("{}", nil)
			c.header.Set("X-Key", "k")
			serve(t, g, c)
			assert.Equal(t, 201, c.response.Status)
			assert.Equal(t, "k", c.response.Get("X-Key"))
			assert.Zero(t, c.expires(t))

			without := serve(t, g, post("{}", nil))
			assert.Equal(t, 1, without.passed)
			assert.Empty(t, without.response.Get("X-Key"), "nothing of the one before")
		})
	}
}

// A field of that name that is the handler's own gives way, the first time and again.
func TestEchoKeyIsThereOnce(t *testing.T) {
	p := core.ClientKey(core.EchoKey())
	g := core.MustNew(core.Config{User: byUser}).MustGuard(p)
	c := post("{}", nil).withKey("k").doing(func(context.Context) adapter.Capture {
		own := answer(201, "")
		own.Response.Header = append(own.Response.Header, core.Field{Name: "idempotency-key", Value: "own"})
		return own
	})
	serve(t, g, c)
	again := serve(t, g, post("{}", nil).withKey("k"))
	assert.True(t, again.replayed())
	assert.Equal(t, "k", again.response.Get(core.DefaultKeyHeader))
}

// safelisted are what a script may always read (Fetch standard, CORS-safelisted response-header name).
var safelisted = []string{"Cache-Control", "Content-Language", "Content-Length", "Content-Type", "Expires", "Last-Modified", "Pragma"}

// What a guard adds to answers, a script of another origin may read.
func TestWhatAGuardAddsIsExposed(t *testing.T) {
	g := core.MustNew(core.Config{User: byUser}).MustGuard(core.Policy{Key: core.Header(core.Required, core.EchoKey())})
	seen := make(map[string]bool)
	ask := func(c *call) *call {
		serve(t, g, c.withKey("k-1"))
		for _, f := range c.response.Header {
			seen[f.Name] = true
		}
		return c
	}
	ask(post(`{"a":1}`, nil).after(func(context.Context) {
		require.Equal(t, "in_progress", ask(post(`{"a":1}`, nil)).code())
	}))
	require.True(t, ask(post(`{"a":1}`, nil)).replayed())
	require.Equal(t, "key_reused", ask(post(`{"a":2}`, nil)).code())

	for _, name := range safelisted { // so are the handler's own fields, which are its service's to expose
		delete(seen, name)
	}
	// See docs/clients.md.
	exposed := []string{core.ReplayedHeader, core.RefusedHeader, core.DefaultKeyHeader, core.ExpiresHeader, "Retry-After"}
	for name := range seen {
		require.Contains(t, exposed, name)
	}
	require.Len(t, exposed, len(seen), "and nothing else is exposed: %v", seen)
}
