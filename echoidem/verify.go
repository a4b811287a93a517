package echoidem

import (
	"github.com/labstack/echo/v4"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/sign"
)

// Verify returns middleware that passes requests that v verifies, and answers all others. [Verified]
// tells the handler who has signed, and a guard behind it takes the key's owner for its user (see
// core.Config.User). Mount it outside of the guard: a failed signature then creates no record, and an
// unsigned request gets no stored answer. Mounted twice on a route, it refuses every request, whose
// nonce the first has used.
//
// Mount it in front of middleware that reads bodies. A body that was read is refused (malformed). Only
// [Finish] further out can tell a chunked body that was read to its end from an empty one: without it, a
// body that was added to a request signed without one, and read in front, reaches the handler unsigned.
//
// It is safe for concurrent use, and may be mounted on any number of routes. A refusal is
// written, not returned as an error; errors of handlers pass untouched.
func Verify(v *sign.Verifier) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			verified, refusal := adapterkit.Verify(v, c.Request())
			if refusal != nil {
				return exchangeOf(c).Answer(refusal)
			}
			defer restore(c, c.Request())
			c.SetRequest(verified)
			return next(c)
		}
	}
}

// Verified returns who has signed the request, if [Verify] has let it through.
func Verified(c echo.Context) (sign.Verified, bool) { return sign.From(c.Request().Context()) }
