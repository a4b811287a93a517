package sqlstore_test

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// lossy is a driver whose next commits break the connection, before or after the database
// has carried them out. Everything else goes through to the real one.
type lossy struct {
	real   driver.Driver
	dsn    string
	before atomic.Int32 // how many commits are lost on the way there
	after  atomic.Int32 // how many on the way back

	// If gone is set, there are no new connections, and it is called at each attempt to make
	// one. If hold is set, it is called before each commit.
	gone atomic.Pointer[func()]
	hold func()
	// What a lost commit returns, errBroken if it is nil.
	err error
	// If step is set, it is called before each BEGIN and statement.
	step func(step string)
	// If rollback is set, it is called before each ROLLBACK.
	rollback func()
}

func (l *lossy) steps(step string) {
	if l.step != nil {
		l.step(step)
	}
}

var errBroken = errors.New("the connection broke")

// lossyDB opens a pool on the database of db, by way of a lossy driver.
func lossyDB(t *testing.T, db *sql.DB, url string) (*sql.DB, *lossy) {
	l := &lossy{real: db.Driver(), dsn: driverDSN(t, url)}
	pool := sql.OpenDB(l)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	return pool, l
}

func (l *lossy) Connect(ctx context.Context) (driver.Conn, error) {
	if called := l.gone.Load(); called != nil {
		(*called)()
		return nil, errBroken
	}
	c, err := l.real.Open(l.dsn)
	if err != nil {
		return nil, err
	}
	return &lossyConn{Conn: c, l: l}, nil
}

func (l *lossy) Driver() driver.Driver { return l.real }

type lossyConn struct {
	driver.Conn
	l *lossy
}

func (c *lossyConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	c.l.steps("statement")
	return c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
}

func (c *lossyConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.l.steps("statement")
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c *lossyConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.l.steps("statement")
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c *lossyConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.Conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

func (c *lossyConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	c.l.steps("begin")
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
	return &lossyTx{Tx: tx, c: c}, err
}

type lossyTx struct {
	driver.Tx
	c *lossyConn
}

func (tx *lossyTx) Rollback() error {
	if tx.c.l.rollback != nil {
		tx.c.l.rollback()
	}
	return tx.Tx.Rollback()
}

func (tx *lossyTx) Commit() error {
	if tx.c.l.hold != nil {
		tx.c.l.hold()
	}
	switch l := tx.c.l; {
	case l.before.Add(-1) >= 0:
		tx.Tx.Rollback() // what a server does when it finds the connection broken
	case l.after.Add(-1) >= 0:
		if err := tx.Tx.Commit(); err != nil {
			return err
		}
	default:
		return tx.Tx.Commit()
	}
	return cmp.Or(tx.c.l.err, errBroken)
}
