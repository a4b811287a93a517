package sign

import (
	"strconv"
	"strings"
)

const (
	minNonce = 16
	maxNonce = 128
)

// CheckKeyID returns [CodeMalformed] unless id has 1 to 128 visible ASCII characters, as the ids of keys have.
func CheckKeyID(id string) error {
	if !isKeyID(id) {
		return Errorf(CodeMalformed, "the key id must be 1 to %d visible ASCII characters", maxKeyID)
	}
	return nil
}

// CheckNonce returns [CodeMalformed] unless nonce has 16 to 128 characters of A-Z a-z 0-9 . _ ~ -,
// the unreserved ones of RFC 3986, section 2.3.
func CheckNonce(nonce string) error {
	if len(nonce) < minNonce || len(nonce) > maxNonce {
		return Errorf(CodeMalformed, "the nonce has %d characters; %d to %d are allowed", len(nonce), minNonce, maxNonce)
	}
	if !consistsOf(nonce, inNonce) {
		return Errorf(CodeMalformed, "the nonce may have A-Z a-z 0-9 . _ ~ - only")
	}
	return nil
}

// trim takes off the white space around a field's value (RFC 9110, section 5.5). Nearly always there is none.
func trim(value string) string {
	if n := len(value); n > 0 && value[0] > ' ' && value[n-1] > ' ' {
		return value
	}
	return strings.Trim(value, " \t")
}

// ParseTimestamp parses seconds since 1970: digits only, no sign, no blank, no leading zero.
// The error is [CodeMalformed].
func ParseTimestamp(text string) (int64, error) {
	n, err := strconv.ParseUint(text, 10, 63) // which takes no sign
	if err != nil || text[0] == '0' && len(text) > 1 {
		return 0, errTimestamp
	}
	return int64(n), nil
}

var errTimestamp = Errorf(CodeMalformed, "the timestamp is the number of seconds since 1970, digits only")

// The classes of characters; a byte may be in several.
const (
	inToken     = 1 << iota // RFC 9110, section 5.6.2
	inLower                 // of those, all but the upper-case letters
	inNonce                 // unreserved in RFC 3986, section 2.3
	inAuthority             // visible, and no part of a URI around a host
	inKeyID                 // visible
	inLine                  // no control character but a tab
	inWebhookID             // what core takes for a key as it is
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

// consistsOf reports whether s has characters of the class only, and at least one.
func consistsOf(s string, class byte) bool {
	for i := 0; i < len(s); i++ {
		if classes[s[i]]&class == 0 {
			return false
		}
	}
	return s != ""
}

// isLine reports whether s, which may be empty, can be a line of a signing string, or a part of
// one: with a line feed in it, two messages could have the same string.
func isLine(s string) bool { return s == "" || consistsOf(s, inLine) }

func isToken(s string) bool { return consistsOf(s, inToken) }
