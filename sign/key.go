package sign

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/sign/internal/form"
	"github.com/idem-go/idem/sign/internal/keys"
)

// Algorithm is the signature algorithm of a [Key], by its name in RFC 9421, section 6.2. A message cannot choose it.
type Algorithm string

// The algorithms.
const (
	HMACSHA256      Algorithm = "hmac-sha256"
	Ed25519         Algorithm = "ed25519"           // RFC 8032
	ECDSAP256SHA256 Algorithm = "ecdsa-p256-sha256" // a signature is r and s, 32 bytes each
	RSAPSSSHA512    Algorithm = "rsa-pss-sha512"    // with a salt of 64 bytes
)

const (
	// minSecret is the length of the shortest secret in bytes: that of an HMAC-SHA256 (RFC 2104, section 3).
	minSecret = 32
	// minRSA is the length of the shortest RSA modulus, in bits.
	minRSA = 2048
)

// Key is a shared secret, a key pair or a public key, with its id, its owner and its validity. It is safe for concurrent use.
// It must not be copied. Packages fmt, encoding/json and log/slog print neither its secret nor its private part, wherever it is
// held.
type Key struct {
	id, owner             string
	algorithm             Algorithm
	validFrom, validUntil time.Time
	purpose               string // see KeyConfig
	thumbprint            string // see Thumbprint

	material // what it is made of
}

// material is seen by the packages below this one.
type material = keys.Embedded

// KeyConfig has the name, the owner and the validity of a [Key].
type KeyConfig struct {
	// ID is the name that messages use for the key: 1 to 128 visible ASCII characters. It must be set.
	ID string
	// Owner is the party whose requests the key signs, also 1 to 128 visible ASCII characters. A guard inside the verifier uses the
	// owner as its user. Give a new key the owner of the key that it replaces, so that a retry signed with the new key is still a
	// retry. Empty: ID.
	Owner string
	// The key is valid from ValidFrom on and until just before ValidUntil, by the verifier's clock. The zero time sets no limit.
	ValidFrom, ValidUntil time.Time
	// Purpose is what the key is for, as its publisher says (AdCP: adcp_use). Schemes that require a purpose, such as rfc9421.AdCP,
	// accept no key with another purpose or with none. Empty: none.
	Purpose string
}

// NewHMACKey makes a key from a shared secret of at least 32 bytes. It copies the secret, and refuses one byte repeated. It
// reports all errors at once, each as a [*ConfigError].
func NewHMACKey(o KeyConfig, secret []byte) (*Key, error) {
	var errs configErrors
	errs.addIf(len(secret) < minSecret, "secret", "has %d bytes; at least %d are needed", len(secret), minSecret)
	errs.addIf(len(secret) >= minSecret && keys.IsRepeated(secret), "secret", "is one byte repeated")
	return newKey(errs, keys.NewSecret(string(HMACSHA256), bytes.Clone(secret)), o)
}

// NewKey makes a key from a public or private key of the standard library: ed25519.PublicKey, *ecdsa.PublicKey on P-256,
// *rsa.PublicKey of at least 2048 bits, or their private keys (ed25519.PrivateKey, *ecdsa.PrivateKey, *rsa.PrivateKey). A
// public key verifies, and does not sign. It reports all errors at once, each as a [*ConfigError].
func NewKey(o KeyConfig, material any) (*Key, error) {
	var errs configErrors
	whole := true // a private key that lacks a part would panic
	var private crypto.Signer
	public := material
	switch material := material.(type) {
	case *keys.Material: // of a package below this one
		return newKey(nil, material, o)
	case ed25519.PrivateKey:
		if whole = len(material) == ed25519.PrivateKeySize; whole {
			private = material
		}
	case *ecdsa.PrivateKey:
		//lint:ignore SA1019 a key without its private part is to be refused, and must not panic later
		if whole = material != nil && material.D != nil && material.Curve != nil; whole {
			private = material
		}
	case *rsa.PrivateKey:
		if whole = material != nil && material.D != nil && material.N != nil; whole {
			private = material
		}
	}
	if errs.addIf(!whole, "key", "is not a complete private key"); !whole {
		return nil, errs.err()
	}
	if private != nil {
		public = private.Public()
	}
	var algorithm Algorithm
	switch public := public.(type) {
	case ed25519.PublicKey:
		algorithm = Ed25519
		errs.addIf(len(public) != ed25519.PublicKeySize, "key", "has %d bytes; an Ed25519 key has %d", len(public), ed25519.PublicKeySize)
	case *ecdsa.PublicKey:
		algorithm = ECDSAP256SHA256
		errs.addIf(!isOnP256(public), "key", "is not on the curve P-256")
	case *rsa.PublicKey:
		algorithm = RSAPSSSHA512
		errs.addIf(public == nil || public.N == nil || public.N.BitLen() < minRSA, "key", "has less than %d bits", minRSA)
		errs.addIf(public != nil && (public.E < 3 || public.E%2 == 0), "key", "has an exponent that is even or less than 3")
	default:
		errs.addIf(true, "key", "is a %T; ed25519, *ecdsa and *rsa keys are known", material)
	}
	if private != nil {
		return newKey(errs, keys.NewPrivate(string(algorithm), private), o)
	}
	return newKey(errs, &keys.Material{Algorithm: string(algorithm), Public: public}, o)
}

