package echotest

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
)

func (s suite[C]) testBeforeHooksDoNotDoubleFields(t *testing.T) {
	e := s.NewApp()
	after := 0
	e.Use(func(next Handler[C]) Handler[C] {
		return func(c C) error {
			below := *s.response(c).Writer
			s.response(c).Before(func() { s.response(c).Header().Add("Vary", "Origin") })
			s.response(c).After(func() { after++ })
			err := next(c)
			require.Equal(t, below, *s.response(c).Writer)
			return err
		}
	})
	g := core.MustNew(core.Config{User: core.UserFromHeader("X-User")}).MustGuard(core.Policy{})
	e.Add("POST", "/x", func(c C) error { return c.String(201, "x") }, s.New(g))
	for i, mark := range []string{"", "true"} {
		r := httptest.NewRequest(http.MethodPost, "/x", nil)
		r.Header.Set("X-User", "alice")
		w := httptest.NewRecorder()
		e.ServeHTTP(w, r)
		require.Equal(t, 201, w.Code)
		require.Equal(t, "x", w.Body.String())
		require.Equal(t, mark, w.Header().Get(core.ReplayedHeader))
		require.Equal(t, []string{"Origin"}, w.Header()["Vary"])
		require.Equal(t, i+1, after)
	}
}
