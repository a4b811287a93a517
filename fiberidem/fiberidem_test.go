package fiberidem_test

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/recover"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/fiberidem"
	"github.com/idem-go/idem/internal/fibertest"
)

func TestReplayIsTheFirstResponse(t *testing.T) {
	cases := []struct {
		name    string
		handler fiber.Handler
		status  int
		body    string
	}{
		{"json", func(c *fiber.Ctx) error {
			return c.Status(201).JSON(fiber.Map{"order_id": 7})
		}, 201, `{"order_id":7}`},
		{"default content type", func(c *fiber.Ctx) error { return c.SendString("plain") }, 200, "plain"},
		{"default content type, no body", func(c *fiber.Ctx) error { return nil }, 200, ""},
		{"explicit content type, no body", func(c *fiber.Ctx) error {
			c.Set("Content-Type", "text/plain; charset=utf-8")
			return nil
		}, 200, ""},
		{"no content", func(c *fiber.Ctx) error { return c.SendStatus(204) }, 204, ""},
		{"not modified", func(c *fiber.Ctx) error { return c.SendStatus(304) }, 304, ""},
		{"redirect", func(c *fiber.Ctx) error { return c.Redirect("/receipts/1", 303) }, 303, ""},
		{"repeated fields", func(c *fiber.Ctx) error {
			c.Response().Header.Add("Link", "<z>; rel=first")
			c.Response().Header.Add("Warning", "199 a b")
			c.Response().Header.Add("Link", "<a>; rel=last")
			return c.SendString("x")
		}, 200, "x"},
		{"compressed by the handler", func(c *fiber.Ctx) error {
			c.Set("Content-Encoding", "br")
			c.Set("Vary", "Accept-Encoding")
			return c.SendString("\x0b\x02\x80\x00\xff\x03")
		}, 200, "\x0b\x02\x80\x00\xff\x03"},
		{"raw body", func(c *fiber.Ctx) error { return c.Send(c.Body()) }, 200, `{"a":1}`},
	}
	guard := fibertest.NewEngine(t).MustGuard(core.Policy{})
	app := newApp()
	bare := newApp()
	for i, tc := range cases {
		app.Post(fmt.Sprintf("/%d", i), fiberidem.New(guard), tc.handler)
		bare.Post(fmt.Sprintf("/%d", i), tc.handler)
	}
	s, plain := serve(t, app), serve(t, bare)
	for i, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			path := fmt.Sprintf("/%d", i)
			want := plain.Post(path, `{"a":1}`)
			first := s.Post(path, `{"a":1}`)
			require.Equal(t, tc.status, first.Status)
			require.Equal(t, tc.body, first.Body)
			require.Equal(t, want.Body, first.Body)
			require.Equal(t, fibertest.WithoutDate(want.Header), fibertest.WithoutDate(first.Header), "the guard leaves no trace")
			require.False(t, first.Replayed())

			again := s.Post(path, `{"a":1}`)
			require.True(t, again.Replayed())
			require.Equal(t, first.Status, again.Status)
			require.Equal(t, first.Body, again.Body)
			require.Equal(t, fibertest.WithoutDate(first.Header), fibertest.WithoutDate(again.Header))
		})
	}
}

// What outer middlewares set for each response stays, and is not doubled.
func TestAnswerReplacesFields(t *testing.T) {
	app := newApp()
	var n atomic.Int32
	app.Use(func(c *fiber.Ctx) error {
		c.Set("X-Frame-Options", "DENY")
		c.Set("X-Request-Id", fmt.Sprint(n.Add(1)))
		c.Cookie(&fiber.Cookie{Name: "session", Value: fmt.Sprint(n.Load())})
		return c.Next()
	})
	app.Post("/", fiberidem.New(fibertest.NewEngine(t).MustGuard(core.Policy{})), func(c *fiber.Ctx) error {
		c.Response().Header.Add("X-Frame-Options", "SAMEORIGIN")
		c.Cookie(&fiber.Cookie{Name: "once", Value: "secret"})
		return c.SendString("done")
	})
	s := serve(t, app)
	first, again := s.Post("/", ""), s.Post("/", "")
	require.Equal(t, []string{"DENY", "SAMEORIGIN"}, first.Header["X-Frame-Options"])
	require.Equal(t, []string{"DENY", "SAMEORIGIN"}, again.Header["X-Frame-Options"])
	require.Equal(t, []string{"1"}, first.Header["X-Request-Id"])
	require.Equal(t, []string{"2"}, again.Header["X-Request-Id"], "belongs to the request")
	require.Len(t, first.Header["Set-Cookie"], 2)
	require.Len(t, again.Header["Set-Cookie"], 1, "only the outer middleware's")
	require.Contains(t, again.Header["Set-Cookie"][0], "session=2")
}

func TestStoredCookies(t *testing.T) {
	app := newApp()
	guard := fibertest.NewEngine(t).MustGuard(core.Policy{StoredHeaders: core.KeepHeaders("Set-Cookie")})
	app.Post("/", fiberidem.New(guard), func(c *fiber.Ctx) error {
		c.Cookie(&fiber.Cookie{Name: "b", Value: "2"})
		c.Cookie(&fiber.Cookie{Name: "a", Value: "1"})
		return nil
	})
	s := serve(t, app)
	first, again := s.Post("/", ""), s.Post("/", "")
	require.Len(t, first.Header["Set-Cookie"], 2)
	require.Equal(t, first.Header["Set-Cookie"], again.Header["Set-Cookie"])
	require.Empty(t, again.Header["Content-Type"])
}

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

func TestPanicIsReleased(t *testing.T) {
	var runs atomic.Int32
	app := newApp()
	app.Use(recover.New())
	app.Post("/", fiberidem.New(fibertest.NewEngine(t).MustGuard(core.Policy{})), func(c *fiber.Ctx) error {
		if runs.Add(1) == 1 {
			panic("half-way")
		}
		return c.SendString("done")
	})
	s := serve(t, app)
	first := s.Post("/", "")
	require.Equal(t, 500, first.Status)
	require.Equal(t, "half-way", first.Body)
	require.Equal(t, "done", s.Post("/", "").Body)
	require.True(t, s.Post("/", "").Replayed())
	require.EqualValues(t, 2, runs.Load())
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

func TestSameGuardTwice(t *testing.T) {
	var runs atomic.Int32
	app := newApp()
	guard := fibertest.NewEngine(t).MustGuard(core.Policy{Key: core.Header(core.Required)})
	app.Post("/", fiberidem.New(guard), fiberidem.New(guard), func(c *fiber.Ctx) error {
		return c.SendString(fmt.Sprint(runs.Add(1)))
	})
	s := serve(t, app)
	require.Equal(t, "1", s.Post("/", "", fibertest.WithKey("k")...).Body)
	require.Equal(t, "1", s.Post("/", "", fibertest.WithKey("k")...).Body)
}

func TestSafeMethodsPass(t *testing.T) {
	var runs atomic.Int32
	app := newApp()
	app.Use(fiberidem.New(fibertest.NewEngine(t).MustGuard(core.Policy{})))
	app.Get("/", func(c *fiber.Ctx) error { runs.Add(1); return fiber.NewError(404, "own") })
	s := serve(t, app)
	for range 2 {
		r := s.Send("GET", "/", "")
		require.Equal(t, 404, r.Status)
		require.Equal(t, "own", r.Body)
	}
	require.EqualValues(t, 2, runs.Load())
}
