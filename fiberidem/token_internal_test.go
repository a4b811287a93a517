package fiberidem

import (
	"runtime"
	"testing"
	"weak"

	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

// A page's route is looked up once, and forgotten with its app.
func TestPagesAreKeptAsLongAsTheirApp(t *testing.T) {
	var key weak.Pointer[fiber.Route]
	known := func() bool {
		_, ok := pages.Load(key)
		return ok
	}
	func() {
		app := fiber.New()
		var found []*place
		app.Get("/pages/:id", func(c *fiber.Ctx) error {
			key = weak.Make(c.Route())
			found = append(found, pageOf(c))
			return nil
		})
		for range 2 {
			var ctx fasthttp.RequestCtx
			ctx.Request.SetRequestURI("/pages/1")
			app.Handler()(&ctx)
		}
		require.Len(t, found, 2)
		assert.Same(t, found[0], found[1])
		assert.Equal(t, "/pages/:id", found[0].route)
		assert.True(t, known())
	}()
	for known() { // until the test's own deadline
		runtime.GC()
	}
}
