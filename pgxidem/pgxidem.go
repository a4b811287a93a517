package pgxidem

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store/sqlstore"
)

// DoTx is [sqlstore.Store.DoTx] with a transaction of pgx's, on a connection of pool: fn runs once for key, and its
// changes are committed together with the record of them, or not at all. The pool must lead to the database in which the
// store's table is.
//
// All that sqlstore says of its function, its context, its options and its errors holds here. The tx that fn gets is
// the very transaction that makes the record: Commit and Rollback are refused with [ErrNotYours], and Begin makes a savepoint, as
// always in pgx. When fn returns, its rows and batches must be closed. tx is not used after that.
func DoTx(ctx context.Context, store *sqlstore.Store, pool *pgxpool.Pool, key string, fn func(tx pgx.Tx) ([]byte, error), opts ...sqlstore.TxOption) (core.Result[[]byte], error) {
	c, err := newCall(pool, fn)
	if err != nil {
		return core.Result[[]byte]{}, err
	}
	defer c.db.Close()
	return store.DoTx(ctx, c, key, c.run, opts...)
}

// RunTx is [sqlstore.Store.RunTx] with a transaction of pgx's, on a connection of pool: in the handler of a guard, or in
// the function of a task, it marks the run's own record. What DoTx says of fn holds here, too.
func RunTx(ctx context.Context, store *sqlstore.Store, pool *pgxpool.Pool, fn func(tx pgx.Tx) ([]byte, error), opts ...sqlstore.TxOption) (core.Result[[]byte], error) {
	c, err := newCall(pool, fn)
	if err != nil {
		return core.Result[[]byte]{}, err
	}
	defer c.db.Close()
	return store.RunTx(ctx, c, c.run, opts...)
}

// ErrNotYours is returned by Commit and Rollback of the transaction that a function of [DoTx] or [RunTx] gets.
var ErrNotYours = errors.New("pgxidem: the transaction ends when the function returns: nil commits it, an error rolls it back")

// call is one call of DoTx or RunTx. It has a *sql.DB of its own, which costs no connection, so that the connection which is
// taken from the pool last is the one of the transaction that was begun last.
type call struct {
	driver.Connector // whose connections are the pool's
	pool             *pgxpool.Pool
	db               *sql.DB
	fn               func(tx pgx.Tx) ([]byte, error)

	ctx context.Context // of the transaction that is being begun
	tx  pgx.Tx          // the one that was begun last
}

func newCall(pool *pgxpool.Pool, fn func(tx pgx.Tx) ([]byte, error)) (*call, error) {
	if pool == nil || fn == nil {
		return nil, errors.New("pgxidem: the pool or the function is nil")
	}
	c := &call{Connector: stdlib.GetPoolConnector(pool), pool: pool, fn: fn}
	c.db = sql.OpenDB(c)
	c.db.SetMaxIdleConns(-1) // a connection goes back to the pool at once
	return c, nil
}

// BeginTx makes call a sqlstore.TxBeginner. When ctx ends, database/sql would roll back from a goroutine of its own,
// while fn may be using the connection: so it is not told of ctx, which pgx heeds by itself.
func (c *call) BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error) {
	c.ctx = ctx
	return c.db.BeginTx(context.WithoutCancel(ctx), opts)
}

// Reset is called by sqlstore when the server only reads. New connections may lead to another one.
func (c *call) Reset() { c.pool.Reset() }

func (c *call) Connect(context.Context) (driver.Conn, error) {
	raw, err := c.Connector.Connect(c.ctx)
	if err != nil {
		return nil, err
	}
	return &conn{raw.(*stdlib.Conn), c}, nil
}

// run is the function that sqlstore calls. Its *sql.Tx is on the connection of c.tx.
func (c *call) run(*sql.Tx) ([]byte, error) {
	value, err := c.fn(borrowed{c.tx})
	if err != nil && c.tx.Conn().IsClosed() && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", driver.ErrBadConn, err) // which tells sqlstore that it was the database
	}
	return value, err
}

// conn is a connection that remembers its transaction as pgx has it.
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

// owned is a transaction for database/sql, which ends it.
type owned struct {
	tx  pgx.Tx
	ctx context.Context
}

func (o owned) Commit() error   { return o.tx.Commit(o.ctx) }
func (o owned) Rollback() error { return o.tx.Rollback(o.ctx) }

// borrowed is the same transaction for a function, which does not.
type borrowed struct{ pgx.Tx }

func (borrowed) Commit(context.Context) error   { return ErrNotYours }
func (borrowed) Rollback(context.Context) error { return ErrNotYours }

// Tx is a pgx.Tx with the methods of database/sql that rowguard and outbox call: a rowguard.Conn, and an outbox.Tx.
type Tx struct{ pgx.Tx }

// Adapt makes a [Tx] of tx, also of one that pool.Begin has made.
func Adapt(tx pgx.Tx) Tx { return Tx{tx} }

// ExecContext is Exec.
func (tx Tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tag, err := tx.Exec(ctx, query, args...)
	return driver.RowsAffected(tag.RowsAffected()), err
}

// QueryRowContext is QueryRow.
func (tx Tx) QueryRowContext(ctx context.Context, query string, args ...any) pgx.Row {
	return tx.QueryRow(ctx, query, args...)
}
