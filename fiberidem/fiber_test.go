package fiberidem_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	recovery "github.com/gofiber/fiber/v2/middleware/recover"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/fiberidem"
	"github.com/idem-go/idem/internal/fibertest"
	"github.com/idem-go/idem/internal/leakcheck"
	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/signtest"
)

// mounted returns the handler of a new guard.
func mounted(t *testing.T, p core.Policy) fiber.Handler {
	return fiberidem.New(fibertest.NewEngine(t).MustGuard(p))
}

func ok(c *fiber.Ctx) error { return c.SendString("ok") }

func at(route, params string) fibertest.Place { return fibertest.Place{Route: route, Params: params} }

func TestFinish(t *testing.T) {
	failure := errors.New("card declined")
	fails := func(*fiber.Ctx) error { return failure }
	envelope := func(c *fiber.Ctx) error {
		if err := c.Next(); err != nil {
			return c.Status(402).JSON(map[string]string{"msg": err.Error()})
		}
		return nil
	}
	translate := func(c *fiber.Ctx) error {
		if c.Next() != nil {
			return fiber.NewError(451, "translated")
		}
		return nil
	}
	crash := func(c *fiber.Ctx) error {
		if c.Next() != nil {
			panic("while rendering")
		}
		return nil
	}
	crashLater := func(c *fiber.Ctx) error {
		if c.Next() != nil {
			_ = c.Status(402).SendString("rendered")
			panic("after rendering")
		}
		return nil
	}
	for name, tc := range map[string]struct {
		outer   []fiber.Handler
		handler fiber.Handler
		status  int
		body    string
		runs    int // for two requests
	}{
		"translated in between": {[]fiber.Handler{fiberidem.Finish(), translate}, fails, 451, "translated", 1},
		"rendered by Finish": {[]fiber.Handler{fiberidem.Finish()},
			func(*fiber.Ctx) error { return fiber.NewError(422, "no") }, 422, "no", 1},
		"rendered by it, a failure": {[]fiber.Handler{fiberidem.Finish()}, fails, 500, "card declined", 2},
		"outermost counts": {[]fiber.Handler{fiberidem.Finish(), envelope, fiberidem.Finish()},
			fails, 402, `{"msg":"card declined"}`, 1},
		"panic on the way out":   {[]fiber.Handler{recovery.New(), fiberidem.Finish(), crash}, fails, 500, "while rendering", 2},
		"panic after rendering":  {[]fiber.Handler{recovery.New(), fiberidem.Finish(), crashLater}, fails, 500, "after rendering", 2},
		"panic recovered inside": {[]fiber.Handler{fiberidem.Finish(), recovery.New(), crash}, fails, 500, "while rendering", 2},
		"a refusal, translated": {[]fiber.Handler{fiberidem.Finish(), translate},
			func(*fiber.Ctx) error { return core.NewRefusal(codes.InProgress, nil) }, 451, "translated", 2},
	} {
		t.Run(name, func(t *testing.T) {
			runs, rendered := 0, 0
			app := newApp(fiber.Config{ErrorHandler: func(c *fiber.Ctx, err error) error {
				rendered++
				return fiber.DefaultErrorHandler(c, err)
			}})
			app.Use(anyOf(tc.outer)...)
			app.Add("POST", "/", mounted(t, core.Policy{Failed: core.FailedByStatus}), func(c *fiber.Ctx) error {
				runs++
				return tc.handler(c)
			})
			serve(t, app).PostTwice("/", tc.status, tc.body, tc.runs == 1)
			require.Equal(t, tc.runs, runs)
			require.LessOrEqual(t, rendered, runs, "an error is rendered once")
		})
	}
}

// A refusal that a middleware in between makes of the handler's error is the answer.
func TestFinishRefused(t *testing.T) {
	app := newApp()
	app.Use(fiberidem.Finish(), func(c *fiber.Ctx) error {
		_ = c.Next()
		return core.NewRefusal(codes.InProgress, nil)
	})
	app.Add("POST", "/", mounted(t, core.Policy{}), func(*fiber.Ctx) error { return errors.New("busy") })
	require.Equal(t, "in_progress", serve(t, app).Post("/", "").Header.Get(core.RefusedHeader))
}

