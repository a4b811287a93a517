package fiber3idem_test

import (
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/fiber3idem"
	"github.com/idem-go/idem/internal/fibertest"
)

// Ways to mount a guard that Fiber v2 does not have.
func TestRoutesOfVersion3(t *testing.T) {
	custom := fiber.NewWithCustomCtx(newCustomCtx)
	for _, tc := range []struct {
		name  string
		app   *fiber.App
		mount func(f *fiber.App, guard fiber.Handler)
		path  string
		want  fibertest.Place
	}{
		{"RouteChain", nil, func(f *fiber.App, guard fiber.Handler) {
			f.RouteChain("/orders/:id").Post(guard, ok)
		}, "/orders/7", at("/orders/:id", "id=7")},
		{"RouteChain.RouteChain", nil, func(f *fiber.App, guard fiber.Handler) {
			f.RouteChain("/orders").RouteChain("/:id").Post(guard, ok)
		}, "/orders/7", at("/orders/:id", "id=7")},
		{"RouteChain.All", nil, func(f *fiber.App, guard fiber.Handler) {
			f.RouteChain("/orders").All(guard).Post(ok)
		}, "/orders", at("/orders /orders/*", "")},
		{"Route", nil, func(f *fiber.App, guard fiber.Handler) {
			f.Route("/api", func(r fiber.Router) { r.Post("/orders/:id", guard, ok) })
		}, "/api/orders/7", at("/api/orders/:id", "id=7")},
		{"Use with several prefixes", nil, func(f *fiber.App, guard fiber.Handler) {
			f.Use([]string{"/api", "/v1"}, guard)
			f.Post("/v1/orders/:id", ok)
		}, "/v1/orders/7", at("/v1/orders/7 /v1/*", "")},
		{"a value that was overridden", nil, func(f *fiber.App, guard fiber.Handler) {
			f.Post("/orders/:id", func(c fiber.Ctx) error { c.OverrideParam("id", "8"); return c.Next() }, guard, ok)
		}, "/orders/7", at("/orders/:id", "id=8")},
		{"a handler of net/http", nil, func(f *fiber.App, guard fiber.Handler) {
			f.Post("/orders/:id", guard, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201) })
		}, "/orders/7", at("/orders/:id", "id=7")},
		{"a custom context", custom, func(f *fiber.App, guard fiber.Handler) { f.Post("/orders/:id", guard, ok) },
			"/orders/7", at("/orders/:id", "id=7")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var seen fibertest.Place
			app := tc.app
			if app == nil {
				app = newApp()
			}
			tc.mount(app, fiber3idem.New(fibertest.Spy(t, &seen)))
			for range 2 { // the second time from the cache
				seen = fibertest.Place{}
				app.Handler()(fibertest.NewRequestCtx("POST", tc.path, ""))
				require.Equal(t, tc.want, seen)
			}
		})
	}
}

// customCtx is a context of an application's own.
type customCtx struct{ fiber.DefaultCtx }

func newCustomCtx(app *fiber.App) fiber.CustomCtx {
	return &customCtx{DefaultCtx: *fiber.NewDefaultCtx(app)}
}
