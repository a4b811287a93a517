package fiberidem

import (
	"math"
	"slices"

	"github.com/gofiber/fiber/v2"

	"github.com/idem-go/idem/core"
)

// Finish returns a middleware for apps in which something further out than the guard
// makes responses of errors. Mount it outside of that, and inside of recovery:
//
//	app.Use(recover.New(), fiberidem.Finish(), envelopeErrors)
//	app.Post("/orders", fiberidem.New(orders), createOrder)
//
// A guard inside then does not render the handler's error but hands it on, and what has
// become of it when it arrives here is stored. An error that nobody has rendered is given
// to the app's ErrorHandler here. Requests without such an error pass untouched. Of several
// Finish the outermost counts.
func Finish() fiber.Handler {
	return func(c *fiber.Ctx) error {
		if finisherOf(c) != nil {
			return c.Next()
		}
		f := new(finisher)
		c.Locals(finisherKey{}, f)
		// After a panic, or runtime.Goexit, nothing is known of the response.
		defer f.settle(nil)
		defer c.Locals(finisherKey{}, nil)

		err := c.Next()
		if len(f.pending) == 0 {
			return err
		}
		if err != nil {
			render(c, err)
		}
		captured := capture(c, new(core.Response), math.MaxInt, f.limited) // the engine knows the limit
		captured.Err = err
		f.settle(&captured)
		return nil
	}
}

// finisher holds the claims whose outcome is not known yet: one for each guard on the way.
type finisher struct {
	pending []deferred
	limited bool
}

type deferred struct {
	claim  *core.Pending
	before before // the header before the guard's handler

	timedOut bool // the handler may run on
}

type finisherKey struct{}

func finisherOf(c *fiber.Ctx) *finisher {
	f, _ := c.Locals(finisherKey{}).(*finisher)
	return f
}

// settle finishes each claim once; a second call finds nothing to do.
func (f *finisher) settle(captured *core.Capture) {
	pending := f.pending
	f.pending = nil
	for _, p := range pending {
		if captured == nil {
			_ = p.claim.Finish(nil)
			continue
		}
		own, response := *captured, *captured.Response
		own.RunsOn = own.RunsOn || p.timedOut
		response.Header = p.before.drop(slices.Clone(response.Header))
		own.Response = &response
		_ = p.claim.Finish(&own) // Fiber's exchanges have no errors of delivery
	}
}
