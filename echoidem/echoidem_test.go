package echoidem_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/idem-go/idem/adapterkit/echokit"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/adaptertest"
	"github.com/idem-go/idem/echoidem"
	"github.com/idem-go/idem/internal/echotest"
	"github.com/idem-go/idem/internal/leak"
	"github.com/idem-go/idem/internal/race"
	"github.com/idem-go/idem/sign"
)

func TestMain(m *testing.M) {
	// A server that has refused a body waits before it closes the connection.
	leak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

func TestConformance(t *testing.T) { adaptertest.Run(t, version.Harness("echo")) }

func BenchmarkVerify(b *testing.B) { adaptertest.BenchVerify(b, version.Harness("echo")) }

func TestEcho(t *testing.T) { echotest.Run(t, version) }

var version = echotest.Version[echo.Context]{
	NewApp: func() echotest.App[echo.Context] {
		e := echo.New()
		e.Logger.SetOutput(io.Discard)
		return app{router[*echo.Echo]{e}}
	},
	Echo: func(c echo.Context) http.Handler { return c.Echo() },
	StatusOf: func(err error) (int, string) {
		var failure *echo.HTTPError
		if !errors.As(err, &failure) {
			return 0, ""
		}
		return failure.Code, fmt.Sprint(failure.Message)
	},
	HTTPError:   func(status int, message string) error { return echo.NewHTTPError(status, message) },
	HandleError: func(c echo.Context, err error) { c.Error(err) },
	Response: func(c echo.Context) echokit.Response {
		r := c.Response()
		return echokit.Response{ResponseWriter: r, Writer: &r.Writer, Status: &r.Status, Size: &r.Size, Committed: &r.Committed}
	},
	Override:    func() mw { return plain(middleware.MethodOverride()) },
	WrapHandler: func(h http.Handler) echotest.Handler[echo.Context] { return echo.WrapHandler(h) },
	BodyReader:  bodyReader,
	Replay:      4,
	Fronts: map[string]echotest.Front[echo.Context]{
		"logged":           {New: logger},
		"logged by values": {New: requestLogger},
		"compressed":       {New: func(*testing.T) mw { return plain(middleware.Gzip()) }},
		"dumped": {New: func(t *testing.T) mw {
			return plain(middleware.BodyDump(func(_ echo.Context, _, body []byte) {
				assert.Equal(t, echotest.ErrorBody, string(body))
			}))
		}},
	},

	New:             func(g *core.Guard) mw { return plain(echoidem.New(g)) },
	Finish:          func() mw { return plain(echoidem.Finish()) },
	Verify:          func(v *sign.Verifier) mw { return plain(echoidem.Verify(v)) },
	Verified:        echoidem.Verified,
	Run:             echoidem.Run,
	UserFromContext: echoidem.UserFromContext,
	Replayed:        echoidem.Replayed,
	IssueToken:      func(g *core.Guard) echotest.Handler[echo.Context] { return echoidem.IssueToken(g) },
	NewToken:        echoidem.NewToken,
	Pooled:          echoidem.Pooled,
}

func logger(t *testing.T) mw {
	var log strings.Builder
	//lint:ignore SA1019 what is deployed uses it
	logs := plain(middleware.LoggerWithConfig(middleware.LoggerConfig{Format: "${status} ${error} ${bytes_out}\n", Output: &log}))
	return func(next func(echo.Context) error) func(echo.Context) error {
		return func(c echo.Context) error {
			first := log.Len() == 0
			var err error // which the logger renders and keeps
			logged := logs(func(c echo.Context) error { err = next(c); return err })(c)
			if first {
				assert.Equal(t, "422 no 15\n", log.String())
			}
			return cmp.Or(logged, err)
		}
	}
}

func requestLogger(t *testing.T) mw {
	return plain(middleware.RequestLoggerWithConfig(middleware.RequestLoggerConfig{
		LogStatus: true, LogError: true, LogResponseSize: true, HandleError: true,
		LogValuesFunc: func(_ echo.Context, v middleware.RequestLoggerValues) error {
			assert.Equal(t, 422, v.Status)
			assert.EqualValues(t, len(echotest.ErrorBody), v.ResponseSize)
			return v.Error
		},
	}))
}

// bodyReader is f, as Echo has it.
func bodyReader(f adaptertest.Front, skip func(echo.Context) bool) mw {
	switch f {
	case adaptertest.CSRF:
		return plain(middleware.CSRFWithConfig(middleware.CSRFConfig{Skipper: skip, TokenLookup: "form:csrf", CookieName: "_csrf"}))
	case adaptertest.KeyAuth:
		return plain(middleware.KeyAuthWithConfig(middleware.KeyAuthConfig{Skipper: skip, KeyLookup: "form:api-key",
			Validator: func(key string, _ echo.Context) (bool, error) { return key == "secret", nil }}))
	case adaptertest.MethodOverride:
		return plain(middleware.MethodOverrideWithConfig(middleware.MethodOverrideConfig{Skipper: skip, Getter: middleware.MethodFromForm("_method")}))
	case adaptertest.PutterBack:
		return plain(middleware.BodyDumpWithConfig(middleware.BodyDumpConfig{Skipper: skip, Handler: func(echo.Context, []byte, []byte) {}}))
	case adaptertest.Decompressor:
		return plain(middleware.DecompressWithConfig(middleware.DecompressConfig{Skipper: skip}))
	case adaptertest.Limiter:
		return plain(middleware.BodyLimitWithConfig(middleware.BodyLimitConfig{Skipper: skip, Limit: "1000B"}))
	}
	return nil
}

// mw is middleware of echotest.
type mw = echotest.Middleware[echo.Context]

func plain(m echo.MiddlewareFunc) mw {
	return func(next func(echo.Context) error) func(echo.Context) error { return m(next) }
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
	Add(string, string, echo.HandlerFunc, ...echo.MiddlewareFunc) *echo.Route
}] struct{ echo R }

