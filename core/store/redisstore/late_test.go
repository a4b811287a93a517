package redisstore_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/internal/backend"
)

// TestLateClaims: a claim that a frozen server makes after its caller has left is released, whatever connection a Release
// would take.
func TestLateClaims(t *testing.T) {
	server := backend.StartRedis(t)
	for name, records := range map[string]*redisstore.Store{
		// A connection that is given up releases nothing.
		"a client of its own": openURL(t, server.URL()+"?write_timeout=1m", redisstore.Config{}),
		"a foreign client":    redisstore.New(openClient(t, server.URL()), redisstore.Config{}),
	} {
		t.Cleanup(records.Close)
		begin(t, records, name)
		server.Freeze()
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				_, err := records.Acquire(ctx, name+strconv.Itoa(i), newClaim())
				assert.ErrorIs(t, err, context.DeadlineExceeded)
			})
		}
		wg.Wait()
		server.Thaw()
		for i := range 100 {
			require.Eventually(t, func() bool {
				g, err := records.Acquire(t.Context(), name+strconv.Itoa(i), newClaim())
				require.NoError(t, err)
				return g.State == store.Acquired
			}, 10*time.Second, time.Millisecond, "%s: claim %d stands, and is nobody's", name, i)
		}
	}
}

// TestQueueFullOfOthersCommands: whoever shares the client with the store may fill its queue to
// a server that does not answer.
func TestQueueFullOfOthersCommands(t *testing.T) {
	server := backend.StartRedis(t)
	client := patient(t, server.URL(), nil)
	store := redisstore.New(client, redisstore.Config{})
	begin(t, store, "k")
	server.Freeze()
	var others sync.WaitGroup
	ended, end := context.WithCancel(t.Context())
	for range 5000 {
		others.Go(func() { client.Do(ended, client.B().Get().Key("others").Build()) })
	}
	for range 10 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		returned := make(chan error, 1)
		go func() { _, err := store.Acquire(ctx, "k", newClaim()); returned <- err }()
		select {
		case err := <-returned:
			require.ErrorIs(t, err, context.DeadlineExceeded)
		case <-time.After(20 * time.Second):
			t.Fatal("a call goes on although its context has ended")
		}
		cancel()
	}
	server.Thaw()
	end()
	others.Wait()
	store.Close()
}

// TestWaitersCostNoAnswers: Redis bounds what may wait to be sent on a connection that is
// subscribed, so the one that answers calls must not be.
func TestWaitersCostNoAnswers(t *testing.T) {
	server := backend.StartRedis(t, "--client-output-buffer-limit", "pubsub 1mb 1mb 1")
	store := openURL(t, server.URL()+"?write_timeout=1m", redisstore.Config{}) // 200 MiB take a busy machine longer than 3 s
	c := begin(t, store, "large")
	require.NoError(t, store.Complete(t.Context(), "large", c.Owner, make([]byte, 1<<20), time.Hour))
	begin(t, store, "run")
	changed := watch(t, store, "run")
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			g, err := store.Acquire(t.Context(), "large", newClaim())
			assert.NoError(t, err)
			assert.Len(t, g.Result, 1<<20)
		})
	}
	wg.Wait()
	asleep(t, changed)
}
