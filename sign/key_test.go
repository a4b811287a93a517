package sign_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
)

func TestKeysThatAreRefused(t *testing.T) {
	good := bytes.Repeat([]byte("ab"), 16)
	for name, c := range map[string]struct {
		fault string
		make  func() (*sign.Key, error)
	}{
		"no secret":       {"has 0 bytes; at least 32", func() (*sign.Key, error) { return sign.NewHMACKey(sign.KeyOptions{ID: "k"}, nil) }},
		"short secret":    {"has 31 bytes; at least 32", func() (*sign.Key, error) { return sign.NewHMACKey(sign.KeyOptions{ID: "k"}, good[:31]) }},
		"zeros":           {"one byte repeated", func() (*sign.Key, error) { return sign.NewHMACKey(sign.KeyOptions{ID: "k"}, make([]byte, 32)) }},
		"no id":           {"KeyOptions.ID: must be 1 to 128", func() (*sign.Key, error) { return sign.NewHMACKey(sign.KeyOptions{ID: ""}, good) }},
		"long id":         {"KeyOptions.ID: must be 1 to 128", func() (*sign.Key, error) { return sign.NewHMACKey(sign.KeyOptions{ID: strings.Repeat("k", 129)}, good) }},
		"id of two lines": {"KeyOptions.ID: must be 1 to 128", func() (*sign.Key, error) { return sign.NewHMACKey(sign.KeyOptions{ID: "a\nb"}, good) }},
		"a long owner": {"KeyOptions.Owner: must be 1 to 128", func() (*sign.Key, error) {
			return sign.NewHMACKey(sign.KeyOptions{ID: "k", Owner: strings.Repeat("k", 129)}, good)
		}},
		"never valid": {"KeyOptions.ValidUntil: is not after ValidFrom", func() (*sign.Key, error) {
			return sign.NewHMACKey(sign.KeyOptions{ID: "k", ValidFrom: now, ValidUntil: now}, good)
		}},
		"nothing":    {"is a <nil>", func() (*sign.Key, error) { return sign.NewKey(sign.KeyOptions{ID: "k"}, nil) }},
		"a string":   {"is a string", func() (*sign.Key, error) { return sign.NewKey(sign.KeyOptions{ID: "k"}, "secret") }},
		"half a key": {"has 16 bytes", func() (*sign.Key, error) { return sign.NewKey(sign.KeyOptions{ID: "k"}, ed25519.PublicKey(good[:16])) }},
		"a short private key": {"is not a whole private key", func() (*sign.Key, error) {
			return sign.NewKey(sign.KeyOptions{ID: "k"}, ed25519.PrivateKey(good[:16]))
		}},
		"nil pointers": {"is not on the curve P-256", func() (*sign.Key, error) { return sign.NewKey(sign.KeyOptions{ID: "k"}, (*ecdsa.PublicKey)(nil)) }},
		"nil private":  {"is not a whole private key", func() (*sign.Key, error) { return sign.NewKey(sign.KeyOptions{ID: "k"}, (*rsa.PrivateKey)(nil)) }},
		"no point of the curve": {"is not on the curve P-256", func() (*sign.Key, error) {
			return sign.NewKey(sign.KeyOptions{ID: "k"}, &ecdsa.PublicKey{Curve: elliptic.P256()})
		}},
		"another point": {"is not on the curve P-256", func() (*sign.Key, error) {
			//lint:ignore SA1019 only so can a point be made that is on no curve
			return sign.NewKey(sign.KeyOptions{ID: "k"}, &ecdsa.PublicKey{Curve: elliptic.P256(), X: big.NewInt(1), Y: big.NewInt(1)})
		}},
		"an exponent of one": {"proves nothing", func() (*sign.Key, error) {
			return sign.NewKey(sign.KeyOptions{ID: "k"}, &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 2047), E: 1})
		}},
		"an even exponent": {"proves nothing", func() (*sign.Key, error) {
			return sign.NewKey(sign.KeyOptions{ID: "k"}, &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 2047), E: 65536})
		}},
		"a webhook's point of small order": {"small order", func() (*sign.Key, error) {
			return sign.NewStandardWebhooksKey(sign.KeyOptions{ID: "k"}, "whpk_"+base64.StdEncoding.EncodeToString(make([]byte, 32)))
		}},
		"another curve": {"is not on the curve P-256", func() (*sign.Key, error) {
			k, _ := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
			return sign.NewKey(sign.KeyOptions{ID: "k"}, k)
		}},
		"no point": {"small order", func() (*sign.Key, error) { return sign.NewKey(sign.KeyOptions{ID: "k"}, make(ed25519.PublicKey, 32)) }},
		"a small order": {"small order", func() (*sign.Key, error) {
			// The order is 8; with the sign bit of x.
			point, _ := hex.DecodeString("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa")
			return sign.NewKey(sign.KeyOptions{ID: "k"}, ed25519.PublicKey(point))
		}},
		"a small modulus": {"has less than 2048 bits", func() (*sign.Key, error) {
			return sign.NewKey(sign.KeyOptions{ID: "k"}, &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 1023), E: 65537})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			k, err := c.make()
			require.ErrorContains(t, err, c.fault)
			require.Nil(t, k)
			var config *sign.ConfigError
			require.ErrorAs(t, err, &config)
			require.Panics(t, func() { sign.Must(k, err) })
		})
	}
}

