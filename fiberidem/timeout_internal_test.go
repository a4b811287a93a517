package fiberidem

import (
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/timeout"
	"github.com/stretchr/testify/assert"
)

var newWithContext = timeout.NewWithContext // where it is not inlined, and has its name

func TestTimeoutsAreKnownByTheirCode(t *testing.T) {
	handler := func(*fiber.Ctx) error { return nil }
	//lint:ignore SA1019 what is deployed uses it
	limit := func(d time.Duration) fiber.Handler { return timeout.New(handler, d) } // a place where it may be inlined
	assert.True(t, isTimeout(limit(time.Minute)))
	//lint:ignore SA1019 what is deployed uses it
	assert.True(t, isTimeout(timeout.New(handler, time.Minute)))
	assert.False(t, isTimeout(limit(0)), "no timeout at all")
	assert.False(t, isTimeout(newWithContext(handler, time.Minute)))
	assert.False(t, isTimeout(handler))
}
