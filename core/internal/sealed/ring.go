// Package sealed encrypts what an engine with a core.Config.Seal keeps of answers, values, steps and remarks. [New] decorates the store of
// any engine: under a [Ring] without keys it seals nothing, and reports what others have sealed.
package sealed

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/idem-go/idem/core/internal/canon"
)

// ErrUnsettled is operations.ErrSealed.
var ErrUnsettled = errors.New("idem: the service seals what it stores, and would not take this answer: " +
	"core.Config.Seal (for the command idem: IDEM_SEAL) is missing, has other keys, or only opens")

// Ring seals and opens. It is safe for concurrent use.
type Ring struct {
	err           error    // core.ErrSealed
	keys          []Key    // newest first
	marks         []string // of each key: what is stored for no remark
	allowUnsealed bool
	openOnly      bool
}

// Key is one of core.Seal.Keys.
type Key struct {
	Name string
	MAC  *canon.MAC
}

// NewRing returns the ring of a core.Seal; keys are newest first. Without keys, it seals nothing, and opens what is not sealed. Its
// errors wrap err.
func NewRing(err error, keys []Key, allowUnsealed, openOnly bool) *Ring {
	r := &Ring{err: err, keys: keys, allowUnsealed: allowUnsealed, openOnly: openOnly}
	for _, k := range keys {
		mark := k.MAC.Append(nil, []byte("idem seal mark"))
		r.marks = append(r.marks, remarkPrefix+"."+base64.RawURLEncoding.EncodeToString(mark[:9]))
	}
	return r
}

// What is sealed is firstByte, the name of the key after its length in a byte, a nonce of 12 bytes, and the ciphertext with
// its tag. Steps have their number in front, which the store reads. All before the nonce is the additional data. docs/records.md
// promises this format.
const (
	firstByte  = 6 // no other result or value begins with it, and no steps; a number begins with a greater one
	overhead   = 2 + 12 + 16
	numberSize = 8
)

// kind is what is sealed. It is a part of the derivation of the key.
type kind string

const (
	ofResult kind = "result"
	ofSteps  kind = "steps"
	ofRemark kind = "remark"
	ofValue  kind = "value"
)

// number returns how many bytes in front of b are not sealed: the number of steps that have one.
func (of kind) number(b []byte) int {
	if of == ofSteps && len(b) >= numberSize && b[0] > firstByte {
		return numberSize
	}
	return 0
}

// boundKey is how much of a stored key counts: a SQL store keeps no more of a longer one for a store.Inspector.
const boundKey = 2016

// aead returns the cipher of one value. Its key is that of HKDF-Expand (RFC 5869) with SHA-256 under the ring's key.
func (k *Key) aead(of kind, key string) cipher.AEAD {
	info := make([]byte, 0, 256)
	info = append(append(info, "idem seal 1\x00"...), of...)
	info = append(append(info, 0), key[:min(len(key), boundKey)]...)
	info = append(info, 1) // the counter of HKDF
	block, err := aes.NewCipher(k.MAC.Append(info[len(info):], info))
	if err != nil {
		panic(err) // of another length than 32
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // of another block size than that of AES
	}
	return aead
}

// Seal seals a value of which the store keeps a part of its own under key. It must not begin with the byte 6.
func (r *Ring) Seal(key string, value []byte) []byte { return r.seal(ofValue, key, value) }

// Open opens what Seal has made for key.
func (r *Ring) Open(key string, stored []byte) ([]byte, error) { return r.open(ofValue, key, stored) }

// seals reports whether r seals, and does not only open.
func (r *Ring) seals() bool { return len(r.keys) > 0 && !r.openOnly }

// seal seals what the store keeps under key. Nothing stays nothing.
func (r *Ring) seal(of kind, key string, plain []byte) []byte {
	if !r.seals() || len(plain) == 0 {
		return plain
	}
	return r.keys[0].seal(of, key, plain)
}

func (k *Key) seal(of kind, key string, plain []byte) []byte {
	n := of.number(plain)
	sealed := append(make([]byte, 0, overhead+len(k.Name)+len(plain)), plain[:n]...)
	sealed = append(append(sealed, firstByte, byte(len(k.Name))), k.Name...)
	return k.aead(of, key).Seal(sealed, nil, plain[n:], sealed)
}

