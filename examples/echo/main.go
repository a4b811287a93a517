// Command echo is the shop on Echo v4.
package main

import (
	"errors"
	"flag"
	"io"
	"log"
	"net/http"
	"os"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/idem-go/idem/echoidem"
	"github.com/idem-go/idem/examples/shop"
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
	err = shop.Serve(options, shop.HTTPServer(newRouter(guards)))
	store.Close()
	if err != nil {
		log.Fatal(err)
	}
}

func newRouter(g *shop.Guards) *echo.Echo {
	s := shop.New()
	e := echo.New()

	// Recovery stands outside of the guards: a panic passes them on its way, and they
	// forget the run, so that the next try runs. Errors need no more than Echo's own
	// HTTPErrorHandler: the guards see what it has made of them.
	e.Use(middleware.Recover())

	e.POST("/orders", handle(s.CreateOrder), echoidem.New(g.Orders))
	e.POST("/orders/:id/pay", handle(s.PayOrder), echoidem.New(g.Pay))
	e.POST("/payments", handle(s.CreatePayment), echoidem.New(g.Payments))
	e.POST("/transfers", handle(s.CreateTransfer), echoidem.New(g.Transfers))
	e.POST("/likes", handle(s.Like), echoidem.New(g.Likes))
	e.POST("/coupons", handle(s.TakeCoupon), echoidem.New(g.Coupons))
	e.POST("/avatars", handle(s.SetAvatar), echoidem.New(g.Avatars))
	// A request whose signature is refused does not get to the guard, and leaves no record.
	e.POST("/webhooks", handle(s.ReceiveWebhook), echoidem.Verify(g.Signed), echoidem.New(g.Webhooks))
	e.GET("/stats", handle(s.Stats))
	return e
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
			User:        r.Header.Get("X-User"),
			ID:          id,
			ContentType: r.Header.Get("Content-Type"),
			Body:        body,
			Header:      r.Header.Get,
		})
		var problem *shop.Problem
		if errors.As(err, &problem) {
			return echo.NewHTTPError(problem.Status, problem.Message)
		}
		if err != nil {
			return err
		}
		if reply.Location != "" {
			c.Response().Header().Set("Location", reply.Location)
		}
		return c.Blob(reply.Status, reply.ContentType, reply.Body)
	}
}
