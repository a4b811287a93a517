package echoidem_test

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/echoidem"
)

// careless renders errors without looking at Committed.
func careless(err error, c echo.Context) {
	_ = c.JSON(http.StatusUnprocessableEntity, map[string]string{"error": err.Error()})
}

// report keeps what comes out, as middleware for Sentry does.
func report(into *[]error) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			err := next(c)
			*into = append(*into, err)
			return err
		}
	}
}

// Middleware further out sees the handler's error, though the guard has rendered it; and what it
// then does with it, as Echo's own Logger does, is not a second answer.
func TestErrorsAreSeenFurtherOutAndRenderedOnce(t *testing.T) {
	var log bytes.Buffer
	for name, mount := range map[string]func(e *echo.Echo, reported *[]error){
		"reported": func(e *echo.Echo, reported *[]error) { e.Use(report(reported)) },
		"logged": func(e *echo.Echo, reported *[]error) {
			e.Use(middleware.LoggerWithConfig(middleware.LoggerConfig{Format: "${status} ${error} ${bytes_out}\n", Output: &log}), report(reported))
		},
		"logged by values": func(e *echo.Echo, reported *[]error) {
			e.Use(report(reported), middleware.RequestLoggerWithConfig(middleware.RequestLoggerConfig{
				LogStatus: true, LogError: true, LogResponseSize: true, HandleError: true,
				LogValuesFunc: func(_ echo.Context, v middleware.RequestLoggerValues) error {
					if v.Status != 422 || v.ResponseSize != 15 {
						return errors.New("another answer")
					}
					return v.Error
				},
			}))
		},
		"compressed": func(e *echo.Echo, reported *[]error) { e.Use(report(reported), middleware.Gzip()) },
		"dumped": func(e *echo.Echo, reported *[]error) {
			e.Use(report(reported), middleware.BodyDump(func(_ echo.Context, _, body []byte) {
				if string(body) != "{\"error\":\"no\"}\n" {
					log.WriteString("dumped: " + string(body))
				}
			}))
		},
		"finished": func(e *echo.Echo, reported *[]error) { e.Use(report(reported), echoidem.Finish(), report(reported)) },
		"finished around a logger that renders": func(e *echo.Echo, reported *[]error) {
			e.Use(report(reported), echoidem.Finish(), middleware.RequestLoggerWithConfig(middleware.RequestLoggerConfig{
				HandleError: true, LogValuesFunc: func(echo.Context, middleware.RequestLoggerValues) error { return nil },
			}))
		},
		"guarded twice": func(e *echo.Echo, reported *[]error) {
			e.Use(report(reported), echoidem.New(guard(core.Policy{Key: core.Header(core.Required)}).Guard))
		},
	} {
		t.Run(name, func(t *testing.T) {
			log.Reset()
			var reported []error
			failure := errors.New("no")
			rendered := 0
			e := quiet()
			e.HTTPErrorHandler = func(err error, c echo.Context) { rendered++; careless(err, c) }
			mount(e, &reported)
			e.POST("/orders", func(echo.Context) error { return failure }, echoidem.New(guard(core.Policy{OnFailure: core.Keep}).Guard))
			ask := func() *httptest.ResponseRecorder {
				r := httptest.NewRequest("POST", "/orders", nil)
				r.Header.Set("X-User", "alice")
				r.Header.Set("Idempotency-Key", "k")
				w := httptest.NewRecorder()
				e.ServeHTTP(w, r)
				return w
			}
			first := ask()
			require.Equal(t, 422, first.Code)
			require.Equal(t, "{\"error\":\"no\"}\n", first.Body.String())
			require.NotEmpty(t, reported)
			require.ErrorIs(t, reported[0], failure)
			require.ErrorIs(t, reported[len(reported)-1], failure)
			require.NotContains(t, log.String(), "dumped")
			if name == "reported" || name == "guarded twice" {
				require.Equal(t, 2, rendered, "by the guard, and by Echo")
			}
			if name == "logged" {
				require.Equal(t, "422 no 15\n", log.String())
			}

			reported = nil
			again := ask()
			require.True(t, replayed(again))
			require.Equal(t, first.Body.String(), again.Body.String())
			require.NotContains(t, reported, failure)
		})
	}
}

// What the HTTPErrorHandler leaves alone is left to others, and nobody knows of it here.
func TestAnErrorThatNobodyRendersIsAFailure(t *testing.T) {
	ran := 0
	w := guard(core.Policy{})
	e := quiet()
	e.HTTPErrorHandler = func(error, echo.Context) {}
	e.POST("/orders", func(echo.Context) error { ran++; return errors.New("gone") }, echoidem.New(w.Guard))
	post(e, "/orders", "{}")
	post(e, "/orders", "{}")
	require.Equal(t, 2, ran)
	require.ErrorIs(t, w.last().Err, core.ErrUnrendered)
}

// Two hosts of one Echo, or two that a mux further out chooses by, are two routes.
func TestHostsDoNotShareKeys(t *testing.T) {
	ran := 0
	w := guard(core.ClientKey())
	mount := func(e interface {
		POST(string, echo.HandlerFunc, ...echo.MiddlewareFunc) *echo.Route
	}) {
		e.POST("/orders/:id", func(c echo.Context) error { ran++; return c.String(201, c.Request().Host) }, echoidem.New(w.Guard))
	}
	e, behind := quiet(), quiet()
	mount(e)
	mount(e.Host("a.test"))
	mount(e.Host("b.test"))
	mount(behind)
	mux := http.NewServeMux()
	mux.Handle("c.test/", behind)
	mux.Handle("d.test/", behind)
	mux.Handle("/", e)
	for i, c := range []struct{ host, route string }{
		{"a.test", "POST a.test/orders/:id"}, {"b.test", "POST b.test/orders/:id"}, {"c.test", "POST c.test/orders/:id"},
		{"d.test", "POST d.test/orders/:id"}, {"other.test", "POST /orders/:id"},
	} {
		for _, again := range []bool{false, true} {
			r := httptest.NewRequest("POST", "/orders/7", nil)
			r.Host = c.host
			r.Header.Set("X-User", "alice")
			r.Header.Set("Idempotency-Key", "k")
			answer := httptest.NewRecorder()
			mux.ServeHTTP(answer, r)
			require.Equal(t, c.host, answer.Body.String())
			require.Equal(t, again, replayed(answer), c.host)
			require.Equal(t, c.route, w.last().Route)
		}
		require.Equal(t, i+1, ran)
	}
}

// Echo's Timeout races with itself, and is not to be used; but the claim stands while its
// handler runs on.
func TestNothingRunsBesideAHandlerThatRunsOn(t *testing.T) {
	if raceEnabled {
		t.Skip("Echo's Timeout is a race")
	}
	entered, leave := make(chan struct{}, 9), make(chan struct{})
	left := make(chan struct{})
	e := quiet()
	timeout := middleware.TimeoutWithConfig(middleware.TimeoutConfig{Timeout: time.Millisecond})
	e.POST("/orders", func(echo.Context) error {
		entered <- struct{}{}
		<-leave
		close(left)
		return nil
	}, echoidem.New(guard(core.Policy{}).Guard), timeout)
	require.Equal(t, 503, post(e, "/orders", "{}").Code)
	<-entered
	require.Contains(t, post(e, "/orders", "{}").Body.String(), "in_progress")
	close(leave)
	<-left
}
