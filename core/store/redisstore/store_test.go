package redisstore_test

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/core/storetest"
	"github.com/idem-go/idem/internal/backend"
	"github.com/idem-go/idem/internal/clienttest"
	"github.com/idem-go/idem/internal/leak"
)

func TestMain(m *testing.M) {
	ignored := []goleak.Option{
		// A cluster client sleeps for five seconds before it drops connections that it no longer
		// needs, and for one before it looks at the cluster again; also after it was closed.
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"),
	}
	leak.VerifyTestMain(m, ignored...)
}

func TestStores(t *testing.T) {
	t.Parallel()
	clienttest.Stores(t, func(tb testing.TB, url string, config *tls.Config) *redisstore.Store {
		if config == nil {
			return openStore(tb, url)
		}
		s := redisstore.New(connect(tb, url, config), redisstore.Config{})
		tb.Cleanup(s.Close)
		return s
	}, true)
}

func TestClient(t *testing.T) {
	t.Parallel()
	clienttest.Run(t, func(tb testing.TB, url string, config *tls.Config) redisstore.Client {
		return redisstore.Rueidis(connect(tb, url, config))
	})
}

func connect(tb testing.TB, url string, config *tls.Config) rueidis.Client {
	o, err := rueidis.ParseURL(url)
	require.NoError(tb, err)
	o.Dialer.Timeout, o.Dialer.KeepAlive, o.ConnWriteTimeout = 2*time.Second, time.Second, 3*time.Second
	if o.PipelineMultiplex = -1; config != nil {
		o.TLSConfig = config
	}
	client, err := rueidis.NewClient(o)
	require.NoError(tb, err)
	tb.Cleanup(client.Close)
	return client
}

func TestWithClientSideCache(t *testing.T) {
	t.Parallel()
	caching := func(tb testing.TB, url string) *redisstore.Store {
		return openURL(tb, url, redisstore.Config{ClientSideCache: time.Minute})
	}
	storetest.Run(t, clienttest.Instances(t, backend.Redis(t), caching), storetest.Features{})
}

func TestMiniredis(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(tb testing.TB) storetest.Instance {
		server := miniredis.RunT(tb)
		peer := func() store.Store { return openURL(tb, "redis://"+server.Addr()+"?protocol=2", redisstore.Config{}) }
		// Newer versions of miniredis ignore COUNT of SCAN.
		return storetest.Instance{Store: peer(), Peer: peer, Advance: server.FastForward, WholeLists: true}
	}, storetest.Features{})
}

func openStore(tb testing.TB, url string) *redisstore.Store {
	return openURL(tb, url, redisstore.Config{})
}

func openURL(tb testing.TB, url string, config redisstore.Config) *redisstore.Store {
	tb.Helper()
	s, err := redisstore.NewURL(url, config)
	require.NoError(tb, err)
	tb.Cleanup(s.Close)
	return s
}

func openClient(tb testing.TB, url string) rueidis.Client {
	tb.Helper()
	options, err := rueidis.ParseURL(url)
	require.NoError(tb, err)
	client, err := rueidis.NewClient(options)
	require.NoError(tb, err)
	tb.Cleanup(client.Close)
	return client
}
