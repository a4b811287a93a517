package fiberidem

import (
	"reflect"
	"runtime"
	"strings"

	"github.com/gofiber/fiber/v2"
)

// isTimeout reports whether h is what the New of Fiber's middleware/timeout makes: it answers with
// fiber.ErrRequestTimeout, and lets the handler run on. (What NewWithContext makes does not.)
func isTimeout(h fiber.Handler) bool {
	f := runtime.FuncForPC(reflect.ValueOf(h).Pointer())
	return f != nil && strings.HasPrefix(f.Name(), "github.com/gofiber/fiber/v2/middleware/timeout.New.func")
}
