package fiberidem_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/adaptor"
	"github.com/gofiber/fiber/v2/middleware/keyauth"
	"github.com/gofiber/fiber/v2/middleware/recover"
	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/adaptertest"
	"github.com/idem-go/idem/fiberidem"
	"github.com/idem-go/idem/internal/fibertest"
	"github.com/idem-go/idem/sign"
)

func TestMain(m *testing.M) { fibertest.Main(m) }

// modes are the settings that change what Fiber makes of a request.
var modes = map[string]fiber.Config{
	"plain":         {},
	"streams":       {StreamRequestBody: true},
	"names as sent": {DisableHeaderNormalizing: true},
	"immutable":     {Immutable: true},
}

// With -short the suite runs only in the plain mode and with streams.
func TestConformance(t *testing.T) {
	for mode, config := range modes {
		if mode == "plain" || !testing.Short() || mode == "streams" {
			t.Run(mode, func(t *testing.T) { adaptertest.Run(t, harness(config)) })
		}
	}
}

func BenchmarkVerify(b *testing.B) { adaptertest.BenchVerify(b, harness(fiber.Config{})) }

// harness is Fiber with these settings. Of a form in chunks that was read from a stream in front nothing is left.
func harness(config fiber.Config) adaptertest.Harness {
	front := []adaptertest.Front{adaptertest.JSONBinder, adaptertest.Peeker, adaptertest.PutterBack}
	if !config.StreamRequestBody {
		front = append(front, adaptertest.FormReader, adaptertest.KeyAuth)
	}
	return adaptertest.Harness{
		Name:  "fiber",
		Start: func(tb testing.TB, app adaptertest.App) string { return start(tb, config, app) },
		User:  func(name string) core.UserSource { return fiberidem.UserFromLocals(name) },
		Features: adaptertest.Features{NativeErrors: true, OuterErrors: true, TimeLimit: true, ServerDate: true,
			ClosesUnread: config.StreamRequestBody, Front: front},
	}
}

// start serves app.
func start(tb testing.TB, config fiber.Config, app adaptertest.App) string {
	tb.Helper()
	for _, r := range app.Routes {
		// what was signed are the form's bytes
		config.DisablePreParseMultipartForm = config.DisablePreParseMultipartForm || len(r.Verifiers) > 0
	}
	config.ReadBufferSize, config.RequestMethods = 64<<10, append([]string{"PROPFIND", "QUERY"}, fiber.DefaultMethods...)
	if app.IgnoreContextErrors {
		config.ErrorHandler = func(c *fiber.Ctx, err error) error {
			if adaptertest.ContextEnded(err) {
				return nil
			}
			return fiber.DefaultErrorHandler(c, err)
		}
	}
	f := newApp(config)
	f.Use(recover.New())
	if app.Errors && !app.WithoutFinish || app.Finish {
		f.Use(fiberidem.Finish())
	}
	if app.Errors {
		f.Use(renderErrors(app.IgnoreContextErrors))
	}
	f.Use(func(c *fiber.Ctx) error {
		if outer, ok := c.Locals(within{}).(context.Context); ok {
			c.SetUserContext(outer)
		}
		if origin := c.Get("Origin"); app.AllowOrigin && origin != "" {
			c.Set("Access-Control-Allow-Origin", origin)
		}
		for _, field := range app.Outer {
			c.Set(field.Name, field.Value)
		}
		if login := c.Get("X-Login"); app.Login && login != "" {
			c.Locals("user", strings.Clone(login))
		}
		if app.Consumed != nil {
			c.SetUserContext(core.WithCaller(c.UserContext(), strings.Clone(c.Get("X-Caller")), app.Consumed...))
		}
		if app.Incoming != nil {
			app.Incoming(c.UserContext())
		}
		if app.Deadline > 0 && c.Get(adaptertest.UnlimitedHeader) == "" {
			ctx, cancel := context.WithTimeout(c.UserContext(), app.Deadline)
			defer cancel()
			c.SetUserContext(ctx)
		}
		err := c.Next()
		if app.After != nil {
			app.After(adaptertest.Outcome{
				Body:    io.NopCloser(bytes.NewReader(c.BodyRaw())),
				Context: c.UserContext(), Form: func(name string) string { return strings.Clone(c.FormValue(name)) },
				Header: func(name string) string { return strings.Clone(c.GetRespHeader(name)) },
				Err:    err, Replayed: fiberidem.Replayed(c),
			})
		}
		return err
	})
	for _, front := range app.Front {
		f.Use(readInFront(front))
	}
	var router fiber.Router = f
	if app.Group != "" {
		router = f.Group(app.Group)
	}
	if app.Guard != nil {
		router.Use(fiberidem.New(app.Guard))
	}
	for _, r := range app.Routes {
		handler := func(c *fiber.Ctx) error { return r.Handler(call{f, config, c}) }
		if r.Issues != nil {
			handler = fiberidem.IssueToken(r.Issues)
		}
		stack := append(adaptertest.Stack(r, fiberidem.Verify, fiberidem.New), handler)
		if r.Method != "" {
			router.Add(r.Method, r.Pattern[len(app.Group):], stack...)
			continue
		}
		f.Use(append([]any{"/"}, anyOf(stack)...)...)
	}

	f.Server().Handler = fibertest.TimeLimit(f.Handler())
	return fibertest.Listen(tb, f.Listener, f.Shutdown)
}

