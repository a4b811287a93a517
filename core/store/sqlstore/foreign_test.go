package sqlstore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/sqlstore"
)

// What pools and tables of other people's making may do to a store.

// mysqlPool opens a pool on MariaDB with parameters of the driver's own in place of Open's.
func mysqlPool(t *testing.T, params string) *sql.DB {
	dsn, err := sqlstore.DSN(engines[1].url(t), "mysql")
	require.NoError(t, err)
	dsn, _, _ = strings.Cut(dsn, "?")
	db, err := sql.Open("mysql", dsn+"?"+params)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	return db
}

// TestWithoutAutocommit: what is acknowledged would be rolled back with the connection.
func TestWithoutAutocommit(t *testing.T) {
	s := newOn(t, mysqlPool(t, "autocommit=0"), sqlstore.MySQL, sqlstore.Config{})
	require.ErrorContains(t, s.Migrate(t.Context()), "autocommit")
}

// TestForeignTables: Migrate refuses a table with flaws that the database would accept silently, and names each of them.
func TestForeignTables(t *testing.T) {
	t.Parallel()
	type change = struct {
		from, to string // in the table that Schema gives; an empty from is a statement after it
		faults   []string
	}
	const key = "(source_type, serial_number) is not unique"
	type list = []change
	for i, changes := range []list{
		{ // PostgreSQL
			{"CREATE TABLE", "CREATE UNLOGGED TABLE", []string{"UNLOGGED"}},
			{"lease_until BIGINT", "lease_until INT", []string{"lease_until has the type integer"}},
			{"owner BYTEA", "owner TEXT", []string{"owner has the type text"}},
			{"remark TEXT", "remark VARCHAR(100)", []string{"remark has the type character varying(100)"}},
			{"version BIGINT NOT NULL,", "", []string{"no column version"}},
			{"PRIMARY KEY (source_type, serial_number)", "PRIMARY KEY (serial_number)", []string{key}},
			{"PRIMARY KEY (source_type, serial_number)", "PRIMARY KEY (source_type, serial_number) DEFERRABLE", []string{key}},
			{"PRIMARY KEY (source_type, serial_number)", "CHECK (true)", []string{key}},
			{"source_type TEXT NOT NULL,\n\tserial_number BYTEA", "source_type TEXT NOT NULL,\n\tserial_number TEXT",
				[]string{"serial_number has the type text"}},
			{"expires_at BIGINT", "expires_at INT, extra TEXT", []string{"expires_at"}},
			{"created_at BIGINT NOT NULL,\n\tupdated_at BIGINT", "created_at TIMESTAMP NOT NULL,\n\tupdated_at TIMESTAMP",
				[]string{"created_at has the type timestamp", "updated_at has the type timestamp"}},
			{"PRIMARY KEY (source_type, serial_number)", "UNIQUE (serial_number, source_type)", nil}, // as good
			{"state SMALLINT", "extra TEXT, state INT", nil},
		},
		{ // MySQL
			{"", "DROP PRIMARY KEY", []string{key}},
			{"", "DROP PRIMARY KEY, ADD PRIMARY KEY (source_type, serial_number(10))", []string{key}},
			{"", "DROP PRIMARY KEY, ADD PRIMARY KEY (serial_number)", []string{key}},
			{"", "ENGINE=MyISAM, DROP PRIMARY KEY, ADD PRIMARY KEY (source_type, serial_number(800))", []string{"engine is MyISAM", key}},
			{"", "MODIFY serial_number VARBINARY(255) NOT NULL", []string{"serial_number has the type varbinary(255)"}},
			{"", "MODIFY source_type VARCHAR(64) NOT NULL", []string{"source_type has the type varchar(64)"}},
			{"", "MODIFY result BLOB NOT NULL", []string{"result has the type blob, and not LONGBLOB"}},
			{"", "MODIFY owner VARBINARY(8) NOT NULL, MODIFY lease_until INT NOT NULL",
				[]string{"owner has the type varbinary(8)", "lease_until has the type int"}},
			{"", "MODIFY owner BINARY(16) NOT NULL", []string{"owner has the type binary(16)"}},
			{"", "MODIFY expires_at BIGINT UNSIGNED NOT NULL", []string{"expires_at has the type bigint(20) unsigned"}},
			{"", "MODIFY remark VARCHAR(255) CHARACTER SET latin1 NOT NULL", []string{"remark has the type varchar(255) latin1"}},
			{"", "DROP COLUMN version", []string{"no column version"}},
			{"", "ADD UNIQUE (serial_number, version)", nil}, // another key harms nobody
			{"", "MODIFY serial_number VARBINARY(2100) NOT NULL, MODIFY state INT NOT NULL", nil},
		},
		{ // SQLite
			{"serial_number)\n)", "serial_number)\n) WITHOUT ROWID", []string{"WITHOUT ROWID"}},
			{"owner BLOB", "owner TEXT", []string{"owner has the type TEXT"}},
			{"lease_until INTEGER", "lease_until TEXT", []string{"lease_until has the type TEXT"}},
			{"version INTEGER NOT NULL,", "", []string{"no column version"}},
			{"PRIMARY KEY (source_type, serial_number)", "CHECK (true)", []string{key}},
			{"PRIMARY KEY (source_type, serial_number)", "PRIMARY KEY (serial_number)", []string{key}},
			{"source_type TEXT", "source_type TEXT COLLATE NOCASE", []string{key}},
			{"owner BLOB NOT NULL,\n\tattempt INTEGER", "owner BLOB NOT NULL,\n\tattempt INT", nil}, // all are of 64 bits
			{"PRIMARY KEY (source_type, serial_number)", "UNIQUE (serial_number, source_type)", nil},
			{"serial_number)\n)", "serial_number)\n) STRICT", nil},
		},
	} {
		t.Run(engines[i].name, func(t *testing.T) {
			t.Parallel()
			_, db, name := fresh(t, engines[i].url(t), sqlstore.Config{})
			dialect := dialectOf(engines[i].url(t))
			ddl, err := sqlstore.Schema(dialect, name)
			require.NoError(t, err)
			create, index, _ := strings.Cut(ddl, ";")
			for _, c := range changes {
				_, err := db.Exec("DROP TABLE " + name)
				require.NoError(t, err)
				statements := []string{strings.Replace(create, c.from, c.to, 1), index}
				if dialect == sqlstore.MySQL {
					statements = []string{create, "ALTER TABLE " + name + " " + c.to}
				} else {
					require.Contains(t, create, c.from)
				}
				for _, q := range statements {
					_, err := db.Exec(q)
					require.NoError(t, err, q)
				}
				err = newOn(t, db, dialect, sqlstore.Config{Table: name}).Migrate(t.Context())
				if c.faults == nil {
					assert.NoError(t, err, c.to)
				}
				for _, fault := range c.faults {
					assert.ErrorContains(t, err, fault, c.to)
				}
			}
		})
	}
}

