package redisstore_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/core/storetest"
	"github.com/idem-go/idem/internal/backend"
)

func TestLimiter(t *testing.T) {
	t.Parallel()
	storetest.RunLimiter(t, limiters(t, backend.Redis(t)))
}

func TestLimiterOnACluster(t *testing.T) {
	t.Parallel()
	storetest.RunLimiter(t, limiters(t, backend.StartRedisCluster(t).URL()))
}

func TestLimiterOnMiniredis(t *testing.T) {
	t.Parallel()
	storetest.RunLimiter(t, func(tb testing.TB, n int, window time.Duration) storetest.LimiterInstance {
		server := miniredis.RunT(tb)
		clock := storetest.NewClock()
		advance := func(d time.Duration) {
			clock.Advance(d)
			server.SetTime(clock.Now())
			server.FastForward(d)
		}
		advance(0)
		peer := func() core.Limiter {
			return newLimiter(tb, "redis://"+server.Addr()+"?protocol=2", "shop", n, window, "l")
		}
		return storetest.LimiterInstance{Limiter: peer(), Peer: peer, Advance: advance, Held: func() int { return len(server.Keys()) }}
	})
}

// limiters makes limiters of different names in a server or servers that others may use.
func limiters(tb testing.TB, url string) storetest.LimiterFactory {
	all := "l-" + rand.Text()
	tb.Cleanup(func() { unlink(tb, url, "idem:"+all) })
	return func(tb testing.TB, n int, window time.Duration) storetest.LimiterInstance {
		service := all + "-" + rand.Text()
		peer := func() core.Limiter { return newLimiter(tb, url, service, n, window, "l") }
		held := func() int { return len(keys(tb, url, "idem:"+service+":")) }
		return storetest.LimiterInstance{Limiter: peer(), Peer: peer, Held: held}
	}
}

func newLimiter(tb testing.TB, url, service string, n int, window time.Duration, name string, options ...redisstore.LimiterOption) *redisstore.Limiter {
	tb.Helper()
	options = append([]redisstore.LimiterOption{redisstore.LimiterTimeout(20 * time.Second)}, options...)
	l, err := openURL(tb, url).NewLimiter(service, n, window, name, options...)
	require.NoError(tb, err)
	return l
}

// allowed expects that one more is allowed.
func allowed(t *testing.T, l core.Limiter, key string) {
	t.Helper()
	wait, err := l.Allow(t.Context(), key)
	require.NoError(t, err)
	require.Zero(t, wait)
}

// refused expects that none is allowed, and returns the wait.
func refused(t *testing.T, l core.Limiter, key string) time.Duration {
	t.Helper()
	wait, err := l.Allow(t.Context(), key)
	require.NoError(t, err)
	require.Positive(t, wait)
	return wait
}

// TestLimiterFaults: all that is wrong is said at once.
func TestLimiterFaults(t *testing.T) {
	_, err := redisstore.NewLimiter(nil, "a b", 0, -time.Second, "two words", redisstore.LimiterTimeout(0))
	for _, fault := range []string{"no client", "n is 0", "window is -1s", `name is "two words"`, `service is "a b"`, "timeout is 0s"} {
		require.ErrorContains(t, err, fault)
	}
	client := openClient(t, backend.Redis(t))
	for _, name := range []string{"", "#", "a#b", "a\n", "\x7f", strings.Repeat("n", 65)} {
		l, err := redisstore.NewLimiter(client, "shop", 1, time.Second, name)
		require.Error(t, err, "%q", name)
		require.Nil(t, l)
	}
	for n, window := range map[int]time.Duration{1: 101 * 365 * 24 * time.Hour, 1 << 62: time.Nanosecond} {
		_, err = redisstore.NewLimiter(client, "shop", n, window, "n")
		require.ErrorContains(t, err, "100 years")
	}
	// What is as large as it may be is counted.
	for n, window := range map[int]time.Duration{1: 100 * 365 * 24 * time.Hour, 100 * 365 * 24 * 3600 * 1000 * 1000: time.Nanosecond} {
		name := "limiter-test-" + store.NewOwner().String()
		t.Cleanup(func() { unlink(t, backend.Redis(t), "idem:shop:L="+name) })
		l, err := redisstore.NewLimiter(client, "shop", n, window, name)
		require.NoError(t, err)
		allowed(t, l, "k")
		if n == 1 {
			require.InDelta(t, window, refused(t, l, "k"), float64(time.Minute))
		} else {
			allowed(t, l, "k")
		}
	}
}

