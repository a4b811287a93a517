package ginidem_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/ginidem"
	"github.com/idem-go/idem/internal/allocs"
	"github.com/idem-go/idem/internal/leak"
	"github.com/idem-go/idem/internal/race"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.TestMode)
	// A server that has refused a body waits before it closes the connection.
	leak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// watched is a guard and what its observer was told.
type watched struct {
	*core.Guard
	mu     sync.Mutex
	events []core.Event
}

func guard(p core.Policy) *watched {
	w := new(watched)
	w.Guard = core.MustNew(core.Config{
		User: core.UserFromHeader("X-User"),
		Observe: func(_ context.Context, e core.Event) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.events = append(w.events, e)
		},
	}).MustGuard(p)
	return w
}

func (w *watched) last() core.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.events[len(w.events)-1]
}

func post(h http.Handler, target, body string) *httptest.ResponseRecorder {
	return send(h, target, "application/json", body)
}

func send(h http.Handler, target, contentType, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", target, strings.NewReader(body))
	r.Header.Set("X-User", "alice")
	r.Header.Set("Content-Type", contentType)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func replayed(w *httptest.ResponseRecorder) bool {
	return w.Header().Get(core.ReplayedHeader) == "true"
}

func code(w *httptest.ResponseRecorder) string {
	_, rest, _ := strings.Cut(w.Body.String(), `"code":"`)
	code, _, _ := strings.Cut(rest, `"`)
	return code
}

func TestRoutes(t *testing.T) {
	for _, c := range []struct {
		engine          func(*gin.Engine)
		pattern, target string
		route           string
		params          []adapter.Pair
	}{
		{nil, "/orders/:id/pay", "/orders/a%20b+c/pay", "/orders/:id/pay", []adapter.Pair{{Name: "id", Value: "a b+c"}}},
		{nil, "/orders/:id/pay", "/orders/%2525/pay", "/orders/:id/pay", []adapter.Pair{{Name: "id", Value: "%25"}}},
		{nil, "/files/*path", "/files/a%2fb%61", "/files/*", []adapter.Pair{{Name: "*", Value: "a%2Fba"}}},
		{nil, "/files/*path", "/files/a%2Fé", "/files/*", []adapter.Pair{{Name: "*", Value: "a%2Fé"}}},
		{nil, "/files/*path", "/files/", "/files/*", []adapter.Pair{{Name: "*", Value: ""}}},
		{nil, "/*path", "/files/7", "/*", []adapter.Pair{{Name: "*", Value: "files/7"}}},
		{nil, "/a/:x/:y", "/a%2F1/2", "/a/:x/:y", []adapter.Pair{{Name: "x", Value: "1"}, {Name: "y", Value: "2"}}},
		{nil, "/orders", "/unknown/a%2Fb?x", "/unknown/a%2Fb", nil},
		{func(e *gin.Engine) { e.UseRawPath, e.UnescapePathValues = true, false }, "/orders/:id", "/orders/a%2Fb%2525", "/orders/:id",
			[]adapter.Pair{{Name: "id", Value: "a/b%25"}}},
		{func(e *gin.Engine) { e.RemoveExtraSlash = true }, "/orders/:id", "//orders//7", "/orders/:id",
			[]adapter.Pair{{Name: "id", Value: "7"}}},
		{func(e *gin.Engine) { e.RemoveExtraSlash = true }, "/files/*path", "//files//7", "/files/*",
			[]adapter.Pair{{Name: "*", Value: "7"}}},
		{func(e *gin.Engine) { e.RemoveExtraSlash = true }, "/files/*path", "//files//a%2Fb", "/files/*",
			[]adapter.Pair{{Name: "*", Value: "a%2Fb"}}},
		{func(e *gin.Engine) { e.RemoveExtraSlash = true }, "/u/:id/*path", "//u/7//a%2F//b", "//u/7//a%2F//b", nil},
		{nil, "/orders/:id", "http://a.test/orders/7", "a.test/orders/:id", []adapter.Pair{{Name: "id", Value: "7"}}}, // by a mux in front
	} {
		t.Run(c.pattern+" "+c.target, func(t *testing.T) {
			var got adapter.Request
			g := guard(core.Policy{Key: core.Func(func(r *adapter.Request) (string, error) {
				got.Route, got.PathParams = r.Route, append([]adapter.Pair(nil), r.PathParams...)
				return "k", nil
			})})
			e := gin.New()
			if c.engine != nil {
				c.engine(e)
			}
			e.Use(ginidem.New(g.Guard))
			e.POST(c.pattern, func(*gin.Context) {})
			r := httptest.NewRequest("POST", "/", nil)
			r.Header.Set("X-User", "alice")
			u, err := url.ParseRequestURI(c.target)
			require.NoError(t, err)
			r.URL = u
			var h http.Handler = e
			if u.Host != "" {
				mux := http.NewServeMux()
				mux.Handle(u.Host+"/", e)
				r.Host, h = u.Host, mux
			}
			h.ServeHTTP(httptest.NewRecorder(), r)
			require.Equal(t, c.route, got.Route)
			require.Equal(t, c.params, got.PathParams)
		})
	}
}

func TestResponsesAreThoseOfTheBareHandler(t *testing.T) {
	for name, handler := range map[string]gin.HandlerFunc{
		"nothing":           func(*gin.Context) {},
		"status not sent":   func(c *gin.Context) { c.Status(204) },
		"status sent":       func(c *gin.Context) { c.Status(204); c.Writer.WriteHeaderNow() },
		"abort":             func(c *gin.Context) { c.AbortWithStatusJSON(422, gin.H{"e": 1}) },
		"redirect":          func(c *gin.Context) { c.Redirect(303, "/receipts/1") },
		"string":            func(c *gin.Context) { c.String(200, "hello") },
		"copied":            func(c *gin.Context) { c.Status(201); io.Copy(c.Writer, strings.NewReader("<html></html>")) },
		"status too late":   func(c *gin.Context) { c.String(201, "a"); c.Status(500); c.String(500, "b") },
		"bytes of a reader": func(c *gin.Context) { c.DataFromReader(200, 2, "text/x", strings.NewReader("ok"), nil) },
	} {
		t.Run(name, func(t *testing.T) {
			type seen struct {
				status, size int
				written      bool
			}
			var inside, outside seen
			look := func(c *gin.Context) seen { return seen{c.Writer.Status(), c.Writer.Size(), c.Writer.Written()} }
			serve := func(handlers ...gin.HandlerFunc) *httptest.Server {
				e := gin.New()
				e.Use(func(c *gin.Context) {
					before, request := c.Writer, c.Request
					c.Next()
					outside = look(c)
					if c.Writer != before || c.Request != request {
						outside.status = -1
					}
				})
				e.POST("/orders", append(handlers, func(c *gin.Context) {
					handler(c)
					inside = look(c)
				})...)
				return server(t, e)
			}
			want := over(t, serve())
			bareInside, bareOutside := inside, outside
			guarded := serve(ginidem.New(guard(core.Policy{Failed: core.FailedByStatus}).Guard))
			require.Equal(t, want, over(t, guarded))
			require.Equal(t, bareInside, inside)
			require.Equal(t, bareOutside, outside)

			again := over(t, guarded)
			require.Equal(t, []string{"true"}, again.header[core.ReplayedHeader])
			again.header.Del(core.ReplayedHeader)
			require.Equal(t, want, again)
			require.Equal(t, want.status, outside.status)
		})
	}
}

type reply struct {
	status int
	header http.Header
	body   string
}

func server(t *testing.T, h http.Handler) *httptest.Server {
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Start()
	t.Cleanup(func() {
		s.Client().CloseIdleConnections()
		s.Close()
	})
	return s
}

func over(t *testing.T, s *httptest.Server, traces ...httptrace.ClientTrace) reply {
	req, err := http.NewRequest("POST", s.URL+"/orders", strings.NewReader("x"))
	require.NoError(t, err)
	for _, trace := range traces {
		req = req.WithContext(httptrace.WithClientTrace(req.Context(), &trace))
	}
	req.Header.Set("X-User", "alice")
	client := *s.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	resp.Header.Del("Date")
	return reply{resp.StatusCode, resp.Header, string(body)}
}

func renderLast(c *gin.Context) {
	c.Next()
	if len(c.Errors) > 0 {
		c.JSON(-1, gin.H{"error": c.Errors.Last().Error()})
	}
}

var errBroke = errors.New("broke")

func TestErrorsWithoutFinish(t *testing.T) {
	for name, c := range map[string]struct {
		handler gin.HandlerFunc
		body    string
		ran     int
	}{
		"no body":            {func(c *gin.Context) { c.Status(422); c.Error(errBroke) }, `{"error":"broke"}`, 2},
		"aborted":            {func(c *gin.Context) { c.AbortWithError(422, errBroke) }, `{"error":"broke"}`, 2},
		"with a body":        {func(c *gin.Context) { c.String(422, "mine"); c.Error(errBroke) }, `mine{"error":"broke"}`, 1},
		"flushed, then that": {func(c *gin.Context) { c.Status(422); c.Writer.Flush(); c.Error(errBroke) }, `{"error":"broke"}`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			ran := 0
			g := guard(core.Policy{Failed: core.FailedByStatus})
			e := gin.New()
			e.Use(renderLast)
			e.POST("/orders", ginidem.New(g.Guard), func(gc *gin.Context) { ran++; c.handler(gc) })
			first := post(e, "/orders", "{}")
			require.Equal(t, 422, first.Code)
			require.Equal(t, c.body, first.Body.String())
			require.ErrorIs(t, g.last().Err, errBroke)
			post(e, "/orders", "{}")
			require.Equal(t, c.ran, ran)
		})
	}
}

