package sign_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
)

// designSecret is the secret of the documented examples.
const designSecret = "0123456789abcdef0123456789abcdef"

var body200 = `{"order":{"sku":"A-1","qty":2,"note":"` + strings.Repeat("n", 160) + `"}}`

// now is the time of the tests' verifiers.
var now = time.Unix(1700000000, 0)

func fixedClock() time.Time { return now }

// messageOf is what a server makes of a request that a client sends. ExampleScheme calls it.
func messageOf(r *http.Request) *sign.Message { return fixture.Message(r) }

// signedRequest is a request of 200 bytes with an Idempotency-Key, signed by key.
func signedRequest(tb testing.TB, key *sign.Key, o sign.RequestOptions) *http.Request {
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
	return sign.Must(sign.NewKey(sign.KeyOptions{ID: "ed"}, private)), sign.Must(sign.NewKey(sign.KeyOptions{ID: "ed"}, public))
}

func newHMAC(tb testing.TB, id string) *sign.Key {
	tb.Helper()
	return newHMACWith(tb, sign.KeyOptions{ID: id})
}

func newHMACWith(tb testing.TB, o sign.KeyOptions) *sign.Key {
	tb.Helper()
	secret := make([]byte, 32)
	_, _ = rand.Read(secret)
	return sign.Must(sign.NewHMACKey(o, secret))
}

// keyFunc is a [sign.KeyStore] of one function.
type keyFunc func(ctx context.Context, id string) ([]*sign.Key, error)

func (f keyFunc) Keys(ctx context.Context, id string) ([]*sign.Key, error) { return f(ctx, id) }

func newNonce() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func newRSA(tb testing.TB) *sign.Key {
	tb.Helper()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(tb, err)
	return sign.Must(sign.NewKey(sign.KeyOptions{ID: "rsa"}, private))
}
