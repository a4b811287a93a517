package fiber3idem_test

import (
	"fmt"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/basicauth"
	"github.com/gofiber/fiber/v3/middleware/timeout"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/fiber3idem"
	"github.com/idem-go/idem/internal/fibertest"
	"github.com/idem-go/idem/sign/signtest"
)

// Fiber's timeout lets its handler run on: the claim is valid meanwhile. Nobody touches the context that the handler uses.
func TestNothingRunsBesideAHandlerThatRunsOn(t *testing.T) {
	for name, outer := range map[string][]any{
		"alone":    nil,
		"Finish":   {fiber3idem.Finish()},
		"verified": {fiber3idem.Verify(signtest.NewVerifier())},
	} {
		for _, config := range []timeout.Config{
			{Timeout: time.Millisecond},
			{Timeout: time.Millisecond, OnTimeout: func(c fiber.Ctx) error { return c.Status(408).SendString("late") }},
		} {
			t.Run(fmt.Sprint(name, config.OnTimeout != nil), func(t *testing.T) {
				entered, leave, left := make(chan struct{}), make(chan struct{}), make(chan struct{})
				app := fiber.New()
				if outer != nil {
					app.Use(outer...)
				}
				app.Post("/orders", fiber3idem.New(fibertest.NewEngine(t).MustGuard(core.Policy{})), timeout.New(func(c fiber.Ctx) error {
					defer close(left)
					close(entered)
					for waiting := true; waiting; runtime.Gosched() {
						c.Locals("a", "b") // while others answer
						select {
						case <-leave:
							waiting = false
						default:
						}
					}
					for range 100 { // it uses what it has got
						_ = c.Context().Err()
						c.Locals("a", "b")
						c.Set("X-Late", "1")
					}
					return c.SendString("too late")
				}, config))
				service := serve(t, app)
				send := func() fibertest.Reply { return service.Do(service.Signed(signtest.Demo, "/orders", "{}")) }
				require.Equal(t, 408, send().Status)
				<-entered
				for range 2 {
					require.Equal(t, "in_progress", send().Header.Get(core.RefusedHeader))
				}
				close(leave)
				<-left
			})
		}
	}
}

// What Fiber's own middleware has found is taken with its own function.
func TestUserFromFibersMiddleware(t *testing.T) {
	app := fiber.New()
	app.Use(basicauth.New(basicauth.Config{Authorizer: func(string, string, fiber.Ctx) bool { return true }}))
	guard := core.MustNew(core.Config{User: core.UserFunc(func(r *adapter.Request) (core.User, error) {
		return adapterkit.UserFromValue(basicauth.UsernameFromContext(r.Native.(fiber.Ctx)))
	})}).MustGuard(core.Policy{})
	var keys []string
	app.Post("/", fiber3idem.New(guard), func(c fiber.Ctx) error { keys = append(keys, fiber3idem.Run(c).Key().Raw()); return nil })
	r := httptest.NewRequest("POST", "/", nil)
	r.SetBasicAuth("ann", "secret")
	_, err := app.Test(r, fiber.TestConfig{})
	require.NoError(t, err)
	require.Len(t, keys, 1)
	require.True(t, strings.HasPrefix(keys[0], "idem:U=annM="), keys[0])
}
