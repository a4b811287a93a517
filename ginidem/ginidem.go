package ginidem

import (
	"github.com/gin-gonic/gin"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/sign"
)

// New returns middleware that protects the handlers inside it with g. It is safe for concurrent use, and may be mounted on any
// number of routes: the route is part of the key. If writing to the client fails, the error is added to c.Errors, as Gin itself
// does.
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

// Run returns the run that the handler belongs to. Outside a run it returns nil, which answers like a first attempt.
func Run(c *gin.Context) *core.Run { return core.RunFrom(c.Request.Context()) }

// Replayed reports whether the response is a replay. It is for outer middleware.
func Replayed(c *gin.Context) bool { return adapterkit.Replayed(c.Writer) }

// UserFromContext takes the user from the value that authentication middleware has set with c.Set(key, value). See
// [adapterkit.UserFromValue] for the types.
func UserFromContext(key any) core.UserSource {
	return adapterkit.UserFrom("Gin", key, func(c *gin.Context) any {
		v, _ := c.Get(key)
		return v
	})
}

// Finish returns middleware that settles runs whose response is made by middleware between Finish and the guard. Mount it on all
// routes, outside the middleware that renders errors. Without a guard inside it, it does nothing.
//
// A run has failed if nobody renders its error, or if the response is rendered to another c.Writer that middleware in between sets
// after the guard has returned.
//
// Finish also counts how much of a body is read outside guards and verifiers: see the package comment.
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

// Verify returns middleware that passes requests that v verifies. It answers all others and aborts. [Verified] tells the handler
// who signed the request, and a guard inside Verify uses the key's owner as its user (see core.Config.User). Mount it outside the
// guard: then a failed signature creates no record, and an unsigned request gets no stored answer. If Verify is mounted twice on a
// route, it refuses every request, because the first one uses up the nonce.
//
// It is safe for concurrent use, and may be mounted on any number of routes. If writing a refusal fails, the error is added to
// c.Errors, as Gin itself does.
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

// Verified returns who signed the request, if it has passed [Verify].
func Verified(c *gin.Context) (sign.Verified, bool) { return sign.From(c.Request.Context()) }

// IssueToken returns a handler that answers with {"token":"t1.…"}, a one-shot token for the caller and the purpose of g, or with a
// refusal. It panics if the key of g is not a [core.Token].
func IssueToken(g *core.Guard) gin.HandlerFunc {
	serve := g.ServeTokens()
	return func(c *gin.Context) {
		if err := serve(c.Request.Context(), exchangeOf(c)); err != nil {
			_ = c.Error(err)
		}
	}
}

// NewToken issues a token for a page that the handler renders with [core.TokenInput]. See [core.Guard.NewToken] for the page's
// Cache-Control and for the errors.
func NewToken(c *gin.Context, g *core.Guard) (string, error) {
	return adapterkit.NewToken(c.Request.Context(), exchangeOf(c), g)
}
