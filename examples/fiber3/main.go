// Command fiber3 is the shop on Fiber v3.
package main

import (
	"errors"
	"flag"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/gofiber/fiber/v3/middleware/recover"

	"github.com/idem-go/idem/examples/shop"
	"github.com/idem-go/idem/fiber3idem"
	"github.com/idem-go/idem/js"
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
	server := shop.Server{Serve: listen(app), Shutdown: app.ShutdownWithContext}
	err = shop.Serve(options, guards, server)
	store.Close()
	if err != nil {
		log.Fatal(err)
	}
}

func listen(app *fiber.App) func(net.Listener) error {
	return func(l net.Listener) error {
		return app.Listener(l, fiber.ListenConfig{DisableStartupMessage: true})
	}
}

func newApp(g *shop.Guards) *fiber.App {
	s := shop.New(g)
	app := fiber.New(fiber.Config{
		ErrorHandler: renderError,
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

	// Recovery is outside the guards: a panic passes them on its way, and they
	// forget the run, so that the next try runs. Errors need no more than the app's
	// ErrorHandler: the guards see what it has made of them. What a page of somebody else's
	// has sent gets no further than sameOrigin: a token alone does not keep that out.
	app.Use(recover.New(), sameOrigin)

	app.Post("/orders", fiber3idem.New(g.Orders), handle(s.CreateOrder))
	app.Post("/orders/:id/pay", fiber3idem.New(g.Pay), handle(s.PayOrder))
	app.Post("/payments", fiber3idem.New(g.Payments), handle(s.CreatePayment))
	app.Post("/transfers", fiber3idem.New(g.Transfers), handle(s.CreateTransfer))
	app.Post("/charges", fiber3idem.New(g.Charges), handle(s.Charge))
	app.Post("/likes", fiber3idem.New(g.Likes), handle(s.Like))
	app.Post("/coupons", fiber3idem.New(g.Coupons), handle(s.TakeCoupon))
	app.Post("/avatars", fiber3idem.New(g.Avatars), handle(s.SetAvatar))
	// A request whose signature is refused does not get to the guard, and leaves no record.
	app.Post("/webhooks", fiber3idem.Verify(g.Signed), fiber3idem.New(g.Webhooks), handle(s.ReceiveWebhook))
	app.Get("/stats", handle(s.Stats))
	if g.Admin != nil {
		app.All(shop.PathAdmin+"*", adaptor.HTTPHandler(g.Admin))
	}

	// A program asks for a token, and sends it in X-Idempotency-Token.
	app.Get("/tokens", fiber3idem.IssueToken(g.Registrations))
	app.Post("/registrations", fiber3idem.New(g.Registrations), handle(s.Register))

	// A person gets it with the form. A visitor needs a session: a token is one user's.
	app.Get("/checkout", session, func(c fiber.Ctx) error {
		token, err := fiber3idem.NewToken(c, g.Checkout)
		return handle(s.CheckoutForm(token, err))(c)
	})
	app.Post("/checkout", session, fiber3idem.New(g.Checkout), handle(s.Checkout))
	app.Get("/receipts/:id", handle(s.Receipt))
	app.Get("/style.css", handle(shop.Style))
	app.Get("/idem.js", adaptor.HTTPHandlerFunc(js.Serve))

	// The page that shows what idem does.
	app.Get("/try", handle(shop.TryPage))
	app.Get("/try.js", handle(shop.TryScript))
	app.All("/try/*", adaptor.HTTPHandler(shop.NewTry()))
	return app
}

var crossOrigin = http.NewCrossOriginProtection()

// sameOrigin asks net/http's own protection, which looks at no more of a request than this.
func sameOrigin(c fiber.Ctx) error {
	r := &http.Request{Method: c.Method(), Host: string(c.Request().Host()), Header: http.Header{
		"Sec-Fetch-Site": {c.Get("Sec-Fetch-Site")},
		"Origin":         {c.Get("Origin")},
	}}
	if crossOrigin.Check(r) != nil {
		return fiber.NewError(shop.ErrCrossOrigin.Status, shop.ErrCrossOrigin.Message)
	}
	return c.Next()
}

// session gives a visitor who comes without a session a new one, in time for this request.
func session(c fiber.Ctx) error {
	if cookie := shop.NewSession(header(c)); cookie != nil {
		c.Response().Header.Add("Set-Cookie", cookie.String())
		c.Request().Header.SetCookie(cookie.Name, cookie.Value)
	}
	return c.Next()
}

// renderError answers for handlers that return an error. What a panic has to say is not for
// the client.
func renderError(c fiber.Ctx, err error) error {
	failure := fiber.ErrInternalServerError
	errors.As(err, &failure)
	return write(c, shop.ErrorReply(header(c), failure.Code, failure.Message))
}

func header(c fiber.Ctx) func(name string) string {
	return func(name string) string { return c.Get(name) }
}

// handle translates between Fiber and the shop.
func handle(h shop.Handler) fiber.Handler {
	return func(c fiber.Ctx) error {
		// Under a guard the context ends when the lease is lost.
		reply, err := h(c.Context(), &shop.Request{
			// Fiber reuses the memory of its strings after the handler. Those that the
			// shop keeps have to be copied.
			User:        strings.Clone(shop.User(header(c))),
			ID:          shop.Unescape(strings.Clone(c.Params("id"))),
			ContentType: strings.Clone(c.Get("Content-Type")),
			Body:        c.BodyRaw(),
			Header:      header(c),
		})
		var problem *shop.Problem
		if errors.As(err, &problem) {
			return fiber.NewError(problem.Status, problem.Message)
		}
		if err != nil || reply == nil {
			return err
		}
		return write(c, reply)
	}
}

func write(c fiber.Ctx, reply *shop.Reply) error {
	for _, field := range reply.Header {
		c.Set(field.Name, field.Value)
	}
	if reply.Location != "" {
		c.Location(reply.Location)
	}
	c.Set("Content-Type", reply.ContentType)
	return c.Status(reply.Status).Send(reply.Body)
}