// A guard outside of Finish sees rendered responses only, and does not wait for it.
func TestGuardOutsideOfFinish(t *testing.T) {
	app := newApp()
	app.Add("POST", "/", mounted(t, core.Policy{Failed: core.FailedByStatus}), fiberidem.Finish(), func(*fiber.Ctx) error {
		return fiber.NewError(422, "no")
	})
	serve(t, app).PostTwice("/", 422, "no", true)
}

// An error that no guard has left to Finish passes it.
func TestFinishPassesOtherErrors(t *testing.T) {
	teapot := fiber.NewError(418, "no coffee")
	app := newApp()
	app.Use(func(c *fiber.Ctx) error {
		err := c.Next()
		assert.Equal(t, teapot, err)
		return err
	}, fiberidem.Finish())
	app.Add("POST", "/", func(*fiber.Ctx) error { return teapot })
	require.Equal(t, 418, serve(t, app).Post("/", "").Status)
}

// Of a field with several lines, the handler gets the one that was seen in front of the guard, also if the body came in chunks.
func TestTheFirstLineStaysFirst(t *testing.T) {
	for mode, config := range modes {
		t.Run(mode, func(t *testing.T) {
			front := ""
			app := newApp(config)
			app.Use(func(c *fiber.Ctx) error {
				front = strings.Clone(c.Get("X-Tenant"))
				return c.Next()
			})
			app.Add("POST", "/", mounted(t, core.Policy{}),
				func(c *fiber.Ctx) error { return c.SendString(front + " " + c.Get("X-Tenant")) })
			service := serve(t, app)
			r, err := http.NewRequest("POST", "http://"+service.Addr, strings.NewReader("{}"))
			require.NoError(t, err)
			r.ContentLength = -1
			r.Header["X-Tenant"] = []string{"alice", "mallory"} // at the end of the header, behind Transfer-Encoding
			require.Equal(t, "alice alice", service.Do(r).Body)
		})
	}
}

// A process is what Fiber makes of this program for Prefork; it has a store that no other one sees.
func TestPreforkedProcessesNeedAStoreThatTheyShare(t *testing.T) {
	t.Setenv("FIBER_PREFORK_CHILD", "1")
	t.Setenv("FASTHTTP_PREFORK_CHILD", "1") // Fiber v3.3 goes by fasthttp's
	app := newApp()
	app.Add("POST", "/orders", mounted(t, core.Policy{}), func(*fiber.Ctx) error { panic("it has run") })
	for range 2 {
		ctx := fibertest.NewRequestCtx("POST", "/orders", "")
		app.Handler()(ctx)
		require.Equal(t, "store_not_shared", string(ctx.Response.Header.Peek(core.RefusedHeader)))
	}
}

func TestMountedAppsErrorHandler(t *testing.T) {
	sub := newApp(fiber.Config{ErrorHandler: func(c *fiber.Ctx, err error) error {
		return c.Status(418).SendString("sub: " + err.Error())
	}})
	sub.Add("POST", "/orders", mounted(t, core.Policy{Failed: core.FailedByStatus}), func(*fiber.Ctx) error {
		return errors.New("no")
	})
	app := newApp()
	app.Mount("/api", sub)
	serve(t, app).PostTwice("/api/orders", 418, "sub: no", true)
}

// Who has no tokens to issue learns it when the routes are made, and not by the first request.
func TestIssueTokenWithoutTokens(t *testing.T) {
	require.PanicsWithValue(t, `idem: the key of the policy "orders" is no Token: there is nothing to issue`, func() {
		fiberidem.IssueToken(fibertest.NewEngine(t).MustGuard(core.Policy{Name: "orders"}))
	})
}