// TestLimiterKeys: what stands in Redis, for whom, and for how long. It is never where a record is.
func TestLimiterKeys(t *testing.T) {
	server := backend.StartRedis(t)
	client := openClient(t, server.URL())
	const secret = "sk_live_1234 U=x M=y\x00"
	digest := sha256.Sum256([]byte(secret))
	stands := func(key string) time.Duration {
		ms, err := client.Do(t.Context(), client.B().Pttl().Key(key+hex.EncodeToString(digest[:])).Build()).AsInt64()
		require.NoError(t, err)
		return time.Duration(ms) * time.Millisecond
	}
	first, err := redisstore.NewLimiter(client, "shop", 10, time.Hour, "search")
	require.NoError(t, err)
	allowed(t, first, secret)
	left := stands("idem:shop:L=search#")
	require.Positive(t, left)
	require.LessOrEqual(t, left, 6*time.Minute, "the bucket is full again after a step")
	for range 9 {
		allowed(t, first, secret)
	}
	wait := refused(t, first, secret)
	left = stands("idem:shop:L=search#")
	require.Greater(t, left, wait)
	require.LessOrEqual(t, left, time.Hour)

	// Another name, and another service, are another limit.
	second, err := redisstore.NewLimiter(client, "shop", 1, time.Minute, "coupons")
	require.NoError(t, err)
	third, err := redisstore.NewLimiter(client, "mail", 1, time.Minute, "coupons")
	require.NoError(t, err)
	for prefix, l := range map[string]*redisstore.Limiter{"idem:shop:L=coupons#": second, "idem:mail:L=coupons#": third} {
		allowed(t, l, secret)
		refused(t, l, secret)
		require.Positive(t, stands(prefix))
	}
	require.Len(t, keys(t, server.URL(), ""), 3)
}

// TestLimiterRoundTrips: a call is one command from outside, and does no more inside than it must.
func TestLimiterRoundTrips(t *testing.T) {
	client := openClient(t, backend.StartRedis(t).URL())
	l, err := redisstore.NewLimiter(client, "shop", 2, time.Hour, "l")
	require.NoError(t, err)
	allowed(t, l, "the server gets the script")
	require.Equal(t, map[string]int{"evalsha": 1, "get": 1, "time": 1, "set": 1}, during(t, client, func() { allowed(t, l, "k") }))
	require.Equal(t, map[string]int{"evalsha": 1, "get": 1, "time": 1, "set": 1}, during(t, client, func() { allowed(t, l, "k") }))
	require.Equal(t, map[string]int{"evalsha": 1, "get": 1, "time": 1, "getex": 1}, during(t, client, func() { refused(t, l, "k") }))
	require.NoError(t, client.Do(t.Context(), client.B().ScriptFlush().Build()).Error())
	refused(t, l, "k")
}

// TestLimiterOfAStore: it uses the store's client, and ends with the store.
func TestLimiterOfAStore(t *testing.T) {
	server := backend.StartRedis(t)
	s := openURL(t, server.URL())
	l, err := s.NewLimiter("shop", 1, time.Hour, "l")
	require.NoError(t, err)
	allowed(t, l, "k")
	refused(t, newLimiter(t, server.URL(), "shop", 1, time.Hour, "l"), "k")
	s.Close()
	_, err = l.Allow(t.Context(), "k")
	require.ErrorContains(t, err, "closed")
}

