package core_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
)

// safelisted are what a script may always read (Fetch standard, CORS-safelisted response-header name).
var safelisted = []string{"Cache-Control", "Content-Language", "Content-Length", "Content-Type", "Expires", "Last-Modified", "Pragma"}

// What a guard adds to answers, a script of another origin may read.
func TestWhatAGuardAddsIsExposed(t *testing.T) {
	guard := core.MustNew(core.Config{User: core.UserFromHeader("X-User")}).MustGuard(core.Policy{Key: core.Header(core.Required, core.EchoKey())})
	seen := make(map[string]bool)
	serve := func(body string) *call {
		c := post(body, nil)
		c.header.Set("Idempotency-Key", "k-1")
		require.NoError(t, guard.Serve(t.Context(), c))
		for _, f := range c.response.Header {
			seen[f.Name] = true
		}
		return c
	}
	first := post(`{"a":1}`, nil)
	first.header.Set("Idempotency-Key", "k-1")
	handler := first.handler
	var own []core.Field // the handler's own fields are its service's to expose
	first.handler = func(ctx context.Context) adapter.Capture {
		require.Equal(t, "in_progress", serve(`{"a":1}`).code())
		c := handler(ctx)
		own = slices.Clone(c.Response.Header)
		return c
	}
	require.NoError(t, guard.Serve(t.Context(), first))
	for _, f := range first.response.Header {
		seen[f.Name] = true
	}
	require.True(t, serve(`{"a":1}`).replayed())
	require.Equal(t, "key_reused", serve(`{"a":2}`).code())

	for _, f := range own {
		delete(seen, f.Name)
	}
	for _, name := range safelisted {
		delete(seen, name)
	}
	exposed := []string{core.ReplayedHeader, core.RefusedHeader, core.DefaultKeyHeader, core.ExpiresHeader, "Retry-After"} // docs/cors.md
	for name := range seen {
		require.Contains(t, exposed, name)
	}
	require.Len(t, exposed, len(seen), "and nothing else is exposed: %v", seen)
}
