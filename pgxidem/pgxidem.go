package pgxidem

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store/sqlstore"
)

// DoTx is [sqlstore.Store.DoTx] with a pgx.Tx on a connection of pool: fn runs once for key, and its changes are
// committed together with the operation's record, or not at all. The pool must lead to the database that has the
// store's table. It returns an error if pool or fn is nil.
//
// The rules of sqlstore for the function, the context, the options and the errors hold here. tx is the transaction that
// makes the record: its Commit and Rollback return an error, and its Begin makes a savepoint, as always in pgx.
// Before fn returns, it must close its rows and batches. It must not use tx afterwards.
func DoTx(ctx context.Context, store *sqlstore.Store, pool *pgxpool.Pool, key string, fn func(tx pgx.Tx) ([]byte, error),
	opts ...sqlstore.TxOption) (core.Result[[]byte], error) {
	c, err := newCall(pool, fn)
	if err != nil {
		return core.Result[[]byte]{}, err
	}
	defer c.db.Close()
	return store.DoTx(ctx, c, key, c.run, opts...)
}

// RunTx is [sqlstore.Store.RunTx] with a pgx.Tx on a connection of pool: in the handler of a guard, or in the function of
// a task, it also marks the run's record. The rules of [DoTx] for pool and fn hold here, too.
func RunTx(ctx context.Context, store *sqlstore.Store, pool *pgxpool.Pool, fn func(tx pgx.Tx) ([]byte, error),
	opts ...sqlstore.TxOption) (core.Result[[]byte], error) {
	c, err := newCall(pool, fn)
	if err != nil {
		return core.Result[[]byte]{}, err
	}
	defer c.db.Close()
	return store.RunTx(ctx, c, c.run, opts...)
}

// errNotYours is returned by Commit and Rollback of the transaction that [DoTx] and [RunTx] pass to their functions.
var errNotYours = errors.New("pgxidem: the function must not end the transaction: if it returns nil, it is committed, else rolled back")

// call is one call of DoTx or RunTx. It is a sqlstore.TxBeginner and a sqlstore.Resetter. It has a *sql.DB of its own,
// which costs no connection, so that tx is always the transaction that this call began last.
type call struct {
	driver.Connector // takes its connections from the pool
	pool             *pgxpool.Pool
	db               *sql.DB
	fn               func(tx pgx.Tx) ([]byte, error)

	ctx context.Context // of the transaction that is being begun
	tx  pgx.Tx          // the one that was begun last
}

var _ sqlstore.Resetter = (*call)(nil)

func newCall(pool *pgxpool.Pool, fn func(tx pgx.Tx) ([]byte, error)) (*call, error) {
	if pool == nil || fn == nil {
		return nil, errors.New("pgxidem: the pool or the function is nil")
	}
	c := &call{Connector: stdlib.GetPoolConnector(pool), pool: pool, fn: fn}
	c.db = sql.OpenDB(c)
	c.db.SetMaxIdleConns(-1) // a connection goes back to the pool at once
	return c, nil
}

// BeginTx implements sqlstore.TxBeginner. When ctx ends, database/sql would roll back in a goroutine of its own, while fn
// may be using the connection: so it does not get ctx. pgx does.
func (c *call) BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error) {
	c.ctx = ctx
	return c.db.BeginTx(context.WithoutCancel(ctx), opts)
}

// Reset implements sqlstore.Resetter.
func (c *call) Reset() { c.pool.Reset() }

func (c *call) Connect(context.Context) (driver.Conn, error) {
	raw, err := c.Connector.Connect(c.ctx)
	if err != nil {
		return nil, err
	}
	return &conn{raw.(*stdlib.Conn), c}, nil
}

// run is the function that sqlstore calls. The *sql.Tx and c.tx are on one connection.
func (c *call) run(*sql.Tx) ([]byte, error) {
	value, err := c.fn(borrowed{c.tx})
	// A context that ends closes the connection, too. If it ends while pgx is writing, the error is that of the write's deadline.
	if err != nil && c.tx.Conn().IsClosed() && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) &&
		!errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("%w: %w", driver.ErrBadConn, err) // which tells sqlstore that it was the database
	}
	return value, err
}

// conn is a connection that keeps its transaction as a pgx.Tx.
type conn struct {
	*stdlib.Conn
	call *call
}

var levels = map[sql.IsolationLevel]pgx.TxIsoLevel{
	sql.LevelDefault:         "",
	sql.LevelReadUncommitted: pgx.ReadUncommitted,
	sql.LevelReadCommitted:   pgx.ReadCommitted,
	sql.LevelRepeatableRead:  pgx.RepeatableRead,
	sql.LevelSnapshot:        pgx.RepeatableRead,
	sql.LevelSerializable:    pgx.Serializable,
}

func (c *conn) BeginTx(_ context.Context, opts driver.TxOptions) (driver.Tx, error) {
	level, known := levels[sql.IsolationLevel(opts.Isolation)]
	if !known {
		return nil, fmt.Errorf("pgxidem: PostgreSQL has no isolation level %v", sql.IsolationLevel(opts.Isolation))
	}
	tx, err := c.Conn.Conn().BeginTx(c.call.ctx, pgx.TxOptions{IsoLevel: level})
	if err != nil && c.Conn.Conn().IsClosed() {
		return nil, driver.ErrBadConn // it broke while it was idle, say: database/sql takes another one
	}
	if err != nil {
		return nil, err
	}
	c.call.tx = tx
	return owned{tx, c.call.ctx}, nil
}

// owned is a transaction for database/sql, which commits it or rolls it back.
type owned struct {
	tx  pgx.Tx
	ctx context.Context
}

func (o owned) Commit() error   { return o.tx.Commit(o.ctx) }
func (o owned) Rollback() error { return o.tx.Rollback(o.ctx) }

// borrowed is the same transaction for the caller's function, which may do neither.
type borrowed struct{ pgx.Tx }

func (borrowed) Commit(context.Context) error   { return errNotYours }
func (borrowed) Rollback(context.Context) error { return errNotYours }

// Tx is a pgx.Tx with the methods of database/sql that rowguard and outbox call: it is a rowguard.Conn and an outbox.Tx.
type Tx struct{ pgx.Tx }

// Adapt returns any pgx.Tx as a [Tx]: that of [DoTx] or [RunTx], or one of pool.Begin.
func Adapt(tx pgx.Tx) Tx { return Tx{tx} }

// ExecContext calls Exec.
func (tx Tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tag, err := tx.Exec(ctx, query, args...)
	return driver.RowsAffected(tag.RowsAffected()), err
}

// QueryRowContext calls QueryRow.
func (tx Tx) QueryRowContext(ctx context.Context, query string, args ...any) pgx.Row {
	return tx.QueryRow(ctx, query, args...)
}
