package echo5idem_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/echo5idem"
)

// What only this version of Echo has.

func guardOf(t *testing.T, p core.Policy) *core.Guard {
	t.Helper()
	return core.MustNew(core.Config{User: core.SharedByAllCallers()}).MustGuard(p)
}

// noting returns middleware with a guard that notes the route and the parameters of a request.
func noting(t *testing.T, got *adapter.Request) echo.MiddlewareFunc {
	t.Helper()
	return echo5idem.New(guardOf(t, core.Policy{Key: core.Func(func(r *adapter.Request) (string, error) {
		got.Route, got.PathParams = r.Route, append([]adapter.Pair(nil), r.PathParams...)
		return "k", nil
	})}))
}

// However a router matches, the parameters are what the client has sent, decoded once, and a wildcard's as far as it may be.
func TestParametersAreDecodedOnce(t *testing.T) {
	for name, config := range map[string]echo.RouterConfig{
		"as sent":           {},
		"unescaped":         {UnescapePathParamValues: true},
		"matched unescaped": {UseEscapedPathForMatching: true},
	} {
		t.Run(name, func(t *testing.T) {
			var got adapter.Request
			e := echo.NewWithConfig(echo.Config{Router: echo.NewRouter(config)})
			e.POST("/u/:a/v/*", func(c *echo.Context) error { return c.NoContent(204) }, noting(t, &got))
			for target, want := range map[string][]adapter.Pair{
				"/u/x%2525/v/b":        {{Name: "a", Value: "x%25"}, {Name: "*", Value: "b"}},
				"/u/x%2525/v/b%2Cb":    {{Name: "a", Value: "x%25"}, {Name: "*", Value: "b%2Cb"}},
				"/u/x%252525/v/b%2Cb":  {{Name: "a", Value: "x%2525"}, {Name: "*", Value: "b%2Cb"}},
				"/u/%252C/v/a%2C%2525": {{Name: "a", Value: "%2C"}, {Name: "*", Value: "a%2C%2525"}},
			} {
				e.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", target, nil))
				require.Equal(t, want, got.PathParams, target)
			}
		})
	}
}

// Where the method has no route, Echo leaves the names of another request's parameters behind.
func TestAnotherMethodHasNoParameters(t *testing.T) {
	var got adapter.Request
	e := echo.New()
	e.Use(noting(t, &got))
	e.GET("/orders/:id", func(c *echo.Context) error { return nil })
	e.POST("/other/:name", func(c *echo.Context) error { return nil })
	for range 20 {
		e.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/other/x", nil))
		e.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/orders/7", nil))
		require.Equal(t, "/orders/:id", got.Route)
		require.Empty(t, got.PathParams)
	}
}

// A middleware in front with a writer of its own gets what is delivered: what is stored is not its work. If Finish
// stands in front of it, an error is rendered past the guard, and not stored.
func TestCompressionInFront(t *testing.T) {
	gzipped := func(minimum int) echo.MiddlewareFunc {
		return middleware.GzipWithConfig(middleware.GzipConfig{MinLength: minimum})
	}
	for name, c := range map[string]struct {
		front []echo.MiddlewareFunc
		fails bool
		ran   int
	}{
		"answered":                  {[]echo.MiddlewareFunc{gzipped(0)}, false, 1},
		"answered, and too short":   {[]echo.MiddlewareFunc{gzipped(1000)}, false, 1},
		"failed":                    {[]echo.MiddlewareFunc{gzipped(0)}, true, 1},
		"failed, and too short":     {[]echo.MiddlewareFunc{gzipped(1000)}, true, 1},
		"finished":                  {[]echo.MiddlewareFunc{gzipped(0), echo5idem.Finish()}, true, 1},
		"finished, and too short":   {[]echo.MiddlewareFunc{gzipped(1000), echo5idem.Finish()}, true, 1},
		"answered, Finish in front": {[]echo.MiddlewareFunc{echo5idem.Finish(), gzipped(0)}, false, 1},
		"failed, Finish in front":   {[]echo.MiddlewareFunc{echo5idem.Finish(), gzipped(0)}, true, 2},
		"guarded twice":             {[]echo.MiddlewareFunc{echo5idem.New(guardOf(t, core.ClientKey())), gzipped(0)}, true, 1},
		"compressed twice": {[]echo.MiddlewareFunc{gzipped(0), echo5idem.New(guardOf(t, core.ClientKey())),
			middleware.BodyDump(func(*echo.Context, []byte, []byte, error) {})}, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			text, ran, status := strings.Repeat("paid ", 100), 0, 0
			e := echo.New()
			e.Use(out(func(c *echo.Context, err error) error {
				_, status = echo.ResolveResponseStatus(c.Response(), err)
				return err
			}))
			e.Use(c.front...)
			between := func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(ctx *echo.Context) error {
					front := ctx.Response()
					err := next(ctx)
					if err == nil {
						require.True(t, front == ctx.Response(), "the context has its own response back")
					}
					return err
				}
			}
			e.POST("/orders", func(ctx *echo.Context) error {
				ran++
				if c.fails {
					return echo.NewHTTPError(422, text)
				}
				return ctx.JSON(422, map[string]string{"message": text})
			}, between, echo5idem.New(guardOf(t, core.Policy{Failed: core.FailedByStatus})))
			for i, accepted := range []string{"gzip", "", "gzip"} {
				r := httptest.NewRequest("POST", "/orders", strings.NewReader("{}"))
				r.Header.Set("Accept-Encoding", accepted)
				r.Header.Set("Idempotency-Key", accepted+"-key")
				w := httptest.NewRecorder()
				e.ServeHTTP(w, r)
				require.Equal(t, 422, w.Code)
				require.Equal(t, 422, status)
				require.Equal(t, i >= c.ran, w.Header().Get(core.ReplayedHeader) == "true")
				var body io.Reader = w.Body
				if w.Header().Get("Content-Encoding") == "gzip" {
					require.Equal(t, "gzip", accepted)
					unzipped, err := gzip.NewReader(w.Body)
					require.NoError(t, err)
					body = unzipped
				}
				b, err := io.ReadAll(body)
				require.NoError(t, err)
				require.JSONEq(t, `{"message":"`+text+`"}`, string(b))
			}
			require.Equal(t, c.ran, ran)
		})
	}
}

