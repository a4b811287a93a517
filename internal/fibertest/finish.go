package fibertest

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
)

func (s suite[C]) testFinish(t *testing.T) {
	failure := errors.New("card declined")
	envelope := func(c C) error {
		if err := c.Next(); err != nil {
			return c.Status(402).JSON(map[string]string{"msg": err.Error()})
		}
		return nil
	}
	translate := func(c C) error {
		if c.Next() != nil {
			return s.Error(451, "translated")
		}
		return nil
	}
	crash := func(c C) error {
		if c.Next() != nil {
			panic("while rendering")
		}
		return nil
	}
	crashLater := func(c C) error {
		if c.Next() != nil {
			_ = c.Status(402).SendString("rendered")
			panic("after rendering")
		}
		return nil
	}
	cases := []struct {
		name    string
		outer   []Handler[C]
		handler Handler[C]
		status  int
		body    string
		runs    int32 // for two requests
	}{
		{"rendered in between", []Handler[C]{s.Finish(), envelope},
			func(C) error { return failure }, 402, `{"msg":"card declined"}`, 1},
		{"translated in between", []Handler[C]{s.Finish(), translate},
			func(C) error { return failure }, 451, "translated", 1},
		{"a refusal, translated in between", []Handler[C]{s.Finish(), translate},
			func(C) error { return core.NewRefusal(codes.InProgress, nil) }, 451, "translated", 2},
		{"rendered by Finish, a failure", []Handler[C]{s.Finish()},
			func(C) error { return failure }, 500, "card declined", 2},
		{"outermost counts", []Handler[C]{s.Finish(), envelope, s.Finish()},
			func(C) error { return failure }, 402, `{"msg":"card declined"}`, 1},
		{"no error", []Handler[C]{s.Finish(), envelope},
			func(c C) error { return c.SendString("done") }, 200, "done", 1},
		{"panic on the way out", []Handler[C]{s.Recover(), s.Finish(), crash},
			func(C) error { return failure }, 500, "while rendering", 2},
		{"panic after rendering", []Handler[C]{s.Recover(), s.Finish(), crashLater},
			func(C) error { return failure }, 500, "after rendering", 2},
		{"panic recovered inside", []Handler[C]{s.Finish(), s.Recover(), crash},
			func(C) error { return failure }, 500, "while rendering", 2},
		{"panic in the handler", []Handler[C]{s.Recover(), s.Finish(), envelope},
			func(C) error { panic("handler") }, 500, "handler", 2},
		{"without Finish the ErrorHandler has been first", []Handler[C]{envelope},
			func(C) error { return s.Error(410, "gone") }, 410, "gone", 1},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			var runs atomic.Int32
			app := s.newApp()
			app.Use(tc.outer...)
			app.Add("POST", "/", s.mounted(t, core.Policy{Failed: core.FailedByStatus}), func(c C) error {
				runs.Add(1)
				return tc.handler(c)
			})
			s.serve(t, app).PostTwice("/", tc.status, tc.body, tc.runs == 1)
			require.Equal(t, tc.runs, runs.Load())
		})
	}
}

// A refusal that a middleware in between makes of the handler's error is the answer.
func (s suite[C]) testFinishRefused(t *testing.T) {
	app := s.newApp()
	app.Use(s.Finish(), func(c C) error {
		_ = c.Next()
		return core.NewRefusal(codes.InProgress, nil)
	})
	app.Add("POST", "/", s.mounted(t, core.Policy{}), func(C) error { return errors.New("busy") })
	r := s.serve(t, app).Post("/", "")
	require.Equal(t, 409, r.Status)
	require.Equal(t, "in_progress", r.Header.Get(core.RefusedHeader))
}

// A guard outside of Finish sees rendered responses only, and does not wait for it.
func (s suite[C]) testGuardOutsideOfFinish(t *testing.T) {
	var runs atomic.Int32
	app := s.newApp()
	app.Add("POST", "/", s.mounted(t, core.Policy{Failed: core.FailedByStatus}), s.Finish(), func(C) error {
		runs.Add(1)
		return s.Error(422, "no")
	})
	service := s.serve(t, app)
	require.Equal(t, "no", service.Post("/", "").Body)
	require.True(t, service.Post("/", "").Replayed())
	require.EqualValues(t, 1, runs.Load())
}

// An error that no guard has left to Finish passes it.
func (s suite[C]) testFinishPassesOtherErrors(t *testing.T) {
	var seen atomic.Pointer[error]
	teapot := s.Error(418, "no coffee")
	app := s.newApp()
	app.Use(func(c C) error {
		err := c.Next()
		seen.Store(&err)
		return err
	})
	app.Use(s.Finish())
	app.Add("POST", "/", func(C) error { return teapot })
	require.Equal(t, 418, s.serve(t, app).Post("/", "").Status)
	require.Equal(t, teapot, *seen.Load())
}