func TestErrorsWithFinish(t *testing.T) {
	render := func(c *gin.Context) {
		c.Next()
		switch {
		case len(c.Errors) > 0 && c.Writer.Size() <= 0:
			c.JSON(-1, gin.H{"error": c.Errors.Last().Error()})
		case !c.Writer.Written() && c.GetString("say") != "":
			c.String(201, c.GetString("say"))
		}
	}
	bypass := func(c *gin.Context) {
		w := c.Writer
		c.Next()
		c.Writer = w // as if it had wrapped it
		c.String(422, "bypassed")
	}
	for name, c := range map[string]struct {
		render, handler gin.HandlerFunc
		status          int
		body            string
		ran             int
		kind            core.Kind
	}{
		"rendered": {render, func(c *gin.Context) { c.Status(422); c.Error(errBroke) }, 422,
			`{"error":"broke"}`, 1, core.Completed},
		"rendered as 500": {render, func(c *gin.Context) { c.Status(500); c.Error(errBroke) }, 500,
			`{"error":"broke"}`, 2, core.Released},
		"own body":           {render, func(c *gin.Context) { c.String(422, "mine"); c.Error(errBroke) }, 422, "mine", 1, core.Completed},
		"enveloped":          {render, func(c *gin.Context) { c.Set("say", "hello") }, 201, "hello", 1, core.Completed},
		"never rendered":     {func(*gin.Context) {}, func(c *gin.Context) { c.Error(errBroke) }, 200, "", 2, core.Released},
		"status only":        {func(*gin.Context) {}, func(c *gin.Context) { c.AbortWithError(422, errBroke) }, 422, "", 1, core.Completed},
		"nothing at all":     {func(*gin.Context) {}, func(c *gin.Context) { c.Status(204) }, 204, "", 1, core.Completed},
		"bypassed":           {bypass, func(c *gin.Context) { c.Error(errBroke) }, 422, "bypassed", 2, core.Released},
		"bypassed, no error": {bypass, func(*gin.Context) {}, 422, "bypassed", 2, core.Released},
	} {
		t.Run(name, func(t *testing.T) {
			ran := 0
			g := guard(core.Policy{Failed: core.FailedByStatus})
			e := gin.New()
			var ended error
			e.Use(func(c *gin.Context) {
				w := c.Writer
				c.Next()
				if c.Writer != w {
					ended = errors.New("another writer was left behind")
				}
			}, ginidem.Finish(), c.render)
			var run context.Context
			e.POST("/orders", ginidem.New(g.Guard), func(gc *gin.Context) { ran++; run = gc.Request.Context(); c.handler(gc) })
			first := post(e, "/orders", "{}")
			require.Equal(t, c.status, first.Code)
			require.Equal(t, c.body, first.Body.String())
			require.Equal(t, c.kind, g.last().Kind)
			require.Error(t, run.Err(), "the run has ended")
			require.NoError(t, ended)
			again := post(e, "/orders", "{}")
			require.Equal(t, c.ran, ran)
			require.Equal(t, c.ran == 1, replayed(again))
			require.Equal(t, c.status, again.Code)
			require.Equal(t, c.body, again.Body.String())
		})
	}
}

