package rowguard_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/idem-go/idem/internal/backend"
	"github.com/idem-go/idem/internal/leak"
	"github.com/idem-go/idem/rowguard"
)

func TestMain(m *testing.M) {
	_ = mysql.SetLogger(&mysql.NopLogger{}) // it would report each connection that the tests cut
	leak.VerifyTestMain(m)
}

// engines are the databases that the suite runs on. SQLite's driver is as it comes: transactions begin without a
// lock, and no lock is waited for.
var engines = []struct {
	name    string
	dialect rowguard.Dialect
	url     func(tb testing.TB) string
}{
	{"PostgreSQL", rowguard.PostgreSQL, backend.Postgres},
	{"MySQL", rowguard.MySQL, backend.MySQL},
	{"SQLite", rowguard.SQLite, func(tb testing.TB) string {
		return "file:" + filepath.Join(tb.TempDir(), "db") + "?_pragma=synchronous(0)"
	}},
}

// bank is a table of a test's own, dropped with the test: accounts 1 and 2, with 1000 each.
type bank struct {
	t   *testing.T
	url string
	db  *sql.DB
	rowguard.Table
}

// each runs test on every engine, at once: most of the time they wait.
func each(t *testing.T, test func(t *testing.T, b *bank)) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			test(t, newBank(t, e.dialect, e.url(t)))
		})
	}
}

func newBank(t *testing.T, dialect rowguard.Dialect, url string) *bank {
	name := "rowguard_" + strings.ToLower(rand.Text()[:12])
	b := &bank{t: t, url: url, db: open(t, dialect, url), Table: rowguard.Table{Dialect: dialect, Name: name, Version: "version"}}
	if dialect == rowguard.SQLite {
		b.exec("PRAGMA journal_mode = WAL")
	}
	b.exec("CREATE TABLE " + name + " (id INT PRIMARY KEY, version INT NOT NULL DEFAULT 1, state VARCHAR(20) DEFAULT 'new', padded " +
		"CHAR(20) DEFAULT 'new', balance INT, code VARCHAR(20) UNIQUE)")
	t.Cleanup(func() {
		assert.Eventually(t, func() bool { return b.db.Stats().InUse == 0 }, 10*time.Second, time.Millisecond, "no connection is held")
		_, err := b.db.Exec("DROP TABLE " + name)
		assert.NoError(t, err)
	})
	b.exec("CREATE INDEX " + name + "_state ON " + name + " (state, id)")
	b.exec("INSERT INTO " + name + " (id, balance) VALUES (1, 1000), (2, 1000)")
	return b
}

func open(t *testing.T, dialect rowguard.Dialect, rawURL string) *sql.DB {
	name, dsn := "sqlite", rawURL
	switch dialect {
	case rowguard.PostgreSQL:
		name = "pgx"
	case rowguard.MySQL:
		u, err := url.Parse(rawURL)
		require.NoError(t, err)
		c := mysql.NewConfig()
		c.Net, c.Addr, c.User, c.DBName = "tcp", u.Host, u.User.Username(), strings.TrimPrefix(u.Path, "/")
		c.Passwd, _ = u.User.Password()
		c.Params = map[string]string{"sql_mode": "'STRICT_ALL_TABLES,PAD_CHAR_TO_FULL_LENGTH'"} // a CHAR is read with its padding
		name, dsn = "mysql", c.FormatDSN()
	}
	db, err := sql.Open(name, dsn)
	require.NoError(t, err)
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	return db
}

func (b *bank) exec(query string) {
	b.t.Helper()
	_, err := b.db.Exec(query)
	require.NoError(b.t, err)
}

// options are those of a transaction that is tried for as long as it takes.
func (b *bank) options() rowguard.TxOptions {
	return rowguard.TxOptions{Dialect: b.Dialect, Tries: 10_000, Wait: time.Minute}
}

func (b *bank) inTx(fn func(tx *sql.Tx) error) error {
	return rowguard.InTx(b.t.Context(), b.db, b.options(), fn)
}

