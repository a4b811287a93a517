package echoidem_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
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
	"github.com/idem-go/idem/internal/race"
	"github.com/idem-go/idem/sign/signtest"
)

// What both versions of Echo share is in adapterkit, and has its tests here.

func TestMain(m *testing.M) {
	// A server that has refused a body waits before it closes the connection.
	leak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// guard returns a guard, whose observer leaves the last event in each of last.
func guard(p core.Policy, last ...*core.Event) *core.Guard {
	return core.MustNew(core.Config{
		User: core.UserFromHeader("X-User"),
		Observe: func(_ context.Context, e core.Event) {
			for _, l := range last {
				*l = e
			}
		},
	}).MustGuard(p)
}

// guarded returns an Echo that serves /orders with h behind a guard, and with front in front of it.
func guarded(h echo.HandlerFunc, front ...echo.MiddlewareFunc) *echo.Echo {
	e := newEcho()
	e.Use(front...)
	e.POST("/orders", h, echoidem.New(guard(core.Policy{})))
	return e
}

// out returns middleware that gets what comes out of the handler.
func out(f func(c echo.Context, err error) error) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error { return f(c, next(c)) }
	}
}

// in returns middleware that does something in front of the handler.
func in(f func(c echo.Context)) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error { f(c); return next(c) }
	}
}

func post(h http.Handler, target, body string) *httptest.ResponseRecorder {
	r, w := httptest.NewRequest("POST", target, strings.NewReader(body)), httptest.NewRecorder()
	r.Header.Set("X-User", "alice")
	r.Header.Set("Content-Type", "application/json")
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
			g := noting(&got)
			e := newEcho()
			e.Use(echoidem.New(g))
			handler := func(echo.Context) error { return nil }
			e.POST(c.pattern, handler)
			e.Host("shop.test", echoidem.New(g)).POST(c.pattern, handler)
			mux := http.NewServeMux()
			mux.Handle("mux.test/", e)
			mux.Handle("/", e)
			post(mux, c.target, "")
			require.Equal(t, c.route, got.Route)
			require.Equal(t, c.params, got.PathParams)
		})
	}
}

// noting returns a guard that notes the route and the parameters of a request.
func noting(got *adapter.Request) *core.Guard {
	return guard(core.Policy{User: core.SharedByAllCallers(), Key: core.Func(func(r *adapter.Request) (string, error) {
		got.Route, got.PathParams = r.Route, append([]adapter.Pair(nil), r.PathParams...)
		return "k", nil
	})})
}

// An Echo within another one belongs to a host only if the server's Echo has routed the request by it.
func TestAnEchoWithinAnEcho(t *testing.T) {
	var got adapter.Request
	inner, outer := echo.New(), echo.New()
	inner.POST("/orders", func(echo.Context) error { return nil }, echoidem.New(noting(&got)))
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
		require.Equal(t, c.want, got.Route)
	}
}

func TestPre(t *testing.T) {
	ran := 0
	e := newEcho()
	e.Pre(echoidem.New(guard(core.Policy{})))
	e.POST("/orders/:id", func(c echo.Context) error { ran++; return c.String(201, c.Param("id")) })
	require.Equal(t, "7", post(e, "/orders/7", "").Body.String())
	require.Equal(t, "8", post(e, "/orders/8", "").Body.String())
	require.True(t, replayed(post(e, "/orders/7", "")))
	require.Equal(t, 2, ran)
}

var errBroke = errors.New("broke")

