package sortedparams

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
	"github.com/idem-go/idem/sign/signtest"
)

// designSecret is the secret of the documented examples, and of signtest.Demo.
const designSecret = "0123456789abcdef0123456789abcdef"

const (
	formType = "application/x-www-form-urlencoded"
	jsonType = "application/json"
)

// newRequest is a POST to target. Without a type it has no Content-Type.
func newRequest(tb testing.TB, target, contentType, body string) *http.Request {
	tb.Helper()
	r := signtest.NewRequest(tb, nil, "http://pay.test"+target, body, "Content-Type", contentType)
	if contentType == "" {
		r.Header.Del("Content-Type")
	}
	return r
}

// newSigned is the same, signed by demo at [fixture.Now].
func newSigned(tb testing.TB, o Config, target, contentType, body string) *http.Request {
	tb.Helper()
	return fixture.Sign(tb, newRequest(tb, target, contentType, body), signtest.Demo, sign.RequestOptions{Scheme: sign.Must(New(o))})
}

// verify verifies r by a verifier of its own, whose ring has demo's key.
func verify(tb testing.TB, o Config, r *http.Request) error {
	tb.Helper()
	return fixture.Verify(tb, sign.Config{Scheme: sign.Must(New(o))}, r, signtest.Demo)
}

func verifierAt(o Config, at time.Time, keys ...*sign.Key) *sign.Verifier {
	return fixture.Verifier(sign.Config{Scheme: sign.Must(New(o)), Clock: func() time.Time { return at }}, keys...)
}

func replaceBody(body string) func(*http.Request) {
	return func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(body)) }
}

func setHeader(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func addHeader(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Add(name, value) }
}

func addQuery(more string) func(*http.Request) {
	return func(r *http.Request) {
		if r.URL.RawQuery != "" {
			more = r.URL.RawQuery + "&" + more
		}
		r.URL.RawQuery = more
	}
}
