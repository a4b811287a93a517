package echoidem_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store/memstore"
	"github.com/idem-go/idem/echoidem"
	"github.com/idem-go/idem/sign"
)

var (
	demo   = sign.MustKey(sign.NewHMACKey("demo", []byte("0123456789abcdef0123456789abcdef")))
	other  = sign.MustKey(sign.NewHMACKey("other", []byte("fedcba9876543210fedcba9876543210")))
	forged = sign.MustKey(sign.NewHMACKey("demo", []byte("this is not the secret of demo...")))
)

func verifier(change ...func(*sign.Config)) *sign.Verifier {
	c := sign.Config{Keys: sign.MustRing(demo, other)}
	for _, f := range change {
		f(&c)
	}
	return sign.MustVerifier(c)
}

// listen serves e over TCP.
func listen(t *testing.T, e *echo.Echo) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(e)
	t.Cleanup(func() {
		s.Client().CloseIdleConnections()
		s.Close()
	})
	return s
}

type answer struct {
	status     int
	header     http.Header
	code, body string
}

// ask sends a request that key has signed; no key: one that is not signed.
func ask(t *testing.T, s *httptest.Server, key *sign.Key, contentType, body string, fields ...string) answer {
	t.Helper()
	r, err := http.NewRequest("POST", s.URL+"/orders/a%2Fb?x=1", strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", contentType)
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	if key != nil {
		require.NoError(t, sign.Request(r, key, nil))
	}
	resp, err := s.Client().Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(b), `"code":"`)
	code, _, _ := strings.Cut(rest, `"`)
	return answer{resp.StatusCode, resp.Header, code, string(b)}
}

func TestVerifiedRequestsAreBound(t *testing.T) {
	type order struct {
		SKU string `json:"sku" form:"sku"`
	}
	e := quiet()
	e.POST("/orders/:id", func(c echo.Context) error {
		v, ok := echoidem.Verified(c)
		caller, _ := core.CallerFrom(c.Request().Context())
		var o order
		err := c.Bind(&o)
		raw, _ := c.Request().GetBody()
		b, _ := io.ReadAll(raw)
		return c.String(201, fmt.Sprint(ok, v.KeyID, caller, c.Param("id"), o.SKU, err, len(b)))
	}, echoidem.Verify(verifier()))
	s := listen(t, e)
	const form = "--b\r\nContent-Disposition: form-data; name=\"sku\"\r\n\r\nA-1\r\n--b--\r\n"
	for contentType, body := range map[string]string{
		"application/json":                  `{"sku":"A-1"}`,
		"application/x-www-form-urlencoded": "sku=A-1",
		"multipart/form-data; boundary=b":   form,
	} {
		a := ask(t, s, demo, contentType, body)
		assert.Equal(t, 201, a.status, contentType)
		assert.Equal(t, fmt.Sprint(true, "demo", "demo", "a%2Fb", "A-1", nil, len(body)), a.body, contentType)
	}
}

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
	e.POST("/orders/:id", func(echo.Context) error { reached++; return nil }, echoidem.Verify(verifier()))
	s := listen(t, e)
	for range 2 { // the connection goes on
		a := ask(t, s, forged, "application/json", "{}")
		assert.Equal(t, 401, a.status)
		assert.Equal(t, "invalid", a.code)
		assert.Equal(t, []string{"application/problem+json"}, a.header["Content-Type"])
		assert.Equal(t, []string{"no-store"}, a.header["Cache-Control"])
		assert.Equal(t, []string{`Signature scheme="v1"`}, a.header["Www-Authenticate"])
		assert.Equal(t, []string{"1"}, a.header["X-Outer"])
		assert.Len(t, a.header["Date"], 1)
	}
	assert.Zero(t, reached)
	assert.Equal(t, 2, after)
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
		assert.NoError(t, c.Request().ParseMultipartForm(1))
		return ours
	}, echoidem.Verify(verifier()))
	const form = "--b\r\nContent-Disposition: form-data; name=\"sku\"\r\n\r\nA-1\r\n--b--\r\n"
	assert.Equal(t, 418, ask(t, listen(t, e), demo, "multipart/form-data; boundary=b", form).status)
}

// Nobody has signed that a POST is to be a DELETE.
func TestMethodOverride(t *testing.T) {
	e := quiet()
	e.Pre(middleware.MethodOverride())
	reached := 0
	handler := func(c echo.Context) error { reached++; return c.NoContent(204) }
	e.POST("/orders/:id", handler, echoidem.Verify(verifier()))
	e.DELETE("/orders/:id", handler, echoidem.Verify(verifier()))
	s := listen(t, e)
	assert.Equal(t, "invalid", ask(t, s, demo, "application/json", "{}", "X-HTTP-Method-Override", "DELETE").code)
	assert.Zero(t, reached)
	assert.Equal(t, 204, ask(t, s, demo, "application/json", "{}").status)
}