func TestSignAndVerify(t *testing.T) {
	edSigner, edVerifier := newEd25519(t)
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	rs, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	secret := newHMAC(t, "h")
	message := []byte("message")
	for _, c := range []struct {
		signer, verifier *sign.Key
		algorithm        sign.Algorithm
		length           int
	}{
		{secret, secret, "hmac-sha256", 32},
		{edSigner, edVerifier, "ed25519", 64},
		{sign.Must(sign.NewKey(sign.KeyOptions{ID: "e"}, ec)), sign.Must(sign.NewKey(sign.KeyOptions{ID: "e"}, &ec.PublicKey)), "ecdsa-p256-sha256", 64},
		{sign.Must(sign.NewKey(sign.KeyOptions{ID: "r"}, rs)), sign.Must(sign.NewKey(sign.KeyOptions{ID: "r"}, &rs.PublicKey)), "rsa-pss-sha512", 256},
	} {
		t.Run(string(c.algorithm), func(t *testing.T) {
			require.Equal(t, c.algorithm, c.verifier.Algorithm())
			signature, err := c.signer.Sign(message)
			require.NoError(t, err)
			require.Len(t, signature, c.length)
			require.True(t, c.verifier.Verify(message, signature))
			require.True(t, c.signer.Verify(message, signature))
			require.False(t, c.verifier.Verify([]byte("Message"), signature))
			require.False(t, c.verifier.Verify(nil, signature))
			for _, wrong := range [][]byte{
				nil, {}, signature[:len(signature)-1], append(bytes.Clone(signature), 0), make([]byte, c.length), bytes.Repeat([]byte{0xff}, c.length),
			} {
				require.False(t, c.verifier.Verify(message, wrong))
			}
			for _, i := range []int{0, c.length / 2, c.length - 1} {
				flipped := bytes.Clone(signature)
				flipped[i] ^= 1
				require.False(t, c.verifier.Verify(message, flipped))
			}
			if c.signer != c.verifier {
				_, err = c.verifier.Sign(message)
				require.ErrorContains(t, err, "no private part")
			}
		})
	}
}

// An ECDSA signature is two numbers of 32 bytes (RFC 9421, section 3.3.4). The same numbers in more or fewer bytes
// are no signature: nobody can make another text of one that he has seen.
func TestECDSASignaturesHaveOneLength(t *testing.T) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	key := sign.Must(sign.NewKey(sign.KeyOptions{ID: "e"}, private))
	message := []byte("message")
	var signature []byte
	for signature == nil || signature[32] != 0 { // one of 256 has a second number of 31 bytes
		signature, err = key.Sign(message)
		require.NoError(t, err)
	}
	require.True(t, key.Verify(message, signature))
	for name, wrong := range map[string][]byte{
		"a zero before the second number":   slices.Insert(slices.Clone(signature), 32, 0),
		"without the second number's zero":  slices.Delete(slices.Clone(signature), 32, 33),
		"a byte behind it":                  append(slices.Clone(signature), 0),
		"another signature behind it":       slices.Repeat(signature, 2),
		"a zero before each of the numbers": slices.Concat([]byte{0}, signature[:32], []byte{0}, signature[32:]),
	} {
		require.False(t, key.Verify(message, wrong), name)
	}
}

// The state that a key keeps between messages must not pass from one to another.
func TestKeysAreUsedConcurrently(t *testing.T) {
	key := newHMAC(t, "demo")
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 200 {
				message := fmt.Appendf(nil, "%d-%d", i, j)
				signature, err := key.Sign(message)
				if err != nil || !key.Verify(message, signature) || key.Verify(append(message, 'x'), signature) {
					t.Errorf("%s: %x, %v", message, signature, err)
				}
			}
		})
	}
	all.Wait()
}

func TestTheSecretIsCopied(t *testing.T) {
	secret := []byte(designSecret)
	key := sign.Must(sign.NewHMACKey(sign.KeyOptions{ID: "demo"}, secret))
	clear(secret)
	before, err := key.Sign([]byte("m"))
	require.NoError(t, err)
	other, err := sign.Must(sign.NewHMACKey(sign.KeyOptions{ID: "demo"}, []byte(designSecret))).Sign([]byte("m"))
	require.NoError(t, err)
	require.Equal(t, other, before)
}

