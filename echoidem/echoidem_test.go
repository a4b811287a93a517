package echoidem_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/echoidem"
	"github.com/idem-go/idem/internal/allocs"
	"github.com/idem-go/idem/internal/leak"
)

func TestMain(m *testing.M) {
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

// finished waits until the run has ended: what goes out over a hijacked connection reaches the
// client before that.
func (w *watched) finished(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return w.last().Kind != core.Started }, 10*time.Second, time.Millisecond)
}

func quiet() *echo.Echo {
	e := echo.New()
	e.Logger.SetOutput(io.Discard)
	return e
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

func TestRoutes(t *testing.T) {
	for _, c := range []struct {
		pattern, target string
		route           string
		params          []core.Pair
	}{
		{"/orders", "/orders", "/orders", nil},
		{"/orders/:id/pay", "/orders/a%20b+c/pay", "/orders/:id/pay", []core.Pair{{Name: "id", Value: "a b+c"}}},
		{"/orders/:id/pay", "/orders/a%2Fb/pay", "/orders/:id/pay", []core.Pair{{Name: "id", Value: "a/b"}}},
		{"/orders/:id/pay", "/orders/%2525/pay", "/orders/:id/pay", []core.Pair{{Name: "id", Value: "%25"}}},
		{"/files/*", "/files/a/b%20c", "/files/*", []core.Pair{{Name: "*", Value: "a/b c"}}},
		{"/files/*", "/files/", "/files/*", []core.Pair{{Name: "*", Value: ""}}},
		{"/u/:id/*", "/u/7/x", "/u/:id/*", []core.Pair{{Name: "id", Value: "7"}, {Name: "*", Value: "x"}}},
		{"/orders", "/unknown/a%2Fb?x", "/unknown/a%2Fb", nil},
		{"/orders", "http://shop.test/orders", "shop.test/orders", nil},
		{"/u/:id", "http://shop.test/u/7", "shop.test/u/:id", []core.Pair{{Name: "id", Value: "7"}}},
	} {
		t.Run(c.pattern+" "+c.target, func(t *testing.T) {
			var got core.Request
			g := guard(core.Policy{Key: core.Func(func(r *core.Request) (string, error) {
				got.Route, got.PathParams = r.Route, append([]core.Pair(nil), r.PathParams...)
				return "k", nil
			})})
			e := quiet()
			e.Use(echoidem.New(g.Guard))
			handler := func(echo.Context) error { return nil }
			e.POST(c.pattern, handler)
			e.Host("shop.test", echoidem.New(g.Guard)).POST(c.pattern, handler)
			post(e, c.target, "")
			require.Equal(t, c.route, got.Route)
			require.Equal(t, c.params, got.PathParams)
		})
	}
}

func TestPre(t *testing.T) {
	g := guard(core.Policy{})
	ran := 0
	e := quiet()
	e.Pre(echoidem.New(g.Guard))
	e.POST("/orders/:id", func(c echo.Context) error { ran++; return c.String(201, c.Param("id")) })
	require.Equal(t, "7", post(e, "/orders/7", "").Body.String())
	require.Equal(t, "8", post(e, "/orders/8", "").Body.String())
	require.True(t, replayed(post(e, "/orders/7", "")))
	require.Equal(t, 2, ran)
}

func TestBinding(t *testing.T) {
	type order struct {
		SKU string `json:"sku" form:"sku"`
	}
	const form = "--b\r\nContent-Disposition: form-data; name=\"sku\"\r\n\r\nA-1\r\n" +
		"--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"n\"\r\n\r\ncontent\r\n--b--\r\n"
	for name, c := range map[string]struct{ contentType, body string }{
		"JSON":      {"application/json", `{"sku":"A-1"}`},
		"form":      {"application/x-www-form-urlencoded", "sku=A-1"},
		"multipart": {"multipart/form-data; boundary=b", form},
	} {
		t.Run(name, func(t *testing.T) {
			e := quiet()
			e.POST("/orders", func(c echo.Context) error {
				var o order
				if err := c.Bind(&o); err != nil {
					return err
				}
				if name == "multipart" {
					if f, err := c.FormFile("f"); err != nil || f.Filename != "n" {
						return errors.New("no file")
					}
				}
				return c.String(201, o.SKU)
			}, echoidem.New(guard(core.Policy{}).Guard))
			require.Equal(t, "A-1", send(e, "/orders", c.contentType, c.body).Body.String())
			require.True(t, replayed(send(e, "/orders", c.contentType, c.body)))
		})
	}
}

var errBroke = errors.New("broke")

func TestResponsesAreThoseOfTheBareHandler(t *testing.T) {
	for name, c := range map[string]struct {
		handler echo.HandlerFunc
		ran     int
	}{
		"JSON":               {func(c echo.Context) error { return c.JSON(201, map[string]int{"id": 1}) }, 1},
		"nothing":            {func(echo.Context) error { return nil }, 1},
		"no content":         {func(c echo.Context) error { return c.NoContent(204) }, 1},
		"redirect":           {func(c echo.Context) error { return c.Redirect(303, "/receipts/1") }, 1},
		"sniffed":            {func(c echo.Context) error { _, err := c.Response().Write([]byte("<html></html>")); return err }, 1},
		"stream":             {func(c echo.Context) error { return c.Stream(201, "text/x", strings.NewReader("from a reader")) }, 1},
		"cookie":             {func(c echo.Context) error { c.SetCookie(&http.Cookie{Name: "a", Value: "b"}); return c.NoContent(201) }, 1},
		"HTTPError 422":      {func(echo.Context) error { return echo.NewHTTPError(422, "no") }, 1},
		"HTTPError 503":      {func(echo.Context) error { return echo.NewHTTPError(503, "later") }, 2},
		"error":              {func(echo.Context) error { return errBroke }, 2},
		"committed, error":   {func(c echo.Context) error { c.String(201, "body"); return errBroke }, 1},
		"rendered by itself": {func(c echo.Context) error { c.Error(echo.NewHTTPError(422, "no")); return nil }, 1},
		"rendered and returned": {func(c echo.Context) error {
			err := echo.NewHTTPError(422, "no")
			c.Error(err)
			return err
		}, 1},
		"status too late": {func(c echo.Context) error { c.String(201, "a"); return c.String(500, "b") }, 1},
		"before hook": {func(c echo.Context) error {
			c.Response().Before(func() { c.Response().Header().Set("X-Before", "1") })
			return c.String(201, "a")
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			type seen struct {
				status    int
				size      int64
				committed bool
			}
			var inside, outside seen
			look := func(c echo.Context) seen {
				return seen{c.Response().Status, c.Response().Size, c.Response().Committed}
			}
			ran := 0
			serve := func(mw ...echo.MiddlewareFunc) *httptest.Server {
				e := quiet()
				e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
					return func(c echo.Context) error {
						w, r := c.Response().Writer, c.Request()
						err := next(c)
						if err != nil {
							c.Error(err)
						}
						outside = look(c)
						// Behind an error the response takes no more.
						if err == nil && c.Response().Writer != w || c.Request() != r {
							outside.status = -1
						}
						return nil
					}
				})
				e.POST("/orders", func(ctx echo.Context) error {
					ran++
					err := c.handler(ctx)
					inside = look(ctx)
					return err
				}, mw...)
				return server(t, e)
			}
			want := over(t, serve())
			bareInside, bareOutside := inside, outside
			ran = 0
			guarded := serve(echoidem.New(guard(core.Policy{Failed: core.FailedByStatus}).Guard))
			require.Equal(t, want, over(t, guarded))
			require.Equal(t, bareInside, inside)
			require.Equal(t, bareOutside, outside)

			again := over(t, guarded)
			require.Equal(t, c.ran, ran)
			require.Equal(t, c.ran == 1, again.header.Get(core.ReplayedHeader) == "true")
			again.header.Del(core.ReplayedHeader)
			if c.ran == 1 {
				want.header.Del("Set-Cookie")
			}
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

func over(t *testing.T, s *httptest.Server) reply {
	req, err := http.NewRequest("POST", s.URL+"/orders", strings.NewReader("x"))
	require.NoError(t, err)
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

// An error handler of one's own is asked, and sees the run's request; what Echo asks it again
// has been answered.
func TestErrorHandlersOfOnesOwn(t *testing.T) {
	e := quiet()
	e.HTTPErrorHandler = func(err error, c echo.Context) {
		if !c.Response().Committed && echoidem.Run(c) == nil {
			panic("not within the run")
		}
		c.String(422, "mine: "+err.Error())
	}
	e.POST("/orders", func(echo.Context) error { return errBroke }, echoidem.New(guard(core.Policy{Failed: core.FailedByStatus}).Guard))
	require.Equal(t, "mine: broke", post(e, "/orders", "").Body.String())
	again := post(e, "/orders", "")
	require.Equal(t, "mine: broke", again.Body.String())
	require.True(t, replayed(again))
}

func TestFinish(t *testing.T) {
	mapErrors := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			err := next(c)
			if errors.Is(err, errBroke) {
				return echo.NewHTTPError(422, "mapped")
			}
			return err
		}
	}
	renderErrors := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if err := next(c); err != nil {
				return c.String(422, "rendered "+err.Error())
			}
			return nil
		}
	}
	swallow := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error { next(c); return nil }
	}
	bypass := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			w := c.Response().Writer
			err := next(c)
			c.Response().Writer = w // as compressing middleware does
			if err == nil {
				return c.String(200, "bypassed")
			}
			return c.String(422, "bypassed")
		}
	}
	broke := func(echo.Context) error { return errBroke }
	for name, c := range map[string]struct {
		outer   echo.MiddlewareFunc
		handler echo.HandlerFunc
		status  int
		body    string
		ran     int
		kind    core.Kind
	}{
		"mapped":           {mapErrors, broke, 422, `{"message":"mapped"}` + "\n", 1, core.Completed},
		"rendered":         {renderErrors, broke, 422, "rendered broke", 1, core.Completed},
		"left over":        {mapErrors, func(echo.Context) error { return echo.NewHTTPError(409, "mine") }, 409, `{"message":"mine"}` + "\n", 1, core.Completed},
		"left over, 500":   {mapErrors, func(echo.Context) error { return errors.New("other") }, 500, `{"message":"Internal Server Error"}` + "\n", 2, core.Released},
		"no error":         {mapErrors, func(c echo.Context) error { return c.String(201, "fine") }, 201, "fine", 1, core.Completed},
		"committed, error": {mapErrors, func(c echo.Context) error { c.String(201, "fine"); return errBroke }, 201, "fine", 1, core.Completed},
		"nothing":          {mapErrors, func(echo.Context) error { return nil }, 200, "", 1, core.Completed},
		"swallowed":        {swallow, broke, 200, "", 2, core.Released},
		"bypassed":         {bypass, broke, 422, "bypassed", 2, core.Released},
		"bypassed, no err": {bypass, func(echo.Context) error { return nil }, 200, "bypassed", 2, core.Released},
	} {
		t.Run(name, func(t *testing.T) {
			g := guard(core.Policy{Failed: core.FailedByStatus})
			ran := 0
			var run context.Context
			var ended error
			e := quiet()
			e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c echo.Context) error {
					w := c.Response().Writer
					err := next(c)
					// An error is handed on, with a response that takes no more.
					if err == nil && c.Response().Writer != w || err != nil && !c.Response().Committed {
						ended = fmt.Errorf("left behind: %v, %T", err, c.Response().Writer)
					}
					return err
				}
			}, echoidem.Finish(), c.outer)
			e.POST("/orders", func(ctx echo.Context) error {
				ran++
				run = ctx.Request().Context()
				return c.handler(ctx)
			}, echoidem.New(g.Guard))
			first := post(e, "/orders", "{}")
			require.Equal(t, c.status, first.Code)
			require.Equal(t, c.body, first.Body.String())
			require.Equal(t, c.kind, g.last().Kind)
			require.Error(t, run.Err(), "the run has ended")
			require.NoError(t, ended)
			again := post(e, "/orders", "{}")
			require.Equal(t, c.ran, ran)
			require.Equal(t, c.ran == 1, replayed(again))
			require.Equal(t, c.body, again.Body.String())
		})
	}
}

