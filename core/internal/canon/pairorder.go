package canon

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
)

// pairRef is a pair that stands in scratch.out, as name=value&.
//
// "body:" belongs to the name, in which it counts like any other bytes. If all names have it in
// front, they are compared from behind it.
type pairRef struct {
	key uint64 // a part of the name; see [nameKey]
	at  int    // where that part is in scratch.out
}

// nameKey returns the next bytes of a name as a number that compares as they do. Its name,
// or what is left of it, begins at text[at], in canonical form and with the '=' behind it.
//
// The number holds seven bytes, decoded and filled up with zeros, and then how many they
// are, or 8 if more will follow: keys are equal only if the bytes are, and if both names go
// on or both have ended.
func nameKey(text []byte, at int) uint64 {
	if len(text)-at >= 8 {
		word := binary.LittleEndian.Uint64(text[at:])
		n := bits.TrailingZeros64(bytesIn(word, '=')|bytesIn(word, '%')|bytesIn(word, '+')) / 8
		switch {
		case n < 7 && text[at+n] != '=':
			return decodedNameKey(text, at)
		case n == 7 && text[at+n] != '=':
			n = 8
		}
		return bits.ReverseBytes64(word)&(^uint64(0)<<(64-8*min(n, 7))) | uint64(n)
	}
	return decodedNameKey(text, at)
}

// decodedNameKey is nameKey for any name, byte by byte.
func decodedNameKey(text []byte, at int) (key uint64) {
	for n := range 7 {
		at = behindMark(text, at)
		c := text[at]
		switch c {
		case '=':
			return key | uint64(n)
		case '+':
			c = ' '
		case '%':
			c, _ = unescapeByte(text[at:])
			at += 2
		}
		key |= uint64(c) << (56 - 8*n)
		at++
	}
	if text[at] == '=' {
		return key | 7
	}
	return key | 8
}

// behindKey returns where a name goes on behind the seven bytes at text[at].
func behindKey(text []byte, at int) int {
	for range 7 {
		at = behindMark(text, at)
		if text[at] == '%' {
			at += 2
		}
		at++
	}
	return at
}

// behindMark returns where a name goes on behind the mark, if there is one, that it has no value.
func behindMark(text []byte, at int) int {
	if text[at] == '%' && text[at+1] == '!' {
		return at + 2
	}
	return at
}

// goesOn reports whether a name has more bytes than those in its key.
func goesOn(key uint64) bool { return byte(key) == 8 }

// bytesIn returns a number whose lowest bit that is set lies in the lowest byte of word that is
// c; it is 0 if there is none.
func bytesIn(word uint64, c byte) uint64 {
	word ^= everyByte * uint64(c)
	return (word - everyByte) &^ word & highBits
}

// addPair adds a pair that begins at start in the canonical form.
func (s *scratch) addPair(key uint64, start int) {
	if n := len(s.pairs); n > 0 {
		prev := s.pairs[n-1].key
		s.unsorted = s.unsorted || key < prev || key == prev && goesOn(key)
	}
	s.pairs = append(s.pairs, pairRef{key, start})
}

// arrangePairs puts the pairs in s.out in the order of their names.
func (s *scratch) arrangePairs() {
	s.sparePairs = slices.Grow(s.sparePairs[:0], len(s.pairs))[:len(s.pairs)]
	s.sortPairs(s.pairs, s.sparePairs, false)
	arranged := slices.Grow(s.spare[:0], len(s.out))
	for _, p := range s.pairs {
		begin := p.at
		for begin > 0 && s.out[begin-1] != '&' {
			begin--
		}
		end := p.at + bytes.IndexByte(s.out[p.at:], '&') + 1
		arranged = append(arranged, s.out[begin:end]...)
	}
	s.out, s.spare = arranged, s.out
}

// fewPairs is up to how many pairs are sorted by insertion.
const fewPairs = 24