func newKey(errs configErrors, m *keys.Material, o KeyConfig) (*Key, error) {
	for _, problem := range m.Problems {
		errs.addIf(true, "secret", "%s", problem)
	}
	if public, ok := m.Public.(ed25519.PublicKey); ok {
		errs.addIf(isSmallOrder(public), "key", "is a point of small order: anyone could sign for it")
	}
	errs.addIf(!isKeyID(o.ID), "KeyConfig.ID", "must be 1 to %d visible ASCII characters", form.MaxKeyID)
	errs.addIf(o.Owner != "" && !isKeyID(o.Owner), "KeyConfig.Owner", "must be 1 to %d visible ASCII characters", form.MaxKeyID)
	errs.addIf(!o.ValidUntil.IsZero() && !o.ValidFrom.Before(o.ValidUntil), "KeyConfig.ValidUntil", "is not after ValidFrom")
	if err := errs.err(); err != nil {
		return nil, err
	}
	return &Key{
		// A KeyStore may have made them of a message's id.
		id: strings.Clone(o.ID), owner: strings.Clone(cmp.Or(o.Owner, o.ID)),
		validFrom: o.ValidFrom, validUntil: o.ValidUntil, purpose: o.Purpose,
		algorithm: Algorithm(m.Algorithm), thumbprint: keys.Thumbprint(m.Public), material: keys.Embed(m),
	}, nil
}

func isKeyID(id string) bool { return form.CheckKeyID(id) == nil }

func isOnP256(public *ecdsa.PublicKey) bool {
	//lint:ignore SA1019 a key without its point is to be refused, and must not panic later
	if public == nil || public.Curve != elliptic.P256() || public.X == nil || public.Y == nil {
		return false
	}
	_, err := public.ECDH()
	return err == nil
}

// isSmallOrder reports whether an Ed25519 public key is one of the few points (and of their other
// spellings) whose multiples are all of a few: signatures for them need no private key.
func isSmallOrder(public ed25519.PublicKey) bool {
	if len(public) != ed25519.PublicKeySize {
		return false
	}
	y := [ed25519.PublicKeySize]byte(public)
	y[31] &= 0x7f // the sign of x
	return slices.Contains(smallOrder, hex.EncodeToString(y[:]))
}

// smallOrder are the y coordinates of the points whose order divides 8, and of those that are
// not reduced modulo p (RFC 8032, section 5.1).
var smallOrder = []string{
	"0000000000000000000000000000000000000000000000000000000000000000",
	"0100000000000000000000000000000000000000000000000000000000000000",
	"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
	"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
	"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
}

// ID returns the key's id.
func (k *Key) ID() string { return k.id }

// Owner returns the key's owner, see [KeyConfig].
func (k *Key) Owner() string { return k.owner }

// Purpose returns what the key is for, see [KeyConfig].
func (k *Key) Purpose() string { return k.purpose }

// Thumbprint returns the JWK SHA-256 Thumbprint of the public key in base64url (RFC 7638; RFC 8037, appendix A.3). It is empty
// for a shared secret. rfc9421.WebBotAuth wants it as the key's id.
func (k *Key) Thumbprint() string { return k.thumbprint }

// Algorithm returns the key's algorithm.
func (k *Key) Algorithm() Algorithm { return k.algorithm }

// Format implements [fmt.Formatter]. Every verb prints id and algorithm, so none prints the secret.
func (k *Key) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "%s (%s)", k.id, k.algorithm) }

var (
	errWebhookKey = errors.New("sign: a key for webhooks signs nothing else")
	errZeroKey    = errors.New("sign: the key was not made by one of this package's functions")
)

// Sign returns the key's signature of message. It returns an error if the key has no private part, or if it is a key of package
// sign/webhook, which signs webhooks only.
func (k *Key) Sign(message []byte) ([]byte, error) {
	m := keys.Of(k)
	switch {
	case m.Webhook:
		return nil, errWebhookKey
	case k.algorithm == "":
		return nil, errZeroKey
	}
	return m.Sign(message)
}

// Verify reports whether signature is the key's signature of message. HMACs are compared in constant time. For a key of package
// sign/webhook, which verifies webhooks only, Verify returns false.
func (k *Key) Verify(message, signature []byte) bool {
	m := keys.Of(k)
	return !m.Webhook && k.algorithm != "" && m.Verify(message, signature)
}
