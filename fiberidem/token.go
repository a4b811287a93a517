package fiberidem

import (
	"github.com/gofiber/fiber/v2"

	"github.com/idem-go/idem/core"
)

// IssueToken returns a handler that answers {"token":"t1.…"}, a one-shot token for the caller and for
// the purpose of g, or a refusal. It panics if the key of g is no [core.Token].
func IssueToken(g *core.Guard) fiber.Handler {
	g.MustUseTokens()
	var places places
	return func(c *fiber.Ctx) error {
		return g.ServeToken(c.UserContext(), &exchange{c: c, place: places.of(c)})
	}
}

// NewToken issues a token for a page that the handler renders, with [core.TokenInput]. What the page says to
// caches, and what the errors are: see [core.Guard.NewToken].
func NewToken(c *fiber.Ctx, g *core.Guard) (string, error) {
	var places places
	x := &exchange{c: c, place: places.of(c)}
	r := core.Request{Headers: x}
	x.Describe(&r)
	return g.NewToken(c.UserContext(), &r)
}
