// Command fiber is the shop on Fiber v2.
package main

import (
	"errors"
	"flag"
	"log"
	"os"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/recover"

	"github.com/idem-go/idem/examples/shop"
	"github.com/idem-go/idem/fiberidem"
)

func main() {
	options, err := shop.ParseOptions(flag.CommandLine, os.Args[1:])
	if err != nil {
		os.Exit(2)
	}
	store, err := shop.OpenStore(options)
	if err != nil {
		log.Fatal(err)
	}
	guards, err := shop.NewGuards(options, store)
	if err != nil {
		log.Print(err)
		os.Exit(2)
	}
	app := newApp(guards)
	server := shop.Server{Serve: app.Listener, Shutdown: app.ShutdownWithContext}
	err = shop.Serve(options, server)
	store.Close()
	if err != nil {
		log.Fatal(err)
	}
}

func newApp(g *shop.Guards) *fiber.App {
	s := shop.New()
	app := fiber.New(fiber.Config{
		DisableStartupMessage: true,
		ErrorHandler:          renderError,
		// Fiber would take forms apart before anybody has seen them, and the guard would get
		// to see what it makes of them.
		DisablePreParseMultipartForm: true,
		// The guards draw the line at 1 MiB, and say so as they say everything.
		BodyLimit:      64 << 20,
		ReadBufferSize: 64 << 10, // for the header
		// They cover reading and writing, not the handler in between.
		ReadTimeout:  30 * time.Second,
		WriteTimeout: 30 * time.Second,
		IdleTimeout:  2 * time.Minute,
	})

	// Recovery stands outside of the guards: a panic passes them on its way, and they
	// forget the run, so that the next try runs. Errors need no more than the app's
	// ErrorHandler: the guards see what it has made of them.
	app.Use(recover.New())

	app.Post("/orders", fiberidem.New(g.Orders), handle(s.CreateOrder))
	app.Post("/orders/:id/pay", fiberidem.New(g.Pay), handle(s.PayOrder))
	app.Post("/payments", fiberidem.New(g.Payments), handle(s.CreatePayment))
	app.Post("/transfers", fiberidem.New(g.Transfers), handle(s.CreateTransfer))
	app.Post("/likes", fiberidem.New(g.Likes), handle(s.Like))
	app.Post("/coupons", fiberidem.New(g.Coupons), handle(s.TakeCoupon))
	app.Post("/avatars", fiberidem.New(g.Avatars), handle(s.SetAvatar))
	// A request whose signature is refused does not get to the guard, and leaves no record.
	app.Post("/webhooks", fiberidem.Verify(g.Signed), fiberidem.New(g.Webhooks), handle(s.ReceiveWebhook))
	app.Get("/stats", handle(s.Stats))
	return app
}

// renderError answers for handlers that return an error. What a panic has to say is not for
// the client.
func renderError(c *fiber.Ctx, err error) error {
	failure := fiber.ErrInternalServerError
	errors.As(err, &failure)
	return c.Status(failure.Code).JSON(fiber.Map{"message": failure.Message})
}

// handle translates between Fiber and the shop.
func handle(h shop.Handler) fiber.Handler {
	return func(c *fiber.Ctx) error {
		// Under a guard the user context ends when the lease is lost.
		reply, err := h(c.UserContext(), &shop.Request{
			// Fiber reuses the memory of its strings after the handler. Those that the
			// shop keeps have to be copied.
			User:        strings.Clone(c.Get("X-User")),
			ID:          shop.Unescape(strings.Clone(c.Params("id"))),
			ContentType: strings.Clone(c.Get("Content-Type")),
			Body:        c.BodyRaw(),
			Header:      func(name string) string { return c.Get(name) },
		})
		var problem *shop.Problem
		if errors.As(err, &problem) {
			return fiber.NewError(problem.Status, problem.Message)
		}
		if err != nil {
			return err
		}
		if reply.Location != "" {
			c.Location(reply.Location)
		}
		c.Set("Content-Type", reply.ContentType)
		return c.Status(reply.Status).Send(reply.Body)
	}
}
