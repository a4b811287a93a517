package redisstore_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/internal/backend"
)

// TestHotReplays: a frequent replay costs the server nothing, and a first request costs no more than without the cache.
func TestHotReplays(t *testing.T) {
	server := backend.StartRedis(t)
	client := openClient(t, server.URL())
	s := redisstore.New(client, redisstore.Config{ClientSideCache: time.Minute})
	t.Cleanup(s.Close)
	ctx := t.Context()
	warm := begin(t, s, "warm up")
	require.NoError(t, s.Complete(ctx, "warm up", warm.Owner, nil, time.Hour))

	require.Equal(t, map[string]int{"set": 2, "pttl": 1, "evalsha": 1, "get": 1}, during(t, client, func() {
		c := begin(t, s, "k")
		require.NoError(t, s.Complete(ctx, "k", c.Owner, []byte("result"), time.Hour))
	}))
	replay := func() {
		g := meet(t, s, "k", store.Done)
		require.Equal(t, "result", string(g.Result))
		require.Equal(t, fingerprint, g.Fingerprint)
		require.LessOrEqual(t, g.Remaining, time.Hour)
		require.Greater(t, g.Remaining, time.Hour-time.Minute)
		g.Result[0] = 'X' // it belongs to the caller
	}
	require.Equal(t, map[string]int{"set": 1, "pttl": 1}, during(t, client, replay))
	require.Equal(t, 1, during(t, client, replay)["get"])
	require.Empty(t, during(t, client, func() {
		for range 100 {
			replay()
		}
	}))

	// One that outlives its result is cached, too.
	c := begin(t, s, "outlives")
	require.NoError(t, s.Capabilities().Outlive(ctx, "outlives", c.Owner, []byte("result"), time.Hour, time.Hour))
	outlives := func() { require.Equal(t, "result", string(meet(t, s, "outlives", store.Done).Result)) }
	outlives()
	outlives()
	require.Empty(t, during(t, client, outlives))

	// A deleted record is replayed for a moment at most.
	require.NoError(t, client.Do(ctx, client.B().Del().Key("k").Build()).Error())
	require.Eventually(t, func() bool {
		g, err := s.Acquire(ctx, "k", newClaim())
		require.NoError(t, err)
		return g.State == store.Acquired
	}, 10*time.Second, time.Millisecond)
	meet(t, s, "k", store.Running)
}

// TestCachedReplaysEnd: a result is not replayed beyond its retention, cached or not.
func TestCachedReplaysEnd(t *testing.T) {
	s := openURL(t, backend.StartRedis(t).URL(), redisstore.Config{ClientSideCache: time.Hour})
	c := begin(t, s, "k")
	require.NoError(t, s.Complete(t.Context(), "k", c.Owner, []byte("result"), 50*time.Millisecond))
	require.Eventually(t, func() bool {
		g, err := s.Acquire(t.Context(), "k", newClaim())
		require.NoError(t, err)
		if g.State == store.Done {
			require.LessOrEqual(t, g.Remaining, 50*time.Millisecond)
		}
		return g.State == store.Acquired
	}, 10*time.Second, time.Millisecond)
}

// TestCacheTTL: a replay comes from the cache for so long, and is then fetched again.
func TestCacheTTL(t *testing.T) {
	server := backend.StartRedis(t)
	client := openClient(t, server.URL())
	s := redisstore.New(client, redisstore.Config{ClientSideCache: time.Millisecond})
	t.Cleanup(s.Close)
	c := begin(t, s, "k")
	require.NoError(t, s.Complete(t.Context(), "k", c.Owner, nil, time.Hour))
	meet(t, s, "k", store.Done)
	for range 3 {
		time.Sleep(5 * time.Millisecond)
		require.Equal(t, 1, during(t, client, func() { meet(t, s, "k", store.Done) })["get"])
	}
}

