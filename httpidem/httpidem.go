package httpidem

import (
	"context"
	"net/http"
	"reflect"
	"sync"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core"
)

// New returns middleware that protects a handler with g. It is safe for concurrent use, and
// may be mounted on any number of handlers: the route is part of the key. Mount it
// inside the router, on the handler, so that it sees the route's pattern.
//
// Mount it in front of middleware that reads bodies. A form that was read counts as it was parsed
// (r.PostForm, r.MultipartForm). Any other body that was read, in whole or in part, is refused: 500
// body_consumed. See [Finish] for chunked bodies.
//
// An error in writing to the client is dropped: the client has gone.
//
// It panics if it is mounted around an [http.TimeoutHandler], which answers while its handler runs on.
// Mount the guard inside.
func New(g *core.Guard, opts ...Option) func(http.Handler) http.Handler {
	m := &middleware{guard: g}
	for _, o := range opts {
		o(m)
	}
	return func(next http.Handler) http.Handler {
		if reflect.TypeOf(next) == timeoutHandler {
			panic("httpidem: a guard is mounted around an http.TimeoutHandler, which lets its handler run on; write http.TimeoutHandler(httpidem.New(guard)(handler), …)")
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			x := exchanges.Get().(*exchange)
			x.Start(x, r)
			x.middleware, x.w, x.r, x.next = m, w, r, next
			_ = g.Serve(r.Context(), x)
			if x.End() { // after a panic it stays out of the pool: somebody may still hold it
				*x = exchange{}
				exchanges.Put(x)
			}
		})
	}
}

var timeoutHandler = reflect.TypeOf(http.TimeoutHandler(nil, 0, ""))

// Option changes what [New] makes.
type Option func(*middleware)

// WithRoute takes the route from a router that does not set r.Pattern. fn returns the
// pattern, in the syntax of net/http, chi or gorilla ("/orders/{id}"), and the decoded
// values of its parameters in the pattern's order; an empty pattern means that no route has
// matched. It is called concurrently.
//
//	httpidem.WithRoute(func(r *http.Request) (string, []core.Pair) {
//		pattern, _ := mux.CurrentRoute(r).GetPathTemplate() // gorilla
//		return pattern, []core.Pair{{Name: "id", Value: mux.Vars(r)["id"]}}
//	})
func WithRoute(fn func(*http.Request) (pattern string, params []core.Pair)) Option {
	return func(m *middleware) { m.route = fn }
}

// Run returns the run that a handler is part of, or nil, which answers like a first attempt.
func Run(r *http.Request) *core.Run { return core.RunFrom(r.Context()) }

// Replayed reports whether the response in w is a replay, for middleware further out.
func Replayed(w http.ResponseWriter) bool { return adapterkit.Replayed(w) }

// UserFromContext takes the user from the value that authentication middleware has put
// into the request's context under key, see [core.UserFromValue].
func UserFromContext(key any) core.UserSource {
	return adapterkit.UserFrom("net/http", func(r *http.Request) any { return r.Context().Value(key) })
}

type middleware struct {
	guard    *core.Guard
	route    func(*http.Request) (string, []core.Pair)
	patterns patterns
}

// exchange is one request and its response. Exchanges are pooled.
type exchange struct {
	adapterkit.Exchange
	middleware *middleware
	w          http.ResponseWriter
	r          *http.Request
	next       http.Handler
}

var exchanges = sync.Pool{New: func() any { return new(exchange) }}

func (x *exchange) Describe(r *core.Request) {
	x.Exchange.Describe(r)
	r.Native = x.r
	if x.middleware.route == nil {
		x.middleware.patterns.describe(x.r, r)
		return
	}
	pattern, params := x.middleware.route(x.r)
	if pattern == "" {
		r.Route, r.Unmatched = adapterkit.HostOf(x.r)+adapterkit.SentPath(x.r), true
		return
	}
	rt := parsePattern(pattern, false)
	r.Route = rt.spelling
	if rt.host == "" {
		r.Route = adapterkit.HostOf(x.r) + r.Route
	}
	r.PathParams = append(r.PathParams, params...)
}

func (x *exchange) Writer() http.ResponseWriter     { return x.w }
func (x *exchange) SetWriter(w http.ResponseWriter) { x.w = w }

func (x *exchange) Record(context.Context) (*adapterkit.Recorder, http.ResponseWriter) {
	r := new(adapterkit.Recorder)
	return r, r
}

func (x *exchange) Next(r *http.Request) error {
	defer adapterkit.Adopt(x.r, r)
	x.next.ServeHTTP(x.w, r)
	return nil
}