// begin begins a transaction as database/sql does it.
func (b *bank) begin() *sql.Tx {
	b.t.Helper()
	tx, err := b.db.Begin()
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// hold locks the account 1 until the returned function is called.
func (b *bank) hold() (release func()) {
	b.t.Helper()
	tx := b.begin()
	_, err := tx.Exec("UPDATE " + b.Name + " SET balance = balance WHERE id = 1")
	require.NoError(b.t, err)
	return func() { _ = tx.Rollback() }
}

// queryer is what reads: a pool, a connection or a transaction.
type queryer interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// account reads without any lock.
func (b *bank) account(q queryer, id int) (balance int, version int64, err error) {
	err = q.QueryRowContext(b.t.Context(), "SELECT balance, version FROM "+b.Name+" WHERE id = "+strconv.Itoa(id)).Scan(&balance, &version)
	return balance, version, err
}

func (b *bank) balance(id int) int {
	b.t.Helper()
	balance, _, err := b.account(b.db, id)
	require.NoError(b.t, err)
	return balance
}

func (b *bank) state() (state string) {
	b.t.Helper()
	require.NoError(b.t, b.db.QueryRow("SELECT state FROM "+b.Name+" WHERE id = 1").Scan(&state))
	return state
}

// together calls fn from 100 goroutines at once, and returns what they got.
func together(fn func(i int) error) []error {
	errs := make([]error, 100)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			<-start
			errs[i] = fn(i)
		})
	}
	close(start)
	wg.Wait()
	return errs
}

// TestNames: whatever tables and columns are called, they are names.
func TestNames(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *bank) {
		schema := map[rowguard.Dialect]string{rowguard.PostgreSQL: "public", rowguard.SQLite: "main"}[b.Dialect]
		quote := func(s string) string { return "`" + strings.ReplaceAll(s, "`", "``") + "`" }
		if b.Dialect == rowguard.MySQL {
			require.NoError(t, b.db.QueryRow("SELECT DATABASE()").Scan(&schema))
		}
		if b.Dialect == rowguard.PostgreSQL {
			quote = func(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
		}
		table := rowguard.Table{
			Dialect: b.Dialect, Name: schema + "." + b.Name + `; DROP TABLE "x"`, ID: "select ?", Version: "n`\"o", State: "Zustand $1",
		}
		b.exec("CREATE TABLE " + quote(b.Name+`; DROP TABLE "x"`) + " (" + quote(table.ID) + " INT PRIMARY KEY, " +
			quote(table.Version) + " INT NOT NULL, " + quote(table.State) + " VARCHAR(10), " + quote("where'") + " INT)")
		t.Cleanup(func() { b.exec("DROP TABLE " + quote(b.Name+`; DROP TABLE "x"`)) })

		ctx := t.Context()
		require.NoError(t, rowguard.Insert(ctx, b.db, table, rowguard.Set{table.ID: 1, table.Version: 1, table.State: "new", "where'": 1}))
		require.NoError(t, rowguard.Update(ctx, b.db, table, 1, 1, rowguard.Set{"where'": 2}))
		require.NoError(t, rowguard.Move(ctx, b.db, table, order, 1, "paid", rowguard.Set{"where'": 3}))
		var where, version int
		require.NoError(t, b.inTx(func(tx *sql.Tx) error {
			return rowguard.Lock(ctx, tx, table, 1, 0, rowguard.Scan{"where'": &where, table.Version: &version})
		}))
		assert.Equal(t, []int{3, 3}, []int{where, version})
		require.NoError(t, b.inTx(func(tx *sql.Tx) error { return rowguard.LockNext(ctx, tx, table, "paid", nil) }))

		// A column that is not there is an error, never a text that is equal to nothing.
		table.ID = "nothing"
		err := rowguard.Update(ctx, b.db, table, 1, 3, nil)
		require.Error(t, err)
		require.NotErrorIs(t, err, rowguard.ErrStale)
		require.NotErrorIs(t, err, rowguard.ErrNotFound)
	})
}

