package fibertest

import (
	"strings"
	"testing"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
)

// Place is what an adapter tells the core of a request's route. That of a path without one is followed by where the guard is mounted.
type Place struct{ Route, Params string }

// Spy makes a guard that notes where each request came in.
func Spy(t testing.TB, seen *Place) *core.Guard {
	return NewEngine(t).MustGuard(core.Policy{User: core.UserFunc(func(r *adapter.Request) (core.User, error) {
		var params []string
		for _, p := range r.PathParams {
			params = append(params, p.Name+"="+p.Value)
		}
		*seen = Place{strings.TrimSpace(r.Route + " " + r.Mount), strings.Join(params, "&")}
		return core.User{Shared: true}, nil
	})})
}

// Routes are patterns of Fiber's, and what a guard on a route learns of a path.
var Routes = []struct {
	Name, Pattern, Path string
	Want                Place
	Unescaped           bool // with fiber.Config.UnescapePath
}{
	{Name: "static", Pattern: "/orders", Path: "/orders?x=1", Want: Place{"/orders", ""}},
	{Name: "slash at the end", Pattern: "/orders", Path: "/orders/", Want: Place{"/orders", ""}},
	{Name: "another case", Pattern: "/orders", Path: "/ORDERS", Want: Place{"/orders", ""}},
	{Name: "parameter", Pattern: "/orders/:id/pay", Path: "/orders/A7/pay", Want: Place{"/orders/:id/pay", "id=A7"}},
	{Name: "escaped", Pattern: "/orders/:id/pay", Path: "/orders/a%2Fb%20c/pay", Want: Place{"/orders/:id/pay", "id=a/b c"}},
	{Name: "plus is plus", Pattern: "/orders/:id", Path: "/orders/a+b", Want: Place{"/orders/:id", "id=a+b"}},
	{Name: "bad escape", Pattern: "/orders/:id", Path: "/orders/%zz", Want: Place{"/orders/%zz /orders/:id", ""}},
	{Name: "unescaped by Fiber", Pattern: "/orders/:id", Path: "/orders/%252F", Want: Place{"/orders/:id", "id=%2F"}, Unescaped: true},
	{Name: "optional, not there", Pattern: "/orders/:id?", Path: "/orders", Want: Place{"/orders/:id", "id="}},
	{Name: "constraint", Pattern: "/orders/:id<int>", Path: "/orders/7", Want: Place{"/orders/:id", "id=7"}},
	{Name: "wildcard", Pattern: "/files/*", Path: "/files/a/b", Want: Place{"/files/*", "*=a/b"}},
	{Name: "wildcard, escaped", Pattern: "/files/*", Path: "/files/a%2fb%61", Want: Place{"/files/*", "*=a%2Fba"}},
	{Name: "wildcard, bad escape", Pattern: "/files/*", Path: "/files/a%2f%zz", Want: Place{"/files/*", "*=a%2f%zz"}},
	{Name: "wildcard, unescaped by Fiber", Pattern: "/files/*", Path: "/files/a%2fb+%61/",
		Want: Place{"/files/*", "*=a%2Fb+a"}, Unescaped: true},
	{Name: "wildcard, bad escape, unescaped by Fiber", Pattern: "/files/*", Path: "/files/%zz",
		Want: Place{"/files/%zz /files/*", ""}, Unescaped: true},
	{Name: "two wildcards, unescaped by Fiber", Pattern: "/a/*/b/*", Path: "/a/1%2F2/b/1/2",
		Want: Place{"/a/1%2F2/b/1/2", ""}, Unescaped: true},
	{Name: "wildcard, empty", Pattern: "/files/*", Path: "/files/", Want: Place{"/files/*", "*="}},
	{Name: "wildcard, two slashes", Pattern: "/files/*", Path: "/files//a", Want: Place{"/files/*", "*=/a"}},
	{Name: "plus", Pattern: "/files/+", Path: "/files/a/b", Want: Place{"/files/*", "*=a/b"}},
	{Name: "two wildcards", Pattern: "/a/*/b/*", Path: "/a/%31%2f/b/2", Want: Place{"/a/*/b/*", "*1=1%2F&*2=2"}},
	{Name: "plus and wildcard", Pattern: "/a/+/b/*", Path: "/a/1/b/2", Want: Place{"/a/*/b/*", "*1=1&*2=2"}},
	{Name: "escaped colon", Pattern: `/jobs\:run`, Path: "/jobs:run", Want: Place{"/jobs:run", ""}},
}
