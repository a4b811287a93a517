package goredisidem

import (
	"context"
	"crypto/tls"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/internal/backend"
	"github.com/idem-go/idem/internal/clienttest"
	"github.com/idem-go/idem/internal/leak"
)

func TestMain(m *testing.M) { leak.VerifyTestMain(m) }

// connect makes a client of the kind that a URL of rueidis is for.
func connect(tb testing.TB, address string, config *tls.Config) redis.UniversalClient {
	tb.Helper()
	u, err := url.Parse(address)
	require.NoError(tb, err)
	q := u.Query()
	password, _ := u.User.Password()
	o := &redis.UniversalOptions{Addrs: append([]string{u.Host}, q["addr"]...), MasterName: q.Get("master_set"), TLSConfig: config,
		Username: u.User.Username(), Password: password, DialTimeout: 2 * time.Second, ReadTimeout: 3 * time.Second}
	if q.Get("protocol") == "2" {
		o.Protocol = 2
	}
	client := redis.NewUniversalClient(o)
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

func open(tb testing.TB, address string, config *tls.Config) *redisstore.Store {
	tb.Helper()
	s, err := New(connect(tb, address, config), redisstore.Config{})
	require.NoError(tb, err)
	tb.Cleanup(s.Close)
	return s
}

func TestClient(t *testing.T) {
	t.Parallel()
	clienttest.Run(t, func(tb testing.TB, url string, config *tls.Config) redisstore.Client {
		return on{connect(tb, url, config)}
	})
}

func TestStores(t *testing.T) {
	t.Parallel()
	clienttest.Stores(t, open, false)
}

// twice is a hook that sends what fails once more.
type twice struct{}

func (twice) DialHook(next redis.DialHook) redis.DialHook { return next }

func (twice) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, do redis.Cmder) error {
		if err := next(ctx, do); err != nil && err != redis.Nil {
			return next(ctx, do)
		}
		return nil
	}
}

func (twice) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, all []redis.Cmder) error {
		if err := next(ctx, all); err != nil && err != redis.Nil {
			return next(ctx, all)
		}
		return nil
	}
}

// TestHooksThatRepeat: a store knows, whatever it sends.
func TestHooksThatRepeat(t *testing.T) {
	server := backend.StartRedis(t)
	link := backend.NewProxy(t, server.Addr())
	client := on{connect(t, link.URL(server.URL()), nil)}
	client.AddHook(twice{})
	for _, words := range [][]string{{"INCR", "counted"}, {"INCRBY", "counted", "1"}} {
		commands := []redisstore.Command{{Args: words, Key: 1}}
		client.Do(t.Context(), commands)
		require.NoError(t, commands[0].Err)
		require.False(t, commands[0].Repeated)
		for n := 1; n <= 2; n++ {
			link.CutAfter([]byte("counted"))
			commands = []redisstore.Command{{Args: words, Key: 1}, {Args: []string{"PTTL", "counted"}, Key: 1}}[:n]
			client.Do(t.Context(), commands)
			for _, do := range commands {
				assert.NoError(t, do.Err)
				assert.True(t, do.Repeated)
			}
		}
	}
}

// TestClientInUse: a store is made of a client that others use meanwhile. What it changed of the client, a race detector would see.
func TestClientInUse(t *testing.T) {
	client := connect(t, backend.Redis(t), nil)
	ctx, cancel := context.WithCancel(t.Context())
	var others sync.WaitGroup
	others.Go(func() {
		for ctx.Err() == nil {
			_ = client.Ping(ctx).Err()
		}
	})
	for range 3 {
		s, err := New(client, redisstore.Config{})
		require.NoError(t, err)
		t.Cleanup(s.Close)
	}
	cancel()
	others.Wait()
}

// TestOthersAreRefused: a ring, in particular.
func TestOthersAreRefused(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	t.Cleanup(func() { _ = ring.Close() })
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	t.Cleanup(func() { _ = cluster.Close() })
	for _, client := range []redis.UniversalClient{ring, nil, (*redis.Client)(nil), (*redis.ClusterClient)(nil)} {
		_, err := New(client, redisstore.Config{})
		require.ErrorIs(t, err, errClient)
	}
	_, err := New(cluster, redisstore.Config{WaitForReplicas: 1})
	require.ErrorContains(t, err, "WaitForReplicas")
}
