package sign_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/idem-go/idem/sign"
)

func TestMemoryNonces(t *testing.T) {
	n := new(sign.MemoryNonces)
	use := func(key, nonce string) bool {
		unused, err := n.Use(t.Context(), key, nonce, time.Minute)
		require.NoError(t, err)
		return unused
	}
	require.True(t, use("a", "n-1"))
	require.False(t, use("a", "n-1"))
	require.True(t, use("a", "n-2"))
	require.True(t, use("b", "n-1"), "nonces of two keys are never the same")
	require.True(t, use("a\x00", "n-1"))
	require.True(t, use("ab", "c"))
	require.True(t, use("a", "bc"))

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := n.Use(ended, "a", "n-3", time.Minute)
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, use("a", "n-3"), "who got an error has used nothing")
}

// It remembers what a set with dates would: whatever the times to live are, and in whatever order they
// pass.
func TestMemoryNoncesAgainstAModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) [3]int {
			return [3]int{rapid.IntRange(0, 40).Draw(rt, "nonce"), rapid.IntRange(1, 100).Draw(rt, "ttl"), rapid.IntRange(0, 30).Draw(rt, "pause")}
		}), 1, 200).Draw(rt, "steps")
		synctest.Test(t, func(*testing.T) {
			n := new(sign.MemoryNonces)
			until := map[int]time.Time{}
			for _, step := range steps {
				time.Sleep(time.Duration(step[2]) * time.Second)
				unused, err := n.Use(context.Background(), "k", fmt.Sprint(step[0]), time.Duration(step[1])*time.Second)
				if err != nil {
					rt.Fatal(err)
				}
				if until[step[0]].After(time.Now()) {
					if unused {
						rt.Fatalf("%d was forgotten early", step[0])
					}
					continue
				}
				if unused {
					until[step[0]] = time.Now().Add(time.Duration(step[1]) * time.Second)
				}
			}
		})
	})
}

func TestMemoryNoncesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &sign.MemoryNonces{Max: 1000}
		taken := 0
		fill := func() {
			for range 5000 {
				unused, err := n.Use(t.Context(), "k", newNonce(), time.Minute)
				if err == nil && unused {
					taken++
				} else {
					require.ErrorIs(t, err, sign.ErrNoncesFull)
				}
			}
		}
		fill()
		require.Equal(t, 1000, taken)
		time.Sleep(time.Minute)
		fill()
		require.Equal(t, 2000, taken, "what is past makes room")
	})
}

func TestMemoryNoncesAtOnce(t *testing.T) {
	n := new(sign.MemoryNonces)
	var unused atomic.Int32
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for i := range 500 {
				if ok, err := n.Use(context.Background(), "k", fmt.Sprint(i), time.Minute); ok && err == nil {
					unused.Add(1)
				}
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 500, unused.Load())
}
