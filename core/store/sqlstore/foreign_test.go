package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
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
	s, err := sqlstore.New(mysqlPool(t, "autocommit=0"), sqlstore.MySQL)
	require.NoError(t, err)
	require.ErrorContains(t, s.Migrate(t.Context()), "autocommit")
}

// TestHugeResultOnAForeignPool: a result that the server does not take must not break the
// connection, after which nobody knows that it was the size. What it does take arrives, also
// if the driver would rather make it a part of the text, in which it grows.
func TestHugeResultOnAForeignPool(t *testing.T) {
	for _, params := range []string{"", "interpolateParams=true"} {
		db := mysqlPool(t, params)
		var limit int
		require.NoError(t, db.QueryRow("SELECT @@max_allowed_packet").Scan(&limit))
		if limit > 64<<20 {
			t.Skipf("the server takes %d bytes at once", limit)
		}
		_, _, name := fresh(t, engines[1].url(t))
		s, err := sqlstore.New(db, sqlstore.MySQL, sqlstore.Table(name))
		require.NoError(t, err)
		for key, size := range map[string]int{"beyond": limit + 1, "far beyond": 3 * limit} {
			c := claim(time.Hour)
			_, err = s.Acquire(t.Context(), key, c)
			require.NoError(t, err)
			require.ErrorIs(t, s.Complete(t.Context(), key, c.Owner, make([]byte, size), time.Hour), core.ErrStoreFull)
			require.NoError(t, s.Complete(t.Context(), key, c.Owner, nil, time.Hour))
		}
		c := claim(time.Hour)
		_, err = s.Acquire(t.Context(), "within", c)
		require.NoError(t, err)
		result := []byte(strings.Repeat("'\x00\\\"", limit/5)) // every byte is escaped in a text
		require.NoError(t, s.Complete(t.Context(), "within", c.Owner, result, time.Hour))
		g, err := s.Acquire(t.Context(), "within", claim(time.Hour))
		require.NoError(t, err)
		require.True(t, string(result) == string(g.Result))
		s.Close()
	}
}

// TestTablesThatDoNotProtect: in MySQL the statements work on them, and operations run twice.
func TestTablesThatDoNotProtect(t *testing.T) {
	for change, fault := range map[string]string{
		"DROP PRIMARY KEY": "not unique",
		"DROP PRIMARY KEY, ADD PRIMARY KEY (source_type, serial_number(10))":                 "not unique",
		"DROP PRIMARY KEY, ADD PRIMARY KEY (serial_number)":                                  "not unique",
		"ENGINE=MyISAM, DROP PRIMARY KEY, ADD PRIMARY KEY (source_type, serial_number(800))": "InnoDB",
		"MODIFY serial_number VARBINARY(255) NOT NULL":                                       "serial_number",
		"MODIFY source_type VARCHAR(64) NOT NULL":                                            "source_type",
	} {
		s, db, name := fresh(t, engines[1].url(t))
		_, err := db.Exec("ALTER TABLE " + name + " " + change)
		require.NoError(t, err, change)
		require.ErrorContains(t, s.Migrate(t.Context()), fault, change)
	}
	// Another index beside it harms nobody.
	s, db, name := fresh(t, engines[1].url(t))
	_, err := db.Exec("ALTER TABLE " + name + " ADD UNIQUE (serial_number, version)")
	require.NoError(t, err)
	require.NoError(t, s.Migrate(t.Context()))
}

