package interop_test

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"net/http"
	"strings"
	"testing"
	"time"

	remitly "github.com/remitly-oss/httpsig-go"
	"github.com/stretchr/testify/require"
	"github.com/yaronf/httpsign"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
	"github.com/idem-go/idem/sign/rfc9421"
)

// components are what the profile of package rfc9421 demands, and the media type.
var components = []string{"@method", "@authority", "@path", "@query", "content-digest", "content-type"}

// tolerance is what the other side is told of time: nothing here depends on it.
const tolerance = time.Hour

// implementation is another implementation of RFC 9421, for one algorithm.
type implementation struct {
	sign   func(t *testing.T, r *http.Request)
	verify func(r *http.Request, body []byte) error
}

func yaronf(algorithm string) implementation {
	m := fixture.Private()
	signConfig := httpsign.NewSignConfig().SetKeyID("demo").SetNonce(rand.Text())
	verifyConfig := httpsign.NewVerifyConfig().SetKeyID("demo").SetNotOlderThan(tolerance).SetNotNewerThan(tolerance)
	fields := httpsign.Headers(components...)
	var signer *httpsign.Signer
	var verifier *httpsign.Verifier
	switch algorithm {
	case "hmac-sha256":
		signer = sign.Must(httpsign.NewHMACSHA256Signer([]byte(secret), signConfig, fields))
		verifier = sign.Must(httpsign.NewHMACSHA256Verifier([]byte(secret), verifyConfig, fields))
	case "ed25519":
		signer = sign.Must(httpsign.NewEd25519Signer(m.Ed25519, signConfig, fields))
		verifier = sign.Must(httpsign.NewEd25519Verifier(m.Ed25519.Public().(ed25519.PublicKey), verifyConfig, fields))
	case "ecdsa-p256-sha256":
		signer = sign.Must(httpsign.NewP256Signer(*m.ECDSA, signConfig, fields))
		verifier = sign.Must(httpsign.NewP256Verifier(m.ECDSA.PublicKey, verifyConfig, fields))
	case "rsa-pss-sha512":
		signer = sign.Must(httpsign.NewRSAPSSSigner(*m.RSA, signConfig, fields))
		verifier = sign.Must(httpsign.NewRSAPSSVerifier(m.RSA.PublicKey, verifyConfig, fields))
	}
	digests := []string{httpsign.DigestSha256}
	return implementation{
		sign: func(t *testing.T, r *http.Request) {
			digest, err := httpsign.GenerateContentDigestHeader(&r.Body, digests)
			require.NoError(t, err)
			r.Header.Set("Content-Digest", digest)
			input, signature, err := httpsign.SignRequest("sig1", *signer, r)
			require.NoError(t, err)
			r.Header.Set("Signature-Input", input)
			r.Header.Set("Signature", signature)
		},
		verify: func(r *http.Request, _ []byte) error {
			if err := httpsign.ValidateContentDigestHeader(r.Header.Values("Content-Digest"), &r.Body, digests); err != nil {
				return err
			}
			return httpsign.VerifyRequest("sig1", *verifier, r)
		},
	}
}

// oneKey is a [remitly.KeyFetcher] that has one key.
type oneKey struct{ remitly.KeySpec }

func (k oneKey) FetchByKeyID(context.Context, http.Header, string) (remitly.KeySpecer, error) {
	return k.KeySpec, nil
}

func (k oneKey) Fetch(context.Context, http.Header, remitly.MetadataProvider) (remitly.KeySpecer, error) {
	return k.KeySpec, nil
}

func remitlyOSS(algorithm string) implementation {
	m := fixture.Private()
	key := remitly.SigningKey{MetaKeyID: "demo"}
	spec := remitly.KeySpec{KeyID: "demo", Algo: remitly.Algorithm(algorithm)}
	switch algorithm {
	case "hmac-sha256":
		key.Secret, spec.Secret = []byte(secret), []byte(secret)
	case "ed25519":
		key.Key, spec.PubKey = m.Ed25519, m.Ed25519.Public()
	case "ecdsa-p256-sha256":
		key.Key, spec.PubKey = m.ECDSA, &m.ECDSA.PublicKey
	case "rsa-pss-sha512":
		key.Key, spec.PubKey = m.RSA, &m.RSA.PublicKey
	}
	return implementation{
		sign: func(t *testing.T, r *http.Request) {
			require.NoError(t, remitly.Sign(r, remitly.SigningProfile{
				Algorithm: remitly.Algorithm(algorithm), Digest: remitly.DigestSHA256, Fields: remitly.Fields(components...),
				Metadata: []remitly.Metadata{remitly.MetaCreated, remitly.MetaKeyID, remitly.MetaAlgorithm, remitly.MetaNonce},
			}, key))
		},
		verify: func(r *http.Request, _ []byte) error {
			_, err := remitly.Verify(r, oneKey{spec}, remitly.VerifyProfile{
				SignatureLabel: "sig1", RequiredFields: remitly.Fields(components...), CreatedValidDuration: tolerance,
				RequiredMetadata: []remitly.Metadata{remitly.MetaCreated, remitly.MetaKeyID, remitly.MetaNonce},
			})
			return err
		},
	}
}

// differs reports what the other implementation does otherwise than the RFC says. We refuse it, and it refuses us.
func differs(name, algorithm, host, target string, theySign bool) bool {
	switch {
	case host != "": // section 2.2.3: a host is in lower case, and has no default port
		return true
	case target == "": // section 2.2.6: an empty path is a slash; only a client sees that there is none
		return theySign
	}
	switch name {
	case "yaronf": // section 3.3.1: the salt has 64 bytes; its signer takes the longest there is, and its verifier any
		return algorithm == "rsa-pss-sha512" && theySign
	case "remitly-oss": // section 2.2.6: the path is not decoded
		return strings.Contains(target, "%")
	}
	return false
}

// What one implementation of RFC 9421 signs the other one verifies, over TCP.
func TestMessageSignatures(t *testing.T) {
	pairs := keyPairs()
	scheme := sign.Must(rfc9421.New(rfc9421.Config{}))
	for name, implemented := range map[string]func(algorithm string) implementation{"yaronf": yaronf, "remitly-oss": remitlyOSS} {
		for _, algorithm := range algorithms {
			pair, peer := pairs[sign.Algorithm(algorithm)], implemented(algorithm)
			for path, to := range map[string]struct{ host, target string }{
				"plain": {"", "/hooks"}, "with a query": {"", "/hooks?x=2&x=1"}, "escaped": {"", "/a%2Fb/hooks"},
				"no path": {"", ""}, "a default port": {"api.example.com:80", "/hooks"}, "capitals": {"API.example.com", "/hooks"},
			} {
				t.Run(name+"/"+algorithm+"/"+path+"/they sign", func(t *testing.T) {
					r := newRequest(t, ours(t, sign.Must(sign.NewVerifier(sign.Config{
						Keys: sign.Must(sign.NewRing(pair[1])), Scheme: scheme, Window: tolerance,
					})))+to.target)
					r.Host = cmp.Or(to.host, r.Host)
					peer.sign(t, r)
					if differs(name, algorithm, to.host, to.target, true) {
						status, code := send(t, r, body)
						require.Equal(t, 401, status)
						require.Equal(t, "invalid", code)
						return
					}
					arrives(t, r, "replayed")
				})
				t.Run(name+"/"+algorithm+"/"+path+"/we sign", func(t *testing.T) {
					r := newRequest(t, theirs(t, peer.verify)+to.target)
					r.Host = cmp.Or(to.host, r.Host)
					require.NoError(t, sign.Request(r, pair[0], sign.RequestOptions{Scheme: scheme}))
					if differs(name, algorithm, to.host, to.target, false) {
						status, _ := send(t, r, body)
						require.Equal(t, 401, status)
						return
					}
					isUnderstood(t, r)
				})
			}
		}
	}
}
