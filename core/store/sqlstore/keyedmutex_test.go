package sqlstore

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Whose context ends while it waits leaves nothing behind: neither a gate, nor a turn that the
// next one waits for.
func TestGateIsLeftWhenTheContextEnds(t *testing.T) {
	var g gates
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 3 {
		leave, err := g.enter(t.Context(), "k")
		require.NoError(t, err)
		_, err = g.enter(gone, "k")
		require.ErrorIs(t, err, context.Canceled)
		assert.Len(t, g.keys, 1, "the gate stays for who has passed it")
		leave()
		assert.Empty(t, g.keys)
	}
}

// One caller at a time passes, whoever gives up in front of the gate, and no gate is left.
func TestGates(t *testing.T) {
	var g gates
	var inside [4]atomic.Int64
	var all sync.WaitGroup
	for i := range 400 {
		ctx, cancel := context.WithCancel(t.Context())
		k := i % len(inside)
		all.Go(func() {
			leave, err := g.enter(ctx, strconv.Itoa(k))
			if err != nil {
				assert.ErrorIs(t, err, context.Canceled)
				return
			}
			assert.EqualValues(t, 1, inside[k].Add(1))
			runtime.Gosched()
			inside[k].Add(-1)
			leave()
		})
		if i%3 == 0 {
			all.Go(cancel)
		}
		defer cancel()
	}
	all.Wait()
	assert.Empty(t, g.keys)
}