// Hints go out before the final status, also if a middleware in front has a writer that knows nothing of them.
func TestHintsBehindAWriterInFront(t *testing.T) {
	e := echo.New()
	e.Use(middleware.BodyDump(func(*echo.Context, []byte, []byte, error) {}))
	e.POST("/orders", func(c *echo.Context) error {
		w := response(c).ResponseWriter
		w.Header().Set("Link", "</style.css>")
		w.WriteHeader(http.StatusEarlyHints)
		return c.String(201, "made")
	}, echo5idem.New(guardOf(t, core.Policy{})))
	s := httptest.NewServer(e)
	t.Cleanup(s.Close)
	hints := 0
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(int, textproto.MIMEHeader) error { hints++; return nil },
	})
	for i := range 2 {
		r, err := http.NewRequestWithContext(ctx, "POST", s.URL+"/orders", nil)
		require.NoError(t, err)
		resp, err := s.Client().Do(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, 201, resp.StatusCode)
		require.Equal(t, i == 1, resp.Header.Get(core.ReplayedHeader) == "true")
	}
	require.Equal(t, 1, hints)
}

// A 101 is a final status: whoever stands in front must not answer a second time.
func TestSwitchingProtocolsBehindAWriterInFront(t *testing.T) {
	e := echo.New()
	e.Use(out(func(c *echo.Context, err error) error {
		r := response(c)
		require.True(t, r.Committed)
		require.Equal(t, http.StatusSwitchingProtocols, r.Status)
		return err
	}), middleware.BodyDump(func(*echo.Context, []byte, []byte, error) {}))
	e.POST("/orders", func(c *echo.Context) error {
		c.Response().WriteHeader(http.StatusSwitchingProtocols)
		return nil
	}, echo5idem.New(guardOf(t, core.Policy{})))
	w := httptest.NewRecorder()
	e.ServeHTTP(w, httptest.NewRequest("POST", "/orders", nil))
	require.Equal(t, http.StatusSwitchingProtocols, w.Code)
}

// Gzip gives the context its response back if nothing has been written. What is then written past the guard is not
// seen, so that the run has failed; and whoever recovers from a panic finds that response.
func TestWhatIsRenderedPastTheGuard(t *testing.T) {
	for name, c := range map[string]struct {
		renders echo.HandlerFunc
		body    string
	}{
		"rendered": {func(c *echo.Context) error { return c.String(200, "rendered") }, "rendered"},
		"panic":    {func(*echo.Context) error { panic("renderer") }, `{"message":"Internal Server Error"}` + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			ran := 0
			e := echo.New()
			e.Use(middleware.Recover(), echo5idem.Finish(),
				out(func(ctx *echo.Context, _ error) error { return c.renders(ctx) }), middleware.Gzip())
			e.POST("/orders", func(*echo.Context) error { ran++; return nil }, echo5idem.New(guardOf(t, core.Policy{})))
			for range 2 {
				r, w := httptest.NewRequest("POST", "/orders", nil), httptest.NewRecorder()
				r.Header.Set("Accept-Encoding", "gzip")
				e.ServeHTTP(w, r)
				require.Equal(t, c.body, w.Body.String())
			}
			require.Equal(t, 2, ran)
		})
	}
}