// What Echo tells of the response, inside and further out, is what it tells without a guard, and so is what is sent.
func TestResponsesAreThoseOfTheBareHandler(t *testing.T) {
	for name, c := range map[string]struct {
		handler echo.HandlerFunc
		ran     int
	}{
		"JSON":               {func(c echo.Context) error { return c.JSON(201, map[string]int{"id": 1}) }, 1},
		"nothing":            {func(echo.Context) error { return nil }, 1},
		"HTTPError 422":      {func(echo.Context) error { return echo.NewHTTPError(422, "no") }, 1},
		"HTTPError 503":      {func(echo.Context) error { return echo.NewHTTPError(503, "later") }, 2},
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
			look := func(c echo.Context) seen {
				return seen{c.Response().Status, c.Response().Size, c.Response().Committed}
			}
			var inside, outside seen
			ran := 0
			serve := func(mw ...echo.MiddlewareFunc) *echo.Echo {
				e := newEcho()
				e.Use(out(func(c echo.Context, err error) error {
					if err != nil {
						c.Error(err)
					}
					outside = look(c)
					return nil
				}))
				e.POST("/orders", func(ctx echo.Context) error {
					ran++
					err := c.handler(ctx)
					inside = look(ctx)
					return err
				}, mw...)
				return e
			}
			want := post(serve(), "/orders", "x")
			bareInside, bareOutside := inside, outside
			ran = 0
			e := serve(echoidem.New(guard(core.Policy{Failed: core.FailedByStatus})))
			first := post(e, "/orders", "x")
			require.Equal(t, want.Code, first.Code)
			require.Equal(t, want.Result().Header, first.Result().Header)
			require.Equal(t, want.Body, first.Body)
			require.Equal(t, bareInside, inside)
			require.Equal(t, bareOutside, outside)

			again := post(e, "/orders", "x")
			require.Equal(t, c.ran, ran)
			require.Equal(t, c.ran == 1, replayed(again))
			require.Equal(t, want.Body, again.Body)
			require.Equal(t, want.Code, outside.status)
		})
	}
}

func TestFinish(t *testing.T) {
	mapErrors := out(func(_ echo.Context, err error) error {
		if errors.Is(err, errBroke) {
			return echo.NewHTTPError(422, "mapped")
		}
		return err
	})
	swallow := out(func(echo.Context, error) error { return nil })
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
	}{
		"mapped": {mapErrors, broke, 422, `{"message":"mapped"}` + "\n", 1},
		"left over": {mapErrors, func(echo.Context) error { return echo.NewHTTPError(409, "mine") },
			409, `{"message":"mine"}` + "\n", 1},
		"left over, 500": {mapErrors, func(echo.Context) error { return errors.New("other") }, 500,
			`{"message":"Internal Server Error"}` + "\n", 2},
		"committed, error": {mapErrors, func(c echo.Context) error { _ = c.String(201, "fine"); return errBroke }, 201, "fine", 1},
		"swallowed":        {swallow, broke, 200, "", 2},
		"bypassed":         {bypass, broke, 422, "bypassed", 2},
		"bypassed, no err": {bypass, func(echo.Context) error { return nil }, 200, "bypassed", 2},
	} {
		t.Run(name, func(t *testing.T) {
			var last core.Event
			var run context.Context
			ran := 0
			e := newEcho()
			e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c echo.Context) error {
					w := c.Response().Writer
					err := next(c)
					// An error is handed on, with a response that takes no more.
					if err == nil {
						assert.Equal(t, w, c.Response().Writer)
					} else {
						assert.True(t, c.Response().Committed)
					}
					return err
				}
			}, echoidem.Finish(), c.outer)
			e.POST("/orders", func(ctx echo.Context) error {
				ran++
				run = ctx.Request().Context()
				return c.handler(ctx)
			}, echoidem.New(guard(core.Policy{Failed: core.FailedByStatus}, &last)))
			first := post(e, "/orders", "{}")
			require.Equal(t, c.status, first.Code)
			require.Equal(t, c.body, first.Body.String())
			require.Equal(t, c.ran == 1, last.Kind == core.Completed, last.Kind)
			require.Error(t, run.Err(), "the run has ended")
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

