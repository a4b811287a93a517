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

// addJSON adds the members of a flat object (RFC 8259). What is a number is left to
// encoding/json, and what is not UTF-8 to add.
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

// takeMark is take for what may have white space in front.
func (r *reader) takeMark(mark string) bool {
	r.skipSpace()
	return r.take(mark)
}

// takeScalar takes a string, a number, a boolean or null, and returns its text: that of numbers is their
// own, and null is empty. What comes next is neither an object nor an array.
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

// takeString takes a string, and returns what it stands for. Without escapes, that is a part of the body.
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
			i++ // what is escaped does not end the string
		case c < ' ':
			return "", false
		}
	}
	return "", false
}

// unescapeJSON puts characters in the place of escapes (RFC 8259, section 7). Half of a surrogate pair is refused.
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

// takeEscape takes one escape, and returns the character that it stands for, or half of a pair.
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

// appendJSON returns an object with more members. They are strings.
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
