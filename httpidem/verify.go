package httpidem

import (
	"net/http"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/sign"
)

// Verify returns middleware that passes requests that v verifies, and answers all others.
// sign.From(r.Context()) tells the handler who has signed, and a guard behind it takes the key's owner
// for its user (see core.Config.User). Mount it outside of the guard: a failed signature then creates no
// record, and an unsigned request gets no stored answer. Mounted twice around a handler, it refuses
// every request, whose nonce the first has used.
//
// Mount it in front of middleware that reads bodies. A body that was read is refused (malformed). Only
// [Finish] further out can tell a chunked body that was read to its end from an empty one: without it, a
// body that was added to a request signed without one, and read in front, reaches the handler unsigned.
//
// It is safe for concurrent use, and may be mounted on any number of handlers. An error in
// writing a refusal is dropped.
func Verify(v *sign.Verifier) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			verified, refusal := adapterkit.Verify(v, r)
			if refusal != nil {
				_ = adapterkit.Answer(w, refusal)
				return
			}
			defer adapterkit.Adopt(r, verified)
			next.ServeHTTP(w, verified)
		})
	}
}
