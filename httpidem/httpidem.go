package httpidem

import (
	"net/http"
	"reflect"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/sign"
)

// New returns middleware that protects a handler with g. It is safe for concurrent use, and may be mounted on any number of
// handlers: the route is part of the key. Mount it inside the router, on the handler, so that it sees the route's pattern.
//
// Errors in writing to the client are dropped: the client has gone.
//
// New's middleware panics if it is mounted around an [http.TimeoutHandler], which answers while its handler runs on. Mount the
// guard inside the timeout instead.
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

// WithRoute takes the route from a router that does not set r.Pattern. fn returns the pattern, in the syntax of net/http, chi or
// gorilla ("/orders/{id}"), and the decoded values of its parameters in the pattern's order. An empty pattern means that no route
// has matched. A wildcard at the end of the pattern is the last parameter; the part of its value that stays escaped (see
// [adapter.Request].PathParams) is taken from r.URL. fn is called concurrently.
//
//	httpidem.WithRoute(func(r *http.Request) (string, []adapter.Pair) {
//		pattern, _ := mux.CurrentRoute(r).GetPathTemplate() // gorilla
//		return pattern, []adapter.Pair{{Name: "id", Value: mux.Vars(r)["id"]}}
//	})
func WithRoute(fn func(*http.Request) (pattern string, params []adapter.Pair)) Option {
	return func(m *middleware) { m.route = fn }
}

// Run returns the run that the handler belongs to. Outside a run it returns nil, which answers like a first attempt.
func Run(r *http.Request) *core.Run { return core.RunFrom(r.Context()) }

// Replayed reports whether the response in w is a replay. It is for outer middleware.
func Replayed(w http.ResponseWriter) bool { return adapterkit.Replayed(w) }

// UserFromContext takes the user from the value that authentication middleware has put into the request's context under key. See
// [adapterkit.UserFromValue] for the types.
func UserFromContext(key any) core.UserSource {
	return adapterkit.UserFrom("net/http", key, func(r *http.Request) any { return r.Context().Value(key) })
}

// Finish returns middleware that counts how much of a request's body is read outside the guards and verifiers inside it: see the
// package comment. Mount it outside all middleware that reads bodies.
func Finish() func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			counted := adapterkit.CountBody(r)
			defer adapterkit.Adopt(r, counted, counted, counted.Context())
			next.ServeHTTP(w, counted)
		})
	}
}

// Verify returns middleware that passes requests that v verifies, and answers all others. sign.From(r.Context()) tells the handler
// who signed the request, and a guard inside Verify uses the key's owner as its user (see core.Config.User). Mount it outside the
// guard: then a failed signature creates no record, and an unsigned request gets no stored answer. If Verify is mounted twice
// around a handler, it refuses every request, because the first one uses up the nonce.
//
// It is safe for concurrent use, and may be mounted on any number of handlers. Errors in writing a refusal are dropped.
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

// IssueToken returns a handler that answers with {"token":"t1.…"}, a one-shot token for the caller and the purpose of g, or with a
// refusal. It panics if the key of g is not a [core.Token].
func IssueToken(g *core.Guard) http.Handler {
	serve := g.ServeTokens()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = serve(r.Context(), exchangeOf(&plain, w, r)) // the client has gone
	})
}

// NewToken issues a token for a page that the handler renders with [core.TokenInput]. See [core.Guard.NewToken] for the page's
// Cache-Control and for the errors.
func NewToken(r *http.Request, g *core.Guard) (string, error) {
	return adapterkit.NewToken(r.Context(), exchangeOf(&plain, nil, r), g)
}

// Refuse answers err as a guard does, with Config.Refuse or as application/problem+json, if err is or wraps a [core.Refusal]. It
// reports whether it has answered. The handler must answer any other error itself. Refuse is for handlers that call core.Do, or
// RunTx of sqlstore, whose errors they cannot return. The Request that Config.Refuse gets has no Body, and has the route of
// r.Pattern:
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
