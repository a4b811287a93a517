package fiberidem_test

import (
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/fiberidem"
	"github.com/idem-go/idem/internal/fibertest"
)

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
	app.Post("/guarded", fiberidem.New(fibertest.NewEngine(t).MustGuard(core.Policy{})), handler)
	s := serve(t, app)
	bare, guarded := s.Post("/bare", ""), s.Post("/guarded", "")
	require.Equal(t, "added", guarded.Body)
	require.Equal(t, fibertest.WithoutDate(bare.Header), fibertest.WithoutDate(guarded.Header))
}
