package fibertest

import (
	"io"
	"net/http"
	"sync"

	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/internal/leakcheck"
)

// Recycling returns what sends a request to serve in a context that is used again, as fasthttp does with those of a connection.
func Recycling(serve fasthttp.RequestHandler) func(*http.Request) (*leakcheck.Response, error) {
	contexts := sync.Pool{New: func() any { return new(fasthttp.RequestCtx) }}
	return func(r *http.Request) (*leakcheck.Response, error) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		ctx := contexts.Get().(*fasthttp.RequestCtx)
		ctx.Request.Reset()
		ctx.Response.Reset()
		ctx.ResetUserValues()
		ctx.Request.Header.SetMethod(r.Method)
		ctx.Request.SetRequestURI(r.URL.RequestURI())
		for name, values := range r.Header {
			ctx.Request.Header.Set(name, values[0])
		}
		ctx.Request.SetBody(body)
		serve(ctx)
		resp := &leakcheck.Response{Status: ctx.Response.StatusCode(), Header: http.Header{},
			Body: append([]byte(nil), ctx.Response.Body()...)}
		ctx.Response.Header.VisitAll(func(name, value []byte) { resp.Header.Add(string(name), string(value)) })

		// As fasthttp does when the next request comes on the connection.
		leakcheck.Scribble(ctx.Request.Body())
		leakcheck.Scribble(ctx.Response.Body())
		for _, field := range []func() []byte{ctx.URI().Path, ctx.URI().QueryString, ctx.Request.Header.ContentType} {
			leakcheck.Scribble(field())
		}
		for _, name := range []string{"X-User", "Idempotency-Key"} {
			leakcheck.Scribble(ctx.Request.Header.Peek(name))
		}
		contexts.Put(ctx)
		return resp, nil
	}
}
