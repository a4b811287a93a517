package sign_test

import (
	"bytes"
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
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
	"github.com/idem-go/idem/sign/signtest"
	"github.com/idem-go/idem/sign/webhook"
)

func TestKeysThatAreRefused(t *testing.T) {
	good := []byte(designSecret)
	hmac := func(o sign.KeyConfig, secret []byte) error { return errorOf(sign.NewHMACKey(o, secret)) }
	key := func(material any) error { return errorOf(sign.NewKey(sign.KeyConfig{ID: "k"}, material)) }
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	require.NoError(t, err)
	smallOrder, err := hex.DecodeString("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa") // 8, with the sign bit of x
	require.NoError(t, err)
	modulus := func(bits uint) *big.Int { return new(big.Int).Lsh(big.NewInt(1), bits-1) }
	for name, c := range map[string]struct {
		problem string
		err     error
	}{
		"no secret":      {"has 0 bytes; at least 32", hmac(sign.KeyConfig{ID: "k"}, nil)},
		"a short secret": {"has 31 bytes; at least 32", hmac(sign.KeyConfig{ID: "k"}, good[:31])},
		"zeros":          {"one byte repeated", hmac(sign.KeyConfig{ID: "k"}, make([]byte, 32))},
		"no id":          {"KeyConfig.ID: must be 1 to 128", hmac(sign.KeyConfig{}, good)},
		"a long id":      {"KeyConfig.ID: must be 1 to 128", hmac(sign.KeyConfig{ID: strings.Repeat("k", 129)}, good)},
		"a long owner":   {"KeyConfig.Owner: must be 1 to 128", hmac(sign.KeyConfig{ID: "k", Owner: strings.Repeat("k", 129)}, good)},
		"never valid": {"KeyConfig.ValidUntil: is not after ValidFrom",
			hmac(sign.KeyConfig{ID: "k", ValidFrom: now, ValidUntil: now}, good)},
		"nothing":             {"is a <nil>", key(nil)},
		"a string":            {"is a string", key("secret")},
		"half a key":          {"has 16 bytes", key(ed25519.PublicKey(good[:16]))},
		"half a private key":  {"is not a complete private key", key(ed25519.PrivateKey(good[:16]))},
		"a nil public key":    {"is not on the curve P-256", key((*ecdsa.PublicKey)(nil))},
		"a nil private key":   {"is not a complete private key", key((*rsa.PrivateKey)(nil))},
		"a nil ECDSA key":     {"is not a complete private key", key((*ecdsa.PrivateKey)(nil))},
		"an empty ECDSA key":  {"is not a complete private key", key(new(ecdsa.PrivateKey))},
		"an empty RSA key":    {"is not a complete private key", key(new(rsa.PrivateKey))},
		"a nil RSA key":       {"has less than 2048 bits", key((*rsa.PublicKey)(nil))},
		"an RSA key of zeros": {"has less than 2048 bits", key(new(rsa.PublicKey))},
		"no point":            {"is not on the curve P-256", key(&ecdsa.PublicKey{Curve: elliptic.P256()})},
		"a point on no curve": {"is not on the curve P-256",
			//lint:ignore SA1019 only so can a point be made that is on no curve
			key(&ecdsa.PublicKey{Curve: elliptic.P256(), X: big.NewInt(1), Y: big.NewInt(1)})},
		"another curve":      {"is not on the curve P-256", key(p384)},
		"an exponent of one": {"even or less than 3", key(&rsa.PublicKey{N: modulus(2048), E: 1})},
		"an even exponent":   {"even or less than 3", key(&rsa.PublicKey{N: modulus(2048), E: 65536})},
		"a small modulus":    {"has less than 2048 bits", key(&rsa.PublicKey{N: modulus(2047), E: 65537})},
		"a point of order 4": {"small order", key(make(ed25519.PublicKey, 32))},
		"a point of order 8": {"small order", key(ed25519.PublicKey(smallOrder))},
		"a webhook's of order 4": {"small order",
			errorOf(webhook.NewStandardKey(sign.KeyConfig{ID: "k"}, "whpk_"+base64.StdEncoding.EncodeToString(make([]byte, 32))))},
	} {
		require.ErrorContains(t, c.err, c.problem, name)
		var config *sign.ConfigError
		require.ErrorAs(t, c.err, &config, name)
	}
	_, err = sign.NewHMACKey(sign.KeyConfig{}, nil)
	require.Equal(t, []string{"secret", "KeyConfig.ID"}, fixture.ConfigErrors(t, err))
	require.NoError(t, key(&rsa.PublicKey{N: modulus(2048), E: 3}))
	require.Panics(t, func() { sign.Must(sign.NewHMACKey(sign.KeyConfig{}, nil)) })
}

