package fasthttpkit

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

// The names of the header are listed once. What changes them afterwards is seen all the same.
func TestHeaderThatChanges(t *testing.T) {
	has := func(x *Exchange, name string) bool {
		_, lines := x.Header(name, 0)
		return lines > 0
	}
	var ctx fasthttp.RequestCtx
	x := &Exchange{ctx: &ctx, place: &Place{}}
	ctx.Request.Header.Set("If-Match", `"1"`)
	require.True(t, has(x, "If-Match"))
	require.False(t, has(x, "Range"))

	ctx.Request.Header.Del("If-Match")
	assert.False(t, has(x, "If-Match"), "it was deleted")

	ctx.Request.SetBodyStream(strings.NewReader("body"), -1)
	ctx.Request.Header.Set("Range", "bytes=0-9") // as fasthttp does with a trailer
	_, err := x.ReadBody(100)
	require.NoError(t, err)
	assert.True(t, has(x, "Range"), "the trailer has brought it")

	x.ran = true
	ctx.Request.Header.Set("If-Range", `"1"`)
	assert.True(t, has(x, "If-Range"), "the handler has set it")

	require.True(t, x.End())
	assert.Nil(t, x.names[:cap(x.names)][0], "nothing is kept of a request")
	ctx.Request.Reset()
	x.ctx, x.place = &ctx, &Place{}
	assert.False(t, has(x, "Range"), "it was another request's")
}
