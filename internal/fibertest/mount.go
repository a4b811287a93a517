package fibertest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/core"
)

// Where Fiber does not know the route yet, events show where the guard is mounted.
func (s suite[C]) testEventsShowWhereTheGuardIsMounted(t *testing.T) {
	for name, tc := range map[string]struct {
		mount func(app App[C], g Handler[C])
		path  string
		want  string
	}{
		"everywhere":    {func(app App[C], g Handler[C]) { app.Use(g) }, "/api/secret", "POST /*"},
		"a prefix":      {func(app App[C], g Handler[C]) { app.UseAt("/api", g) }, "/api/secret", "POST /api/*"},
		"a group":       {func(app App[C], g Handler[C]) { app.Group("/api/:tenant", g) }, "/api/secret", "POST /api/:tenant/*"},
		"all of a path": {func(app App[C], g Handler[C]) { app.Add("POST", "/api/*", g) }, "/api/secret", "POST /api/*"},
		"a bad escape":  {func(app App[C], g Handler[C]) { app.Add("POST", "/api/:id", g) }, "/api/100%", "POST /api/:id"},
	} {
		t.Run(name, func(t *testing.T) {
			var routes []string
			g := NewEngine(t, func(e core.Event) {
				if e.Kind != core.StoreIsLocal {
					routes = append(routes, e.Route)
				}
			}).MustGuard(core.Policy{})
			app := s.newApp()
			tc.mount(app, s.New(g))
			app.Add("POST", "/api/:id", func(c C) error { return c.SendStatus(201) })
			ctx := NewRequestCtx("POST", tc.path, "")
			app.Handler()(ctx)
			require.Equal(t, 201, ctx.Response.StatusCode())
			require.Equal(t, []string{tc.want, tc.want}, routes)
		})
	}
}

// A child is what Fiber makes of this program for Prefork; it has a store that no other child sees.
func (s suite[C]) testPreforkedProcessesNeedAStoreThatTheyShare(t *testing.T) {
	if s.Child {
		for _, policy := range []core.Policy{{}, {FailOpen: true}} {
			var last error
			app, ran := s.newApp(), 0
			app.Add("POST", "/orders", s.New(NewEngine(t, func(e core.Event) { last = e.Err }).MustGuard(policy)),
				func(c C) error { ran++; return c.SendStatus(201) })
			for range 2 {
				ctx := NewRequestCtx("POST", "/orders", "")
				app.Handler()(ctx)
				require.Equal(t, 500, ctx.Response.StatusCode())
				require.Equal(t, "store_not_shared", string(ctx.Response.Header.Peek(core.RefusedHeader)))
				require.ErrorContains(t, last, "Prefork")
			}
			require.Zero(t, ran)
		}
		fmt.Println("both children of Prefork's have refused")
		return
	}
	child := exec.Command(os.Args[0], "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$")
	child.Env = append(os.Environ(), "FIBER_PREFORK_CHILD=1", "FASTHTTP_PREFORK_CHILD=1") // Fiber v3.3 goes by fasthttp's
	out, err := child.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "have refused")
}

// Middleware that wants to see errors stands between Finish and the guard: there they are handed on.
func (s suite[C]) testTheLoggerSeesErrorsUnderFinish(t *testing.T) {
	var log bytes.Buffer
	rendered := 0
	app := s.NewApp(Config{}, func(c C, err error) error {
		rendered++
		return c.Status(422).SendString(fmt.Sprintf("%v, number %d", err, rendered))
	})
	app.Use(s.Finish(), s.Logger("${status} ${error}\n", &log))
	app.Add("POST", "/orders", s.mounted(t, core.Policy{Record: core.Record{OnFailure: core.Keep}}),
		func(C) error { return errors.New("no stock") })
	service := s.serve(t, app)
	first := service.Post("/orders", "")
	require.Equal(t, 422, first.Status)
	require.Equal(t, "no stock, number 1", first.Body)
	require.Equal(t, "422 no stock\n", log.String())
	again := service.Post("/orders", "")
	require.True(t, again.Replayed())
	require.Equal(t, 422, again.Status)
	require.Equal(t, first.Body, again.Body)
	require.Equal(t, WithoutDate(first.Header), WithoutDate(again.Header))
	require.Equal(t, 1, rendered)
}

func (s suite[C]) testMountedAppsErrorHandler(t *testing.T) {
	sub := s.NewApp(Config{}, func(c C, err error) error {
		return c.Status(418).SendString("sub: " + err.Error())
	})
	sub.Add("POST", "/orders", s.mounted(t, core.Policy{Failed: core.FailedByStatus}), func(C) error {
		return errors.New("no")
	})
	app := s.newApp()
	app.Mount("/api", sub)
	service := s.serve(t, app)
	first, again := service.Post("/api/orders", ""), service.Post("/api/orders", "")
	require.Equal(t, 418, first.Status)
	require.Equal(t, "sub: no", again.Body)
	require.True(t, again.Replayed())
}

// Who has no tokens to issue learns it when the routes are made, and not by the first request.
func (s suite[C]) testIssueTokenWithoutTokens(t *testing.T) {
	require.PanicsWithValue(t, `idem: the key of the policy "orders" is no Token: there is nothing to issue`, func() {
		s.IssueToken(NewEngine(t).MustGuard(core.Policy{Name: "orders"}))
	})
}

// The handler's answer counts if a timeout in front has answered meanwhile, also where the first request came without that timeout.
func (s suite[C]) testATimeoutInFrontOfSome(t *testing.T) {
	leave, ended := make(chan struct{}), make(chan core.Kind, 9)
	app := s.newApp()
	app.Add("POST", "/:id", s.New(NewEngine(t, func(e core.Event) {
		if e.Kind != core.StoreIsLocal && e.Kind != core.Started {
			ended <- e.Kind
		}
	}).MustGuard(core.Policy{})), func(c C) error {
		if c.Params("id") == "late" {
			<-leave
		}
		return c.SendString("made")
	})
	handler := app.Handler()
	handler(NewRequestCtx("POST", "/early", ""))
	require.Equal(t, core.Completed, <-ended)
	ctx := NewRequestCtx("POST", "/late", "")
	fasthttp.TimeoutWithCodeHandler(handler, time.Millisecond, "too late", 503)(ctx)
	require.Equal(t, 503, ctx.LastTimeoutErrorResponse().StatusCode())
	close(leave)
	require.Equal(t, core.Completed, <-ended)
	again := NewRequestCtx("POST", "/late", "")
	handler(again)
	require.Equal(t, "made", string(again.Response.Body()))
	require.Equal(t, core.Replayed, <-ended)
}

// A middleware in front may end a stream when its context serves another request already.
func (s suite[C]) testTheEndOfAStreamAddsNothing(t *testing.T) {
	app := s.newApp()
	app.Add("POST", "/", s.mounted(t, core.Policy{Key: core.Header(core.Required, core.EchoKey())}), func(c C) error {
		c.Response().SetBodyStream(strings.NewReader("all"), -1)
		return nil
	})
	ctx := NewRequestCtx("POST", "/", "")
	ctx.Request.Header.Set(core.DefaultKeyHeader, "k-1")
	app.Handler()(ctx)
	stream := ctx.Response.BodyStream()
	_, err := io.Copy(io.Discard, stream)
	require.NoError(t, err)
	require.NoError(t, stream.(io.Closer).Close())
	require.Empty(t, ctx.Response.Header.Peek(core.DefaultKeyHeader))
}