// TestViews: a view is no table.
func TestViews(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		_, db, name := fresh(t, url, sqlstore.Config{})
		_, err := db.Exec("CREATE VIEW " + name + "_view AS SELECT * FROM " + name)
		require.NoError(t, err)
		require.Error(t, newOn(t, db, dialectOf(url), sqlstore.Config{Table: name + "_view"}).Migrate(t.Context()))
		_, err = db.Exec("DROP VIEW " + name + "_view")
		require.NoError(t, err)
	})
}

// TestLeaseThatWaitedForALock: a lease does not count the time that its statement has waited for another transaction's lock:
// of a row that is locked, or of one whose insertion is rolled back.
func TestLeaseThatWaitedForALock(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		b := newBooks(t, url)
		const lease = 2 * time.Second
		acquire := func(key string, attempt uint64) func() error {
			return func() error {
				c := claim(lease)
				c.Takeover = true
				g, err := b.store.Acquire(t.Context(), key, c)
				if err == nil && (g.State != store.Acquired || g.Attempt != attempt) {
					err = fmt.Errorf("%q is %v, attempt %d", key, g.State, g.Attempt)
				}
				return err
			}
		}
		renewed, forgotten := claim(lease), claim(1)
		forgotten.Retention = 0
		calls := map[string]func() error{
			"renewed":    func() error { return b.store.Renew(t.Context(), "renewed", renewed.Owner, lease) },
			"begun":      acquire("begun", 1),
			"begun anew": acquire("begun anew", 1),
			"taken over": acquire("taken over", 2),
		}
		for key, c := range map[string]store.Claim{"renewed": renewed, "begun anew": forgotten} {
			_, err := b.store.Acquire(t.Context(), key, c)
			require.NoError(t, err)
		}
		_, err := b.store.Acquire(t.Context(), "taken over", claim(1))
		require.NoError(t, err)
		require.Eventually(t, func() bool { // the forgotten one's time has passed then, too
			g, err := b.store.Acquire(t.Context(), "taken over", claim(time.Hour))
			return err == nil && g.State == store.Abandoned
		}, 10*time.Second, time.Millisecond)

		lock := "UPDATE " + b.store.TableName() + " SET version = version + 1"
		if dialectOf(url) == sqlstore.PostgreSQL {
			// An insert waits for whoever changes the row that it meets with. It passes one
			// that is only locked, so that the statement after it waits.
			lock = "SELECT 1 FROM " + b.store.TableName() + " FOR UPDATE"
		}
		var waiting sync.WaitGroup
		var unlocked time.Time
		_, err = b.do("begun", func(tx *sql.Tx) ([]byte, error) {
			if _, err := tx.Exec(lock); err != nil {
				return nil, err
			}
			for key, call := range calls {
				waiting.Go(func() { assert.NoError(t, call(), key) })
			}
			time.Sleep(lease * 3 / 5)
			unlocked = time.Now()
			return nil, errors.New("leave no trace")
		})
		require.ErrorContains(t, err, "leave no trace")
		waiting.Wait()
		for key := range calls {
			g, err := b.store.Acquire(t.Context(), key, claim(time.Hour))
			require.NoError(t, err)
			// A quarter of it may have passed when it is reported, and what has passed since then.
			if least := lease*3/4 - time.Since(unlocked) - sqlstore.Tick(dialectOf(url)); least > 0 {
				require.Equal(t, store.Running, g.State, key)
				assert.GreaterOrEqual(t, g.Remaining, least, key)
			}
		}
	})
}

