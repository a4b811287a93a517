package fiberidem_test

import (
	"errors"
	"io"
	"net"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/adaptor"
	"github.com/gofiber/fiber/v2/middleware/keyauth"
	"github.com/gofiber/fiber/v2/middleware/logger"
	"github.com/gofiber/fiber/v2/middleware/recover"
	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/core/adaptertest"
	"github.com/idem-go/idem/fiberidem"
	"github.com/idem-go/idem/internal/fibertest"
)

func TestMain(m *testing.M) { fibertest.Main(m) }

func TestConformance(t *testing.T) { version.RunModes(t, "fiber") }

func BenchmarkVerify(b *testing.B) {
	adaptertest.BenchVerify(b, version.Harness("fiber", fibertest.Config{}))
}

func TestFiber(t *testing.T) { fibertest.Run(t, version) }

var version = fibertest.Version[*fiber.Ctx]{
	Name: "Fiber",
	NewApp: func(config fibertest.Config, onError func(*fiber.Ctx, error) error) fibertest.App[*fiber.Ctx] {
		c := configOf(config)
		c.ErrorHandler = onError
		f := fiber.New(c)
		return app{router{f}, f}
	},
	Everything: "/",
	Child:      fiber.IsChild(),
	RequestCtx: (*fiber.Ctx).Context,
	Context:    (*fiber.Ctx).UserContext,
	SetContext: (*fiber.Ctx).SetUserContext,
	Bind:       (*fiber.Ctx).BodyParser,
	Error:      func(status int, message string) error { return fiber.NewError(status, message) },
	StatusOf: func(err error) int {
		if failure, ok := errors.AsType[*fiber.Error](err); ok {
			return failure.Code
		}
		return 0
	},
	DefaultError: fiber.DefaultErrorHandler,
	Recover:      func() fiber.Handler { return recover.New() },
	Logger: func(format string, to io.Writer) fiber.Handler {
		return logger.New(logger.Config{Format: format, Output: to})
	},
	FormKeyAuth: func(skip func(*fiber.Ctx) bool) fiber.Handler {
		return keyauth.New(keyauth.Config{Next: skip, KeyLookup: "form:api-key",
			Validator: func(_ *fiber.Ctx, key string) (bool, error) { return key == "secret", nil }})
	},
	WrapHandler: adaptor.HTTPHandlerFunc,

	New:            fiberidem.New,
	Finish:         fiberidem.Finish,
	Verify:         fiberidem.Verify,
	Verified:       fiberidem.Verified,
	Run:            fiberidem.Run,
	Replayed:       fiberidem.Replayed,
	IssueToken:     fiberidem.IssueToken,
	NewToken:       fiberidem.NewToken,
	UserFromLocals: fiberidem.UserFromLocals,
	PoisonPools:    fiberidem.PoisonPools,
}

func configOf(c fibertest.Config) fiber.Config {
	return fiber.Config{
		StreamRequestBody:            c.StreamRequestBody,
		DisableHeaderNormalizing:     c.DisableHeaderNormalizing,
		Immutable:                    c.Immutable,
		UnescapePath:                 c.UnescapePath,
		DisablePreParseMultipartForm: c.DisablePreParseMultipartForm,
		DisableStartupMessage:        true,
		ReadBufferSize:               64 << 10,
		RequestMethods:               append([]string{"PROPFIND"}, fiber.DefaultMethods...),
	}
}

// app is a fiber.App.
type app struct {
	router
	fiber *fiber.App
}

func (a app) Mount(prefix string, sub fibertest.App[*fiber.Ctx]) {
	a.fiber.Mount(prefix, sub.(app).fiber)
}

func (a app) Handler() fasthttp.RequestHandler { return a.fiber.Handler() }

func (a app) Server() *fasthttp.Server { return a.fiber.Server() }

func (a app) Listener(l net.Listener) error { return a.fiber.Listener(l) }

func (a app) Shutdown() error { return a.fiber.Shutdown() }

// router is an app, or a group of its routes.
type router struct{ fiber fiber.Router }

func (r router) Use(handlers ...fiber.Handler) { r.fiber.Use(fibertest.Args(handlers...)...) }

func (r router) UseAt(prefix string, handlers ...fiber.Handler) {
	r.fiber.Use(append([]any{prefix}, fibertest.Args(handlers...)...)...)
}

func (r router) Add(method, pattern string, handlers ...fiber.Handler) {
	r.fiber.Add(method, pattern, handlers...)
}

func (r router) All(pattern string, handlers ...fiber.Handler) { r.fiber.All(pattern, handlers...) }

func (r router) Group(prefix string, handlers ...fiber.Handler) fibertest.Router[*fiber.Ctx] {
	return router{r.fiber.Group(prefix, handlers...)}
}