// The handler's answer counts if a timeout in front has answered meanwhile, also where the first request came without that timeout.
func TestATimeoutInFrontOfSome(t *testing.T) {
	leave := make(chan struct{})
	guard, ended := watched(t)
	app := newApp()
	app.Add("POST", "/:id", guard, func(c *fiber.Ctx) error {
		if c.Params("id") == "late" {
			<-leave
		}
		return c.SendString("made")
	})
	handler := app.Handler()
	handler(fibertest.NewRequestCtx("POST", "/early", ""))
	require.Equal(t, core.Completed, <-ended)
	ctx := fibertest.NewRequestCtx("POST", "/late", "")
	fasthttp.TimeoutWithCodeHandler(handler, time.Millisecond, "too late", 503)(ctx)
	require.Equal(t, 503, ctx.LastTimeoutErrorResponse().StatusCode())
	close(leave)
	require.Equal(t, core.Completed, <-ended)
	again := fibertest.NewRequestCtx("POST", "/late", "")
	handler(again)
	require.Equal(t, "made", string(again.Response.Body()))
	require.Equal(t, core.Replayed, <-ended)
}

// A middleware in front may end a stream when its context serves another request already.
func TestTheEndOfAStreamAddsNothing(t *testing.T) {
	app := newApp()
	app.Add("POST", "/", mounted(t, core.Policy{Key: core.Header(core.Required, core.EchoKey())}), func(c *fiber.Ctx) error {
		c.Response().SetBodyStream(strings.NewReader("all"), -1)
		return nil
	})
	ctx := fibertest.NewRequestCtx("POST", "/", "")
	ctx.Request.Header.Set(core.DefaultKeyHeader, "k-1")
	app.Handler()(ctx)
	stream := ctx.Response.BodyStream()
	_, err := io.Copy(io.Discard, stream)
	require.NoError(t, err)
	require.NoError(t, stream.(io.Closer).Close())
	require.Empty(t, ctx.Response.Header.Peek(core.DefaultKeyHeader))
}

// A field that a middleware in front has changed is not the one that was signed.
func TestChangedFieldsAreRefused(t *testing.T) {
	app := newApp()
	app.Use(func(c *fiber.Ctx) error {
		c.Request().Header.Set(c.Query("set"), "text/plain")
		c.Method(c.Query("method", "POST"))
		return c.Next()
	})
	app.All("/", fiberidem.Verify(signtest.NewVerifier()), func(c *fiber.Ctx) error { return c.SendString("reached") })
	service := serve(t, app)
	assert.Equal(t, "reached", service.Do(service.Signed(signtest.Demo, "/?set=x-else", "{}")).Body)
	assert.Equal(t, "invalid", service.Do(service.Signed(signtest.Demo, "/?set=content-type", "{}")).Code())
	assert.Equal(t, "invalid", service.Do(service.Signed(signtest.Demo, "/?set=x-else&method=DELETE", "{}")).Code(),
		"nobody has signed that it is to be a DELETE")
}

func TestFormsThatAreGone(t *testing.T) {
	const form = "--b\r\nContent-Disposition: form-data; name=\"sku\"\r\n\r\nA-1\r\n--b--\r\n"
	for _, stream := range []bool{false, true} {
		var why error
		app := newApp(fiber.Config{StreamRequestBody: stream})
		app.Add("POST", "/", fiberidem.Verify(signtest.NewVerifier(func(c *sign.Config) {
			c.Observe = func(_ context.Context, e sign.Event) { why = e.Err }
		})), func(c *fiber.Ctx) error { return c.SendString("reached") })
		service := serve(t, app)
		r := service.Do(service.Signed(signtest.Demo, "/", form, "Content-Type", "multipart/form-data; boundary=b"))
		assert.Equal(t, "malformed", r.Code())
		assert.ErrorContains(t, why, "DisablePreParseMultipartForm")
		assert.NotContains(t, r.Body, "PreParse")

		chunks := service.Signed(signtest.Demo, "/", form, "Content-Type", "multipart/form-data; boundary=b")
		chunks.ContentLength = -1 // such a form is left alone
		assert.Equal(t, "reached", service.Do(chunks).Body)
	}
}

