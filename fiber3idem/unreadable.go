package fiber3idem

import (
	"runtime"

	"github.com/gofiber/fiber/v3"
)

// isUnreadable reports whether the request of c could not be read. Fiber runs what Use and Group have mounted for such a request,
// too, and then answers with the error. Nothing but who has called tells.
func isUnreadable(c fiber.Ctx) bool {
	if c.Matched() {
		return false
	}
	var callers [8]uintptr
	for skip := 2; ; skip += len(callers) {
		n := runtime.Callers(skip, callers[:])
		for _, pc := range callers[:n] {
			if runtime.FuncForPC(pc-1).Name() == "github.com/gofiber/fiber/v3.(*App).serverErrorHandler" {
				return true
			}
		}
		if n < len(callers) {
			return false
		}
	}
}
