package rowguard_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/rowguard"
)

func TestInsert(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *bank) {
		ctx := t.Context()
		require.NoError(t, rowguard.Insert(ctx, b.db, b.Table, rowguard.Set{"id": 3, "code": "gift", "balance": nil}))
		for name, set := range map[string]rowguard.Set{
			"primary key": {"id": 3},
			"unique":      {"id": 4, "code": "gift"},
			"both":        {"id": 3, "code": "gift"},
		} {
			err := rowguard.Insert(ctx, b.db, b.Table, set)
			assert.ErrorIs(t, err, rowguard.ErrDuplicate, name)
			assert.True(t, rowguard.IsDuplicate(err), name)
			assert.True(t, rowguard.IsDuplicate(fmt.Errorf("wrapped: %w", err)), name)
		}
		err := rowguard.Insert(ctx, b.db, b.Table, rowguard.Set{"id": 4, "version": nil})
		require.Error(t, err)
		assert.False(t, rowguard.IsDuplicate(err), "NOT NULL is another matter")

		// A value that is taken is a duplicate whoever writes it, and by whatever statement.
		assert.ErrorIs(t, rowguard.Update(ctx, b.db, b.Table, 1, 1, rowguard.Set{"code": "gift"}), rowguard.ErrDuplicate)
		assert.ErrorIs(t, rowguard.Move(ctx, b.db, b.Table, order, 1, "paid", rowguard.Set{"code": "gift"}), rowguard.ErrDuplicate)
		_, err = b.db.Exec("INSERT INTO " + b.Name + " (id) VALUES (3)")
		assert.True(t, rowguard.IsDuplicate(err), "%v", err)
		_, err = b.db.Exec("INSERT INTO " + b.Name + " (id, code) VALUES (4, 'gift')")
		assert.True(t, rowguard.IsDuplicate(err), "%v", err)
		assert.False(t, rowguard.IsDuplicate(errOther))
		assert.False(t, rowguard.IsDuplicate(nil))
	})
}

// TestInsertLeavesTheTransaction: what was done before a duplicate, and what is done after it, is committed.
func TestInsertLeavesTheTransaction(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *bank) {
		require.NoError(t, b.inTx(func(tx *sql.Tx) error {
			assert.NoError(t, rowguard.Insert(t.Context(), tx, b.Table, rowguard.Set{"id": 3}))
			assert.ErrorIs(t, rowguard.Insert(t.Context(), tx, b.Table, rowguard.Set{"id": 1}), rowguard.ErrDuplicate)
			return rowguard.Insert(t.Context(), tx, b.Table, rowguard.Set{"id": 4})
		}))
		var n int
		require.NoError(t, b.db.QueryRow("SELECT COUNT(*) FROM "+b.Name).Scan(&n))
		assert.Equal(t, 4, n)
	})
}

// TestInsertWaits: until it is known whether the other one is there.
func TestInsertWaits(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *bank) {
		for commit, want := range map[bool]error{false: nil, true: rowguard.ErrDuplicate} {
			code := fmt.Sprint("gift", commit)
			first := b.begin()
			require.NoError(t, rowguard.Insert(t.Context(), first, b.Table, rowguard.Set{"id": 3, "code": code}))
			second := make(chan error, 1)
			go func() {
				second <- b.inTx(func(tx *sql.Tx) error {
					return rowguard.Insert(t.Context(), tx, b.Table, rowguard.Set{"id": 4, "code": code})
				})
			}()
			time.Sleep(20 * time.Millisecond)
			require.Empty(t, second)
			if commit {
				require.NoError(t, first.Commit())
			} else {
				require.NoError(t, first.Rollback())
			}
			assert.ErrorIs(t, <-second, want)
			b.exec("DELETE FROM " + b.Name + " WHERE id > 2")
		}
	})
}

// TestDeferredConstraint: PostgreSQL checks it at the end. Insert can't serve it, and says so; a statement of one's own fails
// at the COMMIT, and nothing is unknown.
func TestDeferredConstraint(t *testing.T) {
	b := newBank(t, engines[0].dialect, engines[0].url(t))
	b.exec("UPDATE " + b.Name + " SET balance = id")
	b.exec("ALTER TABLE " + b.Name + " ADD UNIQUE (balance) DEFERRABLE INITIALLY DEFERRED")
	err := rowguard.Insert(t.Context(), b.db, b.Table, rowguard.Set{"id": 3, "balance": 3})
	assert.ErrorContains(t, err, "deferrable")
	assert.False(t, rowguard.IsDuplicate(err))
	runs := 0
	err = b.inTx(func(tx *sql.Tx) error {
		runs++
		_, err := tx.Exec("INSERT INTO " + b.Name + " (id, balance) VALUES (3, 1)")
		return err
	})
	assert.ErrorIs(t, err, rowguard.ErrDuplicate)
	assert.NotErrorIs(t, err, rowguard.ErrOutcomeUnknown)
	assert.Equal(t, 1, runs)
}
