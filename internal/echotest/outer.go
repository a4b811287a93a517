package echotest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/idemtest"
)

// What has gone out past the recorder, or before it was there, is delivered and not replayed:
// nobody knows all of it.
func (s suite[C]) testAnswersThatWereNotSeenWhole(t *testing.T) {
	past := func(c C) error {
		*s.response(c).Writer = c.Get("writer").(http.ResponseWriter)
		return c.String(200, "past it")
	}
	for name, c := range map[string]struct {
		front   func(C) error
		handler Handler[C]
		body    string
	}{
		"begun in front": {
			func(c C) error { return c.String(200, "in front, ") },
			func(c C) error { return c.String(200, "behind") }, "in front, behind",
		},
		"past it":                {s.keepWriter, past, "past it"},
		"past it, with an error": {s.keepWriter, func(c C) error { _ = past(c); return errBroke }, "past it"},
	} {
		for _, finish := range []bool{false, true} {
			t.Run(fmt.Sprint(name, finish), func(t *testing.T) {
				ran := 0
				e := s.NewApp()
				if finish {
					e.Use(s.Finish())
				}
				e.Use(func(next Handler[C]) Handler[C] {
					return func(ctx C) error {
						if err := c.front(ctx); err != nil {
							return err
						}
						return next(ctx)
					}
				})
				e.Add("POST", "/orders", func(ctx C) error { ran++; return c.handler(ctx) },
					s.New(guard(core.Policy{}).Guard))
				require.Equal(t, c.body, post(e, "/orders", "{}").Body.String())
				require.Contains(t, post(e, "/orders", "{}").Body.String(), `"code":"result_unavailable"`)
				require.Equal(t, 1, ran)
			})
		}
	}
}

func (s suite[C]) keepWriter(c C) error {
	c.Set("writer", *s.response(c).Writer)
	return nil
}