// What has gone out past the recorder, or before it was there, is delivered and not replayed: nobody knows all of it. And
// behind it goes no other answer, be it a refusal, or that of whoever recovers from a panic.
func TestAnswersThatWereNotSeenWhole(t *testing.T) {
	text := func(s string) echo.HandlerFunc { return func(c echo.Context) error { return c.String(200, s) } }
	keepWriter := func(c echo.Context) error {
		c.Set("writer", c.Response().Writer)
		return nil
	}
	past := func(c echo.Context) error {
		c.Response().Writer = c.Get("writer").(http.ResponseWriter)
		return c.String(200, "past it")
	}
	then := func(first echo.HandlerFunc, then func(c echo.Context) error) echo.HandlerFunc {
		return func(c echo.Context) error { _ = first(c); return then(c) }
	}
	breaks, panics := func(echo.Context) error { return errBroke }, func(echo.Context) error { panic("oops") }
	for name, c := range map[string]struct {
		front, handler echo.HandlerFunc
		body           string
		kept           bool
	}{
		"begun in front":         {text("in front, "), text("behind"), "in front, behind", true},
		"past it":                {keepWriter, past, "past it", true},
		"past it, with an error": {keepWriter, then(past, breaks), "past it", true},
		"in front, and a panic":  {text("begun"), then(text(" and gone on"), panics), "begun", false},
		"past it, and a panic":   {keepWriter, then(past, panics), "past it", false},
		"streamed, and a panic": {keepWriter, then(text("begun"), func(c echo.Context) error {
			c.Response().Flush()
			panic("oops")
		}), "begun", false},
		"in front, and refused": {text("in front"),
			func(echo.Context) error { return core.NewRefusal(codes.InProgress, nil) }, "in front", false},
		"in front, and given up": {func(c echo.Context) error {
			ctx, cancel := context.WithTimeout(c.Request().Context(), 10*time.Millisecond)
			context.AfterFunc(ctx, cancel)
			c.SetRequest(c.Request().WithContext(ctx))
			return c.String(200, "in front")
		}, func(c echo.Context) error { <-c.Request().Context().Done(); return nil }, "in front", false},
	} {
		for _, finish := range []bool{false, true} {
			t.Run(fmt.Sprint(name, finish), func(t *testing.T) {
				ran := 0
				front := []echo.MiddlewareFunc{recovering}
				if finish {
					front = append(front, echoidem.Finish())
				}
				front = append(front, in(func(ctx echo.Context) { require.NoError(t, c.front(ctx)) }))
				e := guarded(func(ctx echo.Context) error { ran++; return c.handler(ctx) }, front...)
				require.Equal(t, c.body, post(e, "/orders", "{}").Body.String())
				if c.kept {
					require.Contains(t, post(e, "/orders", "{}").Body.String(), `"code":"result_unavailable"`)
					require.Equal(t, 1, ran)
				}
			})
		}
	}
}

// A guard waits for Finish only if there is something left to render: what has been answered is finished, and a panic further out does
// not undo it. But a middleware that renders the handler's error, and then panics, has answered nothing: whoever recovers does.
func TestAPanicBehindTheAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		handler echo.HandlerFunc
		status  int
		ran     int
	}{
		"answered":               {func(c echo.Context) error { return c.String(201, "made") }, 201, 1},
		"answered, and an error": {func(c echo.Context) error { _ = c.String(201, "made"); return errBroke }, 201, 1},
		"rendered":               {func(echo.Context) error { return errBroke }, 500, 2},
	} {
		t.Run(name, func(t *testing.T) {
			ran := 0
			e := guarded(func(ctx echo.Context) error { ran++; return c.handler(ctx) }, recovering, echoidem.Finish(),
				out(func(c echo.Context, err error) error {
					if err != nil && !c.Response().Committed {
						_ = c.String(422, "rendered")
					}
					panic("further out")
				}))
			require.Equal(t, c.status, post(e, "/orders", "{}").Code)
			require.Equal(t, c.status, post(e, "/orders", "{}").Code)
			require.Equal(t, c.ran, ran)
		})
	}
}

// Whoever stands in front has its request back, also after a panic, and finds in it what net/http cleans up after; the error comes as
// it is.
func TestTheRequestIsGivenBack(t *testing.T) {
	const form = "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--b--\r\n"
	engine, failing := core.MustNew(core.Config{User: core.SharedByAllCallers()}),
		idemtest.New(t, core.Config{User: core.SharedByAllCallers()})
	failing.Fail(idemtest.Acquire)
	protected, open := echoidem.New(engine.MustGuard(core.Policy{})), echoidem.New(failing.MustGuard(core.Policy{FailOpen: true}))
	for name, mw := range map[string][]echo.MiddlewareFunc{
		"guarded":            {protected},
		"guarded, finished":  {echoidem.Finish(), protected},
		"open":               {open},
		"open, and finished": {echoidem.Finish(), open},
		"verified":           {echoidem.Verify(signtest.NewVerifier())},
	} {
		for _, panics := range []bool{false, true} {
			t.Run(fmt.Sprint(name, panics), func(t *testing.T) {
				e := newEcho()
				e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
					return func(c echo.Context) (err error) {
						before := c.Request()
						defer func() {
							_ = recover()
							assert.Same(t, before, c.Request())
							assert.NotNil(t, before.MultipartForm)
							assert.Equal(t, !panics, err == errBroke)
							_, ok := echoidem.Verified(c)
							assert.False(t, ok)
						}()
						return next(c)
					}
				})
				e.POST("/orders/:id", func(c echo.Context) error {
					assert.Equal(t, "1", c.FormValue("a"))
					if panics {
						panic("oops")
					}
					return errBroke
				}, mw...)
				signtest.Serve(t, e, signtest.Demo, form, "Content-Type", "multipart/form-data; boundary=b")
			})
		}
	}
}

