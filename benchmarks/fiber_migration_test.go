package benchmarks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/idempotency"
	fiber3 "github.com/gofiber/fiber/v3"
	idempotency3 "github.com/gofiber/fiber/v3/middleware/idempotency"
	session3 "github.com/gofiber/fiber/v3/middleware/session"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/fiber3idem"
	"github.com/idem-go/idem/fiberidem"
)

// The code of docs/migrating.md stands here as it stands there.

func _(app *fiber.App) {
	app.Use(idempotency.New())
}

func guarded(app *fiber.App, engine *core.Engine, createPayment fiber.Handler) {
	policy := core.ClientKey()
	policy.Key = core.Header(core.Optional, core.Named("X-Idempotency-Key"))
	policy.Retention = 30 * time.Minute
	payments := engine.MustGuard(policy)
	app.Post("/payments", fiberidem.New(payments), createPayment)
}

func bridged(app *fiber.App, storage fiber.Storage, payments *core.Guard, createPayment fiber.Handler) {
	app.Use(idempotency.New(idempotency.Config{
		Storage:           readOnly{storage},
		Lock:              noLock{},                          // the guard says who runs
		KeyHeaderValidate: func(string) error { return nil }, // and what a key may be
	}))
	app.Post("/payments", fiberidem.New(payments), createPayment)
}

// readOnly is the storage of the old middleware, which drops what is written to it.
type readOnly struct{ fiber.Storage }

func (readOnly) Set(string, []byte, time.Duration) error { return nil }

// noLock lets duplicates through to the guard.
type noLock struct{}

func (noLock) Lock(string) error   { return nil }
func (noLock) Unlock(string) error { return nil }

// What Fiber's middleware has answered is replayed by it, and what is new is the guard's alone.
func TestMigratingFromFiber(t *testing.T) {
	type apps struct{ before, meanwhile, after fasthttp.RequestHandler }
	for version, mount := range map[string]func(storage fiber3.Storage, engine *core.Engine, payments *core.Guard, pay func() string) apps{
		"v2": func(storage fiber3.Storage, engine *core.Engine, payments *core.Guard, pay func() string) apps {
			createPayment := func(c *fiber.Ctx) error { return c.SendString(pay()) }
			before, meanwhile, after := fiber.New(), fiber.New(), fiber.New()
			before.Use(idempotency.New(idempotency.Config{Storage: storage}))
			before.Post("/payments", createPayment)
			bridged(meanwhile, storage, payments, createPayment)
			guarded(after, engine, createPayment)
			return apps{before.Handler(), meanwhile.Handler(), after.Handler()}
		},
		"v3": func(storage fiber3.Storage, _ *core.Engine, payments *core.Guard, pay func() string) apps {
			createPayment := func(c fiber3.Ctx) error { return c.SendString(pay()) }
			before, meanwhile, after := fiber3.New(), fiber3.New(), fiber3.New()
			before.Use(idempotency3.New(idempotency3.Config{Storage: storage}))
			before.Post("/payments", createPayment)
			meanwhile.Use(idempotency3.New(idempotency3.Config{Storage: readOnly3{storage}, Lock: noLock{},
				KeyHeaderValidate: func(string) error { return nil }}))
			meanwhile.Post("/payments", fiber3idem.New(payments), createPayment)
			after.Post("/payments", fiber3idem.New(payments), createPayment)
			return apps{before.Handler(), meanwhile.Handler(), after.Handler()}
		},
	} {
		t.Run(version, func(t *testing.T) {
			storage := session3.NewStore().Storage // one in memory
			defer func() { require.NoError(t, storage.Close()) }()
			engine := core.MustNew(core.Config{User: core.UserFromHeader("X-User")})
			policy := core.ClientKey()
			policy.Key = core.Header(core.Required, core.Named("X-Idempotency-Key"))
			send := func(app fasthttp.RequestHandler, user, key string) (status int, replayed string) {
				var c fasthttp.RequestCtx
				c.Request.Header.SetMethod("POST")
				c.Request.SetRequestURI("/payments")
				c.Request.Header.Set("X-User", user)
				c.Request.Header.Set("X-Idempotency-Key", key)
				app(&c)
				return c.Response.StatusCode(), string(c.Response.Header.Peek(core.ReplayedHeader))
			}
			a, b := strings.Repeat("a", 36), strings.Repeat("b", 36)
			ran, on := 0, apps{}
			on = mount(storage, engine, engine.MustGuard(policy), func() string {
				if ran++; ran == 2 {
					status, _ := send(on.meanwhile, "ann", b)
					require.Equal(t, 409, status) // behind the old middleware's own lock it would wait for itself
				}
				return fmt.Sprint("payment ", ran)
			})

			for _, step := range []struct {
				app       fasthttp.RequestHandler
				user, key string
				ran       int
				replayed  string
			}{
				{on.before, "ann", a, 1, ""},
				{on.meanwhile, "ann", a, 1, ""}, // by the old middleware, which says nothing
				{on.meanwhile, "bob", a, 1, ""}, // … and gives him ann's
				{on.meanwhile, "ann", b, 2, ""}, // by the guard
				{on.meanwhile, "bob", b, 3, ""},
				{on.meanwhile, "ann", b, 3, "true"},   // by the guard, for nothing was added to the old storage
				{on.meanwhile, "ann", "short", 4, ""}, // by the guard: the old middleware alone refuses it
				{on.after, "ann", b, 4, "true"},
			} {
				status, replayed := send(step.app, step.user, step.key)
				require.Equal(t, 200, status, step.key)
				require.Equal(t, step.ran, ran)
				require.Equal(t, step.replayed, replayed)
			}
		})
	}
}

