package fiber3idem_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/basicauth"
	"github.com/gofiber/fiber/v3/middleware/logger"
	recoverer "github.com/gofiber/fiber/v3/middleware/recover"
	"github.com/gofiber/fiber/v3/middleware/timeout"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/fiber3idem"
	"github.com/idem-go/idem/internal/fasthttptest"
	"github.com/idem-go/idem/sign/signtest"
)

// Where Fiber does not know the route yet, events show where the guard is mounted.
func TestEventsShowWhereTheGuardIsMounted(t *testing.T) {
	for name, tc := range map[string]struct {
		mount func(app *fiber.App, g fiber.Handler)
		path  string
		want  string
	}{
		"everywhere":    {func(app *fiber.App, g fiber.Handler) { app.Use(g) }, "/api/secret", "POST /*"},
		"a prefix":      {func(app *fiber.App, g fiber.Handler) { app.Use("/api", g) }, "/api/secret", "POST /api/*"},
		"a group":       {func(app *fiber.App, g fiber.Handler) { app.Group("/api/:tenant", g) }, "/api/secret", "POST /api/:tenant/*"},
		"all of a path": {func(app *fiber.App, g fiber.Handler) { app.Post("/api/*", g) }, "/api/secret", "POST /api/*"},
		"a bad escape":  {func(app *fiber.App, g fiber.Handler) { app.Post("/api/:id", g) }, "/api/100%", "POST /api/:id"},
	} {
		t.Run(name, func(t *testing.T) {
			var routes []string
			g := newEngine(t, func(e core.Event) {
				if e.Kind != core.StoreIsLocal {
					routes = append(routes, e.Route)
				}
			}).MustGuard(core.Policy{})
			app := fiber.New()
			tc.mount(app, fiber3idem.New(g))
			app.Post("/api/:id", func(c fiber.Ctx) error { return c.SendStatus(201) })
			require.Equal(t, 201, post(app, tc.path).status)
			require.Equal(t, []string{tc.want, tc.want}, routes)
		})
	}
}

// What Use has mounted runs for a request, too, that could not be read: it is not run, not verified, and answered by the ErrorHandler.
func TestRequestsThatCannotBeRead(t *testing.T) {
	for name, tc := range map[string]struct {
		request string
		status  int
	}{
		"too large":            {"POST /orders HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nContent-Length: 101\r\n\r\n" + strings.Repeat("x", 101), 413},
		"cut short":            {"POST /orders HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nContent-Length: 50\r\n\r\n" + strings.Repeat("x", 49), 400},
		"a broken chunk":       {"POST /orders HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n", 400},
		"a header field of no": {"POST /orders HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nno\r\n\r\n", 400},
	} {
		for _, deep := range []int{0, 9} {
			t.Run(fmt.Sprint(name, deep), func(t *testing.T) {
				ran, events := 0, 0
				app := fiber.New(fiber.Config{BodyLimit: 100})
				for range deep {
					app.Use(func(c fiber.Ctx) error { return c.Next() })
				}
				guard := newEngine(t, func(e core.Event) {
					if e.Kind != core.StoreIsLocal {
						events++
					}
				}).MustGuard(core.ClientKey())
				app.Use("/orders", fiber3idem.New(guard), func(c fiber.Ctx) error { ran++; return c.SendStatus(201) })
				app.Use("/hooks", fiber3idem.Verify(signtest.NewVerifier()), func(c fiber.Ctx) error { ran++; return c.SendStatus(201) })
				for _, path := range []string{"/orders", "/hooks"} {
					require.Equal(t, tc.status, exchange(t, app, strings.Replace(tc.request, "/orders", path, 1)).status)
				}
				require.Zero(t, ran)
				require.Zero(t, events)
				// The client tries again, and is heard.
				again := exchange(t, app, "POST /orders HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nContent-Length: 1\r\n\r\nx")
				require.Equal(t, 201, again.status)
				require.False(t, again.replayed())
				require.Equal(t, 1, ran)
			})
		}
	}
}

// exchange sends bytes over a connection of its own, and nothing after them.
func exchange(t *testing.T, app *fiber.App, request string) reply {
	t.Helper()
	conn, err := net.Dial("tcp", listen(t, app))
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, request)
	require.NoError(t, err)
	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	return readReply(t, conn)
}

