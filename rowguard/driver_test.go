package rowguard_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/rowguard"
)

// fakeConn is a Conn and its own result and row. It answers every statement alike, and keeps the last one.
type fakeConn struct {
	statement string
	args      []any
	err       error // of a statement
	rowsErr   error // of counting the rows
}

func (c *fakeConn) ExecContext(_ context.Context, statement string, args ...any) (sql.Result, error) {
	c.statement, c.args = statement, args
	return c, c.err
}

func (c *fakeConn) QueryRowContext(_ context.Context, statement string, args ...any) *fakeConn {
	c.statement, c.args = statement, args
	return c
}

func (c *fakeConn) LastInsertId() (int64, error) { return 0, nil }
func (c *fakeConn) RowsAffected() (int64, error) { return 1, c.rowsErr }
func (c *fakeConn) Scan(...any) error            { return c.err }

// TestStatements: the same call makes the same text, with the columns in their order, so that drivers prepare few statements. (The
// other tests show, on each database, that the statements do what they should.)
func TestStatements(t *testing.T) {
	table := rowguard.Table{Dialect: rowguard.PostgreSQL, Name: `shop.o"r`, Version: "v"}
	ctx, c := t.Context(), &fakeConn{}
	for range 10 {
		for _, tc := range []struct {
			want string
			args []any
			err  func() error
		}{
			{`INSERT INTO "shop"."o""r" ("a", "b") VALUES ($1, $2) ON CONFLICT DO NOTHING`, []any{1, 2},
				func() error { return rowguard.Insert(ctx, c, table, rowguard.Set{"b": 2, "a": 1}) }},
			{`UPDATE "shop"."o""r" SET "v" = "v" + 1, "a" = $1, "b" = $2 WHERE "id" = $3 AND "v" IN ($4)`, []any{1, 2, 7, int64(3)},
				func() error { return rowguard.Update(ctx, c, table, 7, 3, rowguard.Set{"b": 2, "a": 1}) }},
			{`UPDATE "shop"."o""r" SET "v" = "v" + 1, "state" = $1 WHERE "id" = $2 AND "state" IN ($3, $4)`,
				[]any{"refunded", 7, "paid", "returned"},
				func() error { return rowguard.Move(ctx, c, table, order, 7, "refunded", nil) }},
			{`SELECT "a", "b" FROM "shop"."o""r" WHERE "id" = $1 FOR UPDATE SKIP LOCKED`, []any{7},
				func() error { return rowguard.Lock(ctx, c, table, 7, 0, rowguard.Scan{"b": new(int), "a": new(int)}) }},
		} {
			require.NoError(t, tc.err(), tc.want)
			require.Equal(t, tc.want, c.statement)
			require.Equal(t, tc.args, c.args)
		}
	}
}

// TestDriverErrors: what calls make of each class of errors (see TestFaults), which they wrap.
func TestDriverErrors(t *testing.T) {
	pg := func(state string) error { return &pgconn.PgError{Code: state} }
	my := func(number uint16) error { return &mysql.MySQLError{Number: number} }
	lite := func(code int) error { return coded{code, fmt.Sprintf("constraint failed (%d)", code)} }
	sentinels := []error{rowguard.ErrDuplicate, rowguard.ErrLocked, rowguard.ErrNotFound, rowguard.ErrStale, rowguard.ErrOutcomeUnknown}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tc := range []struct {
		dialect     rowguard.Dialect
		err         error
		write, lock error // nil: none of the sentinels
	}{
		{rowguard.PostgreSQL, pg("23505"), rowguard.ErrDuplicate, rowguard.ErrDuplicate},
		{rowguard.PostgreSQL, pg("40P01"), nil, nil},
		{rowguard.MySQL, my(3572), nil, rowguard.ErrLocked},
		{rowguard.MySQL, my(1205), nil, rowguard.ErrLocked},
		{rowguard.SQLite, lite(5), nil, rowguard.ErrLocked},
		{rowguard.SQLite, lite(787), nil, nil},
		{rowguard.SQLite, driver.ErrBadConn, nil, nil},
	} {
		c, table := &fakeConn{err: tc.err}, rowguard.Table{Dialect: tc.dialect, Name: "t", Version: "v"}
		for _, ctx := range []context.Context{t.Context(), ended} {
			for call, got := range map[string][2]error{ // the error, and the sentinel
				"Insert": {rowguard.Insert(ctx, c, table, rowguard.Set{"a": 1}), tc.write},
				"Update": {rowguard.Update(ctx, c, table, 1, 1, nil), tc.write},
				"Move":   {rowguard.Move(ctx, c, table, order, 1, "paid", nil), tc.write},
				"Lock":   {rowguard.Lock(ctx, c, table, 1, 0, nil), tc.lock},
			} {
				assert.ErrorIs(t, got[0], tc.err, call)
				assert.Equal(t, ctx == ended, errors.Is(got[0], context.Canceled), "%s: %v", call, got[0])
				for _, s := range sentinels {
					assert.Equal(t, s == got[1], errors.Is(got[0], s), "%s: %v", call, got[0])
				}
			}
		}
	}

	// A driver that does not know how many rows it has changed.
	c, table := &fakeConn{rowsErr: errOther}, rowguard.Table{Dialect: rowguard.SQLite, Name: "t", Version: "v"}
	assert.Equal(t, errOther, rowguard.Insert(t.Context(), c, table, rowguard.Set{"a": 1}))
	assert.Equal(t, errOther, rowguard.Update(t.Context(), c, table, 1, 1, nil))
}

