package httpidem

import (
	"net/http"
	"reflect"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/sign"
)

// New returns middleware that protects a handler with g. It is safe for concurrent use, and
// may be mounted on any number of handlers: the route is part of the key. Mount it
// inside the router, on the handler, so that it sees the route's pattern.
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
			panic("httpidem: a guard is mounted around an http.TimeoutHandler, which lets its handler run on; use " +
				"http.TimeoutHandler(httpidem.New(guard)(handler), …)")
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			x := exchangeOf(m, w, r)
			x.next = next
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
// matched. A wildcard at the end of the pattern is the last parameter; what of its value stays escaped (see
// [adapter.Request].PathParams) is taken from r.URL. fn is called concurrently.
//
//	httpidem.WithRoute(func(r *http.Request) (string, []adapter.Pair) {
//		pattern, _ := mux.CurrentRoute(r).GetPathTemplate() // gorilla
//		return pattern, []adapter.Pair{{Name: "id", Value: mux.Vars(r)["id"]}}
//	})
func WithRoute(fn func(*http.Request) (pattern string, params []adapter.Pair)) Option {
	return func(m *middleware) { m.route = fn }
}

// Run returns the run that a handler is part of, or nil, which answers like a first attempt.
func Run(r *http.Request) *core.Run { return core.RunFrom(r.Context()) }

// Replayed reports whether the response in w is a replay, for middleware further out.
func Replayed(w http.ResponseWriter) bool { return adapterkit.Replayed(w) }

// UserFromContext takes the user from the value that authentication middleware has put
// into the request's context under key, see [adapterkit.UserFromValue].
func UserFromContext(key any) core.UserSource {
	return adapterkit.UserFrom("net/http", key, func(r *http.Request) any { return r.Context().Value(key) })
}

// Finish returns middleware that counts how much of a request's body is read before the guards and
// verifiers inside it, see the package comment. Mount it outside all middleware that reads bodies.
func Finish() func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			counted := adapterkit.CountBody(r)
			defer adapterkit.Adopt(r, counted, counted, counted.Context())
			next.ServeHTTP(w, counted)
		})
	}
}

// Verify returns middleware that passes requests that v verifies, and answers all others.
// sign.From(r.Context()) tells the handler who has signed, and a guard inside it takes the key's owner
// for its user (see core.Config.User). Mount it outside the guard: a failed signature then creates no
// record, and an unsigned request gets no stored answer. Mounted twice around a handler, it refuses
// every request, whose nonce the first has used.
//
// It is safe for concurrent use, and may be mounted on any number of handlers. An error in
// writing a refusal is dropped.
func Verify(v *sign.Verifier) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			verified, refusal := adapterkit.Verify(v, r)
			if refusal != nil {
				_ = adapterkit.Answer(w, refusal)
				return
			}
			defer adapterkit.Adopt(r, verified, verified, verified.Context())
			next.ServeHTTP(w, verified)
		})
	}
}

// IssueToken returns a handler that answers {"token":"t1.…"}, a one-shot token for the caller and for
// the purpose of g, or a refusal. It panics if the key of g is not a [core.Token].
func IssueToken(g *core.Guard) http.Handler {
	serve := g.ServeTokens()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = serve(r.Context(), exchangeOf(&plain, w, r)) // the client has gone
	})
}

// NewToken issues a token for a page that the handler renders with [core.TokenInput]. For the page's
// Cache-Control, and for the errors, see [core.Guard.NewToken].
func NewToken(r *http.Request, g *core.Guard) (string, error) {
	return adapterkit.NewToken(r.Context(), exchangeOf(&plain, nil, r), g)
}

// Refuse answers err as a guard does, with Config.Refuse or as application/problem+json, if err is or
// wraps a [core.Refusal]. It reports whether it has answered; any other error is the handler's to
// answer. It is for handlers that call core.Do, or sqlstore's RunTx, whose errors they can't return.
// The Request that Config.Refuse gets has no Body, and the route of r.Pattern:
//
//	if httpidem.Refuse(w, r, err) {
//		return
//	}
func Refuse(w http.ResponseWriter, r *http.Request, err error) bool {
	if err == nil {
		return false
	}
	x := exchangeOf(&plain, w, r)
	request := adapter.Request{Headers: x}
	x.Describe(&request)
	resp := core.RefusalResponse(r.Context(), err, &request)
	if resp == nil {
		return false
	}
	_ = x.Answer(resp) // the client has gone
	return true
}
