package fiberidem_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/recover"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/fiberidem"
)

func observerOf(fn func(core.Event)) func(context.Context, core.Event) {
	return func(_ context.Context, e core.Event) { fn(e) }
}

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
	guard := newEngine(t).MustGuard(core.Policy{})
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
			want := plain.post(path, `{"a":1}`)
			first := s.post(path, `{"a":1}`)
			require.Equal(t, tc.status, first.status)
			require.Equal(t, tc.body, first.body)
			require.Equal(t, want.body, first.body)
			require.Equal(t, withoutDate(want.header), withoutDate(first.header), "the guard leaves no trace")
			require.False(t, first.replayed())

			again := s.post(path, `{"a":1}`)
			require.True(t, again.replayed())
			require.Equal(t, first.status, again.status)
			require.Equal(t, first.body, again.body)
			require.Equal(t, withoutDate(first.header), withoutDate(again.header))
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
	app.Post("/", fiberidem.New(newEngine(t).MustGuard(core.Policy{})), func(c *fiber.Ctx) error {
		c.Response().Header.Add("X-Frame-Options", "SAMEORIGIN")
		c.Cookie(&fiber.Cookie{Name: "once", Value: "secret"})
		return c.SendString("done")
	})
	s := serve(t, app)
	first, again := s.post("/", ""), s.post("/", "")
	require.Equal(t, []string{"DENY", "SAMEORIGIN"}, first.header["X-Frame-Options"])
	require.Equal(t, []string{"DENY", "SAMEORIGIN"}, again.header["X-Frame-Options"])
	require.Equal(t, []string{"1"}, first.header["X-Request-Id"])
	require.Equal(t, []string{"2"}, again.header["X-Request-Id"], "belongs to the request")
	require.Len(t, first.header["Set-Cookie"], 2)
	require.Len(t, again.header["Set-Cookie"], 1, "only the outer middleware's")
	require.Contains(t, again.header["Set-Cookie"][0], "session=2")
}

func TestStoredCookies(t *testing.T) {
	app := newApp()
	guard := newEngine(t).MustGuard(core.Policy{StoredHeaders: core.KeepHeaders("Set-Cookie")})
	app.Post("/", fiberidem.New(guard), func(c *fiber.Ctx) error {
		c.Cookie(&fiber.Cookie{Name: "b", Value: "2"})
		c.Cookie(&fiber.Cookie{Name: "a", Value: "1"})
		return nil
	})
	s := serve(t, app)
	first, again := s.post("/", ""), s.post("/", "")
	require.Len(t, first.header["Set-Cookie"], 2)
	require.Equal(t, first.header["Set-Cookie"], again.header["Set-Cookie"])
	require.Empty(t, again.header["Content-Type"])
}

func TestDefaultContentTypeReturns(t *testing.T) {
	app := newApp()
	guard := newEngine(t).MustGuard(core.Policy{StoredHeaders: core.KeepHeaders()})
	app.Post("/bare", fiberidem.New(guard), func(c *fiber.Ctx) error { return c.SendString("x") })
	app.Get("/plain", func(c *fiber.Ctx) error { return c.SendString("y") })
	s := serve(t, app)
	s.post("/bare", "")
	require.NotContains(t, s.post("/bare", "").header, "Content-Type")
	// The next response on the same connection has it again.
	require.Equal(t, "text/plain; charset=utf-8", s.send("GET", "/plain", "").header.Get("Content-Type"))
}

