// Package signtest helps you test signers and verifiers. [RunScheme] is the suite that every scheme must pass. [NewVerifier] and
// [NewRequest] are for tests of a handler inside a verifier. The suite that attacks a verifier in an adapter is in core/adaptertest.
package signtest

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/idem-go/idem/sign"
)

// Keys for your tests. [NewVerifier] knows Demo and Bob. Forger has Demo's id, but another secret.
var (
	Demo   = newKey("demo", "0123456789abcdef0123456789abcdef")
	Bob    = newKey("bob", "bob's secret, known to the tests")
	Forger = newKey("demo", "another secret, of 32 characters")
)

func newKey(id, secret string) *sign.Key {
	return sign.Must(sign.NewHMACKey(sign.KeyConfig{ID: id}, []byte(secret)))
}

// NewVerifier returns a verifier that knows Demo and Bob, with the configuration that change leaves.
func NewVerifier(change ...func(*sign.Config)) *sign.Verifier {
	c := sign.Config{Keys: sign.Must(sign.NewRing(Demo, Bob))}
	for _, f := range change {
		f(&c)
	}
	return sign.Must(sign.NewVerifier(c))
}

// NewRequest returns a POST of body to url, which is absolute, signed by key now. fields are names and values in turn. They are
// signed too. The Content-Type is application/json unless fields has another. With a nil key the request is not signed. A client
// can send it, or a handler serve it.
func NewRequest(tb testing.TB, key *sign.Key, url, body string, fields ...string) *http.Request {
	tb.Helper()
	r, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	cover := []string{"Content-Type"}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
		cover = append(cover, fields[i])
	}
	if key == nil {
		return r
	}
	if err := sign.Request(r, key, sign.RequestOptions{Cover: cover}); err != nil {
		tb.Fatal(err)
	}
	return r
}

// Serve lets h serve the POST to /orders/a%2Fb?x=1 that [NewRequest] makes, without a connection, and returns the answer.
func Serve(tb testing.TB, h http.Handler, key *sign.Key, body string, fields ...string) *httptest.ResponseRecorder {
	tb.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, NewRequest(tb, key, "http://shop.test/orders/a%2Fb?x=1", body, fields...))
	return w
}