func listen(t *testing.T, app *fiber.App) string {
	return fasthttptest.Listen(t, func(l net.Listener) error {
		return app.Listener(l, fiber.ListenConfig{DisableStartupMessage: true})
	}, app.Shutdown)
}

// Whoever recovers from a panic finds the response as it was in front of the guard, Content-Type and all.
func TestAPanicLeavesNothingOfTheAnswer(t *testing.T) {
	for _, media := range []string{"", "application/x-outer"} {
		app := fiber.New()
		app.Use(func(c fiber.Ctx) error {
			defer func() { _ = recover() }() // and says nothing
			if media != "" {
				c.Set("Content-Type", media)
			}
			return c.Next()
		})
		app.Post("/orders", fiber3idem.New(newEngine(t).MustGuard(core.Policy{})), func(c fiber.Ctx) error {
			c.Set("Content-Type", "application/pdf")
			_ = c.Status(201).SendString("made")
			panic("oops")
		})
		resp, err := app.Test(httptest.NewRequest("POST", "/orders", nil), fiber.TestConfig{})
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		require.Equal(t, media, resp.Header.Get("Content-Type"))
		require.Zero(t, resp.ContentLength)
	}
}

// A child is what Fiber makes of this program with EnablePrefork; it has a store that no other child sees.
func TestPreforkedProcessesNeedAStoreThatTheyShare(t *testing.T) {
	if fiber.IsChild() {
		for _, policy := range []core.Policy{{}, {FailOpen: true}} {
			var last error
			app, ran := fiber.New(), 0
			app.Post("/orders", fiber3idem.New(newEngine(t, func(e core.Event) { last = e.Err }).MustGuard(policy)),
				func(c fiber.Ctx) error { ran++; return c.SendStatus(201) })
			for range 2 {
				r := post(app, "/orders")
				require.Equal(t, 500, r.status)
				require.Equal(t, "store_not_shared", r.header.Get(core.RefusedHeader))
				require.ErrorContains(t, last, "Prefork")
			}
			require.Zero(t, ran)
		}
		fmt.Println("both children of Prefork's have refused")
		return
	}
	child := exec.Command(os.Args[0], "-test.run=^TestPreforkedProcessesNeedAStoreThatTheyShare$")
	child.Env = append(os.Environ(), "FIBER_PREFORK_CHILD=1")
	out, err := child.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "have refused")
}

// Middleware that wants to see errors stands between Finish and the guard: there they are handed on.
func TestTheLoggerSeesErrorsUnderFinish(t *testing.T) {
	var log bytes.Buffer
	rendered := 0
	app := fiber.New(fiber.Config{ErrorHandler: func(c fiber.Ctx, err error) error {
		rendered++
		return c.Status(422).SendString(fmt.Sprintf("%v, number %d", err, rendered))
	}})
	app.Use(fiber3idem.Finish(), logger.New(logger.Config{Format: "${status} ${error}\n", Stream: &log}))
	app.Post("/", fiber3idem.New(newEngine(t).MustGuard(core.Policy{OnFailure: core.Keep})),
		func(fiber.Ctx) error { return errors.New("no stock") })
	postTwice(t, app, 422, "no stock, number 1", true)
	require.Equal(t, "422 no stock\n", log.String()[:len("422 no stock\n")])
	require.Equal(t, 1, rendered)
}

// Fiber's timeout lets its handler run on: the claim stands meanwhile. Nobody touches the context that the handler uses.
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
				app.Post("/orders", fiber3idem.New(newEngine(t).MustGuard(core.Policy{})), timeout.New(func(c fiber.Ctx) error {
					defer close(left)
					close(entered)
					<-leave
					for range 100 { // it uses what it has got
						_ = c.Context().Err()
						c.Locals("a", "b")
						c.Set("X-Late", "1")
					}
					return c.SendString("too late")
				}, config))
				addr := listen(t, app)
				send := func() reply {
					r := signtest.NewRequest(t, signtest.Demo, "http://"+addr+"/orders", "{}")
					conn, err := net.Dial("tcp", addr)
					require.NoError(t, err)
					defer conn.Close()
					require.NoError(t, r.Write(conn))
					return readReply(t, conn)
				}
				require.Equal(t, 408, send().status)
				<-entered
				for range 2 {
					require.Equal(t, "in_progress", send().header.Get(core.RefusedHeader))
				}
				close(leave)
				<-left
			})
		}
	}
}

