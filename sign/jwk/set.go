package jwk

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/big"
	"slices"
	"time"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/keys"
)

const (
	// maxKeys is how many keys a JWK Set may have.
	maxKeys = 64
	// maxRSA is the length of the longest published RSA modulus, in bits. A longer one costs too much to verify with.
	maxRSA = 8192
)

// jwk are the members of a JWK (RFC 7517) that count here. Private members are not read.
type jwk struct {
	Kty     string   `json:"kty"`
	Crv     string   `json:"crv"`
	Kid     string   `json:"kid"`
	Use     string   `json:"use"`
	Alg     string   `json:"alg"`
	KeyOps  []string `json:"key_ops"`
	X       string   `json:"x"`
	Y       string   `json:"y"`
	N       string   `json:"n"`
	E       string   `json:"e"`
	NBF     int64    `json:"nbf"` // since 1970, see unix; zero: none
	Exp     int64    `json:"exp"`
	AdCPUse string   `json:"adcp_use"`
}

// ParseSet returns the keys of a JWK Set (RFC 7517, section 5) that can verify signatures: Ed25519, P-256, and RSA from 2048 to
// 8192 bits. A key's id is its kid, or without one its [sign.Key.Thumbprint]; owner is the owner of all, or if it is empty, each
// key's id. nbf and exp are the key's validity, in seconds or milliseconds, adcp_use is its purpose.
//
// It leaves out keys of other types, keys with an alg that is not the key's, keys that are not for signatures (use, key_ops), and
// broken keys. Such a key with an adcp_use and a kid, or one that does not also say use "sig" and key_ops "verify", is returned
// without algorithm and purpose: it verifies nothing, and rfc9421.AdCP can tell it from an unknown key
// ([sign.ReasonWrongPurpose]). A profile of UCP is such a set, also one of 2026-04-08 or before, whose keys are called
// signing_keys. It returns an error if data is not a JWK Set, or has more than 64 keys.
func ParseSet(data []byte, owner string) ([]*sign.Key, error) {
	var members struct {
		Keys        []json.RawMessage `json:"keys"`
		SigningKeys []json.RawMessage `json:"signing_keys"`
	}
	err := json.Unmarshal(data, &members)
	if members.Keys == nil {
		members.Keys = members.SigningKeys
	}
	if err != nil || members.Keys == nil {
		return nil, &sign.ConfigError{Field: "data", Problem: "is not a JWK Set"}
	}
	if len(members.Keys) > maxKeys {
		return nil, &sign.ConfigError{Field: "data", Problem: "is a JWK Set of too many keys"}
	}
	var set []*sign.Key
	for _, text := range members.Keys {
		var j jwk
		if json.Unmarshal(text, &j) != nil {
			continue
		}
		k, err := j.key(owner)
		if err != nil && j.AdCPUse != "" {
			k, err = sign.NewKey(sign.KeyConfig{ID: j.Kid, Owner: owner}, new(keys.Material))
		}
		if err == nil {
			set = append(set, k)
		}
	}
	return set, nil
}

var errUnusable = errors.New("jwk: the key cannot be used")

// key returns an error for a JWK that cannot be used.
func (j *jwk) key(owner string) (*sign.Key, error) {
	verifies := slices.Contains(j.KeyOps, "verify")
	switch {
	case j.Use != "" && j.Use != "sig", j.KeyOps != nil && !verifies, j.AdCPUse != "" && (j.Use == "" || !verifies):
		return nil, errUnusable
	}
	material, algorithms := j.public()
	if material == nil || j.Alg != "" && !slices.Contains(algorithms, j.Alg) {
		return nil, errUnusable
	}
	o := sign.KeyConfig{ID: j.Kid, Owner: owner, Purpose: j.AdCPUse}
	if o.ID == "" {
		o.ID = keys.Thumbprint(material)
	}
	if j.NBF != 0 {
		o.ValidFrom = unix(j.NBF)
	}
	if j.Exp != 0 {
		o.ValidUntil = unix(j.Exp)
	}
	return sign.NewKey(o, material)
}

// unix returns a time that is given in seconds, as Web Bot Auth has it, or in milliseconds, as others write it: no date in seconds
// before the year 5000 is as large as one in milliseconds after 1973.
func unix(t int64) time.Time {
	if t >= 100_000_000_000 {
		return time.UnixMilli(t)
	}
	return time.Unix(t, 0)
}

// public returns the public key, or nil, and the names that its algorithm may have: those of JOSE and that of RFC 9421.
func (j *jwk) public() (material crypto.PublicKey, algorithms []string) {
	x, y, n, e := bytesOf(j.X), bytesOf(j.Y), bytesOf(j.N), bytesOf(j.E)
	switch {
	case j.Kty == "OKP" && j.Crv == "Ed25519" && len(x) == ed25519.PublicKeySize:
		return ed25519.PublicKey(x), []string{"EdDSA", "Ed25519", string(sign.Ed25519)}
	case j.Kty == "EC" && j.Crv == "P-256" && len(x) == 32 && len(y) == 32:
		public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), slices.Concat([]byte{4}, x, y))
		if err != nil {
			return nil, nil
		}
		return public, []string{"ES256", string(sign.ECDSAP256SHA256)}
	case j.Kty == "RSA" && len(n) <= maxRSA/8 && 0 < len(e) && len(e) < 4:
		return &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(new(big.Int).SetBytes(e).Int64())},
			[]string{"PS512", string(sign.RSAPSSSHA512)}
	}
	return nil, nil
}

// base64URL is base64url without padding (RFC 7515, section 2).
var base64URL = base64.RawURLEncoding.Strict()

// bytesOf returns nil for a text that is not base64url.
func bytesOf(text string) []byte {
	b, err := base64URL.DecodeString(text)
	if err != nil {
		return nil
	}
	return b
}
