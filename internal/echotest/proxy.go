package echotest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
)

// What a service behind Echo's proxy does for a client that leaves is finished, also if it does not say
// how long its answer is. If the client's leaving ends the run at once, the proxy answers 499, and the
// next try runs.
func (s suite[C]) testAProxyWhoseClientLeaves(t *testing.T) {
	for name, c := range map[string]struct {
		linger  time.Duration
		chunked bool
		ended   core.Kind
		body    string
	}{
		"finished":            {0, false, core.Completed, "paid by 1"},
		"finished, in chunks": {0, true, core.Completed, "paid by 1"},
		"ended at once":       {-1, false, core.Released, "paid by 2"},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			entered, left := make(chan struct{}), make(chan struct{})
			backend := server(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n := asked.Add(1)
				if n == 1 {
					close(entered)
					<-left
					if c.linger < 0 {
						<-r.Context().Done()
					}
				}
				w.WriteHeader(201)
				if c.chunked {
					_ = http.NewResponseController(w).Flush()
				}
				fmt.Fprintf(w, "paid by %d", n)
			}))
			target, err := url.Parse(backend.URL)
			require.NoError(t, err)

			g := guard(core.Policy{Linger: c.linger})
			e := s.NewApp()
			e.Use(func(next Handler[C]) Handler[C] {
				return func(c C) error {
					if asked.Load() == 0 {
						context.AfterFunc(c.Request().Context(), func() { close(left) })
					}
					return next(c)
				}
			})
			e.Add("POST", "/orders", func(C) error { panic("the proxy answers") }, s.New(g.Guard),
				s.Proxy(target, &http.Transport{DisableKeepAlives: true}))
			front := server(t, e)

			ctx, leave := context.WithCancel(t.Context())
			go func() {
				<-entered
				leave()
			}()
			first, err := http.NewRequestWithContext(ctx, "POST", front.URL+"/orders", nil)
			require.NoError(t, err)
			first.Header.Set("X-User", "alice")
			_, err = front.Client().Do(first)
			require.ErrorIs(t, err, context.Canceled)
			g.finished(t)
			require.Equal(t, c.ended, g.last().Kind)

			for range 2 {
				resp, err := front.Client().Do(first.Clone(t.Context()))
				require.NoError(t, err)
				body, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				require.Equal(t, 201, resp.StatusCode)
				require.Equal(t, c.body, string(body))
			}
			require.Equal(t, core.Replayed, g.last().Kind)
		})
	}
}