// What was dropped is not seen further out: the refusal in the place of the handler's own answer is the only one that access logs count,
// and after a panic there is none.
func TestWhatWasDroppedIsNotSeen(t *testing.T) {
	for name, c := range map[string]struct {
		handler echo.HandlerFunc
		status  int
	}{
		"refused":  {func(echo.Context) error { return core.NewRefusal(codes.InProgress, nil) }, 409},
		"panicked": {func(echo.Context) error { panic("oops") }, 200},
	} {
		t.Run(name, func(t *testing.T) {
			var seen echo.Response
			e := guarded(func(ctx echo.Context) error { _ = ctx.String(500, "the bank refuses"); return c.handler(ctx) },
				func(next echo.HandlerFunc) echo.HandlerFunc {
					return func(c echo.Context) error {
						defer func() {
							_ = recover()
							seen = *c.Response()
						}()
						return next(c)
					}
				})
			w := post(e, "/orders", "{}")
			require.Equal(t, c.status, w.Code)
			require.NotContains(t, w.Body.String(), "bank")
			require.Equal(t, c.status, seen.Status)
			require.EqualValues(t, w.Body.Len(), seen.Size)
			require.Equal(t, name == "refused", seen.Committed)
		})
	}
}

// Where no guard is, Finish leaves errors to whoever stands in front; and where the HTTPErrorHandler has left an error alone, so does
// a guard, which knows of no answer then.
func TestErrorsThatAreLeftToOthers(t *testing.T) {
	var last core.Event
	ran := 0
	e := newEcho()
	e.HTTPErrorHandler = func(error, echo.Context) {}
	e.Use(out(func(c echo.Context, err error) error {
		if err != nil && !c.Response().Committed {
			return c.String(422, "in front")
		}
		return nil
	}))
	finished := e.Group("/finished", echoidem.Finish())
	fails := func(echo.Context) error { ran++; return errBroke }
	guarded := echoidem.New(guard(core.Policy{}, &last))
	e.POST("/orders", fails, guarded)
	finished.POST("/orders", fails, guarded)
	finished.POST("/unguarded", fails)
	for i, target := range []string{"/orders", "/orders", "/finished/orders", "/finished/unguarded"} {
		require.Equal(t, "in front", post(e, target, "{}").Body.String(), target)
		require.Equal(t, i+1, ran)
		require.ErrorIs(t, last.Err, adapter.ErrUnrendered)
	}
	e.HTTPErrorHandler = e.DefaultHTTPErrorHandler
	require.Equal(t, "in front", post(e, "/finished/unguarded", "{}").Body.String())
}

// Only what says that the body is too large is 413.
func TestAnErrorOfABodyIsNotAlwaysTooLarge(t *testing.T) {
	for _, status := range []int{400, 413} {
		e := guarded(func(echo.Context) error { return nil }, in(func(c echo.Context) {
			c.Request().Body = io.NopCloser(iotest.ErrReader(echo.NewHTTPError(status, http.StatusText(status))))
		}))
		require.Equal(t, status, post(e, "/orders", "{}").Code)
	}
}

// errorBody is what the error handler makes of the error "no".
const errorBody = "{\"error\":\"no\"}\n"

