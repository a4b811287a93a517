package fiberidem_test

import (
	"sync"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/timeout"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/fiberidem"
	"github.com/idem-go/idem/internal/race"
)

// Fiber's own timeout races with itself, and is not to be used; but the claim is valid while its
// handler runs on.
func TestNothingRunsBesideAHandlerThatRunsOn(t *testing.T) {
	race.Skip(t, "Fiber's timeout is a race")
	for _, finish := range []bool{false, true} {
		var running sync.WaitGroup
		entered, leave := make(chan struct{}, 9), make(chan struct{})
		app := newApp()
		if finish {
			app.Use(fiberidem.Finish())
		}
		//lint:ignore SA1019 what is deployed uses it
		limited := timeout.New(func(*fiber.Ctx) error {
			running.Add(1)
			defer running.Done()
			entered <- struct{}{}
			<-leave
			return nil
		}, time.Millisecond)
		app.Post("/orders", mounted(t, core.Policy{}), limited)
		app.Post("/late", mounted(t, core.Policy{}), func(c *fiber.Ctx) error {
			c.Context().TimeoutErrorWithCode("late", 503)
			return nil
		})
		s := serve(t, app)
		require.Equal(t, 408, s.Post("/orders", "").Status)
		<-entered
		for range 2 {
			require.Equal(t, "in_progress", s.Post("/orders", "").Header.Get(core.RefusedHeader))
		}
		close(leave)
		running.Wait()

		require.Equal(t, 503, s.Post("/late", "").Status)
		require.Equal(t, "in_progress", s.Post("/late", "").Header.Get(core.RefusedHeader))
	}
}

// A handler's own 408 is a failure: nothing runs on, and the next try runs.
func TestRequestTimeoutOfTheHandler(t *testing.T) {
	runs := 0
	app := newApp()
	app.Post("/", mounted(t, core.Policy{}), func(*fiber.Ctx) error {
		runs++
		return fiber.ErrRequestTimeout
	})
	serve(t, app).PostTwice("/", 408, "Request Timeout", false)
	require.Equal(t, 2, runs)
}