func isSealed(stored []byte) bool { return len(stored) > 0 && stored[0] == firstByte }

// open opens what the store has under key.
func (r *Ring) open(of kind, key string, stored []byte) ([]byte, error) {
	n := of.number(stored)
	sealed := stored[n:]
	switch {
	case len(stored) == 0, !isSealed(sealed) && (len(r.keys) == 0 || r.allowUnsealed):
		return stored, nil
	case !isSealed(sealed):
		return nil, r.unopened(of, "not sealed, and Config.Seal does not say AllowUnsealed")
	case len(r.keys) == 0:
		return nil, r.unopened(of, noKeys)
	case len(sealed) < 2 || len(sealed) < 2+int(sealed[1]):
		return nil, r.unopened(of, changed)
	}
	header := stored[:n+2+int(sealed[1])]
	name := string(header[n+2:])
	for i := range r.keys {
		if k := &r.keys[i]; k.Name == name {
			plain, err := k.aead(of, key).Open(append([]byte(nil), stored[:n]...), nil, stored[len(header):], header)
			if err != nil {
				return nil, r.unopened(of, "%s, or sealed under another key of the name %q", changed, name)
			}
			return plain, nil
		}
	}
	if _, isName := canon.ServicePrefix(name); !isName {
		return nil, r.unopened(of, changed)
	}
	return nil, r.unopened(of, "sealed under the key %q, which Config.Seal does not have", name)
}

const (
	noKeys  = "sealed, and there is no Config.Seal"
	changed = "changed, or another operation's"
)

func (r *Ring) unopened(of kind, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", r.err, of, fmt.Sprintf(format, args...))
}

// remarkPrefix begins the remark of each record of an engine that seals.
const remarkPrefix = "sealed:"

// maxRemark is how many bytes a store keeps of a remark, see store.About.
const maxRemark = 255

const unreadable = "(unreadable)"

// sealRemark cuts the remark so that it is a remark when it is sealed. No remark is stored as the mark of the key, so that
// each record shows that the service seals, and under which key.
func (r *Ring) sealRemark(key, remark string) string {
	switch {
	case !r.seals():
		return remark
	case remark == "":
		return r.marks[0]
	}
	return r.keys[0].sealRemark(key, remark)
}

func (k *Key) sealRemark(key, remark string) string {
	room := base64.RawURLEncoding.DecodedLen(maxRemark-len(remarkPrefix)) - overhead - len(k.Name)
	remark = strings.ToValidUTF8(remark[:min(len(remark), room)], "")
	return remarkPrefix + base64.RawURLEncoding.EncodeToString(k.seal(ofRemark, key, []byte(remark)))
}

// openRemark opens a remark for people. Without keys they see what is stored.
func (r *Ring) openRemark(key, stored string) string {
	if len(r.keys) == 0 || !strings.HasPrefix(stored, remarkPrefix) && (stored == "" || r.allowUnsealed) {
		return stored
	}
	remark, _, err := r.remarkOf(key, stored)
	if err != nil {
		return unreadable
	}
	return remark
}

// remarkOf opens a remark that is sealed, or stands for none, and returns the key that has made it.
func (r *Ring) remarkOf(key, stored string) (remark string, of *Key, err error) {
	if len(r.keys) == 0 {
		return "", nil, r.unopened(ofRemark, noKeys)
	}
	if i := slices.Index(r.marks, stored); i >= 0 {
		return "", &r.keys[i], nil
	}
	text, hasPrefix := strings.CutPrefix(stored, remarkPrefix)
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || !hasPrefix || len(sealed) < 2 || !isSealed(sealed) {
		return "", nil, r.unopened(ofRemark, changed)
	}
	plain, err := r.open(ofRemark, key, sealed)
	if err != nil {
		return "", nil, err
	}
	i := slices.IndexFunc(r.keys, func(k Key) bool { return k.Name == string(sealed[2:2+sealed[1]]) })
	return string(plain), &r.keys[i], nil
}
