package redisstore_test

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/internal/backend"
)

// batches notes how many commands are sent together at most, and whether the end of a caller's context would end them.
type batches struct {
	rueidis.Client
	mode    rueidis.ClientMode
	largest atomic.Int64
	mayEnd  atomic.Bool
}

func (b *batches) Mode() rueidis.ClientMode { return b.mode }

func (b *batches) DoMulti(ctx context.Context, multi ...rueidis.Completed) []rueidis.RedisResult {
	for n := b.largest.Load(); n < int64(len(multi)) && !b.largest.CompareAndSwap(n, int64(len(multi))); n = b.largest.Load() {
	}
	if len(multi) > 2 && ctx.Done() != nil {
		b.mayEnd.Store(true)
	}
	return b.Client.DoMulti(ctx, multi...)
}

// manyAtOnce makes 64 operations at once on s, each with a result of its own.
func manyAtOnce(t *testing.T, s store.Store) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			key, c := store.NewOwner().String(), newClaim()
			result := strconv.Itoa(i)
			g, err := s.Acquire(t.Context(), key, c)
			assert.NoError(t, err)
			assert.Equal(t, store.Grant{State: store.Acquired, Attempt: 1}, g)
			g, err = s.Acquire(t.Context(), key, newClaim()) // two round trips
			assert.NoError(t, err)
			assert.Equal(t, store.Running, g.State)
			assert.NoError(t, s.Complete(t.Context(), key, c.Owner, []byte(result), time.Minute))
			assert.ErrorIs(t, s.Release(t.Context(), key, c.Owner), store.ErrLost)
			g, err = s.Acquire(t.Context(), key, newClaim())
			assert.NoError(t, err)
			assert.Equal(t, store.Done, g.State)
			assert.Equal(t, result, string(g.Result))
		})
	}
	wg.Wait()
}

// TestBatches: commands of concurrent callers are sent together, and each caller gets the answers to its own.
func TestBatches(t *testing.T) {
	client := &batches{Client: openClient(t, backend.StartRedis(t).URL())}
	s := redisstore.New(client, redisstore.Config{})
	t.Cleanup(s.Close)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // one goroutine after the other: all that are ready join
	for range 10 {
		manyAtOnce(t, s)
	}
	require.EqualValues(t, 32, client.largest.Load())
	require.False(t, client.mayEnd.Load(), "the first caller leaves, and the others would have no answers")
}

// TestNoBatchesOnClusters: no caller waits for another one's node.
func TestNoBatchesOnClusters(t *testing.T) {
	client := &batches{Client: openClient(t, backend.StartRedis(t).URL()), mode: rueidis.ClientModeCluster}
	s := redisstore.New(client, redisstore.Config{})
	t.Cleanup(s.Close)
	for range 10 {
		manyAtOnce(t, s)
	}
	require.EqualValues(t, 2, client.largest.Load())
	c := begin(t, s, "k")
	require.NoError(t, s.Complete(t.Context(), "k", c.Owner, nil, time.Hour))
	require.Equal(t, map[string]int{"set": 2, "pttl": 2}, during(t, client, func() {
		for range 2 {
			meet(t, s, "k", store.Done)
		}
	}), "the client may send GET to a replica")
	require.Panics(t, func() { redisstore.New(client, redisstore.Config{WaitForReplicas: 1}) }, "a WAIT and its write may go to two nodes")
}

// TestBatchesOnAFrozenServer: a caller whose context ends waits no longer, and leaves no goroutine behind for a command that
// somebody else has sent.
func TestBatchesOnAFrozenServer(t *testing.T) {
	server := backend.StartRedis(t)
	s := redisstore.New(patient(t, server.URL(), nil), redisstore.Config{})
	t.Cleanup(s.Close)
	c := begin(t, s, "k")
	require.NoError(t, s.Renew(t.Context(), "k", c.Owner, time.Hour))
	server.Freeze()
	defer server.Thaw()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // full batches, so that the client's queue is not full
	for range 10 {                                  // more calls than may be left behind
		ctx, cancel := soonLate()
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() { assert.ErrorIs(t, s.Renew(ctx, "k", c.Owner, time.Hour), context.DeadlineExceeded) })
		}
		wg.Wait()
		cancel()
	}
}
