package ginidem

import (
	"github.com/gin-gonic/gin"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/sign"
)

// Verify returns middleware that lets only requests through that v verifies; it answers all
// others and aborts. The handler learns from [Verified] who has signed; a guard behind it
// takes the key's owner for its user (see core.Config.User). Mount it in front of the guard: a
// failed signature then creates no record, and nobody gets a stored answer unsigned. Mounted twice on
// one way, it refuses everything: the nonce has been used.
//
// Mount it in front of what reads bodies. A body that was read is refused (malformed), but of one in chunks
// that was read to its end only [Finish] further out can tell that it was not empty; without it, what
// somebody has read of a request that was signed without a body reaches the handler unsigned.
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
