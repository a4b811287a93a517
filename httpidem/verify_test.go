package httpidem_test

import (
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/signtest"
)

// signed is a request to s, signed by key. fields are names and values in turn.
func signed(t testing.TB, s *httptest.Server, key *sign.Key, path, body string, fields ...string) *http.Request {
	t.Helper()
	return signtest.NewRequest(t, key, s.URL+path, body, fields...)
}

// What is signed is the target as sent, also after a prefix was taken away.
func TestTargetsAreThoseSent(t *testing.T) {
	mux := http.NewServeMux()
	ok := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.Path) })
	mux.Handle("/v1/", http.StripPrefix("/v1", httpidem.Verify(signtest.NewVerifier())(ok)))
	s := server(t, mux)
	assert.Equal(t, "/a/b", send(t, s, signed(t, s, signtest.Demo, "/v1/a%2Fb?x=%41;y", "{}")).body)
}

// What net/http and routers look for in the request that they have made is there.
func TestRequestsAreGivenBack(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseMultipartForm(1)
	})
	handler := httpidem.Verify(signtest.NewVerifier())(mux)
	var parts bytes.Buffer
	form := multipart.NewWriter(&parts)
	require.NoError(t, form.WriteField("a", "1"))
	require.NoError(t, form.Close())
	r := httptest.NewRequest("POST", "http://example.com/orders/7", &parts)
	r.Header.Set("Content-Type", form.FormDataContentType())
	require.NoError(t, sign.Request(r, signtest.Demo, sign.RequestOptions{}))
	closed := new(closer)
	closed.Reader, r.Body = r.Body, closed
	handler.ServeHTTP(httptest.NewRecorder(), r)
	assert.Equal(t, "POST /orders/{id}", r.Pattern)
	assert.Equal(t, url.Values{"a": {"1"}}, url.Values(r.MultipartForm.Value))
	assert.Same(t, closed, r.Body)
	_, ok := sign.From(r.Context())
	assert.False(t, ok, "the original is as it was")
}

type closer struct {
	io.Reader
	closed bool
}

func (c *closer) Close() error { c.closed = true; return nil }

func TestCloseIsHandedOn(t *testing.T) {
	body := &closer{Reader: strings.NewReader("{}")}
	r := httptest.NewRequest("POST", "http://example.com/", strings.NewReader("{}"))
	require.NoError(t, sign.Request(r, signtest.Demo, sign.RequestOptions{}))
	r.Body = body
	httpidem.Verify(signtest.NewVerifier())(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		assert.False(t, body.closed)
		require.NoError(t, r.Body.Close())
		assert.True(t, body.closed)
		_, err := r.Body.Read(make([]byte, 1))
		assert.ErrorIs(t, err, http.ErrBodyReadAfterClose)
	})).ServeHTTP(httptest.NewRecorder(), r)
}

// Two verifiers on one way verify the same bytes; but what somebody has read between them the handler may have
// from there, and not from what is verified.
func TestBetweenTwoVerifiers(t *testing.T) {
	for name, tc := range map[string]struct {
		do     func(*http.Request)
		status int
	}{
		"nothing": {func(*http.Request) {}, 200},
		"closed":  {func(r *http.Request) { _ = r.Body.Close() }, 200},
		"a peek":  {func(r *http.Request) { _, _ = r.Body.Read(make([]byte, 1)) }, 400},
		"read":    {func(r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }, 400},
	} {
		t.Run(name, func(t *testing.T) {
			s := server(t, through(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				assert.NoError(t, err)
				assert.Equal(t, "to=bob", string(body))
			}), httpidem.Verify(signtest.NewVerifier()), inFront(tc.do), httpidem.Verify(signtest.NewVerifier())))
			assert.Equal(t, tc.status, send(t, s, signed(t, s, signtest.Demo, "/", "to=bob")).status)
		})
	}
}

// Also after a panic, whoever recovers has the request's own body back.
func TestThePanickedRequestIsGivenBack(t *testing.T) {
	body := &closer{Reader: strings.NewReader("{}")}
	r := httptest.NewRequest("POST", "/", body)
	r.Header.Set("X-User", "alice")
	assert.Panics(t, func() {
		httpidem.New(guard(core.Policy{}))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("oops") })).
			ServeHTTP(httptest.NewRecorder(), r)
	})
	assert.Same(t, body, r.Body)
	assert.EqualValues(t, -1, r.ContentLength)
}

// What a middleware in front has taken of the body, the handler may find in another place; the verifier
// can't.
func TestABodyThatIsGone(t *testing.T) {
	verify := httpidem.Verify(signtest.NewVerifier())
	handler := verify(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was reached") }))
	for name, take := range map[string]func(*http.Request){
		"a form":      func(r *http.Request) { _ = r.ParseForm() },
		"read":        func(r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) },
		"read partly": func(r *http.Request) { _, _ = r.Body.Read(make([]byte, 1)) },
		"replaced":    func(r *http.Request) { r.Body = http.NoBody },
		"cut":         func(r *http.Request) { r.Body = io.NopCloser(io.LimitReader(r.Body, 6)) },
	} {
		t.Run(name, func(t *testing.T) {
			s := server(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				take(r)
				handler.ServeHTTP(w, r)
			}))
			// Signed without a body, and then sent with one.
			body := ""
			if name == "cut" {
				body = "to=mal"
			}
			r := signed(t, s, signtest.Demo, "/", body, "Content-Type", "application/x-www-form-urlencoded")
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader("to=mallory")), 10
			resp, err := s.Client().Do(r)
			require.NoError(t, err)
			defer resp.Body.Close()
			answer, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Equal(t, 400, resp.StatusCode)
			require.Contains(t, string(answer), `"code":"malformed"`)
		})
	}
}

// Of a form in chunks nothing may be left to verify, and yet the handler finds it.
func TestAFormThatIsGone(t *testing.T) {
	multi, parts := parts(t)
	const onlyAFile = "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\nmallory\r\n--b--\r\n"
	for body, media := range map[string]string{"to=mallory": "application/x-www-form-urlencoded", parts: multi, onlyAFile: multi} {
		s := server(t, through(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was reached") }),
			inFront(func(r *http.Request) { _ = r.ParseMultipartForm(1 << 20) }), httpidem.Verify(signtest.NewVerifier())))
		r := signed(t, s, signtest.Demo, "/", "", "Content-Type", media)
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), -1
		got := send(t, s, r)
		assert.Equal(t, 400, got.status)
		assert.Equal(t, "malformed", got.code())
	}
}

// Whoever logs a refused request finds its own body in it.
func TestARefusedRequestIsGivenBack(t *testing.T) {
	r := httptest.NewRequest("POST", "http://example.com/", strings.NewReader("{}"))
	require.NoError(t, sign.Request(r, signtest.Forger, sign.RequestOptions{}))
	body := &closer{Reader: r.Body}
	r.Body = body
	w := httptest.NewRecorder()
	httpidem.Verify(signtest.NewVerifier())(http.NotFoundHandler()).ServeHTTP(w, r)
	require.Equal(t, 401, w.Code)
	assert.Same(t, body, r.Body)
}
