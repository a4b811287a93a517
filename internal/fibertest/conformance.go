package fibertest

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/adaptertest"
	"github.com/idem-go/idem/sign"
)

// Harness is for the suite of adapters: Fiber with these settings. Of a form in chunks that was read from a stream in front
// nothing is left.
func (v Version[C]) Harness(name string, config Config) adaptertest.Harness {
	front := []adaptertest.Front{adaptertest.JSONBinder, adaptertest.Peeker, adaptertest.PutterBack}
	if !config.StreamRequestBody {
		front = append(front, adaptertest.FormReader, adaptertest.KeyAuth)
	}
	return adaptertest.Harness{
		Name:  name,
		Start: func(tb testing.TB, app adaptertest.App) string { return v.start(tb, config, app) },
		User:  func(name string) core.UserSource { return v.UserFromLocals(name) },
		Features: adaptertest.Features{EarlyHints: v.EarlyHints != nil, NativeErrors: true, OuterErrors: true, TimeLimit: true, ServerDate: true,
			ClosesUnread: config.StreamRequestBody, Front: front},
	}
}

// RunModes runs the suite in each mode. With -short that is only the plain one and the one with streams.
func (v Version[C]) RunModes(t *testing.T, name string) {
	for mode, config := range Modes {
		if mode == "plain" || !testing.Short() || mode == "streams" {
			t.Run(mode, func(t *testing.T) { adaptertest.Run(t, v.Harness(name, config)) })
		}
	}
}

// start serves app.
func (v Version[C]) start(tb testing.TB, config Config, app adaptertest.App) string {
	tb.Helper()
	for _, r := range app.Routes {
		config.DisablePreParseMultipartForm = config.DisablePreParseMultipartForm || len(r.Verifiers) > 0 // what was signed are the form's bytes
	}
	onError := v.DefaultError
	if app.IgnoreContextErrors {
		onError = func(c C, err error) error {
			if adaptertest.ContextEnded(err) {
				return nil
			}
			return v.DefaultError(c, err)
		}
	}
	f := v.NewApp(config, onError)
	f.Use(v.Recover())
	if app.Errors && !app.WithoutFinish || app.Finish {
		f.Use(v.Finish())
	}
	if app.Errors {
		f.Use(v.errors(app.IgnoreContextErrors))
	}
	f.Use(func(c C) error {
		if outer, ok := c.Locals(within{}).(context.Context); ok {
			v.SetContext(c, outer)
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
			v.SetContext(c, core.WithCaller(v.Context(c), strings.Clone(c.Get("X-Caller")), app.Consumed...))
		}
		if app.Incoming != nil {
			app.Incoming(v.Context(c))
		}
		if app.Deadline > 0 && c.Get(adaptertest.UnlimitedHeader) == "" {
			ctx, cancel := context.WithTimeout(v.Context(c), app.Deadline)
			defer cancel()
			v.SetContext(c, ctx)
		}
		err := c.Next()
		if app.After != nil {
			app.After(adaptertest.Outcome{
				Body:    io.NopCloser(bytes.NewReader(c.BodyRaw())),
				Context: v.Context(c), Form: func(name string) string { return strings.Clone(c.FormValue(name)) },
				Header: func(name string) string { return strings.Clone(c.GetRespHeader(name)) },
				Err:    err, Replayed: v.Replayed(c),
			})
		}
		return err
	})
	for _, front := range app.Front {
		f.Use(v.readInFront(front))
	}
	var router Router[C] = f
	if app.Group != "" {
		router = f.Group(app.Group)
	}
	if app.Guard != nil {
		router.Use(v.New(app.Guard))
	}
	for _, r := range app.Routes {
		handler := func(c C) error { return r.Handler(call[C]{v, f, config, c}) }
		if r.Issues != nil {
			handler = v.IssueToken(r.Issues)
		}
		stack := append(adaptertest.Stack(r, v.Verify, v.New), handler)
		if r.Method != "" {
			router.Add(r.Method, r.Pattern[len(app.Group):], stack...)
			continue
		}
		f.UseAt(v.Everything, stack...)
	}

	f.Server().Handler = TimeLimit(f.Handler())
	return Listen(tb, f.Listener, f.Shutdown)
}

