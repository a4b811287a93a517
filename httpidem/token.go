package httpidem

import (
	"net/http"

	"github.com/idem-go/idem/core"
)

// plain is for what is mounted by no guard. It knows patterns that it has seen.
var plain middleware

// IssueToken returns a handler that answers {"token":"t1.…"}, a one-shot token for the caller and for
// the purpose of g, or a refusal. It panics if the key of g is no [core.Token].
func IssueToken(g *core.Guard) http.Handler {
	g.MustUseTokens()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{middleware: &plain, w: w, r: r}
		x.Start(r)
		defer x.End()
		_ = g.ServeToken(r.Context(), x) // the client has gone
	})
}

// NewToken issues a token for a page that the handler renders, with [core.TokenInput]. What the page says to
// caches, and what the errors are: see [core.Guard.NewToken].
func NewToken(r *http.Request, g *core.Guard) (string, error) {
	x := &exchange{middleware: &plain, r: r}
	x.Start(r)
	defer x.End()
	request := core.Request{Headers: x}
	x.Describe(&request)
	return g.NewToken(r.Context(), &request)
}
