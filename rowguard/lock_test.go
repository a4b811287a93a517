package rowguard_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/rowguard"
)

func TestLock(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *bank) {
		ctx := t.Context()
		for _, wait := range []time.Duration{-1, 0, time.Second, math.MaxInt64} {
			require.NoError(t, b.inTx(func(tx *sql.Tx) error {
				var balance, version int
				assert.NoError(t, rowguard.Lock(ctx, tx, b.Table, 1, wait, nil))
				assert.NoError(t, rowguard.Lock(ctx, tx, b.Table, 1, wait, rowguard.Scan{"balance": &balance, "version": &version}))
				assert.Equal(t, []int{1000, 1}, []int{balance, version})
				assert.ErrorIs(t, rowguard.Lock(ctx, tx, b.Table, 3, wait, nil), rowguard.ErrNotFound)

				other, err := b.db.BeginTx(ctx, nil)
				require.NoError(t, err)
				defer other.Rollback()
				assert.ErrorIs(t, rowguard.Lock(ctx, other, b.Table, 1, min(wait, 0), nil), rowguard.ErrLocked)
				if b.Dialect == rowguard.SQLite {
					return nil
				}
				assert.NoError(t, rowguard.Lock(ctx, other, b.Table, 2, wait, rowguard.Scan{"balance": &balance}),
					"one row is locked, and the other transaction goes on")
				return nil
			}))
		}
	})
}

// TestLockLimit: waiting ends with the limit. MariaDB counts whole seconds.
func TestLockLimit(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *bank) {
		release := b.hold()
		defer release()
		if b.Dialect != rowguard.MySQL {
			assert.ErrorIs(t, rowguard.Lock(t.Context(), b.begin(), b.Table, 1, time.Nanosecond, nil), rowguard.ErrLocked)
		}
		tx := b.begin()
		begun := time.Now()
		err := rowguard.Lock(t.Context(), tx, b.Table, 1, 30*time.Millisecond, nil)
		assert.ErrorIs(t, err, rowguard.ErrLocked)
		assert.GreaterOrEqual(t, time.Since(begun), 30*time.Millisecond)
		if b.Dialect == rowguard.MySQL {
			assert.NoError(t, rowguard.Lock(t.Context(), tx, b.Table, 2, 0, nil), "the transaction goes on")
		}
	})
}

// TestLockWaits: who waits gets the row as its holder has left it.
func TestLockWaits(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *bank) {
		holder := b.begin()
		_, err := holder.Exec("UPDATE " + b.Name + " SET balance = 7 WHERE id = 1")
		require.NoError(t, err)
		got := make(chan error, 1)
		go func() {
			got <- b.inTx(func(tx *sql.Tx) error {
				// In MySQL the transaction's snapshot is taken here.
				if _, _, err := b.account(tx, 2); err != nil {
					return err
				}
				var balance int
				err := rowguard.Lock(t.Context(), tx, b.Table, 1, time.Minute, rowguard.Scan{"balance": &balance})
				if err == nil && balance != 7 {
					err = errors.New("it has read an older row")
				}
				return err
			})
		}()
		time.Sleep(20 * time.Millisecond)
		require.Empty(t, got)
		require.NoError(t, holder.Commit())
		require.NoError(t, <-got)
	})
}

// TestLockEndsWithItsContext: whatever the limit.
func TestLockEndsWithItsContext(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *bank) {
		release := b.hold()
		defer release()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		err := rowguard.InTx(ctx, b.db, b.options(), func(tx *sql.Tx) error {
			return rowguard.Lock(ctx, tx, b.Table, 1, time.Hour, nil)
		})
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.NotErrorIs(t, err, rowguard.ErrOutcomeUnknown)
		ctx, cancel = context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		tx, err := b.db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer tx.Rollback()
		err = rowguard.Lock(ctx, tx, b.Table, 1, time.Hour, nil)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.NotErrorIs(t, err, rowguard.ErrLocked)
	})
}

// TestLockPutsTheTimeoutBack: of PostgreSQL, for what follows in the transaction, and after it.
func TestLockPutsTheTimeoutBack(t *testing.T) {
	b := newBank(t, engines[0].dialect, engines[0].url(t))
	conn, err := b.db.Conn(t.Context())
	require.NoError(t, err)
	tx, err := conn.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.Exec("SET LOCAL lock_timeout = '77s'")
	require.NoError(t, err)
	ended, cancel := context.WithCancel(t.Context())
	defer cancel()
	statements := 0
	endsSoon := slow{tx, func() {
		if statements++; statements == 2 {
			cancel()
		}
	}}
	var limit string
	for want, call := range map[string]struct {
		ctx  context.Context
		c    rowguard.Conn[*sql.Row]
		id   int
		into rowguard.Scan
	}{
		"<nil>":            {t.Context(), tx, 1, nil},
		"no such row":      {t.Context(), tx, 3, nil},
		"converting NULL":  {t.Context(), tx, 1, rowguard.Scan{"code": new(int)}},
		"context canceled": {ended, endsSoon, 1, nil},
	} {
		err := rowguard.Lock(call.ctx, call.c, b.Table, call.id, 1500*time.Microsecond, call.into)
		assert.Contains(t, fmt.Sprint(err), want)
		require.NoError(t, tx.QueryRow("SHOW lock_timeout").Scan(&limit))
		assert.Equal(t, "77s", limit, want)
	}
	require.NoError(t, tx.Commit())
	require.NoError(t, conn.QueryRowContext(t.Context(), "SHOW lock_timeout").Scan(&limit))
	assert.Equal(t, "0", limit, "what is the transaction's ends with it")
	require.NoError(t, conn.Close())
}

func TestLockNext(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *bank) {
		ctx, first := t.Context(), b.begin()
		var id, balance int
		require.NoError(t, rowguard.LockNext(ctx, first, b.Table, "new", rowguard.Scan{"id": &id, "balance": &balance}))
		assert.Equal(t, []int{1, 1000}, []int{id, balance})
		assert.ErrorIs(t, rowguard.LockNext(ctx, first, b.Table, "paid", nil), rowguard.ErrNotFound)

		second, third := b.begin(), b.begin()
		if b.Dialect == rowguard.SQLite {
			assert.ErrorIs(t, rowguard.LockNext(ctx, second, b.Table, "new", nil), rowguard.ErrLocked)
			return
		}
		require.NoError(t, rowguard.LockNext(ctx, second, b.Table, "new", rowguard.Scan{"id": &id}))
		assert.Equal(t, 2, id, "it does not wait for the first")
		assert.ErrorIs(t, rowguard.LockNext(ctx, third, b.Table, "new", nil), rowguard.ErrNotFound)
	})
}
