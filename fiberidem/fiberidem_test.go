package fiberidem_test

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
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

func TestErrorsAreStoredAsRendered(t *testing.T) {
	envelope := func(c *fiber.Ctx, err error) error {
		status := 500
		if e := (*fiber.Error)(nil); errors.As(err, &e) {
			status = e.Code
		}
		return c.Status(status).JSON(fiber.Map{"code": 50001, "msg": err.Error()})
	}
	cases := []struct {
		name   string
		config fiber.Config
		fail   fiber.Handler
		status int
		body   string
		kept   bool
	}{
		{"fiber.NewError", fiber.Config{}, func(*fiber.Ctx) error { return fiber.NewError(422, "no such card") },
			422, "no such card", true},
		{"custom ErrorHandler", fiber.Config{ErrorHandler: envelope}, func(*fiber.Ctx) error { return fiber.NewError(422, "no such card") },
			422, `{"code":50001,"msg":"no such card"}`, true},
		{"error after the body", fiber.Config{}, func(c *fiber.Ctx) error {
			_ = c.Status(201).SendString("half an answer")
			return fiber.NewError(409, "too late")
		}, 409, "too late", true},
		{"a plain error is a failure", fiber.Config{}, func(*fiber.Ctx) error { return errors.New("database gone") },
			500, "database gone", false},
		{"ErrorHandler fails itself", fiber.Config{ErrorHandler: func(_ *fiber.Ctx, err error) error { return err }},
			func(*fiber.Ctx) error { return fiber.NewError(422) }, 500, "Internal Server Error", false},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			var runs atomic.Int32
			var seen atomic.Value
			app := newApp(tc.config)
			guard := fibertest.NewEngine(t, func(e core.Event) {
				if e.Kind == core.Completed || e.Kind == core.Released {
					seen.Store(fmt.Sprint(e.Status, " ", e.Err))
				}
			}).MustGuard(core.Policy{Failed: core.FailedByStatus})
			app.Post("/", fiberidem.New(guard), func(c *fiber.Ctx) error {
				runs.Add(1)
				return tc.fail(c)
			})
			s := serve(t, app)
			s.PostTwice("/", tc.status, tc.body, tc.kept)
			if tc.kept {
				require.EqualValues(t, 1, runs.Load())
			} else {
				require.EqualValues(t, 2, runs.Load())
			}
			require.Contains(t, seen.Load(), fmt.Sprint(tc.status, " "))
			require.NotContains(t, seen.Load(), "<nil>", "the observer is told of the error")
		})
	}
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
