package fibertest

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
)

func (s suite[C]) testKeyHeader(t *testing.T) {
	for _, config := range []Config{{}, {DisableHeaderNormalizing: true}, {Immutable: true}} {
		t.Run(fmt.Sprintf("names as sent: %v, immutable: %v", config.DisableHeaderNormalizing, config.Immutable), func(t *testing.T) {
			var runs atomic.Int32
			app := s.NewApp(config, nil)
			guard := s.mounted(t, core.Policy{Key: core.Header(core.Required)})
			app.Add("POST", "/", guard, func(c C) error {
				return c.SendString(fmt.Sprint(runs.Add(1)))
			})
			service := s.serve(t, app)

			require.Equal(t, 400, service.Post("/", "{}").Status, "key missing")
			twice := service.Post("/", "{}", "Idempotency-Key", "k1", "Idempotency-Key", "k1")
			require.Equal(t, 400, twice.Status)
			require.Contains(t, twice.Body, "key_invalid")
			require.Equal(t, "application/problem+json", twice.Header.Get("Content-Type"))
			require.Equal(t, "no-store", twice.Header.Get("Cache-Control"))
			require.Zero(t, runs.Load())

			require.Equal(t, "1", service.Post("/", "{}", WithKey("k1")...).Body)
			again := service.Post("/", "{}", WithKey(`"k1"`)...)
			require.Equal(t, "1", again.Body)
			require.True(t, again.Replayed())
			require.Equal(t, 422, service.Post("/", `{"a":2}`, WithKey("k1")...).Status)
			require.Equal(t, "2", service.Post("/", "{}", WithKey("K1")...).Body, "keys are exact")

			// As clients of HTTP/1.1 may write it.
			lower := service.Exchange("POST / HTTP/1.1\r\nHost: a\r\nidempotency-key: k1\r\nContent-Length: 2\r\n\r\n{}")[0]
			require.Equal(t, "1", lower.Body)
			require.Equal(t, 400, service.Exchange("POST / HTTP/1.1\r\nHost: a\r\nidempotency-key: k1\r\nIDEMPOTENCY-KEY: k1\r\n" +
				"Content-Length: 2\r\n\r\n{}")[0].Status)
		})
	}
}

// Requests differ if any line of a field does, and not the last one only.
func (s suite[C]) testEachLineCounts(t *testing.T) {
	for mode, config := range Modes {
		t.Run(mode, func(t *testing.T) {
			runs := 0
			app := s.NewApp(config, nil)
			app.Add("POST", "/", s.mounted(t, core.Policy{Key: core.Params(core.RequestHeaders("X-Item"))}), func(c C) error {
				runs++
				return c.SendString(fmt.Sprint(runs))
			})
			service := s.serve(t, app)
			for _, tc := range []struct{ first, last, want string }{{"a", "c", "1"}, {"b", "c", "2"}, {"a", "d", "3"}, {"a", "c", "1"}} {
				require.Equal(t, tc.want, service.Post("/", "", "X-Item", tc.first, "X-Item", tc.last).Body)
			}
		})
	}
}

// Of a field with several lines, the handler gets the one that was seen in front of the guard, also if the body came in chunks.
func (s suite[C]) testTheFirstLineStaysFirst(t *testing.T) {
	for mode, config := range Modes {
		t.Run(mode, func(t *testing.T) {
			front := ""
			app := s.NewApp(config, nil)
			app.Use(func(c C) error {
				front = strings.Clone(c.Get("X-Tenant"))
				return c.Next()
			})
			app.Add("POST", "/", s.mounted(t, core.Policy{}), func(c C) error { return c.SendString(front + " " + c.Get("X-Tenant")) })
			service := s.serve(t, app)
			r, err := http.NewRequest("POST", "http://"+service.Addr, strings.NewReader("{}"))
			require.NoError(t, err)
			r.ContentLength = -1
			r.Header["X-Tenant"] = []string{"alice", "mallory"} // at the end of the header, behind Transfer-Encoding
			require.Equal(t, "alice alice", service.Do(r).Body)
		})
	}
}
