package fasthttpkit

import (
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/core/adapter"
)

// What has been answered is not empty, also if nobody knows what it is.
func TestOnlyNothingIsEmpty(t *testing.T) {
	for name, answer := range map[string]func(ctx *fasthttp.RequestCtx){
		"":         func(*fasthttp.RequestCtx) {},
		"status":   func(ctx *fasthttp.RequestCtx) { ctx.SetStatusCode(201) },
		"body":     func(ctx *fasthttp.RequestCtx) { ctx.SetBodyString("made") },
		"stream":   func(ctx *fasthttp.RequestCtx) { ctx.SetBodyStream(strings.NewReader(""), -1) },
		"hijacked": func(ctx *fasthttp.RequestCtx) { ctx.Hijack(func(net.Conn) {}) },
	} {
		var ctx fasthttp.RequestCtx
		answer(&ctx)
		assert.Equal(t, name == "", capture(&ctx, new(adapter.Response), 100, false).Ending == adapter.Empty, name)
	}
}

// What a timeout has answered is sent as it is, blank or not: the handler may run on.
func TestAnswerOfATimeout(t *testing.T) {
	for _, body := range []string{"", "too late"} {
		var ctx fasthttp.RequestCtx
		ctx.TimeoutErrorWithCode(body, 200)
		assert.Equal(t, adapter.RunsOn, capture(&ctx, new(adapter.Response), 100, false).Ending, "%q", body)
	}
}