func errorOf(key *sign.Key, err error) error {
	if key != nil && err != nil {
		return errors.New("there are a key and an error")
	}
	return err
}

func TestSignAndVerify(t *testing.T) {
	message := []byte("message")
	for algorithm, length := range map[sign.Algorithm]int{"hmac-sha256": 32, "ed25519": 64,
		"ecdsa-p256-sha256": 64, "rsa-pss-sha512": 256} {
		t.Run(string(algorithm), func(t *testing.T) {
			pair := fixture.Pairs("k")[algorithm]
			signer, verifier := pair[0], pair[1]
			require.Equal(t, algorithm, verifier.Algorithm())
			signature, err := signer.Sign(message)
			require.NoError(t, err)
			require.Len(t, signature, length)
			require.True(t, verifier.Verify(message, signature))
			require.True(t, signer.Verify(message, signature))
			require.False(t, verifier.Verify([]byte("Message"), signature))
			require.False(t, verifier.Verify(nil, signature))
			for _, wrong := range [][]byte{
				nil, {}, signature[:len(signature)-1], append(bytes.Clone(signature), 0), make([]byte, length),
				bytes.Repeat([]byte{0xff}, length),
			} {
				require.False(t, verifier.Verify(message, wrong))
			}
			for _, i := range []int{0, length / 2, length - 1} {
				flipped := bytes.Clone(signature)
				flipped[i] ^= 1
				require.False(t, verifier.Verify(message, flipped))
			}
			if signer != verifier {
				_, err = verifier.Sign(message)
				require.ErrorContains(t, err, "no private part")
			}
		})
	}
}

// An ECDSA signature is two numbers of 32 bytes (RFC 9421, section 3.3.4). The same numbers in more or fewer bytes are no
// signature: nobody can make another text of one.
func TestECDSASignaturesHaveOneLength(t *testing.T) {
	key, _ := fixture.Pair("e", fixture.Private().ECDSA)
	var signature []byte
	var err error
	for signature == nil || signature[32] != 0 { // one of 256 has a second number of 31 bytes
		signature, err = key.Sign([]byte("message"))
		require.NoError(t, err)
	}
	for _, wrong := range [][]byte{
		slices.Insert(slices.Clone(signature), 32, 0), slices.Delete(slices.Clone(signature), 32, 33), slices.Repeat(signature, 2),
		slices.Concat([]byte{0}, signature[:32], []byte{0}, signature[32:]),
	} {
		require.False(t, key.Verify([]byte("message"), wrong), "%d bytes", len(wrong))
	}
}

// Secrets are cleared by their owners, and ids come out of messages, whose memory frameworks use again.
func TestKeysCopyWhatTheyAreMadeOf(t *testing.T) {
	public, _, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	for name, newKey := range map[string]func(sign.KeyConfig, []byte) (*sign.Key, error){
		"HMAC":    sign.NewHMACKey,
		"Ed25519": func(o sign.KeyConfig, _ []byte) (*sign.Key, error) { return sign.NewKey(o, public) },
		"sender": func(o sign.KeyConfig, secret []byte) (*sign.Key, error) {
			return webhook.NewSenderKey(o, string(secret))
		},
		"webhook": func(o sign.KeyConfig, _ []byte) (*sign.Key, error) {
			return webhook.NewStandardKey(o, "whpk_"+base64.StdEncoding.EncodeToString(public))
		},
	} {
		id, owner, secret := []byte("alice"), []byte("acme"), []byte(designSecret)
		require.Equal(t, "k-2", sign.Must(newKey(sign.KeyConfig{ID: "k-2"}, secret)).Owner(), name)
		key := sign.Must(newKey(sign.KeyConfig{ID: unsafe.String(&id[0], len(id)), Owner: unsafe.String(&owner[0], len(owner))}, secret))
		ring := sign.Must(sign.NewRing(key))
		ring.Revoke(unsafe.String(&id[0], len(id)))
		copy(id, "bobby")
		copy(owner, "evil")
		clear(secret)
		require.Equal(t, "alice", key.ID(), name)
		require.Equal(t, "acme", key.Owner(), name)
		_, err := ring.Keys(t.Context(), "alice")
		require.ErrorIs(t, err, sign.ReasonRevokedKey)
		if signature, err := key.Sign([]byte("m")); err == nil {
			require.True(t, sign.Must(sign.NewHMACKey(sign.KeyConfig{ID: "k"}, []byte(designSecret))).Verify([]byte("m"), signature), name)
		}
	}
}

