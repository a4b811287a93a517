package fiberidem

import (
	"math"

	"github.com/gofiber/fiber/v2"

	"github.com/idem-go/idem/core"
)

// Finish returns a middleware for apps in which something further out than the guard
// makes responses of errors. Mount it outside of that, and inside of recovery:
//
//	app.Use(recover.New(), fiberidem.Finish(), envelopeErrors)
//	app.Post("/orders", fiberidem.New(orders), createOrder)
//
// A guard inside then returns the handler's error without rendering it, and the response that has
// come of it here is stored. An error that nobody has rendered goes to the app's ErrorHandler here.
// Requests without such an error pass untouched. Of several Finish, the outermost counts.
func Finish() fiber.Handler {
	return func(c *fiber.Ctx) error {
		if finisherOf(c) != nil {
			return c.Next()
		}
		f := new(finisher)
		c.Locals(finisherKey{}, f)
		returned := false
		// The exchanges of Fiber have no errors of delivery.
		defer func() { _ = f.Finish(returned) }()
		defer c.Locals(finisherKey{}, nil)

		err := c.Next()
		if f.Deferred() && err != nil {
			render(c, err)
			f.err, err = err, nil
		}
		returned = true
		return err
	}
}

type finisherKey struct{}

type finisher struct {
	core.Finisher
	err error // that nobody had rendered
}

func finisherOf(c *fiber.Ctx) *finisher {
	f, _ := c.Locals(finisherKey{}).(*finisher)
	return f
}

// final is the capture of what has become of the handler's error; nil after a panic.
func (x *exchange) final(returned bool) *core.Capture {
	if !returned {
		return nil
	}
	captured := x.capture(math.MaxInt) // the engine knows the limit
	captured.Err = x.finisher.err
	return &captured
}
