package interop_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
)

const (
	secret = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" // httpsign takes none that is shorter
	body   = `{"id":"evt_1","object":"event","event_id":"Ev08MFMKH6","amount":5}`
)

// algorithms are those of all implementations of RFC 9421 here.
var algorithms = []string{"hmac-sha256", "ed25519", "ecdsa-p256-sha256", "rsa-pss-sha512"}

// keyPairs returns the keys that sign, with those that verify.
func keyPairs() map[sign.Algorithm][2]*sign.Key {
	pairs := fixture.Pairs("demo")
	shared := sign.Must(sign.NewHMACKey(sign.KeyConfig{ID: "demo"}, []byte(secret)))
	pairs[sign.HMACSHA256] = [2]*sign.Key{shared, shared}
	return pairs
}

// ours serves what v verifies: it answers 200, or as a verifier does.
func ours(t *testing.T, v *sign.Verifier) string {
	t.Helper()
	return serve(t, httpidem.Verify(v)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, err := io.ReadAll(r.Body)
		if err != nil || string(got) != body {
			w.WriteHeader(http.StatusTeapot)
		}
	})))
}

// theirs serves what verify accepts: it answers 200 or 401.
func theirs(t *testing.T, verify func(r *http.Request, body []byte) error) string {
	t.Helper()
	return serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, err := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(got))
		if err != nil || verify(r, got) != nil {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
}

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

// newRequest is a request to be signed.
func newRequest(t testing.TB, url string) *http.Request {
	t.Helper()
	r, err := http.NewRequest("POST", url, bytes.NewReader([]byte(body)))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	return r
}

// send sends a request as it is, with a body, and returns status and code.
func send(t testing.TB, r *http.Request, body string) (int, string) {
	t.Helper()
	r = r.Clone(t.Context())
	r.Body, r.ContentLength, r.GetBody = io.NopCloser(bytes.NewReader([]byte(body))), int64(len(body)), nil
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode, resp.Header.Get("Idempotency-Refused")
}

// arrives sends what they have signed to our verifier: it is verified once, and not with another body.
func arrives(t *testing.T, r *http.Request, replayed string) {
	t.Helper()
	status, code := send(t, r, body+" ")
	require.Equal(t, 401, status)
	require.Equal(t, "invalid", code)
	status, code = send(t, r, body)
	require.Equal(t, 200, status, code)
	_, code = send(t, r, body)
	require.Equal(t, replayed, code, "the same message again")
}

// isUnderstood sends what we have signed to their verifier.
func isUnderstood(t *testing.T, r *http.Request) {
	t.Helper()
	status, _ := send(t, r, body)
	require.Equal(t, 200, status)
	status, _ = send(t, r, body+" ")
	require.Equal(t, 401, status)
}

func digestOf(body string) string {
	sum := sha256.Sum256([]byte(body))
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}
