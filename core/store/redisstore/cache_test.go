package redisstore_test

import (
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/internal/backend"
)

// TestHotReplays: a replay that is asked for again and again costs the server nothing, and
// a first request costs no more than without the cache.
func TestHotReplays(t *testing.T) {
	server := backend.StartRedis(t)
	client := openClient(t, server.URL())
	s := redisstore.New(client, redisstore.ClientSideCache(time.Minute))
	t.Cleanup(s.Close)
	ctx := t.Context()
	warm := begin(t, s, "warm up")
	require.NoError(t, s.Complete(ctx, "warm up", warm.Owner, nil, time.Hour))

	require.Equal(t, map[string]int{"evalsha": 2, "get": 2, "set": 2}, during(t, client, func() {
		c := begin(t, s, "k")
		require.NoError(t, s.Complete(ctx, "k", c.Owner, []byte("result"), time.Hour))
	}))
	replay := func() {
		g := meet(t, s, "k", core.Done)
		require.Equal(t, "result", string(g.Result))
		require.Equal(t, fingerprint, g.Fingerprint)
		require.LessOrEqual(t, g.Remaining, time.Hour)
		require.Greater(t, g.Remaining, time.Hour-time.Minute)
		g.Result[0] = 'X' // it belongs to the caller
	}
	require.Equal(t, map[string]int{"evalsha": 1, "get": 1, "pttl": 1}, during(t, client, replay))
	require.Equal(t, 1, during(t, client, replay)["get"])
	require.Empty(t, during(t, client, func() {
		for range 100 {
			replay()
		}
	}))

	// Who deletes a record is heard, if not at once.
	require.NoError(t, client.Do(ctx, client.B().Del().Key("k").Build()).Error())
	require.Eventually(t, func() bool {
		g, err := s.Acquire(ctx, "k", newClaim())
		require.NoError(t, err)
		return g.State == core.Acquired
	}, 10*time.Second, time.Millisecond)
	meet(t, s, "k", core.Running)
}

// TestCachedReplaysEnd: a result is not replayed beyond its retention, cached or not.
func TestCachedReplaysEnd(t *testing.T) {
	s := openURL(t, backend.StartRedis(t).URL(), redisstore.ClientSideCache(time.Hour))
	c := begin(t, s, "k")
	require.NoError(t, s.Complete(t.Context(), "k", c.Owner, []byte("result"), 50*time.Millisecond))
	require.Eventually(t, func() bool {
		g, err := s.Acquire(t.Context(), "k", newClaim())
		require.NoError(t, err)
		if g.State == core.Done {
			require.LessOrEqual(t, g.Remaining, 50*time.Millisecond)
		}
		return g.State == core.Acquired
	}, 10*time.Second, time.Millisecond)
}

// TestCacheTTL: a replay comes from the cache for so long, and is then fetched again.
func TestCacheTTL(t *testing.T) {
	server := backend.StartRedis(t)
	client := openClient(t, server.URL())
	s := redisstore.New(client, redisstore.ClientSideCache(time.Millisecond))
	t.Cleanup(s.Close)
	c := begin(t, s, "k")
	require.NoError(t, s.Complete(t.Context(), "k", c.Owner, nil, time.Hour))
	meet(t, s, "k", core.Done)
	for range 3 {
		time.Sleep(5 * time.Millisecond)
		require.Equal(t, 1, during(t, client, func() { meet(t, s, "k", core.Done) })["get"])
	}
}

// TestClientWithoutCache: a client that caches nothing is not asked to, more than once.
func TestClientWithoutCache(t *testing.T) {
	server := backend.StartRedis(t)
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	s := redisstore.New(client, redisstore.ClientSideCache(time.Minute))
	t.Cleanup(s.Close)
	c := begin(t, s, "k")
	require.NoError(t, s.Complete(t.Context(), "k", c.Owner, []byte("result"), time.Hour))
	require.Equal(t, map[string]int{"evalsha": 9, "get": 10, "pttl": 9}, during(t, client, func() {
		for range 10 {
			require.Equal(t, "result", string(meet(t, s, "k", core.Done).Result))
		}
	}))
}
