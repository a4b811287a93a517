package httpidem

import (
	"net/http"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core"
)

// plain belongs to no guard. It remembers the patterns that it has seen.
var plain middleware

// exchangeOf returns an exchange that runs no handler. It is not pooled.
func exchangeOf(w http.ResponseWriter, r *http.Request) *exchange {
	x := &exchange{middleware: &plain, w: w, r: r}
	x.Start(x, r)
	return x
}

// IssueToken returns a handler that answers {"token":"t1.…"}, a one-shot token for the caller and for
// the purpose of g, or a refusal. It panics if the key of g is not a [core.Token].
func IssueToken(g *core.Guard) http.Handler {
	g.MustUseTokens()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = g.ServeToken(r.Context(), exchangeOf(w, r)) // the client has gone
	})
}

// NewToken issues a token for a page that the handler renders with [core.TokenInput]. For the page's
// Cache-Control, and for the errors, see [core.Guard.NewToken].
func NewToken(r *http.Request, g *core.Guard) (string, error) {
	return adapterkit.NewToken(r.Context(), exchangeOf(nil, r), g)
}
