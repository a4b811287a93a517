package echotest

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

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
)

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

func (s suite[C]) testRoutes(t *testing.T) {
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
	} {
		t.Run(c.pattern+" "+c.target, func(t *testing.T) {
			var got adapter.Request
			g := guard(core.Policy{Key: core.Func(func(r *adapter.Request) (string, error) {
				got.Route, got.PathParams = r.Route, append([]adapter.Pair(nil), r.PathParams...)
				return "k", nil
			})})
			e := s.NewApp()
			e.Use(s.New(g.Guard))
			handler := func(C) error { return nil }
			e.Add("POST", c.pattern, handler)
			e.Host("shop.test", s.New(g.Guard)).Add("POST", c.pattern, handler)
			post(e, c.target, "")
			require.Equal(t, c.route, got.Route)
			require.Equal(t, c.params, got.PathParams)
		})
	}
}

func (s suite[C]) testPre(t *testing.T) {
	g := guard(core.Policy{})
	ran := 0
	e := s.NewApp()
	e.Pre(s.New(g.Guard))
	e.Add("POST", "/orders/:id", func(c C) error { ran++; return c.String(201, c.Param("id")) })
	require.Equal(t, "7", post(e, "/orders/7", "").Body.String())
	require.Equal(t, "8", post(e, "/orders/8", "").Body.String())
	require.True(t, replayed(post(e, "/orders/7", "")))
	require.Equal(t, 2, ran)
}

var errBroke = errors.New("broke")

func (s suite[C]) testResponsesAreThoseOfTheBareHandler(t *testing.T) {
	for name, c := range map[string]struct {
		handler Handler[C]
		ran     int
	}{
		"JSON":               {func(c C) error { return c.JSON(201, map[string]int{"id": 1}) }, 1},
		"nothing":            {func(C) error { return nil }, 1},
		"no content":         {func(c C) error { return c.NoContent(204) }, 1},
		"redirect":           {func(c C) error { return c.Redirect(303, "/receipts/1") }, 1},
		"sniffed":            {func(c C) error { _, err := s.response(c).Write([]byte("<html></html>")); return err }, 1},
		"stream":             {func(c C) error { return c.Stream(201, "text/x", strings.NewReader("from a reader")) }, 1},
		"cookie":             {func(c C) error { c.SetCookie(&http.Cookie{Name: "a", Value: "b"}); return c.NoContent(201) }, 1},
		"HTTPError 422":      {func(C) error { return s.HTTPError(422, "no") }, 1},
		"HTTPError 503":      {func(C) error { return s.HTTPError(503, "later") }, 2},
		"error":              {func(C) error { return errBroke }, 2},
		"committed, error":   {func(c C) error { _ = c.String(201, "body"); return errBroke }, 1},
		"rendered by itself": {func(c C) error { s.HandleError(c, s.HTTPError(422, "no")); return nil }, 1},
		"rendered and returned": {func(c C) error {
			err := s.HTTPError(422, "no")
			s.HandleError(c, err)
			return err
		}, 1},
		"status too late": {func(c C) error { _ = c.String(201, "a"); return c.String(500, "b") }, 1},
		"before hook": {func(c C) error {
			s.response(c).Before(func() { s.response(c).Header().Set("X-Before", "1") })
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
			look := func(c C) seen {
				return seen{*s.response(c).Status, *s.response(c).Size, *s.response(c).Committed}
			}
			ran := 0
			serve := func(mw ...Middleware[C]) *httptest.Server {
				e := s.NewApp()
				e.Use(func(next Handler[C]) Handler[C] {
					return func(c C) error {
						w, r := *s.response(c).Writer, c.Request()
						err := next(c)
						if err != nil {
							s.HandleError(c, err)
						}
						outside = look(c)
						// Behind an error the response takes no more.
						if err == nil && *s.response(c).Writer != w || c.Request() != r {
							outside.status = -1
						}
						return nil
					}
				})
				e.Add("POST", "/orders", func(ctx C) error {
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
			guarded := serve(s.New(guard(core.Policy{Failed: core.FailedByStatus}).Guard))
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

func (s suite[C]) testFinish(t *testing.T) {
	mapErrors := func(next Handler[C]) Handler[C] {
		return func(c C) error {
			err := next(c)
			if errors.Is(err, errBroke) {
				return s.HTTPError(422, "mapped")
			}
			return err
		}
	}
	renderErrors := func(next Handler[C]) Handler[C] {
		return func(c C) error {
			if err := next(c); err != nil {
				return c.String(422, "rendered "+err.Error())
			}
			return nil
		}
	}
	swallow := func(next Handler[C]) Handler[C] {
		return func(c C) error { _ = next(c); return nil }
	}
	bypass := func(next Handler[C]) Handler[C] {
		return func(c C) error {
			w := *s.response(c).Writer
			err := next(c)
			*s.response(c).Writer = w // as compressing middleware does
			if err == nil {
				return c.String(200, "bypassed")
			}
			return c.String(422, "bypassed")
		}
	}
	broke := func(C) error { return errBroke }
	for name, c := range map[string]struct {
		outer   Middleware[C]
		handler Handler[C]
		status  int
		body    string
		ran     int
		kind    core.Kind
	}{
		"mapped":           {mapErrors, broke, 422, `{"message":"mapped"}` + "\n", 1, core.Completed},
		"rendered":         {renderErrors, broke, 422, "rendered broke", 1, core.Completed},
		"left over":        {mapErrors, func(C) error { return s.HTTPError(409, "mine") }, 409, `{"message":"mine"}` + "\n", 1, core.Completed},
		"left over, 500":   {mapErrors, func(C) error { return errors.New("other") }, 500, `{"message":"Internal Server Error"}` + "\n", 2, core.Released},
		"no error":         {mapErrors, func(c C) error { return c.String(201, "fine") }, 201, "fine", 1, core.Completed},
		"committed, error": {mapErrors, func(c C) error { _ = c.String(201, "fine"); return errBroke }, 201, "fine", 1, core.Completed},
		"nothing":          {mapErrors, func(C) error { return nil }, 200, "", 1, core.Completed},
		"swallowed":        {swallow, broke, 200, "", 2, core.Released},
		"bypassed":         {bypass, broke, 422, "bypassed", 2, core.Released},
		"bypassed, no err": {bypass, func(C) error { return nil }, 200, "bypassed", 2, core.Released},
	} {
		t.Run(name, func(t *testing.T) {
			g := guard(core.Policy{Failed: core.FailedByStatus})
			ran := 0
			var run context.Context
			var ended error
			e := s.NewApp()
			e.Use(func(next Handler[C]) Handler[C] {
				return func(c C) error {
					w := *s.response(c).Writer
					err := next(c)
					// An error is handed on, with a response that takes no more.
					if err == nil && *s.response(c).Writer != w || err != nil && !*s.response(c).Committed {
						ended = fmt.Errorf("left behind: %v, %T", err, *s.response(c).Writer)
					}
					return err
				}
			}, s.Finish(), c.outer)
			e.Add("POST", "/orders", func(ctx C) error {
				ran++
				run = ctx.Request().Context()
				return c.handler(ctx)
			}, s.New(g.Guard))
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

func (s suite[C]) recovering(next Handler[C]) Handler[C] { // what middleware.Recover does
	return func(c C) error {
		defer func() {
			if v := recover(); v != nil {
				s.HandleError(c, fmt.Errorf("%v", v))
			}
		}()
		return next(c)
	}
}