// TestLimiterSentTwice: a call that the client has sent twice counts once.
func TestLimiterSentTwice(t *testing.T) {
	client := &between{Client: openClient(t, backend.StartRedis(t).URL())}
	l, err := redisstore.NewLimiter(client, "shop", 3, time.Hour, "l")
	require.NoError(t, err)
	allowed(t, l, "the server gets the script")
	for _, carriedOut := range []bool{true, false, true} {
		client.interrupt(carriedOut, func() {})
		allowed(t, l, "k")
	}
	refused(t, l, "k")
	client.interrupt(true, func() {})
	refused(t, l, "k")
}

// TestLimiterAfterTheClockWasSetBack: no call waits until the clock has caught up.
func TestLimiterAfterTheClockWasSetBack(t *testing.T) {
	server := miniredis.RunT(t)
	now := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	set := func(at time.Time) { now = at; server.SetTime(now) }
	set(now)
	l := newLimiter(t, "redis://"+server.Addr()+"?protocol=2", "shop", 2, 10*time.Second, "l")
	allowed(t, l, "k")
	allowed(t, l, "k")
	set(now.Add(-24 * time.Hour))
	require.Equal(t, 5*time.Second, refused(t, l, "k"))
	set(now.Add(5 * time.Second)) // counted from what it was then
	require.Equal(t, 5*time.Second, refused(t, l, "k"))
}

// TestLimiterForeignValues: a foreign value under a key is not taken for a limit, nor changed.
func TestLimiterForeignValues(t *testing.T) {
	client := openClient(t, backend.StartRedis(t).URL())
	l, err := redisstore.NewLimiter(client, "shop", 1, time.Hour, "l")
	require.NoError(t, err)
	digest := sha256.Sum256([]byte("k"))
	key := "idem:shop:L=l#" + hex.EncodeToString(digest[:])
	for _, value := range []string{"", "x", "7", "-1;", "1.5;", "nan;", ";"} {
		require.NoError(t, client.Do(t.Context(), client.B().Set().Key(key).Value(value).Build()).Error())
		_, err := l.Allow(t.Context(), "k")
		require.ErrorContains(t, err, "no limit of idem", "%q", value)
		got, err := client.Do(t.Context(), client.B().Get().Key(key).Build()).ToString()
		require.NoError(t, err)
		require.Equal(t, value, got)
	}
	require.NoError(t, client.Do(t.Context(), client.B().Del().Key(key).Build()).Error())
	require.NoError(t, client.Do(t.Context(), client.B().Rpush().Key(key).Element("x").Build()).Error())
	_, err = l.Allow(t.Context(), "k")
	require.ErrorContains(t, err, "WRONGTYPE")
}

// TestLimiterOnAFullServer: a call for which the server has no room is an error, and does not count. A refused call needs no room.
func TestLimiterOnAFullServer(t *testing.T) {
	client := openClient(t, backend.StartRedis(t).URL())
	l, err := redisstore.NewLimiter(client, "shop", 2, time.Hour, "l")
	require.NoError(t, err)
	allowed(t, l, "empty")
	allowed(t, l, "empty")
	allowed(t, l, "half")
	setMaxMemory(t, client, "1")
	for range 5 {
		for _, key := range []string{"new", "half"} {
			_, err := l.Allow(t.Context(), key)
			require.ErrorIs(t, err, store.ErrFull)
		}
		refused(t, l, "empty")
	}
	setMaxMemory(t, client, "0")
	allowed(t, l, "half")
	refused(t, l, "half")
	allowed(t, l, "new")
	allowed(t, l, "new")
	refused(t, l, "new")
}

// TestLimiterOnAReplica: a replica may be behind, and can't count. It does not guess.
func TestLimiterOnAReplica(t *testing.T) {
	master := backend.StartRedis(t, "--repl-diskless-sync-delay", "0")
	host, port, err := net.SplitHostPort(master.Addr())
	require.NoError(t, err)
	replica := openClient(t, backend.StartRedis(t, "--replicaof", host+" "+port).URL())
	counted, err := redisstore.NewLimiter(openClient(t, master.URL()), "shop", 1, time.Hour, "l")
	require.NoError(t, err)
	allowed(t, counted, "k")
	require.Eventually(t, func() bool {
		n, err := replica.Do(t.Context(), replica.B().Dbsize().Build()).AsInt64()
		return err == nil && n == 1
	}, 20*time.Second, 10*time.Millisecond)
	l, err := redisstore.NewLimiter(replica, "shop", 1, time.Hour, "l")
	require.NoError(t, err)
	for _, key := range []string{"k", "new"} {
		_, err := l.Allow(t.Context(), key)
		require.ErrorContains(t, err, "replica", key)
	}
}

