package echoidem_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/echoidem"
	"github.com/idem-go/idem/idemtest"
	"github.com/idem-go/idem/internal/allocs"
	"github.com/idem-go/idem/internal/leak"
	"github.com/idem-go/idem/internal/leakcheck"
	"github.com/idem-go/idem/internal/race"
	"github.com/idem-go/idem/sign/signtest"
)

// What both versions of Echo share is in adapterkit, and has its tests here.

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
		params          []adapter.Pair
	}{
		{"/orders", "/orders", "/orders", nil},
		{"/orders/:id/pay", "/orders/a%20b+c/pay", "/orders/:id/pay", []adapter.Pair{{Name: "id", Value: "a b+c"}}},
		{"/orders/:id/pay", "/orders/a%2Fb/pay", "/orders/:id/pay", []adapter.Pair{{Name: "id", Value: "a/b"}}},
		{"/orders/:id/pay", "/orders/%2525/pay", "/orders/:id/pay", []adapter.Pair{{Name: "id", Value: "%25"}}},
		{"/files/*", "/files/a/b%20c", "/files/*", []adapter.Pair{{Name: "*", Value: "a/b c"}}},
		{"/files/*", "/files/a%21b", "/files/*", []adapter.Pair{{Name: "*", Value: "a%21b"}}}, // as net/url writes it: without a RawPath
		{"/files/*", "/files/", "/files/*", []adapter.Pair{{Name: "*", Value: ""}}},
		{"/u/:id/*", "/u/7/x", "/u/:id/*", []adapter.Pair{{Name: "id", Value: "7"}, {Name: "*", Value: "x"}}},
		{"/orders", "/unknown/a%2Fb?x", "/unknown/a%2Fb", nil},
		{"/orders", "/unknown/a%2Fé", "/unknown/a%2Fé", nil},
		{"/orders", "http://shop.test/orders", "shop.test/orders", nil},
		{"/u/:id", "http://shop.test/u/7", "shop.test/u/:id", []adapter.Pair{{Name: "id", Value: "7"}}},
		{"/u/:id", "http://mux.test/u/7", "mux.test/u/:id", []adapter.Pair{{Name: "id", Value: "7"}}}, // by a mux in front
	} {
		t.Run(c.pattern+" "+c.target, func(t *testing.T) {
			var got adapter.Request
			g := guard(core.Policy{Key: core.Func(func(r *adapter.Request) (string, error) {
				got.Route, got.PathParams = r.Route, append([]adapter.Pair(nil), r.PathParams...)
				return "k", nil
			})})
			e := newEcho()
			e.Use(echoidem.New(g.Guard))
			handler := func(echo.Context) error { return nil }
			e.POST(c.pattern, handler)
			e.Host("shop.test", echoidem.New(g.Guard)).POST(c.pattern, handler)
			mux := http.NewServeMux()
			mux.Handle("mux.test/", e)
			mux.Handle("/", e)
			post(mux, c.target, "")
			require.Equal(t, c.route, got.Route)
			require.Equal(t, c.params, got.PathParams)
		})
	}
}

