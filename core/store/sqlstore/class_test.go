package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/sqlstore"
	"github.com/idem-go/idem/internal/backend"
)

// mattn's error has no method for its code.
type wordy string

func (w wordy) Error() string { return string(w) }

type coded int

func (c coded) Error() string { return "SQLite" }
func (c coded) Code() int     { return int(c) }

func TestFaults(t *testing.T) {
	pg := func(state string) error { return &pgconn.PgError{Code: state} }
	my := func(number uint16) error { return &mysql.MySQLError{Number: number} }
	option := func(name string) error {
		const message = "The server is running with the %s option so it cannot execute this statement"
		return &mysql.MySQLError{Number: 1290, Message: fmt.Sprintf(message, name)}
	}
	for _, c := range []struct {
		dialect sqlstore.Dialect
		err     error
		want    any
		undone  bool // when it comes from a COMMIT
	}{
		{sqlstore.PostgreSQL, pg("40001"), sqlstore.ClassTransient, true},
		{sqlstore.PostgreSQL, pg("40P01"), sqlstore.ClassTransient, true},
		{sqlstore.PostgreSQL, pg("40003"), sqlstore.ClassOther, false},
		{sqlstore.PostgreSQL, pg("55P03"), sqlstore.ClassLocked, true},
		{sqlstore.PostgreSQL, pg("53100"), sqlstore.ClassFull, true},
		{sqlstore.PostgreSQL, pg("25006"), sqlstore.ClassReadOnly, true},
		{sqlstore.PostgreSQL, pg("23505"), sqlstore.ClassOther, true},
		{sqlstore.PostgreSQL, pg("57P01"), sqlstore.ClassOther, false}, // shut down by the administrator
		{sqlstore.PostgreSQL, pg("08006"), sqlstore.ClassOther, false},
		{sqlstore.PostgreSQL, my(1213), sqlstore.ClassOther, false},
		{sqlstore.PostgreSQL, errBroken, sqlstore.ClassOther, false},
		{sqlstore.MySQL, my(1213), sqlstore.ClassTransient, true},
		{sqlstore.MySQL, my(1205), sqlstore.ClassLocked, true},
		{sqlstore.MySQL, my(1020), sqlstore.ClassTransient, true},
		{sqlstore.MySQL, my(1062), sqlstore.ClassDuplicate, false},
		{sqlstore.MySQL, option("--read-only"), sqlstore.ClassReadOnly, true},
		{sqlstore.MySQL, option("--super-read-only"), sqlstore.ClassReadOnly, true},
		{sqlstore.MySQL, option("read_only"), sqlstore.ClassReadOnly, true},
		{sqlstore.MySQL, option("--secure-file-priv"), sqlstore.ClassOther, false},
		{sqlstore.MySQL, my(1047), sqlstore.ClassReadOnly, false},
		{sqlstore.MySQL, my(1836), sqlstore.ClassReadOnly, true},
		{sqlstore.MySQL, my(1792), sqlstore.ClassReadOnly, true},
		{sqlstore.MySQL, my(1114), sqlstore.ClassFull, true},
		{sqlstore.MySQL, my(1180), sqlstore.ClassOther, false}, // error during COMMIT
		{sqlstore.MySQL, mysql.ErrInvalidConn, sqlstore.ClassOther, false},
		{sqlstore.MySQL, pg("40001"), sqlstore.ClassOther, false},
		{sqlstore.SQLite, coded(5), sqlstore.ClassLocked, true},
		{sqlstore.SQLite, coded(5 | 2<<8), sqlstore.ClassLocked, true}, // SQLITE_BUSY_SNAPSHOT
		{sqlstore.SQLite, coded(6), sqlstore.ClassLocked, true},
		{sqlstore.SQLite, coded(13), sqlstore.ClassFull, true},
		{sqlstore.SQLite, coded(10), sqlstore.ClassOther, false}, // SQLITE_IOERR
		{sqlstore.SQLite, wordy("database is locked"), sqlstore.ClassLocked, true},
		{sqlstore.SQLite, wordy("database table is locked"), sqlstore.ClassLocked, true},
		{sqlstore.SQLite, wordy("database or disk is full"), sqlstore.ClassFull, true},
	} {
		for _, err := range []error{c.err, fmt.Errorf("wrapped: %w", c.err), fmt.Errorf("%w and %w", errors.New("other"), c.err)} {
			assert.EqualValues(t, c.want, sqlstore.Class(c.dialect, err), "%v: %#v", c.dialect, err)
			assert.Equal(t, c.undone, sqlstore.Undone(c.dialect, err), "%v: %#v", c.dialect, err)
		}
	}
	for _, d := range []sqlstore.Dialect{sqlstore.PostgreSQL, sqlstore.MySQL, sqlstore.SQLite} {
		assert.EqualValues(t, sqlstore.ClassOther, sqlstore.Class(d, nil))
	}
}

