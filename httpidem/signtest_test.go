package httpidem_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/internal/backend"
	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/signtest"
)

func TestSignatures(t *testing.T) {
	h := signtest.NetHTTP("net/http", httpidem.Verify)
	h.Nonces = redisNonces
	signtest.Run(t, h)
}

// redisNonces are those of n engines, each with a connection of its own. They expire by themselves.
func redisNonces(tb testing.TB, n int) []sign.NonceStore {
	tb.Helper()
	url, prefix := backend.Redis(tb), "signtest:"+core.NewOwner().String()+":"
	stores := make([]sign.NonceStore, n)
	for i := range stores {
		store, err := redisstore.NewURL(url)
		require.NoError(tb, err)
		tb.Cleanup(store.Close)
		stores[i] = core.MustNew(core.Config{Store: store, Prefix: prefix}).Nonces()
	}
	return stores
}
