package core_test

import (
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store/memstore"
	"github.com/idem-go/idem/internal/race"
)

// Tokens that are issued and never used fill no store and no memory.
func TestGrowthOfTokens(t *testing.T) {
	race.Skip(t, "the race detector keeps memory of its own")
	n := 1_000_000
	if testing.Short() {
		n /= 20
	}
	store, err := memstore.New(memstore.Config{})
	require.NoError(t, err)
	remote := &spy{Store: store}
	policy := checkout(tokensFor(tokenSecret))
	guards := []*core.Guard{
		core.MustNew(core.Config{User: byUser, Store: remote}).MustGuard(policy),
		core.MustNew(core.Config{User: byUser, Store: store}).MustGuard(policy),
	}
	tokenFor(t, guards[0], "alice") // what is made once is there
	before := heap()
	var all sync.WaitGroup
	for _, g := range guards {
		all.Go(func() {
			r := core.Request{Headers: &call{header: map[string][]string{"X-User": {"alice"}}}}
			for range n / len(guards) {
				if _, err := g.NewToken(t.Context(), &r); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	assert.Zero(t, remote.acquires.Load()+remote.renews.Load()+remote.completes.Load()+remote.releases.Load()+remote.abandons.Load())
	assert.Zero(t, store.Len())
	assert.Zero(t, store.Bytes())
	assert.Less(t, heap(), before+1<<20, "a byte for each")
}

// heap is how many bytes are in use.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what pools have kept for one more round
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
