package sign

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"math/big"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/idem-go/idem/sign/internal/form"
	"github.com/idem-go/idem/sign/internal/secret"
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
	webhook               bool   // the secret may be short, and signs nothing but webhooks
	purpose               string // see KeyConfig
	thumbprint            string // see Thumbprint
	published             string // the thumbprint of a key of a JWKSource, whose id another URL may also have; else empty

	secret  func() []byte // see hide; nil: there is none
	macs    sync.Pool     // of *keyed
	public  crypto.PublicKey
	private func() crypto.Signer // see hide; nil: the key only verifies
}

// hide returns a function that returns v. Package fmt prints of a function the address, and of everything else in an unexported
// field what it finds there, also through pointers, whatever methods it has.
func hide[T any](v T) func() T { return func() T { return v } }

// KeyConfig says what a [Key] is called, whose it is, and when it is valid.
type KeyConfig struct {
	// ID is the name by which messages call the key: 1 to 128 visible ASCII characters. It must be set.
	ID string
	// Owner is whose requests the key signs, likewise 1 to 128 visible ASCII characters. A guard inside the verifier uses the
	// owner as its user. Give a new key the owner of the key that it replaces, so that a retry signed with the new key is
	// still a retry. Empty: ID.
	Owner string
	// The key is valid from ValidFrom on and until just before ValidUntil, by the verifier's clock. The zero time sets no limit.
	ValidFrom, ValidUntil time.Time
	// Purpose is what the key is for, as its publisher says (AdCP: adcp_use). Schemes that ask for a purpose, such as
	// rfc9421.AdCP, accept no key of another one, or of none. Empty: none.
	Purpose string
}

// NewHMACKey makes a key from a shared secret of at least 32 bytes. It copies the secret, and refuses one byte repeated. It
// reports all errors at once, each as a [*ConfigError].
func NewHMACKey(o KeyConfig, secret []byte) (*Key, error) {
	var errs configErrors
	errs.addIf(len(secret) < minSecret, "secret", "has %d bytes; at least %d are needed", len(secret), minSecret)
	errs.addIf(len(secret) >= minSecret && isRepeated(secret), "secret", "is one byte repeated")
	return newKey(errs, &Key{algorithm: HMACSHA256, secret: hide(bytes.Clone(secret))}, o)
}

// NewKey makes a key from a public or private key of the standard library: ed25519.PublicKey, *ecdsa.PublicKey on P-256,
// *rsa.PublicKey of at least 2048 bits, or their private keys (ed25519.PrivateKey, *ecdsa.PrivateKey, *rsa.PrivateKey). A
// public key verifies, and does not sign. It reports all errors at once, each as a [*ConfigError].
func NewKey(o KeyConfig, material any) (*Key, error) {
	k := &Key{public: material}
	var errs configErrors
	whole := true // a private key that lacks a part would panic
	switch private := material.(type) {
	case ed25519.PrivateKey:
		if whole = len(private) == ed25519.PrivateKeySize; whole {
			k.private, k.public = hide[crypto.Signer](private), private.Public()
		}
	case *ecdsa.PrivateKey:
		//lint:ignore SA1019 a key without its private part is to be refused, and must not panic later
		if whole = private != nil && private.D != nil && private.Curve != nil; whole {
			k.private, k.public = hide[crypto.Signer](private), &private.PublicKey
		}
	case *rsa.PrivateKey:
		if whole = private != nil && private.D != nil && private.N != nil; whole {
			k.private, k.public = hide[crypto.Signer](private), &private.PublicKey
		}
	}
	if errs.addIf(!whole, "key", "is not a whole private key"); !whole {
		return nil, errs.err()
	}
	switch public := k.public.(type) {
	case ed25519.PublicKey:
		k.algorithm = Ed25519
		errs.addIf(len(public) != ed25519.PublicKeySize, "key", "has %d bytes; an Ed25519 key has %d", len(public), ed25519.PublicKeySize)
	case *ecdsa.PublicKey:
		k.algorithm = ECDSAP256SHA256
		errs.addIf(!isOnP256(public), "key", "is not on the curve P-256")
	case *rsa.PublicKey:
		k.algorithm = RSAPSSSHA512
		errs.addIf(public == nil || public.N == nil || public.N.BitLen() < minRSA, "key", "has less than %d bits", minRSA)
		errs.addIf(public != nil && (public.E < 3 || public.E%2 == 0), "key", "has an exponent that proves nothing")
	default:
		errs.addIf(true, "key", "is a %T; ed25519, *ecdsa and *rsa keys are known", material)
	}
	return newKey(errs, k, o)
}

func newKey(errs configErrors, k *Key, o KeyConfig) (*Key, error) {
	if public, ok := k.public.(ed25519.PublicKey); ok {
		errs.addIf(isSmallOrder(public), "key", "is a point of small order: anybody can sign for it")
	}
	errs.addIf(!isKeyID(o.ID), "KeyConfig.ID", "must be 1 to %d visible ASCII characters", form.MaxKeyID)
	errs.addIf(o.Owner != "" && !isKeyID(o.Owner), "KeyConfig.Owner", "must be 1 to %d visible ASCII characters", form.MaxKeyID)
	errs.addIf(!o.ValidUntil.IsZero() && !o.ValidFrom.Before(o.ValidUntil), "KeyConfig.ValidUntil", "is not after ValidFrom")
	if err := errs.err(); err != nil {
		return nil, err
	}
	// A KeyStore may have made them of a message's id.
	k.id, k.owner = strings.Clone(o.ID), strings.Clone(cmp.Or(o.Owner, o.ID))
	k.validFrom, k.validUntil, k.purpose = o.ValidFrom, o.ValidUntil, o.Purpose
	k.thumbprint = thumbprintOf(k.public)
	if k.secret != nil {
		k.macs.New = func() any { return &keyed{hash: hmac.New(sha256.New, k.secret())} }
	}
	return k, nil
}

