// Package form says what key ids, nonces and header fields look like, in package sign and in the schemes below it.
package form

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

const (
	// MaxKeyID is the length of the longest key id, in bytes.
	MaxKeyID = 128

	minNonce = 16
	maxNonce = 128
)

// IdempotencyKey is the name of a header field that changes the meaning of a message
// (draft-ietf-httpapi-idempotency-key-header).
const IdempotencyKey = "Idempotency-Key"

// FieldName is the name of a header field in both spellings: "Content-Type" and "content-type".
type FieldName struct{ Canonical, Lower string }

// NewFieldName returns both spellings of name, which may be in any case.
func NewFieldName(name string) FieldName {
	return FieldName{http.CanonicalHeaderKey(name), strings.ToLower(name)}
}

// CheckKeyID returns an error unless id has 1 to 128 visible ASCII characters.
func CheckKeyID(id string) error {
	if len(id) > MaxKeyID || !consistsOf(id, inKeyID) {
		return fmt.Errorf("the key id must be 1 to %d visible ASCII characters", MaxKeyID)
	}
	return nil
}

// CheckNonce returns an error unless nonce has 16 to 128 of the characters A-Z a-z 0-9 . _ ~ -, which are the
// unreserved ones of RFC 3986, section 2.3.
func CheckNonce(nonce string) error {
	if len(nonce) < minNonce || len(nonce) > maxNonce {
		return fmt.Errorf("the nonce has %d characters; %d to %d are allowed", len(nonce), minNonce, maxNonce)
	}
	if !consistsOf(nonce, inNonce) {
		return errors.New("the nonce may have A-Z a-z 0-9 . _ ~ - only")
	}
	return nil
}

// IsBase64Nonce reports whether nonce passes [CheckNonce] once + / = are allowed too: many signers send base64.
func IsBase64Nonce(nonce string) bool {
	return minNonce <= len(nonce) && len(nonce) <= maxNonce && consistsOf(nonce, inNonce|inBase64)
}

// IsToken reports whether s is a token (RFC 9110, section 5.6.2), such as a method or the name of a header field.
func IsToken(s string) bool { return consistsOf(s, inToken) }

// IsLowerToken reports whether s is a token without upper-case letters.
func IsLowerToken(s string) bool { return consistsOf(s, inLower) }

// IsLine reports whether s, which may be empty, fits in one line of a signing string. With a line feed in it, two
// messages could have the same signing string.
func IsLine(s string) bool { return s == "" || consistsOf(s, inLine) }

// IsAuthority reports whether s can be a host with or without a port.
func IsAuthority(s string) bool { return consistsOf(s, inAuthority) }

// IsWebhookID reports whether s has only the characters that core accepts in a key without escaping.
func IsWebhookID(s string) bool { return consistsOf(s, inWebhookID) }

// IsHopByHop reports whether a header field, named in lower case, belongs to one connection (RFC 9110, section 7.6.1)
// or, as Host does, reaches handlers in another form than it was sent.
func IsHopByHop(lower string) bool {
	switch lower {
	case "connection", "expect", "host", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade":
		return true
	}
	return false
}

// IsUnsignable reports whether frameworks may show a header field, named in lower case, otherwise than it was sent.
func IsUnsignable(lower string) bool { return lower == "content-length" || IsHopByHop(lower) }

// Trim removes the white space around the value of a header field (RFC 9110, section 5.5). Most values have none.
func Trim(value string) string {
	if n := len(value); n > 0 && value[0] > ' ' && value[n-1] > ' ' {
		return value
	}
	return strings.Trim(value, " \t")
}

// AppendLower appends s to b with its ASCII letters in lower case.
func AppendLower(b []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		b = append(b, c)
	}
	return b
}

// The classes of characters. A byte may be in several.
const (
	inToken     = 1 << iota // RFC 9110, section 5.6.2
	inLower                 // inToken without upper-case letters
	inNonce                 // unreserved in RFC 3986, section 2.3
	inBase64                // what base64 has beyond inNonce
	inAuthority             // visible, and no delimiter of a URI around a host
	inKeyID                 // visible
	inLine                  // no control character but a tab
	inWebhookID
)

var classes = func() (classes [256]byte) {
	for i := range classes {
		c := byte(i)
		lower := 'a' <= c && c <= 'z' || '0' <= c && c <= '9'
		upper := 'A' <= c && c <= 'Z'
		mark := strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
		visible := ' ' < c && c < 0x7f
		for class, in := range map[byte]bool{
			inToken:     lower || upper || mark,
			inLower:     lower || mark,
			inNonce:     lower || upper || strings.IndexByte("._~-", c) >= 0,
			inBase64:    strings.IndexByte("+/=", c) >= 0,
			inAuthority: visible && strings.IndexByte(`/?#@\`, c) < 0,
			inKeyID:     visible,
			inLine:      c >= ' ' && c != 0x7f || c == '\t',
			inWebhookID: lower || upper || mark || c == ':' || c == '/' || c == '=',
		} {
			if in {
				classes[i] |= class
			}
		}
	}
	return classes
}()

// consistsOf reports whether s has at least one character, and only characters of the given classes.
func consistsOf(s string, class byte) bool {
	for i := 0; i < len(s); i++ {
		if classes[s[i]]&class == 0 {
			return false
		}
	}
	return s != ""
}
