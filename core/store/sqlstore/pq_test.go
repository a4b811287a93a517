package sqlstore_test

import (
	"database/sql"
	"database/sql/driver"
	"testing"
	"time"

	"github.com/lib/pq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/sqlstore"
	"github.com/idem-go/idem/core/storetest"
	"github.com/idem-go/idem/internal/backend"
)

// libPQ opens a pool of lib/pq's, which NewURL uses where pgx is not imported.
func libPQ(tb testing.TB, url string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("postgres", url)
	require.NoError(tb, err)
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	tb.Cleanup(func() { db.Close() })
	return db
}

func TestLibPQ(t *testing.T) {
	t.Parallel()
	url := engines[0].url(t)
	for name, prepared := range map[string]bool{"prepared": true, "as it is": false} {
		if prepared && testing.Short() {
			continue // "DoTx" prepares
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			on := func(tb testing.TB, link string) storetest.Instance {
				_, _, table := fresh(tb, url, sqlstore.Config{})
				config := sqlstore.Config{Table: table, Prepared: prepared}
				peer := func() store.Store { return newOn(tb, libPQ(tb, link), sqlstore.PostgreSQL, config) }
				return storetest.Instance{Store: peer(), Peer: peer}
			}
			storetest.Run(t, func(tb testing.TB) storetest.Instance { return on(tb, url) }, storetest.Features{
				Faulty: func(tb testing.TB) (storetest.Instance, func()) {
					link := backend.NewProxy(tb, hostOf(tb, url))
					return on(tb, link.URL(url)), func() { link.Cut(); link.Restore() }
				},
			})
		})
	}
	t.Run("DoTx", func(t *testing.T) {
		b := newBooks(t, url)
		b.db = libPQ(t, url)
		b.store = newOn(t, b.db, sqlstore.PostgreSQL, sqlstore.Config{Table: b.table, Prepared: true})
		b.atOnce()
	})
	t.Run("in a wrapper", func(t *testing.T) {
		_, _, table := fresh(t, url, sqlstore.Config{})
		link := backend.NewProxy(t, hostOf(t, url))
		db, err := sql.Open("wrapped", link.URL(url))
		require.NoError(t, err)
		t.Cleanup(func() { db.Close() })
		s := newOn(t, db, sqlstore.PostgreSQL, sqlstore.Config{Table: table})
		begin := func(key string) error {
			_, err := s.Acquire(t.Context(), key, claim(time.Hour))
			return err
		}
		require.NoError(t, begin("first"))
		link.CutAfter([]byte("7365636f6e64")) // the driver's word for "second"
		err = begin("second")
		require.ErrorContains(t, err, "may or may not have taken effect")
		require.NotContains(t, err.Error(), "argument")
	})
}

func init() { sql.Register("wrapped", struct{ driver.Driver }{&pq.Driver{}}) } // as tracers do

func TestPrepared(t *testing.T) {
	t.Parallel()
	url := engines[0].url(t)
	_, _, table := fresh(t, url, sqlstore.Config{})
	db := libPQ(t, url)
	db.SetMaxOpenConns(1)
	kept := func() (n int) {
		require.NoError(t, db.QueryRow("SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%"+table+"%'").Scan(&n))
		return n
	}
	for _, prepared := range []bool{false, true} {
		s := newOn(t, db, sqlstore.PostgreSQL, sqlstore.Config{Table: table, Prepared: prepared})
		require.Zero(t, kept())
		_, err := s.Acquire(t.Context(), "k", claim(time.Hour))
		require.NoError(t, err)
	}
	require.Equal(t, 1, kept())

	for u, want := range map[string]bool{url: true, with(url, "pooler=transaction"): false, with(url, "binary_parameters=on"): false} {
		assert.Equal(t, want, sqlstore.IsDirectPQ(db, u), u)
	}
	pgx, _ := open(t, url)
	assert.False(t, sqlstore.IsDirectPQ(pgx, url), "it prepares by itself")
}
