package sqlstore

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
)

// One caller at a time holds the lock of a key, whichever waiters are cancelled, and no entry is
// left in the map.
func TestKeyedMutex(t *testing.T) {
	var m keyedMutex
	var inside [4]atomic.Int64
	var all sync.WaitGroup
	for i := range 400 {
		ctx, cancel := context.WithCancel(t.Context())
		k := i % len(inside)
		all.Go(func() {
			unlock, err := m.lock(ctx, strconv.Itoa(k))
			if err != nil {
				assert.ErrorIs(t, err, context.Canceled)
				return
			}
			assert.EqualValues(t, 1, inside[k].Add(1))
			runtime.Gosched()
			inside[k].Add(-1)
			unlock()
		})
		if i%3 == 0 {
			all.Go(cancel)
		}
		defer cancel()
	}
	all.Wait()
	assert.Empty(t, m.locks)
}
