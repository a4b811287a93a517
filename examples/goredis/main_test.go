package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/goredisidem"
	"github.com/idem-go/idem/internal/backend"
)

// TestOrders: two processes count each order once.
func TestOrders(t *testing.T) {
	addr := backend.StartRedis(t).Addr()
	process := func() http.Handler {
		client := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { _ = client.Close() })
		store, err := goredisidem.New(client, redisstore.Config{})
		require.NoError(t, err)
		t.Cleanup(store.Close)
		return handler(client, core.MustNew(core.Config{Service: "goredis", Store: store, User: core.UserFromHeader("X-User")}))
	}
	processes := []http.Handler{process(), process()}
	for i, want := range []struct{ key, body, replayed string }{
		{"k-1", `{"order":1}`, ""}, {"k-1", `{"order":1}`, "true"}, {"k-2", `{"order":2}`, ""}, {"k-1", `{"order":1}`, "true"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/orders", strings.NewReader("{}"))
		r.Header.Set("X-User", "ann")
		r.Header.Set("Idempotency-Key", want.key)
		w := httptest.NewRecorder()
		processes[i%2].ServeHTTP(w, r)
		require.Equal(t, http.StatusCreated, w.Code, w.Body)
		require.Equal(t, want.body+"\n", w.Body.String())
		require.Equal(t, want.replayed, w.Header().Get("Idempotent-Replayed"))
	}
}
