package fibertest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
)

// place is what an adapter tells the core of a request's route.
type place struct {
	route  string
	params string
}

func (p place) String() string { return p.route + " " + p.params }

// spy makes a guard that notes where each request came in.
func spy(t testing.TB, seen *place) *core.Guard {
	return NewEngine(t).MustGuard(core.Policy{User: core.UserFunc(func(r *adapter.Request) (core.User, error) {
		var params []string
		for _, p := range r.PathParams {
			params = append(params, p.Name+"="+p.Value)
		}
		*seen = place{strings.Clone(r.Route), strings.Join(params, "&")}
		return core.User{Shared: true}, nil
	})})
}

func (s suite[C]) testRoutes(t *testing.T) {
	ok := func(c C) error { return c.SendString("ok") }
	type mount func(app App[C], guard Handler[C])
	post := func(pattern string) mount {
		return func(app App[C], guard Handler[C]) { app.Add("POST", pattern, guard, ok) }
	}
	cases := []struct {
		name   string
		config Config
		mount  mount
		path   string
		want   place
	}{
		{"static", Config{}, post("/orders"), "/orders?x=1", place{"/orders", ""}},
		{"slash at the end", Config{}, post("/orders"), "/orders/", place{"/orders", ""}},
		{"another case", Config{}, post("/orders"), "/ORDERS", place{"/orders", ""}},
		{"parameter", Config{}, post("/orders/:id/pay"), "/orders/A7/pay", place{"/orders/:id/pay", "id=A7"}},
		{"escaped", Config{}, post("/orders/:id/pay"), "/orders/a%2Fb%20c/pay", place{"/orders/:id/pay", "id=a/b c"}},
		{"escaped twice", Config{}, post("/orders/:id"), "/orders/%252F", place{"/orders/:id", "id=%2F"}},
		{"plus is plus", Config{}, post("/orders/:id"), "/orders/a+b", place{"/orders/:id", "id=a+b"}},
		{"bad escape", Config{}, post("/orders/:id"), "/orders/%zz", place{"/orders/%zz", ""}},
		{"unescaped by Fiber", Config{UnescapePath: true}, post("/orders/:id"), "/orders/%252F", place{"/orders/:id", "id=%2F"}},
		{"immutable", Config{Immutable: true}, post("/orders/:id"), "/orders/7", place{"/orders/:id", "id=7"}},
		{"optional, there", Config{}, post("/orders/:id?"), "/orders/7", place{"/orders/:id", "id=7"}},
		{"optional, not there", Config{}, post("/orders/:id?"), "/orders", place{"/orders/:id", "id="}},
		{"constraint", Config{}, post("/orders/:id<int>"), "/orders/7", place{"/orders/:id", "id=7"}},
		{"two in a segment", Config{}, post("/flights/:from-:to"), "/flights/LAX-SFO", place{"/flights/:from-:to", "from=LAX&to=SFO"}},
		{"wildcard", Config{}, post("/files/*"), "/files/a/b", place{"/files/*", "*=a/b"}},
		{"wildcard, escaped", Config{}, post("/files/*"), "/files/a%2fb%61", place{"/files/*", "*=a%2Fba"}},
		{"wildcard, bad escape", Config{}, post("/files/*"), "/files/a%2f%zz", place{"/files/*", "*=a%2f%zz"}},
		{"wildcard, unescaped by Fiber", Config{UnescapePath: true}, post("/files/*"), "/files/a%2fb+%61/", place{"/files/*", "*=a%2Fb+a"}},
		{"wildcard, bad escape, unescaped by Fiber", Config{UnescapePath: true}, post("/files/*"), "/files/%zz", place{"/files/%zz", ""}},
		{"two wildcards, unescaped by Fiber", Config{UnescapePath: true}, post("/a/*/b/*"), "/a/1%2F2/b/1/2", place{"/a/1%2F2/b/1/2", ""}},
		{"wildcard, empty", Config{}, post("/files/*"), "/files/", place{"/files/*", "*="}},
		{"wildcard, two slashes", Config{}, post("/files/*"), "/files//a", place{"/files/*", "*=/a"}},
		{"plus", Config{}, post("/files/+"), "/files/a/b", place{"/files/*", "*=a/b"}},
		{"everything", Config{}, post("/*"), "/a/b", place{"/*", "*=a/b"}},
		{"two wildcards", Config{}, post("/a/*/b/*"), "/a/%31%2f/b/2", place{"/a/*/b/*", "*1=1%2F&*2=2"}},
		{"plus and wildcard", Config{}, post("/a/+/b/*"), "/a/1/b/2", place{"/a/*/b/*", "*1=1&*2=2"}},
		{"escaped colon", Config{}, post(`/jobs\:run`), "/jobs:run", place{"/jobs:run", ""}},
		{"a name twice", Config{}, post("/:id/x/:id"), "/1/x/2", place{"/1/x/2", ""}},
		{"All", Config{}, func(app App[C], guard Handler[C]) { app.All("/orders/:id", guard, ok) },
			"/orders/7", place{"/orders/:id", "id=7"}},
		{"in a group", Config{}, func(app App[C], guard Handler[C]) {
			app.Group("/api").Group("/v1").Add("POST", "/orders/:id", guard, ok)
		}, "/api/v1/orders/7", place{"/api/v1/orders/:id", "id=7"}},
		{"in a group with a parameter", Config{}, func(app App[C], guard Handler[C]) {
			app.Group("/:tenant").Add("POST", "/orders/:id", guard, ok)
		}, "/t1/orders/7", place{"/:tenant/orders/:id", "tenant=t1&id=7"}},
		{"in a mounted app", Config{}, func(app App[C], guard Handler[C]) {
			inner, outer := s.newApp(), s.newApp()
			inner.Add("POST", "/orders/:id", guard, ok)
			outer.Mount("/v1", inner)
			app.Mount("/api", outer)
		}, "/api/v1/orders/7", place{"/api/v1/orders/:id", "id=7"}},
		{"mounted under a parameter", Config{}, func(app App[C], guard Handler[C]) {
			// Fiber mixes the values up: c.Params("id") is the tenant.
			sub := s.newApp()
			sub.Add("POST", "/orders/:id", guard, ok)
			app.Mount("/:tenant", sub)
		}, "/t1/orders/7", place{"/t1/orders/7", ""}},
		{"Use", Config{}, func(app App[C], guard Handler[C]) {
			app.Use(guard)
			app.Add("POST", "/orders/:id", ok)
		}, "/orders/a%2Fb?x=1", place{"/orders/a%2Fb", ""}},
		{"Use with a prefix", Config{}, func(app App[C], guard Handler[C]) {
			app.UseAt("/orders/:id", guard)
			app.Add("POST", "/orders/:id/pay", ok)
		}, "/orders/7/pay", place{"/orders/7/pay", ""}},
		{"Group", Config{}, func(app App[C], guard Handler[C]) {
			app.Group("/api", guard).Add("POST", "/orders/:id", ok)
		}, "/api/orders/7", place{"/api/orders/7", ""}},
		{"Group.Use", Config{}, func(app App[C], guard Handler[C]) {
			api := app.Group("/api")
			api.Use(guard)
			api.Add("POST", "/orders/:id", ok)
		}, "/api/orders/7", place{"/api/orders/7", ""}},
		{"Use in a mounted app", Config{}, func(app App[C], guard Handler[C]) {
			sub := s.newApp()
			sub.Use(guard)
			sub.Add("POST", "/orders/:id", ok)
			app.Mount("/api", sub)
		}, "/api/orders/7", place{"/api/orders/7", ""}},
		{"Use and a route of the same path", Config{}, func(app App[C], guard Handler[C]) {
			app.UseAt("/orders", guard)
			app.Add("POST", "/orders", ok)
		}, "/orders", place{"/orders", ""}},
		{"one slice for a group and a route", Config{}, func(app App[C], guard Handler[C]) {
			handlers := []Handler[C]{guard, func(c C) error { return c.Next() }}
			app.Group("/:x", handlers...)
			app.Add("POST", "/orders", ok)
			app.Add("POST", "/:x", handlers...)
		}, "/orders", place{"/orders", ""}},
		{"no route at all", Config{}, func(app App[C], guard Handler[C]) { app.Use(guard) },
			"/nowhere", place{"/nowhere", ""}},
	}
	check := func(t *testing.T, seen *place, app App[C], path string, want place) {
		handler := app.Handler()
		for range 2 { // the second time from the cache
			*seen = place{}
			handler(NewRequestCtx("POST", path, ""))
			require.Equal(t, want, *seen)
		}
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			var seen place
			app := s.NewApp(tc.config, nil)
			tc.mount(app, s.New(spy(t, &seen)))
			check(t, &seen, app, tc.path, tc.want)
		})
	}
	for _, r := range s.Routes {
		t.Run(r.Name, func(t *testing.T) {
			var seen place
			check(t, &seen, r.App(s.New(spy(t, &seen))), r.Path, place{r.Want, r.Params})
		})
	}
}

// Route is a way to a guard, and what the guard learns of it.
type Route[C any] struct {
	Name         string
	App          func(guard Handler[C]) App[C]
	Path         string
	Want, Params string
}
