package fasthttpkit

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttputil"
)

// call sends a request with a body to a server that calls h.
func call(t *testing.T, h fasthttp.RequestHandler) {
	t.Helper()
	listener := fasthttputil.NewInmemoryListener()
	server := &fasthttp.Server{Handler: h, StreamRequestBody: true}
	go func() { _ = server.Serve(listener) }()
	defer func() { _ = server.Shutdown() }()
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	req.SetRequestURI("http://a.test/")
	req.Header.SetMethod("POST")
	req.SetBodyStream(strings.NewReader("body"), 4)
	client := fasthttp.Client{Dial: func(string) (net.Conn, error) { return listener.Dial() }}
	require.NoError(t, client.Do(req, resp))
	require.Equal(t, 201, resp.StatusCode())
}

func TestTimeoutHandlerIsKnown(t *testing.T) {
	for _, limit := range []func(fasthttp.RequestHandler) fasthttp.RequestHandler{
		func(h fasthttp.RequestHandler) fasthttp.RequestHandler {
			return fasthttp.TimeoutHandler(h, time.Minute, "")
		},
		func(h fasthttp.RequestHandler) fasthttp.RequestHandler {
			return fasthttp.TimeoutWithCodeHandler(h, time.Minute, "", 504)
		},
	} {
		call(t, limit(func(ctx *fasthttp.RequestCtx) {
			assert.True(t, IsLimited())
			ctx.SetStatusCode(201)
		}))
	}
	call(t, func(ctx *fasthttp.RequestCtx) {
		assert.False(t, IsLimited())
		ctx.SetStatusCode(201)
	})
}
