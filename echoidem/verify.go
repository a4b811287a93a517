package echoidem

import (
	"github.com/labstack/echo/v4"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/sign"
)

// Verify returns middleware that lets only requests through that v verifies, and answers all
// others. The handler learns from [Verified] who has signed; a guard behind it takes the key's
// owner for its user (see core.Config.User). Mount it outside of the guard: a failed signature
// then creates no record.
//
// Mount it in front of what reads bodies. A body that was read is refused (malformed), but of one in chunks
// that was read to its end only [Finish] further out can tell that it was not empty; without it, what
// somebody has read of a request that was signed without a body reaches the handler unsigned.
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
