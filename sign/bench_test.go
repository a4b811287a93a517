package sign_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
)

// anyNonce is a nonce store that costs nothing.
type anyNonce struct{}

func (anyNonce) Use(context.Context, string, string, time.Duration) (bool, error) { return true, nil }

func (anyNonce) Bounded() {}

// BenchmarkVerify is what it costs to verify a message with a body of 200 bytes, without the store.
func BenchmarkVerify(b *testing.B) {
	hmacKey := sign.MustKey(sign.NewHMACKey("demo", []byte(designSecret)))
	ed25519Signer, ed25519Verifier := newEd25519(b)
	for _, c := range []struct {
		name             string
		signer, verifier *sign.Key
	}{{"v1", hmacKey, hmacKey}, {"v1-ed25519", ed25519Signer, ed25519Verifier}} {
		b.Run(c.name, func(b *testing.B) {
			r := signedRequest(b, c.signer, nil)
			v := sign.MustVerifier(sign.Config{Keys: sign.MustRing(c.verifier), Nonces: anyNonce{}, NonceQuota: math.MaxInt, MaxNonces: math.MaxInt})
			m := fixture.Message(r)
			r.Header.Set("X-Nonce", "another-0123456789")
			_, err := v.Verify(b.Context(), fixture.Message(r))
			require.ErrorIs(b, err, sign.ReasonBadSignature)
			b.ReportAllocs()
			again := new(sign.Message) // adapters use theirs again
			for b.Loop() {
				*again = *m
				if _, err := v.Verify(b.Context(), again); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("the two hashes alone", func(b *testing.B) {
		body, base := []byte(body200), []byte(strings.Repeat("x", 300))
		mac := hmac.New(sha256.New, []byte(designSecret))
		var sum []byte
		b.ReportAllocs()
		for b.Loop() {
			digest := sha256.Sum256(body)
			mac.Reset()
			mac.Write(base)
			mac.Write(digest[:])
			sum = mac.Sum(sum[:0])
		}
	})
}

func BenchmarkSign(b *testing.B) {
	key := sign.MustKey(sign.NewHMACKey("demo", []byte(designSecret)))
	r, err := http.NewRequest("POST", "http://api.example.com/transfers/a%2Fb?x=2&x=1", strings.NewReader(body200))
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if err := sign.Request(r, key, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMemoryNonces(b *testing.B) {
	n := sign.NewMemoryNonces(1 << 20)
	nonces := make([]string, 1<<16)
	for i := range nonces {
		nonces[i] = newNonce()
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if unused, err := n.Use(b.Context(), "demo", nonces[i%len(nonces)], time.Nanosecond); err != nil || !unused && i < len(nonces) {
			b.Fatal(unused, err)
		}
		i++
	}
}