func TestPre(t *testing.T) {
	g := guard(core.Policy{})
	ran := 0
	e := newEcho()
	e.Pre(echoidem.New(g.Guard))
	e.POST("/orders/:id", func(c echo.Context) error { ran++; return c.String(201, c.Param("id")) })
	require.Equal(t, "7", post(e, "/orders/7", "").Body.String())
	require.Equal(t, "8", post(e, "/orders/8", "").Body.String())
	require.True(t, replayed(post(e, "/orders/7", "")))
	require.Equal(t, 2, ran)
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
		"committed, error":   {func(c echo.Context) error { _ = c.String(201, "body"); return errBroke }, 1},
		"rendered by itself": {func(c echo.Context) error { c.Error(echo.NewHTTPError(422, "no")); return nil }, 1},
		"rendered and returned": {func(c echo.Context) error {
			err := echo.NewHTTPError(422, "no")
			c.Error(err)
			return err
		}, 1},
		"status too late": {func(c echo.Context) error { _ = c.String(201, "a"); return c.String(500, "b") }, 1},
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
				e := newEcho()
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
		return func(c echo.Context) error { _ = next(c); return nil }
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
		"committed, error": {mapErrors, func(c echo.Context) error { _ = c.String(201, "fine"); return errBroke }, 201, "fine", 1, core.Completed},
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
			e := newEcho()
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

// What has gone out past the recorder, or before it was there, is delivered and not replayed:
// nobody knows all of it.
func TestAnswersThatWereNotSeenWhole(t *testing.T) {
	past := func(c echo.Context) error {
		c.Response().Writer = c.Get("writer").(http.ResponseWriter)
		return c.String(200, "past it")
	}
	for name, c := range map[string]struct {
		front   func(echo.Context) error
		handler echo.HandlerFunc
		body    string
	}{
		"begun in front": {
			func(c echo.Context) error { return c.String(200, "in front, ") },
			func(c echo.Context) error { return c.String(200, "behind") }, "in front, behind",
		},
		"past it":                {keepWriter, past, "past it"},
		"past it, with an error": {keepWriter, func(c echo.Context) error { _ = past(c); return errBroke }, "past it"},
	} {
		for _, finish := range []bool{false, true} {
			t.Run(fmt.Sprint(name, finish), func(t *testing.T) {
				ran := 0
				e := newEcho()
				if finish {
					e.Use(echoidem.Finish())
				}
				e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
					return func(ctx echo.Context) error {
						if err := c.front(ctx); err != nil {
							return err
						}
						return next(ctx)
					}
				})
				e.POST("/orders", func(ctx echo.Context) error { ran++; return c.handler(ctx) },
					echoidem.New(guard(core.Policy{}).Guard))
				require.Equal(t, c.body, post(e, "/orders", "{}").Body.String())
				require.Contains(t, post(e, "/orders", "{}").Body.String(), `"code":"result_unavailable"`)
				require.Equal(t, 1, ran)
			})
		}
	}
}

func keepWriter(c echo.Context) error {
	c.Set("writer", c.Response().Writer)
	return nil
}

// A guard waits for Finish only if there is something left to render. What has been answered
// is finished: a panic further out does not undo it.
func TestAPanicBehindTheAnswerReleasesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		handler       echo.HandlerFunc
		status, again int
	}{
		"answered": {func(c echo.Context) error { return c.String(201, "made") }, 201, 201},
		"answered, and an error": {func(c echo.Context) error {
			_ = c.String(201, "made")
			return errBroke
		}, 201, 201},
		"hijacked": {func(c echo.Context) error {
			conn, _, err := c.Response().Hijack()
			if err != nil {
				return err
			}
			defer conn.Close()
			_, err = io.WriteString(conn, "HTTP/1.1 201 Created\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			return err
		}, 201, 409},
	} {
		t.Run(name, func(t *testing.T) {
			ran := 0
			g := guard(core.Policy{})
			e := newEcho()
			e.Use(recovering, echoidem.Finish(), func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c echo.Context) error {
					_ = next(c)
					panic("further out")
				}
			})
			e.POST("/orders", func(ctx echo.Context) error { ran++; return c.handler(ctx) }, echoidem.New(g.Guard))
			s := server(t, e)
			require.Equal(t, c.status, over(t, s).status)
			g.finished(t)
			require.Equal(t, c.again, over(t, s).status)
			require.Equal(t, 1, ran)
		})
	}
}

// Whoever stands in front has its request back, and finds in it what net/http cleans up after.
func TestTheRequestIsGivenBack(t *testing.T) {
	for _, finish := range []bool{false, true} {
		for _, fails := range []bool{false, true} {
			for _, panics := range []bool{false, true} {
				t.Run(fmt.Sprint(finish, fails, panics), func(t *testing.T) {
					engine := idemtest.New(t, core.Config{User: core.SharedByAllCallers()})
					if fails {
						engine.Fail(idemtest.Acquire)
					}
					var before, after *http.Request
					e := newEcho()
					e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
						return func(c echo.Context) error {
							before = c.Request()
							defer func() {
								_ = recover()
								after = c.Request()
							}()
							return next(c)
						}
					})
					if finish {
						e.Use(echoidem.Finish())
					}
					e.POST("/orders", func(c echo.Context) error {
						require.Equal(t, "1", c.FormValue("a"))
						if panics {
							panic("oops")
						}
						return nil
					}, echoidem.New(engine.MustGuard(core.Policy{FailOpen: true})))
					r := httptest.NewRequest("POST", "/orders", strings.NewReader("--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--b--\r\n"))
					r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
					e.ServeHTTP(httptest.NewRecorder(), r)
					require.Same(t, before, after)
					require.NotNil(t, after.MultipartForm)
				})
			}
		}
	}
}

// What has gone out stays gone after a panic: whoever recovers must not begin a second answer behind it.
func TestAPanicAfterSomethingWasSent(t *testing.T) {
	for name, c := range map[string]struct{ front, handler func(echo.Context) }{
		"in front": {func(c echo.Context) { _ = c.String(200, "begun") }, func(c echo.Context) { _ = c.String(200, " and gone on") }},
		"streamed": {func(echo.Context) {}, func(c echo.Context) {
			_ = c.String(200, "begun")
			c.Response().Flush()
		}},
		"past it": {func(c echo.Context) { _ = keepWriter(c) }, func(c echo.Context) {
			c.Response().Writer = c.Get("writer").(http.ResponseWriter)
			_ = c.String(200, "begun")
		}},
	} {
		for _, finish := range []bool{false, true} {
			t.Run(fmt.Sprint(name, finish), func(t *testing.T) {
				e := newEcho()
				e.Use(recovering)
				if finish {
					e.Use(echoidem.Finish())
				}
				e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
					return func(ctx echo.Context) error {
						c.front(ctx)
						return next(ctx)
					}
				})
				e.POST("/orders", func(ctx echo.Context) error { c.handler(ctx); panic("oops") }, echoidem.New(guard(core.Policy{}).Guard))
				require.Equal(t, "begun", post(e, "/orders", "{}").Body.String())
			})
		}
	}
}

// A refusal in the place of the handler's own answer is the only one that access logs count.
func TestTheSizeOfARefusal(t *testing.T) {
	e := newEcho()
	var size int64
	var status int
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			err := next(c)
			size, status = c.Response().Size, c.Response().Status
			return err
		}
	})
	e.POST("/orders", func(c echo.Context) error {
		_ = c.String(500, "the bank refuses")
		return core.NewRefusal(codes.InProgress, nil)
	}, echoidem.New(guard(core.Policy{}).Guard))
	w := post(e, "/orders", "{}")
	require.Equal(t, 409, w.Code)
	require.NotContains(t, w.Body.String(), "bank")
	require.Equal(t, 409, status)
	require.EqualValues(t, w.Body.Len(), size)
}

// Where no guard is, Finish leaves errors to whoever stands in front; and where the HTTPErrorHandler has left an error alone, so does
// a guard.
func TestErrorsThatAreLeftToOthers(t *testing.T) {
	e := newEcho()
	e.HTTPErrorHandler = func(error, echo.Context) {}
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if err := next(c); err != nil && !c.Response().Committed {
				return c.String(422, "in front")
			}
			return nil
		}
	})
	finished := e.Group("/finished", echoidem.Finish())
	fails := func(echo.Context) error { return errBroke }
	guarded := echoidem.New(guard(core.Policy{}).Guard)
	e.POST("/orders", fails, guarded)
	finished.POST("/orders", fails, guarded)
	finished.POST("/unguarded", fails)
	for _, target := range []string{"/orders", "/finished/orders", "/finished/unguarded"} {
		require.Equal(t, "in front", post(e, target, "{}").Body.String(), target)
	}
	e.HTTPErrorHandler = e.DefaultHTTPErrorHandler
	require.Equal(t, "in front", post(e, "/finished/unguarded", "{}").Body.String())
}

