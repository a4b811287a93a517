package canon

import (
	"bytes"
	"slices"
)

// bodyPrefix is what the names of form fields begin with. A ':' of a name is escaped, so
// that no other pair begins with it.
const bodyPrefix = "body:"

// beginForm says that the pairs from here on are the fields of a form.
func (s *scratch) beginForm() {
	s.prefix = bodyPrefix
	if len(s.pairs) == 0 {
		s.common = len(bodyPrefix) // of all names: nothing to compare
	}
}

// pathPair adds a path parameter. It always counts.
func (s *scratch) pathPair(p Pair) {
	start := len(s.out)
	s.out = appendQueryEscape(s.out, p.Name)
	s.out = append(s.out, '=')
	s.out = appendQueryEscape(s.out, p.Value)
	s.endPair(start)
}

// encodedPairs adds the pairs of a query or, after beginForm, of an urlencoded form.
//
// It copies lazily: what is in text as it is in the canonical form is only copied
// when something different comes.
func (s *scratch) encodedPairs(r *Rules, text []byte) {
	pairs := min(bytes.Count(text, []byte("&")), len(text)/2) + 1 // an empty pair is none
	s.pairs = slices.Grow(s.pairs, pairs)
	s.out = slices.Grow(s.out, len(text)+pairs*(len(s.prefix)+len("=")))
	copied := 0 // text[:copied] has been copied to s.out, or left out
	flush := func(to int) {
		s.out = append(s.out, text[copied:to]...)
		copied = to
	}
	for i := 0; i < len(text); {
		if text[i] == '&' {
			flush(i)
			for i < len(text) && text[i] == '&' {
				i++
			}
			copied = i
			continue
		}
		if s.prefix != "" {
			flush(i)
			s.out = append(s.out, s.prefix...)
		}
		begin, start := i, len(s.out)+i-copied // in text and, sooner or later, in s.out
		var escaped bool
		i, copied, escaped = s.component(text, i, copied, '=')
		if s.looksAtNames(r) && !s.admits(r, s.decodedName(text[begin:i], escaped), false) {
			if copied <= begin {
				flush(begin)
			}
			s.out = s.out[:start-len(s.prefix)]
			if n := bytes.IndexByte(text[i:], '&'); n >= 0 {
				i += n + 1
			} else {
				i = len(text)
			}
			copied = i
			continue
		}
		start -= len(s.prefix)
		equals := len(s.out) + i - copied
		name := text[begin:i]
		if copied > begin || len(s.prefix) != s.common {
			flush(i)
			name = s.out[start+s.common:]
		}
		prefix := pairPrefix(name)
		if i < len(text) && text[i] == '=' {
			i++
		} else {
			flush(i)
			s.out = append(s.out, '=')
		}
		i, copied, _ = s.component(text, i, copied, '&')
		if i < len(text) {
			i++
		} else {
			flush(i)
			s.out = append(s.out, '&')
		}
		s.addPair(pair{prefix, start, equals, len(s.out) + i - copied})
	}
	flush(len(text))
}

// component reads a name or value, which begins at text[i], and copies of it what has to be
// changed to bring it into canonical form, with all that comes before. It ends at end, or at
// '&', or with the text. text[:copied] has been copied before. escaped tells whether the
// component is not what it stands for.
//
// A component with a bad escape has no value; it is told from all that have one by "%!",
// which is never the beginning of an escape.
func (s *scratch) component(text []byte, i, copied int, end byte) (_, nowCopied int, escaped bool) {
	begin, start := i, len(s.out)+i-copied
	for i < len(text) {
		c := text[i]
		if unreserved[c] {
			i++
			continue
		}
		if c == '&' || c == end {
			break
		}
		size := 1
		switch c {
		case '+':
			escaped = true
			i++
			continue
		case '%':
			escaped = true
			var ok bool
			if c, ok = unescapeByte(text[i:]); !ok {
				if copied <= begin {
					s.out = append(s.out, text[copied:begin]...)
				}
				s.out = append(s.out[:start], "%!"...)
				for i < len(text) && text[i] != '&' && text[i] != end {
					i++
				}
				s.out = appendQueryEscape(s.out, text[begin:i])
				return i, i, true
			}
			size = 3
			if !unreserved[c] && c != ' ' && text[i+1] < 'a' && text[i+2] < 'a' {
				i += size // it is as QueryEscape would write it
				continue
			}
		}
		if copied < i {
			s.out = append(s.out, text[copied:i]...)
		}
		s.out = appendQueryByte(s.out, c)
		i += size
		copied = i
	}
	return i, copied, escaped
}