func init() {
	secret.Of = func(key any) []byte {
		if k, ok := key.(*Key); ok && k != nil && !k.webhook && k.secret != nil {
			return k.secret()
		}
		return nil
	}
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

func isRepeated(secret []byte) bool {
	for _, b := range secret {
		if b != secret[0] {
			return false
		}
	}
	return true
}

// addIfSpaced adds an error for white space around a secret: a file ends with a line feed, which is no part of the secret.
func (c *configErrors) addIfSpaced(secret string) (spaced bool) {
	begin, end := strings.TrimLeftFunc(secret, unicode.IsSpace), strings.TrimRightFunc(secret, unicode.IsSpace)
	c.addIf(begin != secret, "secret", "begins with white space (%q)", strings.TrimSuffix(secret, begin))
	c.addIf(end != secret, "secret", "ends with white space (%q)", strings.TrimPrefix(secret, end))
	return begin != end
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
	errNoPrivate  = errors.New("sign: the key has no private part: it can verify only")
	errWebhookKey = errors.New("sign: a key for webhooks signs nothing else")
	errZeroKey    = errors.New("sign: the key was not made by one of this package's functions")
)

// Sign returns the key's signature of message. It returns an error if the key has no private part, or if it is a key of
// [NewStandardWebhooksKey] or [NewSenderKey], which signs webhooks only.
func (k *Key) Sign(message []byte) ([]byte, error) {
	switch {
	case k.webhook:
		return nil, errWebhookKey
	case k.algorithm == "":
		return nil, errZeroKey
	}
	return k.sign(message)
}

func (k *Key) sign(message []byte) ([]byte, error) {
	if k.algorithm == HMACSHA256 {
		m := k.mac(message)
		return m.sum[:], nil
	}
	if k.private == nil {
		return nil, errNoPrivate
	}
	switch private := k.private().(type) {
	case *ecdsa.PrivateKey:
		digest := sha256.Sum256(message)
		r, s, err := ecdsa.Sign(rand.Reader, private, digest[:])
		if err != nil {
			return nil, err
		}
		signature := make([]byte, 64)
		r.FillBytes(signature[:32])
		s.FillBytes(signature[32:])
		return signature, nil
	case *rsa.PrivateKey:
		digest := sha512.Sum512(message)
		return rsa.SignPSS(rand.Reader, private, crypto.SHA512, digest[:], pssOptions)
	}
	return k.private().Sign(rand.Reader, message, crypto.Hash(0)) // Ed25519 signs the message itself
}

var pssOptions = &rsa.PSSOptions{SaltLength: sha512.Size, Hash: crypto.SHA512}

// Verify reports whether signature is the key's signature of message. HMACs are compared in constant time. For a key of
// [NewStandardWebhooksKey] or [NewSenderKey], which verifies webhooks only, Verify returns false.
func (k *Key) Verify(message, signature []byte) bool {
	return !k.webhook && k.algorithm != "" && k.verify(message, signature)
}

func (k *Key) verify(message, signature []byte) bool {
	switch public := k.public.(type) {
	case nil:
		h := k.macs.Get().(*keyed)
		defer k.macs.Put(h)
		return h.compute(message).equals(signature)
	case ed25519.PublicKey:
		return ed25519.Verify(public, message, signature)
	case *ecdsa.PublicKey:
		if len(signature) != 64 {
			return false
		}
		digest := sha256.Sum256(message)
		return ecdsa.Verify(public, digest[:], new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:]))
	case *rsa.PublicKey:
		digest := sha512.Sum512(message)
		return rsa.VerifyPSS(public, crypto.SHA512, digest[:], signature, pssOptions) == nil
	}
	return false
}

// mac is an authentication code that was computed here. It cannot be compared by == or printed by accident. Only equals
// compares it with a received one, in constant time.
type mac struct {
	_   [0]func() // not comparable
	sum [sha256.Size]byte
}

func (m *mac) equals(received []byte) bool {
	return subtle.ConstantTimeCompare(m.sum[:], received) == 1
}

// keyed is an HMAC-SHA256 with a key, ready for a message, and the memory for its result. It costs about as much to make as to
// use, so keys keep them.
type keyed struct {
	hash hash.Hash
	mac  mac
}

// compute returns the code of the concatenated parts. The next call overwrites it.
func (h *keyed) compute(parts ...[]byte) *mac {
	h.hash.Reset()
	for _, p := range parts {
		h.hash.Write(p)
	}
	h.hash.Sum(h.mac.sum[:0])
	return &h.mac
}

// mac returns the code of the concatenated parts. The key must have a secret.
func (k *Key) mac(parts ...[]byte) mac {
	h := k.macs.Get().(*keyed)
	defer k.macs.Put(h)
	return *h.compute(parts...)
}
