package fiberidem_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/logger"
	"github.com/gofiber/fiber/v2/middleware/timeout"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/fiberidem"
)

// Where Fiber does not know the route yet, events show where the guard is mounted.
func TestEventsShowWhereTheGuardIsMounted(t *testing.T) {
	for name, tc := range map[string]struct {
		mount func(app *fiber.App, g fiber.Handler)
		want  string
	}{
		"everywhere":    {func(app *fiber.App, g fiber.Handler) { app.Use(g) }, "POST /*"},
		"a prefix":      {func(app *fiber.App, g fiber.Handler) { app.Use("/api", g) }, "POST /api/*"},
		"a group":       {func(app *fiber.App, g fiber.Handler) { app.Group("/api/:tenant", g) }, "POST /api/:tenant/*"},
		"all of a path": {func(app *fiber.App, g fiber.Handler) { app.Post("/api/*", g) }, "POST /api/*"},
	} {
		t.Run(name, func(t *testing.T) {
			var routes []string
			g := newEngine(t, func(e core.Event) {
				if e.Kind != core.StoreIsLocal {
					routes = append(routes, e.Route)
				}
			}).MustGuard(core.Policy{})
			app := newApp()
			tc.mount(app, fiberidem.New(g))
			app.Post("/api/secret/orders/:id", func(c *fiber.Ctx) error { return c.SendStatus(201) })
			resp, err := app.Test(httptest.NewRequest("POST", "/api/secret/orders/7", nil))
			require.NoError(t, err)
			require.Equal(t, 201, resp.StatusCode)
			require.Equal(t, []string{tc.want, tc.want}, routes)
		})
	}
}

// What has no value as a parameter is no route; events show which one it was taken for.
func TestEventsShowTheRouteOfABadEscape(t *testing.T) {
	var routes []string
	app := newApp()
	app.Post("/orders/:id", fiberidem.New(newEngine(t, func(e core.Event) {
		if e.Kind != core.StoreIsLocal {
			routes = append(routes, e.Route)
		}
	}).MustGuard(core.Policy{})), func(c *fiber.Ctx) error { return c.SendStatus(201) })
	r := httptest.NewRequest("POST", "/orders/7", nil)
	r.RequestURI, r.URL.Opaque = "/orders/100%", "/orders/100%"
	resp, err := app.Test(r)
	require.NoError(t, err)
	require.Equal(t, 201, resp.StatusCode)
	require.Equal(t, []string{"POST /orders/:id", "POST /orders/:id"}, routes)
}

// Whoever recovers from a panic finds the response as it was in front of the guard, Content-Type and all.
func TestAPanicLeavesNothingOfTheAnswer(t *testing.T) {
	for _, media := range []string{"", "application/x-outer"} {
		app := newApp()
		app.Use(func(c *fiber.Ctx) error {
			defer func() { _ = recover() }() // and says nothing
			if media != "" {
				c.Set("Content-Type", media)
			}
			return c.Next()
		})
		app.Post("/orders", fiberidem.New(newEngine(t).MustGuard(core.Policy{})), func(c *fiber.Ctx) error {
			c.Set("Content-Type", "application/pdf")
			_ = c.Status(201).SendString("made")
			panic("oops")
		})
		resp, err := app.Test(httptest.NewRequest("POST", "/orders", nil))
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		require.Equal(t, media, resp.Header.Get("Content-Type"))
		require.Zero(t, resp.ContentLength)
	}
}

// A child is what Fiber makes of this program with Prefork; it has a store that no other child sees.
func TestPreforkedProcessesNeedAStoreThatTheyShare(t *testing.T) {
	if fiber.IsChild() {
		for _, policy := range []core.Policy{{}, {FailOpen: true}} {
			var events []core.Event
			app, ran := newApp(), 0
			app.Post("/orders", fiberidem.New(newEngine(t, func(e core.Event) { events = append(events, e) }).MustGuard(policy)),
				func(c *fiber.Ctx) error { ran++; return c.SendStatus(201) })
			for range 2 {
				resp, err := app.Test(httptest.NewRequest("POST", "/orders", nil))
				require.NoError(t, err)
				require.Equal(t, 500, resp.StatusCode)
				require.Equal(t, "store_not_shared", resp.Header.Get(core.RefusedHeader))
				require.ErrorContains(t, events[len(events)-1].Err, "Prefork")
			}
			require.Zero(t, ran)
		}
		fmt.Println("both children of Prefork's have refused")
		return
	}
	child := exec.Command(os.Args[0], "-test.run=^TestPreforkedProcessesNeedAStoreThatTheyShare$")
	child.Env = append(os.Environ(), "FIBER_PREFORK_CHILD=1")
	out, err := child.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "have refused")
}

// Middleware that wants to see errors stands between Finish and the guard: there they are handed on.
func TestTheLoggerSeesErrorsUnderFinish(t *testing.T) {
	var log bytes.Buffer
	rendered := 0
	app := newApp(fiber.Config{ErrorHandler: func(c *fiber.Ctx, err error) error {
		rendered++
		return c.Status(422).SendString(fmt.Sprintf("%v, number %d", err, rendered))
	}})
	app.Use(fiberidem.Finish(), logger.New(logger.Config{Format: "${status} ${error}\n", Output: &log}))
	app.Post("/orders", fiberidem.New(newEngine(t).MustGuard(core.Policy{OnFailure: core.Keep})),
		func(*fiber.Ctx) error { return errors.New("no stock") })
	s := serve(t, app)
	first := s.post("/orders", "")
	require.Equal(t, "no stock, number 1", first.body)
	require.Equal(t, "422 no stock\n", log.String())
	again := s.post("/orders", "")
	require.True(t, again.replayed())
	require.Equal(t, first.body, again.body)
	require.Equal(t, 1, rendered)
}

// Fiber's own timeout races with itself, and is not to be used; but the claim stands while its
// handler runs on.
func TestNothingRunsBesideAHandlerThatRunsOn(t *testing.T) {
	if raceEnabled {
		t.Skip("Fiber's timeout is a race")
	}
	for _, finish := range []bool{false, true} {
		var running sync.WaitGroup
		entered, leave := make(chan struct{}, 9), make(chan struct{})
		app := newApp()
		if finish {
			app.Use(fiberidem.Finish())
		}
		//lint:ignore SA1019 what is deployed uses it
		limited := timeout.New(func(*fiber.Ctx) error {
			running.Add(1)
			defer running.Done()
			entered <- struct{}{}
			<-leave
			return nil
		}, time.Millisecond)
		app.Post("/orders", fiberidem.New(newEngine(t).MustGuard(core.Policy{})), limited)
		app.Post("/late", fiberidem.New(newEngine(t).MustGuard(core.Policy{})), func(c *fiber.Ctx) error {
			c.Context().TimeoutErrorWithCode("late", 503)
			return nil
		})
		s := serve(t, app)
		require.Equal(t, 408, s.post("/orders", "").status)
		<-entered
		for range 2 {
			require.Equal(t, "in_progress", s.post("/orders", "").header.Get(core.RefusedHeader))
		}
		close(leave)
		running.Wait()

		require.Equal(t, 503, s.post("/late", "").status)
		require.Equal(t, "in_progress", s.post("/late", "").header.Get(core.RefusedHeader))
	}
}
