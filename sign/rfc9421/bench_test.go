package rfc9421

import (
	"crypto/hmac"
	"crypto/sha256"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
)

// BenchmarkVerify is what it costs to verify a message with a body of 200 bytes, without the store.
func BenchmarkVerify(b *testing.B) {
	s := newScheme(b, Options{})
	for _, algorithm := range []string{"hmac-sha256", "ed25519", "ecdsa-p256-sha256", "rsa-pss-sha512"} {
		b.Run(algorithm, func(b *testing.B) {
			pair := keyPairs(b)[algorithm]
			signed := testMessage()
			signWith(b, s, signed, pair[0], "content-type")
			m := unread(signed)
			v := sign.MustVerifier(sign.Config{Keys: sign.MustRing(pair[1]), Scheme: s, Nonces: anyNonce{}, NonceQuota: math.MaxInt, MaxNonces: math.MaxInt, Clock: testClock})
			other := *m
			other.Method = "PUT"
			_, err := v.Verify(b.Context(), &other)
			require.ErrorIs(b, err, sign.ReasonBadSignature)
			b.ReportAllocs()
			for b.Loop() {
				again := *m
				if _, err := v.Verify(b.Context(), &again); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("the two hashes alone", func(b *testing.B) {
		m, key := testMessage(), hmacKey(b)
		signWith(b, s, m, key, "content-type")
		sig := new(sign.Signature)
		require.NoError(b, s.Parse(m, sig))
		base, body := sig.State.(*state).base, []byte(body200)
		mac := hmac.New(sha256.New, []byte(testSecret))
		var sum []byte
		b.ReportAllocs()
		for b.Loop() {
			digest := sha256.Sum256(body)
			mac.Reset()
			mac.Write(base)
			sum = mac.Sum(sum[:0])
			_ = digest
		}
	})
	b.Run("blanks", func(b *testing.B) { // which httpsfv has to bring into form
		m, key := testMessage(), hmacKey(b)
		signByHand(b, s, m, key, `sig1=`+strictList+`; created=1700000000; keyid="demo"; nonce="n-0123456789abcdef"`)
		v := sign.MustVerifier(sign.Config{Keys: sign.MustRing(key), Scheme: s, Nonces: anyNonce{}, NonceQuota: math.MaxInt, MaxNonces: math.MaxInt, Clock: testClock})
		b.ReportAllocs()
		for b.Loop() {
			again := *m
			if _, err := v.Verify(b.Context(), &again); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkSign(b *testing.B) {
	s, m, key := newScheme(b, Options{}), testMessage(), hmacKey(b)
	b.ReportAllocs()
	for b.Loop() {
		sig := sign.Signature{KeyID: "demo", Created: testTime, Nonce: testNonce, Covered: []string{"Content-Type"}}
		if _, err := s.Sign(m, &sig, key); err != nil {
			b.Fatal(err)
		}
	}
}