// fakeDB is a database that has transactions and nothing else. Their ends take a while.
type fakeDB struct {
	commits, rollbacks time.Duration
	err                error
}

func (d fakeDB) Connect(context.Context) (driver.Conn, error) { return d, nil }
func (d fakeDB) Driver() driver.Driver                        { return nil }
func (d fakeDB) Prepare(string) (driver.Stmt, error)          { return nil, errOther }
func (d fakeDB) Close() error                                 { return nil }
func (d fakeDB) Begin() (driver.Tx, error)                    { return d, nil }
func (d fakeDB) Commit() error                                { time.Sleep(d.commits); return d.err }
func (d fakeDB) Rollback() error                              { time.Sleep(d.rollbacks); return d.err }

// TestSilentServer: InTx does not wait for the end of a transaction for longer than its context.
func TestSilentServer(t *testing.T) {
	for name, tc := range map[string]struct {
		db    fakeDB
		limit time.Duration // 0: none
		fn    error
		want  []error
		takes time.Duration
	}{
		"a commit":           {fakeDB{commits: time.Second}, time.Minute, nil, nil, time.Second},
		"a commit, no limit": {fakeDB{commits: time.Hour}, 0, nil, nil, time.Hour},
		"a silent commit": {fakeDB{commits: time.Hour}, time.Minute, nil,
			[]error{rowguard.ErrOutcomeUnknown, context.DeadlineExceeded}, time.Minute},
		"a commit that fails": {fakeDB{time.Second, 0, errOther}, time.Minute, nil,
			[]error{rowguard.ErrOutcomeUnknown, errOther}, time.Second},
		"it fails, no limit":    {fakeDB{time.Second, 0, errOther}, 0, nil, []error{rowguard.ErrOutcomeUnknown, errOther}, time.Second},
		"a rollback":            {fakeDB{rollbacks: time.Second}, time.Minute, errOther, []error{errOther}, time.Second},
		"a rollback, no limit":  {fakeDB{rollbacks: time.Hour}, 0, errOther, []error{errOther}, time.Hour},
		"a silent rollback":     {fakeDB{rollbacks: time.Hour}, time.Minute, errOther, []error{errOther}, time.Minute},
		"a rollback that fails": {fakeDB{0, time.Second, errDeadlock}, time.Minute, errOther, []error{errOther}, time.Second},
		"a commit of a constraint": {fakeDB{time.Second, 0, stated("23505")}, time.Minute, nil,
			[]error{rowguard.ErrDuplicate}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := sql.OpenDB(tc.db)
				ctx, begun := context.Background(), time.Now()
				if tc.limit > 0 {
					limited, cancel := context.WithTimeout(ctx, tc.limit)
					defer cancel()
					ctx = limited
				}
				err := rowguard.InTx(ctx, db, rowguard.TxOptions{Dialect: rowguard.PostgreSQL, Tries: 1},
					func(*sql.Tx) error { return tc.fn })
				assert.Equal(t, tc.takes, time.Since(begun))
				assert.Equal(t, tc.want == nil, err == nil, "%v", err)
				for _, want := range tc.want {
					assert.ErrorIs(t, err, want)
				}
				time.Sleep(time.Hour) // what was not waited for ends, too
				assert.NoError(t, db.Close())
			})
		})
	}
}
