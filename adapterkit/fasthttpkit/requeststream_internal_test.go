package fasthttpkit

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/valyala/fasthttp"
)

func TestTheServersStreamIsKnown(t *testing.T) {
	call(t, func(ctx *fasthttp.RequestCtx) {
		stream := ctx.RequestBodyStream()
		assert.True(t, isReceived(stream))
		assert.False(t, isBegun(stream))
		_, err := stream.Read(make([]byte, 1))
		assert.NoError(t, err)
		assert.True(t, isBegun(stream))
		ctx.Request.SetBodyStream(strings.NewReader("another"), -1)
		assert.False(t, isReceived(ctx.RequestBodyStream()))
		ctx.SetStatusCode(201)
	})
}
