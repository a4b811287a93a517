package ginidem

import (
	"github.com/gin-gonic/gin"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core"
)

// IssueToken returns a handler that answers {"token":"t1.…"}, a one-shot token for the caller and for
// the purpose of g, or a refusal. It panics if the key of g is not a [core.Token].
func IssueToken(g *core.Guard) gin.HandlerFunc {
	g.MustUseTokens()
	return func(c *gin.Context) {
		if err := g.ServeToken(c.Request.Context(), exchangeOf(c)); err != nil {
			_ = c.Error(err)
		}
	}
}

// NewToken issues a token for a page that the handler renders with [core.TokenInput]. For the page's
// Cache-Control, and for the errors, see [core.Guard.NewToken].
func NewToken(c *gin.Context, g *core.Guard) (string, error) {
	return adapterkit.NewToken(c.Request.Context(), exchangeOf(c), g)
}
