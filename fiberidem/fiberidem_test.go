package fiberidem_test

import (
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/internal/fibertest"
)

func TestDefaultContentTypeReturns(t *testing.T) {
	app := newApp()
	app.Post("/bare", mounted(t, core.Policy{StoredHeaders: core.KeepHeaders()}), func(c *fiber.Ctx) error { return c.SendString("x") })
	app.Get("/plain", func(c *fiber.Ctx) error { return c.SendString("y") })
	s := serve(t, app)
	s.Post("/bare", "")
	require.NotContains(t, s.Post("/bare", "").Header, "Content-Type")
	// The next response on the same connection has it again.
	require.Equal(t, "text/plain; charset=utf-8", s.Send("GET", "/plain", "").Header.Get("Content-Type"))
}

// An error behind a body takes its place; and where the ErrorHandler fails, too, Fiber answers, and the run has failed.
func TestErrorsAreStoredAsRendered(t *testing.T) {
	for name, tc := range map[string]struct {
		render func(*fiber.Ctx, error) error
		status int
		body   string
		kept   bool
	}{
		"rendered": {fiber.DefaultErrorHandler, 409, "too late", true},
		"failing":  {func(_ *fiber.Ctx, err error) error { return err }, 500, "Internal Server Error", false},
	} {
		t.Run(name, func(t *testing.T) {
			app := newApp(fiber.Config{ErrorHandler: tc.render})
			app.Post("/", mounted(t, core.Policy{Failed: core.FailedByStatus}), func(c *fiber.Ctx) error {
				if tc.kept {
					_ = c.Status(201).SendString("half an answer")
				}
				return fiber.NewError(409, "too late")
			})
			serve(t, app).PostTwice("/", tc.status, tc.body, tc.kept)
		})
	}
}

// A body that a middleware in front adds to an empty answer has the Content-Type that it has without a guard.
func TestABodyInFront(t *testing.T) {
	app := newApp()
	app.Use(func(c *fiber.Ctx) error {
		err := c.Next()
		c.Response().SetBodyString("added")
		return err
	})
	handler := func(c *fiber.Ctx) error { c.Status(201); return nil }
	app.Post("/bare", handler)
	app.Post("/guarded", mounted(t, core.Policy{}), handler)
	s := serve(t, app)
	bare, guarded := s.Post("/bare", ""), s.Post("/guarded", "")
	require.Equal(t, "added", guarded.Body)
	require.Equal(t, fibertest.WithoutDate(bare.Header), fibertest.WithoutDate(guarded.Header))
}
