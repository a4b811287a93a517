package fiber3idem_test

import (
	"context"
	"errors"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/fiber3idem"
	"github.com/idem-go/idem/internal/fibertest"
	"github.com/idem-go/idem/sign/signtest"
)

// mounted returns the handler of a new guard.
func mounted(t *testing.T, p core.Policy) fiber.Handler {
	return fiber3idem.New(fibertest.NewEngine(t).MustGuard(p))
}

func ok(c fiber.Ctx) error { return c.SendString("ok") }

func at(route, params string) fibertest.Place { return fibertest.Place{Route: route, Params: params} }

// A process is what Fiber makes of this program for Prefork; it has a store that no other one sees.
func TestPreforkedProcessesNeedAStoreThatTheyShare(t *testing.T) {
	t.Setenv("FIBER_PREFORK_CHILD", "1")
	t.Setenv("FASTHTTP_PREFORK_CHILD", "1") // Fiber v3.3 goes by fasthttp's
	app := newApp()
	app.Post("/orders", mounted(t, core.Policy{}), func(fiber.Ctx) error { panic("it has run") })
	for range 2 {
		ctx := fibertest.NewRequestCtx("POST", "/orders", "")
		app.Handler()(ctx)
		require.Equal(t, "store_not_shared", string(ctx.Response.Header.Peek(core.RefusedHeader)))
	}
}

func TestMountedAppsErrorHandler(t *testing.T) {
	sub := newApp(fiber.Config{ErrorHandler: func(c fiber.Ctx, err error) error {
		return c.Status(418).SendString("sub: " + err.Error())
	}})
	sub.Post("/orders", mounted(t, core.Policy{Failed: core.FailedByStatus}), func(fiber.Ctx) error {
		return errors.New("no")
	})
	app := newApp()
	app.Use("/api", sub)
	serve(t, app).PostTwice("/api/orders", 418, "sub: no", true)
}

// What the guard adds to bare Fiber, with a client key and a JSON body of 200 bytes.
func TestAllocations(t *testing.T) {
	created := func(c fiber.Ctx) error {
		c.Set("Content-Type", "application/json")
		c.Set("Location", "/orders/1")
		return c.Status(201).SendString(fibertest.OrderJSON)
	}
	bare, guarded := newApp(), newApp()
	bare.Post("/orders/:id", created)
	guarded.Post("/orders/:id", mounted(t, core.Policy{Key: core.Header(core.Required)}), created)
	fibertest.Allocations(t, bare.Handler(), guarded.Handler())
}

func TestRoutes(t *testing.T) {
	type mount func(app *fiber.App, guard fiber.Handler)
	cases := []struct {
		name  string
		mount mount
		path  string
		want  fibertest.Place
	}{
		{"All", func(app *fiber.App, guard fiber.Handler) { app.All("/orders/:id", guard, ok) },
			"/orders/7", at("/orders/:id", "id=7")},
		{"in a group with a parameter", func(app *fiber.App, guard fiber.Handler) {
			app.Group("/:tenant").Post("/orders/:id", guard, ok)
		}, "/t1/orders/7", at("/:tenant/orders/:id", "tenant=t1&id=7")},
		{"in a mounted app", func(app *fiber.App, guard fiber.Handler) {
			inner, outer := newApp(), newApp()
			inner.Post("/orders/:id", guard, ok)
			outer.Use("/v1", inner)
			app.Use("/api", outer)
		}, "/api/v1/orders/7", at("/api/v1/orders/:id", "id=7")},
		{"mounted under a parameter", func(app *fiber.App, guard fiber.Handler) {
			// Fiber mixes the values up: c.Params("id") is the tenant.
			sub := newApp()
			sub.Post("/orders/:id", guard, ok)
			app.Use("/:tenant", sub)
		}, "/t1/orders/7", at("/t1/orders/7", "")},
		{"Use with a prefix", func(app *fiber.App, guard fiber.Handler) {
			app.Use("/orders/:id", guard)
			app.Post("/orders/:id/pay", ok)
		}, "/orders/7/pay", at("/orders/7/pay /orders/:id/*", "")},
		{"Use in a mounted app", func(app *fiber.App, guard fiber.Handler) {
			sub := newApp()
			sub.Use(guard)
			sub.Post("/orders/:id", ok)
			app.Use("/api", sub)
		}, "/api/orders/7", at("/api/orders/7 /api/*", "")},
		{"Use and a route of the same path", func(app *fiber.App, guard fiber.Handler) {
			app.Use("/orders", guard)
			app.Post("/orders", ok)
		}, "/orders", at("/orders /orders/*", "")},
		{"one slice for a group and a route", func(app *fiber.App, guard fiber.Handler) {
			handlers := []fiber.Handler{guard, func(c fiber.Ctx) error { return c.Next() }}
			app.Group("/:x", anyOf(handlers)...)
			app.Post("/orders", ok)
			app.Post("/:x", handlers[0], anyOf(handlers[1:])...)
		}, "/orders", at("/orders /:x/*", "")},
	}
	check := func(t *testing.T, seen *fibertest.Place, app *fiber.App, path string, want fibertest.Place) {
		handler := app.Handler()
		for range 2 { // the second time from the cache
			*seen = fibertest.Place{}
			handler(fibertest.NewRequestCtx("POST", path, ""))
			require.Equal(t, want, *seen)
		}
	}
	for _, tc := range fibertest.Routes {
		t.Run(tc.Name, func(t *testing.T) {
			var seen fibertest.Place
			app := newApp(fiber.Config{UnescapePath: tc.Unescaped})
			app.Post(tc.Pattern, fiber3idem.New(fibertest.Spy(t, &seen)), ok)
			check(t, &seen, app, tc.Path, tc.Want)
		})
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			var seen fibertest.Place
			app := newApp()
			tc.mount(app, fiber3idem.New(fibertest.Spy(t, &seen)))
			check(t, &seen, app, tc.path, tc.want)
		})
	}
}

// Errors go to the ErrorHandler as they are, and the context is given back, also after a panic.
func TestContextIsRestored(t *testing.T) {
	type mark struct{}
	app := newApp(fiber.Config{ErrorHandler: func(c fiber.Ctx, err error) error { return c.Status(418).SendString(err.Error()) }})
	app.Use(func(c fiber.Ctx) (err error) {
		outer := context.WithValue(context.Background(), mark{}, 1)
		c.SetContext(outer)
		defer func() {
			if v := recover(); v != nil {
				err = errors.New("recovered")
			}
			assert.Equal(t, outer, c.Context())
			_, ok := fiber3idem.Verified(c)
			assert.False(t, ok)
		}()
		return c.Next()
	})
	app.Post("/", fiber3idem.Verify(signtest.NewVerifier()), func(c fiber.Ctx) error {
		assert.Equal(t, 1, c.Context().Value(mark{}))
		if c.Query("panic") != "" {
			panic("boom")
		}
		return errors.New("ours")
	})
	service := serve(t, app)
	assert.Equal(t, "ours", service.Do(service.Signed(signtest.Demo, "/", "{}")).Body)
	assert.Equal(t, "recovered", service.Do(service.Signed(signtest.Demo, "/?panic=1", "{}")).Body)
}