func TestAPanicInTheRendererReleases(t *testing.T) {
	g := guard(core.Policy{})
	ran := 0
	e := gin.New()
	e.Use(gin.RecoveryWithWriter(io.Discard), ginidem.Finish(), func(c *gin.Context) {
		c.Next()
		panic("renderer")
	})
	e.POST("/orders", ginidem.New(g.Guard), func(c *gin.Context) { ran++; c.Error(errBroke) })
	for range 2 {
		require.Equal(t, 500, post(e, "/orders", "{}").Code)
	}
	require.Equal(t, 2, ran)
}

// A Finish inside of the guard is of no use to it, and does no harm.
func TestFinishInside(t *testing.T) {
	g := guard(core.Policy{})
	e := gin.New()
	e.POST("/orders", ginidem.New(g.Guard), ginidem.Finish(), func(c *gin.Context) { c.Error(errBroke) })
	require.Equal(t, 200, post(e, "/orders", "{}").Code)
	require.Equal(t, core.Released, g.last().Kind)
}

func TestHijackAfterABodyIsRefusedAsInGin(t *testing.T) {
	e := gin.New()
	e.POST("/orders", ginidem.New(guard(core.Policy{}).Guard), func(c *gin.Context) {
		c.String(200, "body")
		if _, _, err := c.Writer.Hijack(); err == nil {
			panic("hijacked")
		}
	})
	require.Equal(t, "body", over(t, server(t, e)).body)
}

