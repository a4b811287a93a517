package fiberidem_test

import (
	"fmt"
	"net"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/fiberidem"
	"github.com/idem-go/idem/internal/fibertest"
)

func TestDefaultContentTypeReturns(t *testing.T) {
	app := newApp()
	guard := fibertest.NewEngine(t).MustGuard(core.Policy{StoredHeaders: core.KeepHeaders()})
	app.Post("/bare", fiberidem.New(guard), func(c *fiber.Ctx) error { return c.SendString("x") })
	app.Get("/plain", func(c *fiber.Ctx) error { return c.SendString("y") })
	s := serve(t, app)
	s.Post("/bare", "")
	require.NotContains(t, s.Post("/bare", "").Header, "Content-Type")
	// The next response on the same connection has it again.
	require.Equal(t, "text/plain; charset=utf-8", s.Send("GET", "/plain", "").Header.Get("Content-Type"))
}

func TestRemoteAddr(t *testing.T) {
	var user string
	app := newApp()
	guard := fibertest.NewEngine(t).MustGuard(core.Policy{User: core.UserFunc(func(r *adapter.Request) (core.User, error) {
		c := r.Native.(*fiber.Ctx)
		if got, want := r.RemoteAddr, c.Context().RemoteAddr().String(); got != want {
			return core.User{}, fmt.Errorf("%q instead of %q", got, want)
		}
		user = "seen"
		return core.User{ID: "u"}, nil
	})})
	app.Post("/", fiberidem.New(guard), func(c *fiber.Ctx) error { return nil })
	require.Equal(t, 200, serve(t, app).Post("/", "").Status)
	require.Equal(t, "seen", user)

	for _, addr := range []net.Addr{
		&net.TCPAddr{IP: net.ParseIP("192.0.2.7"), Port: 1},
		&net.TCPAddr{IP: net.ParseIP("2001:db8::1"), Port: 65535},
		&net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "eth0", Port: 80},
		&net.TCPAddr{Port: 80},
		&net.UnixAddr{Name: "@", Net: "unix"},
	} {
		ctx := fibertest.NewRequestCtx("POST", "/", "")
		ctx.SetRemoteAddr(addr)
		user = ""
		app.Handler()(ctx)
		require.Equal(t, "seen", user, addr.String())
	}
}

// An error behind a body takes its place; and where the ErrorHandler fails, too, Fiber answers, and the run has failed.
func TestErrorsAreStoredAsRendered(t *testing.T) {
	for name, tc := range map[string]struct {
		render func(*fiber.Ctx, error) error
		status int
		body   string
		kept   bool
	}{
		"rendered": {fiber.DefaultErrorHandler, 409, "too late", true},
		"failing":  {func(_ *fiber.Ctx, err error) error { return err }, 500, "Internal Server Error", false},
	} {
		t.Run(name, func(t *testing.T) {
			app := newApp(fiber.Config{ErrorHandler: tc.render})
			app.Post("/", mounted(t, core.Policy{Failed: core.FailedByStatus}), func(c *fiber.Ctx) error {
				if tc.kept {
					_ = c.Status(201).SendString("half an answer")
				}
				return fiber.NewError(409, "too late")
			})
			serve(t, app).PostTwice("/", tc.status, tc.body, tc.kept)
		})
	}
}
