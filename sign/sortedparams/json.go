package sortedparams

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/idem-go/idem/sign"
)

// addJSON adds the members of a flat object (RFC 8259). encoding/json decides what a number is, and add refuses text that is not
// UTF-8.
func (l *params) addJSON(body []byte) error {
	r := reader{string(body)}
	if !r.takeMark("{") {
		return errJSON
	}
	for more := !r.takeMark("}"); more; {
		name, ok := r.takeString()
		if !ok || !r.takeMark(":") {
			return errJSON
		}
		if r.takeMark("{") || r.takeMark("[") {
			return sign.Errorf(sign.CodeMalformed, "a member of the JSON object is an object or an array")
		}
		value, ok := r.takeScalar()
		if !ok {
			return errJSON
		}
		if err := l.add(name, value); err != nil {
			return err
		}
		if more = r.takeMark(","); !more && !r.takeMark("}") {
			return errJSON
		}
	}
	if r.skipSpace(); r.rest != "" {
		return errJSON
	}
	return nil
}

var errJSON = sign.Errorf(sign.CodeMalformed, "the body is not a JSON object")

// takeMark takes mark after any white space.
func (r *reader) takeMark(mark string) bool {
	r.skipSpace()
	return r.take(mark)
}

// takeScalar takes a string, a number, a boolean or null, and returns its text. Numbers keep their exact text, and null is empty.
// The next value must not be an object or an array.
func (r *reader) takeScalar() (text string, ok bool) {
	if strings.HasPrefix(r.rest, `"`) {
		return r.takeString()
	}
	end := strings.IndexAny(r.rest, ",} \t\r\n")
	if end < 0 {
		return "", false
	}
	text, r.rest = r.rest[:end], r.rest[end:]
	switch text {
	case "null":
		return "", true
	case "true", "false":
		return text, true
	}
	return text, json.Valid([]byte(text)) // so it is a number
}

// takeString takes a string, and returns its value. Without escapes, the value shares memory with the body.
func (r *reader) takeString() (text string, ok bool) {
	r.skipSpace()
	quoted, escaped := r.rest, false
	if !r.take(`"`) {
		return "", false
	}
	for i := 1; i < len(quoted); i++ {
		switch c := quoted[i]; {
		case c == '"':
			r.rest = quoted[i+1:]
			if escaped {
				return unescapeJSON(quoted[1:i])
			}
			return quoted[1:i], true
		case c == '\\':
			escaped = true
			i++ // an escaped quote does not end the string
		case c < ' ':
			return "", false
		}
	}
	return "", false
}

// unescapeJSON replaces escapes by characters (RFC 8259, section 7). It refuses half of a surrogate pair.
func unescapeJSON(text string) (unescaped string, ok bool) {
	var b strings.Builder
	b.Grow(len(text))
	r := reader{text}
	for {
		plain, _, found := strings.Cut(r.rest, `\`)
		b.WriteString(plain)
		if !found {
			return b.String(), true
		}
		r.take(plain)
		c, ok := r.takeEscape()
		if utf16.IsSurrogate(c) {
			low, _ := r.takeEscape()
			c = utf16.DecodeRune(c, low)
			ok = c != utf8.RuneError
		}
		if !ok {
			return "", false
		}
		b.WriteRune(c)
	}
}

// takeEscape takes one escape, and returns its character, or half of a surrogate pair.
func (r *reader) takeEscape() (c rune, ok bool) {
	if !r.take(`\`) || r.rest == "" {
		return 0, false
	}
	kind := r.rest[0]
	r.rest = r.rest[1:]
	if kind == 'u' && len(r.rest) >= 4 {
		n, err := strconv.ParseUint(r.rest[:4], 16, 16)
		r.rest = r.rest[4:]
		return rune(n), err == nil
	}
	i := strings.IndexByte(`"\/bfnrt`, kind)
	if i < 0 {
		return 0, false
	}
	return rune("\"\\/\b\f\n\r\t"[i]), true
}

// appendJSON returns a copy of an object with more members, which are strings.
func appendJSON(object []byte, added []param) ([]byte, error) {
	b := bytes.TrimRight(object, " \t\r\n")
	if len(b) == 0 {
		b = []byte("{}")
	}
	b = bytes.TrimRight(b[:len(b)-1], " \t\r\n")
	b = append([]byte(nil), b...)
	for _, p := range added {
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		name, err := json.Marshal(p.name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(p.value)
		if err != nil {
			return nil, err
		}
		b = append(append(append(b, name...), ':'), value...)
	}
	return append(b, '}'), nil
}
