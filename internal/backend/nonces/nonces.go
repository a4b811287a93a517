// Package nonces has nonce stores on the shared servers, for tests.
package nonces

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/internal/backend"
	"github.com/idem-go/idem/sign"
)

// OnRedis returns the nonces of n engines that share the shared Redis, each with a connection of
// its own, as n processes have, and time for a hundred requests at once on a machine that is busy. They expire by themselves. If Redis does not answer, the test is
// skipped, or fails (see package backend).
func OnRedis(tb testing.TB, n int) []sign.NonceStore {
	tb.Helper()
	url, prefix := backend.Redis(tb), "signtest:"+store.NewOwner().String()+":"
	stores := make([]sign.NonceStore, n)
	for i := range stores {
		store, err := redisstore.NewURL(url)
		require.NoError(tb, err)
		tb.Cleanup(store.Close)
		stores[i] = core.MustNew(core.Config{Store: store, Prefix: prefix, StoreTimeout: time.Minute}).Nonces()
	}
	return stores
}
