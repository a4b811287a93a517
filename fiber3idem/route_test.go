package fiber3idem_test

import (
	"net/http"

	"github.com/gofiber/fiber/v3"

	"github.com/idem-go/idem/internal/fibertest"
)

// routes are mounted in ways that Fiber v2 does not have.
var routes = []fibertest.Route[fiber.Ctx]{
	route("RouteChain", func(f *fiber.App, guard fiber.Handler) {
		f.RouteChain("/orders/:id").Post(guard, ok)
	}, "/orders/7", "/orders/:id", "id=7"),
	route("RouteChain.RouteChain", func(f *fiber.App, guard fiber.Handler) {
		f.RouteChain("/orders").RouteChain("/:id").Post(guard, ok)
	}, "/orders/7", "/orders/:id", "id=7"),
	route("RouteChain.All", func(f *fiber.App, guard fiber.Handler) {
		f.RouteChain("/orders").All(guard).Post(ok)
	}, "/orders", "/orders", ""),
	route("Route", func(f *fiber.App, guard fiber.Handler) {
		f.Route("/api", func(r fiber.Router) { r.Post("/orders/:id", guard, ok) })
	}, "/api/orders/7", "/api/orders/:id", "id=7"),
	route("Use with several prefixes", func(f *fiber.App, guard fiber.Handler) {
		f.Use([]string{"/api", "/v1"}, guard)
		f.Post("/v1/orders/:id", ok)
	}, "/v1/orders/7", "/v1/orders/7", ""),
	route("a value that was overridden", func(f *fiber.App, guard fiber.Handler) {
		f.Post("/orders/:id", func(c fiber.Ctx) error { c.OverrideParam("id", "8"); return c.Next() }, guard, ok)
	}, "/orders/7", "/orders/:id", "id=8"),
	route("a handler of net/http", func(f *fiber.App, guard fiber.Handler) {
		f.Post("/orders/:id", guard, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201) })
	}, "/orders/7", "/orders/:id", "id=7"),
	{Name: "a custom context", App: func(guard fiber.Handler) fibertest.App[fiber.Ctx] {
		f := fiber.NewWithCustomCtx(newCustomCtx)
		f.Post("/orders/:id", guard, ok)
		return app{router{f}, f}
	}, Path: "/orders/7", Want: "/orders/:id", Params: "id=7"},
}

func route(name string, mount func(f *fiber.App, guard fiber.Handler), path, want, params string) fibertest.Route[fiber.Ctx] {
	return fibertest.Route[fiber.Ctx]{Name: name, App: func(guard fiber.Handler) fibertest.App[fiber.Ctx] {
		f := fiber.New()
		mount(f, guard)
		return app{router{f}, f}
	}, Path: path, Want: want, Params: params}
}

func ok(c fiber.Ctx) error { return c.SendString("ok") }

// customCtx is a context of an application's own.
type customCtx struct{ fiber.DefaultCtx }

func newCustomCtx(app *fiber.App) fiber.CustomCtx {
	return &customCtx{DefaultCtx: *fiber.NewDefaultCtx(app)}
}