// Gin grants it from 1.12 on, and the client sees the status.
func TestHijackBehindAStatusIsAsInGin(t *testing.T) {
	try := func(middleware ...gin.HandlerFunc) (status int, refused error) {
		granted := make(chan error, 1)
		e := gin.New()
		e.POST("/orders", append(middleware, func(c *gin.Context) {
			c.Status(202)
			c.Writer.WriteHeaderNow()
			conn, _, err := c.Writer.Hijack()
			if err == nil {
				_ = conn.Close()
			}
			granted <- err
		})...)
		r := httptest.NewRequest("POST", server(t, e).URL+"/orders", nil)
		r.RequestURI = ""
		r.Header.Set("X-User", "alice")
		resp, err := http.DefaultTransport.RoundTrip(r)
		require.NoError(t, err)
		_ = resp.Body.Close()
		return resp.StatusCode, <-granted
	}
	status, refused := try()
	guardedStatus, guardedRefused := try(ginidem.New(guard(core.Policy{}).Guard))
	require.Equal(t, refused, guardedRefused)
	require.Equal(t, 202, status)
	require.Equal(t, 202, guardedStatus)
}

type pushable struct {
	http.ResponseWriter
	http.Pusher
}

func TestWriterHasWhatIsBelow(t *testing.T) {
	var e = gin.New()
	below := &pushable{httptest.NewRecorder(), nil}
	e.POST("/orders", ginidem.New(guard(core.Policy{}).Guard), ginidem.New(guard(core.Policy{}).Guard), func(c *gin.Context) {
		if c.Writer.Pusher() == nil {
			c.String(500, "no pusher")
		}
		if c.Writer.(interface{ Unwrap() http.ResponseWriter }).Unwrap() != http.ResponseWriter(below) {
			c.String(500, "Unwrap does not lead below Gin")
		}
		//lint:ignore SA1019 gin.ResponseWriter still demands it
		var _ http.CloseNotifier = c.Writer
	})
	r := httptest.NewRequest("POST", "/orders", nil)
	r.Header.Set("X-User", "alice")
	e.ServeHTTP(below, r)
	require.Empty(t, below.ResponseWriter.(*httptest.ResponseRecorder).Body.String())
}

