package fiberidem

import (
	"net"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/assert"
	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/core"
)

// What has been answered is not empty, also if nobody knows what it is.
func TestOnlyNothingIsEmpty(t *testing.T) {
	for name, answer := range map[string]func(c *fiber.Ctx){
		"":         func(*fiber.Ctx) {},
		"status":   func(c *fiber.Ctx) { c.Status(201) },
		"body":     func(c *fiber.Ctx) { c.Response().SetBodyString("made") },
		"stream":   func(c *fiber.Ctx) { c.Context().SetBodyStream(strings.NewReader(""), -1) },
		"hijacked": func(c *fiber.Ctx) { c.Context().Hijack(func(net.Conn) {}) },
	} {
		app := fiber.New()
		c := app.AcquireCtx(new(fasthttp.RequestCtx))
		answer(c)
		assert.Equal(t, name == "", capture(c, new(core.Response), 100, false).Empty, name)
		app.ReleaseCtx(c)
	}
}
