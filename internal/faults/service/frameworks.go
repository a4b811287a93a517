//go:build !skewed

package main

import (
	"net"
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/adaptor"
	fiber3 "github.com/gofiber/fiber/v3"
	"github.com/labstack/echo/v4"
	echo5 "github.com/labstack/echo/v5"
	_ "modernc.org/sqlite"

	"github.com/idem-go/idem/echo5idem"
	"github.com/idem-go/idem/echoidem"
	"github.com/idem-go/idem/fiber3idem"
	"github.com/idem-go/idem/fiberidem"
	"github.com/idem-go/idem/ginidem"
)

// All this takes minutes to compile, which the tests with a changed standard library would have to do anew; and the clock of SQLite is
// the process's own.
func init() {
	frameworks["gin"] = func(l net.Listener, r routes) error {
		gin.SetMode(gin.ReleaseMode)
		router := gin.New()
		router.POST("/payments", ginidem.New(r.guard), func(c *gin.Context) {
			status, body := r.pay(c.Request.Context(), c.GetHeader("Idempotency-Key"), ginidem.Run(c))
			c.String(status, body)
		})
		router.POST("/tasks", gin.WrapF(r.payTask))
		router.GET("/now", func(c *gin.Context) { c.String(http.StatusOK, now()) })
		return http.Serve(l, router)
	}
	frameworks["fiber"] = func(l net.Listener, r routes) error {
		app := fiber.New(fiber.Config{DisableStartupMessage: true, Immutable: true})
		app.Post("/payments", fiberidem.New(r.guard), func(c *fiber.Ctx) error {
			status, body := r.pay(c.UserContext(), c.Get("Idempotency-Key"), fiberidem.Run(c))
			return c.Status(status).SendString(body)
		})
		app.Post("/tasks", adaptor.HTTPHandlerFunc(r.payTask))
		app.Get("/now", func(c *fiber.Ctx) error { return c.SendString(now()) })
		return app.Listener(l)
	}
	frameworks["fiber3"] = func(l net.Listener, r routes) error {
		app := fiber3.New(fiber3.Config{Immutable: true})
		app.Post("/payments", fiber3idem.New(r.guard), func(c fiber3.Ctx) error {
			status, body := r.pay(c.Context(), c.Get("Idempotency-Key"), fiber3idem.Run(c))
			return c.Status(status).SendString(body)
		})
		app.Post("/tasks", r.payTask)
		app.Get("/now", func(c fiber3.Ctx) error { return c.SendString(now()) })
		return app.Listener(l, fiber3.ListenConfig{DisableStartupMessage: true})
	}
	frameworks["echo"] = func(l net.Listener, r routes) error {
		e := echo.New()
		e.POST("/payments", func(c echo.Context) error {
			req := c.Request()
			return c.String(r.pay(req.Context(), req.Header.Get("Idempotency-Key"), echoidem.Run(c)))
		}, echoidem.New(r.guard))
		e.POST("/tasks", echo.WrapHandler(http.HandlerFunc(r.payTask)))
		e.GET("/now", func(c echo.Context) error { return c.String(http.StatusOK, now()) })
		return http.Serve(l, e)
	}
	frameworks["echo5"] = func(l net.Listener, r routes) error {
		e := echo5.New()
		e.POST("/payments", func(c *echo5.Context) error {
			req := c.Request()
			return c.String(r.pay(req.Context(), req.Header.Get("Idempotency-Key"), echo5idem.Run(c)))
		}, echo5idem.New(r.guard))
		e.POST("/tasks", echo5.WrapHandler(http.HandlerFunc(r.payTask)))
		e.GET("/now", func(c *echo5.Context) error { return c.String(http.StatusOK, now()) })
		return http.Serve(l, e)
	}
}
