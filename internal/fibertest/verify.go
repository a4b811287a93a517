package fibertest

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/signtest"
)

// A field that a middleware in front has changed is not the one that was signed.
func (s suite[C]) testChangedFieldsAreRefused(t *testing.T) {
	app := s.newApp()
	app.Use(func(c C) error {
		c.Request().Header.Set(c.Query("set"), "text/plain")
		c.Method(c.Query("method", "POST"))
		return c.Next()
	})
	app.All("/", s.Verify(signtest.NewVerifier()), func(c C) error { return c.SendString("reached") })
	service := s.serve(t, app)
	assert.Equal(t, "reached", service.Do(service.Signed(signtest.Demo, "/?set=x-else", "{}")).Body)
	assert.Equal(t, "invalid", service.Do(service.Signed(signtest.Demo, "/?set=content-type", "{}")).Code())
	assert.Equal(t, "invalid", service.Do(service.Signed(signtest.Demo, "/?set=x-else&method=DELETE", "{}")).Code(), "nobody has signed that it is to be a DELETE")
}

func (s suite[C]) testFormsThatAreGone(t *testing.T) {
	const form = "--b\r\nContent-Disposition: form-data; name=\"sku\"\r\n\r\nA-1\r\n--b--\r\n"
	for _, stream := range []bool{false, true} {
		var why error
		app := s.NewApp(Config{StreamRequestBody: stream}, nil)
		app.Add("POST", "/", s.Verify(signtest.NewVerifier(func(c *sign.Config) {
			c.Observe = func(_ context.Context, e sign.Event) { why = e.Err }
		})), func(c C) error { return c.SendString("reached") })
		service := s.serve(t, app)
		r := service.Do(service.Signed(signtest.Demo, "/", form, "Content-Type", "multipart/form-data; boundary=b"))
		assert.Equal(t, "malformed", r.Code())
		assert.ErrorContains(t, why, "DisablePreParseMultipartForm")
		assert.NotContains(t, r.Body, "PreParse")

		chunks := service.Signed(signtest.Demo, "/", form, "Content-Type", "multipart/form-data; boundary=b")
		chunks.ContentLength = -1 // such a form is left alone
		assert.Equal(t, "reached", service.Do(chunks).Body)
	}
}

// Errors go to the ErrorHandler as they are, and the context is given back, also after a panic.
func (s suite[C]) testContextIsRestored(t *testing.T) {
	type mark struct{}
	app := s.NewApp(Config{}, func(c C, err error) error { return c.Status(418).SendString(err.Error()) })
	app.Use(func(c C) (err error) {
		outer := context.WithValue(context.Background(), mark{}, 1)
		s.SetContext(c, outer)
		defer func() {
			if v := recover(); v != nil {
				err = errors.New("recovered")
			}
			assert.Equal(t, outer, s.Context(c))
			_, ok := s.Verified(c)
			assert.False(t, ok)
		}()
		return c.Next()
	})
	app.Add("POST", "/", s.Verify(signtest.NewVerifier()), func(c C) error {
		assert.Equal(t, 1, s.Context(c).Value(mark{}))
		if c.Query("panic") != "" {
			panic("boom")
		}
		return errors.New("ours")
	})
	service := s.serve(t, app)
	assert.Equal(t, "ours", service.Do(service.Signed(signtest.Demo, "/", "{}")).Body)
	assert.Equal(t, "recovered", service.Do(service.Signed(signtest.Demo, "/?panic=1", "{}")).Body)
}

// What somebody in front has read of a stream, and not what is left of it or was made of it, is what the handler may have; the verifier
// can't know.
func (s suite[C]) testAStreamThatIsGone(t *testing.T) {
	const parts = "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--b--\r\n"
	peek := func(c C) { _, _ = c.Request().BodyStream().Read(make([]byte, 4)) }
	for name, tc := range map[string]struct {
		first, do func(C)
		status    int
	}{
		"nothing":             {nil, func(C) {}, 200},
		"a peek":              {nil, peek, 400},
		"a form":              {nil, func(c C) { _ = c.FormValue("a") }, 400},
		"nothing, in between": {func(C) {}, func(C) {}, 200},
		"a peek, in between":  {func(C) {}, peek, 400},
	} {
		t.Run(name, func(t *testing.T) {
			app := s.NewApp(Config{StreamRequestBody: true, DisablePreParseMultipartForm: true}, nil)
			if tc.first != nil {
				app.Use(s.Verify(signtest.NewVerifier()))
			}
			app.Add("POST", "/", func(c C) error { tc.do(c); return c.Next() }, s.Verify(signtest.NewVerifier()),
				func(c C) error { return c.SendString("reached") })
			service := s.serve(t, app)
			got := service.Do(service.Signed(signtest.Demo, "/", parts, "Content-Type", "multipart/form-data; boundary=b"))
			require.Equal(t, tc.status, got.Status, got.Body)
			if tc.status != 200 {
				require.Contains(t, got.Body, `"code":"malformed"`)
			}
		})
	}
}
