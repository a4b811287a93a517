package sign

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"slices"
	"time"
)

const (
	// maxJWKs is how many keys a JWK Set may have.
	maxJWKs = 64
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

// ParseJWKS returns the keys of a JWK Set (RFC 7517, section 5) that can verify signatures: Ed25519, P-256, and RSA from 2048 to
// 8192 bits. A key's id is its kid, or without one its [Key.Thumbprint]; owner is the owner of all, or if it is empty, each key's
// id. nbf and exp are the key's validity, in seconds or milliseconds, adcp_use is its purpose.
//
// It leaves out keys of other types, keys with an alg that is not the key's, keys that are not for signatures (use, key_ops), and
// broken keys. Such a key with an adcp_use and a kid, or one that does not also say use "sig" and key_ops "verify", is returned
// without algorithm and purpose: it verifies nothing, and rfc9421.AdCP can tell it from an unknown key ([ReasonWrongPurpose]). A profile of UCP is such a set, also one of
// 2026-04-08 or before, whose keys are called signing_keys. It returns an error if data is no JWK Set, or has more than 64 keys.
func ParseJWKS(data []byte, owner string) ([]*Key, error) {
	var set struct {
		Keys        []json.RawMessage `json:"keys"`
		SigningKeys []json.RawMessage `json:"signing_keys"`
	}
	err := json.Unmarshal(data, &set)
	if set.Keys == nil {
		set.Keys = set.SigningKeys
	}
	if err != nil || set.Keys == nil {
		return nil, &ConfigError{Field: "data", Problem: "is no JWK Set"}
	}
	if len(set.Keys) > maxJWKs {
		return nil, &ConfigError{Field: "data", Problem: "is a JWK Set of too many keys"}
	}
	var keys []*Key
	for _, text := range set.Keys {
		var j jwk
		if json.Unmarshal(text, &j) != nil {
			continue
		}
		k := j.key(owner)
		if k == nil && j.AdCPUse != "" && isKeyID(j.Kid) {
			k = &Key{id: j.Kid, owner: cmp.Or(owner, j.Kid)}
		}
		if k != nil {
			keys = append(keys, k)
		}
	}
	return keys, nil
}

// key returns nil for a JWK that cannot be used.
func (j *jwk) key(owner string) *Key {
	verifies := slices.Contains(j.KeyOps, "verify")
	switch {
	case j.Use != "" && j.Use != "sig", j.KeyOps != nil && !verifies, j.AdCPUse != "" && (j.Use == "" || !verifies):
		return nil
	}
	material, algorithms := j.public()
	if material == nil || j.Alg != "" && !slices.Contains(algorithms, j.Alg) {
		return nil
	}
	o := KeyConfig{ID: j.Kid, Owner: owner, Purpose: j.AdCPUse}
	if o.ID == "" {
		o.ID = thumbprintOf(material)
	}
	if j.NBF != 0 {
		o.ValidFrom = unix(j.NBF)
	}
	if j.Exp != 0 {
		o.ValidUntil = unix(j.Exp)
	}
	k, err := NewKey(o, material)
	if err != nil {
		return nil
	}
	return k
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
		return ed25519.PublicKey(x), []string{"EdDSA", "Ed25519", string(Ed25519)}
	case j.Kty == "EC" && j.Crv == "P-256" && len(x) == 32 && len(y) == 32:
		public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), slices.Concat([]byte{4}, x, y))
		if err != nil {
			return nil, nil
		}
		return public, []string{"ES256", string(ECDSAP256SHA256)}
	case j.Kty == "RSA" && len(n) <= maxRSA/8 && 0 < len(e) && len(e) < 4:
		return &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(new(big.Int).SetBytes(e).Int64())}, []string{"PS512", string(RSAPSSSHA512)}
	}
	return nil, nil
}

// jwkBase64 is base64url without padding (RFC 7515, section 2).
var jwkBase64 = base64.RawURLEncoding.Strict()

// bytesOf returns nil for a text that is not base64url.
func bytesOf(text string) []byte {
	b, err := jwkBase64.DecodeString(text)
	if err != nil {
		return nil
	}
	return b
}

// thumbprintOf returns the JWK thumbprint of a valid public key, see [Key.Thumbprint].
func thumbprintOf(public crypto.PublicKey) string {
	var members string
	switch p := public.(type) {
	case ed25519.PublicKey:
		members = `{"crv":"Ed25519","kty":"OKP","x":"` + jwkBase64.EncodeToString(p) + `"}`
	case *ecdsa.PublicKey:
		point, err := p.Bytes() // 4, x, y
		if err != nil {
			return ""
		}
		members = `{"crv":"P-256","kty":"EC","x":"` + jwkBase64.EncodeToString(point[1:33]) + `","y":"` + jwkBase64.EncodeToString(point[33:]) + `"}`
	case *rsa.PublicKey:
		members = `{"e":"` + jwkBase64.EncodeToString(big.NewInt(int64(p.E)).Bytes()) + `","kty":"RSA","n":"` + jwkBase64.EncodeToString(p.N.Bytes()) + `"}`
	default:
		return ""
	}
	sum := sha256.Sum256([]byte(members))
	return jwkBase64.EncodeToString(sum[:])
}
