package echo5idem_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"
	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/idem-go/idem/adapterkit/echokit"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adaptertest"
	"github.com/idem-go/idem/echo5idem"
	"github.com/idem-go/idem/internal/echotest"
	"github.com/idem-go/idem/internal/leak"
	"github.com/idem-go/idem/sign"
)

func TestMain(m *testing.M) {
	// A server that has refused a body waits before it closes the connection.
	leak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

func TestConformance(t *testing.T) { adaptertest.Run(t, version.Harness("echo5")) }

func BenchmarkVerify(b *testing.B) { adaptertest.BenchVerify(b, version.Harness("echo5")) }

func TestEcho(t *testing.T) { echotest.Run(t, version) }

var version = echotest.Version[*echo.Context]{
	NewApp: func() echotest.App[*echo.Context] {
		hosts := map[string]*echo.Echo{}
		e := echo.NewVirtualHostHandler(hosts)
		e.Logger = slog.New(slog.DiscardHandler)
		return app{router[*echo.Echo]{e}, hosts}
	},
	Echo: func(c *echo.Context) http.Handler { return c.Echo() },
	StatusOf: func(err error) (int, string) {
		var failure *echo.HTTPError
		if !errors.As(err, &failure) {
			return 0, ""
		}
		return failure.Code, failure.Message
	},
	HTTPError:   func(status int, message string) error { return echo.NewHTTPError(status, message) },
	HandleError: func(c *echo.Context, err error) { c.Echo().HTTPErrorHandler(c, err) },
	Response: func(c *echo.Context) echokit.Response {
		r := response(c)
		return echokit.Response{ResponseWriter: r, Writer: &r.ResponseWriter, Status: &r.Status, Size: &r.Size, Committed: &r.Committed}
	},
	Override:    func() mw { return plain(middleware.MethodOverride()) },
	WrapHandler: func(h http.Handler) echotest.Handler[*echo.Context] { return echo.WrapHandler(h) },
	BodyReader:  bodyReader,
	Replay:      3,
	Fronts: map[string]echotest.Front[*echo.Context]{
		"logged by values": {New: requestLogger},
		"compressed":       {New: func(*testing.T) mw { return plain(middleware.Gzip()) }},
		"dumped": {New: func(t *testing.T) mw {
			return plain(middleware.BodyDump(func(_ *echo.Context, _, body []byte, _ error) {
				assert.Equal(t, echotest.ErrorBody, string(body))
			}))
		}, Restores: true},
	},

	New:             func(g *core.Guard) mw { return plain(echo5idem.New(g)) },
	Finish:          func() mw { return plain(echo5idem.Finish()) },
	Verify:          func(v *sign.Verifier) mw { return plain(echo5idem.Verify(v)) },
	Verified:        echo5idem.Verified,
	Run:             echo5idem.Run,
	UserFromContext: echo5idem.UserFromContext,
	Replayed:        echo5idem.Replayed,
	IssueToken:      func(g *core.Guard) echotest.Handler[*echo.Context] { return echo5idem.IssueToken(g) },
	NewToken:        echo5idem.NewToken,
	Pooled:          echo5idem.Pooled,
}

func requestLogger(t *testing.T) mw {
	return plain(middleware.RequestLoggerWithConfig(middleware.RequestLoggerConfig{
		LogStatus: true, LogResponseSize: true, HandleError: true,
		LogValuesFunc: func(_ *echo.Context, v middleware.RequestLoggerValues) error {
			assert.Equal(t, 422, v.Status)
			assert.EqualValues(t, len(echotest.ErrorBody), v.ResponseSize)
			return v.Error
		},
	}))
}

// bodyReader is f, as Echo has it.
func bodyReader(f adaptertest.Front, skip func(*echo.Context) bool) mw {
	switch f {
	case adaptertest.CSRF:
		return plain(middleware.CSRFWithConfig(middleware.CSRFConfig{Skipper: skip, TokenLookup: "form:csrf", CookieName: "_csrf"}))
	case adaptertest.KeyAuth:
		return plain(middleware.KeyAuthWithConfig(middleware.KeyAuthConfig{Skipper: skip, KeyLookup: "form:api-key",
			Validator: func(_ *echo.Context, key string, _ middleware.ExtractorSource) (bool, error) {
				return key == "secret", nil
			}}))
	case adaptertest.MethodOverride:
		return plain(middleware.MethodOverrideWithConfig(middleware.MethodOverrideConfig{Skipper: skip, Getter: middleware.MethodFromForm("_method")}))
	case adaptertest.PutterBack:
		return plain(middleware.BodyDumpWithConfig(middleware.BodyDumpConfig{Skipper: skip, Handler: func(*echo.Context, []byte, []byte, error) {}}))
	case adaptertest.Decompressor:
		return plain(middleware.DecompressWithConfig(middleware.DecompressConfig{Skipper: skip}))
	case adaptertest.Limiter:
		return plain(middleware.BodyLimitWithConfig(middleware.BodyLimitConfig{Skipper: skip, LimitBytes: 1000}))
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

// mw is middleware of echotest.
type mw = echotest.Middleware[*echo.Context]

func plain(m echo.MiddlewareFunc) mw {
	return func(next func(*echo.Context) error) func(*echo.Context) error { return m(next) }
}

func native(mws []mw) (natives []echo.MiddlewareFunc) {
	for _, m := range mws {
		natives = append(natives, func(next echo.HandlerFunc) echo.HandlerFunc { return m(next) })
	}
	return natives
}

// router is an Echo or a Group.
type router[R interface {
	Use(...echo.MiddlewareFunc)
	Add(string, string, echo.HandlerFunc, ...echo.MiddlewareFunc) echo.RouteInfo
}] struct{ echo R }

func (r router[R]) Use(mws ...mw) { r.echo.Use(native(mws)...) }

func (r router[R]) Add(method, path string, h func(*echo.Context) error, mws ...mw) {
	r.echo.Add(method, path, h, native(mws)...)
}

func (a app) RenderError(c *echo.Context, err error) { a.echo.HTTPErrorHandler(c, err) }

type app struct {
	router[*echo.Echo]
	hosts map[string]*echo.Echo
}

// ServeHTTP is that of a server whose handler the Echo is, unless there is another.
func (a app) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Context().Value(http.ServerContextKey) == nil {
		r = r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, &http.Server{Handler: a.echo}))
	}
	a.echo.ServeHTTP(w, r)
}

func (a app) Pre(mws ...mw) { a.echo.Pre(native(mws)...) }

func (a app) Group(prefix string, mws ...mw) echotest.Router[*echo.Context] {
	return router[*echo.Group]{a.echo.Group(prefix, native(mws)...)}
}

func (a app) Host(name string, mws ...mw) echotest.Router[*echo.Context] {
	a.hosts[name] = echo.New()
	a.hosts[name].Use(native(mws)...)
	return router[*echo.Echo]{a.hosts[name]}
}

func (a app) OnError(render func(*echo.Context, error)) {
	a.echo.HTTPErrorHandler = render
	if render == nil {
		a.echo.HTTPErrorHandler = echo.DefaultHTTPErrorHandler(false)
	}
}
