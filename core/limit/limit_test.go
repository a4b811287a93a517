package limit_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/limit"
	"github.com/idem-go/idem/core/storetest"
)

var _ core.Limiter = (*limit.Limiter)(nil)

func TestLimiter(t *testing.T) {
	storetest.RunLimiter(t, func(_ testing.TB, n int, window time.Duration) storetest.LimiterInstance {
		l, clock := limit.New(n, window), storetest.NewClock()
		l.Clock(clock.Now)
		return storetest.LimiterInstance{Limiter: l, Advance: clock.Advance, Held: l.Len}
	})
}

func TestLimiterByTheMachinesClock(t *testing.T) {
	storetest.RunLimiter(t, func(_ testing.TB, n int, window time.Duration) storetest.LimiterInstance {
		l := limit.New(n, window)
		return storetest.LimiterInstance{Limiter: l, Held: l.Len}
	})
}

func TestNewWithFaults(t *testing.T) {
	for _, faulty := range []struct {
		n      int
		window time.Duration
	}{{0, time.Second}, {-1, time.Second}, {1, 0}, {1, -1}, {math.MinInt, math.MinInt64}, {1, math.MaxInt64}} {
		require.Panics(t, func() { limit.New(faulty.n, faulty.window) }, faulty)
	}
}

// TestAfterTheWait: at the moment that was told, one more is allowed, and a microsecond before it none is, whatever
// does not divide evenly.
func TestAfterTheWait(t *testing.T) {
	random := rand.New(rand.NewPCG(20261121, 1))
	windows := []time.Duration{time.Millisecond, 49 * time.Second, time.Minute, time.Hour, 24 * time.Hour, 30 * 24 * time.Hour}
	for range 2000 {
		window := 1 + time.Duration(random.Int64N(int64(windows[random.IntN(len(windows))])))
		n := 1 + random.IntN(50)
		if window/time.Duration(n) < 10*time.Microsecond {
			continue
		}
		l, clock := limit.New(n, window), storetest.NewClock()
		l.Clock(clock.Now)
		ask := func() time.Duration {
			wait, err := l.Allow(t.Context(), "k")
			require.NoError(t, err)
			return wait
		}
		for range n {
			require.Zero(t, ask())
		}
		for range 10 {
			clock.Advance(time.Duration(random.Int64N(int64(window/time.Duration(n)) - int64(2*time.Microsecond))))
			wait := ask()
			require.Greater(t, wait, time.Microsecond, "%d in %v", n, window)
			clock.Advance(wait - time.Microsecond)
			require.Positive(t, ask(), "%d in %v: before the wait is over", n, window)
			clock.Advance(time.Microsecond)
			require.Zero(t, ask(), "%d in %v: after the wait", n, window)
			require.Positive(t, ask())
		}
	}
}

// TestExtremes: what does not fit into numbers is neither refused for ever nor let in at once.
func TestExtremes(t *testing.T) {
	const longest = 100 * 365 * 24 * time.Hour
	for _, size := range []struct {
		n      int
		window time.Duration
	}{{1, longest}, {3, longest}, {1, 1}, {math.MaxInt, 1}, {math.MaxInt, longest}} {
		l := limit.New(size.n, size.window)
		l.Clock(storetest.NewClock().Now)
		for range min(size.n, 1000) {
			wait, err := l.Allow(t.Context(), "k")
			require.NoError(t, err)
			require.Zero(t, wait, size)
		}
		if size.n > 1000 {
			continue
		}
		wait, err := l.Allow(t.Context(), "k")
		require.NoError(t, err)
		require.Positive(t, wait, size)
		require.LessOrEqual(t, wait-1, size.window/time.Duration(size.n))
	}
}

func heap() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// TestMemory: those who came once take nothing when their buckets are full again, and nothing is left of
// the room that they took.
func TestMemory(t *testing.T) {
	const n = 200_000
	l, clock := limit.New(20, time.Minute), storetest.NewClock()
	l.Clock(clock.Now)
	before := heap()
	come := func(who string, count int) {
		for i := range count {
			if wait, err := l.Allow(t.Context(), who+strconv.Itoa(i)); wait > 0 || err != nil {
				t.Fatal(wait, err)
			}
		}
	}
	come("user-", n)
	require.Equal(t, n, l.Len())
	each := (heap() - before) / n
	clock.Advance(4 * time.Second) // one comes back in 3 s
	const others = 10_000
	for range n / others * 6 / 10 { // each forgets two
		come("other-", others)
	}
	left := heap() - before - others*each
	t.Logf("%.0f bytes a key, %.0f left of all", each, left)
	require.Less(t, l.Len(), 2*others)
	require.Less(t, each, 300.0)
	require.Less(t, left, 0.05*n*each)
	runtime.KeepAlive(l)
}

