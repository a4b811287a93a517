package echoidem_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adaptertest"
	"github.com/idem-go/idem/echoidem"
	"github.com/idem-go/idem/internal/backend/nonces"
	"github.com/idem-go/idem/sign"
)

func TestConformance(t *testing.T) { adaptertest.Run(t, harness) }

func BenchmarkVerify(b *testing.B) { adaptertest.BenchVerify(b, harness) }

var harness = adaptertest.Harness{
	Name:   "echo",
	Start:  startEcho,
	User:   func(name string) core.UserSource { return echoidem.UserFromContext(name) },
	Nonces: nonces.OnRedis,
	Features: adaptertest.Features{
		EarlyHints: true, Flush: true, ContextEnds: true, NativeErrors: true, OuterErrors: true,
		OuterBodyLimit: true, GroupRoutes: true, GlobalRoutes: true, BodyStreams: true, Counts: true, TimeLimit: true, Prefixes: true, HTTP2: true,
		Front: []adaptertest.Front{adaptertest.FormReader, adaptertest.CSRF, adaptertest.KeyAuth, adaptertest.MethodOverride,
			adaptertest.JSONBinder, adaptertest.Peeker, adaptertest.PutterBack, adaptertest.Decompressor, adaptertest.Limiter},
	},
}

func startEcho(tb testing.TB, app adaptertest.App) string {
	tb.Helper()
	e := echo.New()
	e.Logger.SetOutput(io.Discard)
	e.Use(conformanceRecovery)
	if app.IgnoreContextErrors {
		e.HTTPErrorHandler = func(err error, c echo.Context) {
			if !adaptertest.ContextEnded(err) {
				e.DefaultHTTPErrorHandler(err, c)
			}
		}
	}
	if app.Errors && !app.WithoutFinish || app.Finish {
		e.Use(echoidem.Finish())
	}
	if app.Errors {
		e.Use(conformanceErrors(app.IgnoreContextErrors))
	}
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if app.BodyLimit > 0 {
				c.Request().Body = http.MaxBytesReader(c.Response(), c.Request().Body, app.BodyLimit)
			}
			if origin := c.Request().Header.Get("Origin"); app.AllowOrigin && origin != "" {
				c.Response().Header().Set("Access-Control-Allow-Origin", origin)
			}
			for _, f := range app.Outer {
				c.Response().Header().Set(f.Name, f.Value)
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
				app.After(adaptertest.Outcome{Body: c.Request().Body, Header: c.Response().Header().Get, Err: err, Replayed: echoidem.Replayed(c)})
			}
			return err
		}
	})
	for _, f := range app.Front {
		if f == adaptertest.MethodOverride {
			e.Pre(readInFront(f))
			continue
		}
		e.Use(readInFront(f))
	}
	add := e.Add
	if app.Group == "" {
		if app.Guard != nil {
			e.Use(echoidem.New(app.Guard))
		}
	} else {
		var guards []echo.MiddlewareFunc
		if app.Guard != nil {
			guards = append(guards, echoidem.New(app.Guard))
		}
		add = e.Group(app.Group, guards...).Add
	}
	for _, r := range app.Routes {
		handler := func(c echo.Context) error { return r.Handler(echoCall{c}) }
		if r.Issues != nil {
			handler = echoidem.IssueToken(r.Issues)
		}
		stack := adaptertest.Stack(r, echoidem.Verify, echoidem.New)
		if r.Method == "" {
			e.Use(stack...)
			e.RouteNotFound("/*", handler) // echo has no other way to take every method
			continue
		}
		add(r.Method, r.Pattern[len(app.Group):], handler, stack...)
	}
	return adaptertest.Listen(tb, app.Mounted(e))
}

// readInFront is f, as echo has it.
func readInFront(f adaptertest.Front) echo.MiddlewareFunc {
	skip := func(c echo.Context) bool { return c.Request().Header.Get(adaptertest.UnreadHeader) != "" }
	switch f {
	case adaptertest.CSRF:
		return middleware.CSRFWithConfig(middleware.CSRFConfig{Skipper: skip, TokenLookup: "form:csrf", CookieName: "_csrf"})
	case adaptertest.KeyAuth:
		return middleware.KeyAuthWithConfig(middleware.KeyAuthConfig{Skipper: skip, KeyLookup: "form:api-key",
			Validator: func(key string, _ echo.Context) (bool, error) { return key == "secret", nil }})
	case adaptertest.MethodOverride:
		return middleware.MethodOverrideWithConfig(middleware.MethodOverrideConfig{Skipper: skip, Getter: middleware.MethodFromForm("_method")})
	case adaptertest.PutterBack:
		return middleware.BodyDumpWithConfig(middleware.BodyDumpConfig{Skipper: skip, Handler: func(echo.Context, []byte, []byte) {}})
	case adaptertest.Decompressor:
		return middleware.DecompressWithConfig(middleware.DecompressConfig{Skipper: skip})
	case adaptertest.Limiter:
		return middleware.BodyLimitWithConfig(middleware.BodyLimitConfig{Skipper: skip, Limit: "1000B"})
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			var v any
			var err error
			switch {
			case skip(c):
			case f == adaptertest.FormReader:
				_ = c.FormValue("sku")
			case f == adaptertest.JSONBinder:
				err = c.Bind(&v)
			default:
				err = adaptertest.ReadInFront(f, c.Response(), c.Request())
			}
			if err != nil {
				return err
			}
			return next(c)
		}
	}
}