// TestDuplicatesWaitInTheProcess: waiting duplicates hold neither all connections of the pool, without which other leases would
// be lost, nor all slots for transactions.
func TestDuplicatesWaitInTheProcess(t *testing.T) {
	t.Parallel()
	run(t, engines[:2], func(t *testing.T, url string) {
		b := newBooks(t, url)
		b.db.SetMaxOpenConns(3)
		other := claim(time.Hour)
		_, err := b.store.Acquire(t.Context(), "other", other)
		require.NoError(t, err)
		const n = 10
		running, end := make(chan struct{}), make(chan struct{})
		var runs, replays atomic.Int32
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() {
				r, err := b.do("k", func(tx *sql.Tx) ([]byte, error) {
					if runs.Add(1) == 1 {
						close(running)
						<-end
					}
					return b.enter("k")(tx)
				})
				assert.NoError(t, err)
				if r.Replayed {
					replays.Add(1)
				}
			})
		}
		<-running
		gone, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, err = b.store.DoTx(gone, b.db, "k", never)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.NotErrorIs(t, err, codes.StoreUnavailable)
		cancel()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		assert.NoError(t, b.store.Renew(ctx, "other", other.Owner, time.Hour))
		_, err = b.store.DoTx(ctx, b.db, "beside", b.enter("beside"))
		assert.NoError(t, err)
		close(end)
		wg.Wait()
		assert.EqualValues(t, 1, runs.Load())
		assert.EqualValues(t, n-1, replays.Load())
		assert.Equal(t, 1, b.count("k"))
	})
}

