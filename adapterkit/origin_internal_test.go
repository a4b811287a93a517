package adapterkit

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The bodies of net/http's servers, and those of all who pass them on as they are. examples/front_test.go has others.
func TestOriginOfBodies(t *testing.T) {
	limit := func(r *http.Request) *http.Request {
		r.Body = http.MaxBytesReader(nil, r.Body, 1000)
		return r
	}
	fronts := map[string]func(*http.Request) *http.Request{
		"nothing":        func(r *http.Request) *http.Request { return r },
		"MaxBytesReader": limit,
		"two":            func(r *http.Request) *http.Request { return limit(CountBody(limit(r))) },
		"Echo's BodyLimit": func(r *http.Request) (limited *http.Request) {
			_ = middleware.BodyLimit("1000B")(func(c echo.Context) error {
				limited = c.Request()
				return nil
			})(echo.New().NewContext(r, httptest.NewRecorder()))
			return limited
		},
	}
	for kind, change := range map[string]func(*http.Request){
		"length":   func(*http.Request) {},
		"chunked":  func(r *http.Request) { r.ContentLength = -1 },
		"continue": func(r *http.Request) { r.Header.Set("Expect", "100-continue") },
		"HTTP/2":   func(*http.Request) {},
	} {
		for name, front := range fronts {
			t.Run(kind+"/"+name, func(t *testing.T) {
				s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					sent, decoded := originOf(front(r).Body)
					assert.True(t, sent)
					assert.False(t, decoded)
					sent, decoded = originOf(struct{ io.ReadCloser }{r.Body})
					assert.False(t, sent)
					assert.True(t, decoded)
					_ = r.Body.Close()
					_, err := r.Body.Read(make([]byte, 1))
					assert.True(t, isClosed(err), err)
				}))
				s.EnableHTTP2 = kind == "HTTP/2"
				s.StartTLS()
				defer s.Close()
				r, err := http.NewRequest("POST", s.URL, strings.NewReader("body"))
				require.NoError(t, err)
				change(r)
				resp, err := s.Client().Do(r)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
			})
		}
	}
}
