package canon

import (
	"bytes"
	"cmp"
	"slices"
)

// pairRef is a pair that stands in scratch.out, as name=value&.
//
// "body:" belongs to the name, in which it counts like any other bytes. If all names have it in
// front, they are compared from behind it.
type pairRef struct {
	prefix uint64 // the first bytes of the name; see [pairPrefix]
	at     int    // where the name begins in scratch.out, behind what all names have in front
}

// pairPrefix returns the first 8 bytes of a name, decoded and filled up with zeros. The name begins at text[at], in
// canonical form and with the '=' behind it. Unequal prefixes compare as the names do.
func pairPrefix(text []byte, at int) (prefix uint64) {
	for shift := 56; shift >= 0 && text[at] != '='; shift -= 8 {
		c, n := pairByte(text[at:])
		prefix |= uint64(c) << shift
		at += n
	}
	return prefix
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

// addPair adds a pair that begins at start in the canonical form.
func (s *scratch) addPair(prefix uint64, at int) {
	if n := len(s.pairs); n > 0 && prefix <= s.pairs[n-1].prefix {
		s.unsorted = true
	}
	s.pairs = append(s.pairs, pairRef{prefix, at})
}

// arrangePairs puts the pairs in s.out in the order of their names. Repeats stay in order, but files go behind fields.
func (s *scratch) arrangePairs() {
	// A prefix that ends in a zero is the whole name, if no name has a NUL.
	whole := !s.files && !bytes.Contains(s.out, []byte("%00"))
	slices.SortFunc(s.pairs, func(a, b pairRef) int {
		switch c := cmp.Compare(a.prefix, b.prefix); {
		case c != 0:
			return c
		case whole && byte(a.prefix) == 0:
			return cmp.Compare(a.at, b.at)
		}
		return s.comparePairs(a, b)
	})
	arranged := slices.Grow(s.spare[:0], len(s.out))
	for _, p := range s.pairs {
		begin := p.at - s.common
		arranged = append(arranged, s.out[begin:begin+bytes.IndexByte(s.out[begin:], '&')+1]...)
	}
	s.out, s.spare = arranged, s.out
}

// comparePairs compares the whole names of two pairs, and then what and where they are.
func (s *scratch) comparePairs(a, b pairRef) int {
	x, y := s.out[a.at:], s.out[b.at:]
	x = x[:bytes.IndexByte(x, '=')+1]
	for {
		// What is the same needs no decoding, but for an escape that ends in what is not.
		n := commonLength(x, y)
		if n == len(x) {
			break // the same name
		}
		switch {
		case x[n] == '=':
			return -1
		case y[n] == '=':
			return 1
		}
		if at := bytes.LastIndexByte(x[max(n-2, 0):n], '%'); at >= 0 {
			n = max(n-2, 0) + at
		}
		c, i := pairByte(x[n:])
		d, k := pairByte(y[n:])
		if c != d {
			return cmp.Compare(c, d)
		}
		x, y = x[n+i:], y[n+k:]
	}
	if s.files {
		if file := s.isFile(a); file != s.isFile(b) {
			if file {
				return 1
			}
			return -1
		}
	}
	return cmp.Compare(a.at, b.at)
}

// isFile reports whether p is a file of a multipart form: only then is there a bare '@'
// behind the '='.
func (s *scratch) isFile(p pairRef) bool {
	return s.out[p.at+bytes.IndexByte(s.out[p.at:], '=')+1] == '@'
}
