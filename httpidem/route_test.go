package httpidem

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core/adapter"
)

func describe(r *http.Request) adapter.Request {
	var p patterns
	var to adapter.Request
	p.describe(r, &to)
	return to
}

func TestRoutesOfServeMux(t *testing.T) {
	pair := func(name, value string) []adapter.Pair { return []adapter.Pair{{Name: name, Value: value}} }
	for _, c := range []struct {
		pattern, target string
		route           string
		params          []adapter.Pair
	}{
		{"/orders", "/orders?x=1", "/orders", nil},
		{"POST /orders", "/orders", "/orders", nil},
		{"POST \t/orders", "/orders", "/orders", nil},
		{"POST /orders/{id}/pay", "/orders/7/pay", "/orders/:id/pay", pair("id", "7")},
		{"POST /orders/{id}/pay", "/orders/a%2Fb%20c/pay", "/orders/:id/pay", pair("id", "a/b c")},
		{"POST /a/{x}/{y}", "/a/1/2", "/a/:x/:y", []adapter.Pair{{Name: "x", Value: "1"}, {Name: "y", Value: "2"}}},
		{"POST /files/{path...}", "/files/a/b", "/files/*", pair("*", "a/b")},
		{"POST /files/{path...}", "/files/a%2fb%61%3f%23%5b%5d%40", "/files/*", pair("*", "a%2Fba%3F%23%5B%5D%40")},
		{"POST /files/{path...}", "/files/", "/files/*", pair("*", "")},
		{"POST /files/", "/files/a/b%20c", "/files/*", pair("*", "a/b c")},
		{"/files/", "/files/", "/files/*", pair("*", "")},
		{"/", "/any/thing", "/*", pair("*", "any/thing")},
		{"POST /orders/{$}", "/orders/", "/orders/", nil},
		{"/{$}", "/", "/", nil},
		{"/u/{id}/{$}", "/u/7/", "/u/:id/", pair("id", "7")},
		{"POST example.com/orders/{id}", "/orders/7", "example.com/orders/:id", pair("id", "7")},
		{"/u/{id}/files/", "/u/7/files/x/y", "/u/:id/files/*", []adapter.Pair{{Name: "id", Value: "7"}, {Name: "*", Value: "x/y"}}},
		{"/caf%C3%A9/{id}", "/caf%C3%A9/1", "/caf%C3%A9/:id", pair("id", "1")},
	} {
		t.Run(c.pattern+" "+c.target, func(t *testing.T) {
			var got adapter.Request
			mux := http.NewServeMux()
			mux.HandleFunc(c.pattern, func(_ http.ResponseWriter, r *http.Request) { got = describe(r) })
			mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", c.target, nil))
			require.Equal(t, c.route, got.Route)
			require.Equal(t, c.params, got.PathParams)
		})
	}
}

// Routers of others set r.Pattern too, and chi sets the sub-router's part of it only.
func TestRoutesOfOtherRouters(t *testing.T) {
	for _, c := range []struct{ pattern, target, route, params string }{
		{"/orders/{id:[0-9]+}", "/orders/7", "/orders/:id", "id=7"},
		{"/orders/{id:[0-9]{1,3}/?}", "/orders/7", "/orders/:id", "id=7"},
		{"/on/{month}-{day}", "/on/11-21", "/on/:month-:day", "month=11 day=21"},
		{"/files/*", "/files/a/b", "/files/*", "*=a/b"},
		{"/{id}/pay", "/orders/7/pay", "/orders/:id/pay", "id=7"},
		{"/{id}/pay", "/users/7/pay", "/users/:id/pay", "id=7"},
		{"/files/*", "/shop/files/a", "/shop/files/*", "*=a"},
		{"/orders/*", "/orders/7/pay", "/orders/*", "*=7/pay"},
		{"/nothing/{id}/like/it", "/orders/7", "/orders/7", ""},
		{"", "/orders/a%2Fb?x=1", "/orders/a%2Fb", ""},
	} {
		t.Run(c.pattern+" "+c.target, func(t *testing.T) {
			r := httptest.NewRequest("POST", c.target, nil)
			r.Pattern = c.pattern
			for _, v := range [][2]string{{"id", "7"}, {"month", "11"}, {"day", "21"}} {
				r.SetPathValue(v[0], v[1])
			}
			got := describe(r)
			require.Equal(t, c.route, got.Route)
			var params []string
			for _, p := range got.PathParams {
				params = append(params, p.Name+"="+p.Value)
			}
			require.Equal(t, c.params, strings.Join(params, " "))
		})
	}
}

// Two mounts of one mux are two routes, and whether the prefix was stripped before or after
// the pattern was found makes no difference to that.
func TestRoutesBelowStrippedPrefixes(t *testing.T) {
	var got adapter.Request
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = describe(r) })
	inner := http.NewServeMux()
	inner.Handle("POST /orders/{id}", handler)
	inner.Handle("POST /files/", handler)
	outer := http.NewServeMux()
	outer.Handle("/v1/", http.StripPrefix("/v1", inner))
	outer.Handle("/v2/", http.StripPrefix("/v2", inner))
	outer.Handle("/plain/", http.StripPrefix("/plain", handler))
	for target, want := range map[string]string{
		"/v1/orders/7":                 "/v1/orders/:id 7",
		"/v2/orders/7":                 "/v2/orders/:id 7",
		"http://shop.test/v2/orders/7": "/v2/orders/:id 7",
		"/v1/files/a/b":                "/v1/files/* a/b",
		"/plain/orders":                "/plain/* orders",
		"/plain/payments":              "/plain/* payments",
	} {
		r := httptest.NewRequest("POST", target, nil)
		outer.ServeHTTP(httptest.NewRecorder(), r)
		require.Len(t, got.PathParams, 1, target)
		require.Equal(t, want, got.Route+" "+got.PathParams[0].Value, target)
	}
}

