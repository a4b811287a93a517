package fiberidem

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/internal/leakcheck"
)

const poison = 0xA5

// poisonPools overwrites all memory that lies in the pools. What is in a pool is nobody's: if
// any of it turns up anywhere, or the race detector sees somebody else look at it, it was put
// back too early.
func poisonPools() {
	x := exchanges.Get().(*exchange)
	scribble(x.addr)
	scribbleHeader(x.before)
	for _, fields := range [][]core.Field{x.fields[:cap(x.fields)], x.resp.Header[:cap(x.resp.Header)]} {
		for i := range fields {
			fields[i] = core.Field{Name: "X-Poison", Value: "poison"}
		}
	}
	exchanges.Put(x)
}

// scribbleHeader overwrites the memory of a header, which it leaves empty.
func scribbleHeader(h *fasthttp.ResponseHeader) {
	for i := range 20 {
		h.Set("X-Poison-Number-"+strconv.Itoa(i), strings.Repeat("poison", 20))
	}
	h.Reset()
}

func scribble(b []byte) {
	b = b[:cap(b)]
	for i := range b {
		b[i] = poison
	}
}

// TestNothingLeaks: thousands of requests at once, in memory that is used again and poisoned
// in between, fasthttp's own included, and nobody gets or leaves anything of another.
func TestNothingLeaks(t *testing.T) {
	engine, store := leakcheck.Engine(t)
	parameters, key := leakcheck.Guards(engine)
	handler := func(c *fiber.Ctx) error {
		poisonPools()
		a := leakcheck.Of(leakcheck.Seen{
			ID:    strings.Clone(c.Params("id")),
			Query: string(c.Context().URI().QueryString()),
			User:  strings.Clone(c.Get("X-User")),
			Key:   strings.Clone(c.Get("Idempotency-Key")),
			Body:  append([]byte(nil), c.Body()...),
		})
		c.Set("Content-Type", a.ContentType)
		c.Set("Location", a.Location)
		c.Set("X-Echo", a.Echo)
		return c.Status(fiber.StatusCreated).Send(a.Body)
	}
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Use(func(c *fiber.Ctx) error {
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
		ctx.Response.Header.VisitAll(func(name, value []byte) { resp.Header.Add(string(name), string(value)) })

		// As fasthttp does when the next request comes on the connection.
		scribble(ctx.Request.Body())
		scribble(ctx.Response.Body())
		for _, field := range []func() []byte{ctx.URI().Path, ctx.URI().QueryString, ctx.Request.Header.ContentType} {
			b := field()
			for i := range b {
				b[i] = poison
			}
		}
		for _, name := range []string{"X-User", "Idempotency-Key"} {
			b := ctx.Request.Header.Peek(name)
			for i := range b {
				b[i] = poison
			}
		}
		contexts.Put(ctx)
		return resp, nil
	}
	leakcheck.Run{Requests: 3000, Send: send, Poison: poisonPools}.Test(t, store)
}
