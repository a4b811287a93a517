package sqlstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/core/store/sqlstore"
)

// TestSlotsAreShared: transactions of all stores on a pool count together, one that stops waiting gives
// its slot to the next, and one with a connection of its own does not wait.
func TestSlotsAreShared(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		b := newBooks(t, url)
		b.db.SetMaxOpenConns(2)
		dialect := dialectOf(url)
		other := newOn(t, b.db, dialect, sqlstore.Config{Table: b.table, Source: "other"})
		waiting := make(chan struct{})
		var wg sync.WaitGroup
		_, err := b.do("first", func(tx *sql.Tx) ([]byte, error) {
			gone, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
			defer cancel()
			_, err := other.DoTx(gone, b.db, "k", never)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.NotErrorIs(t, err, codes.StoreUnavailable)
			wg.Go(func() {
				close(waiting)
				_, err := other.DoTx(t.Context(), b.db, "next", b.enter("next"))
				assert.NoError(t, err)
			})
			<-waiting
			return b.enter("first")(tx)
		})
		require.NoError(t, err)
		wg.Wait()
		assert.Equal(t, 1, b.count("first"))
		assert.Equal(t, 1, b.count("next"))

		if dialect != sqlstore.SQLite { // a pool of its own is not what is short
			foreign, _ := open(t, url)
			_, err = b.do("here", func(*sql.Tx) ([]byte, error) {
				soon, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				_, err := b.store.DoTx(soon, foreign, "foreign", b.enter("foreign"))
				return nil, err
			})
			assert.NoError(t, err)
			assert.Equal(t, 1, b.count("foreign"))
		}

		b.db.SetMaxOpenConns(1)
		conn, err := b.db.Conn(t.Context())
		require.NoError(t, err)
		waits := b.db.Stats().WaitCount
		wg.Go(func() { // has the place, and waits for the connection
			_, err := b.do("pool", b.enter("pool"))
			assert.NoError(t, err)
		})
		require.Eventually(t, func() bool { return b.db.Stats().WaitCount > waits }, 10*time.Second, time.Millisecond)
		_, err = b.store.DoTx(t.Context(), conn, "connection", b.enter("connection"))
		assert.NoError(t, err)
		require.NoError(t, conn.Close())
		wg.Wait()
		assert.Equal(t, 1, b.count("pool"))
		assert.Equal(t, 1, b.count("connection"))
	})
}

// TestOneWriterInSQLite: transactions and the store's own statements wait for each other in the process, whatever their pool, and
// not for SQLite's lock. At most one of those that wait is a transaction, so that claims and renewals are not behind all of them.
func TestOneWriterInSQLite(t *testing.T) { synctest.Test(t, oneWriterInSQLite) }

func oneWriterInSQLite(t *testing.T) {
	url := engines[2].url(t)
	b := newBooks(t, url)
	foreign, _ := open(t, url)
	const pause = 20 * time.Millisecond
	var wg sync.WaitGroup
	acquire := func(key string) {
		wg.Go(func() {
			_, err := b.store.Acquire(t.Context(), key, claim(time.Hour))
			assert.NoError(t, err)
		})
	}
	_, err := b.store.DoTx(t.Context(), foreign, "foreign", func(tx *sql.Tx) ([]byte, error) {
		v, err := b.enter("foreign")(tx)
		acquire("k-1")
		time.Sleep(pause)
		assert.Zero(t, b.db.Stats().InUse, "it waits with a connection")
		return v, err
	})
	require.NoError(t, err)
	wg.Wait()

	_, err = b.do("first", func(tx *sql.Tx) ([]byte, error) {
		v, err := b.enter("first")(tx)
		for i := range 3 {
			wg.Go(func() {
				_, err := b.do(fmt.Sprint("next-", i), func(tx *sql.Tx) ([]byte, error) {
					var claims int
					count := "SELECT COUNT(*) FROM " + b.store.TableName() + " WHERE serial_number = ?"
					err := tx.QueryRow(count, sqlstore.StoredKey("k-2")).Scan(&claims)
					assert.Equal(t, 1, claims, "a transaction that came before the claim was let in before it")
					return nil, err
				})
				assert.NoError(t, err)
			})
		}
		time.Sleep(pause)
		acquire("k-2")
		time.Sleep(pause)
		return v, err
	})
	require.NoError(t, err)
	wg.Wait()
}
