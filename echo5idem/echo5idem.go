package echo5idem

import (
	"github.com/labstack/echo/v5"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/sign"
)

// New returns middleware that protects the handler inside it with g. It is safe for
// concurrent use, and may be mounted on any number of routes: the route is part of the
// key. Mounted with Echo.Pre it sees no route; the whole path then takes its place.
//
// An error that the handler returns is rendered here, by Echo's HTTPErrorHandler, and then returned, for
// middleware further out that logs or reports it. From then on c.Response() ignores writes, so that the
// error is not rendered twice; but see the package comment.
func New(g *core.Guard) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			x := exchangeOf(c)
			err := x.Serve(x, g, next)
			if x.End() { // after a panic it stays out of the pool: somebody may still hold it
				*x = exchange{}
				exchanges.Put(x)
			}
			return err
		}
	}
}

// Run returns the run that a handler is part of, or nil, which answers like a first attempt.
func Run(c *echo.Context) *core.Run { return core.RunFrom(c.Request().Context()) }

// Replayed reports whether the response is a replay, for middleware further out.
func Replayed(c *echo.Context) bool { return adapterkit.Replayed(c.Response()) }

// UserFromContext takes the user from the value that authentication middleware has set
// with c.Set(key, value), see [adapterkit.UserFromValue].
func UserFromContext(key string) core.UserSource {
	return adapterkit.UserFrom("Echo v5", key, func(c *echo.Context) any { return c.Get(key) })
}

// Finish returns middleware that completes the runs whose response is made by a middleware between it
// and the guard. Mount it outside the middleware that maps errors, on all routes; without a guard
// inside it, it does nothing.
//
// If nobody has rendered the error of a guarded handler by then, Finish has the HTTPErrorHandler render it, and
// returns it, as [New] does. A response that is rendered to another writer, which a middleware in between has given the
// context once the guard has returned, is not seen: the run has failed.
//
// It also counts how much of a body is read outside guards and verifiers, see the package comment.
func Finish() echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error { return version.Finish(c, next) }
	}
}

// Verify returns middleware that passes requests that v verifies, and answers all others. [Verified]
// tells the handler who has signed, and a guard inside it takes the key's owner for its user (see
// core.Config.User). Mount it outside the guard: a failed signature then creates no record, and an
// unsigned request gets no stored answer. Mounted twice on a route, it refuses every request, whose
// nonce the first has used.
//
// It is safe for concurrent use, and may be mounted on any number of routes. A refusal is
// written, not returned as an error; errors of handlers pass untouched.
func Verify(v *sign.Verifier) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			verified, refusal := adapterkit.Verify(v, c.Request())
			if refusal != nil {
				return exchangeOf(c).Answer(refusal)
			}
			return version.With(c, verified, next)
		}
	}
}

// Verified returns who has signed the request, if [Verify] has let it through.
func Verified(c *echo.Context) (sign.Verified, bool) { return sign.From(c.Request().Context()) }

// IssueToken returns a handler that answers {"token":"t1.…"}, a one-shot token for the caller and for
// the purpose of g, or a refusal. It panics if the key of g is not a [core.Token].
func IssueToken(g *core.Guard) echo.HandlerFunc {
	serve := g.ServeTokens()
	return func(c *echo.Context) error {
		return serve(c.Request().Context(), exchangeOf(c))
	}
}

// NewToken issues a token for a page that the handler renders with [core.TokenInput]. For the page's
// Cache-Control, and for the errors, see [core.Guard.NewToken].
func NewToken(c *echo.Context, g *core.Guard) (string, error) {
	return adapterkit.NewToken(c.Request().Context(), exchangeOf(c), g)
}
