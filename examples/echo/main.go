// Command echo is the shop on Echo v4.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/idem-go/idem/echoidem"
	"github.com/idem-go/idem/examples/shop"
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
	err = shop.Serve(options, guards, shop.HTTPServer(newRouter(guards)))
	store.Close()
	if err != nil {
		log.Fatal(err)
	}
}

func newRouter(g *shop.Guards) *echo.Echo {
	s := shop.New(g)
	e := echo.New()

	// Recovery is outside the guards: a panic passes them on its way, and they
	// forget the run, so that the next try runs. Errors need no more than Echo's
	// HTTPErrorHandler: the guards see what it has made of them. What a page of somebody else's
	// has sent gets no further than sameOrigin: a token alone does not keep that out.
	e.Use(middleware.Recover(), sameOrigin)
	e.HTTPErrorHandler = renderError

	e.POST("/orders", handle(s.CreateOrder), echoidem.New(g.Orders))
	e.POST("/orders/:id/pay", handle(s.PayOrder), echoidem.New(g.Pay))
	e.POST("/payments", handle(s.CreatePayment), echoidem.New(g.Payments))
	e.POST("/transfers", handle(s.CreateTransfer), echoidem.New(g.Transfers))
	e.POST("/charges", handle(s.Charge), echoidem.New(g.Charges))
	e.POST("/likes", handle(s.Like), echoidem.New(g.Likes))
	e.POST("/coupons", handle(s.TakeCoupon), echoidem.New(g.Coupons))
	e.POST("/avatars", handle(s.SetAvatar), echoidem.New(g.Avatars))
	// A request whose signature is refused does not get to the guard, and leaves no record.
	e.POST("/webhooks", handle(s.ReceiveWebhook), echoidem.Verify(g.Signed), echoidem.New(g.Webhooks))
	e.GET("/stats", handle(s.Stats))
	if g.Admin != nil {
		e.Any(shop.PathAdmin+"*", echo.WrapHandler(g.Admin))
	}

	// A program asks for a token, and sends it in X-Idempotency-Token.
	e.GET("/tokens", echoidem.IssueToken(g.Registrations))
	e.POST("/registrations", handle(s.Register), echoidem.New(g.Registrations))

	// A person gets it with the form. A visitor needs a session: a token is one user's.
	e.GET("/checkout", func(c echo.Context) error {
		token, err := echoidem.NewToken(c, g.Checkout)
		return handle(s.CheckoutForm(token, err))(c)
	}, session)
	e.POST("/checkout", handle(s.Checkout), session, echoidem.New(g.Checkout))
	e.GET("/receipts/:id", handle(s.Receipt))
	e.GET("/style.css", handle(shop.Style))
	e.GET("/idem.js", echo.WrapHandler(http.HandlerFunc(js.Serve)))

	// The page that shows what idem does.
	e.GET("/try", handle(shop.TryPage))
	e.GET("/try.js", handle(shop.TryScript))
	e.Any("/try/*", echo.WrapHandler(shop.NewTry()))
	return e
}

var crossOrigin = http.NewCrossOriginProtection()

func sameOrigin(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if crossOrigin.Check(c.Request()) != nil {
			return echo.NewHTTPError(shop.ErrCrossOrigin.Status, shop.ErrCrossOrigin.Message)
		}
		return next(c)
	}
}

// session gives a visitor who comes without a session a new one, in time for this request.
func session(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if cookie := shop.NewSession(c.Request().Header.Get); cookie != nil {
			c.SetCookie(cookie)
			c.Request().AddCookie(cookie)
		}
		return next(c)
	}
}

// renderError answers for handlers that return an error. What a panic has to say is not for the
// client.
func renderError(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	status, text := http.StatusInternalServerError, "internal error"
	var failure *echo.HTTPError
	if errors.As(err, &failure) {
		status, text = failure.Code, fmt.Sprint(failure.Message)
	}
	_ = write(c, shop.ErrorReply(c.Request().Header.Get, status, text)) // an error means that the client has gone
}

// handle translates between Echo and the shop.
func handle(h shop.Handler) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return echo.NewHTTPError(http.StatusBadRequest, "the body could not be read")
		}
		id := c.Param("id")
		if r.URL.RawPath != "" {
			id = shop.Unescape(id) // Echo has matched the path as it was sent
		}
		// Under a guard the request's context also ends when the lease is lost.
		reply, err := h(r.Context(), &shop.Request{
			User:        shop.User(r.Header.Get),
			ID:          id,
			ContentType: r.Header.Get("Content-Type"),
			Body:        body,
			Header:      r.Header.Get,
		})
		var problem *shop.Problem
		if errors.As(err, &problem) {
			return echo.NewHTTPError(problem.Status, problem.Message)
		}
		if err != nil || reply == nil {
			return err
		}
		return write(c, reply)
	}
}

func write(c echo.Context, reply *shop.Reply) error {
	for _, field := range reply.Header {
		c.Response().Header().Set(field.Name, field.Value)
	}
	if reply.Location != "" {
		c.Response().Header().Set("Location", reply.Location)
	}
	return c.Blob(reply.Status, reply.ContentType, reply.Body)
}
