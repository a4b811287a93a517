package fiber3idem

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/internal/leakcheck"
)

// poisonPools overwrites all memory that lies in the pool. What is in a pool is nobody's: if
// any of it turns up anywhere, or the race detector sees somebody else look at it, it was put
// back too early.
func poisonPools() {
	x := exchanges.Get().(*exchange)
	leakcheck.Scribble(x)
	exchanges.Put(x)
}

// TestNothingLeaks: thousands of requests at once, in memory that is used again and poisoned
// in between, fasthttp's own included, and nobody gets or leaves anything of another.
func TestNothingLeaks(t *testing.T) {
	engine, store := leakcheck.Engine(t)
	parameters, key := leakcheck.Guards(engine)
	handler := func(c fiber.Ctx) error {
		poisonPools()
		a := leakcheck.Of(leakcheck.Seen{
			ID:    strings.Clone(c.Params("id")),
			Query: string(c.RequestCtx().URI().QueryString()),
			User:  strings.Clone(c.Get("X-User")),
			Key:   strings.Clone(c.Get("Idempotency-Key")),
			Body:  append([]byte(nil), c.Body()...),
		})
		c.Set("Content-Type", a.ContentType)
		c.Set("Location", a.Location)
		c.Set("X-Echo", a.Echo)
		return c.Status(fiber.StatusCreated).Send(a.Body)
	}
	app := fiber.New()
	app.Use(func(c fiber.Ctx) error {
		c.Set("X-Before", c.Params("*")) // what was there before the handler is remembered
		return c.Next()
	})
	app.Post(leakcheck.Route, New(parameters), handler)
	app.Post(leakcheck.KeyRoute, New(key), handler)

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
		for name, value := range ctx.Response.Header.All() {
			resp.Header.Add(string(name), string(value))
		}

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
	leakcheck.Run{Requests: 3000, Send: send, Poison: poisonPools}.Test(t, store)
}
