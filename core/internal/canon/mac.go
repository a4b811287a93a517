package canon

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"hash"
	"sync"
)

// MAC makes HMAC-SHA-256 digests (RFC 2104) under one key. It is safe for concurrent use. Who prints it sees the
// address of a function, and not the key.
type MAC struct{ hashes sync.Pool }

// NewMAC returns a MAC. It copies the key.
func NewMAC(key []byte) *MAC {
	key = bytes.Clone(key)
	return &MAC{sync.Pool{New: func() any { return hmac.New(sha256.New, key) }}}
}

// Append appends the 32 bytes of the digest of parts, one after the other, to dst.
func (m *MAC) Append(dst []byte, parts ...[]byte) []byte {
	h := m.hashes.Get().(hash.Hash)
	h.Reset()
	for _, p := range parts {
		h.Write(p)
	}
	dst = h.Sum(dst)
	m.hashes.Put(h)
	return dst
}
