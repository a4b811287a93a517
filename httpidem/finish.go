package httpidem

import (
	"net/http"

	"github.com/idem-go/idem/adapterkit"
)

// Finish returns middleware that counts how much of a request's body is read before the guards and
// verifiers behind it. Mount it outside of all middleware that reads bodies. Without it, they take a
// chunked body that was read in part for a whole one, and refuse an empty one: 500 body_consumed.
func Finish() func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			counted := adapterkit.CountBody(r)
			defer adapterkit.Adopt(r, counted)
			next.ServeHTTP(w, counted)
		})
	}
}
