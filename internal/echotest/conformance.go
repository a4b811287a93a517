package echotest

import (
	"context"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/adaptertest"
	"github.com/idem-go/idem/sign"
)

// Harness is for the suite of adapters. It leaves nothing out.
func (v Version[C]) Harness(name string) adaptertest.Harness {
	return adaptertest.Harness{
		Name:  name,
		Start: v.start,
		User:  v.UserFromContext,
		Features: adaptertest.Features{
			EarlyHints: true, Flush: true, ContextEnds: true, NativeErrors: true, OuterErrors: true,
			OuterBodyLimit: true, GroupRoutes: true, GlobalRoutes: true, BodyStreams: true, Counts: true, TimeLimit: true, Prefixes: true, HTTP2: true,
			Front: []adaptertest.Front{adaptertest.FormReader, adaptertest.CSRF, adaptertest.KeyAuth, adaptertest.MethodOverride,
				adaptertest.JSONBinder, adaptertest.Peeker, adaptertest.PutterBack, adaptertest.Decompressor, adaptertest.Limiter},
		},
	}
}

// start serves app.
func (v Version[C]) start(tb testing.TB, app adaptertest.App) string {
	tb.Helper()
	e := v.NewApp()
	e.Use(recovery[C])
	if app.IgnoreContextErrors {
		own := v.NewApp()
		e.OnError(func(c C, err error) {
			if !adaptertest.ContextEnded(err) {
				own.RenderError(c, err)
			}
		})
	}
	if app.Errors && !app.WithoutFinish || app.Finish {
		e.Use(v.Finish())
	}
	if app.Errors {
		e.Use(v.errors(app.IgnoreContextErrors))
	}
	e.Use(func(next Handler[C]) Handler[C] {
		return func(c C) error {
			if app.BodyLimit > 0 {
				c.Request().Body = http.MaxBytesReader(v.Response(c), c.Request().Body, app.BodyLimit)
			}
			if origin := c.Request().Header.Get("Origin"); app.AllowOrigin && origin != "" {
				v.Response(c).Header().Set("Access-Control-Allow-Origin", origin)
			}
			for _, f := range app.Outer {
				v.Response(c).Header().Set(f.Name, f.Value)
			}
			if login := c.Request().Header.Get("X-Login"); app.Login && login != "" {
				c.Set("user", login)
			}
			if app.Consumed != nil {
				c.SetRequest(c.Request().WithContext(core.WithCaller(c.Request().Context(), c.Request().Header.Get("X-Caller"), app.Consumed...)))
			}
			if app.Incoming != nil {
				app.Incoming(c.Request().Context())
			}
			if app.Deadline > 0 && c.Request().Header.Get(adaptertest.UnlimitedHeader) == "" {
				ctx, cancel := context.WithTimeout(c.Request().Context(), app.Deadline)
				defer cancel()
				c.SetRequest(c.Request().WithContext(ctx))
			}
			err := next(c)
			if app.After != nil {
				app.After(adaptertest.Outcome{Body: c.Request().Body, Context: c.Request().Context(), Form: c.Request().PostForm.Get, Header: v.Response(c).Header().Get, Err: err, Replayed: v.Replayed(c)})
			}
			return err
		}
	})
	for _, f := range app.Front {
		if f == adaptertest.MethodOverride {
			e.Pre(v.readInFront(f))
			continue
		}
		e.Use(v.readInFront(f))
	}
	add := e.Add
	if app.Group == "" {
		if app.Guard != nil {
			e.Use(v.New(app.Guard))
		}
	} else {
		var guards []Middleware[C]
		if app.Guard != nil {
			guards = append(guards, v.New(app.Guard))
		}
		add = e.Group(app.Group, guards...).Add
	}
	for _, r := range app.Routes {
		handler := func(c C) error { return r.Handler(call[C]{v, c}) }
		if r.Issues != nil {
			handler = v.IssueToken(r.Issues)
		}
		stack := adaptertest.Stack(r, v.Verify, v.New)
		if r.Method == "" {
			e.Use(stack...)
			e.Add("echo_route_not_found", "/*", handler) // Echo has no other way to take every method
			continue
		}
		add(r.Method, r.Pattern[len(app.Group):], handler, stack...)
	}
	return adaptertest.Listen(tb, app.Mounted(e))
}

// readInFront is f, as Echo has it.
func (v Version[C]) readInFront(f adaptertest.Front) Middleware[C] {
	skip := func(c C) bool { return c.Request().Header.Get(adaptertest.UnreadHeader) != "" }
	if own := v.BodyReader(f, skip); own != nil {
		return own
	}
	return func(next Handler[C]) Handler[C] {
		return func(c C) error {
			var bound any
			var err error
			switch {
			case skip(c):
			case f == adaptertest.FormReader:
				_ = c.FormValue("sku")
			case f == adaptertest.JSONBinder:
				err = c.Bind(&bound)
			default:
				err = adaptertest.ReadInFront(f, v.Response(c), c.Request())
			}
			if err != nil {
				return err
			}
			return next(c)
		}
	}
}

