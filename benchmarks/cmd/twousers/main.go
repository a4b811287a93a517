// Command twousers lets two users pay under one key, behind Fiber's own idempotency middleware and behind a guard, and
// prints what they get.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/idempotency"
	fiber3 "github.com/gofiber/fiber/v3"
	idempotency3 "github.com/gofiber/fiber/v3/middleware/idempotency"
	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/fiber3idem"
	"github.com/idem-go/idem/fiberidem"
)

func main() { pay(os.Stdout) }

func pay(w io.Writer) {
	onFiber := func(middleware fiber.Handler) fasthttp.RequestHandler {
		app := fiber.New()
		app.Post("/payments", middleware, func(c *fiber.Ctx) error { return receipt(c.Context()) })
		return app.Handler()
	}
	onFiber3 := func(middleware fiber3.Handler) fasthttp.RequestHandler {
		app := fiber3.New()
		app.Post("/payments", middleware, func(c fiber3.Ctx) error { return receipt(c.RequestCtx()) })
		return app.Handler()
	}
	guard := func() *core.Guard { // with a store of its own
		engine := core.MustNew(core.Config{User: core.UserFromHeader("X-User")})
		policy := core.ClientKey()
		policy.Key = core.Header(core.Required).Named("X-Idempotency-Key")
		return engine.MustGuard(policy)
	}

	for _, way := range []struct {
		name     string
		payments fasthttp.RequestHandler
	}{
		{"Fiber v2's own middleware", onFiber(idempotency.New())},
		{"Fiber v3's own middleware", onFiber3(idempotency3.New())},
		{"fiberidem", onFiber(fiberidem.New(guard()))},
		{"fiber3idem", onFiber3(fiber3idem.New(guard()))},
	} {
		for _, user := range []string{"ann", "bob"} {
			var c fasthttp.RequestCtx
			c.Request.Header.SetMethod(fasthttp.MethodPost)
			c.Request.SetRequestURI("/payments")
			c.Request.Header.Set("X-User", user)
			c.Request.Header.Set("X-Idempotency-Key", "00000000-0000-4000-8000-000000000001")
			way.payments(&c)
			fmt.Fprintf(w, "%s: %s gets %q and %q\n", way.name, user, c.Response.Body(), c.Response.Header.PeekCookie("session"))
		}
	}
}

// receipt is what a payment is answered with.
func receipt(c *fasthttp.RequestCtx) error {
	user := string(c.Request.Header.Peek("X-User"))
	c.Response.Header.Set("Set-Cookie", "session="+user)
	c.SetBodyString("receipt of " + user)
	return nil
}
