package echoidem_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/echoidem"
)

func TestBeforeHooksDoNotDoubleFields(t *testing.T) {
	e := echo.New()
	after := 0
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			below := c.Response().Writer
			c.Response().Before(func() { c.Response().Header().Add("Vary", "Origin") })
			c.Response().After(func() { after++ })
			err := next(c)
			require.Equal(t, below, c.Response().Writer)
			return err
		}
	})
	g := core.MustNew(core.Config{User: core.UserFromHeader("X-User")}).MustGuard(core.Policy{})
	e.POST("/x", func(c echo.Context) error { return c.String(201, "x") }, echoidem.New(g))
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