// recovery does what Echo's own Recover does, without a log.
func recovery[C any](next Handler[C]) Handler[C] {
	return func(c C) (err error) {
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("%v", v)
			}
		}()
		return next(c)
	}
}

// errors is what services with an error format of their own have in front.
func (v Version[C]) errors(ignoreContext bool) Middleware[C] {
	return func(next Handler[C]) Handler[C] {
		return func(c C) error {
			err := next(c)
			if err == nil || *v.Response(c).Committed {
				return err
			}
			if ignoreContext && adaptertest.ContextEnded(err) {
				return nil
			}
			status, message := http.StatusInternalServerError, err.Error()
			if code, text := v.StatusOf(err); code != 0 {
				status, message = code, text
			}
			contentType, body := adaptertest.RenderError(message)
			return c.Blob(status, contentType, body)
		}
	}
}

// call does what handlers for Echo do.
type call[C Context] struct {
	v Version[C]
	c C
}

func (c call[C]) response() response { return c.v.response(c.c) }

func (c call[C]) Context() context.Context { return c.c.Request().Context() }

func (c call[C]) Run() *core.Run { return c.v.Run(c.c) }

func (c call[C]) Verified() (sign.Verified, bool) { return c.v.Verified(c.c) }

func (c call[C]) Method() string { return c.c.Request().Method }

func (c call[C]) Header(name string) string { return c.c.Request().Header.Get(name) }

func (c call[C]) Trailer(name string) string { return c.c.Request().Trailer.Get(name) }

func (c call[C]) Param(name string) string { return c.c.Param(name) }

func (c call[C]) Query(name string) string { return c.c.QueryParam(name) }

func (c call[C]) Body() ([]byte, error) { return io.ReadAll(c.c.Request().Body) }

func (c call[C]) Bind(v any) error { return c.c.Bind(v) }

func (c call[C]) FormFile(field string) (*multipart.FileHeader, error) { return c.c.FormFile(field) }

func (c call[C]) SetContext(ctx context.Context) { c.c.SetRequest(c.c.Request().WithContext(ctx)) }

func (c call[C]) SetHeader(name, value string) { c.response().Header().Set(name, value) }

func (c call[C]) AddHeader(name, value string) { c.response().Header().Add(name, value) }

func (c call[C]) DelHeader(name string) { c.response().Header().Del(name) }

func (c call[C]) JSON(status int, v any) error { return c.c.JSON(status, v) }

func (c call[C]) Blob(status int, contentType string, body []byte) error {
	// c.c.Blob leaves a Content-Type alone that a middleware has set.
	c.response().Header().Set("Content-Type", contentType)
	return c.c.Blob(status, contentType, body)
}

func (c call[C]) NoContent(status int) error { return c.c.NoContent(status) }

func (c call[C]) Write(status int, contentType string, flush bool, pieces ...string) error {
	w := c.response()
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	for _, piece := range pieces {
		// By way of io.ReaderFrom, if the writer has it.
		if _, err := io.Copy(w, struct{ io.Reader }{strings.NewReader(piece)}); err != nil {
			return err
		}
		if flush {
			w.Flush()
		}
	}
	return nil
}

func (c call[C]) Stream(status int, contentType string, write func(io.Writer, func()) error) error {
	w := c.response()
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	return write(w, w.Flush)
}

func (c call[C]) EarlyHints(link string) error {
	// echo's own writer takes the status for the final one: hints go around it.
	w := *c.response().Writer
	w.Header().Set("Link", link)
	w.WriteHeader(http.StatusEarlyHints)
	w.Header().Del("Link")
	return nil
}

func (c call[C]) Upgrade(protocol string, talk func(net.Conn)) error {
	conn, _, err := c.response().Hijack()
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", protocol); err != nil {
		return err
	}
	talk(conn)
	return nil
}

func (c call[C]) Report(err error) error { return err }

func (c call[C]) Proxy(addr string) error {
	return c.v.WrapHandler(adaptertest.NewProxy(addr))(c.c)
}

func (c call[C]) NewToken(g *core.Guard) (string, error) { return c.v.NewToken(c.c, g) }

func (c call[C]) Within(target, key string) (*adapter.Response, error) {
	return adaptertest.Within(c.v.Echo(c.c), c.c.Request(), target, key), nil
}

func (c call[C]) Fail(status int, message string) error { return c.v.HTTPError(status, message) }
