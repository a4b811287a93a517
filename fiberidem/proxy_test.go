package fiberidem_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2/middleware/proxy"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/fiberidem"
	"github.com/idem-go/idem/internal/fibertest"
)

// What a service behind Fiber's proxy does for a client that leaves is finished, also if it does not
// say how long its answer is.
func TestAProxyWhoseClientLeaves(t *testing.T) {
	var asked atomic.Int64
	entered, left := make(chan struct{}), make(chan struct{})
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			close(entered)
			<-left
		}
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(201)
		_ = http.NewResponseController(w).Flush()
		_, _ = io.WriteString(w, "paid "+string(body))
	}))
	t.Cleanup(backend.Close)
	ended := make(chan core.Event, 9)
	observe := func(e core.Event) {
		if e.Kind != core.Started {
			ended <- e
		}
	}
	app := newApp()
	app.Post("/orders", fiberidem.New(fibertest.NewEngine(t, observe).MustGuard(core.Policy{})), proxy.Balancer(proxy.Config{
		Client: &fasthttp.LBClient{Timeout: time.Minute, Clients: []fasthttp.BalancingClient{&fasthttp.HostClient{
			Addr: backend.Listener.Addr().String(),
			// fasthttp's own goroutines would outlive the test.
			Dial:                func(addr string) (net.Conn, error) { return net.Dial("tcp", addr) },
			MaxIdleConnDuration: time.Millisecond,
		}}},
	}))
	s := serve(t, app)
	require.Equal(t, core.StoreIsLocal, (<-ended).Kind)

	ctx, leave := context.WithCancel(t.Context())
	go func() {
		<-entered
		leave()
	}()
	r, err := http.NewRequestWithContext(ctx, "POST", "http://"+s.Addr+"/orders", strings.NewReader("5"))
	require.NoError(t, err)
	_, err = s.Client.Do(r)
	require.ErrorIs(t, err, context.Canceled)
	close(left)
	require.Equal(t, core.Completed, (<-ended).Kind)

	again := s.Post("/orders", "5")
	require.Equal(t, core.Replayed, (<-ended).Kind)
	require.Equal(t, 201, again.Status)
	require.Equal(t, "paid 5", again.Body)
	require.EqualValues(t, 1, asked.Load())
}