// Only what says that the body is too large is 413.
func TestAnErrorOfABodyIsNotAlwaysTooLarge(t *testing.T) {
	e := newEcho()
	var status int
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			c.Request().Body = io.NopCloser(failingReader{echo.NewHTTPError(status, http.StatusText(status))})
			return next(c)
		}
	})
	e.POST("/orders", func(echo.Context) error { return nil }, echoidem.New(guard(core.Policy{}).Guard))
	for _, status = range []int{400, 413} {
		require.Equal(t, status, post(e, "/orders", "{}").Code)
	}
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

// A middleware that renders a handler's error, and then panics, has answered nothing: whoever recovers does.
func TestAPanicAfterRendering(t *testing.T) {
	e := newEcho()
	e.Use(recovering, echoidem.Finish(), func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if next(c) != nil {
				_ = c.String(422, "rendered")
				panic("oops")
			}
			return nil
		}
	})
	e.POST("/orders", func(echo.Context) error { return errBroke }, echoidem.New(guard(core.Policy{}).Guard))
	w := post(e, "/orders", "{}")
	require.Equal(t, 500, w.Code)
	require.Contains(t, w.Body.String(), "Internal Server Error")
}

// Behind what has been sent in front of the guard no refusal is written.
func TestNoRefusalBehindAnAnswer(t *testing.T) {
	for name, handler := range map[string]echo.HandlerFunc{
		"refused":  func(echo.Context) error { return core.NewRefusal(codes.InProgress, nil) },
		"given up": func(c echo.Context) error { <-c.Request().Context().Done(); return nil },
	} {
		for _, finish := range []bool{false, true} {
			t.Run(fmt.Sprint(name, finish), func(t *testing.T) {
				e := newEcho()
				if finish {
					e.Use(echoidem.Finish())
				}
				e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
					return func(c echo.Context) error {
						ctx, cancel := context.WithTimeout(c.Request().Context(), 10*time.Millisecond)
						defer cancel()
						c.SetRequest(c.Request().WithContext(ctx))
						_ = c.String(200, "in front")
						return next(c)
					}
				})
				e.POST("/orders", handler, echoidem.New(guard(core.Policy{}).Guard))
				require.Equal(t, "in front", post(e, "/orders", "{}").Body.String())
			})
		}
	}
}

// The status of an answer that was dropped after a panic is not that of the response.
func TestTheStatusAfterAPanic(t *testing.T) {
	e := newEcho()
	status := 0
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) (err error) {
			defer func() {
				_ = recover()
				status = c.Response().Status
			}()
			return next(c)
		}
	})
	e.POST("/orders", func(c echo.Context) error {
		_ = c.String(422, "made")
		panic("oops")
	}, echoidem.New(guard(core.Policy{}).Guard))
	require.Equal(t, 200, post(e, "/orders", "{}").Code)
	require.Equal(t, 200, status)
}

// What the HTTPErrorHandler leaves alone is left to others, and nobody knows of it here.
func TestAnErrorThatNobodyRendersIsAFailure(t *testing.T) {
	ran := 0
	w := guard(core.Policy{})
	e := newEcho()
	e.HTTPErrorHandler = func(error, echo.Context) {}
	e.POST("/orders", func(echo.Context) error { ran++; return errors.New("gone") }, echoidem.New(w.Guard))
	post(e, "/orders", "{}")
	post(e, "/orders", "{}")
	require.Equal(t, 2, ran)
	require.ErrorIs(t, w.last().Err, adapter.ErrUnrendered)
}

// errorBody is what the error handler makes of the error "no".
const errorBody = "{\"error\":\"no\"}\n"

