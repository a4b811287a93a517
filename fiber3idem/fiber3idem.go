package fiber3idem

import (
	"github.com/gofiber/fiber/v3"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/adapterkit/fasthttpkit"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/sign"
)

// New returns a handler that protects the handlers inside it with g. It is safe for concurrent use, and may be mounted on any
// number of routes and apps.
//
// With StreamRequestBody, mount it outside middleware that reads the stream: see the package comment.
func New(g *core.Guard) fiber.Handler {
	places := newPlaces()
	return func(c fiber.Ctx) error {
		if isUnreadable(c) {
			return nil
		}
		x := exchanges.Get().(*exchange)
		x.start(c, places.Of(c))
		err := g.Serve(c.Context(), x)
		if x.End() { // after a panic it stays out of the pool, too: somebody may still hold it
			x.c, x.place = nil, nil
			exchanges.Put(x)
		}
		return err
	}
}

// Run returns the run that the handler belongs to. Outside a run it returns nil, which answers like a first attempt. The run may
// be kept after the handler.
func Run(c fiber.Ctx) *core.Run { return core.RunFrom(c.Context()) }

// Replayed reports whether the response is a replay. It is for outer middleware. (In Fiber's own idempotency middleware this is
// IsFromCache.)
func Replayed(c fiber.Ctx) bool { return fasthttpkit.Replayed(c.RequestCtx()) }

// UserFromLocals takes the user from c.Locals(key), where authentication middleware has put it. See [adapterkit.UserFromValue] for
// the types. Fiber's own middleware uses keys that are not exported. Take its values in a [core.UserFunc], for example with
// basicauth.UsernameFromContext: the request's Native is the fiber.Ctx.
func UserFromLocals(key any) core.UserSource {
	return adapterkit.UserFrom("Fiber v3", key, func(c fiber.Ctx) any { return c.Locals(key) })
}

// Finish returns middleware for apps in which outer middleware makes responses from errors. Mount it outside that middleware, and
// inside recovery:
//
//	app.Use(recover.New(), fiber3idem.Finish(), envelopeErrors)
//	app.Post("/orders", fiber3idem.New(orders), createOrder)
//
// A guard inside it then returns the handler's error without rendering it, and the response that has been made from it at Finish
// is stored. If nobody has rendered the error, Finish has the app's ErrorHandler do so. Requests without such an error pass
// unchanged. If there are several, the outermost Finish counts.
func Finish() fiber.Handler {
	return func(c fiber.Ctx) error {
		return fasthttpkit.Finish(c, func(err error) { render(c, err) })
	}
}

// Verify returns a handler that passes requests that v verifies, and answers all others. [Verified], or sign.From(c.Context()),
// tells the handlers inside it who signed the request, and a guard inside Verify uses the key's owner as its user (see
// core.Config.User). Mount it outside the guard: then a failed signature creates no record, and an unsigned request gets no stored
// answer. If Verify is mounted twice on a route, it refuses every request, because the first one uses up the nonce.
//
// It is safe for concurrent use, and may be mounted on any number of routes and apps. See the package comment for multipart forms
// and for the Date of refusals.
func Verify(v *sign.Verifier) fiber.Handler {
	return func(c fiber.Ctx) error {
		if isUnreadable(c) {
			return nil // and nothing inside it runs
		}
		outer := c.Context()
		ctx, ok := fasthttpkit.Verify(outer, v, c.RequestCtx(), c.Method(), !c.App().Server().DisablePreParseMultipartForm)
		if !ok {
			return nil
		}
		c.SetContext(ctx)
		defer restore(c, outer, ctx)
		return c.Next()
	}
}

// Verified returns who signed the request, if it has passed [Verify]. The result may be kept after the handler.
func Verified(c fiber.Ctx) (sign.Verified, bool) { return sign.From(c.Context()) }

// IssueToken returns a handler that answers with {"token":"t1.…"}, a one-shot token for the caller and the purpose of g, or with a
// refusal. It panics if the key of g is not a [core.Token].
func IssueToken(g *core.Guard) fiber.Handler {
	serve := g.ServeTokens()
	return func(c fiber.Ctx) error {
		return serve(c.Context(), pageOf(c))
	}
}

// NewToken issues a token for a page that the handler renders with [core.TokenInput]. See [core.Guard.NewToken] for the page's
// Cache-Control and for the errors.
func NewToken(c fiber.Ctx, g *core.Guard) (string, error) {
	return adapterkit.NewToken(c.Context(), pageOf(c), g)
}

// pageOf returns the exchange of a handler that belongs to no guard.
func pageOf(c fiber.Ctx) *exchange {
	x := new(exchange)
	x.start(c, pages.Weakly(c))
	return x
}