// readInFront is what stands in front, as Fiber has it or its users write it. (Fiber's CSRF has dependencies that
// the modules can do without; it reads a form as FormReader does.)
func readInFront(f adaptertest.Front) fiber.Handler {
	skip := func(c *fiber.Ctx) bool { return c.Get(adaptertest.UnreadHeader) != "" }
	if f == adaptertest.KeyAuth {
		return keyauth.New(keyauth.Config{Next: skip, KeyLookup: "form:api-key",
			Validator: func(_ *fiber.Ctx, key string) (bool, error) { return key == "secret", nil }})
	}
	return func(c *fiber.Ctx) error {
		var parsed any
		var err error
		switch {
		case skip(c):
		case f == adaptertest.FormReader:
			_ = c.FormValue("sku")
		case f == adaptertest.JSONBinder:
			err = c.BodyParser(&parsed)
		case f == adaptertest.Peeker && c.Request().IsBodyStream():
			_, err = io.ReadFull(c.Request().BodyStream(), make([]byte, 4))
		case f == adaptertest.Peeker:
			_ = c.Body()[:4]
		case f == adaptertest.PutterBack:
			c.Request().SetBody(bytes.Clone(c.BodyRaw()))
		}
		if err != nil {
			return err
		}
		return c.Next()
	}
}

// within is the local under which a request that is made within another one has that one's context.
type within struct{}

// renderErrors is what services with an error format of their own have in front.
func renderErrors(ignoreContext bool) fiber.Handler {
	return func(c *fiber.Ctx) error {
		err := c.Next()
		if err == nil || ignoreContext && adaptertest.ContextEnded(err) {
			return nil
		}
		status := http.StatusInternalServerError
		if failure, ok := errors.AsType[*fiber.Error](err); ok {
			status = failure.Code
		}
		contentType, body := adaptertest.RenderError(err.Error())
		c.Set("Content-Type", contentType)
		return c.Status(status).Send(body)
	}
}

// call does what handlers for Fiber do.
type call struct {
	app    *fiber.App
	config fiber.Config
	*fiber.Ctx
}

func (c call) Context() context.Context { return c.Ctx.UserContext() }

func (c call) Run() *core.Run { return fiberidem.Run(c.Ctx) }

func (c call) Verified() (sign.Verified, bool) { return fiberidem.Verified(c.Ctx) }

func (c call) Method() string { return c.Ctx.Method() }

// Trailer finds nothing: what a trailer brings is a part of fasthttp's header.
func (c call) Trailer(string) string { return "" }

// Header finds a field whose name was sent in any case, also if Fiber leaves names as they are sent.
func (c call) Header(name string) (value string) {
	if !c.config.DisableHeaderNormalizing {
		return c.Ctx.Get(name)
	}
	c.Ctx.Request().Header.VisitAll(func(k, v []byte) {
		if value == "" && strings.EqualFold(string(k), name) {
			value = string(v)
		}
	})
	return value
}

func (c call) Param(name string) string { return c.Ctx.Params(name) }

