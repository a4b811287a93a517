package ginidem

import (
	"github.com/gin-gonic/gin"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/sign"
)

// New returns middleware that protects the handlers inside it with g. It is safe for
// concurrent use, and may be mounted on any number of routes: the route is part of the
// key. An error in writing to the client is added to c.Errors, as Gin itself does.
func New(g *core.Guard) gin.HandlerFunc {
	return func(c *gin.Context) {
		x := exchangeOf(c)
		if err := g.Serve(c.Request.Context(), x); err != nil {
			_ = c.Error(err)
		}
		if x.End() { // after a panic it stays out of the pool: somebody may still hold it
			*x = exchange{}
			exchanges.Put(x)
		}
	}
}

// Run returns the run that a handler is part of, or nil, which answers like a first attempt.
func Run(c *gin.Context) *core.Run { return core.RunFrom(c.Request.Context()) }

// Replayed reports whether the response is a replay, for middleware further out.
func Replayed(c *gin.Context) bool { return adapterkit.Replayed(c.Writer) }

// UserFromContext takes the user from the value that authentication middleware has set
// with c.Set(key, value), see [adapterkit.UserFromValue].
func UserFromContext(key any) core.UserSource {
	return adapterkit.UserFrom("Gin", key, func(c *gin.Context) any {
		v, _ := c.Get(key)
		return v
	})
}

// Finish returns middleware that completes the runs whose response is made by a middleware between it
// and the guard. Mount it outside the middleware that renders errors, on all routes; without a guard
// inside it, it does nothing.
//
// A run whose error nobody has rendered has failed. So has one whose response is rendered to another
// c.Writer, which a middleware in between has set once the guard has returned.
//
// It also counts how much of a body is read outside guards and verifiers, see the package comment.
func Finish() gin.HandlerFunc {
	return func(c *gin.Context) {
		f, returned := new(adapterkit.Finisher), false
		c.Set(finisherKey{}, f)
		defer func() {
			if err := f.Finish(returned); err != nil {
				_ = c.Error(err)
			}
		}()
		next(c, adapterkit.CountBody(c.Request))
		returned = true
	}
}

type finisherKey struct{}

// Verify returns middleware that passes requests that v verifies; it answers all others and aborts.
// [Verified] tells the handler who has signed, and a guard inside it takes the key's owner for its user
// (see core.Config.User). Mount it outside the guard: a failed signature then creates no record, and
// an unsigned request gets no stored answer. Mounted twice on a route, it refuses every request, whose
// nonce the first has used.
//
// It is safe for concurrent use, and may be mounted on any number of routes. An error in
// writing a refusal is added to c.Errors, as Gin itself does.
func Verify(v *sign.Verifier) gin.HandlerFunc {
	return func(c *gin.Context) {
		verified, refusal := adapterkit.Verify(v, c.Request)
		if refusal != nil {
			if err := exchangeOf(c).Answer(refusal); err != nil {
				_ = c.Error(err)
			}
			return
		}
		if _, ok := c.Get(gin.BodyBytesKey); ok {
			// An outer middleware has kept a body for ShouldBindBodyWith. The handler gets the one
			// that was verified.
			c.Set(gin.BodyBytesKey, []byte(nil))
		}
		next(c, verified)
	}
}

// Verified returns who has signed the request, if [Verify] has let it through.
func Verified(c *gin.Context) (sign.Verified, bool) { return sign.From(c.Request.Context()) }

// IssueToken returns a handler that answers {"token":"t1.…"}, a one-shot token for the caller and for
// the purpose of g, or a refusal. It panics if the key of g is not a [core.Token].
func IssueToken(g *core.Guard) gin.HandlerFunc {
	serve := g.ServeTokens()
	return func(c *gin.Context) {
		if err := serve(c.Request.Context(), exchangeOf(c)); err != nil {
			_ = c.Error(err)
		}
	}
}

// NewToken issues a token for a page that the handler renders with [core.TokenInput]. For the page's
// Cache-Control, and for the errors, see [core.Guard.NewToken].
func NewToken(c *gin.Context, g *core.Guard) (string, error) {
	return adapterkit.NewToken(c.Request.Context(), exchangeOf(c), g)
}
