// Package nonces tests nonces on stores.
package nonces

import (
	"crypto/rand"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store"
)

// Test checks the nonces of engines on a store, which other tests may share.
func Test(t *testing.T, s store.Store) {
	t.Helper()
	// The patience is for a machine that is busy with other tests.
	config := core.Config{Store: s, Service: "nonces-" + rand.Text(), StoreTimeout: 30 * time.Second}
	one, two := core.MustNew(config).Nonces(), core.MustNew(config).Nonces()

	var unused, failed atomic.Int64
	var wg sync.WaitGroup
	for i := range 100 {
		nonces := one
		if i%2 == 1 {
			nonces = two
		}
		wg.Go(func() {
			ok, err := nonces.Use(t.Context(), "demo", "n-0123456789abcdef", time.Minute)
			if err != nil {
				failed.Add(1)
				t.Errorf("Use: %v", err)
			}
			if ok {
				unused.Add(1)
			}
		})
	}
	wg.Wait()
	assert.Zero(t, failed.Load())
	assert.EqualValues(t, 1, unused.Load())

	use := func(keyID, nonce string) bool {
		t.Helper()
		ok, err := one.Use(t.Context(), keyID, nonce, time.Minute)
		require.NoError(t, err)
		return ok
	}
	assert.False(t, use("demo", "n-0123456789abcdef"))
	assert.True(t, use("other", "n-0123456789abcdef"), "nonces are each key's own")
	assert.True(t, use("demo", "n-0123456789ABCDEF"), "case counts")
	assert.True(t, use(strings.Repeat("k", 128), strings.Repeat("~", 128)))
}
