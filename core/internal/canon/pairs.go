package canon

import (
	"bytes"
	"cmp"
	"slices"
)

// pairSpan is a pair that stands in scratch.out.
type pairSpan struct {
	prefix        uint64 // the first bytes of the name, for quick comparison
	name, nameEnd int    // the decoded name, in scratch.names
	start, end    int    // name=value&, in scratch.out
}

// pathPair adds a path parameter. It always counts.
func (s *scratch) pathPair(p Pair) {
	name, start := len(s.names), len(s.out)
	s.names = append(s.names, p.Name...)
	s.out = appendQueryEscape(s.out, p.Name)
	s.out = append(s.out, '=')
	s.out = appendQueryEscape(s.out, p.Value)
	s.endPair(name, start)
}

// encodedPairs adds the pairs of a query or an urlencoded form.
func (s *scratch) encodedPairs(r *Rules, text []byte) {
	all := len(text)
	for len(text) > 0 {
		var segment []byte
		if i := bytes.IndexByte(text, '&'); i >= 0 {
			segment, text = text[:i], text[i+1:]
		} else {
			segment, text = text, nil
		}
		if len(segment) == 0 {
			continue
		}
		rawName, rawValue, _ := bytes.Cut(segment, []byte{'='})
		name, start := len(s.names), len(s.out)
		s.names = appendDecoded(s.names, rawName)
		if !s.admits(r, s.names[name:], true) {
			s.names = s.names[:name]
			continue
		}
		s.out = appendComponent(s.out, rawName)
		s.out = append(s.out, '=')
		s.out = appendComponent(s.out, rawValue)
		if len(s.pairs) == cap(s.pairs) {
			s.pairs = grown(s.pairs, all-len(text), all)
		}
		s.endPair(name, start)
	}
}

// admits reports whether a pair of this name counts, and counts it if it is selected.
func (s *scratch) admits(r *Rules, name []byte, defaultNames bool) bool {
	if defaultNames && r.DefaultNames && isDefaultName(name) || r.Exclude.matchesPair(name) {
		return false
	}
	if r.Select != nil {
		if !r.Select.matchesPair(name) {
			return false
		}
		s.selected++
	}
	return true
}

// endPair ends a pair whose decoded name begins at name in s.names and whose text, up
// to and with the value, begins at start in s.out.
func (s *scratch) endPair(name, start int) {
	s.out = append(s.out, '&')
	s.pairs = append(s.pairs, pairSpan{
		prefix:  bytesPrefix(s.names[name:]),
		name:    name,
		nameEnd: len(s.names),
		start:   start,
		end:     len(s.out),
	})
}

// bytesPrefix returns the first 8 bytes of name so that they compare as the bytes do,
// apart from equality: a shorter name is filled up with zeros.
func bytesPrefix(name []byte) (prefix uint64) {
	for i := range min(len(name), 8) {
		prefix |= uint64(name[i]) << (56 - 8*i)
	}
	return prefix
}

func (s *scratch) comparePairs(a, b pairSpan) int {
	if a.prefix != b.prefix {
		return cmp.Compare(a.prefix, b.prefix)
	}
	if c := bytes.Compare(s.names[a.name:a.nameEnd], s.names[b.name:b.nameEnd]); c != 0 {
		return c
	}
	if s.files && s.isFile(a) != s.isFile(b) {
		if s.isFile(b) {
			return -1
		}
		return 1
	}
	return cmp.Compare(a.start, b.start) // repeats stay in order
}

// isFile reports whether p is a file of a multipart form: only then is there a bare '@'
// behind the '='.
func (s *scratch) isFile(p pairSpan) bool {
	text := s.out[p.start:p.end]
	return text[bytes.IndexByte(text, '=')+1] == '@'
}

// joinPairs puts all pairs in order, and takes away the '&' behind the last one.
func (s *scratch) joinPairs() {
	if len(s.pairs) == 0 {
		return
	}
	if !slices.IsSortedFunc(s.pairs, s.comparePairs) {
		sortByPrefix(s.pairs, func(p pairSpan) uint64 { return p.prefix }, func(few []pairSpan) {
			slices.SortFunc(few, s.comparePairs)
		})
		s.spare = append(s.spare[:0], s.out...)
		s.out = s.out[:0]
		for i := range s.pairs {
			s.out = append(s.out, s.spare[s.pairs[i].start:s.pairs[i].end]...)
		}
	}
	s.out = s.out[:len(s.out)-1]
}

// unreserved holds the bytes that [net/url.QueryEscape] leaves alone.
var unreserved = byteSet("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~")

// appendQueryEscape appends text as [net/url.QueryEscape] writes it.
func appendQueryEscape[T string | []byte](dst []byte, text T) []byte {
	for i := 0; i < len(text); i++ {
		dst = appendQueryByte(dst, text[i])
	}
	return dst
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

// appendComponent appends a name or value, as it stands in a query, in its canonical
// form. One with a bad escape has no value; it is told from all that have one by "%!",
// which is never the beginning of an escape.
func appendComponent(dst, raw []byte) []byte {
	begin, plain := len(dst), 0
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		if unreserved[c] || c == '+' {
			continue
		}
		dst = append(dst, raw[plain:i]...)
		if c == '%' {
			var ok bool
			if c, ok = unescapeByte(raw[i:]); !ok {
				dst = append(dst[:begin], "%!"...)
				return appendQueryEscape(dst, raw)
			}
			i += 2
		}
		dst = appendQueryByte(dst, c)
		plain = i + 1
	}
	return append(dst, raw[plain:]...)
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