// TestClientWithoutCache: a client that caches nothing is not asked to, more than once.
func TestClientWithoutCache(t *testing.T) {
	server := backend.StartRedis(t)
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	s := redisstore.New(client, redisstore.Config{ClientSideCache: time.Minute})
	t.Cleanup(s.Close)
	c := begin(t, s, "k")
	require.NoError(t, s.Complete(t.Context(), "k", c.Owner, []byte("result"), time.Hour))
	require.Equal(t, map[string]int{"set": 9, "get": 1, "pttl": 9}, during(t, client, func() {
		for range 10 {
			require.Equal(t, "result", string(meet(t, s, "k", store.Done).Result))
		}
	}))
}

// TestCachedReplaysCountFromTheAsking: the remaining time counts from the question. Counted from the answer, a replay would
// outlive its record.
func TestCachedReplaysCountFromTheAsking(t *testing.T) {
	const onTheWay = 30 * time.Millisecond
	s, b := openBetween(t, backend.StartRedis(t).URL(), redisstore.Config{ClientSideCache: time.Minute})
	c := begin(t, s, "k")
	require.NoError(t, s.Complete(t.Context(), "k", c.Owner, nil, time.Hour))
	b.next = func(command func() rueidis.RedisResult) rueidis.RedisResult {
		result := command()
		time.Sleep(onTheWay)
		return result
	}
	remaining := meet(t, s, "k", store.Done).Remaining
	require.LessOrEqual(t, meet(t, s, "k", store.Done).Remaining, remaining-onTheWay)
}

// TestCachedReplaysEndWithTheirResults: a record outlives its result on the server, and not in the client's cache.
func TestCachedReplaysEndWithTheirResults(t *testing.T) {
	s := openURL(t, backend.StartRedis(t).URL(), redisstore.Config{ClientSideCache: time.Minute})
	for try := range 10 { // the result may have passed before it is cached: each stands for longer than the last one
		key, retention := strconv.Itoa(try), time.Duration(try+1)*50*time.Millisecond
		c := begin(t, s, key)
		require.NoError(t, s.Capabilities().Outlive(t.Context(), key, c.Owner, []byte("result"), retention, time.Hour))
		first, cached := meet(t, s, key, store.Done), meet(t, s, key, store.Done)
		if cached.Expired {
			continue
		}
		require.Equal(t, "result", string(cached.Result))
		require.LessOrEqual(t, cached.Remaining, first.Remaining)
		time.Sleep(retention)
		for range 3 {
			g := meet(t, s, key, store.Done)
			require.True(t, g.Expired)
			require.Empty(t, g.Result)
		}
		return
	}
	t.Fatal("no result stood for long enough")
}

// TestCachedReplaysOfAnotherRecord: an operator has forgotten the record that is known, and its successor is kept for less long.
func TestCachedReplaysOfAnotherRecord(t *testing.T) {
	replaysOfAnotherRecord(t, redisstore.Config{ClientSideCache: time.Minute}, true)
	replaysOfAnotherRecord(t, redisstore.Config{}, true)
	replaysOfAnotherRecord(t, redisstore.Config{}, false)
}

func replaysOfAnotherRecord(t *testing.T, config redisstore.Config, told bool) {
	url := backend.StartRedis(t).URL()
	s, other := openURL(t, url, config), openURL(t, url, redisstore.Config{})
	finish := func(id byte, retention time.Duration) {
		c := newClaim()
		if told {
			c.ID = store.ID{id}
		}
		_, err := other.Acquire(t.Context(), "k", c)
		require.NoError(t, err)
		if config.ClientSideCache > 0 {
			require.NoError(t, other.Capabilities().Outlive(t.Context(), "k", c.Owner, []byte{id}, retention, time.Hour))
		} else {
			require.NoError(t, other.Complete(t.Context(), "k", c.Owner, []byte{id}, retention))
		}
	}
	finish('a', time.Hour)
	for range 2 {
		require.Equal(t, "a", string(meet(t, s, "k", store.Done).Result))
	}
	inspect := other.Capabilities().Inspect
	was, err := inspect.Lookup(t.Context(), "k")
	require.NoError(t, err)
	require.NoError(t, inspect.Change(t.Context(), "k", was, store.Change{}))
	finish('b', time.Minute)
	require.Eventually(t, func() bool {
		g, err := s.Acquire(t.Context(), "k", newClaim())
		require.NoError(t, err)
		if string(g.Result) == "a" {
			return false
		}
		require.LessOrEqual(t, g.Remaining, time.Minute)
		return string(g.Result) == "b"
	}, 10*time.Second, time.Millisecond)
}

