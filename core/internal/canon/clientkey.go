package canon

import (
	"errors"
	"fmt"
	"strings"
)

// MaxClientKey is the length, in bytes, of the longest client key.
const MaxClientKey = 255

// What can be wrong with an Idempotency-Key field.
var (
	ErrKeyEmpty        = errors.New("the key is empty")
	ErrKeyList         = errors.New("more than one key")
	ErrKeyUnterminated = errors.New("the closing quote is missing")
	ErrKeyCharacter    = errors.New("a character that a key may not hold")
	ErrKeyTooLong      = errors.New("the key is longer than 255 bytes")
)

// keySafe holds the bytes of a bare key: those of an RFC 9110 token, and ':', '/' and
// '=', because clients send URNs and base64.
var keySafe = byteSet("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-.^_`|~:/=")

// ParseClientKey returns the key that the value of an Idempotency-Key field means: the
// text of an RFC 8941 string (section 3.3.3) without parameters, or a bare token. "k"
// and k are the same key. The error is, to errors.Is, one of the ErrKey values. Nothing is
// allocated unless the string has escapes, or a character that a key may not hold; the key is
// otherwise a part of field.
func ParseClientKey(field string) (key string, err error) {
	field = strings.Trim(field, " \t")
	if field == "" {
		return "", ErrKeyEmpty
	}
	if field[0] == '"' {
		key, err = parseString(field)
	} else {
		key, err = parseBare(field)
	}
	switch {
	case err != nil:
		return "", err
	case key == "":
		return "", ErrKeyEmpty
	case len(key) > MaxClientKey:
		return "", ErrKeyTooLong
	}
	return key, nil
}

func badCharacter(c byte) error { return fmt.Errorf("%w: %q", ErrKeyCharacter, []byte{c}) }

func parseBare(field string) (string, error) {
	for i := 0; i < len(field); i++ {
		if c := field[i]; c == ',' {
			return "", ErrKeyList
		} else if !keySafe[c] {
			return "", badCharacter(c)
		}
	}
	return field, nil
}

func parseString(field string) (string, error) {
	escapes := 0
	i := 1
	for ; i < len(field) && field[i] != '"'; i++ {
		switch c := field[i]; {
		case c < ' ' || c > '~':
			return "", badCharacter(c)
		case c == '\\':
			i++
			if i == len(field) {
				return "", ErrKeyUnterminated
			}
			if field[i] != '"' && field[i] != '\\' {
				return "", badCharacter(field[i])
			}
			escapes++
		}
	}
	if i >= len(field) {
		return "", ErrKeyUnterminated
	}
	text := field[1:i]
	if after := strings.TrimLeft(field[i+1:], " \t"); after != "" {
		if after[0] == ',' {
			return "", ErrKeyList
		}
		return "", badCharacter(after[0])
	}
	if escapes == 0 {
		return text, nil
	}
	if len(text)-escapes > MaxClientKey {
		return "", ErrKeyTooLong
	}
	key := make([]byte, 0, len(text)-escapes)
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' {
			i++
		}
		key = append(key, text[i])
	}
	return string(key), nil
}
