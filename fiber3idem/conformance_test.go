package fiber3idem_test

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

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/extractors"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/gofiber/fiber/v3/middleware/keyauth"
	"github.com/gofiber/fiber/v3/middleware/recover"
	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adaptertest"
	"github.com/idem-go/idem/fiber3idem"
	"github.com/idem-go/idem/internal/backend/nonces"
	"github.com/idem-go/idem/internal/fasthttptest"
	"github.com/idem-go/idem/sign"
)

func TestConformance(t *testing.T) { adaptertest.Run(t, harness(fiber.Config{})) }

func BenchmarkVerify(b *testing.B) { adaptertest.BenchVerify(b, harness(fiber.Config{})) }

func TestSignatures(t *testing.T) {
	for name, config := range modes {
		if name != "plain" { // TestConformance
			t.Run(name, func(t *testing.T) { adaptertest.RunSignatures(t, harness(config)) })
		}
	}
}

// modes are the settings of Fiber that change what it makes of a request.
var modes = map[string]fiber.Config{
	"plain":         {},
	"streams":       {StreamRequestBody: true},
	"names as sent": {DisableHeaderNormalizing: true},
	"immutable":     {Immutable: true},
}

// harness is Fiber with these settings.
func harness(config fiber.Config) adaptertest.Harness {
	return adaptertest.Harness{
		Name:   "fiber3",
		Start:  func(tb testing.TB, app adaptertest.App) string { return startFiber(tb, config, app) },
		User:   func(name string) core.UserSource { return fiber3idem.UserFromLocals(name) },
		Nonces: nonces.OnRedis,
		Features: adaptertest.Features{EarlyHints: true, NativeErrors: true, OuterErrors: true, TimeLimit: true, ServerDate: true, ClosesUnread: config.StreamRequestBody,
			Front: []adaptertest.Front{adaptertest.FormReader, adaptertest.KeyAuth, adaptertest.JSONBinder, adaptertest.Peeker, adaptertest.PutterBack}},
	}
}

