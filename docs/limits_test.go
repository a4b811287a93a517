package docs_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/httpidem"
)

// perUser is the page's, which is tested in examples/shop: here everybody has had too many.
func perUser(int, time.Duration) func(context.Context, core.User) (time.Duration, error) {
	return func(context.Context, core.User) (time.Duration, error) { return time.Hour, nil }
}

func limitedTokens(secrets [][]byte) *core.Tokens {
	tokens := core.MustTokens(core.TokenConfig{Secrets: secrets, Limit: perUser(20, time.Minute)})
	return tokens
}

// limited refuses what retryAfter says, as the page does.
func limited(w http.ResponseWriter, r *http.Request, retryAfter time.Duration) {
	if retryAfter > 0 {
		refusal := core.NewRefusal(codes.RateLimited, nil)
		refusal.RetryAfter = retryAfter
		httpidem.Refuse(w, r, refusal)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

func TestLimits(t *testing.T) {
	engine := core.MustNew(core.Config{User: core.UserFromHeader("X-User")})
	wait := time.Minute
	handler := httpidem.New(engine.MustGuard(core.ClientKey()))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limited(w, r, wait)
	}))
	send := func() *httptest.ResponseRecorder {
		r := httptest.NewRequest("POST", "/payments", nil)
		r.Header.Set("X-User", "ann")
		r.Header.Set("Idempotency-Key", "k-1")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	w := send()
	require.Equal(t, 429, w.Code)
	require.Equal(t, "rate_limited", w.Header().Get(core.RefusedHeader))
	require.Equal(t, "60", w.Header().Get("Retry-After"))
	wait = 0
	require.Equal(t, 201, send().Code, "no refusal is kept")
}
