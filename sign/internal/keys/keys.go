// Package keys has what signs and verifies, and what package sign shows the packages below it of a key, without an exported
// name in sign.
package keys

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"hash"
	"math/big"
	"sync"
)

// Material is what a key is made of. It must not be copied. sign.NewKey makes a key of it. The zero Material signs and verifies
// nothing.
type Material struct {
	// Algorithm is the sign.Algorithm.
	Algorithm string
	// Public is the public key. Nil: it is a shared secret.
	Public crypto.PublicKey
	// Webhook is true if the secret may be short, and signs nothing but webhooks.
	Webhook bool
	// Published is true for a key of a jwk.Source, whose id another URL may also have. Its nonces are told apart by its thumbprint.
	Published bool
	// Problems say what is wrong with the secret. sign.NewKey returns them.
	Problems []string

	secret  func() []byte        // see hide; nil: there is none
	private func() crypto.Signer // see hide; nil: the key only verifies
	macs    sync.Pool            // of *keyed
}

// hide returns a function that returns v. Package fmt prints of a function the address, and of everything else in an unexported
// field what it finds there, also through pointers, whatever methods it has.
func hide[T any](v T) func() T { return func() T { return v } }

// NewSecret returns the material of a shared secret, which it keeps.
func NewSecret(algorithm string, secret []byte) *Material {
	m := &Material{Algorithm: algorithm, secret: hide(secret)}
	m.macs.New = func() any { return &keyed{hash: hmac.New(sha256.New, secret)} }
	return m
}

// NewPrivate returns the material of a private key.
func NewPrivate(algorithm string, private crypto.Signer) *Material {
	return &Material{Algorithm: algorithm, Public: private.Public(), private: hide(private)}
}

// Embedded has material that only [Of] finds. A sign.Key embeds it.
type Embedded struct{ material *Material }

// Embed returns what a key embeds to show m.
func Embed(m *Material) Embedded { return Embedded{m} }

func (e *Embedded) show() *Material {
	if e.material == nil {
		return new(Material)
	}
	return e.material
}

// Of returns the material of a *sign.Key, which must not be nil.
func Of(key interface{ show() *Material }) *Material { return key.show() }

// Secret returns the shared secret, unless it is one for webhooks; nil if there is none. The bytes must not be changed.
func (m *Material) Secret() []byte {
	if m.Webhook || m.secret == nil {
		return nil
	}
	return m.secret()
}

// VerifiesOnly reports whether the private part is missing.
func (m *Material) VerifiesOnly() bool { return m.Public != nil && m.private == nil }

var errNoPrivate = errors.New("sign: the key has no private part: it can verify only")

// Sign returns the signature of message.
func (m *Material) Sign(message []byte) ([]byte, error) {
	if m.secret != nil {
		code := m.MAC(message)
		return code.sum[:], nil
	}
	if m.private == nil {
		return nil, errNoPrivate
	}
	switch private := m.private().(type) {
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
	return m.private().Sign(rand.Reader, message, crypto.Hash(0)) // Ed25519 signs the message itself
}

var pssOptions = &rsa.PSSOptions{SaltLength: sha512.Size, Hash: crypto.SHA512}

// Verify reports whether signature is the one of message. HMACs are compared in constant time.
func (m *Material) Verify(message, signature []byte) bool {
	if m.secret != nil {
		h := m.macs.Get().(*keyed)
		defer m.macs.Put(h)
		return h.compute(message).Equals(signature)
	}
	switch public := m.Public.(type) {
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

// Code is an authentication code that was computed here. It cannot be compared by == or printed by accident. Only Equals
// compares it with a received one, in constant time.
type Code struct {
	_   [0]func() // not comparable
	sum [sha256.Size]byte
}

// Equals reports whether the received code is this one.
func (c *Code) Equals(received []byte) bool {
	return subtle.ConstantTimeCompare(c.sum[:], received) == 1
}

// Bytes returns the code, to be sent.
func (c *Code) Bytes() []byte { return c.sum[:] }

// keyed is an HMAC-SHA256 with a key, ready for a message, and the memory for its result. It costs about as much to make as to
// use, so keys keep them.
type keyed struct {
	hash hash.Hash
	code Code
}

// compute returns the code of the concatenated parts. The next call overwrites it.
func (h *keyed) compute(parts ...[]byte) *Code {
	h.hash.Reset()
	for _, p := range parts {
		h.hash.Write(p)
	}
	h.hash.Sum(h.code.sum[:0])
	return &h.code
}

// MAC returns the code of the concatenated parts. The material must be a secret.
func (m *Material) MAC(parts ...[]byte) Code {
	h := m.macs.Get().(*keyed)
	defer m.macs.Put(h)
	return *h.compute(parts...)
}

// IsRepeated reports whether a secret is one byte repeated.
func IsRepeated(secret []byte) bool {
	for _, b := range secret {
		if b != secret[0] {
			return false
		}
	}
	return len(secret) > 0
}

// base64URL is base64url without padding (RFC 7515, section 2).
var base64URL = base64.RawURLEncoding

// Thumbprint returns the JWK thumbprint of a valid public key, see sign.Key.Thumbprint. It is empty if there is none.
func Thumbprint(public crypto.PublicKey) string {
	var members string
	switch p := public.(type) {
	case ed25519.PublicKey:
		members = `{"crv":"Ed25519","kty":"OKP","x":"` + base64URL.EncodeToString(p) + `"}`
	case *ecdsa.PublicKey:
		point, err := p.Bytes() // 4, x, y
		if err != nil {
			return ""
		}
		x, y := base64URL.EncodeToString(point[1:33]), base64URL.EncodeToString(point[33:])
		members = `{"crv":"P-256","kty":"EC","x":"` + x + `","y":"` + y + `"}`
	case *rsa.PublicKey:
		e, n := base64URL.EncodeToString(big.NewInt(int64(p.E)).Bytes()), base64URL.EncodeToString(p.N.Bytes())
		members = `{"e":"` + e + `","kty":"RSA","n":"` + n + `"}`
	default:
		return ""
	}
	sum := sha256.Sum256([]byte(members))
	return base64URL.EncodeToString(sum[:])
}
