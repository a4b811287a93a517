package ginidem_test

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

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store/memstore"
	"github.com/idem-go/idem/ginidem"
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

// router matches paths as they were sent.
func router() *gin.Engine {
	e := gin.New()
	e.UseRawPath = true
	return e
}

// listen serves e over TCP.
func listen(t *testing.T, e *gin.Engine) *httptest.Server {
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
	e := router()
	e.POST("/orders/:id", ginidem.Verify(verifier()), func(c *gin.Context) {
		v, ok := ginidem.Verified(c)
		caller, _ := core.CallerFrom(c.Request.Context())
		var o order
		err := c.ShouldBind(&o)
		raw, _ := c.Request.GetBody()
		b, _ := io.ReadAll(raw)
		c.String(201, "%v %s %s %s %s %v %d", ok, v.KeyID, caller, c.Param("id"), o.SKU, err, len(b))
	})
	s := listen(t, e)
	const form = "--b\r\nContent-Disposition: form-data; name=\"sku\"\r\n\r\nA-1\r\n--b--\r\n"
	for contentType, body := range map[string]string{
		"application/json":                  `{"sku":"A-1"}`,
		"application/x-www-form-urlencoded": "sku=A-1",
		"multipart/form-data; boundary=b":   form,
	} {
		a := ask(t, s, demo, contentType, body)
		assert.Equal(t, 201, a.status, contentType)
		assert.Equal(t, fmt.Sprintf("true demo demo a/b A-1 <nil> %d", len(body)), a.body, contentType)
	}
}

func TestRefusalsAbort(t *testing.T) {
	reached, after := 0, 0
	e := router()
	e.Use(func(c *gin.Context) {
		request, writer := c.Request, c.Writer
		c.Header("Content-Type", "text/html")
		c.Header("Cache-Control", "public")
		c.Header("X-Outer", "1")
		c.Next()
		after++
		assert.Same(t, request, c.Request)
		assert.Equal(t, writer, c.Writer)
		assert.Equal(t, 401, c.Writer.Status())
		assert.True(t, c.IsAborted())
		assert.Empty(t, c.Errors)
		c.JSON(500, nil) // too late
	})
	e.POST("/orders/:id", ginidem.Verify(verifier()), func(*gin.Context) { reached++ })
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

// A signer's request is what the middleware in front finds again.
func TestRequestIsRestored(t *testing.T) {
	e := router()
	e.Use(func(c *gin.Context) {
		request := c.Request
		defer func() {
			assert.NotNil(t, recover())
			assert.Same(t, request, c.Request)
			assert.NotNil(t, request.MultipartForm, "net/http removes the files")
			_, ok := ginidem.Verified(c)
			assert.False(t, ok)
			c.Status(500)
		}()
		c.Next()
	})
	e.POST("/orders/:id", ginidem.Verify(verifier()), func(c *gin.Context) {
		assert.NoError(t, c.Request.ParseMultipartForm(1))
		panic("boom")
	})
	const form = "--b\r\nContent-Disposition: form-data; name=\"sku\"\r\n\r\nA-1\r\n--b--\r\n"
	ask(t, listen(t, e), demo, "multipart/form-data; boundary=b", form)
}

func TestBodyLimits(t *testing.T) {
	e := router()
	e.Use(func(c *gin.Context) { c.Request.Body = http.MaxBytesReader(c.Writer, c.Request.Body, 10) })
	e.POST("/orders/:id", ginidem.Verify(verifier()), func(c *gin.Context) { c.Status(201) })
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
	e := router()
	e.POST("/orders/:id", ginidem.Verify(verifier()), ginidem.New(engine.MustGuard(core.ClientKey())), func(c *gin.Context) {
		v, _ := ginidem.Verified(c)
		body, _ := c.GetRawData()
		c.String(201, "%s %s %d", v.KeyID, body, runs.Add(1))
	})
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

// The wrong way round, a refusal is not kept; and errors are rendered as they are without Verify.
func TestGuardOutsideOfVerify(t *testing.T) {
	engine := core.MustNew(core.Config{User: core.SharedByAllCallers})
	fail := true
	e := router()
	e.Use(ginidem.Finish(), func(c *gin.Context) {
		c.Next()
		if len(c.Errors) > 0 {
			c.JSON(422, gin.H{"code": c.Errors.Last().Error()})
		}
	})
	e.POST("/orders/:id", ginidem.New(engine.MustGuard(core.ClientKey())), ginidem.Verify(verifier()), func(c *gin.Context) {
		if fail {
			_ = c.Error(errors.New("no_such_sku"))
			return
		}
		c.Status(201)
	})
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

// BenchmarkVerify is Gin with Verify, with 200 bytes of body.
func BenchmarkVerify(b *testing.B) {
	body := `{"note":"` + strings.Repeat("n", 189) + `"}`
	v := verifier(func(c *sign.Config) { c.Nonces = everNew{} })
	reached := 0
	e := router()
	e.POST("/transfers", ginidem.Verify(v), func(*gin.Context) { reached++ })
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