// looksAtNames reports whether a pair may be left out, or counted, for its name.
func (s *scratch) looksAtNames(r *Rules) bool {
	return r.DefaultNames || r.Exclude != nil || r.Select != nil || len(s.consumed) > 0
}

// admits reports whether a pair of this name counts, and counts it if it is selected.
func (s *scratch) admits(r *Rules, name []byte, isFile bool) bool {
	if !isFile && isOneOf(s.consumed, name) || r.Exclude.matchesPair(name) || r.Select != nil && !r.Select.matchesPair(name) {
		return false
	}
	if r.DefaultNames && !isFile {
		class := classOf(name)
		if s.seen |= class; class&s.leftOut != 0 {
			return false
		}
	}
	s.otherwise = true
	if r.Select != nil {
		s.selected++
	}
	return true
}

func isOneOf(list []string, name []byte) bool {
	for _, one := range list {
		if one == string(name) {
			return true
		}
	}
	return false
}

// endPair ends a pair whose text, up to and with the value, begins at start in s.out.
func (s *scratch) endPair(start int) {
	s.out = append(s.out, '&')
	equals := start + bytes.IndexByte(s.out[start:], '=')
	s.addPair(pair{pairPrefix(s.out[start+s.common : equals]), start, equals, len(s.out)})
}

// joinPairs puts all pairs in order, and takes away the '&' after the last one.
func (s *scratch) joinPairs() {
	if len(s.pairs) == 0 {
		return
	}
	if s.unsorted {
		s.arrangePairs()
	}
	s.out = s.out[:len(s.out)-1]
}

// unreserved holds the bytes that [net/url.QueryEscape] leaves alone.
var unreserved = byteSet("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~")

// appendQueryEscape appends text as [net/url.QueryEscape] writes it.
func appendQueryEscape[T string | []byte](dst []byte, text T) []byte {
	plain := 0
	for i := 0; i < len(text); i++ {
		if unreserved[text[i]] {
			continue
		}
		if plain < i {
			dst = append(dst, text[plain:i]...)
		}
		dst = appendQueryByte(dst, text[i])
		plain = i + 1
	}
	return append(dst, text[plain:]...)
}

func appendQueryByte(dst []byte, c byte) []byte {
	switch {
	case unreserved[c]:
		return append(dst, c)
	case c == ' ':
		return append(dst, '+')
	}
	return append(dst, '%', upperHex[c>>4], upperHex[c&15])
}

// decodedName returns the name that raw is the encoded form of. It is valid until the next
// one is decoded.
func (s *scratch) decodedName(raw []byte, escaped bool) []byte {
	if !escaped {
		return raw
	}
	s.names = appendDecoded(s.names[:0], raw)
	return s.names
}

// appendDecoded appends the name that raw is the encoded form of, or raw itself if it
// has a bad escape.
func appendDecoded(dst, raw []byte) []byte {
	begin := len(dst)
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		switch c {
		case '+':
			c = ' '
		case '%':
			var ok bool
			if c, ok = unescapeByte(raw[i:]); !ok {
				return append(dst[:begin], raw...)
			}
			i += 2
		}
		dst = append(dst, c)
	}
	return dst
}

// unescapeByte reads the %XX at the beginning of text.
func unescapeByte(text []byte) (c byte, ok bool) {
	if len(text) < 3 {
		return 0, false
	}
	hi, lo := hexDigit[text[1]], hexDigit[text[2]]
	return hi<<4 | lo&15, hi|lo < 16
}

// hexDigit holds the value of each hexadecimal digit, and 255 for every other byte.
var hexDigit = func() (digit [256]byte) {
	for c := range digit {
		switch {
		case '0' <= c && c <= '9':
			digit[c] = byte(c - '0')
		case 'a' <= c && c <= 'f':
			digit[c] = byte(c - 'a' + 10)
		case 'A' <= c && c <= 'F':
			digit[c] = byte(c - 'A' + 10)
		default:
			digit[c] = 255
		}
	}
	return digit
}()