func TestRouteOfARewrittenPath(t *testing.T) {
	var got adapter.Request
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{id}", func(_ http.ResponseWriter, r *http.Request) { got = describe(r) })
	mux.HandleFunc("POST /files/", func(_ http.ResponseWriter, r *http.Request) { got = describe(r) })
	r := httptest.NewRequest("POST", "/old-orders/%2F7", nil) // its RawPath stays
	r.URL.Path = "/orders/7"
	mux.ServeHTTP(httptest.NewRecorder(), r)
	require.Equal(t, "/orders/:id", got.Route)

	r.URL.Path, r.URL.RawPath = "/files/a/é", "/files/a%2Fé"
	mux.ServeHTTP(httptest.NewRecorder(), r)
	require.Equal(t, "/files/*[{* a%2Fé}]", fmt.Sprint(got.Route, got.PathParams))

	r = httptest.NewRequest("POST", "/orders/7", nil)
	r.RequestURI = "" // a request that no server has read
	mux.ServeHTTP(httptest.NewRecorder(), r)
	require.Equal(t, "/orders/:id", got.Route)
}

func TestPatternsAreKeptOnceAndWithinBounds(t *testing.T) {
	var p patterns
	require.Same(t, p.get("/orders/{id}"), p.get("/orders/{id}"))
	for i := range maxPatterns + 10 {
		p.get("/" + strconv.Itoa(i))
	}
	require.Len(t, *p.known.Load(), maxPatterns)
}

// A mux further out that chooses by host has made two routes of one.
func TestAHostNamedFurtherOutCounts(t *testing.T) {
	var got adapter.Request
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = describe(r) })
	inner := http.NewServeMux()
	inner.Handle("POST /orders/{id}", handler)
	outer := http.NewServeMux()
	outer.Handle("a.test/", inner)
	outer.Handle("POST b.test/", http.StripPrefix("", inner))
	outer.Handle("c.test/v1/", http.StripPrefix("/v1", inner))
	outer.Handle("/", inner)
	outer.Handle("d.test/plain/", http.StripPrefix("/plain", handler))
	outer.Handle("f.test/moved/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Pattern = "/orders/{id}/items" // by a router that has made another path of it
		handler(w, r)
	}))
	outer.Handle("e.test/lost/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Pattern = "" // by a router that sets none
		handler(w, r)
	}))
	ask := func(handler http.Handler, host, target string) adapter.Request {
		t.Helper()
		got = adapter.Request{}
		r := httptest.NewRequest("POST", target, nil)
		r.Host = host
		r = r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, &http.Server{Handler: handler}))
		outer.ServeHTTP(httptest.NewRecorder(), r)
		return got
	}
	for _, c := range []struct{ host, target, route, event string }{
		{"a.test", "/orders/7", "a.test/orders/:id", ""},
		{"a.test:8080", "/orders/7", "a.test/orders/:id", ""},
		{"b.test", "/orders/7", "b.test/orders/:id", ""},
		{"c.test", "/v1/orders/7", "c.test/v1/orders/:id", "/*/orders/:id"},
		{"other.test", "/orders/7", "/orders/:id", ""},
		{"d.test", "/plain/7", "d.test/plain/*", ""},
		{"e.test", "/lost/7", "e.test/lost/7", ""},
		{"f.test", "/moved/7", "f.test/moved/7", "/orders/:id/items"},
	} {
		r := ask(outer, c.host, c.target)
		require.Equal(t, c.route, r.Route, c.host)
		require.Equal(t, c.event, r.Mount, c.host)
		require.Equal(t, c.event != "" || c.host == "e.test", r.Unmatched, c.host)
	}
	defer func(mux *http.ServeMux) { http.DefaultServeMux = mux }(http.DefaultServeMux)
	http.DefaultServeMux = http.NewServeMux()
	http.Handle("default.test/orders/", http.NotFoundHandler())
	r := httptest.NewRequest("POST", "/orders/7", nil)
	r.Host = "default.test"
	r = r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, new(http.Server)))
	require.Equal(t, "default.test", adapterkit.HostOf(r), "a server without a handler has the default mux")

	wrapped := http.HandlerFunc(outer.ServeHTTP)
	require.Equal(t, "/orders/:id", ask(wrapped, "a.test", "/orders/7").Route, "a wrapped mux cannot be seen")
	require.Equal(t, "d.test/plain/*", ask(wrapped, "d.test", "/plain/7").Route, "but where its own pattern is seen")

	var x exchange
	x.middleware = &middleware{route: func(*http.Request) (string, []adapter.Pair) { return "/orders/{id}", nil }}
	x.r = httptest.NewRequest("POST", "/orders/7", nil)
	x.r.Pattern = "a.test/"
	x.Start(&x, x.r)
	var described adapter.Request
	x.Describe(&described)
	require.Equal(t, "a.test/orders/:id", described.Route, "also with WithRoute")
	x.middleware.route = func(*http.Request) (string, []adapter.Pair) { return "b.test/orders/{id}", nil }
	x.Describe(&described)
	require.Equal(t, "b.test/orders/:id", described.Route)
	x.middleware.route = func(*http.Request) (string, []adapter.Pair) { return "", nil }
	described = adapter.Request{}
	x.Describe(&described)
	require.Equal(t, "a.test/orders/7", described.Route)
	require.True(t, described.Unmatched)
}
