package canon

import (
	"bytes"
	"cmp"
	"slices"
)

// pairNames are the names of pairs, which stand in scratch.out as name=value&.
//
// "body:" belongs to the name, in which it counts like any other bytes. If all names have it in
// front, they are compared from behind it.
var pairNames = nameForm{end: '=', escapes: [2]byte{'%', '+'}, decode: pairByte, whole: func(text []byte, from, at int) int {
	from = max(from, at-2) // an escape has 3 bytes
	if i := bytes.LastIndexByte(text[from:at], '%'); i >= 0 {
		return from + i
	}
	return at
}}

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

// addPair adds a pair that begins at s.out[start], with the beginning of its name.
func (s *scratch) addPair(start int, prefix uint64, at int) {
	if n := len(s.pairs); n > 0 {
		prev := s.pairs[n-1].prefix
		s.unsorted = s.unsorted || prefix < prev || prefix == prev && goesOn(prefix)
	}
	s.pairs = append(s.pairs, nameRef{prefix, at, start})
}

// arrangePairs puts the pairs in s.out in the order of their names. Repeats stay in order, but files go behind fields.
func (s *scratch) arrangePairs() {
	s.spareNames = slices.Grow(s.spareNames[:0], len(s.pairs))[:len(s.pairs)]
	pairNames.sort(s.out, s.pairs, s.spareNames, func(a, b nameRef) int {
		if file := s.files && s.isFile(a); file != (s.files && s.isFile(b)) {
			if file {
				return 1
			}
			return -1
		}
		return cmp.Compare(a.of, b.of)
	})
	arranged := slices.Grow(s.spare[:0], len(s.out))
	for _, p := range s.pairs {
		arranged = append(arranged, s.out[p.of:p.at+bytes.IndexByte(s.out[p.at:], '&')+1]...)
	}
	s.out, s.spare = arranged, s.out
}

// isFile reports whether p is a file of a multipart form: only then is there a bare '@'
// behind the '='.
func (s *scratch) isFile(p nameRef) bool {
	return s.out[p.at+bytes.IndexByte(s.out[p.at:], '=')+1] == '@'
}
