package echo5idem_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/adaptertest"
	"github.com/idem-go/idem/echo5idem"
	"github.com/idem-go/idem/sign"
)

func TestConformance(t *testing.T) { adaptertest.Run(t, harness()) }

func BenchmarkVerify(b *testing.B) { adaptertest.BenchVerify(b, harness()) }

// newEcho is an Echo that logs nothing.
func newEcho() *echo.Echo {
	e := echo.New()
	e.Logger = slog.New(slog.DiscardHandler)
	return e
}

// harness leaves nothing of the suite out.
func harness() adaptertest.Harness {
	return adaptertest.Harness{
		Name:  "echo5",
		Start: start,
		User:  echo5idem.UserFromContext,
		Features: adaptertest.Features{
			EarlyHints: true, Flush: true, ContextEnds: true, NativeErrors: true, OuterErrors: true,
			OuterBodyLimit: true, GroupRoutes: true, GlobalRoutes: true, BodyStreams: true, Counts: true,
			TimeLimit: true, Prefixes: true, HTTP2: true,
			Front: []adaptertest.Front{adaptertest.FormReader, adaptertest.CSRF, adaptertest.KeyAuth, adaptertest.MethodOverride,
				adaptertest.JSONBinder, adaptertest.Peeker, adaptertest.PutterBack, adaptertest.Decompressor, adaptertest.Limiter},
		},
	}
}

// start serves app.
func start(tb testing.TB, app adaptertest.App) string {
	tb.Helper()
	e := newEcho()
	e.Use(recovery)
	if app.IgnoreContextErrors {
		own := echo.DefaultHTTPErrorHandler(false)
		e.HTTPErrorHandler = func(c *echo.Context, err error) {
			if !adaptertest.ContextEnded(err) {
				own(c, err)
			}
		}
	}
	if app.Errors && !app.WithoutFinish || app.Finish {
		e.Use(echo5idem.Finish())
	}
	if app.Errors {
		e.Use(renderErrors(app.IgnoreContextErrors))
	}
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			if login := c.Request().Header.Get("X-Login"); app.Login && login != "" {
				c.Set("user", login)
			}
			r, end := app.InFront(c.Response(), c.Request())
			defer end()
			c.SetRequest(r)
			err := next(c)
			if app.After != nil {
				app.After(adaptertest.Outcome{Body: c.Request().Body, Context: c.Request().Context(), Form: c.Request().PostForm.Get,
					Header: c.Response().Header().Get, Err: err, Replayed: echo5idem.Replayed(c)})
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
	add, use := e.Add, e.Use
	if app.Group != "" {
		group := e.Group(app.Group)
		add, use = group.Add, group.Use
	}
	if app.Guard != nil {
		use(echo5idem.New(app.Guard))
	}
	for _, r := range app.Routes {
		handler := func(c *echo.Context) error { return r.Handler(newCall(c)) }
		if r.Issues != nil {
			handler = echo5idem.IssueToken(r.Issues)
		}
		stack := adaptertest.Stack(r, echo5idem.Verify, echo5idem.New)
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
func readInFront(f adaptertest.Front) echo.MiddlewareFunc {
	skip := func(c *echo.Context) bool { return c.Request().Header.Get(adaptertest.UnreadHeader) != "" }
	if own := bodyReader(f, skip); own != nil {
		return own
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			var bound any
			var err error
			switch {
			case skip(c):
			case f == adaptertest.FormReader:
				_ = c.FormValue("sku")
			case f == adaptertest.JSONBinder:
				err = c.Bind(&bound)
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

// recovery does what Echo's own Recover does, without a log.
func recovery(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) (err error) {
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("%v", v)
			}
		}()
		return next(c)
	}
}

// renderErrors is what services with an error format of their own have in front.
func renderErrors(ignoreContext bool) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			err := next(c)
			if err == nil || response(c).Committed {
				return err
			}
			if ignoreContext && adaptertest.ContextEnded(err) {
				return nil
			}
			status, message := http.StatusInternalServerError, err.Error()
			if failure, ok := errors.AsType[*echo.HTTPError](err); ok {
				status, message = failure.Code, failure.Message
			}
			contentType, body := adaptertest.RenderError(message)
			return c.Blob(status, contentType, body)
		}
	}
}

// call does what handlers for Echo do.
type call struct {
	native
	adaptertest.NetHTTPCall
}

type native = *echo.Context

func newCall(c *echo.Context) call {
	w := response(c)
	return call{c, adaptertest.OnNetHTTP(w, w.ResponseWriter, c.Request)}
}

func (c call) Stream(status int, contentType string, write func(io.Writer, func()) error) error {
	return c.NetHTTPCall.Stream(status, contentType, write)
}

func (c call) Run() *core.Run { return echo5idem.Run(c.native) }

func (c call) Verified() (sign.Verified, bool) { return echo5idem.Verified(c.native) }

func (c call) Query(name string) string { return c.QueryParam(name) }

func (c call) SetContext(ctx context.Context) { c.SetRequest(c.Request().WithContext(ctx)) }

func (c call) Blob(status int, contentType string, body []byte) error {
	// c.native.Blob leaves a Content-Type alone that a middleware has set.
	c.Response().Header().Set("Content-Type", contentType)
	return c.native.Blob(status, contentType, body)
}

func (c call) Report(err error) error { return err }

func (c call) Proxy(addr string) error {
	return echo.WrapHandler(adaptertest.NewProxy(addr))(c.native)
}

func (c call) NewToken(g *core.Guard) (string, error) { return echo5idem.NewToken(c.native, g) }

func (c call) Within(target, key string) (*adapter.Response, error) {
	return adaptertest.Within(c.Echo(), c.Request(), target, key), nil
}

func (c call) Fail(status int, message string) error { return echo.NewHTTPError(status, message) }

// bodyReader is f, as Echo has it.
func bodyReader(f adaptertest.Front, skip func(*echo.Context) bool) echo.MiddlewareFunc {
	switch f {
	case adaptertest.CSRF:
		return middleware.CSRFWithConfig(middleware.CSRFConfig{Skipper: skip, TokenLookup: "form:csrf", CookieName: "_csrf"})
	case adaptertest.KeyAuth:
		return middleware.KeyAuthWithConfig(middleware.KeyAuthConfig{Skipper: skip, KeyLookup: "form:api-key",
			Validator: func(_ *echo.Context, key string, _ middleware.ExtractorSource) (bool, error) {
				return key == "secret", nil
			}})
	case adaptertest.MethodOverride:
		return middleware.MethodOverrideWithConfig(middleware.MethodOverrideConfig{Skipper: skip,
			Getter: middleware.MethodFromForm("_method")})
	case adaptertest.PutterBack:
		return middleware.BodyDumpWithConfig(middleware.BodyDumpConfig{Skipper: skip,
			Handler: func(*echo.Context, []byte, []byte, error) {}})
	case adaptertest.Decompressor:
		return middleware.DecompressWithConfig(middleware.DecompressConfig{Skipper: skip})
	case adaptertest.Limiter:
		return middleware.BodyLimitWithConfig(middleware.BodyLimitConfig{Skipper: skip, LimitBytes: 1000})
	}
	return nil
}

// response is what c's writer writes to in the end.
func response(c *echo.Context) *echo.Response {
	r, err := echo.UnwrapResponse(c.Response())
	if err != nil {
		panic(err)
	}
	return r
}