// TestWaitsForALockAsLongAsItTakes: if the database does not wait for a lock, the store does.
func TestWaitsForALockAsLongAsItTakes(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "db")
	holder, _, name := fresh(t, "sqlite:"+file, sqlstore.Config{})
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(0)")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	s := newOn(t, db, sqlstore.SQLite, sqlstore.Config{Table: name})
	held, waited := make(chan struct{}), make(chan error, 1)
	go func() {
		<-held
		r, err := s.DoTx(t.Context(), db, "k", never)
		if err == nil && !r.Replayed {
			err = errors.New("it ran")
		}
		waited <- err
	}()
	own, _ := open(t, "sqlite:"+file)
	_, err = holder.DoTx(t.Context(), own, "k", func(*sql.Tx) ([]byte, error) {
		close(held)
		time.Sleep(700 * time.Millisecond) // more than 20 tries take
		return nil, nil
	})
	require.NoError(t, err)
	require.NoError(t, <-waited)
}

// numbered is an error of somebody's own that looks like the drivers'.
type numbered struct{ Number uint16 }

func (n numbered) Error() string { return "out of stock" }
func (n numbered) Code() int     { return int(n.Number) }

// stated looks like an error of PostgreSQL's.
type stated string

func (s stated) Error() string    { return "state " + string(s) }
func (s stated) SQLState() string { return string(s) }

// TestErrorsOfTheFunction: the function's own errors are returned as they are; those of the database become the store's.
func TestErrorsOfTheFunction(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		b := newBooks(t, url)
		for _, number := range []uint16{1213, 1205, 5, 6, 517} {
			runs := 0
			_, err := b.do("k", func(*sql.Tx) ([]byte, error) { runs++; return nil, numbered{number} })
			require.ErrorIs(t, err, numbered{number})
			require.NotErrorIs(t, err, codes.StoreUnavailable)
			require.Equal(t, 1, runs, "the error %d is not a deadlock", number)
		}
		gone := []error{driver.ErrBadConn, sql.ErrConnDone}
		if dialectOf(url) == sqlstore.PostgreSQL {
			gone = append(gone, stated("57P01"), stated("08006")) // an administrator, and the connection
		}
		for _, err := range gone {
			runs := 0
			_, got := b.do("k", func(*sql.Tx) ([]byte, error) { runs++; return nil, err })
			require.ErrorIs(t, got, codes.StoreUnavailable, err)
			require.ErrorIs(t, got, err)
			require.Equal(t, 1, runs)
		}
		for _, conflict := range map[sqlstore.Dialect][]error{
			sqlstore.PostgreSQL: {stated("40001"), stated("40P01")},
			sqlstore.MySQL:      {&mysql.MySQLError{Number: 1213}, &mysql.MySQLError{Number: 1020}},
		}[dialectOf(url)] { // they are the database's, and there is an end to trying
			runs := 0
			_, err := b.do("k", func(*sql.Tx) ([]byte, error) { runs++; return nil, conflict })
			require.ErrorIs(t, err, codes.StoreUnavailable)
			require.ErrorIs(t, err, conflict)
			require.Equal(t, sqlstore.Tries, runs)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		_, err := b.store.DoTx(ctx, b.db, "k", func(tx *sql.Tx) ([]byte, error) {
			cancel(errUnlucky)
			_, err := tx.ExecContext(ctx, "DELETE FROM "+b.rows)
			return nil, err
		})
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, errUnlucky)
		require.NotErrorIs(t, err, codes.StoreUnavailable)
	})
}