// report keeps what comes out, as middleware for Sentry does.
func report(into *[]error) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			err := next(c)
			*into = append(*into, err)
			return err
		}
	}
}

// Middleware further out sees the handler's error, though the guard has rendered it; and what it
// then does with it, as Echo's own Logger does, is not a second answer.
func TestErrorsAreSeenFurtherOutAndRenderedOnce(t *testing.T) {
	type mounted func(t *testing.T, reported *[]error) []echo.MiddlewareFunc
	cases := map[string]mounted{
		"reported": func(_ *testing.T, reported *[]error) []echo.MiddlewareFunc {
			return []echo.MiddlewareFunc{report(reported)}
		},
		"finished": func(_ *testing.T, reported *[]error) []echo.MiddlewareFunc {
			return []echo.MiddlewareFunc{report(reported), echoidem.Finish(), report(reported)}
		},
		"finished around a logger that renders": func(_ *testing.T, reported *[]error) []echo.MiddlewareFunc {
			return []echo.MiddlewareFunc{report(reported), echoidem.Finish(), func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c echo.Context) error { // as RequestLogger with HandleError
					err := next(c)
					if err != nil {
						c.Error(err)
					}
					return err
				}
			}}
		},
		"guarded twice": func(_ *testing.T, reported *[]error) []echo.MiddlewareFunc {
			return []echo.MiddlewareFunc{report(reported), echoidem.New(guard(core.Policy{Key: core.Header(core.Required)}).Guard)}
		},
	}
	for name, front := range map[string]func(*testing.T) echo.MiddlewareFunc{
		"logged":           logger,
		"logged by values": requestLogger,
		"compressed":       func(*testing.T) echo.MiddlewareFunc { return middleware.Gzip() },
		"dumped": func(t *testing.T) echo.MiddlewareFunc {
			return middleware.BodyDump(func(_ echo.Context, _, body []byte) { require.Equal(t, errorBody, string(body)) })
		},
	} {
		cases[name] = func(t *testing.T, reported *[]error) []echo.MiddlewareFunc {
			return []echo.MiddlewareFunc{report(reported), front(t), report(reported)}
		}
	}
	for name, mount := range cases {
		t.Run(name, func(t *testing.T) {
			var reported []error
			failure := errors.New("no")
			rendered := 0
			e := newEcho()
			e.HTTPErrorHandler = func(err error, c echo.Context) {
				rendered++
				_ = c.JSON(http.StatusUnprocessableEntity, map[string]string{"error": err.Error()})
			}
			e.Use(mount(t, &reported)...)
			e.POST("/orders", func(echo.Context) error { return failure }, echoidem.New(guard(core.Policy{Record: core.Record{OnFailure: core.Keep}}).Guard))
			ask := func() *httptest.ResponseRecorder {
				r := httptest.NewRequest("POST", "/orders", nil)
				r.Header.Set("X-User", "alice")
				r.Header.Set("Idempotency-Key", "k")
				w := httptest.NewRecorder()
				e.ServeHTTP(w, r)
				return w
			}
			first := ask()
			require.Equal(t, 422, first.Code)
			require.Equal(t, errorBody, first.Body.String())
			require.NotEmpty(t, reported)
			require.ErrorIs(t, reported[0], failure)
			require.ErrorIs(t, reported[len(reported)-1], failure)
			if name == "reported" || name == "guarded twice" {
				require.Equal(t, 2, rendered, "by the guard, and by Echo")
			}

			reported = nil
			again := ask()
			require.True(t, replayed(again))
			require.Equal(t, first.Body.String(), again.Body.String())
			require.NotContains(t, reported, failure)
		})
	}
}