// TestReplaysOfARecordThatOutlivesAnother: the record that is known has gone, and the one in its place has lost its result.
func TestReplaysOfARecordThatOutlivesAnother(t *testing.T) {
	client := openClient(t, backend.StartRedis(t).URL())
	s, other := redisstore.New(client, redisstore.Config{}), redisstore.New(client, redisstore.Config{})
	t.Cleanup(s.Close)
	t.Cleanup(other.Close)
	c := begin(t, s, "k")
	require.NoError(t, s.Complete(t.Context(), "k", c.Owner, []byte("result"), time.Hour))
	meet(t, s, "k", store.Done)
	require.NoError(t, client.Do(t.Context(), client.B().Del().Key("k").Build()).Error())
	c = begin(t, other, "k")
	require.NoError(t, other.Capabilities().Outlive(t.Context(), "k", c.Owner, []byte("result"), time.Millisecond, time.Hour))
	time.Sleep(5 * time.Millisecond)
	require.True(t, meet(t, s, "k", store.Done).Expired)
}

// TestRefusedLookups: GET is given up if the user may not run it, and for no other refusal.
func TestRefusedLookups(t *testing.T) {
	client := openClient(t, backend.StartRedis(t).URL())
	s, b := openOn(t, client, redisstore.Config{})
	do := func(words ...string) {
		require.NoError(t, client.Do(t.Context(), client.B().Arbitrary(words...).Build()).Error())
	}
	trips := func(key string) int32 {
		before := b.trips.Load()
		meet(t, s, key, store.Done)
		return b.trips.Load() - before
	}
	for _, key := range []string{"k", "l", "foreign"} {
		c := begin(t, s, key)
		require.NoError(t, s.Complete(t.Context(), key, c.Owner, nil, time.Hour))
		meet(t, s, key, store.Done)
	}
	do("DEL", "foreign")
	do("RPUSH", "foreign", "x")
	_, err := s.Acquire(t.Context(), "foreign", newClaim())
	require.Error(t, err)
	do("ACL", "SETUSER", "default", "-get")
	require.EqualValues(t, 2, trips("k"), "GET is no longer tried")
	require.EqualValues(t, 1, trips("l"))
	do("ACL", "SETUSER", "default", "+get")
	require.EqualValues(t, 1, trips("k"))
}

// TestCachedReplaysEndWithTheirOwnRecord: a record may expire, and another one be made, during a lookup. Remaining time and
// result belong to the same record.
func TestCachedReplaysEndWithTheirOwnRecord(t *testing.T) {
	url := backend.StartRedis(t).URL()
	s, b := openBetween(t, url, redisstore.Config{ClientSideCache: time.Minute})
	other := openURL(t, url, redisstore.Config{})
	ctx := t.Context()
	for try := range 10 { // the first record may have passed before it is looked up: each stands for longer than the last one
		key := strconv.Itoa(try)
		c := begin(t, s, key)
		require.NoError(t, s.Complete(ctx, key, c.Owner, []byte("first"), time.Duration(try+1)*50*time.Millisecond))
		g, err := s.Acquire(ctx, key, newClaim())
		require.NoError(t, err)
		if g.State != store.Done {
			continue
		}
		again := false
		b.beforeLookup = func() { // in this goroutine
			second := newClaim()
			require.Eventually(t, func() bool {
				g, err := other.Acquire(ctx, key, second)
				return err == nil && g.State == store.Acquired
			}, 10*time.Second, time.Millisecond)
			require.NoError(t, other.Complete(ctx, key, second.Owner, []byte("second"), time.Hour))
			again = true
		}
		g, err = s.Acquire(ctx, key, newClaim())
		require.NoError(t, err)
		if b.beforeLookup = nil; again {
			require.Equal(t, store.Done, g.State)
			require.Equal(t, "second", string(g.Result))
			require.Greater(t, g.Remaining, time.Minute)
			return
		}
	}
	t.Fatal("no replay was looked up while its record stood")
}
