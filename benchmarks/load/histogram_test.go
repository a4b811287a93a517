package load

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBucketsLeaveNoGapsAndAreNarrow(t *testing.T) {
	require.Equal(t, 0, bucket(0))
	for i := range bucket(math.MaxInt64) {
		last := upperEdge(i)
		require.Equal(t, i, bucket(last), "the last value of bucket %d", i)
		require.Equal(t, i+1, bucket(last+1), "the first value after bucket %d", i)
		first := uint64(0)
		if i > 0 {
			first = upperEdge(i-1) + 1
		}
		require.LessOrEqual(t, float64(last-first), float64(first)/(1<<subBits), "bucket %d is wide", i)
	}
	assert.EqualValues(t, math.MaxInt64, upperEdge(bucket(math.MaxInt64)))
}

func TestQuantilesAreThoseOfTheSortedSampleWithinABucket(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 2, 3, 100, 1000, 9999} {
		var h Histogram
		sample := make([]time.Duration, n)
		for i := range sample {
			sample[i] = time.Duration(math.Exp(r.Float64() * 25)) // 1 ns to a minute
			h.Record(sample[i])
		}
		slices.Sort(sample)
		require.EqualValues(t, n, h.Count())
		assert.Equal(t, sample[n-1], h.Max())
		for _, q := range []float64{0, 0.01, 0.5, 0.9, 0.99, 0.999, 1} {
			rank := max(int(math.Ceil(q*float64(n)-1e-6)), 1)
			exact, got := sample[rank-1], h.Quantile(q)
			assert.GreaterOrEqual(t, got, exact, "n %d, q %v", n, q)
			assert.LessOrEqual(t, float64(got), float64(exact)*(1+1.0/128), "n %d, q %v", n, q)
		}
	}
}

func TestAQuantileOfTheShareOfAWholeNumberIsNotOneTooHigh(t *testing.T) {
	var h Histogram
	for i := 1; i <= 1000; i++ {
		h.Record(time.Duration(min(i, 100))) // in buckets of one
	}
	h.Record(5000)
	assert.EqualValues(t, 100, h.Quantile(0.999))
	assert.EqualValues(t, 5000, h.Quantile(1))
	assert.EqualValues(t, 10, h.Quantile(10.0/1001))
}

func TestHistogramsOfNothingAndOfNonsense(t *testing.T) {
	var h Histogram
	assert.Zero(t, h.Quantile(0.5))
	assert.Zero(t, h.Mean())
	assert.Zero(t, h.Max())
	h.Record(-time.Second)
	h.Record(math.MaxInt64)
	assert.EqualValues(t, 0, h.Quantile(0.5))
	assert.EqualValues(t, 0, h.Quantile(-1))
	assert.EqualValues(t, math.MaxInt64, h.Quantile(math.NaN()))
	assert.EqualValues(t, math.MaxInt64, h.Quantile(2))
}

func TestMergedHistogramsCountAsOne(t *testing.T) {
	var a, b, both Histogram
	for i := range 1000 {
		d := time.Duration(i*i) * time.Microsecond
		both.Record(d)
		if i%3 == 0 {
			a.Record(d)
		} else {
			b.Record(d)
		}
	}
	before := b.Count()
	a.Merge(&b)
	a.Merge(&Histogram{})
	assert.Equal(t, both, a)
	assert.Equal(t, before, b.Count())
	assert.Equal(t, both.Mean(), a.Mean())
	var empty Histogram
	empty.Merge(&a)
	assert.Equal(t, both, empty)
}