func TestFinishLetsOtherErrorsPass(t *testing.T) {
	e := quiet()
	var got error
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error { got = next(c); return got }
	}, echoidem.Finish())
	e.POST("/orders", func(echo.Context) error { return errBroke })
	require.Equal(t, 500, post(e, "/orders", "").Code)
	require.ErrorIs(t, got, errBroke)
}

func TestFinishOfNestedGuards(t *testing.T) {
	outer := guard(core.Policy{Failed: core.FailedByStatus})
	inner := guard(core.Policy{Key: core.Func(func(*core.Request) (string, error) { return "k", nil })})
	ran := 0
	e := quiet()
	e.Use(echoidem.Finish(), echoidem.New(outer.Guard))
	e.POST("/orders", func(echo.Context) error { ran++; return echo.NewHTTPError(422, "no") }, echoidem.New(inner.Guard))
	require.Equal(t, 422, post(e, "/orders", "{}").Code)
	require.Equal(t, core.Completed, outer.last().Kind)
	require.Equal(t, core.Completed, inner.last().Kind)
	require.True(t, replayed(post(e, "/orders", "{}")))
	require.Equal(t, 1, ran)
}

func recovering(next echo.HandlerFunc) echo.HandlerFunc { // what middleware.Recover does
	return func(c echo.Context) error {
		defer func() {
			if v := recover(); v != nil {
				c.Error(fmt.Errorf("%v", v))
			}
		}()
		return next(c)
	}
}