// A guard waits for Finish only if there is something left to render. What has been answered
// is finished: a panic further out does not undo it.
func (s suite[C]) testAPanicBehindTheAnswerReleasesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		handler       Handler[C]
		status, again int
	}{
		"answered": {func(c C) error { return c.String(201, "made") }, 201, 201},
		"answered, and an error": {func(c C) error {
			_ = c.String(201, "made")
			return errBroke
		}, 201, 201},
		"hijacked": {func(c C) error {
			conn, _, err := s.response(c).Hijack()
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
			e := s.NewApp()
			e.Use(s.recovering, s.Finish(), func(next Handler[C]) Handler[C] {
				return func(c C) error {
					_ = next(c)
					panic("further out")
				}
			})
			e.Add("POST", "/orders", func(ctx C) error { ran++; return c.handler(ctx) }, s.New(g.Guard))
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
func (s suite[C]) testTheErrorHandlerRendersEachErrorOnce(t *testing.T) {
	for _, finish := range []bool{false, true} {
		for _, answered := range []bool{false, true} {
			t.Run(fmt.Sprint(finish, answered), func(t *testing.T) {
				var seen error
				open := 0
				e := s.NewApp()
				e.OnError(func(c C, err error) {
					seen = err
					if !*s.response(c).Committed {
						open++
						_ = c.String(422, "rendered")
					}
				})
				if finish {
					e.Use(s.Finish())
				}
				want, renders := "rendered", 1
				if answered {
					want, renders = "made", 0
				}
				e.Add("POST", "/orders", func(c C) error {
					if answered {
						_ = c.String(422, "made")
					}
					return errBroke
				}, s.New(guard(core.Policy{Key: core.Func(func(*adapter.Request) (string, error) { return "k", nil })}).Guard))
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
func (s suite[C]) testTheRequestIsGivenBack(t *testing.T) {
	for _, finish := range []bool{false, true} {
		for _, fails := range []bool{false, true} {
			for _, panics := range []bool{false, true} {
				t.Run(fmt.Sprint(finish, fails, panics), func(t *testing.T) {
					engine := idemtest.New(t, core.Config{User: core.SharedByAllCallers()})
					if fails {
						engine.Fail(idemtest.Acquire)
					}
					var before, after *http.Request
					e := s.NewApp()
					e.Use(func(next Handler[C]) Handler[C] {
						return func(c C) error {
							before = c.Request()
							defer func() {
								_ = recover()
								after = c.Request()
							}()
							return next(c)
						}
					})
					if finish {
						e.Use(s.Finish())
					}
					e.Add("POST", "/orders", func(c C) error {
						require.Equal(t, "1", c.FormValue("a"))
						if panics {
							panic("oops")
						}
						return nil
					}, s.New(engine.MustGuard(core.Policy{FailOpen: true})))
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
func (s suite[C]) testAPanicAfterSomethingWasSent(t *testing.T) {
	for name, c := range map[string]struct{ front, handler func(C) }{
		"in front": {func(c C) { _ = c.String(200, "begun") }, func(c C) { _ = c.String(200, " and gone on") }},
		"streamed": {func(C) {}, func(c C) {
			_ = c.String(200, "begun")
			s.response(c).Flush()
		}},
		"past it": {func(c C) { _ = s.keepWriter(c) }, func(c C) {
			*s.response(c).Writer = c.Get("writer").(http.ResponseWriter)
			_ = c.String(200, "begun")
		}},
	} {
		for _, finish := range []bool{false, true} {
			t.Run(fmt.Sprint(name, finish), func(t *testing.T) {
				e := s.NewApp()
				e.Use(s.recovering)
				if finish {
					e.Use(s.Finish())
				}
				e.Use(func(next Handler[C]) Handler[C] {
					return func(ctx C) error {
						c.front(ctx)
						return next(ctx)
					}
				})
				e.Add("POST", "/orders", func(ctx C) error { c.handler(ctx); panic("oops") }, s.New(guard(core.Policy{}).Guard))
				require.Equal(t, "begun", post(e, "/orders", "{}").Body.String())
			})
		}
	}
}

// A refusal in the place of the handler's own answer is the only one that access logs count.
func (s suite[C]) testTheSizeOfARefusal(t *testing.T) {
	e := s.NewApp()
	var size int64
	var status int
	e.Use(func(next Handler[C]) Handler[C] {
		return func(c C) error {
			err := next(c)
			size, status = *s.response(c).Size, *s.response(c).Status
			return err
		}
	})
	e.Add("POST", "/orders", func(c C) error {
		_ = c.String(500, "the bank refuses")
		return core.NewRefusal(codes.InProgress, nil)
	}, s.New(guard(core.Policy{}).Guard))
	w := post(e, "/orders", "{}")
	require.Equal(t, 409, w.Code)
	require.NotContains(t, w.Body.String(), "bank")
	require.Equal(t, 409, status)
	require.EqualValues(t, w.Body.Len(), size)
}

// Where no guard is, Finish leaves errors to whoever stands in front; and where the HTTPErrorHandler has left an error alone, so does
// a guard.
func (s suite[C]) testErrorsThatAreLeftToOthers(t *testing.T) {
	e := s.NewApp()
	e.OnError(func(C, error) {})
	e.Use(func(next Handler[C]) Handler[C] {
		return func(c C) error {
			if err := next(c); err != nil && !*s.response(c).Committed {
				return c.String(422, "in front")
			}
			return nil
		}
	})
	finished := e.Group("/finished", s.Finish())
	fails := func(C) error { return errBroke }
	guarded := s.New(guard(core.Policy{}).Guard)
	e.Add("POST", "/orders", fails, guarded)
	finished.Add("POST", "/orders", fails, guarded)
	finished.Add("POST", "/unguarded", fails)
	for _, target := range []string{"/orders", "/finished/orders", "/finished/unguarded"} {
		require.Equal(t, "in front", post(e, target, "{}").Body.String(), target)
	}
	e.OnError(nil)
	require.Equal(t, "in front", post(e, "/finished/unguarded", "{}").Body.String())
}

// Only what says that the body is too large is 413.
func (s suite[C]) testAnErrorOfABodyIsNotAlwaysTooLarge(t *testing.T) {
	e := s.NewApp()
	var status int
	e.Use(func(next Handler[C]) Handler[C] {
		return func(c C) error {
			c.Request().Body = io.NopCloser(failingReader{s.HTTPError(status, http.StatusText(status))})
			return next(c)
		}
	})
	e.Add("POST", "/orders", func(C) error { return nil }, s.New(guard(core.Policy{}).Guard))
	for _, status = range []int{400, 413} {
		require.Equal(t, status, post(e, "/orders", "{}").Code)
	}
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

// A middleware that renders a handler's error, and then panics, has answered nothing: whoever recovers does.
func (s suite[C]) testAPanicAfterRendering(t *testing.T) {
	e := s.NewApp()
	e.Use(s.recovering, s.Finish(), func(next Handler[C]) Handler[C] {
		return func(c C) error {
			if next(c) != nil {
				_ = c.String(422, "rendered")
				panic("oops")
			}
			return nil
		}
	})
	e.Add("POST", "/orders", func(C) error { return errBroke }, s.New(guard(core.Policy{}).Guard))
	w := post(e, "/orders", "{}")
	require.Equal(t, 500, w.Code)
	require.Contains(t, w.Body.String(), "Internal Server Error")
}

// Behind what has been sent in front of the guard no refusal is written.
func (s suite[C]) testNoRefusalBehindAnAnswer(t *testing.T) {
	for name, handler := range map[string]Handler[C]{
		"refused":  func(C) error { return core.NewRefusal(codes.InProgress, nil) },
		"given up": func(c C) error { <-c.Request().Context().Done(); return nil },
	} {
		for _, finish := range []bool{false, true} {
			t.Run(fmt.Sprint(name, finish), func(t *testing.T) {
				e := s.NewApp()
				if finish {
					e.Use(s.Finish())
				}
				e.Use(func(next Handler[C]) Handler[C] {
					return func(c C) error {
						ctx, cancel := context.WithTimeout(c.Request().Context(), 10*time.Millisecond)
						defer cancel()
						c.SetRequest(c.Request().WithContext(ctx))
						_ = c.String(200, "in front")
						return next(c)
					}
				})
				e.Add("POST", "/orders", handler, s.New(guard(core.Policy{}).Guard))
				require.Equal(t, "in front", post(e, "/orders", "{}").Body.String())
			})
		}
	}
}

// The status of an answer that was dropped after a panic is not that of the response.
func (s suite[C]) testTheStatusAfterAPanic(t *testing.T) {
	e := s.NewApp()
	status := 0
	e.Use(func(next Handler[C]) Handler[C] {
		return func(c C) (err error) {
			defer func() {
				_ = recover()
				status = *s.response(c).Status
			}()
			return next(c)
		}
	})
	e.Add("POST", "/orders", func(c C) error {
		_ = c.String(422, "made")
		panic("oops")
	}, s.New(guard(core.Policy{}).Guard))
	require.Equal(t, 200, post(e, "/orders", "{}").Code)
	require.Equal(t, 200, status)
}

// What the HTTPErrorHandler leaves alone is left to others, and nobody knows of it here.
func (s suite[C]) testAnErrorThatNobodyRendersIsAFailure(t *testing.T) {
	ran := 0
	w := guard(core.Policy{})
	e := s.NewApp()
	e.OnError(func(C, error) {})
	e.Add("POST", "/orders", func(C) error { ran++; return errors.New("gone") }, s.New(w.Guard))
	post(e, "/orders", "{}")
	post(e, "/orders", "{}")
	require.Equal(t, 2, ran)
	require.ErrorIs(t, w.last().Err, adapter.ErrUnrendered)
}

// Two hosts of one Echo, or two that a mux further out chooses by, are two routes.
func (s suite[C]) testHostsDoNotShareKeys(t *testing.T) {
	ran := 0
	w := guard(core.ClientKey())
	mount := func(e Router[C]) {
		e.Add("POST", "/orders/:id", func(c C) error { ran++; return c.String(201, c.Request().Host) }, s.New(w.Guard))
	}
	e, behind := s.NewApp(), s.NewApp()
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