// What docs/migrating.md says of Fiber's own middleware is so in both versions, but where it names one.
func TestFibersOwn(t *testing.T) {
	const limit = 1000
	own := map[string]func(fiber3.Storage, func(*fasthttp.RequestCtx) error) fasthttp.RequestHandler{
		"v2": func(storage fiber3.Storage, handle func(*fasthttp.RequestCtx) error) fasthttp.RequestHandler {
			app := fiber.New(fiber.Config{BodyLimit: limit})
			app.Use(func(c *fiber.Ctx) error { c.Set("Vary", "Origin"); return c.Next() })
			app.Use(idempotency.New(idempotency.Config{Storage: storage}))
			app.Post("/:route", func(c *fiber.Ctx) error { return handle(c.Context()) })
			return app.Handler()
		},
		"v3": func(storage fiber3.Storage, handle func(*fasthttp.RequestCtx) error) fasthttp.RequestHandler {
			app := fiber3.New(fiber3.Config{BodyLimit: limit})
			app.Use(func(c fiber3.Ctx) error { c.Set("Vary", "Origin"); return c.Next() })
			app.Use(idempotency3.New(idempotency3.Config{Storage: storage}))
			app.Post("/:route", func(c fiber3.Ctx) error { return handle(c.RequestCtx()) })
			return app.Handler()
		},
	}
	key := strings.Repeat("k", 36)
	for _, fact := range []struct {
		name     string
		requests [2]string // user, path, key, body
		handle   func(c *fasthttp.RequestCtx) error
		storage  func(fiber3.Storage) fiber3.Storage // nil: one that works
		statuses [2]int
		ran      map[string]int // by version
		answered func(t *testing.T, r *fasthttp.Response, i int)
	}{
		{
			name: "another user, route or body", requests: [2]string{"ann /a " + key + " 1", "bob /b " + key + " 2"},
			handle:   func(c *fasthttp.RequestCtx) error { c.Response.Header.Set("Set-Cookie", "session=ann"); return nil },
			statuses: [2]int{200, 200}, ran: map[string]int{"v2": 1, "v3": 1},
			answered: func(t *testing.T, r *fasthttp.Response, i int) {
				require.Equal(t, "session=ann", string(r.Header.PeekCookie("session")))
				require.Len(t, r.Header.PeekAll("Vary"), 1+i) // that of the first answer beside the second one's own
			},
		},
		{
			name: "500 is kept", requests: [2]string{"ann /a " + key + " 1", "ann /a " + key + " 1"},
			handle:   func(c *fasthttp.RequestCtx) error { c.SetStatusCode(500); return nil },
			statuses: [2]int{500, 500}, ran: map[string]int{"v2": 1, "v3": 1},
		},
		{
			name: "an error is not kept", requests: [2]string{"ann /a " + key + " 1", "ann /a " + key + " 1"},
			handle:   func(*fasthttp.RequestCtx) error { return errors.New("no") },
			statuses: [2]int{500, 500}, ran: map[string]int{"v2": 2, "v3": 2},
		},
		{
			name: "a large answer", requests: [2]string{"ann /a " + key + " 1", "ann /a " + key + " 1"},
			handle:   func(c *fasthttp.RequestCtx) error { c.SetBody(make([]byte, limit+1)); return nil },
			statuses: [2]int{200, 200}, ran: map[string]int{"v2": 1}, // v3 differs by its version: 3.3.0 keeps it, 3.2.0 and 3.5.0 do not
		},
		{
			name: "a stream is read into memory", requests: [2]string{"ann /a " + key + " 1", "ann /a " + key + " 1"},
			handle: func(c *fasthttp.RequestCtx) error {
				c.SetBodyStream(strings.NewReader("piece by piece"), -1)
				return nil
			},
			statuses: [2]int{200, 200}, ran: map[string]int{"v2": 1, "v3": 1},
			answered: func(t *testing.T, r *fasthttp.Response, _ int) {
				require.False(t, r.IsBodyStream())
				require.Equal(t, "piece by piece", string(r.Body()))
			},
		},
		{
			name: "a key that is not valid", requests: [2]string{"ann /a k 1", "ann /a k 1"},
			handle:   func(*fasthttp.RequestCtx) error { return nil },
			statuses: [2]int{500, 500}, ran: map[string]int{"v2": 0, "v3": 0},
		},
		{
			name: "a storage that fails after the handler", requests: [2]string{"ann /a " + key + " 1", "ann /a " + key + " 1"},
			handle: func(*fasthttp.RequestCtx) error { return nil }, storage: func(s fiber3.Storage) fiber3.Storage { return broken{s} },
			statuses: [2]int{500, 500}, ran: map[string]int{"v2": 2, "v3": 2},
		},
		{
			name: "a storage that drops what is written", requests: [2]string{"ann /a " + key + " 1", "ann /a " + key + " 1"},
			handle: func(*fasthttp.RequestCtx) error { return nil }, storage: func(s fiber3.Storage) fiber3.Storage { return readOnly3{s} },
			statuses: [2]int{200, 200}, ran: map[string]int{"v2": 1, "v3": 2}, // v2 calls Set
		},
	} {
		for version, mount := range own {
			t.Run(fact.name+"/"+version, func(t *testing.T) {
				storage := session3.NewStore().Storage
				defer func() { require.NoError(t, storage.Close()) }()
				if fact.storage != nil {
					storage = fact.storage(storage)
				}
				ran := 0
				app := mount(storage, func(c *fasthttp.RequestCtx) error { ran++; return fact.handle(c) })
				for i, request := range fact.requests {
					var c fasthttp.RequestCtx
					parts := strings.Fields(request)
					c.Request.Header.SetMethod("POST")
					c.Request.Header.Set("X-User", parts[0])
					c.Request.SetRequestURI(parts[1])
					c.Request.Header.Set("X-Idempotency-Key", parts[2])
					c.Request.Header.Add("X-Idempotency-Key", "another") // which does not count
					c.Request.SetBodyString(parts[3])
					app(&c)
					require.Equal(t, fact.statuses[i], c.Response.StatusCode())
					if fact.answered != nil {
						fact.answered(t, &c.Response, i)
					}
				}
				if want, always := fact.ran[version]; always {
					require.Equal(t, want, ran)
				}
			})
		}
	}
}

// broken is a storage that can be read, but not written.
type broken struct{ fiber3.Storage }

func (broken) Set(string, []byte, time.Duration) error { return errors.New("no room") }

func (broken) SetWithContext(context.Context, string, []byte, time.Duration) error {
	return errors.New("no room")
}

// readOnly3 is readOnly for Fiber v3.
type readOnly3 struct{ fiber3.Storage }

func (readOnly3) SetWithContext(context.Context, string, []byte, time.Duration) error { return nil }