func TestBeforeHooksDoNotDoubleFields(t *testing.T) {
	e := newEcho()
	after := 0
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			below := c.Response().Writer
			c.Response().Before(func() { c.Response().Header().Add("Vary", "Origin") })
			c.Response().After(func() { after++ })
			err := next(c)
			require.Equal(t, below, c.Response().Writer)
			return err
		}
	})
	g := core.MustNew(core.Config{User: core.UserFromHeader("X-User")}).MustGuard(core.Policy{})
	e.POST("/x", func(c echo.Context) error { return c.String(201, "x") }, echoidem.New(g))
	for i, mark := range []string{"", "true"} {
		r := httptest.NewRequest(http.MethodPost, "/x", nil)
		r.Header.Set("X-User", "alice")
		w := httptest.NewRecorder()
		e.ServeHTTP(w, r)
		require.Equal(t, 201, w.Code)
		require.Equal(t, "x", w.Body.String())
		require.Equal(t, mark, w.Header().Get(core.ReplayedHeader))
		require.Equal(t, []string{"Origin"}, w.Header()["Vary"])
		require.Equal(t, i+1, after)
	}
}

// TestNothingLeaks: thousands of requests at once, in memory that is used again, and nobody
// gets or leaves anything of another. What package httpidem pools for this one is poisoned
// in its own test.
func TestNothingLeaks(t *testing.T) {
	engine, store := leakcheck.Engine(t)
	parameters, key := leakcheck.Guards(engine)
	var bodies leakcheck.Bodies
	handler := func(c echo.Context) error {
		r := c.Request()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		bodies.Keep(c.Param("id"), r.GetBody)
		a := leakcheck.Of(leakcheck.Seen{ID: c.Param("id"), Query: r.URL.RawQuery,
			User: r.Header.Get("X-User"), Key: r.Header.Get("Idempotency-Key"), Body: body})
		c.Response().Header().Set("Location", a.Location)
		c.Response().Header().Set("X-Echo", a.Echo)
		err = c.Blob(http.StatusCreated, a.ContentType, a.Body)
		clear(a.Body) // it must have been copied
		clear(body)   // and this is the handler's own
		return err
	}
	e := newEcho()
	e.POST(leakcheck.Route, handler, echoidem.New(parameters))
	e.POST(leakcheck.KeyRoute, handler, echoidem.New(key))
	send := func(r *http.Request) (*leakcheck.Response, error) {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, r)
		return &leakcheck.Response{Status: w.Code, Header: w.Header(), Body: w.Body.Bytes()}, nil
	}
	const requests = 3000
	leakcheck.Run{Requests: requests, Send: send}.Test(t, store)
	bodies.Check(t, requests)
}

func TestAllocations(t *testing.T) {
	race.Skip(t, "sync.Pool drops what it is given at random under the race detector")
	jsonType, jsonBody := []string{"application/json"}, []byte(`{"order_id":"ord-0001"}`)
	serve := func(mw ...echo.MiddlewareFunc) *echo.Echo {
		e := newEcho()
		e.POST("/orders", func(c echo.Context) error {
			w := c.Response()
			w.Header()["Content-Type"] = jsonType
			w.WriteHeader(201)
			_, err := w.Write(jsonBody)
			return err
		}, mw...)
		return e
	}
	mw := echoidem.New(core.MustNew(core.Config{User: core.UserFromHeader("X-User")}).MustGuard(core.Policy{}))
	w := allocs.Writer{}
	bare := allocs.PerRequest(w, serve(), true)
	require.LessOrEqual(t, allocs.PerRequest(w, serve(mw), true)-bare, 9.0, "first")
	require.LessOrEqual(t, allocs.PerRequest(w, serve(mw), false)-bare, 4.0, "replay")
	require.Equal(t, []string{"true"}, w.Header()[core.ReplayedHeader])
}

// What goes back into the pool holds nothing.
func TestThePoolHoldsNothing(t *testing.T) {
	e := newEcho()
	e.POST("/", func(c echo.Context) error { return c.NoContent(201) }, echoidem.New(guard(core.Policy{}).Guard))
	post(e, "/", "body")
	if x := echoidem.Pooled(); !reflect.ValueOf(x).IsZero() {
		t.Errorf("an exchange in the pool has %+v", x)
	}
}