// Errors go to the ErrorHandler as they are, and the context is given back, also after a panic.
func TestContextIsRestored(t *testing.T) {
	type mark struct{}
	app := newApp(fiber.Config{ErrorHandler: func(c *fiber.Ctx, err error) error { return c.Status(418).SendString(err.Error()) }})
	app.Use(func(c *fiber.Ctx) (err error) {
		outer := context.WithValue(context.Background(), mark{}, 1)
		c.SetUserContext(outer)
		defer func() {
			if v := recover(); v != nil {
				err = errors.New("recovered")
			}
			assert.Equal(t, outer, c.UserContext())
			_, ok := fiberidem.Verified(c)
			assert.False(t, ok)
		}()
		return c.Next()
	})
	app.Add("POST", "/", fiberidem.Verify(signtest.NewVerifier()), func(c *fiber.Ctx) error {
		assert.Equal(t, 1, c.UserContext().Value(mark{}))
		if c.Query("panic") != "" {
			panic("boom")
		}
		return errors.New("ours")
	})
	service := serve(t, app)
	assert.Equal(t, "ours", service.Do(service.Signed(signtest.Demo, "/", "{}")).Body)
	assert.Equal(t, "recovered", service.Do(service.Signed(signtest.Demo, "/?panic=1", "{}")).Body)
}

// What somebody in front has read of a stream, and not what is left of it or was made of it, is what the handler may have; the verifier
// can't know.
func TestAStreamThatIsGone(t *testing.T) {
	const parts = "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--b--\r\n"
	peek := func(c *fiber.Ctx) { _, _ = c.Request().BodyStream().Read(make([]byte, 4)) }
	for name, tc := range map[string]struct {
		first, do func(*fiber.Ctx)
		status    int
	}{
		"nothing":             {nil, func(*fiber.Ctx) {}, 200},
		"a peek":              {nil, peek, 400},
		"a form":              {nil, func(c *fiber.Ctx) { _ = c.FormValue("a") }, 400},
		"nothing, in between": {func(*fiber.Ctx) {}, func(*fiber.Ctx) {}, 200},
		"a peek, in between":  {func(*fiber.Ctx) {}, peek, 400},
	} {
		t.Run(name, func(t *testing.T) {
			app := newApp(fiber.Config{StreamRequestBody: true, DisablePreParseMultipartForm: true})
			if tc.first != nil {
				app.Use(fiberidem.Verify(signtest.NewVerifier()))
			}
			app.Add("POST", "/", func(c *fiber.Ctx) error { tc.do(c); return c.Next() }, fiberidem.Verify(signtest.NewVerifier()),
				func(c *fiber.Ctx) error { return c.SendString("reached") })
			service := serve(t, app)
			got := service.Do(service.Signed(signtest.Demo, "/", parts, "Content-Type", "multipart/form-data; boundary=b"))
			require.Equal(t, tc.status, got.Status, got.Body)
			if tc.status != 200 {
				require.Contains(t, got.Body, `"code":"malformed"`)
			}
		})
	}
}

// What the guard adds to bare Fiber, with a client key and a JSON body of 200 bytes.
func TestAllocations(t *testing.T) {
	created := func(c *fiber.Ctx) error {
		c.Set("Content-Type", "application/json")
		c.Set("Location", "/orders/1")
		return c.Status(201).SendString(fibertest.OrderJSON)
	}
	bare, guarded := newApp(), newApp()
	bare.Post("/orders/:id", created)
	guarded.Post("/orders/:id", mounted(t, core.Policy{Key: core.Header(core.Required)}), created)
	fibertest.Allocations(t, bare.Handler(), guarded.Handler())
}