func TestKeyHeader(t *testing.T) {
	for _, config := range []fiber.Config{{}, {DisableHeaderNormalizing: true}, {Immutable: true}} {
		t.Run(fmt.Sprintf("names as sent: %v, immutable: %v", config.DisableHeaderNormalizing, config.Immutable), func(t *testing.T) {
			var runs atomic.Int32
			app := newApp(config)
			guard := newEngine(t).MustGuard(core.Policy{Key: core.Header(core.Required)})
			app.Post("/", fiberidem.New(guard), func(c *fiber.Ctx) error {
				return c.SendString(fmt.Sprint(runs.Add(1)))
			})
			s := serve(t, app)

			require.Equal(t, 400, s.post("/", "{}").status, "key missing")
			twice := s.post("/", "{}", "Idempotency-Key", "k1", "Idempotency-Key", "k1")
			require.Equal(t, 400, twice.status)
			require.Contains(t, twice.body, "key_invalid")
			require.Equal(t, "application/problem+json", twice.header.Get("Content-Type"))
			require.Equal(t, "no-store", twice.header.Get("Cache-Control"))
			require.Zero(t, runs.Load())

			require.Equal(t, "1", s.post("/", "{}", withKey("k1")...).body)
			again := s.post("/", "{}", withKey(`"k1"`)...)
			require.Equal(t, "1", again.body)
			require.True(t, again.replayed())
			require.Equal(t, 422, s.post("/", `{"a":2}`, withKey("k1")...).status)
			require.Equal(t, "2", s.post("/", "{}", withKey("K1")...).body, "keys are exact")

			// As clients of HTTP/1.1 may write it.
			lower := s.raw(t, "POST / HTTP/1.1\r\nHost: a\r\nidempotency-key: k1\r\nContent-Length: 2\r\n\r\n{}")
			require.Equal(t, "1", lower.body)
			require.Equal(t, 400, s.raw(t, "POST / HTTP/1.1\r\nHost: a\r\nidempotency-key: k1\r\nIDEMPOTENCY-KEY: k1\r\n"+
				"Content-Length: 2\r\n\r\n{}").status)
		})
	}
}

// raw writes a request as it is, and reads one response.
func (s *service) raw(t *testing.T, request string) reply {
	t.Helper()
	conn, err := net.Dial("tcp", s.addr)
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte(request))
	require.NoError(t, err)
	return readReply(t, bufio.NewReader(conn))
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
			guard := newEngine(t, func(e core.Event) {
				if e.Kind == core.Completed || e.Kind == core.Released {
					seen.Store(fmt.Sprint(e.Status, " ", e.Err))
				}
			}).MustGuard(core.Policy{Failed: core.FailedByStatus})
			app.Post("/", fiberidem.New(guard), func(c *fiber.Ctx) error {
				runs.Add(1)
				return tc.fail(c)
			})
			s := serve(t, app)
			s.postTwice("/", tc.status, tc.body, tc.kept)
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

func TestMountedAppsErrorHandler(t *testing.T) {
	sub := newApp(fiber.Config{ErrorHandler: func(c *fiber.Ctx, err error) error {
		return c.Status(418).SendString("sub: " + err.Error())
	}})
	sub.Post("/orders", fiberidem.New(newEngine(t).MustGuard(core.Policy{Failed: core.FailedByStatus})), func(*fiber.Ctx) error {
		return errors.New("no")
	})
	app := newApp()
	app.Mount("/api", sub)
	s := serve(t, app)
	first, again := s.post("/api/orders", ""), s.post("/api/orders", "")
	require.Equal(t, 418, first.status)
	require.Equal(t, "sub: no", again.body)
	require.True(t, again.replayed())
}

func TestPanicIsReleased(t *testing.T) {
	var runs atomic.Int32
	app := newApp()
	app.Use(recover.New())
	app.Post("/", fiberidem.New(newEngine(t).MustGuard(core.Policy{})), func(c *fiber.Ctx) error {
		if runs.Add(1) == 1 {
			panic("half-way")
		}
		return c.SendString("done")
	})
	s := serve(t, app)
	first := s.post("/", "")
	require.Equal(t, 500, first.status)
	require.Equal(t, "half-way", first.body)
	require.Equal(t, "done", s.post("/", "").body)
	require.True(t, s.post("/", "").replayed())
	require.EqualValues(t, 2, runs.Load())
}

func TestRunAndUserContext(t *testing.T) {
	type ctxKey struct{}
	var run *core.Run
	var inside, outer, outside context.Context
	var insideErr error
	var early bool
	app := newApp()
	app.Use(func(c *fiber.Ctx) error {
		early = fiberidem.Run(c) != nil
		outer = context.WithValue(context.Background(), ctxKey{}, "outer")
		c.SetUserContext(outer)
		err := c.Next()
		outside = c.UserContext()
		return err
	})
	app.Use(recover.New())
	app.Post("/:id", fiberidem.New(newEngine(t).MustGuard(core.Policy{})), func(c *fiber.Ctx) error {
		run = fiberidem.Run(c)
		inside = c.UserContext()
		insideErr = inside.Err()
		if c.Params("id") == "panic" {
			panic("over")
		}
		return nil
	})
	for _, id := range []string{"1", "panic"} {
		resp, err := app.Test(httpPost("/"+id, ""))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.False(t, early, "there is no run outside of the guard")
		require.Same(t, outer, outside)
		require.NoError(t, insideErr)
		require.NotNil(t, run)
		require.EqualValues(t, 1, run.Attempt())
		require.False(t, run.Takeover())
		require.Contains(t, run.Key().Raw(), "M=POST")
		require.Equal(t, "outer", inside.Value(ctxKey{}))
		require.Error(t, inside.Err(), "the run's context ends with the run")
		require.NoError(t, outside.Err())
	}
}