// TestMemoryOfNewcomers: the room of a crowd is given back also if all who come are new, and nobody who has used up
// what he may is forgotten with it.
func TestMemoryOfNewcomers(t *testing.T) {
	const n, newcomers, rounds = 100_000, 2000, 60
	l, clock := limit.New(20, time.Minute), storetest.NewClock()
	l.Clock(clock.Now)
	allowed := func(who string, i int) bool {
		wait, err := l.Allow(t.Context(), who+strconv.Itoa(i))
		if err != nil {
			t.Fatal(err)
		}
		return wait == 0
	}
	before := heap()
	for i := range n {
		allowed("user-", i)
	}
	each := (heap() - before) / n
	for round := range rounds {
		clock.Advance(4 * time.Second) // one comes back in 3 s
		for i := range 500 {
			for allowed("greedy-", i) {
			}
		}
		for i := range newcomers {
			allowed("new-", round*newcomers+i)
		}
		for i := range 500 {
			require.False(t, allowed("greedy-", i), "round %d", round)
		}
	}
	left := heap() - before - float64(l.Len())*each
	t.Logf("%.0f bytes a key, %.0f left of all", each, left)
	require.Less(t, l.Len(), 3*newcomers)
	require.Less(t, left, 0.05*n*each)
	runtime.KeepAlive(l)
}

// TestOftenAskedFor: a bucket that is not full again when it is looked at is looked at once more.
func TestOftenAskedFor(t *testing.T) {
	l, clock := limit.New(2, time.Minute), storetest.NewClock()
	l.Clock(clock.Now)
	ask := func(who string, count int) {
		for i := range count {
			for range 2 {
				_, err := l.Allow(t.Context(), who+strconv.Itoa(i))
				require.NoError(t, err)
			}
		}
	}
	ask("first-", 1000)
	clock.Advance(31 * time.Second)
	ask("second-", 1000)
	require.Equal(t, 2000, l.Len())
	clock.Advance(61 * time.Second)
	ask("third-", 2000)
	require.Less(t, l.Len(), 2500)

	// Of those who were forgotten nothing is left that would be forgotten once more.
	ask("first-", 1000)
	ask("fourth-", 1000)
	for i := range 1000 {
		wait, err := l.Allow(t.Context(), "first-"+strconv.Itoa(i))
		require.NoError(t, err)
		require.Positive(t, wait)
	}
}

// TestForgettingChangesNothing: who is forgotten, and comes again, finds the bucket that he would have found.
func TestForgettingChangesNothing(t *testing.T) {
	random := rand.New(rand.NewPCG(20261122, 1))
	const n, window, keys = 3, time.Minute, 200
	l, clock := limit.New(n, window), storetest.NewClock()
	l.Clock(clock.Now)
	var emptied [keys]time.Time // when each bucket would have held nothing, if it had no end
	for range 300_000 {
		switch random.IntN(1000) {
		case 0:
			clock.Advance(time.Duration(random.Int64N(int64(2 * window))))
		case 1, 2, 3, 4, 5:
			clock.Advance(time.Duration(random.Int64N(int64(window / 4))))
		}
		i := random.IntN(1 + random.IntN(keys))
		wait, err := l.Allow(t.Context(), strconv.Itoa(i))
		require.NoError(t, err)
		if whole := clock.Now().Add(-window); emptied[i].Before(whole) {
			emptied[i] = whole
		}
		one := emptied[i].Add(window / n)
		require.Equal(t, !one.After(clock.Now()), wait == 0)
		if wait == 0 {
			emptied[i] = one
		}
	}
}

// TestOneAfterTheOther: a service with few users forgets them, too.
func TestOneAfterTheOther(t *testing.T) {
	l, clock := limit.New(2, time.Minute), storetest.NewClock()
	l.Clock(clock.Now)
	for i := range 5000 {
		_, err := l.Allow(t.Context(), strconv.Itoa(i))
		require.NoError(t, err)
		clock.Advance(time.Minute)
	}
	require.Less(t, l.Len(), 200)
}

// TestConcurrently: many callers, and a clock that goes on.
func TestConcurrently(t *testing.T) {
	l, clock := limit.New(5, time.Second), storetest.NewClock()
	l.Clock(clock.Now)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 2000 {
				_, err := l.Allow(context.Background(), fmt.Sprint(w*i%100))
				assert.NoError(t, err)
				clock.Advance(time.Millisecond)
				l.Len()
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, l.Len(), 100)
}
