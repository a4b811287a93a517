package sign

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestNoncesAreAHeap looks at every shard after each call. No nonce stands above one that may be forgotten
// earlier: it would hold that one back, and with it the room for another. The set holds what the heap
// holds, and nothing that is forgotten stays in memory.
func TestNoncesAreAHeap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := new(MemoryNonces)
		r := rand.New(rand.NewPCG(1, 2))
		for i := range 3000 {
			if r.IntN(40) == 0 {
				time.Sleep(time.Duration(r.IntN(20)) * time.Second)
			}
			unused, err := n.Use(t.Context(), "k", strconv.Itoa(i), time.Duration(1+r.IntN(300))*time.Second)
			require.NoError(t, err)
			require.True(t, unused)
			for k := range n.shards {
				checkShard(t, &n.shards[k])
			}
		}
		require.Less(t, remembered(n), 2500, "some have been forgotten")
	})
}

func checkShard(t *testing.T, s *nonceShard) {
	t.Helper()
	for i, d := range s.dates {
		if parent := (i - 1) / 2; i > 0 && d.until.Before(s.dates[parent].until) {
			t.Fatalf("%v stands below %v, %d and %d of %d", d.until, s.dates[parent].until, i, parent, len(s.dates))
		}
		if _, ok := s.used[d.nonce]; !ok {
			t.Fatalf("%q is in the heap only", d.nonce)
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

// A shard has room for 8192 nonces by default.
func TestShardsAreBoundedByDefault(t *testing.T) {
	for name, n := range map[string]*MemoryNonces{"zero value": {}, "new(MemoryNonces)": new(MemoryNonces)} {
		fillShards(n, 8191, time.Now().Add(time.Hour))
		for i := range 5000 {
			unused, err := n.Use(t.Context(), "k", strconv.Itoa(i), time.Hour)
			if !unused {
				require.ErrorIs(t, err, ErrNoncesFull, name)
			}
		}
		for i := range n.shards {
			require.Len(t, n.shards[i].dates, 8192, name)
		}
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
