package fasthttpkit

import (
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/require"
)

func TestSpell(t *testing.T) {
	cases := []struct {
		pattern, spelled string
		names            []string // of the parameters; nil: not to be told apart
	}{
		{"/", "/", []string{}},
		{"/orders", "/orders", []string{}},
		{"/orders/", "/orders/", []string{}},
		{"/orders/:id/pay", "/orders/:id/pay", []string{"id"}},
		{"/orders/:id?", "/orders/:id", []string{"id"}},
		{"/orders/:id<int>", "/orders/:id", []string{"id"}},
		{"/orders/:id<int>?", "/orders/:id", []string{"id"}},
		{"/orders/:id<min(1);max(9)>/pay", "/orders/:id/pay", []string{"id"}},
		{`/:day<regex(\\d{4})>`, "/:day", []string{"day"}},
		{"/:a<int>/:b<alpha>", "/:a/:b", []string{"a", "b"}},
		{"/flights/:from-:to", "/flights/:from-:to", []string{"from", "to"}},
		{"/plantae/:genus.:species", "/plantae/:genus.:species", []string{"genus", "species"}},
		{"/files/*", "/files/*", []string{"*"}},
		{"/files/+", "/files/*", []string{"*"}},
		{"/*", "/*", []string{"*"}},
		{"/:a/*", "/:a/*", []string{"a", "*"}},
		{"/a/*/b/*", "/a/*/b/*", []string{"*1", "*2"}},
		{"/a/+/b/*", "/a/*/b/*", []string{"*1", "*2"}},
		{`/v1/jobs\:run`, "/v1/jobs:run", []string{}},
		{`/v1/:job\:run`, "/v1/:job:run", []string{"job"}},
		{"/:id/x/:id", "", nil},
		{"/:id/x/:ID", "", nil},
	}
	for _, tc := range cases {
		app := fiber.New()
		app.Post(tc.pattern, func(*fiber.Ctx) error { return nil })
		route := app.GetRoutes(true)[0]
		spelled, params, ok := spell(route.Path, route.Params)
		require.Equal(t, tc.names != nil, ok, tc.pattern)
		require.Equal(t, tc.spelled, spelled, tc.pattern)
		require.Len(t, params, len(tc.names), tc.pattern)
		for i := range params {
			require.Equal(t, tc.names[i], params[i].Name, tc.pattern)
		}
	}
}

// What spell reads otherwise than Fiber must not pass for a route.
func TestSpellGivesUp(t *testing.T) {
	for _, tc := range []struct {
		pattern string
		names   []string
	}{
		{"/orders/:id", nil},                       // a mount has lost the names
		{"/:tenant/orders/:id", []string{"id"}},    // the same
		{"/orders/:id", []string{"Id"}},            // another name
		{"/:a<int>x/lit", []string{"a"}},           // where does the constraint end?
		{"/:a<regex(x/y)>", []string{"a"}},         // the same
		{"/:a<int", []string{"a"}},                 // nowhere
		{"/orders/*/x/+", []string{"*1", "*2"}},    // + has numbers of its own
		{"/orders/*", []string{"*1", "something"}}, // more names than parameters
	} {
		_, _, ok := spell(tc.pattern, tc.names)
		require.False(t, ok, tc.pattern)
	}
}

func TestUnescape(t *testing.T) {
	p := new(Place)
	for in, want := range map[string]string{
		"plain": "plain", "a%2Fb": "a/b", "a+b": "a+b", "%252F": "%2F", "100%25": "100%", "": "",
	} {
		got, ok := p.unescape(in)
		require.True(t, ok, in)
		require.Equal(t, want, got)
		got, ok = (&Place{Unescaped: true}).unescape(in)
		require.True(t, ok, in)
		require.Equal(t, in, got, "Fiber has done it")
	}
	for _, in := range []string{"%zz", "%", "100%", "%2"} {
		_, ok := p.unescape(in)
		require.False(t, ok, in)
	}
	require.Zero(t, testing.AllocsPerRun(100, func() { p.unescape("no escape in it") }))
}
