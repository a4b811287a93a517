package echotest

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
)

// Front is middleware of Echo that stands in front of a guard.
type Front[C any] struct {
	// New returns it. It reports what it sees to be wrong: what it is to see first is a response of 422, of
	// [ErrorBody], and the error "no".
	New func(t *testing.T) Middleware[C]
	// Restores: it gives the context its response back. Then the error handler must look at Committed.
	Restores bool
}

// ErrorBody is what the error handler makes of the error "no".
const ErrorBody = "{\"error\":\"no\"}\n"

// report keeps what comes out, as middleware for Sentry does.
func report[C any](into *[]error) Middleware[C] {
	return func(next Handler[C]) Handler[C] {
		return func(c C) error {
			err := next(c)
			*into = append(*into, err)
			return err
		}
	}
}

// Middleware further out sees the handler's error, though the guard has rendered it; and what it
// then does with it, as Echo's own Logger does, is not a second answer.
func (s suite[C]) testErrorsAreSeenFurtherOutAndRenderedOnce(t *testing.T) {
	type mounted func(t *testing.T, reported *[]error) []Middleware[C]
	cases := map[string]mounted{
		"reported": func(_ *testing.T, reported *[]error) []Middleware[C] { return []Middleware[C]{report[C](reported)} },
		"finished": func(_ *testing.T, reported *[]error) []Middleware[C] {
			return []Middleware[C]{report[C](reported), s.Finish(), report[C](reported)}
		},
		"finished around a logger that renders": func(_ *testing.T, reported *[]error) []Middleware[C] {
			return []Middleware[C]{report[C](reported), s.Finish(), func(next Handler[C]) Handler[C] {
				return func(c C) error { // as RequestLogger with HandleError
					err := next(c)
					if err != nil {
						s.HandleError(c, err)
					}
					return err
				}
			}}
		},
		"guarded twice": func(_ *testing.T, reported *[]error) []Middleware[C] {
			return []Middleware[C]{report[C](reported), s.New(guard(core.Policy{Key: core.Header(core.Required)}).Guard)}
		},
	}
	for name, front := range s.Fronts {
		cases[name] = func(t *testing.T, reported *[]error) []Middleware[C] {
			return []Middleware[C]{report[C](reported), front.New(t), report[C](reported)}
		}
	}
	for name, mount := range cases {
		t.Run(name, func(t *testing.T) {
			var reported []error
			failure := errors.New("no")
			rendered := 0
			e := s.NewApp()
			e.OnError(func(c C, err error) {
				rendered++
				if s.Fronts[name].Restores && *s.response(c).Committed {
					return
				}
				_ = c.JSON(http.StatusUnprocessableEntity, map[string]string{"error": err.Error()})
			})
			e.Use(mount(t, &reported)...)
			e.Add("POST", "/orders", func(C) error { return failure }, s.New(guard(core.Policy{Record: core.Record{OnFailure: core.Keep}}).Guard))
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
			require.Equal(t, ErrorBody, first.Body.String())
			require.NotEmpty(t, reported)
			require.ErrorIs(t, reported[0], failure)
			require.ErrorIs(t, reported[len(reported)-1], failure)
			if name == "reported" || name == "guarded twice" {
				require.Equal(t, 2, rendered, "by the guard, and by Echo")
			}

			reported = nil
			again := ask()
			require.True(t, replayed(again))
			require.Equal(t, first.Body.String(), again.Body.String())
			require.NotContains(t, reported, failure)
		})
	}
}
