package ginidem_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/ginidem"
)

func ExampleNew() {
	engine := core.MustNew(core.Config{User: core.UserFromHeader("X-User")})
	orders := engine.MustGuard(core.Policy{})

	r := gin.New()
	executed := 0
	r.POST("/orders", ginidem.New(orders), func(c *gin.Context) {
		executed++
		run := ginidem.Run(c)
		c.JSON(http.StatusCreated, gin.H{"order": executed, "attempt": run.Attempt()})
	})

	for range 2 {
		req := httptest.NewRequest("POST", "/orders", strings.NewReader(`{"sku":"A-1"}`))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-User", "alice")
		w := httptest.NewRecorder()
		r.ServeHTTP(w, req)
		fmt.Printf("%d %s, replayed: %t\n", w.Code, w.Body, w.Header().Get(core.ReplayedHeader) == "true")
	}
	// Output:
	// 201 {"attempt":1,"order":1}, replayed: false
	// 201 {"attempt":1,"order":1}, replayed: true
}

func ExampleFinish() {
	engine := core.MustNew(core.Config{User: ginidem.UserFromContext("user")})
	orders := engine.MustGuard(core.Policy{Failed: core.FailedByStatus})

	login := func(c *gin.Context) { c.Set("user", "alice") }
	renderErrors := func(c *gin.Context) {
		c.Next()
		if len(c.Errors) > 0 {
			c.JSON(http.StatusUnprocessableEntity, gin.H{"error": c.Errors.Last().Error()})
		}
	}
	r := gin.New()
	r.Use(gin.Recovery(), ginidem.Finish(), renderErrors, login)
	r.POST("/orders", ginidem.New(orders), func(c *gin.Context) {
		_ = c.Error(fmt.Errorf("sold out"))
	})

	for range 2 {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest("POST", "/orders", nil))
		fmt.Printf("%d %s, replayed: %t\n", w.Code, w.Body, w.Header().Get(core.ReplayedHeader) == "true")
	}
	// Output:
	// 422 {"error":"sold out"}, replayed: false
	// 422 {"error":"sold out"}, replayed: true
}