func (r router[R]) Use(mws ...mw) { r.echo.Use(native(mws)...) }

func (r router[R]) Add(method, path string, h func(echo.Context) error, mws ...mw) {
	r.echo.Add(method, path, h, native(mws)...)
}

func (a app) RenderError(c echo.Context, err error) { a.echo.HTTPErrorHandler(err, c) }

type app struct{ router[*echo.Echo] }

func (a app) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.echo.ServeHTTP(w, r) }

func (a app) Pre(mws ...mw) { a.echo.Pre(native(mws)...) }

func (a app) Group(prefix string, mws ...mw) echotest.Router[echo.Context] {
	return router[*echo.Group]{a.echo.Group(prefix, native(mws)...)}
}

func (a app) Host(name string, mws ...mw) echotest.Router[echo.Context] {
	return router[*echo.Group]{a.echo.Host(name, native(mws)...)}
}

func (a app) OnError(render func(echo.Context, error)) {
	a.echo.HTTPErrorHandler = func(err error, c echo.Context) { render(c, err) }
	if render == nil {
		a.echo.HTTPErrorHandler = a.echo.DefaultHTTPErrorHandler
	}
}

// Echo's Timeout races with itself, and is not to be used; but the claim stands while its
// handler runs on.
func TestNothingRunsBesideAHandlerThatRunsOn(t *testing.T) {
	if race.Enabled {
		t.Skip("Echo's Timeout is a race")
	}
	entered, leave := make(chan struct{}, 9), make(chan struct{})
	left := make(chan struct{})
	e := echo.New()
	e.Logger.SetOutput(io.Discard)
	//lint:ignore SA1019 what is deployed uses it
	timeout := middleware.TimeoutWithConfig(middleware.TimeoutConfig{Timeout: time.Millisecond})
	guard := core.MustNew(core.Config{User: core.UserFromHeader("X-User")}).MustGuard(core.Policy{})
	e.POST("/orders", func(echo.Context) error {
		entered <- struct{}{}
		<-leave
		close(left)
		return nil
	}, echoidem.New(guard), timeout)
	post := func() *httptest.ResponseRecorder {
		r, w := httptest.NewRequest("POST", "/orders", strings.NewReader("{}")), httptest.NewRecorder()
		r.Header.Set("X-User", "alice")
		e.ServeHTTP(w, r)
		return w
	}
	require.Equal(t, 503, post().Code)
	<-entered
	require.Contains(t, post().Body.String(), "in_progress")
	close(leave)
	<-left
}

// An Echo within another one belongs to a host only if the server's Echo has routed the request by it.
func TestAnEchoWithinAnEcho(t *testing.T) {
	route := ""
	guard := core.MustNew(core.Config{User: core.SharedByAllCallers()}).MustGuard(core.Policy{Key: core.Func(func(r *adapter.Request) (string, error) {
		route = r.Route
		return "k", nil
	})})
	inner, outer := echo.New(), echo.New()
	inner.POST("/orders", func(echo.Context) error { return nil }, echoidem.New(guard))
	outer.Any("/*", echo.WrapHandler(inner))
	outer.Host("a.test").Any("/*", echo.WrapHandler(inner))
	for _, c := range []struct {
		server     *echo.Echo
		host, want string
	}{
		{inner, "a.test", "/orders"},
		{outer, "b.test", "/orders"},
		{outer, "a.test", "a.test/orders"},
	} {
		r := httptest.NewRequest("POST", "http://"+c.host+"/orders", nil)
		r = r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, &http.Server{Handler: c.server}))
		c.server.ServeHTTP(httptest.NewRecorder(), r)
		require.Equal(t, c.want, route)
	}
}
