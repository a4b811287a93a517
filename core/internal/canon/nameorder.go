package canon

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"
)

// nameForm is how names stand in a canonical text.
type nameForm struct {
	end     byte    // stands behind a name, and not in it
	escapes [2]byte // begin what does not stand for itself
	// decode returns the byte of a name that text begins with, and the length of what stands for it. Beyond ASCII it
	// may be another one, so that names compare as they should.
	decode func(text []byte) (c byte, n int)
	// whole returns at, or where the escape begins that text[:at] has only a part of. No escape goes on from in
	// front of text[from].
	whole func(text []byte, from, at int) int
}

// nameRef is a name that is to be put in order.
type nameRef struct {
	prefix uint64 // a part of the name; see [nameForm.next]
	at     int    // where the name goes on behind prefix in the text
	of     int    // what has the name: where a pair begins in the text, or the index of a member
}

// next returns the next 7 bytes of a name as a number that compares as they do, and where the name goes on behind
// them. What is left of the name begins at text[at].
//
// The bytes are decoded and filled up with zeros. The lowest byte of the number says how many they are, or 8 if more
// follow: names with the same prefix have either both ended or both go on.
func (f *nameForm) next(text []byte, at int) (prefix uint64, behind int) {
	if len(text)-at >= 8 {
		word := binary.LittleEndian.Uint64(text[at:])
		switch n := bits.TrailingZeros64(f.special(word)) / 8; {
		case n >= 7 && text[at+7] != f.end:
			return bits.ReverseBytes64(word)&^0xFF | 8, at + 7
		case text[at+n] == f.end:
			return bits.ReverseBytes64(word)&(^uint64(0)<<(64-8*n)) | uint64(n), at + n
		}
	}
	n := 0
	for ; n < 7 && text[at] != f.end; n++ {
		c, size := f.decode(text[at:])
		prefix |= uint64(c) << (56 - 8*n)
		at += size
	}
	if text[at] != f.end {
		n = 8
	}
	return prefix | uint64(n), at
}

// special returns a number whose lowest bit that is set lies in the lowest byte of word that is not one of a name, or
// does not stand for itself; it is 0 if there is none.
func (f *nameForm) special(word uint64) uint64 {
	return bytesIn(word, f.end) | bytesIn(word, f.escapes[0]) | bytesIn(word, f.escapes[1]) | word&highBits
}

// bytesIn returns a number whose lowest bit that is set lies in the lowest byte of word that is c; it is 0 if there
// is none.
func bytesIn(word uint64, c byte) uint64 {
	word ^= everyByte * uint64(c)
	return (word - everyByte) &^ word & highBits
}

// goesOn reports whether names with this prefix have more bytes than those in it.
func goesOn(prefix uint64) bool { return byte(prefix) == 8 }

// compare compares two names, which are the same up to their prefixes.
func (f *nameForm) compare(text []byte, a, b nameRef) int {
	for a.prefix == b.prefix && goesOn(a.prefix) {
		from := a.at
		for len(text)-max(a.at, b.at) >= 8 { // passes over what is the same, and needs no decoding
			word := binary.LittleEndian.Uint64(text[a.at:])
			if word != binary.LittleEndian.Uint64(text[b.at:]) || bytesIn(word, f.end) != 0 {
				break
			}
			a.at, b.at = a.at+8, b.at+8
		}
		back := a.at - f.whole(text, from, a.at)
		a.at, b.at = a.at-back, b.at-back
		a.prefix, a.at = f.next(text, a.at)
		b.prefix, b.at = f.next(text, b.at)
	}
	return cmp.Compare(a.prefix, b.prefix)
}

// fewNames is up to how many names are sorted by comparing them, which is faster for them.
const fewNames = 128

// sort sorts names that are the same up to their prefixes; same orders those that are the same altogether. Of many
// names, which lie far apart in the text, it reads each once, and not in each comparison. spare is as long as names.
func (f *nameForm) sort(text []byte, names, spare []nameRef, same func(a, b nameRef) int) {
	if len(names) <= fewNames {
		slices.SortFunc(names, func(a, b nameRef) int {
			if a.prefix != b.prefix {
				return cmp.Compare(a.prefix, b.prefix)
			}
			return cmp.Or(f.compare(text, a, b), same(a, b))
		})
		return
	}
	sortByPrefix(names, spare)
	for start, end := 0, 0; start < len(names); start = end {
		for end = start + 1; end < len(names) && names[end].prefix == names[start].prefix; end++ {
		}
		switch part := names[start:end]; {
		case len(part) == 1:
		case goesOn(part[0].prefix):
			for k := range part {
				part[k].prefix, part[k].at = f.next(text, part[k].at)
			}
			f.sort(text, part, spare[:len(part)], same)
		default:
			slices.SortFunc(part, same)
		}
	}
}

// sortByPrefix is a radix sort, byte by byte from the last: a list of a hundred thousand is not gone through once for
// each doubling of its length. Those with the same prefix stay in order.
func sortByPrefix(names, spare []nameRef) {
	different := uint64(0)
	for i := range names {
		different |= names[i].prefix ^ names[0].prefix
	}
	from, to := names, spare
	for shift := 0; shift < 64; shift += 8 {
		if byte(different>>shift) == 0 {
			continue
		}
		var next [256]int // where the next one with this byte goes
		for i := range from {
			next[byte(from[i].prefix>>shift)]++
		}
		at := 0
		for b, n := range next {
			next[b] = at
			at += n
		}
		for i := range from {
			b := byte(from[i].prefix >> shift)
			to[next[b]] = from[i]
			next[b]++
		}
		from, to = to, from
	}
	if &from[0] != &names[0] {
		copy(names, from)
	}
}
