package httpidem

import (
	"net/http"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/sign"
)

// Verify returns middleware that lets only requests through that v verifies, and answers all
// others. The handler learns from sign.From(r.Context()) who has signed; a guard behind it
// takes the key's owner for its user (see [core.Config].User). Mount it outside of the guard: a
// failed signature then creates no record, and nobody gets a stored answer unsigned. Mounted twice on
// one way, it refuses everything: the nonce has been used.
//
// Mount it in front of what reads bodies. A body that was read is refused (malformed), but of one in chunks
// that was read to its end only [Finish] further out can tell that it was not empty; without it, what
// somebody has read of a request that was signed without a body reaches the handler unsigned.
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
