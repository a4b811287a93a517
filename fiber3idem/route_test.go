package fiber3idem_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/fiber3idem"
)

// place is what an adapter tells the core of a request's route.
type place struct {
	route  string
	params string
}

func (p place) String() string { return p.route + " " + p.params }

// spy makes a guard that notes where each request came in.
func spy(t testing.TB, seen *place) *core.Guard {
	return newEngine(t).MustGuard(core.Policy{User: core.UserFunc(func(r *core.Request) (core.User, error) {
		var params []string
		for _, p := range r.PathParams {
			params = append(params, p.Name+"="+p.Value)
		}
		*seen = place{strings.Clone(r.Route), strings.Join(params, "&")}
		return core.User{Shared: true}, nil
	})})
}

func TestRoutes(t *testing.T) {
	ok := func(c fiber.Ctx) error { return c.SendString("ok") }
	type mount func(app *fiber.App, guard fiber.Handler)
	post := func(pattern string) mount {
		return func(app *fiber.App, guard fiber.Handler) { app.Post(pattern, guard, ok) }
	}
	cases := []struct {
		name   string
		config fiber.Config
		mount  mount
		path   string
		want   place
	}{
		{"static", fiber.Config{}, post("/orders"), "/orders?x=1", place{"/orders", ""}},
		{"slash at the end", fiber.Config{}, post("/orders"), "/orders/", place{"/orders", ""}},
		{"another case", fiber.Config{}, post("/orders"), "/ORDERS", place{"/orders", ""}},
		{"parameter", fiber.Config{}, post("/orders/:id/pay"), "/orders/A7/pay", place{"/orders/:id/pay", "id=A7"}},
		{"escaped", fiber.Config{}, post("/orders/:id/pay"), "/orders/a%2Fb%20c/pay", place{"/orders/:id/pay", "id=a/b c"}},
		{"escaped twice", fiber.Config{}, post("/orders/:id"), "/orders/%252F", place{"/orders/:id", "id=%2F"}},
		{"plus is plus", fiber.Config{}, post("/orders/:id"), "/orders/a+b", place{"/orders/:id", "id=a+b"}},
		{"bad escape", fiber.Config{}, post("/orders/:id"), "/orders/%zz", place{"/orders/%zz", ""}},
		{"unescaped by Fiber", fiber.Config{UnescapePath: true}, post("/orders/:id"), "/orders/%252F", place{"/orders/:id", "id=%2F"}},
		{"immutable", fiber.Config{Immutable: true}, post("/orders/:id"), "/orders/7", place{"/orders/:id", "id=7"}},
		{"optional, there", fiber.Config{}, post("/orders/:id?"), "/orders/7", place{"/orders/:id", "id=7"}},
		{"optional, not there", fiber.Config{}, post("/orders/:id?"), "/orders", place{"/orders/:id", "id="}},
		{"constraint", fiber.Config{}, post("/orders/:id<int>"), "/orders/7", place{"/orders/:id", "id=7"}},
		{"two in a segment", fiber.Config{}, post("/flights/:from-:to"), "/flights/LAX-SFO", place{"/flights/:from-:to", "from=LAX&to=SFO"}},
		{"wildcard", fiber.Config{}, post("/files/*"), "/files/a/b", place{"/files/*", "*=a/b"}},
		{"wildcard, empty", fiber.Config{}, post("/files/*"), "/files/", place{"/files/*", "*="}},
		{"wildcard, two slashes", fiber.Config{}, post("/files/*"), "/files//a", place{"/files/*", "*=/a"}},
		{"plus", fiber.Config{}, post("/files/+"), "/files/a/b", place{"/files/*", "*=a/b"}},
		{"everything", fiber.Config{}, post("/*"), "/a/b", place{"/*", "*=a/b"}},
		{"two wildcards", fiber.Config{}, post("/a/*/b/*"), "/a/1/b/2", place{"/a/*/b/*", "*1=1&*2=2"}},
		{"plus and wildcard", fiber.Config{}, post("/a/+/b/*"), "/a/1/b/2", place{"/a/*/b/*", "*1=1&*2=2"}},
		{"escaped colon", fiber.Config{}, post(`/jobs\:run`), "/jobs:run", place{"/jobs:run", ""}},
		{"a name twice", fiber.Config{}, post("/:id/x/:id"), "/1/x/2", place{"/1/x/2", ""}},
		{"All", fiber.Config{}, func(app *fiber.App, guard fiber.Handler) { app.All("/orders/:id", guard, ok) },
			"/orders/7", place{"/orders/:id", "id=7"}},
		{"in a group", fiber.Config{}, func(app *fiber.App, guard fiber.Handler) {
			app.Group("/api").Group("/v1").Post("/orders/:id", guard, ok)
		}, "/api/v1/orders/7", place{"/api/v1/orders/:id", "id=7"}},
		{"in a group with a parameter", fiber.Config{}, func(app *fiber.App, guard fiber.Handler) {
			app.Group("/:tenant").Post("/orders/:id", guard, ok)
		}, "/t1/orders/7", place{"/:tenant/orders/:id", "tenant=t1&id=7"}},
		{"in a mounted app", fiber.Config{}, func(app *fiber.App, guard fiber.Handler) {
			inner, outer := fiber.New(), fiber.New()
			inner.Post("/orders/:id", guard, ok)
			outer.Use("/v1", inner)
			app.Use("/api", outer)
		}, "/api/v1/orders/7", place{"/api/v1/orders/:id", "id=7"}},
		{"mounted under a parameter", fiber.Config{}, func(app *fiber.App, guard fiber.Handler) {
			// Fiber mixes the values up: c.Params("id") is the tenant.
			sub := fiber.New()
			sub.Post("/orders/:id", guard, ok)
			app.Use("/:tenant", sub)
		}, "/t1/orders/7", place{"/t1/orders/7", ""}},
		{"Use", fiber.Config{}, func(app *fiber.App, guard fiber.Handler) {
			app.Use(guard)
			app.Post("/orders/:id", ok)
		}, "/orders/a%2Fb?x=1", place{"/orders/a%2Fb", ""}},
		{"Use with a prefix", fiber.Config{}, func(app *fiber.App, guard fiber.Handler) {
			app.Use("/orders/:id", guard)
			app.Post("/orders/:id/pay", ok)
		}, "/orders/7/pay", place{"/orders/7/pay", ""}},
		{"Group", fiber.Config{}, func(app *fiber.App, guard fiber.Handler) {
			app.Group("/api", guard).Post("/orders/:id", ok)
		}, "/api/orders/7", place{"/api/orders/7", ""}},
		{"Group.Use", fiber.Config{}, func(app *fiber.App, guard fiber.Handler) {
			api := app.Group("/api")
			api.Use(guard)
			api.Post("/orders/:id", ok)
		}, "/api/orders/7", place{"/api/orders/7", ""}},
		{"Use in a mounted app", fiber.Config{}, func(app *fiber.App, guard fiber.Handler) {
			sub := fiber.New()
			sub.Use(guard)
			sub.Post("/orders/:id", ok)
			app.Use("/api", sub)
		}, "/api/orders/7", place{"/api/orders/7", ""}},
		{"Use and a route of the same path", fiber.Config{}, func(app *fiber.App, guard fiber.Handler) {
			app.Use("/orders", guard)
			app.Post("/orders", ok)
		}, "/orders", place{"/orders", ""}},
		{"one slice for a group and a route", fiber.Config{}, func(app *fiber.App, guard fiber.Handler) {
			handlers := []fiber.Handler{guard, func(c fiber.Ctx) error { return c.Next() }}
			app.Group("/:x", handlers[0], handlers[1])
			app.Post("/orders", ok)
			app.Post("/:x", handlers[0], handlers[1])
		}, "/orders", place{"/orders", ""}},
		{"RouteChain", fiber.Config{}, func(app *fiber.App, guard fiber.Handler) {
			app.RouteChain("/orders/:id").Post(guard, ok)
		}, "/orders/7", place{"/orders/:id", "id=7"}},
		{"RouteChain.RouteChain", fiber.Config{}, func(app *fiber.App, guard fiber.Handler) {
			app.RouteChain("/orders").RouteChain("/:id").Post(guard, ok)
		}, "/orders/7", place{"/orders/:id", "id=7"}},
		{"RouteChain.All", fiber.Config{}, func(app *fiber.App, guard fiber.Handler) {
			app.RouteChain("/orders").All(guard).Post(ok)
		}, "/orders", place{"/orders", ""}},
		{"Route", fiber.Config{}, func(app *fiber.App, guard fiber.Handler) {
			app.Route("/api", func(r fiber.Router) { r.Post("/orders/:id", guard, ok) })
		}, "/api/orders/7", place{"/api/orders/:id", "id=7"}},
		{"Use with several prefixes", fiber.Config{}, func(app *fiber.App, guard fiber.Handler) {
			app.Use([]string{"/api", "/v1"}, guard)
			app.Post("/v1/orders/:id", ok)
		}, "/v1/orders/7", place{"/v1/orders/7", ""}},
		{"a value that was overridden", fiber.Config{}, func(app *fiber.App, guard fiber.Handler) {
			app.Post("/orders/:id", func(c fiber.Ctx) error { c.OverrideParam("id", "8"); return c.Next() }, guard, ok)
		}, "/orders/7", place{"/orders/:id", "id=8"}},
		{"a handler of net/http", fiber.Config{}, func(app *fiber.App, guard fiber.Handler) {
			app.Post("/orders/:id", guard, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201) })
		}, "/orders/7", place{"/orders/:id", "id=7"}},
		{"a custom context", fiber.Config{}, nil, "/orders/7", place{"/orders/:id", "id=7"}},
		{"no route at all", fiber.Config{}, func(app *fiber.App, guard fiber.Handler) { app.Use(guard) },
			"/nowhere", place{"/nowhere", ""}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			var seen place
			app := fiber.New(tc.config)
			if tc.mount == nil {
				app = fiber.NewWithCustomCtx(newCustomCtx)
				tc.mount = post("/orders/:id")
			}
			tc.mount(app, fiber3idem.New(spy(t, &seen)))
			handler := app.Handler()
			for range 2 { // the second time from the cache
				seen = place{}
				handler(requestCtx("POST", tc.path, ""))
				require.Equal(t, tc.want, seen)
			}
		})
	}
}

