package echoidem_test

import (
	"errors"
	"io"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/assert"

	"github.com/idem-go/idem/echoidem"
	"github.com/idem-go/idem/sign/signtest"
)

const form = "--b\r\nContent-Disposition: form-data; name=\"sku\"\r\n\r\nA-1\r\n--b--\r\n"

func TestRefusalsAreWritten(t *testing.T) {
	reached, after := 0, 0
	e := quiet()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			request, writer := c.Request(), c.Response().Writer
			h := c.Response().Header()
			h.Set("Content-Type", "text/html")
			h.Set("Cache-Control", "public")
			h.Set("X-Outer", "1")
			c.Response().Before(func() { h.Add("Cache-Control", "public") })
			assert.NoError(t, next(c))
			after++
			assert.Same(t, request, c.Request())
			assert.Equal(t, writer, c.Response().Writer)
			assert.Equal(t, 401, c.Response().Status)
			assert.True(t, c.Response().Committed)
			return nil
		}
	})
	e.POST("/orders/:id", func(echo.Context) error { reached++; return nil }, echoidem.Verify(signtest.NewVerifier()))
	w := signtest.Serve(t, e, signtest.Forger, "{}")
	assert.Equal(t, 401, w.Code)
	assert.Contains(t, w.Body.String(), `"code":"invalid"`)
	assert.Equal(t, []string{"application/problem+json"}, w.Result().Header["Content-Type"])
	assert.Equal(t, []string{"no-store"}, w.Result().Header["Cache-Control"])
	assert.Equal(t, []string{"1"}, w.Result().Header["X-Outer"])
	assert.Zero(t, reached)
	assert.Equal(t, 1, after)
}

// What a handler returns comes to the middleware in front as it is, and so does the request.
func TestErrorsPassVerify(t *testing.T) {
	ours := errors.New("ours")
	e := quiet()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			request := c.Request()
			err := next(c)
			assert.Same(t, ours, err)
			assert.False(t, c.Response().Committed)
			assert.Same(t, request, c.Request())
			assert.NotNil(t, request.MultipartForm, "net/http removes the files")
			_, ok := echoidem.Verified(c)
			assert.False(t, ok)
			return echo.NewHTTPError(418, "teapot")
		}
	})
	e.POST("/orders/:id", func(c echo.Context) error {
		assert.Equal(t, "a%2Fb", c.Param("id"))
		again, err := c.Request().GetBody()
		assert.NoError(t, err)
		b, _ := io.ReadAll(again)
		assert.Equal(t, form, string(b))
		assert.NoError(t, c.Request().ParseMultipartForm(1))
		return ours
	}, echoidem.Verify(signtest.NewVerifier()))
	assert.Equal(t, 418, signtest.Serve(t, e, signtest.Demo, form, "Content-Type", "multipart/form-data; boundary=b").Code)
}

// Nobody has signed that a POST is to be a DELETE.
func TestMethodOverride(t *testing.T) {
	e := quiet()
	e.Pre(middleware.MethodOverride())
	reached := 0
	handler := func(c echo.Context) error { reached++; return c.NoContent(204) }
	e.POST("/orders/:id", handler, echoidem.Verify(signtest.NewVerifier()))
	e.DELETE("/orders/:id", handler, echoidem.Verify(signtest.NewVerifier()))
	assert.Contains(t, signtest.Serve(t, e, signtest.Demo, "{}", "X-HTTP-Method-Override", "DELETE").Body.String(), `"code":"invalid"`)
	assert.Zero(t, reached)
	assert.Equal(t, 204, signtest.Serve(t, e, signtest.Demo, "{}").Code)
}