func TestContexts(t *testing.T) {
	type ctxKey struct{}
	var run *core.Run
	var inside, outer, outside context.Context
	var insideErr error
	var early bool
	app := fiber.New()
	app.Use(func(c fiber.Ctx) error {
		early = fiber3idem.Run(c) != nil
		outer = context.WithValue(context.Background(), ctxKey{}, "outer")
		c.SetContext(outer)
		err := c.Next()
		outside = c.Context()
		return err
	})
	app.Use(recoverer.New())
	app.Post("/:id", fiber3idem.New(newEngine(t).MustGuard(core.Policy{})), func(c fiber.Ctx) error {
		run, inside = fiber3idem.Run(c), c.Context()
		insideErr = inside.Err()
		if c.Params("id") == "panic" {
			panic("over")
		}
		return nil
	})
	for _, id := range []string{"1", "panic"} {
		post(app, "/"+id)
		require.False(t, early, "there is no run outside of the guard")
		require.Same(t, outer, outside)
		require.NoError(t, insideErr)
		require.EqualValues(t, 1, run.Attempt())
		require.Equal(t, "outer", inside.Value(ctxKey{}))
		require.Error(t, inside.Err(), "the run's context ends with the run")
		require.NoError(t, outside.Err())
	}
}

func TestUserFromLocals(t *testing.T) {
	runs := 0
	app := fiber.New()
	app.Use(func(c fiber.Ctx) error {
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
	guard := core.MustNew(core.Config{User: fiber3idem.UserFromLocals("user")}).MustGuard(core.Policy{})
	app.Post("/", fiber3idem.New(guard), func(c fiber.Ctx) error { runs++; return c.SendString(fmt.Sprint(runs)) })
	for _, tc := range []struct{ user, want string }{{"alice", "1"}, {"bobby", "2"}, {"42", "3"}, {"alice", "1"}} {
		require.Equal(t, tc.want, post(app, "/", "X-User", tc.user).body)
	}
	require.Contains(t, post(app, "/").body, "user_missing")
	require.Contains(t, post(app, "/", "X-User", "struct").body, "user_missing")

	// A source that meets another framework's request refuses.
	_, _, err := guard.Key(&core.Request{Method: "POST", Native: httptest.NewRequest("POST", "/", nil)})
	require.ErrorContains(t, err, "does not come from Fiber v3")
}

// What Fiber's own middleware has found is taken with its own function.
func TestUserFromFibersMiddleware(t *testing.T) {
	app := fiber.New()
	app.Use(basicauth.New(basicauth.Config{Authorizer: func(string, string, fiber.Ctx) bool { return true }}))
	guard := core.MustNew(core.Config{User: core.UserFunc(func(r *core.Request) (core.User, error) {
		return core.UserFromValue(basicauth.UsernameFromContext(r.Native.(fiber.Ctx)))
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

func TestMountedAppsErrorHandler(t *testing.T) {
	sub := fiber.New(fiber.Config{ErrorHandler: func(c fiber.Ctx, err error) error {
		return c.Status(418).SendString("sub: " + err.Error())
	}})
	sub.Post("/orders", fiber3idem.New(newEngine(t).MustGuard(core.Policy{Failed: core.FailedByStatus})), func(fiber.Ctx) error {
		return errors.New("no")
	})
	app := fiber.New()
	app.Use("/api", sub)
	first, again := post(app, "/api/orders"), post(app, "/api/orders")
	require.Equal(t, 418, first.status)
	require.Equal(t, "sub: no", again.body)
	require.True(t, again.replayed())
}

// A run that answers with a stream goes on until the stream ends.
func TestContextWhileStreaming(t *testing.T) {
	ended := make(chan core.Kind, 9)
	app := fiber.New()
	app.Post("/", fiber3idem.New(newEngine(t, func(e core.Event) {
		if e.Kind != core.StoreIsLocal && e.Kind != core.Started {
			ended <- e.Kind
		}
	}).MustGuard(core.Policy{})), func(c fiber.Ctx) error {
		ctx := c.Context()
		return c.SendStreamWriter(func(w *bufio.Writer) {
			time.Sleep(10 * time.Millisecond) // in which a run that ends with its handler has ended
			_, _ = fmt.Fprint(w, ctx.Err() == nil)
		})
	})
	require.Equal(t, "true", exchange(t, app, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").body)
	require.Equal(t, core.Completed, <-ended)
	require.Equal(t, "result_unavailable", post(app, "/").header.Get(core.RefusedHeader))
}
