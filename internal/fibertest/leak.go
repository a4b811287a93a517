package fibertest

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/internal/leakcheck"
)

// testNothingLeaks: thousands of requests at once, in memory that is used again and poisoned
// in between, fasthttp's own included, and nobody gets or leaves anything of another.
func (s suite[C]) testNothingLeaks(t *testing.T) {
	engine, store := leakcheck.Engine(t)
	parameters, key := leakcheck.Guards(engine)
	handler := func(c C) error {
		s.PoisonPools()
		a := leakcheck.Of(leakcheck.Seen{
			ID:    strings.Clone(c.Params("id")),
			Query: string(c.Request().URI().QueryString()),
			User:  strings.Clone(c.Get("X-User")),
			Key:   strings.Clone(c.Get("Idempotency-Key")),
			Body:  append([]byte(nil), c.Body()...),
		})
		c.Set("Content-Type", a.ContentType)
		c.Set("Location", a.Location)
		c.Set("X-Echo", a.Echo)
		return c.Status(http.StatusCreated).Send(a.Body)
	}
	app := s.newApp()
	app.Use(func(c C) error {
		c.Set("X-Before", c.Params("*")) // what was there before the handler is remembered
		return c.Next()
	})
	app.Add("POST", leakcheck.Route, s.New(parameters), handler)
	app.Add("POST", leakcheck.KeyRoute, s.New(key), handler)

	serve := app.Handler()
	contexts := sync.Pool{New: func() any { return new(fasthttp.RequestCtx) }}
	send := func(r *http.Request) (*leakcheck.Response, error) {
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
		resp := &leakcheck.Response{Status: ctx.Response.StatusCode(), Header: http.Header{}, Body: append([]byte(nil), ctx.Response.Body()...)}
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
	leakcheck.Run{Requests: 3000, Send: send, Poison: s.PoisonPools}.Test(t, store)
}