// TestLeaseThatWaitedForALock: a lease counts from when the claim is reported, not from when
// the server began to wait for somebody's lock.
func TestLeaseThatWaitedForALock(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		b := newBooks(t, url)
		const lease = 2 * time.Second
		locked := func(call func() error) {
			t.Helper()
			called := make(chan error, 1)
			_, err := b.do("holder", func(tx *sql.Tx) ([]byte, error) {
				if _, err := tx.Exec("UPDATE " + b.store.TableName() + " SET version = version + 1"); err != nil {
					return nil, err
				}
				go func() { called <- call() }()
				time.Sleep(lease * 3 / 5)
				return nil, errors.New("leave no trace")
			})
			require.ErrorContains(t, err, "leave no trace")
			require.NoError(t, <-called)
		}
		remains := func(key string) {
			t.Helper()
			g, err := b.store.Acquire(t.Context(), key, claim(time.Hour))
			require.NoError(t, err)
			require.Equal(t, core.Running, g.State)
			require.Greater(t, g.Remaining, lease/2)
		}
		c := claim(lease)
		_, err := b.store.Acquire(t.Context(), "renewed", c)
		require.NoError(t, err)
		locked(func() error { return b.store.Renew(t.Context(), "renewed", c.Owner, lease) })
		remains("renewed")

		_, err = b.store.Acquire(t.Context(), "taken over", claim(1))
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			g, err := b.store.Acquire(t.Context(), "taken over", claim(time.Hour))
			return err == nil && g.State == core.Abandoned
		}, 10*time.Second, time.Millisecond)
		locked(func() error {
			taker := claim(lease)
			taker.Takeover = true
			g, err := b.store.Acquire(t.Context(), "taken over", taker)
			if err == nil && (g.State != core.Acquired || g.Attempt != 2) {
				err = errors.New("it was not taken over: " + g.State.String())
			}
			return err
		})
		remains("taken over")
	})
}

// TestLostCommitOfABriefRecord: that its record is gone already is no reason to run again.
func TestLostCommitOfABriefRecord(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		b := newBooks(t, url)
		pool, l := lossyDB(t, b.db, url)
		l.after.Store(1)
		r, err := b.store.DoTx(t.Context(), pool, "k", b.enter("k"), sqlstore.Retention(time.Nanosecond))
		require.NoError(t, err)
		assert.Equal(t, "entered k", string(r.Value))
		assert.False(t, r.Replayed)
		assert.Equal(t, 1, b.count("k"))
	})
}

// TestDuplicatesWaitInTheProcess: and not on all connections of the pool, where everybody
// else's leases would be lost meanwhile.
func TestDuplicatesWaitInTheProcess(t *testing.T) {
	run(t, engines[:2], func(t *testing.T, url string) {
		b := newBooks(t, url)
		b.db.SetMaxOpenConns(2)
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
		assert.ErrorIs(t, err, core.ErrStoreUnavailable)
		cancel()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		assert.NoError(t, b.store.Renew(ctx, "other", other.Owner, time.Hour))
		close(end)
		wg.Wait()
		assert.EqualValues(t, 1, runs.Load())
		assert.EqualValues(t, n-1, replays.Load())
		assert.Equal(t, 1, b.count("k"))
	})
}

// TestWaitsForALockAsLongAsItTakes: where the database itself does not wait, the store does.
func TestWaitsForALockAsLongAsItTakes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "db")
	holder, _, name := fresh(t, "sqlite:"+file)
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(0)")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	s, err := sqlstore.New(db, sqlstore.SQLite, sqlstore.Table(name))
	require.NoError(t, err)
	t.Cleanup(s.Close)

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

// TestErrorsOfTheFunction: its own are its own, and those of the database are the store's.
func TestErrorsOfTheFunction(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		b := newBooks(t, url)
		for _, number := range []uint16{1213, 1205, 5, 6, 517} {
			runs := 0
			_, err := b.do("k", func(*sql.Tx) ([]byte, error) { runs++; return nil, numbered{number} })
			require.ErrorIs(t, err, numbered{number})
			require.NotErrorIs(t, err, core.ErrStoreUnavailable)
			require.Equal(t, 1, runs, "the error %d is not a deadlock", number)
		}
		ctx, cancel := context.WithCancel(t.Context())
		_, err := b.store.DoTx(ctx, b.db, "k", func(tx *sql.Tx) ([]byte, error) {
			cancel()
			_, err := tx.ExecContext(ctx, "DELETE FROM "+b.rows)
			return nil, err
		})
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, core.ErrStoreUnavailable)
	})
}
