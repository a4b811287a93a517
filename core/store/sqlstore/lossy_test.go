package sqlstore_test

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
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
	// What a lost commit returns, and a ROLLBACK after it. If it is nil, errBroken, and what the database says.
	err error
	// If open is set, a commit that fails leaves the transaction open, as with some drivers of SQLite.
	open bool
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
	l         *lossy
	committed bool // by a statement: in SQLite
}

func (c *lossyConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	c.l.steps("statement")
	return c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
}

func (c *lossyConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (result driver.Result, err error) {
	c.l.steps("statement")
	exec := func(query string) (err error) {
		result, err = c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
		return err
	}
	var rest string
	if rest, c.committed = strings.CutPrefix(query, "COMMIT"); c.committed {
		err = c.l.commit(func() error { return exec(query) }, func() error { return exec("ROLLBACK" + rest) })
	} else {
		err = exec(query)
	}
	return result, err
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
	return cmp.Or(tx.c.l.err, tx.Tx.Rollback())
}

func (tx *lossyTx) Commit() error {
	switch {
	case tx.c.committed:
		return tx.Tx.Commit()
	case tx.c.l.open:
		_, err := tx.c.ExecContext(context.Background(), "COMMIT", nil)
		return err
	}
	return tx.c.l.commit(tx.Tx.Commit, tx.Tx.Rollback)
}

func (l *lossy) commit(commit, rollback func() error) error {
	if l.hold != nil {
		l.hold()
	}
	switch {
	case l.before.Add(-1) >= 0:
		_ = rollback() // what a server does when it finds the connection broken
	case l.after.Add(-1) >= 0:
		if err := commit(); err != nil {
			return err
		}
	default:
		return commit()
	}
	return cmp.Or(l.err, errBroken)
}
