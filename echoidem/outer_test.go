package echoidem_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/echoidem"
	"github.com/idem-go/idem/idemtest"
)

// What has gone out past the recorder, or before it was there, is delivered and not replayed:
// nobody knows all of it.
func TestAnswersThatWereNotSeenWhole(t *testing.T) {
	past := func(c echo.Context) error {
		c.Response().Writer = c.Get("writer").(http.ResponseWriter)
		return c.String(200, "past it")
	}
	for name, c := range map[string]struct {
		front   func(echo.Context) error
		handler echo.HandlerFunc
		body    string
	}{
		"begun in front": {
			func(c echo.Context) error { return c.String(200, "in front, ") },
			func(c echo.Context) error { return c.String(200, "behind") }, "in front, behind",
		},
		"past it":                {keepWriter, past, "past it"},
		"past it, with an error": {keepWriter, func(c echo.Context) error { _ = past(c); return errBroke }, "past it"},
	} {
		for _, finish := range []bool{false, true} {
			t.Run(fmt.Sprint(name, finish), func(t *testing.T) {
				ran := 0
				e := quiet()
				if finish {
					e.Use(echoidem.Finish())
				}
				e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
					return func(ctx echo.Context) error {
						if err := c.front(ctx); err != nil {
							return err
						}
						return next(ctx)
					}
				})
				e.POST("/orders", func(ctx echo.Context) error { ran++; return c.handler(ctx) },
					echoidem.New(guard(core.Policy{}).Guard))
				require.Equal(t, c.body, post(e, "/orders", "{}").Body.String())
				require.Contains(t, post(e, "/orders", "{}").Body.String(), `"code":"result_unavailable"`)
				require.Equal(t, 1, ran)
			})
		}
	}
}

func keepWriter(c echo.Context) error {
	c.Set("writer", c.Response().Writer)
	return nil
}

// A guard waits for Finish only if there is something left to render. What has been answered
// is finished: a panic further out does not undo it.
func TestAPanicBehindTheAnswerReleasesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		handler       echo.HandlerFunc
		status, again int
	}{
		"answered": {func(c echo.Context) error { return c.String(201, "made") }, 201, 201},
		"answered, and an error": {func(c echo.Context) error {
			_ = c.String(201, "made")
			return errBroke
		}, 201, 201},
		"hijacked": {func(c echo.Context) error {
			conn, _, err := c.Response().Hijack()
			if err != nil {
				return err
			}
			defer conn.Close()
			_, err = io.WriteString(conn, "HTTP/1.1 201 Created\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			return err
		}, 201, 409},
	} {
		t.Run(name, func(t *testing.T) {
			ran := 0
			g := guard(core.Policy{})
			e := quiet()
			e.Use(recovering, echoidem.Finish(), func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c echo.Context) error {
					_ = next(c)
					panic("further out")
				}
			})
			e.POST("/orders", func(ctx echo.Context) error { ran++; return c.handler(ctx) }, echoidem.New(g.Guard))
			s := server(t, e)
			require.Equal(t, c.status, over(t, s).status)
			g.finished(t)
			require.Equal(t, c.again, over(t, s).status)
			require.Equal(t, 1, ran)
		})
	}
}

// Echo gives each error of a handler to the HTTPErrorHandler, also when there is nothing left to
// render, and so does a guard. It then hands the error on, for middleware further out, and Echo gives it to
// the HTTPErrorHandler again, as it does behind its own RequestLogger: the response is committed by
// then. Once at most there is something to render; and a replay has no error.
func TestTheErrorHandlerRendersEachErrorOnce(t *testing.T) {
	for _, finish := range []bool{false, true} {
		for _, answered := range []bool{false, true} {
			t.Run(fmt.Sprint(finish, answered), func(t *testing.T) {
				var seen error
				open := 0
				e := quiet()
				e.HTTPErrorHandler = func(err error, c echo.Context) {
					seen = err
					if !c.Response().Committed {
						open++
						_ = c.String(422, "rendered")
					}
				}
				if finish {
					e.Use(echoidem.Finish())
				}
				want, renders := "rendered", 1
				if answered {
					want, renders = "made", 0
				}
				e.POST("/orders", func(c echo.Context) error {
					if answered {
						_ = c.String(422, "made")
					}
					return errBroke
				}, echoidem.New(guard(core.Policy{Key: core.Func(func(*core.Request) (string, error) { return "k", nil })}).Guard))
				require.Equal(t, want, post(e, "/orders", "{}").Body.String())
				require.Equal(t, errBroke, seen)
				require.Equal(t, renders, open)
				seen = nil
				require.Equal(t, want, post(e, "/orders", "{}").Body.String())
				require.NoError(t, seen)
				require.Equal(t, renders, open)
			})
		}
	}
}

