package fiber3idem_test

import (
	"errors"
	"io"
	"net"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/extractors"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/gofiber/fiber/v3/middleware/keyauth"
	"github.com/gofiber/fiber/v3/middleware/logger"
	"github.com/gofiber/fiber/v3/middleware/recover"
	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/core/adaptertest"
	"github.com/idem-go/idem/fiber3idem"
	"github.com/idem-go/idem/internal/fibertest"
)

func TestMain(m *testing.M) { fibertest.Main(m) }

func TestConformance(t *testing.T) { version.RunModes(t, "fiber3") }

func BenchmarkVerify(b *testing.B) {
	adaptertest.BenchVerify(b, version.Harness("fiber3", fibertest.Config{}))
}

func TestFiber(t *testing.T) { fibertest.Run(t, version) }

var version = fibertest.Version[fiber.Ctx]{
	Name: "Fiber v3",
	NewApp: func(config fibertest.Config, onError func(fiber.Ctx, error) error) fibertest.App[fiber.Ctx] {
		c := configOf(config)
		c.ErrorHandler = onError
		f := fiber.New(c)
		return app{router{f}, f}
	},
	Everything: "/*", // "/" does not match the empty path of http://host?query
	Child:      fiber.IsChild(),
	RequestCtx: fiber.Ctx.RequestCtx,
	Context:    fiber.Ctx.Context,
	SetContext: fiber.Ctx.SetContext,
	Bind:       func(c fiber.Ctx, v any) error { return c.Bind().Body(v) },
	EarlyHints: func(c fiber.Ctx, link string) error {
		defer c.Response().Header.Del(fiber.HeaderLink) // else Fiber sends it again with the final response
		return c.SendEarlyHints([]string{link})
	},
	Error: func(status int, message string) error { return fiber.NewError(status, message) },
	StatusOf: func(err error) int {
		if failure, ok := errors.AsType[*fiber.Error](err); ok {
			return failure.Code
		}
		return 0
	},
	DefaultError: fiber.DefaultErrorHandler,
	Recover:      func() fiber.Handler { return recover.New() },
	Logger: func(format string, to io.Writer) fiber.Handler {
		return logger.New(logger.Config{Format: format, Stream: to})
	},
	FormKeyAuth: func(skip func(fiber.Ctx) bool) fiber.Handler {
		return keyauth.New(keyauth.Config{Next: skip, Extractor: extractors.FromForm("api-key"),
			Validator: func(_ fiber.Ctx, key string) (bool, error) { return key == "secret", nil }})
	},
	WrapHandler: adaptor.HTTPHandlerFunc,
	Routes:      routes,

	New:            fiber3idem.New,
	Finish:         fiber3idem.Finish,
	Verify:         fiber3idem.Verify,
	Verified:       fiber3idem.Verified,
	Run:            fiber3idem.Run,
	Replayed:       fiber3idem.Replayed,
	IssueToken:     fiber3idem.IssueToken,
	NewToken:       fiber3idem.NewToken,
	UserFromLocals: fiber3idem.UserFromLocals,
	PoisonPools:    fiber3idem.PoisonPools,
}

func configOf(c fibertest.Config) fiber.Config {
	return fiber.Config{
		StreamRequestBody:            c.StreamRequestBody,
		DisableHeaderNormalizing:     c.DisableHeaderNormalizing,
		Immutable:                    c.Immutable,
		UnescapePath:                 c.UnescapePath,
		DisablePreParseMultipartForm: c.DisablePreParseMultipartForm,
		ReadBufferSize:               64 << 10,
		RequestMethods:               append([]string{"PROPFIND"}, fiber.DefaultMethods...),
	}
}

// app is a fiber.App.
type app struct {
	router
	fiber *fiber.App
}

func (a app) Mount(prefix string, sub fibertest.App[fiber.Ctx]) { a.fiber.Use(prefix, sub.(app).fiber) }

func (a app) Handler() fasthttp.RequestHandler { return a.fiber.Handler() }

func (a app) Server() *fasthttp.Server { return a.fiber.Server() }

func (a app) Listener(l net.Listener) error {
	return a.fiber.Listener(l, fiber.ListenConfig{DisableStartupMessage: true})
}

func (a app) Shutdown() error { return a.fiber.Shutdown() }

// router is an app, or a group of its routes.
type router struct{ fiber fiber.Router }

func (r router) Use(handlers ...fiber.Handler) { r.fiber.Use(fibertest.Args(handlers...)...) }

func (r router) UseAt(prefix string, handlers ...fiber.Handler) {
	r.fiber.Use(append([]any{prefix}, fibertest.Args(handlers...)...)...)
}

func (r router) Add(method, pattern string, handlers ...fiber.Handler) {
	args := fibertest.Args(handlers...)
	r.fiber.Add([]string{method}, pattern, args[0], args[1:]...)
}

func (r router) All(pattern string, handlers ...fiber.Handler) {
	args := fibertest.Args(handlers...)
	r.fiber.All(pattern, args[0], args[1:]...)
}

func (r router) Group(prefix string, handlers ...fiber.Handler) fibertest.Router[fiber.Ctx] {
	return router{r.fiber.Group(prefix, fibertest.Args(handlers...)...)}
}
