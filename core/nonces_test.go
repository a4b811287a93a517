package core_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/memstore"
)

// Engines on one store share its nonces. Of concurrent uses, one is the first. (That a store's claims are one step, and its
// keys exact, storetest checks of every store.)
func TestNonces(t *testing.T) {
	config := core.Config{Store: newStore(t)}
	engines := []*core.Engine{core.MustNew(config), core.MustNew(config)}
	use := func(engine int, keyID, nonce string) bool {
		ok, err := engines[engine].Nonces().Use(t.Context(), keyID, nonce, time.Minute)
		assert.NoError(t, err)
		return ok
	}
	var unused atomic.Int64
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			if use(i%2, "demo", "n-0123456789abcdef") {
				unused.Add(1)
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, 1, unused.Load())
	assert.False(t, use(0, "demo", "n-0123456789abcdef"))
	assert.True(t, use(0, "other", "n-0123456789abcdef"), "nonces are each key's own")
	assert.True(t, use(0, "demo", "n-0123456789ABCDEF"), "case counts")
	assert.True(t, use(0, strings.Repeat("k", 128), strings.Repeat("~", 128)))
}

func TestNoncesAreForgottenInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nonces := core.MustNew(core.Config{Store: newStore(t)}).Nonces()
		use := func() bool {
			ok, err := nonces.Use(t.Context(), "demo", "n", 151*time.Second)
			require.NoError(t, err)
			return ok
		}
		assert.True(t, use())
		time.Sleep(151*time.Second - time.Nanosecond)
		assert.False(t, use())
		time.Sleep(time.Second)
		assert.True(t, use(), "nothing is left of it, and the failed use has not prolonged it")
	})
}

// No two pairs share a key, and no pair has that of an operation.
func TestNonceKeys(t *testing.T) {
	who, seen := "", map[string]string{}
	records := &spy{Store: newStore(t), asked: func(key string, _ store.Claim) { seen[key] = who }}
	e := core.MustNew(core.Config{Service: "shop", Store: records, User: byUser})
	parts := []string{"a", "a#b", "a%23b", "b", "#", "a&", "&b", "a N=", "N=", "", "a\nb", "{a}", "=", "U=aM=POST /ordersP=", "é"}
	for _, id := range parts {
		for _, nonce := range parts {
			who = id + " | " + nonce
			ok, err := e.Nonces().Use(t.Context(), id, nonce, time.Minute)
			require.NoError(t, err)
			assert.True(t, ok, who)
		}
	}
	assert.Len(t, seen, len(parts)*len(parts))
	for key := range seen {
		assert.True(t, strings.HasPrefix(key, "idem:shop:N="), key)
		assert.NotContains(t, key, "{")
	}
	who = "operation"
	serve(t, e.MustGuard(core.Policy{}), post("{}", nil))
	_, err := do(t.Context(), e, "k", core.TaskPolicy{Name: "task"}, func(context.Context) ([]byte, error) { return nil, nil })
	require.NoError(t, err)
	assert.Len(t, seen, len(parts)*len(parts)+2)
	assert.Zero(t, records.renews.Load(), "nobody renews a nonce")
}

func TestNoncesFail(t *testing.T) {
	records := &spy{Store: newStore(t), acquire: down, after: true}
	nonces := core.MustNew(core.Config{Store: records}).Nonces()
	ok, err := nonces.Use(t.Context(), "demo", "n", time.Minute)
	assert.False(t, ok)
	assert.ErrorIs(t, err, errDown)
	assert.EqualValues(t, 1, records.acquires.Load(), "one call, and none to clean up")
	assert.Zero(t, records.releases.Load())

	_, err = core.MustNew(core.Config{}).Nonces().Use(t.Context(), "demo", "n", 0)
	assert.Error(t, err, "a nonce that nobody remembers is not used")

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = core.MustNew(core.Config{}).Nonces().Use(ended, "demo", "n", time.Minute)
	assert.ErrorIs(t, err, context.Canceled)

	full, err := memstore.New(memstore.Config{MaxEntries: 1})
	require.NoError(t, err)
	nonces = core.MustNew(core.Config{Store: full}).Nonces()
	ok, err = nonces.Use(t.Context(), "demo", "1", time.Minute)
	require.NoError(t, err)
	assert.True(t, ok)
	_, err = nonces.Use(t.Context(), "demo", "2", time.Minute)
	assert.ErrorIs(t, err, store.ErrFull)
}

// Half of the store is for records. What another store holds, nobody knows.
func TestNoncesKnowTheirRoom(t *testing.T) {
	small, err := memstore.New(memstore.Config{MaxEntries: 1001})
	require.NoError(t, err)
	for want, s := range map[int]store.Store{501: small, 1 << 19: nil, 0: &spy{Store: small}} {
		capacity, ownTimeout := core.MustNew(core.Config{Store: s}).Nonces().Limits()
		assert.Equal(t, want, capacity)
		assert.True(t, ownTimeout)
	}
}

// A call ends with the engine's deadline or with the caller's, whichever is first.
func TestNoncesHaveADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nonces := core.MustNew(core.Config{Store: &spy{Store: newStore(t), acquire: hang}, StoreTimeout: 3 * time.Second}).Nonces()
		for _, c := range []struct{ caller, want time.Duration }{{time.Hour, 3 * time.Second}, {time.Second, time.Second}} {
			ctx, cancel := context.WithTimeout(t.Context(), c.caller)
			began := time.Now()
			_, err := nonces.Use(ctx, "demo", "n", time.Minute)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Equal(t, c.want, time.Since(began))
			cancel()
		}
	})
}