func TestBodyLimits(t *testing.T) {
	e := quiet()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			c.Request().Body = http.MaxBytesReader(c.Response(), c.Request().Body, 10)
			return next(c)
		}
	})
	e.POST("/orders/:id", func(c echo.Context) error { return c.NoContent(201) }, echoidem.Verify(verifier()))
	s := listen(t, e)
	assert.Equal(t, "body_too_large", ask(t, s, demo, "text/plain", strings.Repeat("x", 11)).code)
	assert.Equal(t, 201, ask(t, s, demo, "text/plain", strings.Repeat("x", 10)).status)
}

// counting is a store that counts claims.
type counting struct {
	core.Store
	claims atomic.Int64
}

func (c *counting) Acquire(ctx context.Context, key string, claim core.Claim) (core.Grant, error) {
	c.claims.Add(1)
	return c.Store.Acquire(ctx, key, claim)
}

func TestGuardBehindVerify(t *testing.T) {
	store, err := memstore.New(memstore.Options{})
	require.NoError(t, err)
	claims := &counting{Store: store}
	engine := core.MustNew(core.Config{Store: claims, User: core.UserFromRemoteAddr()})
	var runs atomic.Int64
	e := quiet()
	e.POST("/orders/:id", func(c echo.Context) error {
		v, _ := echoidem.Verified(c)
		body, _ := io.ReadAll(c.Request().Body)
		return c.String(201, fmt.Sprintf("%s %s %d", v.KeyID, body, runs.Add(1)))
	}, echoidem.Verify(verifier()), echoidem.New(engine.MustGuard(core.ClientKey())))
	s := listen(t, e)
	order := func(key *sign.Key) answer {
		return ask(t, s, key, "application/json", "{}", "Idempotency-Key", "k-1")
	}
	assert.Equal(t, "invalid", order(forged).code)
	assert.Equal(t, "missing", order(nil).code)
	assert.Zero(t, claims.claims.Load(), "a failed signature creates no record")
	assert.Equal(t, "demo {} 1", order(demo).body)
	assert.Equal(t, "demo {} 1", order(demo).body, "a new nonce, the same operation")
	assert.Equal(t, "other {} 2", order(other).body)
	assert.EqualValues(t, 2, runs.Load())
}

// The wrong way round, a refusal is not kept; and errors are stored as they are rendered.
func TestGuardOutsideOfVerify(t *testing.T) {
	engine := core.MustNew(core.Config{User: core.SharedByAllCallers})
	fail := true
	e := quiet()
	e.POST("/orders/:id", func(c echo.Context) error {
		if fail {
			return echo.NewHTTPError(422, map[string]string{"code": "no_such_sku"})
		}
		return c.NoContent(201)
	}, echoidem.New(engine.MustGuard(core.ClientKey())), echoidem.Verify(verifier()))
	s := listen(t, e)
	order := func(key *sign.Key) answer {
		return ask(t, s, key, "application/json", "{}", "Idempotency-Key", "k-1")
	}
	assert.Equal(t, "invalid", order(forged).code)
	assert.Equal(t, "no_such_sku", order(demo).code)
	fail = false
	again := order(demo)
	assert.Equal(t, "no_such_sku", again.code)
	assert.Equal(t, "true", again.header.Get(core.ReplayedHeader))
}

// BenchmarkVerify is Echo with Verify, with 200 bytes of body.
func BenchmarkVerify(b *testing.B) {
	body := `{"note":"` + strings.Repeat("n", 189) + `"}`
	v := verifier(func(c *sign.Config) { c.Nonces = everNew{} })
	reached := 0
	e := quiet()
	e.POST("/transfers", func(echo.Context) error { reached++; return nil }, echoidem.Verify(v))
	r := httptest.NewRequest("POST", "http://example.com/transfers?x=2", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	require.NoError(b, sign.Request(r, demo, nil))
	r.RequestURI = "/transfers?x=2"
	reader := strings.NewReader(body)
	r.Body = io.NopCloser(reader)
	w := httptest.NewRecorder()
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		reader.Reset(body)
		e.ServeHTTP(w, r)
	}
	require.Equal(b, n, reached)
}

// everNew has seen no nonce yet.
type everNew struct{}

func (everNew) Use(context.Context, string, string, time.Duration) (bool, error) { return true, nil }
