package canon

import "math/bits"

// fewToSort is up to how many elements are left to an ordinary sort: they fit into the
// nearest cache.
const fewToSort = 256

// sortByPrefix sorts list by the prefixes of its elements, and leaves it to few to sort each
// part of it that is small, or in which all prefixes are the same; few gets no
// part of one element. It distributes the elements by eight bits at a time, so that a list of a hundred
// thousand is not gone through once for each doubling of its length. It is not stable.
func sortByPrefix[T any](list []T, prefix func(T) uint64, few func([]T)) {
	if len(list) <= fewToSort {
		few(list)
		return
	}
	first, different := prefix(list[0]), uint64(0)
	for i := range list {
		different |= prefix(list[i]) ^ first
	}
	if different == 0 {
		few(list)
		return
	}
	// From the first bit on that is not the same in all of them.
	shift := max(0, 56-bits.LeadingZeros64(different))
	var next, end [256]int // where each bucket is filled next, and where it ends
	for i := range list {
		end[byte(prefix(list[i])>>shift)]++
	}
	for b, at := 0, 0; b < len(end); b++ {
		next[b], at = at, at+end[b]
		end[b] = at
	}
	for b := range next {
		for next[b] < end[b] {
			e := list[next[b]]
			for { // takes e to where it belongs, and goes on with what was there
				to := byte(prefix(e) >> shift)
				if to == byte(b) {
					break
				}
				list[next[to]], e = e, list[next[to]]
				next[to]++
			}
			list[next[b]] = e
			next[b]++
		}
	}
	start := 0
	for b := range end {
		if end[b]-start > 1 {
			sortByPrefix(list[start:end[b]], prefix, few)
		}
		start = end[b]
	}
}