// TestLimiterRefusedByTheServer: a call that the server refuses does not count.
func TestLimiterRefusedByTheServer(t *testing.T) {
	server := miniredis.RunT(t)
	l := newLimiter(t, "redis://"+server.Addr()+"?protocol=2", "shop", 1, time.Hour, "l", redisstore.LimiterTimeout(20*time.Second))
	for _, says := range []string{
		"LOADING Redis is loading the dataset in memory", "MASTERDOWN Link with MASTER is down", "CLUSTERDOWN The cluster is down",
		"NOREPLICAS Not enough good replicas to write.", "MISCONF Redis is configured to save RDB snapshots", "BUSY Redis is busy running a script.",
		"NOPERM this user has no permissions", "READONLY You can't write against a read only replica.",
	} {
		server.SetError(says)
		wait, err := l.Allow(t.Context(), "k")
		require.Error(t, err, says)
		require.Zero(t, wait, says)
		server.SetError("")
	}
	allowed(t, l, "k")
	refused(t, l, "k")
}

// TestLimiterWithoutAServer: a server that is frozen or gone is an error, in time, also for a caller without a
// deadline.
func TestLimiterWithoutAServer(t *testing.T) {
	server := backend.StartRedis(t)
	client := patient(t, server.URL(), nil)
	l, err := redisstore.NewLimiter(client, "shop", 1, time.Hour, "l", redisstore.LimiterTimeout(20*time.Millisecond))
	require.NoError(t, err)
	require.Eventually(t, func() bool { _, err := l.Allow(t.Context(), "k"); return err == nil }, 10*time.Second, time.Millisecond)
	server.Freeze()
	defer server.Thaw()
	var wg sync.WaitGroup
	for i := range 2000 { // more than the client's queue holds
		wg.Go(func() {
			_, err := l.Allow(context.Background(), fmt.Sprint(i))
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		})
	}
	wg.Wait()
	server.Kill()
	_, err = l.Allow(context.Background(), "k")
	require.Error(t, err)
	server.Start()
	require.Eventually(t, func() bool { _, err := l.Allow(t.Context(), "k"); return err == nil }, 10*time.Second, time.Millisecond)
}

// TestLimiterUnderPermissions: the package comment says which commands a limiter needs.
func TestLimiterUnderPermissions(t *testing.T) {
	server := backend.StartRedis(t)
	admin := openClient(t, server.URL())
	require.NoError(t, admin.Do(t.Context(), admin.B().AclSetuser().Username("limiter").Rule("on", ">secret", "~idem:shop:L=*",
		"+eval", "+evalsha", "+get", "+set", "+getex", "+time", "+ping", "+client").Build()).Error())
	options, err := rueidis.ParseURL(server.URL())
	require.NoError(t, err)
	options.Username, options.Password = "limiter", "secret"
	client, err := rueidis.NewClient(options)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	l, err := redisstore.NewLimiter(client, "shop", 1, time.Hour, "l")
	require.NoError(t, err)
	allowed(t, l, "k")
	refused(t, l, "k")
}

// TestMemoryPerLimit holds what the package comment says, with all that the server spends on a key.
func TestMemoryPerLimit(t *testing.T) {
	const n, workers = 16_000, 32
	client := openClient(t, backend.StartRedis(t).URL())
	l, err := redisstore.NewLimiter(client, "shop", 2, time.Hour, "searches")
	require.NoError(t, err)
	allowed(t, l, "warm up")
	before := usedMemory(t, client)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				if _, err := l.Allow(t.Context(), fmt.Sprint(i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	each := (usedMemory(t, client) - before) / n
	t.Logf("%.0f bytes", each)
	require.LessOrEqual(t, each, 300.0)
	require.Greater(t, each, 64.0, "this measures nothing")
}
