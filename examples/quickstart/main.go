package main

import (
	"crypto/rand"
	"log"
	"log/slog"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/ginidem"
)

func main() {
	// The user is the one that the authentication below has found.
	engine := core.MustNew(core.Config{
		User:    ginidem.UserFromContext(gin.AuthUserKey),
		Observe: core.LogEvents(slog.Default(), slog.LevelInfo),
	})
	orders := engine.MustGuard(core.Policy{})      // same user, route and parameters: one operation
	payments := engine.MustGuard(core.ClientKey()) // the client sends an Idempotency-Key

	r := gin.Default()
	r.Use(gin.BasicAuth(gin.Accounts{"ann": "secret", "bob": "hidden"}))
	r.POST("/orders", ginidem.New(orders), func(c *gin.Context) {
		c.JSON(http.StatusCreated, gin.H{"order_id": rand.Text()})
	})
	r.POST("/payments", ginidem.New(payments), func(c *gin.Context) {
		c.JSON(http.StatusCreated, gin.H{"payment_id": rand.Text()})
	})
	log.Fatal(r.Run("127.0.0.1:8080"))
}