func startFiber(tb testing.TB, config fiber.Config, app adaptertest.App) string {
	tb.Helper()
	config.ReadBufferSize = 64 << 10
	config.RequestMethods = append([]string{"PROPFIND"}, fiber.DefaultMethods...)
	for _, r := range app.Routes {
		config.DisablePreParseMultipartForm = config.DisablePreParseMultipartForm || len(r.Verifiers) > 0 // what was signed are the form's bytes
	}
	if app.IgnoreContextErrors {
		config.ErrorHandler = func(c fiber.Ctx, err error) error {
			if adaptertest.ContextEnded(err) {
				return nil
			}
			return fiber.DefaultErrorHandler(c, err)
		}
	}
	f := fiber.New(config)
	f.Use(recover.New())
	if app.Errors && !app.WithoutFinish || app.Finish {
		f.Use(fiber3idem.Finish())
	}
	if app.Errors {
		f.Use(conformanceErrors(app.IgnoreContextErrors))
	}
	f.Use(func(c fiber.Ctx) error {
		if outer, ok := c.Locals(within{}).(context.Context); ok {
			c.SetContext(outer)
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
			c.SetContext(core.WithCaller(c.Context(), strings.Clone(c.Get("X-Caller")), app.Consumed...))
		}
		if app.Incoming != nil {
			app.Incoming(c.Context())
		}
		if app.Deadline > 0 && c.Get(adaptertest.UnlimitedHeader) == "" {
			ctx, cancel := context.WithTimeout(c.Context(), app.Deadline)
			defer cancel()
			c.SetContext(ctx)
		}
		err := c.Next()
		if app.After != nil {
			app.After(adaptertest.Outcome{
				Body:   io.NopCloser(bytes.NewReader(c.BodyRaw())),
				Header: func(name string) string { return strings.Clone(c.GetRespHeader(name)) },
				Err:    err, Replayed: fiber3idem.Replayed(c),
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
		router.Use(fiber3idem.New(app.Guard))
	}
	for _, r := range app.Routes {
		handler := func(c fiber.Ctx) error { return r.Handler(fiberCall{c}) }
		if r.Issues != nil {
			handler = fiber3idem.IssueToken(r.Issues)
		}
		var stack []any
		for _, h := range append(adaptertest.Stack(r, fiber3idem.Verify, fiber3idem.New), handler) {
			stack = append(stack, h)
		}
		if r.Method != "" {
			router.Add([]string{r.Method}, r.Pattern[len(app.Group):], stack[0], stack[1:]...)
			continue
		}
		f.Use(append(stack, "/*")...) // "/" does not match the empty path of http://host?query
	}

	f.Server().Handler = fasthttptest.TimeLimit(f.Handler())
	return fasthttptest.Listen(tb, func(l net.Listener) error {
		return f.Listener(l, fiber.ListenConfig{DisableStartupMessage: true})
	}, f.Shutdown)
}

// readInFront is what stands in front, as Fiber has it or its users write it. (Fiber's CSRF has dependencies that
// this module can do without; it reads a form as FormReader does.)
func readInFront(f adaptertest.Front) fiber.Handler {
	skip := func(c fiber.Ctx) bool { return c.Get(adaptertest.UnreadHeader) != "" }
	switch f {
	case adaptertest.KeyAuth:
		return keyauth.New(keyauth.Config{Next: skip, Extractor: extractors.FromForm("api-key"),
			Validator: func(_ fiber.Ctx, key string) (bool, error) { return key == "secret", nil }})
	}
	return func(c fiber.Ctx) error {
		var v any
		var err error
		switch {
		case skip(c):
		case f == adaptertest.FormReader:
			_ = c.FormValue("sku")
		case f == adaptertest.JSONBinder:
			err = c.Bind().Body(&v)
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

// conformanceErrors is what services with an error format of their own have in front.
func conformanceErrors(ignoreContext bool) fiber.Handler {
	return func(c fiber.Ctx) error {
		err := c.Next()
		if err == nil || ignoreContext && adaptertest.ContextEnded(err) {
			return nil
		}
		status := fiber.StatusInternalServerError
		var failure *fiber.Error
		if errors.As(err, &failure) {
			status = failure.Code
		}
		contentType, body := adaptertest.RenderError(err.Error())
		c.Set(fiber.HeaderContentType, contentType)
		return c.Status(status).Send(body)
	}
}

// fiberCall does what handlers for Fiber do.
type fiberCall struct{ c fiber.Ctx }

func (c fiberCall) Context() context.Context { return c.c.Context() }

func (c fiberCall) Run() *core.Run { return fiber3idem.Run(c.c) }

func (c fiberCall) Verified() (sign.Verified, bool) { return fiber3idem.Verified(c.c) }

func (c fiberCall) Method() string { return c.c.Method() }

// Header finds a field whose name was sent in any case, also if Fiber leaves names as they are sent.
func (c fiberCall) Header(name string) string {
	if !c.c.App().Config().DisableHeaderNormalizing {
		return c.c.Get(name)
	}
	for k, v := range c.c.Request().Header.All() {
		if strings.EqualFold(string(k), name) {
			return string(v)
		}
	}
	return ""
}

func (c fiberCall) Param(name string) string { return c.c.Params(name) }

func (c fiberCall) Query(name string) string { return c.c.Query(name) }

func (c fiberCall) Body() ([]byte, error) { return c.c.BodyRaw(), nil }

func (c fiberCall) Bind(v any) error { return c.c.Bind().Body(v) }

func (c fiberCall) FormFile(field string) (string, []byte, error) {
	header, err := c.c.FormFile(field)
	if err != nil {
		return "", nil, err
	}
	file, err := header.Open()
	if err != nil {
		return "", nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(file)
	return header.Filename, content, err
}

func (c fiberCall) SetHeader(name, value string) { c.c.Set(name, value) }

func (c fiberCall) AddHeader(name, value string) { c.c.Response().Header.Add(name, value) }

func (c fiberCall) JSON(status int, v any) error { return c.c.Status(status).JSON(v) }

func (c fiberCall) Blob(status int, contentType string, body []byte) error {
	c.c.Set(fiber.HeaderContentType, contentType)
	return c.c.Status(status).Send(body)
}

func (c fiberCall) NoContent(status int) error {
	c.c.Status(status) // SendStatus would add a text
	return nil
}

func (c fiberCall) Write(status int, contentType string, _ bool, pieces ...string) error {
	c.c.Set(fiber.HeaderContentType, contentType)
	c.c.Status(status)
	for _, piece := range pieces {
		if _, err := c.c.WriteString(piece); err != nil {
			return err
		}
	}
	return nil
}

func (c fiberCall) Stream(status int, contentType string, write func(io.Writer, func()) error) error {
	c.c.Set(fiber.HeaderContentType, contentType)
	c.c.Status(status)
	c.c.RequestCtx().SetBodyStreamWriter(func(w *bufio.Writer) {
		_ = write(w, func() { _ = w.Flush() }) // a client that has gone ends it
	})
	return nil
}

func (c fiberCall) EarlyHints(link string) error {
	defer c.c.Response().Header.Del(fiber.HeaderLink) // else Fiber sends it again with the final response
	return c.c.SendEarlyHints([]string{link})
}

func (c fiberCall) Upgrade(protocol string, talk func(net.Conn)) error {
	c.c.Set(fiber.HeaderConnection, "Upgrade")
	c.c.Set(fiber.HeaderUpgrade, protocol)
	c.c.Status(fiber.StatusSwitchingProtocols)
	c.c.RequestCtx().Hijack(talk)
	return nil
}

func (c fiberCall) Report(err error) error { return err }

func (c fiberCall) Proxy(addr string) error {
	proxy := adaptertest.NewProxy(addr)
	return adaptor.HTTPHandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// r has fasthttp's context, which serves other requests when this one has been answered. Without the Flush of w the answer is
		// whole: newer versions of fasthttp make a stream of what is flushed, and don't tell that its client has left.
		proxy.ServeHTTP(struct{ http.ResponseWriter }{w}, r.WithContext(c.Context()))
	})(c.c)
}

func (c fiberCall) NewToken(g *core.Guard) (string, error) { return fiber3idem.NewToken(c.c, g) }

func (c fiberCall) Within(target, key string) (*core.Response, error) {
	var inner fasthttp.RequestCtx
	inner.Init(&fasthttp.Request{}, nil, nil)
	inner.Request.Header.SetMethod(fiber.MethodPost)
	inner.Request.SetRequestURI(target)
	inner.Request.Header.Set("X-User", c.c.Get("X-User"))
	if key != "" {
		inner.Request.Header.Set(core.DefaultKeyHeader, key)
	}
	inner.SetUserValue(within{}, c.c.Context())
	c.c.App().Handler()(&inner)
	answer := &core.Response{Status: inner.Response.StatusCode(), Body: inner.Response.Body()}
	for name, value := range inner.Response.Header.All() {
		answer.Header = append(answer.Header, core.Field{Name: string(name), Value: string(value)})
	}
	return answer, nil
}

func (c fiberCall) Fail(status int, message string) error { return fiber.NewError(status, message) }
