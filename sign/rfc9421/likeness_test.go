package rfc9421

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
)

// working counts the signatures that were compared in earnest, by algorithm.
type working struct {
	sign.Scheme
	work map[sign.Algorithm]int
}

func (w *working) Check(m *sign.Message, s *sign.Signature, key *sign.Key) error {
	err := w.Scheme.Check(m, s, key)
	if errors.Is(err, sign.ReasonBadSignature) {
		w.work[key.Algorithm()]++
	}
	return err
}

// On a ring of all algorithms, a message takes the same work whatever key it names, known or not: how long it takes
// tells nobody which keys there are, nor of what kind they are.
func TestUnknownKeysTakeTheSameWork(t *testing.T) {
	pairs := fixture.Private()
	ring := sign.Must(sign.NewRing(fixture.HMAC("hmac")))
	for id, public := range map[string]any{"ed25519": pairs.Ed25519.Public(),
		"ecdsa": &pairs.ECDSA.PublicKey, "rsa": &pairs.RSA.PublicKey} {
		require.NoError(t, ring.Add(sign.Must(sign.NewKey(sign.KeyConfig{ID: id}, public))))
		require.NoError(t, ring.Add(sign.Must(sign.NewKey(sign.KeyConfig{ID: "expired", ValidUntil: fixture.Now}, public))))
	}
	ring.Revoke("revoked")
	scheme := &working{Scheme: newScheme(t, Config{})}
	v := fixture.Verifier(sign.Config{Keys: ring, Scheme: scheme})

	all := map[sign.Algorithm]int{sign.HMACSHA256: 1, sign.Ed25519: 1, sign.ECDSAP256SHA256: 1, sign.RSAPSSSHA512: 1}
	for alg, want := range map[string]map[sign.Algorithm]int{
		"":                         all,
		`;alg="hmac-sha256"`:       {sign.HMACSHA256: 1},
		`;alg="ed25519"`:           {sign.Ed25519: 1},
		`;alg="ecdsa-p256-sha256"`: {sign.ECDSAP256SHA256: 1},
		`;alg="rsa-pss-sha512"`:    {sign.RSAPSSSHA512: 1},
		`;alg="none"`:              {},
	} {
		for _, id := range []string{"ecdsa", "ed25519", "expired", "hmac", "rsa", "nobody", "revoked"} {
			m := testMessage()
			h := headerOf(m)
			h.Set("Content-Digest", digestOf(body200))
			h.Set("Signature-Input", `sig1=`+strictList+strings.Replace(strictParams, "demo", id, 1)+alg)
			h.Set("Signature", `sig1=:`+base64.StdEncoding.EncodeToString(make([]byte, 64))+`:`)
			scheme.work = make(map[sign.Algorithm]int)
			_, err := v.Verify(t.Context(), m)
			require.ErrorIs(t, err, sign.CodeInvalid)
			require.NotErrorIs(t, err, sign.ReasonUncovered)
			require.Equal(t, want, scheme.work, "%s%s", id, alg)
		}
	}
}
