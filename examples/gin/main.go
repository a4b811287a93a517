// Command gin is the shop on Gin.
package main

import (
	"errors"
	"flag"
	"log"
	"net/http"
	"os"

	"github.com/gin-gonic/gin"

	"github.com/idem-go/idem/examples/shop"
	"github.com/idem-go/idem/ginidem"
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

func newRouter(g *shop.Guards) *gin.Engine {
	gin.SetMode(gin.ReleaseMode)
	s := shop.New(g)
	r := gin.New()
	r.UseRawPath = true // an id may hold a slash, as %2F

	// From the outside in: recovery answers 500 to a panic. renderErrors makes responses of
	// c.Error, and does so further out than the guards; Finish wraps it, so that
	// the guards store what it has made. What a page of somebody else's has sent gets no further
	// than sameOrigin: a token alone does not keep that out.
	r.Use(gin.CustomRecovery(renderPanic), ginidem.Finish(), renderErrors, sameOrigin)

	r.POST("/orders", ginidem.New(g.Orders), handle(s.CreateOrder))
	r.POST("/orders/:id/pay", ginidem.New(g.Pay), handle(s.PayOrder))
	r.POST("/payments", ginidem.New(g.Payments), handle(s.CreatePayment))
	r.POST("/transfers", ginidem.New(g.Transfers), handle(s.CreateTransfer))
	r.POST("/charges", ginidem.New(g.Charges), handle(s.Charge))
	r.POST("/likes", ginidem.New(g.Likes), handle(s.Like))
	r.POST("/coupons", ginidem.New(g.Coupons), handle(s.TakeCoupon))
	r.POST("/avatars", ginidem.New(g.Avatars), handle(s.SetAvatar))
	// A request whose signature is refused does not get to the guard, and leaves no record.
	r.POST("/webhooks", ginidem.Verify(g.Signed), ginidem.New(g.Webhooks), handle(s.ReceiveWebhook))
	r.GET("/stats", handle(s.Stats))

	// A program asks for a token, and sends it in X-Idempotency-Token.
	r.GET("/tokens", ginidem.IssueToken(g.Registrations))
	r.POST("/registrations", ginidem.New(g.Registrations), handle(s.Register))

	// A person gets it with the form. A visitor needs a session: a token is one user's.
	r.GET("/checkout", session, func(c *gin.Context) {
		token, err := ginidem.NewToken(c, g.Checkout)
		handle(s.CheckoutForm(token, err))(c)
	})
	r.POST("/checkout", session, ginidem.New(g.Checkout), handle(s.Checkout))
	r.GET("/receipts/:id", handle(s.Receipt))
	r.GET("/style.css", handle(shop.Style))
	r.GET("/idem.js", gin.WrapF(js.Serve))

	// The page that shows what idem does.
	r.GET("/try", handle(shop.TryPage))
	r.GET("/try.js", handle(shop.TryScript))
	r.Any("/try/*do", gin.WrapH(shop.NewTry()))

	if g.Admin != nil {
		r.Any(shop.PathAdmin+"*page", gin.WrapH(g.Admin))
	}
	r.NoRoute(func(c *gin.Context) { c.Error(shop.ErrNotFound) })
	return r
}

var crossOrigin = http.NewCrossOriginProtection()

func sameOrigin(c *gin.Context) {
	if crossOrigin.Check(c.Request) != nil {
		c.Error(shop.ErrCrossOrigin)
		c.Abort()
	}
}

// session gives a visitor who comes without a session a new one, in time for this request.
func session(c *gin.Context) {
	if cookie := shop.NewSession(c.GetHeader); cookie != nil {
		http.SetCookie(c.Writer, cookie)
		c.Request.AddCookie(cookie)
	}
}

// handle translates between Gin and the shop.
func handle(h shop.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		var body []byte
		if c.Request.Body != nil {
			var err error
			if body, err = c.GetRawData(); err != nil {
				c.Error(&shop.Problem{Status: http.StatusBadRequest, Message: "the body could not be read"})
				return
			}
		}
		// Under a guard the request's context also ends when the lease is lost.
		reply, err := h(c.Request.Context(), &shop.Request{
			User:        shop.User(c.GetHeader),
			ID:          c.Param("id"),
			ContentType: c.GetHeader("Content-Type"),
			Body:        body,
			Header:      c.GetHeader,
		})
		if err != nil {
			c.Error(err)
			return
		}
		if reply != nil {
			write(c, reply)
		}
	}
}

func write(c *gin.Context, reply *shop.Reply) {
	for _, field := range reply.Header {
		c.Header(field.Name, field.Value)
	}
	if reply.Location != "" {
		c.Header("Location", reply.Location)
	}
	c.Data(reply.Status, reply.ContentType, reply.Body)
}

// renderPanic answers 500 to a panic. What that has to say is not for the client.
func renderPanic(c *gin.Context, _ any) {
	write(c, shop.ErrorReply(c.GetHeader, http.StatusInternalServerError, "internal error"))
	c.Abort()
}

// renderErrors answers for handlers that have left an error and nothing else.
func renderErrors(c *gin.Context) {
	c.Next()
	if len(c.Errors) == 0 || c.Writer.Written() {
		return
	}
	err := c.Errors.Last().Err
	status := http.StatusInternalServerError
	var problem *shop.Problem
	if errors.As(err, &problem) {
		status = problem.Status
	}
	write(c, shop.ErrorReply(c.GetHeader, status, err.Error()))
}
