package echoidem

import (
	"github.com/labstack/echo/v4"

	"github.com/idem-go/idem/core"
)

// IssueToken returns a handler that answers {"token":"t1.…"}, a one-shot token for the caller and for
// the purpose of g, or a refusal. It panics if the key of g is no [core.Token].
func IssueToken(g *core.Guard) echo.HandlerFunc {
	g.MustUseTokens()
	return func(c echo.Context) error {
		x := &exchange{c: c}
		x.Start(c.Request())
		defer x.End()
		return g.ServeToken(c.Request().Context(), x)
	}
}

// NewToken issues a token for a page that the handler renders, with [core.TokenInput]. What the page says to
// caches, and what the errors are: see [core.Guard.NewToken].
func NewToken(c echo.Context, g *core.Guard) (string, error) {
	x := &exchange{c: c}
	x.Start(c.Request())
	defer x.End()
	r := core.Request{Headers: x}
	x.Describe(&r)
	return g.NewToken(c.Request().Context(), &r)
}
