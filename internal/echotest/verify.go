package echotest

import (
	"errors"
	"io"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/sign/signtest"
)

const form = "--b\r\nContent-Disposition: form-data; name=\"sku\"\r\n\r\nA-1\r\n--b--\r\n"

func (s suite[C]) testRefusalsAreWritten(t *testing.T) {
	reached, after := 0, 0
	e := s.NewApp()
	e.Use(func(next Handler[C]) Handler[C] {
		return func(c C) error {
			request, writer := c.Request(), *s.response(c).Writer
			h := s.response(c).Header()
			h.Set("Content-Type", "text/html")
			h.Set("Cache-Control", "public")
			h.Set("X-Outer", "1")
			s.response(c).Before(func() { h.Add("Cache-Control", "public") })
			assert.NoError(t, next(c))
			after++
			assert.Same(t, request, c.Request())
			assert.Equal(t, writer, *s.response(c).Writer)
			assert.Equal(t, 401, *s.response(c).Status)
			assert.True(t, *s.response(c).Committed)
			return nil
		}
	})
	e.Add("POST", "/orders/:id", func(C) error { reached++; return nil }, s.Verify(signtest.NewVerifier()))
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
func (s suite[C]) testErrorsPassVerify(t *testing.T) {
	ours := errors.New("ours")
	e := s.NewApp()
	e.Use(func(next Handler[C]) Handler[C] {
		return func(c C) error {
			request := c.Request()
			err := next(c)
			assert.Same(t, ours, err)
			assert.False(t, *s.response(c).Committed)
			assert.Same(t, request, c.Request())
			assert.NotNil(t, request.MultipartForm, "net/http removes the files")
			_, ok := s.Verified(c)
			assert.False(t, ok)
			return s.HTTPError(418, "teapot")
		}
	})
	e.Add("POST", "/orders/:id", func(c C) error {
		assert.Equal(t, "a%2Fb", c.Param("id"))
		again, err := c.Request().GetBody()
		assert.NoError(t, err)
		b, _ := io.ReadAll(again)
		assert.Equal(t, form, string(b))
		assert.NoError(t, c.Request().ParseMultipartForm(1))
		return ours
	}, s.Verify(signtest.NewVerifier()))
	assert.Equal(t, 418, signtest.Serve(t, e, signtest.Demo, form, "Content-Type", "multipart/form-data; boundary=b").Code)
}

// Nobody has signed that a POST is to be a DELETE. And behind the router, none is a GET, which would go past a guard.
func (s suite[C]) testMethodOverride(t *testing.T) {
	routed := s.NewApp()
	routed.Use(s.Override())
	routed.Add("POST", "/orders", func(c C) error { return c.NoContent(204) }, s.New(guard(core.Policy{Key: core.Header(core.Required)}).Guard))
	w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "/orders", nil)
	r.Header.Set("X-HTTP-Method-Override", "GET")
	r.Header.Set("X-User", "u")
	routed.ServeHTTP(w, r)
	assert.Contains(t, w.Body.String(), `"code":"key_missing"`)

	e := s.NewApp()
	e.Pre(s.Override())
	reached := 0
	handler := func(c C) error { reached++; return c.NoContent(204) }
	e.Add("POST", "/orders/:id", handler, s.Verify(signtest.NewVerifier()))
	e.Add("DELETE", "/orders/:id", handler, s.Verify(signtest.NewVerifier()))
	assert.Contains(t, signtest.Serve(t, e, signtest.Demo, "{}", "X-HTTP-Method-Override", "DELETE").Body.String(), `"code":"invalid"`)
	assert.Zero(t, reached)
	assert.Equal(t, 204, signtest.Serve(t, e, signtest.Demo, "{}").Code)
}