// readInFront is what stands in front, as Fiber has it or its users write it. (Fiber's CSRF has dependencies that
// the modules can do without; it reads a form as FormReader does.)
func (v Version[C]) readInFront(f adaptertest.Front) Handler[C] {
	skip := func(c C) bool { return c.Get(adaptertest.UnreadHeader) != "" }
	if f == adaptertest.KeyAuth {
		return v.FormKeyAuth(skip)
	}
	return func(c C) error {
		var parsed any
		var err error
		switch {
		case skip(c):
		case f == adaptertest.FormReader:
			_ = c.FormValue("sku")
		case f == adaptertest.JSONBinder:
			err = v.Bind(c, &parsed)
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

// errors is what services with an error format of their own have in front.
func (v Version[C]) errors(ignoreContext bool) Handler[C] {
	return func(c C) error {
		err := c.Next()
		if err == nil || ignoreContext && adaptertest.ContextEnded(err) {
			return nil
		}
		status := cmp.Or(v.StatusOf(err), http.StatusInternalServerError)
		contentType, body := adaptertest.RenderError(err.Error())
		c.Set("Content-Type", contentType)
		return c.Status(status).Send(body)
	}
}

// call does what handlers for Fiber do.
type call[C Context[C]] struct {
	v      Version[C]
	app    App[C]
	config Config
	c      C
}

func (c call[C]) Context() context.Context { return c.v.Context(c.c) }

func (c call[C]) Run() *core.Run { return c.v.Run(c.c) }

func (c call[C]) Verified() (sign.Verified, bool) { return c.v.Verified(c.c) }

func (c call[C]) Method() string { return c.c.Method() }

// Trailer finds nothing: what a trailer brings is a part of fasthttp's header.
func (c call[C]) Trailer(string) string { return "" }

// Header finds a field whose name was sent in any case, also if Fiber leaves names as they are sent.
func (c call[C]) Header(name string) (value string) {
	if !c.config.DisableHeaderNormalizing {
		return c.c.Get(name)
	}
	c.c.Request().Header.VisitAll(func(k, v []byte) {
		if value == "" && strings.EqualFold(string(k), name) {
			value = string(v)
		}
	})
	return value
}

func (c call[C]) Param(name string) string { return c.c.Params(name) }

func (c call[C]) Query(name string) string { return c.c.Query(name) }

func (c call[C]) Body() ([]byte, error) { return c.c.BodyRaw(), nil }

func (c call[C]) Bind(v any) error { return c.v.Bind(c.c, v) }

func (c call[C]) FormFile(field string) (*multipart.FileHeader, error) { return c.c.FormFile(field) }

func (c call[C]) SetContext(ctx context.Context) { c.v.SetContext(c.c, ctx) }

func (c call[C]) SetHeader(name, value string) { c.c.Set(name, value) }

func (c call[C]) AddHeader(name, value string) { c.c.Response().Header.Add(name, value) }

func (c call[C]) DelHeader(name string) { c.c.Response().Header.Del(name) }

func (c call[C]) JSON(status int, v any) error { return c.c.Status(status).JSON(v) }

func (c call[C]) Blob(status int, contentType string, body []byte) error {
	c.c.Set("Content-Type", contentType)
	return c.c.Status(status).Send(body)
}

func (c call[C]) NoContent(status int) error {
	c.c.Status(status) // SendStatus would add a text
	return nil
}

func (c call[C]) Write(status int, contentType string, _ bool, pieces ...string) error {
	c.c.Set("Content-Type", contentType)
	c.c.Status(status)
	for _, piece := range pieces {
		if _, err := c.c.WriteString(piece); err != nil {
			return err
		}
	}
	return nil
}

func (c call[C]) Stream(status int, contentType string, write func(io.Writer, func()) error) error {
	c.c.Set("Content-Type", contentType)
	c.c.Status(status)
	c.c.Response().SetBodyStreamWriter(func(w *bufio.Writer) {
		_ = write(w, func() { _ = w.Flush() }) // a client that has gone ends it
	})
	return nil
}

func (c call[C]) EarlyHints(link string) error {
	if c.v.EarlyHints == nil {
		return errors.New("this version sends no 103")
	}
	return c.v.EarlyHints(c.c, link)
}

func (c call[C]) Upgrade(protocol string, talk func(net.Conn)) error {
	c.c.Set("Connection", "Upgrade")
	c.c.Set("Upgrade", protocol)
	c.c.Status(http.StatusSwitchingProtocols)
	c.v.RequestCtx(c.c).Hijack(talk)
	return nil
}

func (c call[C]) Report(err error) error { return err }

func (c call[C]) Proxy(addr string) error {
	proxy := adaptertest.NewProxy(addr)
	return c.v.WrapHandler(func(w http.ResponseWriter, r *http.Request) {
		// r has fasthttp's context, which serves other requests when this one has been answered. Without the Flush of w the answer is
		// whole: newer versions of fasthttp make a stream of what is flushed, and don't tell that its client has left.
		proxy.ServeHTTP(struct{ http.ResponseWriter }{w}, r.WithContext(c.Context()))
	})(c.c)
}

func (c call[C]) NewToken(g *core.Guard) (string, error) { return c.v.NewToken(c.c, g) }

func (c call[C]) Within(target, key string) (*adapter.Response, error) {
	var inner fasthttp.RequestCtx
	inner.Init(&fasthttp.Request{}, nil, nil)
	inner.Request.Header.SetMethod(http.MethodPost)
	inner.Request.SetRequestURI(target)
	inner.Request.Header.Set("X-User", c.c.Get("X-User"))
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

func (c call[C]) Fail(status int, message string) error { return c.v.Error(status, message) }
