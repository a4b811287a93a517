package load

import (
	"math"
	"math/bits"
	"time"
)

// subBits is how finely a histogram divides each power of two: into 2^subBits buckets, so that
// a value is off by at most 1/128, less than 0.8 %.
const subBits = 7

// Histogram counts durations in buckets of at most 0.8 % width, like HdrHistogram, whatever
// their range. The zero value is empty. It is not safe for concurrent use: each connection has
// one of its own, and they are merged.
type Histogram struct {
	counts []uint64 // by bucket; as long as the largest value so far needs
	n      uint64
	sum    float64
	max    time.Duration
}

// Record counts a duration. A negative one, of a clock that went back, counts as zero.
func (h *Histogram) Record(d time.Duration) {
	d = max(d, 0)
	i := bucket(uint64(d))
	if i >= len(h.counts) {
		h.counts = append(h.counts, make([]uint64, i+1-len(h.counts))...)
	}
	h.counts[i]++
	h.n++
	h.sum += float64(d)
	h.max = max(h.max, d)
}

// Merge adds what other has counted. It leaves other as it is.
func (h *Histogram) Merge(other *Histogram) {
	if len(other.counts) > len(h.counts) {
		h.counts = append(h.counts, make([]uint64, len(other.counts)-len(h.counts))...)
	}
	for i, c := range other.counts {
		h.counts[i] += c
	}
	h.n += other.n
	h.sum += other.sum
	h.max = max(h.max, other.max)
}

// Count returns how many durations were recorded.
func (h *Histogram) Count() uint64 { return h.n }

// Max returns the longest duration, exactly. It is zero if there are none.
func (h *Histogram) Max() time.Duration { return h.max }

// Mean returns the mean, exactly but for rounding. It is zero if there are no durations.
func (h *Histogram) Mean() time.Duration {
	if h.n == 0 {
		return 0
	}
	return time.Duration(h.sum / float64(h.n))
}

// Quantile returns a duration that at least the share q of all durations do not exceed: the
// upper edge of the bucket in which the one of rank ceil(q n) lies, or the longest duration
// if that is less. q below zero counts as zero, and above one (or NaN) as one. The quantile of an empty
// histogram is zero.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.n == 0 {
		return 0
	}
	if !(q < 1) { // also NaN
		return h.max
	}
	// The product may lie a rounding error above a whole number: 0.999 of 1000 are 999.
	rank := max(uint64(math.Ceil(max(q, 0)*float64(h.n)-1e-6)), 1)
	var seen uint64
	for i, c := range h.counts {
		if seen += c; seen >= rank {
			return min(time.Duration(upperEdge(i)), h.max)
		}
	}
	return h.max
}

// bucket returns the number of a value's bucket. Values below 2^(subBits+1) have a bucket each;
// those of each further power of two share 2^subBits.
func bucket(v uint64) int {
	if v < 2<<subBits {
		return int(v)
	}
	shift := bits.Len64(v) - subBits - 1
	return shift<<subBits + int(v>>shift)
}

// upperEdge returns the largest value of a bucket.
func upperEdge(i int) uint64 {
	if i < 2<<subBits {
		return uint64(i)
	}
	shift := i>>subBits - 1
	first := uint64(i-shift<<subBits) << shift
	return first + 1<<shift - 1
}