// Whoever stands in front has its request back, and finds in it what net/http cleans up after.
func TestTheRequestIsGivenBack(t *testing.T) {
	for _, finish := range []bool{false, true} {
		for _, fails := range []bool{false, true} {
			for _, panics := range []bool{false, true} {
				t.Run(fmt.Sprint(finish, fails, panics), func(t *testing.T) {
					engine := idemtest.New(t, core.Config{User: core.SharedByAllCallers()})
					if fails {
						engine.Fail(idemtest.Acquire)
					}
					var before, after *http.Request
					e := quiet()
					e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
						return func(c echo.Context) error {
							before = c.Request()
							defer func() {
								_ = recover()
								after = c.Request()
							}()
							return next(c)
						}
					})
					if finish {
						e.Use(echoidem.Finish())
					}
					e.POST("/orders", func(c echo.Context) error {
						require.Equal(t, "1", c.FormValue("a"))
						if panics {
							panic("oops")
						}
						return nil
					}, echoidem.New(engine.MustGuard(core.Policy{FailOpen: true})))
					r := httptest.NewRequest("POST", "/orders", strings.NewReader("--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--b--\r\n"))
					r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
					e.ServeHTTP(httptest.NewRecorder(), r)
					require.Same(t, before, after)
					require.NotNil(t, after.MultipartForm)
				})
			}
		}
	}
}

// What has gone out stays gone after a panic: whoever recovers must not begin a second answer behind it.
func TestAPanicAfterSomethingWasSent(t *testing.T) {
	for name, c := range map[string]struct{ front, handler func(echo.Context) }{
		"in front": {func(c echo.Context) { _ = c.String(200, "begun") }, func(c echo.Context) { _ = c.String(200, " and gone on") }},
		"streamed": {func(echo.Context) {}, func(c echo.Context) {
			_ = c.String(200, "begun")
			c.Response().Flush()
		}},
		"past it": {func(c echo.Context) { _ = keepWriter(c) }, func(c echo.Context) {
			c.Response().Writer = c.Get("writer").(http.ResponseWriter)
			_ = c.String(200, "begun")
		}},
	} {
		for _, finish := range []bool{false, true} {
			t.Run(fmt.Sprint(name, finish), func(t *testing.T) {
				e := quiet()
				e.Use(recovering)
				if finish {
					e.Use(echoidem.Finish())
				}
				e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
					return func(ctx echo.Context) error {
						c.front(ctx)
						return next(ctx)
					}
				})
				e.POST("/orders", func(ctx echo.Context) error { c.handler(ctx); panic("oops") }, echoidem.New(guard(core.Policy{}).Guard))
				require.Equal(t, "begun", post(e, "/orders", "{}").Body.String())
			})
		}
	}
}

// A refusal in the place of the handler's own answer is the only one that access logs count.
func TestTheSizeOfARefusal(t *testing.T) {
	e := quiet()
	var size int64
	var status int
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			err := next(c)
			size, status = c.Response().Size, c.Response().Status
			return err
		}
	})
	e.POST("/orders", func(c echo.Context) error {
		_ = c.String(500, "the bank refuses")
		return core.NewRefusal(core.CodeInProgress, nil)
	}, echoidem.New(guard(core.Policy{}).Guard))
	w := post(e, "/orders", "{}")
	require.Equal(t, 409, w.Code)
	require.NotContains(t, w.Body.String(), "bank")
	require.Equal(t, 409, status)
	require.EqualValues(t, w.Body.Len(), size)
}