func TestPanics(t *testing.T) {
	for _, finish := range []bool{false, true} {
		for name, c := range map[string]struct {
			before func(echo.Context)
			status int
			body   string
		}{
			"before anything": {func(echo.Context) {}, 500, `{"message":"Internal Server Error"}` + "\n"},
			"status sent":     {func(c echo.Context) { c.NoContent(201) }, 500, `{"message":"Internal Server Error"}` + "\n"},
			"body sent":       {func(c echo.Context) { c.String(201, "part") }, 500, `{"message":"Internal Server Error"}` + "\n"},
		} {
			t.Run(fmt.Sprint(name, finish), func(t *testing.T) {
				ran := 0
				e := quiet()
				e.Use(recovering)
				if finish {
					e.Use(echoidem.Finish())
				}
				e.POST("/orders", func(ctx echo.Context) error {
					ran++
					c.before(ctx)
					panic("boom")
				}, echoidem.New(guard(core.Policy{}).Guard))
				for range 2 {
					w := post(e, "/orders", "{}")
					require.Equal(t, c.status, w.Code)
					require.Equal(t, c.body, w.Body.String())
				}
				require.Equal(t, 2, ran)
			})
		}
	}
}

func TestAPanicInTheRendererReleases(t *testing.T) {
	ran := 0
	e := quiet()
	e.Use(recovering, echoidem.Finish(), func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			next(c)
			panic("renderer")
		}
	})
	e.POST("/orders", func(echo.Context) error { ran++; return errBroke }, echoidem.New(guard(core.Policy{}).Guard))
	for range 2 {
		require.Equal(t, 500, post(e, "/orders", "{}").Code)
	}
	require.Equal(t, 2, ran)
}

