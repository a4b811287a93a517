package fiberidem_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/fiberidem"
)

func Example() {
	engine := core.MustNew(core.Config{User: core.UserFromHeader("X-User")})
	orders := engine.MustGuard(core.Policy{Key: core.Params(), Duplicate: core.Replay()})

	app := fiber.New()
	made := 0
	app.Post("/orders", fiberidem.New(orders), func(c *fiber.Ctx) error {
		made++
		return c.Status(fiber.StatusCreated).JSON(fiber.Map{"order_id": made})
	})

	for range 2 { // an impatient finger
		req := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(`{"item":"book"}`))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-User", "alice")
		resp, err := app.Test(req)
		if err != nil {
			fmt.Println(err)
			return
		}
		body, _ := io.ReadAll(resp.Body)
		fmt.Println(resp.StatusCode, string(body), resp.Header.Get("Idempotent-Replayed") == "true")
	}
	// Output:
	// 201 {"order_id":1} false
	// 201 {"order_id":1} true
}

func ExampleFinish() {
	engine := core.MustNew(core.Config{User: core.SharedByAllCallers()})
	orders := engine.MustGuard(core.Policy{Failed: core.FailedByStatus})

	app := fiber.New()
	app.Use(fiberidem.Finish())
	app.Use(func(c *fiber.Ctx) error { // the house's own way with errors
		if err := c.Next(); err != nil {
			return c.Status(fiber.StatusConflict).JSON(fiber.Map{"msg": err.Error()})
		}
		return nil
	})
	app.Post("/orders", fiberidem.New(orders), func(*fiber.Ctx) error {
		return fmt.Errorf("sold out")
	})

	for range 2 {
		req := httptest.NewRequest(http.MethodPost, "/orders", nil)
		resp, err := app.Test(req)
		if err != nil {
			fmt.Println(err)
			return
		}
		body, _ := io.ReadAll(resp.Body)
		fmt.Println(resp.StatusCode, string(body), resp.Header.Get("Idempotent-Replayed") == "true")
	}
	// Output:
	// 409 {"msg":"sold out"} false
	// 409 {"msg":"sold out"} true
}

func ExampleRun() {
	engine := core.MustNew(core.Config{User: core.SharedByAllCallers()})
	app := fiber.New()
	app.Post("/transfers", fiberidem.New(engine.MustGuard(core.Policy{})), func(c *fiber.Ctx) error {
		run := fiberidem.Run(c)
		return c.SendString(fmt.Sprintf("attempt %d, takeover %v", run.Attempt(), run.Takeover()))
	})

	req := httptest.NewRequest(http.MethodPost, "/transfers", nil)
	resp, err := app.Test(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	body, _ := io.ReadAll(resp.Body)
	fmt.Println(string(body))
	// Output: attempt 1, takeover false
}
