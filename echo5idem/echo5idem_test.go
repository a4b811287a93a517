package echo5idem_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/echo5idem"
	"github.com/idem-go/idem/internal/allocs"
	"github.com/idem-go/idem/internal/leak"
	"github.com/idem-go/idem/internal/race"
)

func TestMain(m *testing.M) {
	// A server that has refused a body waits before it closes the connection.
	leak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// out returns middleware that gets what comes out of the handler.
func out(f func(c *echo.Context, err error) error) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error { return f(c, next(c)) }
	}
}

func TestAllocations(t *testing.T) {
	race.Skip(t, "sync.Pool drops what it is given at random under the race detector")
	jsonType, jsonBody := []string{"application/json"}, []byte(`{"order_id":"ord-0001"}`)
	serve := func(mw ...echo.MiddlewareFunc) *echo.Echo {
		e := newEcho()
		e.POST("/orders", func(c *echo.Context) error {
			w := c.Response()
			w.Header()["Content-Type"] = jsonType
			w.WriteHeader(201)
			_, err := w.Write(jsonBody)
			return err
		}, mw...)
		return e
	}
	mw := echo5idem.New(core.MustNew(core.Config{User: core.UserFromHeader("X-User")}).MustGuard(core.Policy{}))
	w := allocs.Writer{}
	bare := allocs.PerRequest(w, serve(), true)
	require.LessOrEqual(t, allocs.PerRequest(w, serve(mw), true)-bare, 9.0, "first")
	require.LessOrEqual(t, allocs.PerRequest(w, serve(mw), false)-bare, 3.0, "replay")
	require.Equal(t, []string{"true"}, w.Header()[core.ReplayedHeader])
}

// What goes back into the pool holds nothing.
func TestThePoolHoldsNothing(t *testing.T) {
	e := newEcho()
	e.POST("/", func(c *echo.Context) error { return c.NoContent(201) }, echo5idem.New(guardOf(t, core.Policy{})))
	e.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader("body")))
	if x := echo5idem.Pooled(); !reflect.ValueOf(x).IsZero() {
		t.Errorf("an exchange in the pool has %+v", x)
	}
}

// An error is seen further out, and rendered once, also where Finish and a middleware with a writer of its own stand between.
func TestErrorsAreRenderedOnce(t *testing.T) {
	for name, front := range map[string][]echo.MiddlewareFunc{
		"reported":         nil,
		"finished":         {echo5idem.Finish()},
		"dumped":           {middleware.BodyDump(func(*echo.Context, []byte, []byte, error) {})},
		"logged by values": {requestLogger(t)},
	} {
		t.Run(name, func(t *testing.T) {
			failure, answers := errors.New("no"), 0
			var seen error
			e := newEcho()
			e.HTTPErrorHandler = func(c *echo.Context, err error) {
				if !response(c).Committed {
					answers++
					_ = c.JSON(http.StatusUnprocessableEntity, map[string]string{"error": err.Error()})
				}
			}
			e.Use(out(func(_ *echo.Context, err error) error { seen = err; return err }))
			e.Use(front...)
			e.POST("/orders", func(*echo.Context) error { return failure },
				echo5idem.New(guardOf(t, core.Policy{Record: core.Record{OnFailure: core.Keep}})))
			for i := range 2 {
				w := httptest.NewRecorder()
				e.ServeHTTP(w, httptest.NewRequest("POST", "/orders", nil))
				require.Equal(t, 422, w.Code)
				require.Equal(t, errorBody, w.Body.String())
				require.Equal(t, i == 1, w.Header().Get(core.ReplayedHeader) == "true")
				require.Equal(t, i == 0, errors.Is(seen, failure))
				require.Equal(t, 1, answers)
			}
		})
	}
}

const errorBody = "{\"error\":\"no\"}\n"

func requestLogger(t *testing.T) echo.MiddlewareFunc {
	return middleware.RequestLoggerWithConfig(middleware.RequestLoggerConfig{
		LogStatus: true, LogResponseSize: true, HandleError: true,
		LogValuesFunc: func(_ *echo.Context, v middleware.RequestLoggerValues) error {
			assert.Equal(t, 422, v.Status)
			assert.EqualValues(t, len(errorBody), v.ResponseSize)
			return v.Error
		},
	})
}
