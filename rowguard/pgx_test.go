package rowguard_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/rowguard"
)

// pgxConn makes a Conn of a pgx.Tx, as the package comment has it.
type pgxConn struct{ pgx.Tx }

func (c pgxConn) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tag, err := c.Exec(ctx, query, args...)
	return driver.RowsAffected(tag.RowsAffected()), err
}

func (c pgxConn) QueryRowContext(ctx context.Context, query string, args ...any) pgx.Row {
	return c.QueryRow(ctx, query, args...)
}

// TestPgx: the guards on pgx's own transactions.
func TestPgx(t *testing.T) {
	b := newBank(t, engines[0].dialect, engines[0].url(t))
	pool, err := pgxpool.New(t.Context(), b.url)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	ctx := t.Context()
	inTx := func(fn func(tx pgxConn) error) error {
		return rowguard.Transact(ctx, 0, pool.Begin, func(tx pgx.Tx) error { return fn(pgxConn{tx}) })
	}
	require.NoError(t, inTx(func(tx pgxConn) error {
		assert.NoError(t, rowguard.Update(ctx, tx, b.Table, 1, 1, rowguard.Set{"balance": 1}))
		assert.ErrorIs(t, rowguard.Update(ctx, tx, b.Table, 1, 1, nil), rowguard.ErrStale)
		assert.ErrorIs(t, rowguard.Update(ctx, tx, b.Table, 3, 1, nil), rowguard.ErrNotFound)
		assert.ErrorIs(t, rowguard.Insert(ctx, tx, b.Table, rowguard.Set{"id": 1}), rowguard.ErrDuplicate)
		assert.NoError(t, rowguard.Insert(ctx, tx, b.Table, rowguard.Set{"id": 3}))
		assert.NoError(t, rowguard.Move(ctx, tx, b.Table, order, 3, "paid", nil))
		assert.ErrorIs(t, rowguard.Move(ctx, tx, b.Table, order, 3, "paid", nil), rowguard.ErrAlready)
		assert.Equal(t, &rowguard.TransitionError{From: "paid", To: "cancelled"}, rowguard.Move(ctx, tx, b.Table, order, 3, "cancelled", nil))
		var id int
		assert.NoError(t, rowguard.LockNext(ctx, tx, b.Table, "paid", rowguard.Scan{"id": &id}))
		assert.Equal(t, 3, id)
		return nil
	}))
	require.Equal(t, 1, b.balance(1))

	release := b.hold()
	assert.ErrorIs(t, inTx(func(tx pgxConn) error { return rowguard.Lock(ctx, tx, b.Table, 1, 0, nil) }), rowguard.ErrLocked)
	assert.ErrorIs(t, inTx(func(tx pgxConn) error { return rowguard.Lock(ctx, tx, b.Table, 1, time.Millisecond, nil) }), rowguard.ErrLocked)
	release()
}
