package echo5idem_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/labstack/echo/v5"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/echo5idem"
)

func ExampleNew() {
	engine := core.MustNew(core.Config{User: core.UserFromHeader("X-User")})
	orders := engine.MustGuard(core.Policy{})

	e := echo.New()
	executed := 0
	e.POST("/orders", func(c *echo.Context) error {
		executed++
		run := echo5idem.Run(c)
		return c.String(http.StatusCreated, fmt.Sprintf("order %d, attempt %d", executed, run.Attempt()))
	}, echo5idem.New(orders))

	for range 2 {
		req := httptest.NewRequest("POST", "/orders", strings.NewReader(`{"sku":"A-1"}`))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-User", "alice")
		w := httptest.NewRecorder()
		e.ServeHTTP(w, req)
		fmt.Printf("%d %s, replayed: %t\n", w.Code, w.Body, w.Header().Get(core.ReplayedHeader) == "true")
	}
	// Output:
	// 201 order 1, attempt 1, replayed: false
	// 201 order 1, attempt 1, replayed: true
}

func ExampleFinish() {
	engine := core.MustNew(core.Config{User: echo5idem.UserFromContext("user")})
	orders := engine.MustGuard(core.Policy{Failed: core.FailedByStatus})

	errSoldOut := errors.New("sold out")
	mapErrors := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			err := next(c)
			if errors.Is(err, errSoldOut) {
				return c.String(http.StatusUnprocessableEntity, err.Error())
			}
			return err
		}
	}
	login := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			c.Set("user", "alice")
			return next(c)
		}
	}
	e := echo.New()
	e.Use(echo5idem.Finish(), mapErrors, login) // behind middleware.Recover()
	e.POST("/orders", func(*echo.Context) error { return errSoldOut }, echo5idem.New(orders))

	for range 2 {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest("POST", "/orders", nil))
		fmt.Printf("%d %s, replayed: %t\n", w.Code, w.Body, w.Header().Get(core.ReplayedHeader) == "true")
	}
	// Output:
	// 422 sold out, replayed: false
	// 422 sold out, replayed: true
}
