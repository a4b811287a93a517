package canon

import (
	"cmp"
	"slices"
)

// pair is a pair in scratch.out, name=value&.
type pair struct {
	prefix             uint64 // the first bytes of the name, for quick comparison
	start, equals, end int    // where it begins, where the '=' is, where the next one begins
}

// pairByte returns the byte that a name in canonical form begins with, and the length of what stands for it. The
// mark of a name that has no value is passed over.
func pairByte(name []byte) (c byte, n int) {
	switch name[0] {
	case '+':
		return ' ', 1
	case '%':
		if name[1] != '!' {
			c, _ = unescapeByte(name)
			return c, 3
		}
		c, n = pairByte(name[2:])
		return c, n + 2
	}
	return name[0], 1
}

// pairPrefix returns the first 8 bytes of the name that canonical stands for, filled up with zeros: unequal prefixes
// compare as the names do.
func pairPrefix(canonical []byte) (prefix uint64) {
	for shift := 56; shift >= 0 && len(canonical) > 0; shift -= 8 {
		c, n := canonical[0], 1
		if !unreserved[c] { // without the call: this is the hot path
			c, n = pairByte(canonical)
		}
		prefix |= uint64(c) << shift
		canonical = canonical[n:]
	}
	return prefix
}

// comparePairNames compares two names in canonical form. They part at the first byte that differs: two escapes are
// in the order of their digits. "body:" and the mark of a name that has no value differ from other texts for the same
// bytes.
func comparePairNames(a, b []byte) int {
	for {
		n := common(a, b)
		if n > 0 && n < min(len(a), len(b)) && (a[n] == '!' || b[n] == '!') {
			n-- // the second byte of a mark
		}
		a, b = a[n:], b[n:]
		if len(a) == 0 || len(b) == 0 {
			return cmp.Compare(len(a), len(b))
		}
		x, xLen := pairByte(a)
		y, yLen := pairByte(b)
		if x != y {
			return cmp.Compare(x, y)
		}
		a, b = a[xLen:], b[yLen:]
	}
}

// addPair adds a pair that ends s.out, or will do so.
func (s *scratch) addPair(p pair) {
	if n := len(s.pairs); n > 0 {
		s.unsorted = s.unsorted || p.prefix <= s.pairs[n-1].prefix
	}
	s.pairs = append(s.pairs, p)
}

// arrangePairs puts the pairs in s.out in the order of their names. Repeats stay in order, but files go after fields.
func (s *scratch) arrangePairs() {
	slices.SortFunc(s.pairs, func(a, b pair) int {
		switch {
		case a.prefix < b.prefix:
			return -1
		case a.prefix > b.prefix:
			return 1
		}
		if c := comparePairNames(s.out[a.start+s.common:a.equals], s.out[b.start+s.common:b.equals]); c != 0 {
			return c
		}
		if file := s.isFile(a); file != s.isFile(b) {
			if file {
				return 1
			}
			return -1
		}
		return cmp.Compare(a.start, b.start)
	})
	arranged := slices.Grow(s.spare[:0], len(s.out))
	for _, p := range s.pairs {
		arranged = append(arranged, s.out[p.start:p.end]...)
	}
	s.out, s.spare = arranged, s.out
}

// isFile reports whether p is a file of a multipart form: only then is there a bare '@'
// after the '='.
func (s *scratch) isFile(p pair) bool { return s.out[p.equals+1] == '@' }

// common returns how many bytes a and b begin with alike.
func common(a, b []byte) (n int) {
	for most := min(len(a), len(b)); n < most && a[n] == b[n]; n++ {
	}
	return n
}
