package fiberidem_test

import (
	"testing"

	"github.com/gofiber/fiber/v2"

	"github.com/idem-go/idem/internal/fibertest"
)

func newApp(config ...fiber.Config) *fiber.App {
	var c fiber.Config
	if len(config) > 0 {
		c = config[0]
	}
	c.DisableStartupMessage = true
	return fiber.New(c)
}

type service struct{ *fibertest.Service }

func serve(t testing.TB, app *fiber.App) service {
	t.Helper()
	return service{fibertest.Serve(t, app.Listener, app.Shutdown)}
}
