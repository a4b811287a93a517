package httpidem

import (
	"net/http"

	"github.com/idem-go/idem/adapterkit"
)

// Finish returns middleware that tells the guards and verifiers behind it how much of a request's body
// has been read before them. Mount it outside of everything that reads bodies. Without it, a
// body in chunks that was read in part can't be told from a whole one, and an empty one not
// from one that was read: that gets 500 body_consumed.
func Finish() func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			counted := adapterkit.CountBody(r)
			defer adapterkit.Adopt(r, counted)
			next.ServeHTTP(w, counted)
		})
	}
}