func TestRoutes(t *testing.T) {
	type mount func(app *fiber.App, guard fiber.Handler)
	cases := []struct {
		name  string
		mount mount
		path  string
		want  fibertest.Place
	}{
		{"All", func(app *fiber.App, guard fiber.Handler) { app.All("/orders/:id", guard, ok) },
			"/orders/7", at("/orders/:id", "id=7")},
		{"in a group with a parameter", func(app *fiber.App, guard fiber.Handler) {
			app.Group("/:tenant").Add("POST", "/orders/:id", guard, ok)
		}, "/t1/orders/7", at("/:tenant/orders/:id", "tenant=t1&id=7")},
		{"in a mounted app", func(app *fiber.App, guard fiber.Handler) {
			inner, outer := newApp(), newApp()
			inner.Add("POST", "/orders/:id", guard, ok)
			outer.Mount("/v1", inner)
			app.Mount("/api", outer)
		}, "/api/v1/orders/7", at("/api/v1/orders/:id", "id=7")},
		{"mounted under a parameter", func(app *fiber.App, guard fiber.Handler) {
			// Fiber mixes the values up: c.Params("id") is the tenant.
			sub := newApp()
			sub.Add("POST", "/orders/:id", guard, ok)
			app.Mount("/:tenant", sub)
		}, "/t1/orders/7", at("/t1/orders/7", "")},
		{"Use", func(app *fiber.App, guard fiber.Handler) {
			app.Use(guard)
			app.Add("POST", "/orders/:id", ok)
		}, "/orders/a%2Fb?x=1", at("/orders/a%2Fb /*", "")},
		{"Use with a prefix", func(app *fiber.App, guard fiber.Handler) {
			app.Use("/orders/:id", guard)
			app.Add("POST", "/orders/:id/pay", ok)
		}, "/orders/7/pay", at("/orders/7/pay /orders/:id/*", "")},
		{"Use in a mounted app", func(app *fiber.App, guard fiber.Handler) {
			sub := newApp()
			sub.Use(guard)
			sub.Add("POST", "/orders/:id", ok)
			app.Mount("/api", sub)
		}, "/api/orders/7", at("/api/orders/7 /api/*", "")},
		{"Use and a route of the same path", func(app *fiber.App, guard fiber.Handler) {
			app.Use("/orders", guard)
			app.Add("POST", "/orders", ok)
		}, "/orders", at("/orders /orders/*", "")},
		{"one slice for a group and a route", func(app *fiber.App, guard fiber.Handler) {
			handlers := []fiber.Handler{guard, func(c *fiber.Ctx) error { return c.Next() }}
			app.Group("/:x", handlers...)
			app.Add("POST", "/orders", ok)
			app.Add("POST", "/:x", handlers...)
		}, "/orders", at("/orders /:x/*", "")},
	}
	check := func(t *testing.T, seen *fibertest.Place, app *fiber.App, path string, want fibertest.Place) {
		handler := app.Handler()
		for range 2 { // the second time from the cache
			*seen = fibertest.Place{}
			handler(fibertest.NewRequestCtx("POST", path, ""))
			require.Equal(t, want, *seen)
		}
	}
	for _, tc := range fibertest.Routes {
		t.Run(tc.Name, func(t *testing.T) {
			var seen fibertest.Place
			app := newApp(fiber.Config{UnescapePath: tc.Unescaped})
			app.Add("POST", tc.Pattern, fiberidem.New(fibertest.Spy(t, &seen)), ok)
			check(t, &seen, app, tc.Path, tc.Want)
		})
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			var seen fibertest.Place
			app := newApp()
			tc.mount(app, fiberidem.New(fibertest.Spy(t, &seen)))
			check(t, &seen, app, tc.path, tc.want)
		})
	}
}

// Thousands of requests at once, in memory that is used again and poisoned in between, fasthttp's own included, and nobody gets or
// leaves anything of another.
func TestNothingLeaks(t *testing.T) {
	engine, store := leakcheck.Engine(t)
	parameters, key := leakcheck.Guards(engine)
	handler := func(c *fiber.Ctx) error {
		fiberidem.PoisonPools()
		a := leakcheck.Of(leakcheck.Seen{
			ID:    strings.Clone(c.Params("id")),
			Query: string(c.Request().URI().QueryString()),
			User:  strings.Clone(c.Get("X-User")),
			Key:   strings.Clone(c.Get("Idempotency-Key")),
			Body:  append([]byte(nil), c.Body()...),
		})
		c.Set("Content-Type", a.ContentType)
		c.Set("Location", a.Location)
		c.Set("X-Echo", a.Echo)
		return c.Status(http.StatusCreated).Send(a.Body)
	}
	app := newApp()
	app.Use(func(c *fiber.Ctx) error {
		c.Set("X-Before", c.Params("*")) // what was there before the handler is remembered
		return c.Next()
	})
	app.Post(leakcheck.Route, fiberidem.New(parameters), handler)
	app.Post(leakcheck.KeyRoute, fiberidem.New(key), handler)
	leakcheck.Run{Requests: 3000, Send: fibertest.Recycling(app.Handler()), Poison: fiberidem.PoisonPools}.Test(t, store)
}