func TestStreamAndHijack(t *testing.T) {
	for name, handler := range map[string]echo.HandlerFunc{
		"SSE": func(c echo.Context) error {
			c.Response().Header().Set("Content-Type", "text/event-stream")
			c.Response().WriteHeader(200)
			fmt.Fprint(c.Response(), "data: 1\n\n")
			c.Response().Flush()
			_, err := fmt.Fprint(c.Response(), "data: 2\n\n")
			return err
		},
		"flush first, then an error": func(c echo.Context) error {
			c.Response().Flush()
			return errBroke
		},
		"hijack": func(c echo.Context) error {
			conn, rw, err := c.Response().Hijack()
			if err != nil {
				return err
			}
			defer conn.Close()
			rw.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
			return rw.Flush()
		},
	} {
		for _, finish := range []bool{false, true} {
			t.Run(fmt.Sprint(name, finish), func(t *testing.T) {
				ran := 0
				serve := func(mw ...echo.MiddlewareFunc) *httptest.Server {
					e := quiet()
					if finish {
						e.Use(echoidem.Finish())
					}
					e.POST("/orders", func(c echo.Context) error { ran++; return handler(c) }, mw...)
					return server(t, e)
				}
				want := over(t, serve())
				require.Equal(t, 200, want.status)
				g := guard(core.Policy{})
				guarded := serve(echoidem.New(g.Guard))
				require.Equal(t, want, over(t, guarded))
				g.finished(t)
				again := over(t, guarded)
				require.Equal(t, 409, again.status)
				require.Contains(t, again.body, "result_unavailable")
				require.Equal(t, 2, ran)
			})
		}
	}
}

