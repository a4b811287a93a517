package sign

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMemoryNonces(t *testing.T) {
	n := new(MemoryNonces)
	use := func(key, nonce string) bool {
		unused, err := n.Use(t.Context(), key, nonce, time.Minute)
		require.NoError(t, err)
		return unused
	}
	require.True(t, use("a", "n-1"))
	require.False(t, use("a", "n-1"))
	for _, other := range [][2]string{{"a", "n-2"}, {"a", "N-1"}, {"b", "n-1"}, {"a\x00", "n-1"}, {"ab", "c"}, {"a", "bc"}} {
		require.True(t, use(other[0], other[1]), "another nonce, or the same of another key")
	}

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := n.Use(ended, "a", "n-3", time.Minute)
	require.ErrorIs(t, err, context.Canceled)
	_, err = n.Use(t.Context(), "a", "n-3", 0)
	require.ErrorContains(t, err, "must be positive")
	require.True(t, use("a", "n-3"), "a call that returned an error has used nothing")
}

// Every shard is examined after each call. No nonce stands above one that may be forgotten earlier: it would hold that one
// back, and with it the room for another. The set holds what the heap holds. Nothing is forgotten early, and what is forgotten
// does not stay in memory.
func TestNoncesAreAHeap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := new(MemoryNonces)
		r := rand.New(rand.NewPCG(1, 2))
		until := map[string]time.Time{}
		for i := range 3000 {
			if r.IntN(40) == 0 {
				time.Sleep(time.Duration(r.IntN(20)) * time.Second)
			}
			ttl := time.Duration(1+r.IntN(300)) * time.Second
			unused, err := n.Use(t.Context(), "k", strconv.Itoa(i), ttl)
			require.NoError(t, err)
			require.True(t, unused)
			until["k\n"+strconv.Itoa(i)] = time.Now().Add(ttl)
			held := 0
			for k := range n.shards {
				checkShard(t, &n.shards[k], until)
				held += len(n.shards[k].dates)
			}
			for nonce, at := range until {
				if !at.After(time.Now()) {
					delete(until, nonce)
				}
			}
			require.GreaterOrEqual(t, held, len(until), "one was forgotten early")
		}
		require.Less(t, remembered(n), 2500, "some have been forgotten")
	})
}

func checkShard(t *testing.T, s *nonceShard, until map[string]time.Time) {
	t.Helper()
	for i, d := range s.dates {
		if parent := (i - 1) / 2; i > 0 && d.until.Before(s.dates[parent].until) {
			t.Fatalf("%v stands below %v, %d and %d of %d", d.until, s.dates[parent].until, i, parent, len(s.dates))
		}
		if _, ok := s.used[d.nonce]; !ok {
			t.Fatalf("%q is in the heap only", d.nonce)
		}
		if at, ok := until[d.nonce]; ok && !at.Equal(d.until) {
			t.Fatalf("%q may be forgotten at %v, not at %v", d.nonce, d.until, at)
		}
	}
	if len(s.used) != len(s.dates) {
		t.Fatalf("the set has %d, the heap %d", len(s.used), len(s.dates))
	}
	for _, d := range s.dates[len(s.dates):cap(s.dates)] {
		if d != (nonceDate{}) {
			t.Fatalf("%q is forgotten, and still in memory", d.nonce)
		}
	}
}

// remembered is how many nonces n has.
func remembered(n *MemoryNonces) (sum int) {
	for i := range n.shards {
		sum += len(n.shards[i].dates)
	}
	return sum
}

// fillShards puts n nonces in each shard, which may be forgotten at until.
func fillShards(m *MemoryNonces, n int, until time.Time) {
	for i := range m.shards {
		s := &m.shards[i]
		s.used = map[string]struct{}{}
		for k := range n {
			nonce := "filled\n" + strconv.Itoa(k)
			s.used[nonce] = struct{}{}
			s.dates = append(s.dates, nonceDate{until, nonce})
		}
	}
}

func TestMemoryNoncesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &MemoryNonces{Max: 100}
		for round := range 2 { // what has passed makes room
			taken := 0
			for i := range 300 {
				if unused, err := n.Use(t.Context(), "k", fmt.Sprint(round, i), time.Minute); unused {
					taken++
				} else {
					require.ErrorIs(t, err, ErrNoncesFull)
				}
			}
			require.Equal(t, 100, taken)
			time.Sleep(time.Minute)
		}
	})

	// By default, each shard has room for 8192.
	n := new(MemoryNonces)
	fillShards(n, 8191, time.Now().Add(time.Hour))
	for i := range 5000 {
		if unused, err := n.Use(t.Context(), "k", strconv.Itoa(i), time.Hour); !unused {
			require.ErrorIs(t, err, ErrNoncesFull)
		}
	}
	for i := range n.shards {
		require.Len(t, n.shards[i].dates, 8192)
	}
	capacity, _ := (&MemoryNonces{Max: -1}).Limits()
	require.Equal(t, 1<<19, capacity)
}

// A call forgets a few nonces, not all that it could: the others would wait for it.
func TestUseForgetsAFew(t *testing.T) {
	n := new(MemoryNonces)
	fillShards(n, 10, time.Now().Add(-time.Minute))
	_, err := n.Use(t.Context(), "k", "new", time.Hour)
	require.NoError(t, err)
	require.Equal(t, nonceShards*10-4+1, remembered(n))
}