// sortPairs sorts pairs whose names are the same up to where their keys begin. Repeats stay in
// order, but files go behind fields. The result is in list, or in spare, which is as long.
//
// This is a radix sort that goes through the names from the front. It looks at each of their
// bytes at most a few times, whatever they have in common, and reads the text only when the
// keys do not tell.
func (s *scratch) sortPairs(list, spare []pairRef, toSpare bool) {
	different, sorted := differences(list)
	for different == 0 && goesOn(list[0].key) {
		s.nextKeys(list)
		different, sorted = differences(list)
	}
	if !sorted {
		if len(list) > fewPairs {
			s.distributePairs(list, spare, different, toSpare)
			return
		}
		for k := 1; k < len(list); k++ {
			p, l := list[k], k
			for ; l > 0 && p.key < list[l-1].key; l-- {
				list[l] = list[l-1]
			}
			list[l] = p
		}
	}
	for start := 0; start < len(list); {
		key, end := list[start].key, start+1
		for end < len(list) && list[end].key == key {
			end++
		}
		if end-start > 1 {
			switch same, spare := list[start:end], spare[start:end]; {
			case goesOn(key):
				s.nextKeys(same)
				s.sortPairs(same, spare, false)
			case s.files:
				s.filesLast(same, spare)
			}
		}
		start = end
	}
	if toSpare {
		copy(spare, list)
	}
}

// differences returns the bits in which the keys of list are not the same, and whether they are
// in order.
func differences(list []pairRef) (different uint64, sorted bool) {
	first := list[0].key
	prev, descents := first, uint64(0)
	for i := range list {
		key := list[i].key
		different |= key ^ first
		_, less := bits.Sub64(key, prev, 0)
		descents |= less
		prev = key
	}
	return different, descents == 0
}

// distributePairs is sortPairs by the highest bits that are different: four of them, and the
// next four. Those between, in which all keys are the same, are passed over; so it goes
// through numbers by two digits at a time.
func (s *scratch) distributePairs(list, spare []pairRef, different uint64, toSpare bool) {
	high := max(bits.Len64(different)-4, 0)
	below := uint64(1)<<high - 1
	low := max(bits.Len64(different&below)-4, 0)
	lowMask := (below >> low) & 15
	window := 15<<high | lowMask<<low

	next := &s.buckets
	clear(next[:])
	for i := range list {
		key := list[i].key
		next[byte(key>>(high&63)<<4)|byte(key>>(low&63)&lowMask)]++
	}
	at := 0
	for b, n := range next {
		next[b] = at
		at += n
	}
	for i := range list {
		key := list[i].key
		b := byte(key>>(high&63)<<4) | byte(key>>(low&63)&lowMask)
		spare[next[b]] = list[i]
		next[b]++
	}
	for start := 0; start < len(spare); {
		first, end := spare[start].key, start+1
		for end < len(spare) && (spare[end].key^first)&window == 0 {
			end++
		}
		if end-start > 1 {
			s.sortPairs(spare[start:end], list[start:end], !toSpare)
		} else if !toSpare {
			list[start] = spare[start]
		}
		start = end
	}
}

// nextKeys goes on to the next part of the names of list.
func (s *scratch) nextKeys(list []pairRef) {
	for i := range list {
		p := &list[i]
		p.at = behindKey(s.out, p.at)
		p.key = nameKey(s.out, p.at)
	}
}

// filesLast puts the fields of a multipart form in front of the files of the same name.
func (s *scratch) filesLast(list, spare []pairRef) {
	fields, files := 0, 0
	for _, p := range list {
		if s.isFile(p) {
			spare[files] = p
			files++
		} else {
			list[fields] = p
			fields++
		}
	}
	copy(list[fields:], spare[:files])
}

// isFile reports whether p is a file of a multipart form: only then is there a bare '@'
// behind the '='.
func (s *scratch) isFile(p pairRef) bool {
	return s.out[p.at+bytes.IndexByte(s.out[p.at:], '=')+1] == '@'
}
