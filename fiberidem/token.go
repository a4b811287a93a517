package fiberidem

import (
	"github.com/gofiber/fiber/v2"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core"
)

// IssueToken returns a handler that answers {"token":"t1.…"}, a one-shot token for the caller and for
// the purpose of g, or a refusal. It panics if the key of g is not a [core.Token].
func IssueToken(g *core.Guard) fiber.Handler {
	g.MustUseTokens()
	return func(c *fiber.Ctx) error {
		return g.ServeToken(c.UserContext(), &exchange{c: c, place: pageOf(c)})
	}
}

// NewToken issues a token for a page that the handler renders with [core.TokenInput]. For the page's
// Cache-Control, and for the errors, see [core.Guard.NewToken].
func NewToken(c *fiber.Ctx, g *core.Guard) (string, error) {
	return adapterkit.NewToken(c.UserContext(), &exchange{c: c, place: pageOf(c)}, g)
}