func TestBodyOverTheLimitOfAMiddleware(t *testing.T) {
	e := quiet()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			c.Request().Body = http.MaxBytesReader(c.Response(), c.Request().Body, 5)
			return next(c)
		}
	})
	e.POST("/orders", func(echo.Context) error { panic("ran") }, echoidem.New(guard(core.Policy{}).Guard))
	w := post(e, "/orders", "0123456789")
	require.Equal(t, 413, w.Code)
	require.Contains(t, w.Body.String(), "body_too_large")
}

func TestOptionalKeyPassesWithTheBody(t *testing.T) {
	e := quiet()
	e.POST("/orders", func(c echo.Context) error {
		if echoidem.Run(c) != nil {
			panic("there is no run")
		}
		b, _ := io.ReadAll(c.Request().Body)
		if len(b) == 0 {
			return errBroke
		}
		return c.String(200, string(b))
	}, echoidem.New(guard(core.Policy{Key: core.Header(core.Optional)}).Guard))
	require.Equal(t, "{}", post(e, "/orders", "{}").Body.String())
	require.Equal(t, 500, post(e, "/orders", "").Code)
}

func TestUserFromContext(t *testing.T) {
	engine := core.MustNew(core.Config{User: echoidem.UserFromContext("user")})
	ran := 0
	e := quiet()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if u := c.Request().Header.Get("X-Login"); u != "" {
				c.Set("user", u)
			}
			return next(c)
		}
	})
	e.POST("/orders", func(echo.Context) error { ran++; return nil }, echoidem.New(engine.MustGuard(core.Policy{})))
	for _, step := range []struct {
		login       string
		status, ran int
	}{{"alice", 200, 1}, {"bob", 200, 2}, {"alice", 200, 2}, {"", 400, 2}} {
		r := httptest.NewRequest("POST", "/orders", nil)
		r.Header.Set("X-Login", step.login)
		w := httptest.NewRecorder()
		e.ServeHTTP(w, r)
		require.Equal(t, step.status, w.Code)
		require.Equal(t, step.ran, ran)
	}
}

// Contexts are reused by Echo, and exchanges by the adapter: nothing of one request may show
// in another.
func TestConcurrentRequestsKeepApart(t *testing.T) {
	e := quiet()
	e.POST("/orders/:id", func(c echo.Context) error {
		b, _ := io.ReadAll(c.Request().Body)
		if strings.HasSuffix(c.Param("id"), "3") {
			return echo.NewHTTPError(422, string(b))
		}
		return c.JSON(201, map[string]string{"message": string(b)})
	}, echoidem.New(guard(core.Policy{}).Guard))
	var clients sync.WaitGroup
	for i := range 8 {
		clients.Go(func() {
			for j := range 50 {
				text := fmt.Sprintf("%d-%d", i, j)
				for range 2 {
					if got := post(e, "/orders/"+text, text).Body.String(); got != `{"message":"`+text+`"}`+"\n" {
						t.Errorf("%s got %s", text, got)
					}
				}
			}
		})
	}
	clients.Wait()
}

func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("sync.Pool drops what it is given at random under the race detector")
	}
	serve := func(mw ...echo.MiddlewareFunc) http.Handler {
		e := quiet()
		e.POST("/orders", func(c echo.Context) error {
			c.Response().Header()["Content-Type"] = jsonType
			c.Response().WriteHeader(201)
			_, err := c.Response().Write(jsonBody)
			return err
		}, mw...)
		return e
	}
	mw := echoidem.New(core.MustNew(core.Config{User: core.UserFromHeader("X-User")}).MustGuard(core.Policy{}))
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