// Middleware further out sees the handler's error, though the guard has rendered it; and what it
// then does with it, as Echo's own Logger does, is not a second answer.
func TestErrorsAreSeenFurtherOutAndRenderedOnce(t *testing.T) {
	for name, front := range map[string][]echo.MiddlewareFunc{
		"reported": nil,
		"finished": {echoidem.Finish()},
		// as RequestLogger with HandleError
		"finished around a logger that renders": {echoidem.Finish(), out(func(c echo.Context, err error) error {
			if err != nil {
				c.Error(err)
			}
			return err
		})},
		"guarded twice":    {echoidem.New(guard(core.Policy{Key: core.Header(core.Required)}))},
		"logged by values": {requestLogger(t)},
		"compressed":       {middleware.Gzip()},
		"dumped":           {middleware.BodyDump(func(_ echo.Context, _, body []byte) { require.Equal(t, errorBody, string(body)) })},
	} {
		t.Run(name, func(t *testing.T) {
			var reported []error
			size := int64(0)
			report := out(func(c echo.Context, err error) error { // as middleware for Sentry does
				reported, size = append(reported, err), c.Response().Size
				return err
			})
			failure := errors.New("no")
			rendered := 0
			e := newEcho()
			e.HTTPErrorHandler = func(err error, c echo.Context) {
				rendered++
				_ = c.JSON(http.StatusUnprocessableEntity, map[string]string{"error": err.Error()})
			}
			e.Use(report)
			e.Use(front...)
			e.Use(report)
			e.POST("/orders", func(echo.Context) error { return failure },
				echoidem.New(guard(core.Policy{Record: core.Record{OnFailure: core.Keep}})))
			ask := func() *httptest.ResponseRecorder {
				r, w := httptest.NewRequest("POST", "/orders", nil), httptest.NewRecorder()
				r.Header.Set("X-User", "alice")
				r.Header.Set("Idempotency-Key", "k")
				e.ServeHTTP(w, r)
				return w
			}
			first := ask()
			require.Equal(t, 422, first.Code)
			require.Equal(t, errorBody, first.Body.String())
			require.ErrorIs(t, reported[0], failure)
			require.ErrorIs(t, reported[len(reported)-1], failure)
			require.EqualValues(t, len(errorBody), size, "a second answer does not count")
			if front == nil || name == "guarded twice" {
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

// What Before hooks add is in the answer already; and whoever stands in front has its writer back, with a response that says what was sent.
func TestBeforeHooksDoNotDoubleFields(t *testing.T) {
	after := 0
	e := guarded(func(c echo.Context) error { return c.String(201, "x") }, func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			below := c.Response().Writer
			c.Response().Before(func() { c.Response().Header().Add("Vary", "Origin") })
			c.Response().After(func() { after++ })
			assert.NoError(t, next(c))
			assert.Equal(t, below, c.Response().Writer)
			assert.True(t, c.Response().Committed)
			assert.Equal(t, 201, c.Response().Status)
			return nil
		}
	})
	for i := range 2 {
		w := post(e, "/orders", "")
		require.Equal(t, 201, w.Code)
		require.Equal(t, "x", w.Body.String())
		require.Equal(t, i == 1, replayed(w))
		require.Equal(t, []string{"Origin"}, w.Header()["Vary"])
		require.Equal(t, i+1, after)
	}
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
	e.POST("/", func(c echo.Context) error { return c.NoContent(201) }, echoidem.New(guard(core.Policy{})))
	post(e, "/", "body")
	if x := echoidem.Pooled(); !reflect.ValueOf(x).IsZero() {
		t.Errorf("an exchange in the pool has %+v", x)
	}
}

// Who has no tokens to issue learns it when the routes are made, and not by the first request.
func TestIssueTokenWithoutTokens(t *testing.T) {
	require.PanicsWithValue(t, `idem: the key of the policy "orders" is no Token: there is nothing to issue`, func() {
		echoidem.IssueToken(guard(core.Policy{Name: "orders"}))
	})
}

// Nobody has signed that a POST is to be a DELETE. And behind the router, none is a GET, which would go past a guard.
func TestMethodOverride(t *testing.T) {
	routed := newEcho()
	routed.Use(middleware.MethodOverride())
	routed.POST("/orders", func(c echo.Context) error { return c.NoContent(204) },
		echoidem.New(guard(core.Policy{Key: core.Header(core.Required)})))
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
	entered, leave, left := make(chan struct{}, 9), make(chan struct{}), make(chan struct{})
	e := newEcho()
	//lint:ignore SA1019 what is deployed uses it
	timeout := middleware.TimeoutWithConfig(middleware.TimeoutConfig{Timeout: time.Millisecond})
	e.POST("/orders", func(echo.Context) error {
		entered <- struct{}{}
		<-leave
		close(left)
		return nil
	}, echoidem.New(guard(core.Policy{})), timeout)
	require.Equal(t, 503, post(e, "/orders", "{}").Code)
	<-entered
	require.Contains(t, post(e, "/orders", "{}").Body.String(), "in_progress")
	close(leave)
	<-left
}