// TestDeadlines: a call that waits for another transaction's lock returns the context's error when that ends.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		if dialectOf(url) == sqlstore.MySQL {
			url = with(url, "innodb_lock_wait_timeout=50")
		}
		b := newBooks(t, url)
		held := claim(time.Hour)
		_, err := b.store.Acquire(t.Context(), "held", held)
		require.NoError(t, err)
		_, err = b.do("k", func(tx *sql.Tx) ([]byte, error) {
			if _, err := tx.Exec("UPDATE " + b.store.TableName() + " SET version = version + 1"); err != nil {
				return nil, err
			}
			for name, call := range map[string]func(ctx context.Context) error{
				"Acquire": func(ctx context.Context) error {
					_, err := b.store.Acquire(ctx, "k", claim(time.Hour))
					return err
				},
				"Renew":    func(ctx context.Context) error { return b.store.Renew(ctx, "held", held.Owner, time.Hour) },
				"Complete": func(ctx context.Context) error { return b.store.Complete(ctx, "held", held.Owner, nil, time.Hour) },
				"Release":  func(ctx context.Context) error { return b.store.Release(ctx, "held", held.Owner) },
				"Abandon":  func(ctx context.Context) error { return b.store.Abandon(ctx, "held", held.Owner) },
				"DoTx": func(ctx context.Context) error {
					_, err := b.store.DoTx(ctx, b.db, "k", never)
					return err
				},
			} {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
				began := time.Now()
				assert.ErrorIs(t, call(ctx), context.DeadlineExceeded, name)
				cancel()
				assert.Less(t, time.Since(began), 40*time.Second, "%s: no lock is waited for beyond the context's end", name)
			}
			return b.enter("k")(tx)
		})
		require.NoError(t, err)
		g, err := b.store.Acquire(t.Context(), "k", claim(time.Hour))
		require.NoError(t, err)
		assert.Equal(t, store.Done, g.State)
	})
}

// TestStalled: a call to a server that does not answer returns the context's error when that ends.
func TestStalled(t *testing.T) {
	t.Parallel()
	run(t, engines[:2], func(t *testing.T, rawURL string) {
		u, err := url.Parse(rawURL)
		require.NoError(t, err)
		link := backend.NewProxy(t, u.Host)
		_, _, name := fresh(t, rawURL, sqlstore.Config{})
		s := openStore(t, link.URL(rawURL), name)
		c := claim(time.Hour)
		_, err = s.Acquire(t.Context(), "k", c)
		require.NoError(t, err)
		link.Stall()
		for range 2 { // over the connection that is there, and over a new one
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
			require.ErrorIs(t, s.Complete(ctx, "k", c.Owner, nil, time.Hour), context.DeadlineExceeded)
			cancel()
		}
		link.Resume()
		require.NoError(t, s.Migrate(t.Context()))
	})
}

// TestUnreachable: a database that is not there is an error, not a wait.
func TestUnreachable(t *testing.T) {
	for _, url := range []string{"postgres://nobody@127.0.0.1:1/none", "mysql://nobody@127.0.0.1:1/none",
		"sqlite:/nonexistent/directory/file"} {
		db, dialect := open(t, url)
		s := newOn(t, db, dialect, sqlstore.Config{})
		_, err := s.Acquire(t.Context(), "k", claim(time.Hour))
		require.Error(t, err)
		require.NotErrorIs(t, err, store.ErrFull)
		_, err = s.DoTx(t.Context(), db, "k", never)
		require.ErrorIs(t, err, codes.StoreUnavailable)
		require.NotErrorIs(t, err, sqlstore.ErrOutcomeUnknown)
		_, err = sqlstore.NewURL(t.Context(), url, sqlstore.Config{})
		require.Error(t, err)
	}
}