// Where no guard is, Finish leaves errors to whoever stands in front; and where the HTTPErrorHandler has left an error alone, so does
// a guard.
func TestErrorsThatAreLeftToOthers(t *testing.T) {
	e := quiet()
	e.HTTPErrorHandler = func(error, echo.Context) {}
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if err := next(c); err != nil && !c.Response().Committed {
				return c.String(422, "in front")
			}
			return nil
		}
	})
	finished := e.Group("/finished", echoidem.Finish())
	fails := func(echo.Context) error { return errBroke }
	guarded := echoidem.New(guard(core.Policy{}).Guard)
	e.POST("/orders", fails, guarded)
	finished.POST("/orders", fails, guarded)
	finished.POST("/unguarded", fails)
	for _, target := range []string{"/orders", "/finished/orders", "/finished/unguarded"} {
		require.Equal(t, "in front", post(e, target, "{}").Body.String(), target)
	}
	e.HTTPErrorHandler = e.DefaultHTTPErrorHandler
	require.Equal(t, "in front", post(e, "/finished/unguarded", "{}").Body.String())
}

// Only what says that the body is too large is 413.
func TestAnErrorOfABodyIsNotAlwaysTooLarge(t *testing.T) {
	e := quiet()
	var status int
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			c.Request().Body = io.NopCloser(failingReader{echo.NewHTTPError(status)})
			return next(c)
		}
	})
	e.POST("/orders", func(echo.Context) error { return nil }, echoidem.New(guard(core.Policy{}).Guard))
	for _, status = range []int{400, 413} {
		require.Equal(t, status, post(e, "/orders", "{}").Code)
	}
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

// A middleware that renders a handler's error, and then panics, has answered nothing: whoever recovers does.
func TestAPanicAfterRendering(t *testing.T) {
	e := quiet()
	e.Use(recovering, echoidem.Finish(), func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if next(c) != nil {
				_ = c.String(422, "rendered")
				panic("oops")
			}
			return nil
		}
	})
	e.POST("/orders", func(echo.Context) error { return errBroke }, echoidem.New(guard(core.Policy{}).Guard))
	w := post(e, "/orders", "{}")
	require.Equal(t, 500, w.Code)
	require.Contains(t, w.Body.String(), "Internal Server Error")
}

// Behind what has been sent in front of the guard no refusal is written.
func TestNoRefusalBehindAnAnswer(t *testing.T) {
	for name, handler := range map[string]echo.HandlerFunc{
		"refused":  func(echo.Context) error { return core.NewRefusal(core.CodeInProgress, nil) },
		"given up": func(c echo.Context) error { <-c.Request().Context().Done(); return nil },
	} {
		for _, finish := range []bool{false, true} {
			t.Run(fmt.Sprint(name, finish), func(t *testing.T) {
				e := quiet()
				if finish {
					e.Use(echoidem.Finish())
				}
				e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
					return func(c echo.Context) error {
						ctx, cancel := context.WithTimeout(c.Request().Context(), 10*time.Millisecond)
						defer cancel()
						c.SetRequest(c.Request().WithContext(ctx))
						_ = c.String(200, "in front")
						return next(c)
					}
				})
				e.POST("/orders", handler, echoidem.New(guard(core.Policy{}).Guard))
				require.Equal(t, "in front", post(e, "/orders", "{}").Body.String())
			})
		}
	}
}

// The status of an answer that was dropped after a panic is not that of the response.
func TestTheStatusAfterAPanic(t *testing.T) {
	e := quiet()
	status := 0
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) (err error) {
			defer func() {
				_ = recover()
				status = c.Response().Status
			}()
			return next(c)
		}
	})
	e.POST("/orders", func(c echo.Context) error {
		_ = c.String(422, "made")
		panic("oops")
	}, echoidem.New(guard(core.Policy{}).Guard))
	require.Equal(t, 200, post(e, "/orders", "{}").Code)
	require.Equal(t, 200, status)
}
