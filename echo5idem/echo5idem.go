package echo5idem

import (
	"github.com/labstack/echo/v5"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/sign"
)

// New returns middleware that protects the handler inside it with g. It is safe for concurrent use, and may be mounted on any
// number of routes: the route is part of the key. Mounted with Echo.Pre it sees no route, and uses the whole path instead.
//
// New has Echo's HTTPErrorHandler render an error that the handler returns, and then returns the error to outer middleware that
// logs or reports it. From then on c.Response() ignores writes, so that the error is not rendered twice. But see the package
// comment.
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

// Run returns the run that the handler belongs to. Outside a run it returns nil, which answers like a first attempt.
func Run(c *echo.Context) *core.Run { return core.RunFrom(c.Request().Context()) }

// Replayed reports whether the response is a replay. It is for outer middleware.
func Replayed(c *echo.Context) bool { return adapterkit.Replayed(c.Response()) }

// UserFromContext takes the user from the value that authentication middleware has set with c.Set(key, value). See
// [adapterkit.UserFromValue] for the types.
func UserFromContext(key string) core.UserSource {
	return adapterkit.UserFrom("Echo v5", key, func(c *echo.Context) any { return c.Get(key) })
}

// Finish returns middleware that settles runs whose response is made by middleware between Finish and the guard. Mount it on all
// routes, outside the middleware that maps errors. Without a guard inside it, it does nothing.
//
// If nobody has rendered the error of a guarded handler, Finish renders it with the HTTPErrorHandler and returns it, as [New]
// does. A run has failed if the response is rendered to another writer that middleware in between gives the context after the
// guard has returned: Finish does not see that response.
//
// Finish also counts how much of a body is read outside guards and verifiers: see the package comment.
func Finish() echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error { return version.Finish(c, next) }
	}
}

// Verify returns middleware that passes requests that v verifies, and answers all others. [Verified] tells the handler who signed
// the request, and a guard inside Verify uses the key's owner as its user (see core.Config.User). Mount it outside the guard: then
// a failed signature creates no record, and an unsigned request gets no stored answer. If Verify is mounted twice on a route, it
// refuses every request, because the first one uses up the nonce.
//
// It is safe for concurrent use, and may be mounted on any number of routes. A refusal is written, not returned as an error.
// Errors of handlers pass unchanged.
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

// Verified returns who signed the request, if it has passed [Verify].
func Verified(c *echo.Context) (sign.Verified, bool) { return sign.From(c.Request().Context()) }

// IssueToken returns a handler that answers with {"token":"t1.…"}, a one-shot token for the caller and the purpose of g, or with a
// refusal. It panics if the key of g is not a [core.Token].
func IssueToken(g *core.Guard) echo.HandlerFunc {
	serve := g.ServeTokens()
	return func(c *echo.Context) error {
		return serve(c.Request().Context(), exchangeOf(c))
	}
}

// NewToken issues a token for a page that the handler renders with [core.TokenInput]. See [core.Guard.NewToken] for the page's
// Cache-Control and for the errors.
func NewToken(c *echo.Context, g *core.Guard) (string, error) {
	return adapterkit.NewToken(c.Request().Context(), exchangeOf(c), g)
}