// Who has no tokens to issue learns it when the routes are made, and not by the first request.
func TestIssueTokenWithoutTokens(t *testing.T) {
	require.PanicsWithValue(t, `idem: the key of the policy "orders" is no Token: there is nothing to issue`, func() {
		echoidem.IssueToken(guard(core.Policy{Name: "orders"}).Guard)
	})
}

const form = "--b\r\nContent-Disposition: form-data; name=\"sku\"\r\n\r\nA-1\r\n--b--\r\n"

func TestRefusalsAreWritten(t *testing.T) {
	reached, after := 0, 0
	e := newEcho()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			request, writer := c.Request(), c.Response().Writer
			h := c.Response().Header()
			h.Set("Content-Type", "text/html")
			h.Set("Cache-Control", "public")
			h.Set("X-Outer", "1")
			c.Response().Before(func() { h.Add("Cache-Control", "public") })
			assert.NoError(t, next(c))
			after++
			assert.Same(t, request, c.Request())
			assert.Equal(t, writer, c.Response().Writer)
			assert.Equal(t, 401, c.Response().Status)
			assert.True(t, c.Response().Committed)
			return nil
		}
	})
	e.POST("/orders/:id", func(echo.Context) error { reached++; return nil }, echoidem.Verify(signtest.NewVerifier()))
	w := signtest.Serve(t, e, signtest.Forger, "{}")
	assert.Equal(t, 401, w.Code)
	assert.Contains(t, w.Body.String(), `"code":"invalid"`)
	assert.Equal(t, []string{"application/problem+json"}, w.Result().Header["Content-Type"])
	assert.Equal(t, []string{"no-store"}, w.Result().Header["Cache-Control"])
	assert.Equal(t, []string{"1"}, w.Result().Header["X-Outer"])
	assert.Zero(t, reached)
	assert.Equal(t, 1, after)
}

// What a handler returns comes to the middleware in front as it is, and so does the request.
func TestErrorsPassVerify(t *testing.T) {
	ours := errors.New("ours")
	e := newEcho()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			request := c.Request()
			err := next(c)
			assert.Same(t, ours, err)
			assert.False(t, c.Response().Committed)
			assert.Same(t, request, c.Request())
			assert.NotNil(t, request.MultipartForm, "net/http removes the files")
			_, ok := echoidem.Verified(c)
			assert.False(t, ok)
			return echo.NewHTTPError(418, "teapot")
		}
	})
	e.POST("/orders/:id", func(c echo.Context) error {
		assert.Equal(t, "a%2Fb", c.Param("id"))
		again, err := c.Request().GetBody()
		assert.NoError(t, err)
		b, _ := io.ReadAll(again)
		assert.Equal(t, form, string(b))
		assert.NoError(t, c.Request().ParseMultipartForm(1))
		return ours
	}, echoidem.Verify(signtest.NewVerifier()))
	assert.Equal(t, 418, signtest.Serve(t, e, signtest.Demo, form, "Content-Type", "multipart/form-data; boundary=b").Code)
}

// Nobody has signed that a POST is to be a DELETE. And behind the router, none is a GET, which would go past a guard.
func TestMethodOverride(t *testing.T) {
	routed := newEcho()
	routed.Use(middleware.MethodOverride())
	routed.POST("/orders", func(c echo.Context) error { return c.NoContent(204) }, echoidem.New(guard(core.Policy{Key: core.Header(core.Required)}).Guard))
	w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "/orders", nil)
	r.Header.Set("X-HTTP-Method-Override", "GET")
	r.Header.Set("X-User", "u")
	routed.ServeHTTP(w, r)
	assert.Contains(t, w.Body.String(), `"code":"key_missing"`)

	e := newEcho()
	e.Pre(middleware.MethodOverride())
	reached := 0
	handler := func(c echo.Context) error { reached++; return c.NoContent(204) }
	e.POST("/orders/:id", handler, echoidem.Verify(signtest.NewVerifier()))
	e.Add("DELETE", "/orders/:id", handler, echoidem.Verify(signtest.NewVerifier()))
	assert.Contains(t, signtest.Serve(t, e, signtest.Demo, "{}", "X-HTTP-Method-Override", "DELETE").Body.String(), `"code":"invalid"`)
	assert.Zero(t, reached)
	assert.Equal(t, 204, signtest.Serve(t, e, signtest.Demo, "{}").Code)
}

