package sign_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/hex"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
)

// designSecret is the secret of the documented examples.
const designSecret = "0123456789abcdef0123456789abcdef"

var body200 = `{"order":{"sku":"A-1","qty":2,"note":"` + strings.Repeat("n", 160) + `"}}`

// now is the time of the tests' verifiers.
var now = time.Unix(1700000000, 0)

func fixedClock() time.Time { return now }

// incoming is header and body of a message, as an adapter for net/http sees them.
type incoming struct {
	header http.Header
	body   []byte
	err    error // of reading the body
	reads  int

	meanwhile func() // what happens while the body is read
}

func (in *incoming) Values(name string) []string { return in.header[name] }

func (in *incoming) HeaderSize() (lines, bytes int) {
	for name, values := range in.header {
		lines += len(values)
		for _, v := range values {
			bytes += len(name) + len(v)
		}
	}
	return lines, bytes
}

func (in *incoming) ReadBody(limit int64) ([]byte, error) {
	in.reads++
	if in.meanwhile != nil {
		in.meanwhile()
	}
	if int64(len(in.body)) > limit {
		return nil, sign.CodeBodyTooLarge
	}
	return in.body, in.err
}

// messageOf is what a server makes of a request that a client sends.
func messageOf(r *http.Request) *sign.Message {
	host := r.Host
	if host == "" {
		host = r.URL.Host
	}
	header := make(http.Header)
	for name, values := range r.Header {
		for _, v := range values {
			header.Add(name, strings.Trim(v, " \t")) // as net/http sends it
		}
	}
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	return &sign.Message{Method: r.Method, Target: r.URL.RequestURI(), Host: host, Source: &incoming{header: header, body: body}}
}

// signedRequest is a request of 200 bytes with an Idempotency-Key, signed by key.
func signedRequest(tb testing.TB, key *sign.Key, o *sign.RequestOptions) *http.Request {
	tb.Helper()
	r, err := http.NewRequest("POST", "http://api.example.com/transfers/a%2Fb?x=2&x=1", strings.NewReader(body200))
	require.NoError(tb, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", `"k-1"`)
	require.NoError(tb, sign.Request(r, key, o))
	return r
}

// newEd25519 makes a key pair: the key that signs, and the one that verifies.
func newEd25519(tb testing.TB) (signer, verifier *sign.Key) {
	tb.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(tb, err)
	return sign.MustKey(sign.NewKey("ed", private)), sign.MustKey(sign.NewKey("ed", public))
}

func newHMAC(tb testing.TB, id string, opts ...sign.KeyOption) *sign.Key {
	tb.Helper()
	secret := make([]byte, 32)
	_, _ = rand.Read(secret)
	return sign.MustKey(sign.NewHMACKey(id, secret, opts...))
}

func newNonce() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func newRSA(tb testing.TB) *sign.Key {
	tb.Helper()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(tb, err)
	return sign.MustKey(sign.NewKey("rsa", private))
}
