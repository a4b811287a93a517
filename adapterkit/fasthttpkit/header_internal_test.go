package fasthttpkit

import (
	"bufio"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/core/adapter"
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

// A header is copied for its trailer, each time that a field is asked for, only if there may be one.
func TestOnlyChunksHaveATrailer(t *testing.T) {
	for fields, want := range map[string]bool{
		"Content-Length: 2\r\n\r\n{}":                               false,
		"X-Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n": false,
		"Transfer-Encoding: chunked\r\n\r\n":                        true,
		"transfer-encoding: chunked\r\n\r\n":                        true,
	} {
		var h fasthttp.RequestHeader
		require.NoError(t, h.Read(bufio.NewReader(strings.NewReader("POST / HTTP/1.1\r\nHost: a\r\n"+fields))))
		assert.Equal(t, want, isChunked(&h), fields)
	}
}

func TestRemoteAddr(t *testing.T) {
	for _, addr := range []net.Addr{
		&net.TCPAddr{IP: net.ParseIP("192.0.2.7"), Port: 1},
		&net.TCPAddr{IP: net.ParseIP("2001:db8::1"), Port: 65535},
		&net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "eth0", Port: 80},
		&net.TCPAddr{Port: 80},
		&net.UnixAddr{Name: "@", Net: "unix"},
	} {
		x := &Exchange{ctx: new(fasthttp.RequestCtx), place: &Place{}}
		x.ctx.SetRemoteAddr(addr)
		var r adapter.Request
		x.Describe(&r)
		assert.Equal(t, addr.String(), r.RemoteAddr)
	}
}