func TestZeroValues(t *testing.T) {
	_, err := new(sign.Key).Sign(nil)
	require.ErrorContains(t, err, "was not made")
	require.False(t, new(sign.Key).Verify(nil, nil))
	ring := new(sign.Ring)
	ring.Revoke("a")
	require.NoError(t, ring.Add(signtest.Bob))
	require.Equal(t, []*sign.Key{signtest.Bob}, keysOf(t, ring, "bob"))
	_, err = ring.Keys(t.Context(), "a")
	require.ErrorIs(t, err, sign.ReasonRevokedKey)
}

// Package fmt goes past methods for unexported fields, and through one pointer for a verb that is none of a pointer's.
func TestKeysPrintWithoutTheirSecrets(t *testing.T) {
	seed := []byte(designSecret)
	curve, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), seed)
	require.NoError(t, err)
	modulus := fixture.Private().RSA
	for kind, key := range map[string]*sign.Key{
		"HMAC":    sign.Must(sign.NewHMACKey(sign.KeyConfig{ID: "demo"}, seed)),
		"sender":  sign.Must(webhook.NewSenderKey(sign.KeyConfig{ID: "demo"}, designSecret)),
		"webhook": sign.Must(webhook.NewStandardKey(sign.KeyConfig{ID: "demo"}, "whsec_"+base64.StdEncoding.EncodeToString(seed))),
		"Ed25519": sign.Must(sign.NewKey(sign.KeyConfig{ID: "demo"}, ed25519.NewKeyFromSeed(seed))),
		"ECDSA":   sign.Must(sign.NewKey(sign.KeyConfig{ID: "demo"}, curve)),
		"RSA":     sign.Must(sign.NewKey(sign.KeyConfig{ID: "demo"}, modulus)),
	} {
		key.Verify(seed, seed) // so that it has prepared what it keeps
		ring := sign.Must(sign.NewRing(key))
		var printed strings.Builder
		for _, v := range []any{
			key, ring, sign.Must(sign.NewVerifier(sign.Config{Keys: ring})), &sign.Transport{Key: key}, []*sign.Key{key},
			map[string]*sign.Key{"": key}, struct{ Key *sign.Key }{key}, struct{ key *sign.Key }{key},
			struct{ keys []*sign.Key }{[]*sign.Key{key}}, struct{ keys sign.KeyStore }{ring},
		} {
			for _, verb := range strings.Fields("%v %+v %#v %s %q %x %X %d") {
				fmt.Fprintf(&printed, verb, v)
			}
			_ = json.NewEncoder(&printed).Encode(v)
			slog.New(slog.NewTextHandler(&printed, nil)).Info("", "v", v)
			slog.New(slog.NewJSONHandler(&printed, nil)).Info("", "v", v)
		}
		for _, secret := range []any{seed[:8], seed[24:], modulus.D.Bits()[:1], modulus.Primes[0].Bits()[:1],
			new(big.Int).SetBytes(seed).Bits()[:1]} {
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
	a, second, b := fixture.HMAC("a"), fixture.HMAC("a"), signtest.Bob
	ring, err := sign.NewRing(a, b)
	require.NoError(t, err)
	require.NoError(t, ring.Add(second))
	before := keysOf(t, ring, "a")
	require.Equal(t, []*sign.Key{a, second}, before)

	for _, k := range []*sign.Key{a, a, nil} {
		ring.Remove(k)
	}
	require.Equal(t, []*sign.Key{second}, keysOf(t, ring, "a"))
	require.Equal(t, []*sign.Key{a, second}, before, "what was returned does not change")
	ring.Remove(second)
	_, err = ring.Keys(t.Context(), "a")
	require.ErrorIs(t, err, sign.ReasonUnknownKey)
	require.NoError(t, ring.Add(a))

	ring.Revoke("a")
	_, err = ring.Keys(t.Context(), "a")
	require.ErrorIs(t, err, sign.ReasonRevokedKey)
	require.ErrorIs(t, ring.Add(second), sign.ReasonRevokedKey)
	require.Equal(t, []*sign.Key{b}, keysOf(t, ring, "bob"))
	for range 7 {
		require.NoError(t, ring.Add(b))
	}
	require.ErrorContains(t, ring.Add(b), "too many keys")
	for _, keys := range [][]*sign.Key{{a, nil}, {nil}} {
		_, err = sign.NewRing(keys...)
		require.ErrorContains(t, err, "a key is nil")
	}
}