func TestARefusalEndsTheChain(t *testing.T) {
	e := gin.New()
	aborted := false
	e.Use(func(c *gin.Context) { c.Next(); aborted = c.IsAborted() })
	e.POST("/orders", ginidem.New(guard(core.ClientKey()).Guard), func(*gin.Context) { panic("ran") })
	w := post(e, "/orders", "{}")
	require.Equal(t, 400, w.Code)
	require.Equal(t, "key_missing", code(w))
	require.True(t, aborted)
}

// Who has no tokens to issue learns it when the routes are made, and not by the first request.
func TestIssueTokenWithoutTokens(t *testing.T) {
	require.PanicsWithValue(t, `idem: the key of the policy "orders" is no Token: there is nothing to issue`, func() {
		ginidem.IssueToken(guard(core.Policy{Name: "orders"}).Guard)
	})
}

func TestAllocations(t *testing.T) {
	race.Skip(t, "sync.Pool drops what it is given at random under the race detector")
	serve := func(handlers ...gin.HandlerFunc) http.Handler {
		e := gin.New()
		e.POST("/orders", append(handlers, func(c *gin.Context) {
			c.Writer.Header()["Content-Type"] = jsonType
			c.Writer.WriteHeader(201)
			c.Writer.Write(jsonBody)
		})...)
		return e
	}
	mw := ginidem.New(core.MustNew(core.Config{User: core.UserFromHeader("X-User")}).MustGuard(core.Policy{}))
	w := allocs.Writer{}
	bare := allocs.PerRequest(w, serve(), true)
	require.LessOrEqual(t, allocs.PerRequest(w, serve(mw), true)-bare, 10.0, "first")
	require.LessOrEqual(t, allocs.PerRequest(w, serve(mw), false)-bare, 5.0, "replay")
	require.Equal(t, []string{"true"}, w.Header()[core.ReplayedHeader])
}

var (
	jsonType = []string{"application/json"}
	jsonBody = []byte(`{"order_id":"ord-0001"}`)
)

// sizeReader asks for the size while it writes, as a middleware does that logs the first byte.
type sizeReader struct {
	gin.ResponseWriter
	c     *gin.Context
	sizes []int
}

func (w *sizeReader) Write(b []byte) (int, error) {
	w.sizes = append(w.sizes, w.c.Writer.Size())
	return w.ResponseWriter.Write(b)
}

// The writer that stands below the guard's may ask c.Writer, which is the guard's, for the size.
func TestSizeWithinWrite(t *testing.T) {
	e := gin.New()
	outer := &sizeReader{}
	e.Use(func(c *gin.Context) {
		outer.ResponseWriter, outer.c = c.Writer, c
		c.Writer = outer
	})
	g := core.MustNew(core.Config{User: core.SharedByAllCallers()}).MustGuard(core.Policy{})
	e.POST("/", ginidem.New(g), func(c *gin.Context) {
		c.String(201, "a")
		c.Writer.Flush()
		c.String(201, "b")
	})
	done := make(chan *httptest.ResponseRecorder, 1)
	go func() {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
		done <- w
	}()
	select {
	case w := <-done:
		require.Equal(t, "ab", w.Body.String())
		require.Equal(t, []int{1, 1}, outer.sizes)
	case <-time.After(time.Minute):
		t.Fatal("the write waits for itself")
	}
}
