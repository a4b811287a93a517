package ginidem_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/ginidem"
)

// A mux in front of the engine that chooses by host makes two routes of one.
func TestAHostNamedFurtherOutCounts(t *testing.T) {
	var events []core.Event
	engine := core.MustNew(core.Config{User: core.SharedByAllCallers(), Observe: func(_ context.Context, e core.Event) { events = append(events, e) }})
	ran := 0
	r := gin.New()
	r.POST("/orders/:id", ginidem.New(engine.MustGuard(core.ClientKey())), func(c *gin.Context) { ran++; c.String(201, c.Request.Host) })
	mux := http.NewServeMux()
	mux.Handle("a.test/", r)
	mux.Handle("b.test/", r)
	mux.Handle("/", r)
	for i, c := range []struct{ host, route string }{
		{"a.test", "POST a.test/orders/:id"}, {"b.test", "POST b.test/orders/:id"}, {"other.test", "POST /orders/:id"},
	} {
		for range 2 {
			req := httptest.NewRequest("POST", "/orders/7", nil)
			req.Host = c.host
			req.Header.Set("Idempotency-Key", "k")
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, req)
			require.Equal(t, c.host, w.Body.String())
			require.Equal(t, c.route, events[len(events)-1].Route)
		}
		require.Equal(t, i+1, ran)
	}
}