func (c call) Query(name string) string { return c.Ctx.Query(name) }

func (c call) Body() ([]byte, error) { return c.Ctx.BodyRaw(), nil }

func (c call) Bind(v any) error { return c.Ctx.BodyParser(v) }

func (c call) SetContext(ctx context.Context) { c.Ctx.SetUserContext(ctx) }

func (c call) SetHeader(name, value string) { c.Ctx.Set(name, value) }

func (c call) AddHeader(name, value string) { c.Ctx.Response().Header.Add(name, value) }

func (c call) DelHeader(name string) { c.Ctx.Response().Header.Del(name) }

func (c call) JSON(status int, v any) error { return c.Ctx.Status(status).JSON(v) }

func (c call) Blob(status int, contentType string, body []byte) error {
	c.Ctx.Set("Content-Type", contentType)
	return c.Ctx.Status(status).Send(body)
}

func (c call) NoContent(status int) error {
	c.Ctx.Status(status) // SendStatus would add a text
	return nil
}

func (c call) Write(status int, contentType string, _ bool, pieces ...string) error {
	c.Ctx.Set("Content-Type", contentType)
	c.Ctx.Status(status)
	for _, piece := range pieces {
		if _, err := c.Ctx.WriteString(piece); err != nil {
			return err
		}
	}
	return nil
}

func (c call) Stream(status int, contentType string, write func(io.Writer, func()) error) error {
	c.Ctx.Set("Content-Type", contentType)
	c.Ctx.Status(status)
	c.Ctx.Response().SetBodyStreamWriter(func(w *bufio.Writer) {
		_ = write(w, func() { _ = w.Flush() }) // a client that has gone ends it
	})
	return nil
}

func (c call) EarlyHints(string) error { return errors.New("this version sends no 103") }

func (c call) Upgrade(protocol string, talk func(net.Conn)) error {
	c.Ctx.Set("Connection", "Upgrade")
	c.Ctx.Set("Upgrade", protocol)
	c.Ctx.Status(http.StatusSwitchingProtocols)
	c.Ctx.Context().Hijack(talk)
	return nil
}

func (c call) Report(err error) error { return err }

func (c call) Proxy(addr string) error {
	proxy := adaptertest.NewProxy(addr)
	return adaptor.HTTPHandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// r has fasthttp's context, which serves other requests when this one has been answered. Without the Flush of w the answer is
		// whole: newer versions of fasthttp make a stream of what is flushed, and don't tell that its client has left.
		proxy.ServeHTTP(struct{ http.ResponseWriter }{w}, r.WithContext(c.Context()))
	})(c.Ctx)
}

func (c call) NewToken(g *core.Guard) (string, error) { return fiberidem.NewToken(c.Ctx, g) }

func (c call) Within(target, key string) (*adapter.Response, error) {
	var inner fasthttp.RequestCtx
	inner.Init(&fasthttp.Request{}, nil, nil)
	inner.Request.Header.SetMethod(http.MethodPost)
	inner.Request.SetRequestURI(target)
	inner.Request.Header.Set("X-User", c.Ctx.Get("X-User"))
	if key != "" {
		inner.Request.Header.Set(core.DefaultKeyHeader, key)
	}
	inner.SetUserValue(within{}, c.Context())
	c.app.Handler()(&inner)
	answer := &adapter.Response{Status: inner.Response.StatusCode(), Body: inner.Response.Body()}
	inner.Response.Header.VisitAll(func(name, value []byte) {
		answer.Header = append(answer.Header, adapter.Field{Name: string(name), Value: string(value)})
	})
	return answer, nil
}

func (c call) Fail(status int, message string) error { return fiber.NewError(status, message) }

// anyOf are handlers as [fiber.Router].Use takes them.
func anyOf(handlers []fiber.Handler) (all []any) {
	for _, h := range handlers {
		all = append(all, h)
	}
	return all
}

func newApp(config ...fiber.Config) *fiber.App {
	var c fiber.Config
	if len(config) > 0 {
		c = config[0]
	}
	c.DisableStartupMessage = true
	return fiber.New(c)
}

func serve(t testing.TB, app *fiber.App) *fibertest.Service {
	t.Helper()
	return fibertest.Serve(t, app.Listener, app.Shutdown)
}