func logger(t *testing.T) echo.MiddlewareFunc {
	var log strings.Builder
	//lint:ignore SA1019 what is deployed uses it
	logs := middleware.LoggerWithConfig(middleware.LoggerConfig{Format: "${status} ${error} ${bytes_out}\n", Output: &log})
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			first := log.Len() == 0
			var err error // which the logger renders and keeps
			logged := logs(func(c echo.Context) error { err = next(c); return err })(c)
			if first {
				assert.Equal(t, "422 no 15\n", log.String())
			}
			return cmp.Or(logged, err)
		}
	}
}

func requestLogger(t *testing.T) echo.MiddlewareFunc {
	return middleware.RequestLoggerWithConfig(middleware.RequestLoggerConfig{
		LogStatus: true, LogError: true, LogResponseSize: true, HandleError: true,
		LogValuesFunc: func(_ echo.Context, v middleware.RequestLoggerValues) error {
			assert.Equal(t, 422, v.Status)
			assert.EqualValues(t, len(errorBody), v.ResponseSize)
			return v.Error
		},
	})
}

// Echo's Timeout races with itself, and is not to be used; but the claim is valid while its
// handler runs on.
func TestNothingRunsBesideAHandlerThatRunsOn(t *testing.T) {
	race.Skip(t, "Echo's Timeout is a race")
	entered, leave := make(chan struct{}, 9), make(chan struct{})
	left := make(chan struct{})
	e := newEcho()
	//lint:ignore SA1019 what is deployed uses it
	timeout := middleware.TimeoutWithConfig(middleware.TimeoutConfig{Timeout: time.Millisecond})
	guard := core.MustNew(core.Config{User: core.UserFromHeader("X-User")}).MustGuard(core.Policy{})
	e.POST("/orders", func(echo.Context) error {
		entered <- struct{}{}
		<-leave
		close(left)
		return nil
	}, echoidem.New(guard), timeout)
	post := func() *httptest.ResponseRecorder {
		r, w := httptest.NewRequest("POST", "/orders", strings.NewReader("{}")), httptest.NewRecorder()
		r.Header.Set("X-User", "alice")
		e.ServeHTTP(w, r)
		return w
	}
	require.Equal(t, 503, post().Code)
	<-entered
	require.Contains(t, post().Body.String(), "in_progress")
	close(leave)
	<-left
}

// An Echo within another one belongs to a host only if the server's Echo has routed the request by it.
func TestAnEchoWithinAnEcho(t *testing.T) {
	route := ""
	guard := core.MustNew(core.Config{User: core.SharedByAllCallers()}).MustGuard(core.Policy{Key: core.Func(func(r *adapter.Request) (string, error) {
		route = r.Route
		return "k", nil
	})})
	inner, outer := echo.New(), echo.New()
	inner.POST("/orders", func(echo.Context) error { return nil }, echoidem.New(guard))
	outer.Any("/*", echo.WrapHandler(inner))
	outer.Host("a.test").Any("/*", echo.WrapHandler(inner))
	for _, c := range []struct {
		server     *echo.Echo
		host, want string
	}{
		{inner, "a.test", "/orders"},
		{outer, "b.test", "/orders"},
		{outer, "a.test", "a.test/orders"},
	} {
		r := httptest.NewRequest("POST", "http://"+c.host+"/orders", nil)
		r = r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, &http.Server{Handler: c.server}))
		c.server.ServeHTTP(httptest.NewRecorder(), r)
		require.Equal(t, c.want, route)
	}
}
