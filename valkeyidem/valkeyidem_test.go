package valkeyidem

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"
	"go.uber.org/goleak"

	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/core/storetest"
	"github.com/idem-go/idem/internal/backend"
	"github.com/idem-go/idem/internal/clienttest"
	"github.com/idem-go/idem/internal/leak"
)

func TestMain(m *testing.M) {
	leak.VerifyTestMain(m,
		// A cluster client sleeps for five seconds before it drops connections that it no longer
		// needs, and for one before it looks at the cluster again; also after it was closed.
		goleak.IgnoreAnyFunction("github.com/valkey-io/valkey-go.(*clusterClient)._refresh.func2"),
		goleak.IgnoreAnyFunction("github.com/valkey-io/valkey-go.(*call).DelayDo.func1"))
}

func connect(tb testing.TB, url string, config *tls.Config) valkey.Client {
	tb.Helper()
	o, err := valkey.ParseURL(url)
	require.NoError(tb, err)
	o.Dialer.Timeout, o.Dialer.KeepAlive, o.ConnWriteTimeout = 2*time.Second, time.Second, 3*time.Second
	o.DisableCache = o.AlwaysRESP2
	if o.PipelineMultiplex = -1; config != nil {
		o.TLSConfig = config
	}
	client, err := valkey.NewClient(o)
	require.NoError(tb, err)
	tb.Cleanup(client.Close)
	return client
}

func open(tb testing.TB, url string, config *tls.Config) *redisstore.Store {
	return openWith(tb, connect(tb, url, config), redisstore.Config{})
}

func openWith(tb testing.TB, client valkey.Client, c redisstore.Config) *redisstore.Store {
	s := New(client, c)
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

func TestWithClientSideCache(t *testing.T) {
	t.Parallel()
	caching := func(tb testing.TB, url string) *redisstore.Store {
		return openWith(tb, connect(tb, url, nil), redisstore.Config{ClientSideCache: time.Minute})
	}
	storetest.Run(t, clienttest.Instances(t, backend.Redis(t), caching), storetest.Features{})
}
