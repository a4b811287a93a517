package core

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Key is the identity of an operation, as stored. It may name a user, so it prints as a short digest:
// by package fmt with every verb but %p, by log/slog, and as JSON, also as the key of a map. [Key.Raw] is the
// whole key. Equal keys are ==. The zero Key is no key, and prints as nothing.
//
// Package fmt can't call the methods of an unexported field: a struct that has a Key in one, and is
// printed whole, shows it.
type Key struct{ raw string }

// Raw returns the key as the store has it. Do not log it.
func (k Key) Raw() string { return k.raw }

// IsZero reports whether there is no key.
func (k Key) IsZero() bool { return k.raw == "" }

// String returns the first 16 hexadecimal digits of the key's SHA-256 digest.
func (k Key) String() string {
	if k.IsZero() {
		return ""
	}
	sum := sha256.Sum256([]byte(k.raw))
	return hex.EncodeToString(sum[:8])
}

// Format implements [fmt.Formatter]: it formats what String returns, whatever the verb.
func (k Key) Format(f fmt.State, verb rune) { fmt.Fprintf(f, fmt.FormatString(f, verb), k.String()) }

// MarshalText implements [encoding.TextMarshaler]: it returns what String returns.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }
