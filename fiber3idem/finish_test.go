package fiber3idem_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/recover"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/fiber3idem"
)

func TestFinish(t *testing.T) {
	failure := errors.New("card declined")
	envelope := func(c fiber.Ctx) error {
		if err := c.Next(); err != nil {
			return c.Status(402).JSON(fiber.Map{"msg": err.Error()})
		}
		return nil
	}
	translate := func(c fiber.Ctx) error {
		if c.Next() != nil {
			return fiber.NewError(451, "translated")
		}
		return nil
	}
	crash := func(c fiber.Ctx) error {
		if c.Next() != nil {
			panic("while rendering")
		}
		return nil
	}
	crashLater := func(c fiber.Ctx) error {
		if c.Next() != nil {
			_ = c.Status(402).SendString("rendered")
			panic("after rendering")
		}
		return nil
	}
	cases := []struct {
		name    string
		outer   []fiber.Handler
		handler fiber.Handler
		status  int
		body    string
		runs    int32 // for two requests
	}{
		{"rendered in between", []fiber.Handler{fiber3idem.Finish(), envelope},
			func(fiber.Ctx) error { return failure }, 402, `{"msg":"card declined"}`, 1},
		{"translated in between", []fiber.Handler{fiber3idem.Finish(), translate},
			func(fiber.Ctx) error { return failure }, 451, "translated", 1},
		{"a refusal, translated in between", []fiber.Handler{fiber3idem.Finish(), translate},
			func(fiber.Ctx) error { return core.NewRefusal(core.CodeInProgress, nil) }, 451, "translated", 2},
		{"rendered by Finish, a failure", []fiber.Handler{fiber3idem.Finish()},
			func(fiber.Ctx) error { return failure }, 500, "card declined", 2},
		{"outermost counts", []fiber.Handler{fiber3idem.Finish(), envelope, fiber3idem.Finish()},
			func(fiber.Ctx) error { return failure }, 402, `{"msg":"card declined"}`, 1},
		{"no error", []fiber.Handler{fiber3idem.Finish(), envelope},
			func(c fiber.Ctx) error { return c.SendString("done") }, 200, "done", 1},
		{"panic on the way out", []fiber.Handler{recover.New(), fiber3idem.Finish(), crash},
			func(fiber.Ctx) error { return failure }, 500, "while rendering", 2},
		{"panic after rendering", []fiber.Handler{recover.New(), fiber3idem.Finish(), crashLater},
			func(fiber.Ctx) error { return failure }, 500, "after rendering", 2},
		{"panic recovered inside", []fiber.Handler{fiber3idem.Finish(), recover.New(), crash},
			func(fiber.Ctx) error { return failure }, 500, "while rendering", 2},
		{"panic in the handler", []fiber.Handler{recover.New(), fiber3idem.Finish(), envelope},
			func(fiber.Ctx) error { panic("handler") }, 500, "handler", 2},
		{"without Finish the ErrorHandler has been first", []fiber.Handler{envelope},
			func(fiber.Ctx) error { return fiber.NewError(410, "gone") }, 410, "gone", 1},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			var runs atomic.Int32
			app := fiber.New()
			for _, h := range tc.outer {
				app.Use(h)
			}
			app.Post("/", fiber3idem.New(newEngine(t).MustGuard(core.Policy{Failed: core.FailedByStatus})), func(c fiber.Ctx) error {
				runs.Add(1)
				return tc.handler(c)
			})
			postTwice(t, app, tc.status, tc.body, tc.runs == 1)
			require.Equal(t, tc.runs, runs.Load())
		})
	}
}

// A refusal that a middleware in between makes of the handler's error is the answer.
func TestFinishRefused(t *testing.T) {
	app := fiber.New()
	app.Use(fiber3idem.Finish(), func(c fiber.Ctx) error {
		_ = c.Next()
		return core.NewRefusal(core.CodeInProgress, nil)
	})
	app.Post("/", fiber3idem.New(newEngine(t).MustGuard(core.Policy{})), func(fiber.Ctx) error { return errors.New("busy") })
	r := post(app, "/")
	require.Equal(t, 409, r.status)
	require.Equal(t, "in_progress", r.header.Get(core.RefusedHeader))
}

// Two guards on the way both learn what became of the error.
func TestFinishTwoGuards(t *testing.T) {
	var runs atomic.Int32
	engine := newEngine(t)
	outer := engine.MustGuard(core.Policy{Key: core.Header(core.Optional)})
	inner := engine.MustGuard(core.Policy{Failed: core.FailedByStatus})
	app := fiber.New()
	app.Use(fiber3idem.Finish())
	app.Use(func(c fiber.Ctx) error {
		if err := c.Next(); err != nil {
			return c.Status(402).SendString(err.Error())
		}
		return nil
	})
	app.Post("/", fiber3idem.New(outer), fiber3idem.New(inner), func(fiber.Ctx) error {
		return fmt.Errorf("run %d", runs.Add(1))
	})
	require.Equal(t, "run 1", post(app, "/", withKey("k")...).body)
	for _, fields := range [][]string{withKey("k"), withKey("other"), nil} {
		r := post(app, "/", fields...)
		require.Equal(t, "run 1", r.body)
		require.Equal(t, 402, r.status)
		require.True(t, r.replayed())
	}
	require.EqualValues(t, 1, runs.Load())
}

// A guard outside of Finish sees rendered responses only, and does not wait for it.
func TestGuardOutsideOfFinish(t *testing.T) {
	var runs atomic.Int32
	app := fiber.New()
	app.Post("/", fiber3idem.New(newEngine(t).MustGuard(core.Policy{Failed: core.FailedByStatus})), fiber3idem.Finish(), func(fiber.Ctx) error {
		runs.Add(1)
		return fiber.NewError(422, "no")
	})
	require.Equal(t, "no", post(app, "/").body)
	require.True(t, post(app, "/").replayed())
	require.EqualValues(t, 1, runs.Load())
}

func withKey(key string) []string { return []string{"Idempotency-Key", key} }