// TestFaultsOfATable are reported by each function, and before anything is sent.
func TestFaultsOfATable(t *testing.T) {
	ctx, c := t.Context(), &fakeConn{}
	for table, fault := range map[rowguard.Table]string{
		{Name: "t", Version: "version"}:                                  "dialect is unknown",
		{Dialect: rowguard.SQLite + 1, Name: "t", Version: "version"}:    "dialect is unknown",
		{Dialect: rowguard.SQLite, Version: "version"}:                   `"" is not a valid name`,
		{Dialect: rowguard.SQLite, Name: "a\x00b", Version: "version"}:   `"a\x00b" is not a valid name`,
		{Dialect: rowguard.PostgreSQL, Name: "a..b", Version: "version"}: `"" is not a valid name`,
	} {
		for name, err := range map[string]error{
			"Update":   rowguard.Update(ctx, c, table, 1, 1, nil),
			"Insert":   rowguard.Insert(ctx, c, table, rowguard.Set{"id": 1}),
			"Move":     rowguard.Move(ctx, c, table, order, 1, "paid", nil),
			"Lock":     rowguard.Lock(ctx, c, table, 1, 0, nil),
			"LockNext": rowguard.LockNext(ctx, c, table, "new", nil),
		} {
			assert.ErrorContains(t, err, fault, name)
		}
	}
	table := rowguard.Table{Dialect: rowguard.SQLite, Name: "t", Version: "version"}
	for fault, err := range map[string]error{
		"has no Version":                     rowguard.Update(ctx, c, rowguard.Table{Dialect: rowguard.SQLite, Name: "t"}, 1, 1, nil),
		`itself writes the column "version"`: rowguard.Update(ctx, c, table, 1, 1, rowguard.Set{"version": 9}),
		`itself writes the column "state"`:   rowguard.Move(ctx, c, table, order, 1, "paid", rowguard.Set{"state": "shipped"}),
		`"" is not a valid name`:             rowguard.Update(ctx, c, table, 1, 1, rowguard.Set{"": 9}),
		`itself writes the column "VERSION"`: rowguard.Move(ctx, c, table, order, 1, "paid", rowguard.Set{"VERSION": 9}),
		`itself writes the column "Version"`: rowguard.Update(ctx, c, table, 1, 1, rowguard.Set{"Version": 9}),
		"nothing to insert":                  rowguard.Insert(ctx, c, table, nil),
		`no state "piad"`:                    rowguard.Move(ctx, c, table, order, 1, "piad", nil),
		"needs a transaction":                rowguard.Lock(ctx, new(sql.DB), table, 1, 0, nil),
		"a lock needs":                       rowguard.LockNext(ctx, new(sql.DB), table, "new", nil),
		"dialect is unknown":                 rowguard.InTx(ctx, nil, rowguard.TxOptions{}, nil),
		"the dialect is":                     rowguard.InTx(ctx, nil, rowguard.TxOptions{Dialect: rowguard.SQLite + 1}, nil),
	} {
		assert.ErrorContains(t, err, fault)
	}
	assert.Empty(t, c.statement)
}

// counted counts the statements that go through it.
type counted struct {
	*sql.Tx
	n int
}

func (c *counted) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	c.n++
	return c.Tx.ExecContext(ctx, query, args...)
}

func (c *counted) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	c.n++
	return c.Tx.QueryRowContext(ctx, query, args...)
}

// TestCosts: the numbers of statements that docs/transactions.md names.
func TestCosts(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *bank) {
		ctx, tx := t.Context(), &counted{Tx: b.begin()}
		lock := map[rowguard.Dialect][3]int{rowguard.PostgreSQL: {3, 1, 1}, rowguard.MySQL: {1, 1, 1},
			rowguard.SQLite: {2, 2, 2}}[b.Dialect]
		for i, c := range []struct {
			statements int
			want       error
			call       func() error
		}{
			{1, nil, func() error { return rowguard.Update(ctx, tx, b.Table, 1, 1, nil) }},
			{2, rowguard.ErrStale, func() error { return rowguard.Update(ctx, tx, b.Table, 1, 1, nil) }},
			{1, nil, func() error { return rowguard.Move(ctx, tx, b.Table, order, 1, "paid", nil) }},
			{2, rowguard.ErrAlready, func() error { return rowguard.Move(ctx, tx, b.Table, order, 1, "paid", nil) }},
			{2, rowguard.ErrTransition, func() error { return rowguard.Move(ctx, tx, b.Table, order, 1, "returned", nil) }},
			{1, nil, func() error { return rowguard.Insert(ctx, tx, b.Table, rowguard.Set{"id": 3}) }},
			{1, rowguard.ErrDuplicate, func() error { return rowguard.Insert(ctx, tx, b.Table, rowguard.Set{"id": 3}) }},
			{lock[0], nil, func() error { return rowguard.Lock(ctx, tx, b.Table, 1, time.Second, nil) }},
			{lock[1], nil, func() error { return rowguard.Lock(ctx, tx, b.Table, 1, 0, nil) }},
			{lock[2], nil, func() error { return rowguard.LockNext(ctx, tx, b.Table, "new", nil) }},
		} {
			tx.n = 0
			assert.ErrorIs(t, c.call(), c.want, i)
			assert.Equal(t, c.statements, tx.n, i)
		}
	})
}