// Ids come out of messages, and frameworks use the memory of these again.
func TestTheIDIsCopied(t *testing.T) {
	id := []byte("alice")
	key := sign.Must(sign.NewHMACKey(sign.KeyOptions{ID: unsafe.String(&id[0], len(id))}, []byte(designSecret)))
	ring := sign.Must(sign.NewRing(key))
	ring.Revoke(unsafe.String(&id[0], len(id)))
	copy(id, "bobby")
	require.Equal(t, "alice", key.ID())
	_, err := ring.Keys(t.Context(), "alice")
	require.ErrorIs(t, err, sign.ReasonRevokedKey)
}

func TestOwners(t *testing.T) {
	public, _, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	for name, make := range map[string]func(sign.KeyOptions) (*sign.Key, error){
		"HMAC":    func(o sign.KeyOptions) (*sign.Key, error) { return sign.NewHMACKey(o, []byte(designSecret)) },
		"Ed25519": func(o sign.KeyOptions) (*sign.Key, error) { return sign.NewKey(o, public) },
		"sender":  func(o sign.KeyOptions) (*sign.Key, error) { return sign.NewSenderKey(o, designSecret) },
		"webhook": func(o sign.KeyOptions) (*sign.Key, error) {
			return sign.NewStandardWebhooksKey(o, "whpk_"+base64.StdEncoding.EncodeToString(public))
		},
	} {
		require.Equal(t, "k-2", sign.Must(make(sign.KeyOptions{ID: "k-2"})).Owner(), name)
		owner := []byte("acme")
		key := sign.Must(make(sign.KeyOptions{ID: "k-2", Owner: unsafe.String(&owner[0], len(owner))}))
		copy(owner, "evil")
		require.Equal(t, "acme", key.Owner(), "it is copied: %s", name)
		require.Equal(t, "k-2", key.ID(), name)
	}
}

// A nil *Error becomes an error that is not nil, by Go's rules: it refuses, and nothing panics.
func TestANilErrorRefuses(t *testing.T) {
	nobody := keyFunc(func(context.Context, string) ([]*sign.Key, error) {
		return []*sign.Key{newHMAC(t, "demo")}, (*sign.Error)(nil)
	})
	v := sign.Must(sign.NewVerifier(sign.Config{Keys: nobody}))
	r := signedRequest(t, newHMAC(t, "demo"), sign.RequestOptions{})
	_, err := v.Verify(t.Context(), fixture.Message(r))
	require.ErrorIs(t, err, sign.CodeStoreUnavailable)
	require.ErrorContains(t, err, "a nil *Error")
	require.NotErrorIs(t, (*sign.Error)(nil), sign.CodeInvalid)
	require.NoError(t, errors.Unwrap((*sign.Error)(nil)))
}

func TestZeroValues(t *testing.T) {
	_, err := new(sign.Key).Sign(nil)
	require.ErrorContains(t, err, "was not made")
	require.False(t, new(sign.Key).Verify(nil, nil))
	ring := new(sign.Ring)
	ring.Revoke("a")
	b := newHMAC(t, "b")
	require.NoError(t, ring.Add(b))
	require.Equal(t, []*sign.Key{b}, keysOf(t, ring, "b"))
	_, err = ring.Keys(t.Context(), "a")
	require.ErrorIs(t, err, sign.ReasonRevokedKey)
	unused, err := new(sign.MemoryNonces).Use(t.Context(), "k", "n", time.Minute)
	require.NoError(t, err)
	require.True(t, unused)
	_, err = new(sign.MemoryNonces).Use(t.Context(), "k", "n", 0)
	require.ErrorContains(t, err, "no time")
	require.Equal(t, 401, sign.Must(sign.NewVerifier(sign.Config{Keys: ring})).Answer(t.Context(), (*sign.Error)(nil)).Status)
	require.ErrorContains(t, sign.Request(new(http.Request), newHMAC(t, "k"), sign.RequestOptions{}), "no URL")
}

