package benchmarks

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/idempotency"
	"github.com/gofiber/fiber/v2/middleware/session"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/fiberidem"
)

// The code of docs/migrating.md stands here as it stands there.

func _(app *fiber.App) {
	app.Use(idempotency.New())
}

func guarded(app *fiber.App, engine *core.Engine, createPayment fiber.Handler) {
	policy := core.ClientKey()
	policy.Key = core.Header(core.Optional).Named("X-Idempotency-Key")
	policy.Retention = 30 * time.Minute
	payments := engine.MustGuard(policy)
	app.Post("/payments", fiberidem.New(payments), createPayment)
}

func bridged(app *fiber.App, storage fiber.Storage, payments *core.Guard, createPayment fiber.Handler) {
	app.Use(idempotency.New(idempotency.Config{Storage: readOnly{storage}}))
	app.Post("/payments", fiberidem.New(payments), createPayment)
}

// readOnly is the storage of the old middleware, which drops what is written to it.
type readOnly struct{ fiber.Storage }

func (readOnly) Set(string, []byte, time.Duration) error { return nil }

// What Fiber's middleware has answered is replayed by it, and what is new is the guard's alone.
func TestMigratingFromFiber(t *testing.T) {
	storage := session.New().Storage // one in memory
	defer func() { require.NoError(t, storage.Close()) }()
	engine := core.MustNew(core.Config{User: core.UserFromHeader("X-User")})
	policy := core.ClientKey()
	policy.Key = core.Header(core.Required).Named("X-Idempotency-Key")
	payments := engine.MustGuard(policy)

	ran := 0
	createPayment := func(c *fiber.Ctx) error { ran++; return c.SendString(fmt.Sprint("payment ", ran)) }
	before, meanwhile, after := fiber.New(), fiber.New(), fiber.New()
	before.Use(idempotency.New(idempotency.Config{Storage: storage}))
	before.Post("/payments", createPayment)
	bridged(meanwhile, storage, payments, createPayment)
	guarded(after, engine, createPayment)

	for _, step := range []struct {
		app      *fiber.App
		key      string
		ran      int
		replayed string
	}{
		{before, "a", 1, ""},
		{meanwhile, "a", 1, ""},     // by the old middleware, which says nothing
		{meanwhile, "b", 2, ""},     // by the guard
		{meanwhile, "b", 2, "true"}, // by the guard, for nothing was added to the old storage
		{after, "b", 2, "true"},
	} {
		var c fasthttp.RequestCtx
		c.Request.Header.SetMethod("POST")
		c.Request.SetRequestURI("/payments")
		c.Request.Header.Set("X-User", "ann")
		c.Request.Header.Set("X-Idempotency-Key", strings.Repeat(step.key, 36))
		step.app.Handler()(&c)
		require.Equal(t, 200, c.Response.StatusCode())
		require.Equal(t, step.ran, ran)
		require.Equal(t, step.replayed, string(c.Response.Header.Peek(core.ReplayedHeader)))
	}
}
