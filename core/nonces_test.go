package core_test

import (
	"context"
	"crypto/rand"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/memstore"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/core/store/sqlstore"
	"github.com/idem-go/idem/internal/backend"
)

// nonceStores are the stores on which nonces are tested.
var nonceStores = map[string]func(tb testing.TB) store.Store{
	"memory": func(tb testing.TB) store.Store { return newStore(tb) },
	"Redis": func(tb testing.TB) store.Store {
		s, err := redisstore.NewURL(backend.Redis(tb))
		require.NoError(tb, err)
		tb.Cleanup(s.Close)
		return s
	},
	"PostgreSQL": func(tb testing.TB) store.Store { return sqlStore(tb, backend.Postgres(tb)) },
	"MySQL":      func(tb testing.TB) store.Store { return sqlStore(tb, backend.MySQL(tb)) },
	"SQLite": func(tb testing.TB) store.Store {
		return sqlStore(tb, "sqlite:"+filepath.Join(tb.TempDir(), "idem.db"))
	},
}

// sqlStore makes a store with a table of its own, which is dropped with the test.
func sqlStore(tb testing.TB, url string) store.Store {
	tb.Helper()
	db, dialect, err := sqlstore.Open(url)
	require.NoError(tb, err)
	tb.Cleanup(func() { db.Close() })
	name := "idem_test_" + strings.ToLower(rand.Text()[:12])
	s, err := sqlstore.New(db, dialect, sqlstore.Table(name))
	require.NoError(tb, err)
	tb.Cleanup(s.Close)
	require.NoError(tb, s.Migrate(tb.Context()))
	tb.Cleanup(func() {
		_, err := db.Exec("DROP TABLE IF EXISTS " + name)
		assert.NoError(tb, err)
	})
	return s
}

func TestNonces(t *testing.T) {
	for name, open := range nonceStores {
		t.Run(name, func(t *testing.T) {
			// The patience is for a machine that is busy with other tests.
			config := core.Config{Store: open(t), Prefix: "nonces-" + rand.Text() + ":", StoreTimeout: 30 * time.Second}
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
		})
	}
}

func TestNoncesAreForgottenInTime(t *testing.T) {
	now := time.Unix(1700000000, 0)
	store, err := memstore.New(memstore.Options{Now: func() time.Time { return now }})
	require.NoError(t, err)
	nonces := core.MustNew(core.Config{Store: store}).Nonces()
	use := func() bool {
		ok, err := nonces.Use(t.Context(), "demo", "n", 151*time.Second)
		require.NoError(t, err)
		return ok
	}
	assert.True(t, use())
	now = now.Add(151*time.Second - time.Nanosecond)
	assert.False(t, use())
	now = now.Add(time.Second)
	assert.True(t, use(), "nothing is left of it, and the failed use has not prolonged it")
}

// No two pairs share a key, and no pair has that of an operation.
func TestNonceKeys(t *testing.T) {
	recorder := &spy{Store: newStore(t)}
	keys := &keyRecorder{Store: recorder, seen: map[string]string{}}
	e := core.MustNew(core.Config{Store: keys, User: byUser})
	parts := []string{"a", "a#b", "a%23b", "b", "#", "a&", "&b", "a N=", "N=", "", "a\nb", "{a}", "=", "U=aM=POST /ordersP=", "é"}
	for _, id := range parts {
		for _, nonce := range parts {
			keys.who = id + " | " + nonce
			ok, err := e.Nonces().Use(t.Context(), id, nonce, time.Minute)
			require.NoError(t, err)
			assert.True(t, ok, keys.who)
		}
	}
	assert.Len(t, keys.seen, len(parts)*len(parts))
	for key := range keys.seen {
		assert.True(t, strings.HasPrefix(key, "idem:N="), key)
		assert.NotContains(t, key, "{")
	}
	var ledger atomic.Int64
	keys.who = "operation"
	serve(t, e.MustGuard(core.Policy{}), post("{}", &ledger))
	_, err := do(t.Context(), e, "k", core.Policy{Name: "task"}, func(context.Context) ([]byte, error) { return nil, nil })
	require.NoError(t, err)
	assert.Len(t, keys.seen, len(parts)*len(parts)+2)
	assert.Zero(t, recorder.renews.Load(), "nobody renews a nonce")
}

type keyRecorder struct {
	store.Store
	who  string
	seen map[string]string
}

func (k *keyRecorder) Acquire(ctx context.Context, key string, claim store.Claim) (store.Grant, error) {
	k.seen[key] = k.who
	return k.Store.Acquire(ctx, key, claim)
}

func TestNoncesFail(t *testing.T) {
	records := &spy{Store: newStore(t), acquire: down}
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

	full, err := memstore.New(memstore.Options{MaxEntries: 1})
	require.NoError(t, err)
	nonces = core.MustNew(core.Config{Store: full}).Nonces()
	ok, err = nonces.Use(t.Context(), "demo", "1", time.Minute)
	require.NoError(t, err)
	assert.True(t, ok)
	_, err = nonces.Use(t.Context(), "demo", "2", time.Minute)
	assert.ErrorIs(t, err, store.ErrFull)
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