// Package fmt goes past methods for unexported fields, and through one pointer for a verb that is none of a pointer's.
func TestKeysPrintWithoutTheirSecrets(t *testing.T) {
	seed := []byte(designSecret)
	curve, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), seed)
	require.NoError(t, err)
	modulus, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	for kind, key := range map[string]*sign.Key{
		"HMAC":    sign.Must(sign.NewHMACKey(sign.KeyOptions{ID: "demo"}, seed)),
		"sender":  sign.Must(sign.NewSenderKey(sign.KeyOptions{ID: "demo"}, designSecret)),
		"webhook": sign.Must(sign.NewStandardWebhooksKey(sign.KeyOptions{ID: "demo"}, "whsec_"+base64.StdEncoding.EncodeToString(seed))),
		"Ed25519": sign.Must(sign.NewKey(sign.KeyOptions{ID: "demo"}, ed25519.NewKeyFromSeed(seed))),
		"ECDSA":   sign.Must(sign.NewKey(sign.KeyOptions{ID: "demo"}, curve)),
		"RSA":     sign.Must(sign.NewKey(sign.KeyOptions{ID: "demo"}, modulus)),
	} {
		key.Verify(seed, seed) // so that it has prepared what it keeps
		ring := sign.Must(sign.NewRing(key))
		var printed strings.Builder
		for _, v := range []any{
			key, ring, sign.Must(sign.NewVerifier(sign.Config{Keys: ring})), &sign.Transport{Key: key}, []*sign.Key{key}, map[string]*sign.Key{"": key},
			struct{ Key *sign.Key }{key}, struct{ key *sign.Key }{key}, struct{ keys []*sign.Key }{[]*sign.Key{key}}, struct{ keys sign.KeyStore }{ring},
		} {
			for _, verb := range strings.Fields("%v %+v %#v %s %q %x %X %d") {
				fmt.Fprintf(&printed, verb, v)
			}
			_ = json.NewEncoder(&printed).Encode(v)
			slog.New(slog.NewTextHandler(&printed, nil)).Info("", "v", v)
			slog.New(slog.NewJSONHandler(&printed, nil)).Info("", "v", v)
		}
		for _, secret := range []any{seed[:8], seed[24:], modulus.D.Bits()[:1], modulus.Primes[0].Bits()[:1], new(big.Int).SetBytes(seed).Bits()[:1]} {
			for _, format := range []string{"%s", "%d", "%x", "%X", "%#v"} {
				text := fmt.Sprintf(format, secret)
				if _, inner, ok := strings.Cut(text, "{"); ok {
					text = inner
				}
				require.False(t, strings.Contains(printed.String(), strings.Trim(text, "[]{}")), "%s, %s", kind, format)
			}
		}
		require.Equal(t, "demo ("+string(key.Algorithm())+")", fmt.Sprint(key))
	}
}

func keysOf(t *testing.T, ring *sign.Ring, id string) []*sign.Key {
	t.Helper()
	keys, err := ring.Keys(t.Context(), id)
	require.NoError(t, err)
	return keys
}

func TestRing(t *testing.T) {
	a, b := newHMAC(t, "a"), newHMAC(t, "b")
	ring, err := sign.NewRing(a, b)
	require.NoError(t, err)
	require.Equal(t, []*sign.Key{a}, keysOf(t, ring, "a"))
	require.Equal(t, []*sign.Key{b}, keysOf(t, ring, "b"))
	second := newHMAC(t, "a")
	require.NoError(t, ring.Add(second))
	before := keysOf(t, ring, "a")
	require.Equal(t, []*sign.Key{a, second}, before)

	ring.Remove(a)
	ring.Remove(a)
	ring.Remove(nil)
	require.Equal(t, []*sign.Key{second}, keysOf(t, ring, "a"))
	require.Equal(t, []*sign.Key{a, second}, before, "what was handed out does not change")

	ring.Remove(second)
	_, err = ring.Keys(t.Context(), "a")
	require.ErrorIs(t, err, sign.ReasonUnknownKey)
	require.NoError(t, ring.Add(a))

	ring.Revoke("a")
	_, err = ring.Keys(t.Context(), "a")
	require.ErrorIs(t, err, sign.ReasonRevokedKey)
	require.ErrorIs(t, ring.Add(second), sign.ReasonRevokedKey)
	require.Equal(t, []*sign.Key{b}, keysOf(t, ring, "b"))

	for range 7 {
		require.NoError(t, ring.Add(newHMAC(t, "b")))
	}
	require.ErrorContains(t, ring.Add(newHMAC(t, "b")), "too many keys")
	_, err = sign.NewRing(a, nil)
	require.Error(t, err)
	require.Panics(t, func() { sign.Must(sign.NewRing(nil)) })
}

func TestARingIsChangedWhileItIsUsed(t *testing.T) {
	key := newHMAC(t, "demo")
	ring := sign.Must(sign.NewRing(key))
	v := sign.Must(sign.NewVerifier(sign.Config{Keys: ring}))
	var all sync.WaitGroup
	stop := make(chan struct{})
	all.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			other := sign.Must(sign.NewHMACKey(sign.KeyOptions{ID: "demo", ValidUntil: time.Now().Add(time.Hour)}, fmt.Appendf(nil, "a%031d", i)))
			if err := ring.Add(other); err != nil {
				t.Error(err)
			}
			ring.Remove(other)
			ring.Revoke(fmt.Sprint(i % 100))
		}
	})
	for range 200 {
		_, err := v.Verify(t.Context(), fixture.Message(signedRequest(t, key, sign.RequestOptions{})))
		require.NoError(t, err)
	}
	close(stop)
	all.Wait()
}