// Requests that differ in the path alone are different operations, wherever the guard is.
func TestRoutesDoNotMerge(t *testing.T) {
	paths := []string{
		"/orders", "/refunds", "/orders/1/pay", "/orders/2/pay", "/orders/1/cancel",
		"/files/a", "/files/a/b", "/t1/x/1", "/t1/x/2", "/t2/x/1",
	}
	routes := func(r fiber.Router, handler any, more ...any) {
		for _, pattern := range []string{"/orders", "/refunds", "/orders/:id/pay", "/orders/:id/cancel", "/files/*", "/:tenant/x/:id"} {
			r.Post(pattern, handler, more...)
		}
	}
	mounts := map[string]func(app *fiber.App, guard, handler fiber.Handler) (prefix string){
		"routes": func(app *fiber.App, guard, handler fiber.Handler) string {
			routes(app, guard, handler)
			return ""
		},
		"Use": func(app *fiber.App, guard, handler fiber.Handler) string {
			app.Use(guard)
			routes(app, handler)
			return ""
		},
		"Group": func(app *fiber.App, guard, handler fiber.Handler) string {
			routes(app.Group("/api", guard), handler)
			return "/api"
		},
		"mounted": func(app *fiber.App, guard, handler fiber.Handler) string {
			sub := fiber.New()
			routes(sub, guard, handler)
			app.Use("/api", sub)
			return "/api"
		},
		"mounted under a parameter": func(app *fiber.App, guard, handler fiber.Handler) string {
			sub := fiber.New()
			for _, pattern := range paths {
				sub.Post(pattern+"/:z?", guard, handler)
			}
			app.Use("/:tenant", sub)
			return "/acme"
		},
		"everything": func(app *fiber.App, guard, handler fiber.Handler) string {
			app.Post("/*", guard, handler)
			return ""
		},
	}
	for name, mount := range mounts {
		t.Run(name, func(t *testing.T) {
			var runs atomic.Int32
			app := fiber.New()
			prefix := mount(app, fiber3idem.New(newEngine(t).MustGuard(core.Policy{})), func(c fiber.Ctx) error {
				return c.SendString(fmt.Sprint(c.OriginalURL(), " ", runs.Add(1)))
			})
			handler := app.Handler()
			bodies := map[string]string{}
			for _, path := range paths {
				ctx := requestCtx("POST", prefix+path, `{"same":1}`)
				handler(ctx)
				body := string(ctx.Response.Body())
				require.True(t, strings.HasPrefix(body, prefix+path+" "), "%s got %q", path, body)
				bodies[path] = body
			}
			require.EqualValues(t, len(paths), runs.Load())
			for _, path := range paths {
				ctx := requestCtx("POST", prefix+path, `{"same":1}`)
				handler(ctx)
				require.Equal(t, bodies[path], string(ctx.Response.Body()))
			}
			require.EqualValues(t, len(paths), runs.Load())
		})
	}
}

// Methods, too, are different operations.
func TestMethodsDoNotMerge(t *testing.T) {
	var runs atomic.Int32
	app := fiber.New()
	app.All("/orders/:id", fiber3idem.New(newEngine(t).MustGuard(core.Policy{})), func(c fiber.Ctx) error {
		runs.Add(1)
		return c.SendString(c.Method())
	})
	for range 2 {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
			ctx := requestCtx(method, "/orders/1", "")
			app.Handler()(ctx)
			require.Equal(t, method, string(ctx.Response.Body()))
		}
	}
	require.EqualValues(t, 4, runs.Load())
}

// customCtx is a context of an application's own.
type customCtx struct{ fiber.DefaultCtx }

func newCustomCtx(app *fiber.App) fiber.CustomCtx {
	return &customCtx{DefaultCtx: *fiber.NewDefaultCtx(app)}
}