func httpPost(path, body string, fields ...string) *http.Request {
	req := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	for i := 0; i < len(fields); i += 2 {
		req.Header.Add(fields[i], fields[i+1])
	}
	return req
}

func TestUserFromLocals(t *testing.T) {
	var runs atomic.Int32
	app := newApp()
	app.Use(func(c *fiber.Ctx) error {
		switch user := c.Get("X-User"); user {
		case "":
		case "42":
			c.Locals("user", 42)
		case "struct":
			c.Locals("user", struct{}{})
		default:
			c.Locals("user", user)
		}
		return c.Next()
	})
	guard := core.MustNew(core.Config{User: fiberidem.UserFromLocals("user")}).MustGuard(core.Policy{})
	app.Post("/", fiberidem.New(guard), func(c *fiber.Ctx) error { return c.SendString(fmt.Sprint(runs.Add(1))) })
	s := serve(t, app)
	require.Equal(t, "1", s.post("/", "", "X-User", "alice").body)
	require.Equal(t, "2", s.post("/", "", "X-User", "bobby").body)
	require.Equal(t, "3", s.post("/", "", "X-User", "42").body)
	require.Equal(t, "1", s.post("/", "", "X-User", "alice").body)
	require.Contains(t, s.post("/", "").body, "user_missing")
	require.Contains(t, s.post("/", "", "X-User", "struct").body, "user_missing")
	require.EqualValues(t, 3, runs.Load())

	// A source that meets another framework's request refuses.
	_, _, err := guard.Key(&core.Request{Method: "POST", Native: httpPost("/", "")})
	require.ErrorContains(t, err, "does not come from Fiber")
}

func TestRemoteAddr(t *testing.T) {
	var user string
	app := newApp()
	guard := newEngine(t).MustGuard(core.Policy{User: core.UserFunc(func(r *core.Request) (core.User, error) {
		c := r.Native.(*fiber.Ctx)
		if got, want := r.RemoteAddr, c.Context().RemoteAddr().String(); got != want {
			return core.User{}, fmt.Errorf("%q instead of %q", got, want)
		}
		user = "seen"
		return core.User{ID: "u"}, nil
	})})
	app.Post("/", fiberidem.New(guard), func(c *fiber.Ctx) error { return nil })
	require.Equal(t, 200, serve(t, app).post("/", "").status)
	require.Equal(t, "seen", user)

	for _, addr := range []net.Addr{
		&net.TCPAddr{IP: net.ParseIP("192.0.2.7"), Port: 1},
		&net.TCPAddr{IP: net.ParseIP("2001:db8::1"), Port: 65535},
		&net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "eth0", Port: 80},
		&net.TCPAddr{Port: 80},
		&net.UnixAddr{Name: "@", Net: "unix"},
	} {
		ctx := requestCtx("POST", "/", "")
		ctx.SetRemoteAddr(addr)
		user = ""
		app.Handler()(ctx)
		require.Equal(t, "seen", user, addr.String())
	}
}

func TestSameGuardTwice(t *testing.T) {
	var runs atomic.Int32
	app := newApp()
	guard := newEngine(t).MustGuard(core.Policy{Key: core.Header(core.Required)})
	app.Post("/", fiberidem.New(guard), fiberidem.New(guard), func(c *fiber.Ctx) error {
		return c.SendString(fmt.Sprint(runs.Add(1)))
	})
	s := serve(t, app)
	require.Equal(t, "1", s.post("/", "", withKey("k")...).body)
	require.Equal(t, "1", s.post("/", "", withKey("k")...).body)
}

func TestSafeMethodsPass(t *testing.T) {
	var runs atomic.Int32
	app := newApp()
	app.Use(fiberidem.New(newEngine(t).MustGuard(core.Policy{})))
	app.Get("/", func(c *fiber.Ctx) error { runs.Add(1); return fiber.NewError(404, "own") })
	s := serve(t, app)
	for range 2 {
		r := s.send("GET", "/", "")
		require.Equal(t, 404, r.status)
		require.Equal(t, "own", r.body)
	}
	require.EqualValues(t, 2, runs.Load())
}
