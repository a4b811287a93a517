package ginidem

import (
	"github.com/gin-gonic/gin"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/sign"
)

// Verify returns middleware that passes requests that v verifies; it answers all others and aborts.
// [Verified] tells the handler who has signed, and a guard behind it takes the key's owner for its user
// (see core.Config.User). Mount it in front of the guard: a failed signature then creates no record, and
// an unsigned request gets no stored answer. Mounted twice on a route, it refuses every request, whose
// nonce the first has used.
//
// Mount it in front of middleware that reads bodies. A body that was read is refused (malformed). Only
// [Finish] further out can tell a chunked body that was read to its end from an empty one: without it, a
// body that was added to a request signed without one, and read in front, reaches the handler unsigned.
//
// It is safe for concurrent use, and may be mounted on any number of routes. An error in
// writing a refusal is added to c.Errors, as Gin itself does.
func Verify(v *sign.Verifier) gin.HandlerFunc {
	return func(c *gin.Context) {
		verified, refusal := adapterkit.Verify(v, c.Request)
		if refusal != nil {
			if err := exchangeOf(c).Answer(refusal); err != nil {
				_ = c.Error(err)
			}
			return
		}
		if _, ok := c.Get(gin.BodyBytesKey); ok {
			// A middleware in front has kept a body for ShouldBindBodyWith. The handler gets the one
			// that was verified.
			c.Set(gin.BodyBytesKey, []byte(nil))
		}
		defer restore(c, c.Request)
		c.Request = verified
		c.Next()
	}
}

// Verified returns who has signed the request, if [Verify] has let it through.
func Verified(c *gin.Context) (sign.Verified, bool) { return sign.From(c.Request.Context()) }