// conformanceRecovery does what echo's own middleware.Recover does, whose package has dependencies that
// this module can do without.
func conformanceRecovery(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		defer func() {
			if v := recover(); v != nil {
				c.Error(fmt.Errorf("%v", v))
			}
		}()
		return next(c)
	}
}

// conformanceErrors is what services with an error format of their own have in front.
func conformanceErrors(ignoreContext bool) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			err := next(c)
			if err == nil || c.Response().Committed {
				return err
			}
			if ignoreContext && adaptertest.ContextEnded(err) {
				return nil
			}
			status, message := http.StatusInternalServerError, err.Error()
			var failure *echo.HTTPError
			if errors.As(err, &failure) {
				status, message = failure.Code, fmt.Sprint(failure.Message)
			}
			contentType, body := adaptertest.RenderError(message)
			return c.Blob(status, contentType, body)
		}
	}
}

// echoCall does what handlers for echo do.
type echoCall struct{ c echo.Context }

func (c echoCall) Context() context.Context { return c.c.Request().Context() }

func (c echoCall) Run() *core.Run { return echoidem.Run(c.c) }

func (c echoCall) Verified() (sign.Verified, bool) { return echoidem.Verified(c.c) }

func (c echoCall) Method() string { return c.c.Request().Method }

func (c echoCall) Header(name string) string { return c.c.Request().Header.Get(name) }

func (c echoCall) Param(name string) string { return c.c.Param(name) }

func (c echoCall) Query(name string) string { return c.c.QueryParam(name) }

func (c echoCall) Body() ([]byte, error) { return io.ReadAll(c.c.Request().Body) }

func (c echoCall) Bind(v any) error { return c.c.Bind(v) }

func (c echoCall) FormFile(field string) (string, []byte, error) {
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

func (c echoCall) SetHeader(name, value string) { c.c.Response().Header().Set(name, value) }

func (c echoCall) AddHeader(name, value string) { c.c.Response().Header().Add(name, value) }

func (c echoCall) JSON(status int, v any) error { return c.c.JSON(status, v) }

func (c echoCall) Blob(status int, contentType string, body []byte) error {
	// c.c.Blob leaves a Content-Type alone that a middleware has set.
	c.c.Response().Header().Set(echo.HeaderContentType, contentType)
	return c.c.Blob(status, contentType, body)
}

func (c echoCall) NoContent(status int) error { return c.c.NoContent(status) }

func (c echoCall) Write(status int, contentType string, flush bool, pieces ...string) error {
	w := c.c.Response()
	w.Header().Set(echo.HeaderContentType, contentType)
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

func (c echoCall) Stream(status int, contentType string, write func(io.Writer, func()) error) error {
	w := c.c.Response()
	w.Header().Set(echo.HeaderContentType, contentType)
	w.WriteHeader(status)
	return write(w, w.Flush)
}

func (c echoCall) EarlyHints(link string) error {
	// echo's own writer takes the status for the final one: hints go around it.
	w := c.c.Response().Writer
	w.Header().Set("Link", link)
	w.WriteHeader(http.StatusEarlyHints)
	w.Header().Del("Link")
	return nil
}

func (c echoCall) Upgrade(protocol string, talk func(net.Conn)) error {
	conn, _, err := c.c.Response().Hijack()
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

func (c echoCall) Report(err error) error { return err }

func (c echoCall) Proxy(addr string) error {
	return echo.WrapHandler(adaptertest.NewProxy(addr))(c.c)
}

func (c echoCall) NewToken(g *core.Guard) (string, error) { return echoidem.NewToken(c.c, g) }

func (c echoCall) Within(target, key string) (*core.Response, error) {
	return adaptertest.Within(c.c.Echo(), c.c.Request(), target, key), nil
}

func (c echoCall) Fail(status int, message string) error { return echo.NewHTTPError(status, message) }
