package sqlstore_test

import (
	"crypto/rand"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/sqlstore"
	"github.com/idem-go/idem/core/storetest"
	"github.com/idem-go/idem/internal/backend"
	"github.com/idem-go/idem/internal/leak"
)

var _ store.Store = (*sqlstore.Store)(nil)

func TestMain(m *testing.M) {
	_ = mysql.SetLogger(&mysql.NopLogger{}) // it would report each connection that the tests cut
	leak.VerifyTestMain(m)
}

// engine is a database that the tests run on.
type engine struct {
	name string
	url  func(tb testing.TB) string
}

var engines = []engine{
	{"PostgreSQL", backend.Postgres},
	{"MySQL", backend.MySQL},
	{"SQLite", func(tb testing.TB) string { return "sqlite:" + filepath.Join(tb.TempDir(), "idem.db") }},
}

// strict are databases whose transactions are more strictly isolated than by default.
var strict = []engine{
	{"PostgreSQL, serializable", func(tb testing.TB) string {
		return with(engines[0].url(tb), "default_transaction_isolation=serializable")
	}},
	{"PostgreSQL, repeatable read", func(tb testing.TB) string {
		return with(engines[0].url(tb), "default_transaction_isolation=repeatable%20read")
	}},
	{"MySQL, serializable", func(tb testing.TB) string {
		return with(engines[1].url(tb), isolation(tb)+"=%27SERIALIZABLE%27")
	}},
	{"MySQL, read committed", func(tb testing.TB) string {
		return with(engines[1].url(tb), isolation(tb)+"=%27READ-COMMITTED%27")
	}},
}

func with(url, parameter string) string {
	if strings.Contains(url, "?") {
		return url + "&" + parameter
	}
	return url + "?" + parameter
}

// isolation is the name of the variable, which MySQL 8 and MariaDB before 11.1 do not share.
func isolation(tb testing.TB) string {
	db, _ := open(tb, engines[1].url(tb))
	var name, value string
	require.NoError(tb, db.QueryRow("SHOW VARIABLES WHERE Variable_name IN ('tx_isolation', 'transaction_isolation')").Scan(&name, &value))
	return name
}

// each runs test on every engine, at once: most of the time they wait.
func each(t *testing.T, test func(t *testing.T, url string)) { run(t, engines, test) }

func run(t *testing.T, on []engine, test func(t *testing.T, url string)) {
	for _, e := range on {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			test(t, e.url(t))
		})
	}
}

// fresh opens a pool and makes a store with a table of its own, which is dropped with the
// test.
func fresh(tb testing.TB, url string, config sqlstore.Config) (*sqlstore.Store, *sql.DB, string) {
	tb.Helper()
	db, dialect := open(tb, url)
	name := "idem_test_" + strings.ToLower(rand.Text()[:12])
	config.Table = name
	s := newOn(tb, db, dialect, config)
	require.NoError(tb, s.Migrate(tb.Context()))
	tb.Cleanup(func() {
		_, err := db.Exec("DROP TABLE IF EXISTS " + name)
		if err != nil {
			tb.Error(err)
		}
	})
	return s, db, name
}

func open(tb testing.TB, url string) (*sql.DB, sqlstore.Dialect) {
	tb.Helper()
	db, dialect, err := sqlstore.Open(url)
	require.NoError(tb, err)
	tb.Cleanup(func() { db.Close() })
	return db, dialect
}

func TestStore(t *testing.T) {
	t.Parallel()
	on := engines
	if !testing.Short() {
		on = append(strict, engines...)
	}
	run(t, on, func(t *testing.T, url string) {
		features := storetest.Features{}
		if dialectOf(url) != sqlstore.SQLite {
			features.Faulty = func(tb testing.TB) (storetest.Instance, func()) { return cut(tb, url) }
		}
		storetest.Run(t, func(tb testing.TB) storetest.Instance { return instance(tb, url) }, features)
	})
}

func instance(tb testing.TB, url string) storetest.Instance {
	s, _, name := fresh(tb, url, sqlstore.Config{})
	return storetest.Instance{Store: s, Peer: func() store.Store { return openStore(tb, url, name) }}
}

// openStore returns a store on an existing table, with connections of its own.
func openStore(tb testing.TB, url, table string) *sqlstore.Store {
	db, dialect := open(tb, url)
	return newOn(tb, db, dialect, sqlstore.Config{Table: table})
}

// newOn returns a store with the connections of db.
func newOn(tb testing.TB, db *sql.DB, dialect sqlstore.Dialect, config sqlstore.Config) *sqlstore.Store {
	tb.Helper()
	s, err := sqlstore.New(db, dialect, config)
	require.NoError(tb, err)
	tb.Cleanup(s.Close)
	return s
}

// cut makes an instance whose connections can be cut, also in the midst of a statement.
func cut(tb testing.TB, rawURL string) (storetest.Instance, func()) {
	link := backend.NewProxy(tb, hostOf(tb, rawURL))
	_, _, name := fresh(tb, rawURL, sqlstore.Config{})
	peer := func() store.Store { return openStore(tb, link.URL(rawURL), name) }
	return storetest.Instance{Store: peer(), Peer: peer}, func() { link.Cut(); link.Restore() }
}

func hostOf(tb testing.TB, rawURL string) string {
	u, err := url.Parse(rawURL)
	require.NoError(tb, err)
	return u.Host
}

// TestStoreWithAClock runs the suite with a clock that moves when the test moves it, so that
// the cases about the moment when a lease ends run, too.
func TestStoreWithAClock(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		if testing.Short() && dialectOf(url) != sqlstore.SQLite {
			t.Skip("the cases that wait for nothing repeat themselves often, which takes time across a network")
		}
		storetest.Run(t, func(tb testing.TB) storetest.Instance { return moved(tb, url) }, storetest.Features{})
	})
}

func moved(tb testing.TB, url string) storetest.Instance {
	patient := url
	if dialectOf(url) == sqlstore.SQLite { // the clock is set while others write
		patient = with(url, "_pragma=busy_timeout(10000)")
	}
	db, dialect := open(tb, patient)
	clock := "idem_clock_" + strings.ToLower(rand.Text()[:12])
	for _, q := range []string{"CREATE TABLE " + clock + " (us BIGINT NOT NULL)", "INSERT INTO " + clock + " VALUES (1700000000000000)"} {
		_, err := db.Exec(q)
		require.NoError(tb, err)
	}
	tb.Cleanup(func() { db.Exec("DROP TABLE " + clock) })
	s, _, _ := fresh(tb, url, sqlstore.Clock("(SELECT us FROM "+clock+")"))
	return storetest.Instance{Store: s, Advance: func(d time.Duration) {
		for {
			_, err := db.Exec(fmt.Sprintf("UPDATE %s SET us = us + %d", clock, (d + sqlstore.Tick(dialect)).Microseconds()))
			if err == nil {
				return
			}
			// MySQL's statements lock the clock that they read, and it may choose this one to end a deadlock.
			require.Equal(tb, sqlstore.ClassTransient, sqlstore.Class(dialect, err), err)
		}
	}}
}

func BenchmarkStore(b *testing.B) {
	for _, e := range engines {
		b.Run(e.name, func(b *testing.B) {
			url := e.url(b)
			storetest.Bench(b, func(tb testing.TB) storetest.Instance { return instance(tb, url) })
		})
	}
}

func driverDSN(tb testing.TB, url string) string {
	tb.Helper()
	driver := map[sqlstore.Dialect]string{sqlstore.PostgreSQL: "pgx", sqlstore.MySQL: "mysql", sqlstore.SQLite: "sqlite"}[dialectOf(url)]
	dsn, err := sqlstore.DSN(url, driver)
	require.NoError(tb, err)
	return dsn
}

func dialectOf(url string) sqlstore.Dialect {
	switch {
	case strings.HasPrefix(url, "postgres"):
		return sqlstore.PostgreSQL
	case strings.HasPrefix(url, "mysql"):
		return sqlstore.MySQL
	}
	return sqlstore.SQLite
}

// TestEndsAreOneStep: what ends a run is several statements. If its owner claims the record anew between two of them, they end the new run
// as they would have ended it before all of them, or do not end it at all.
func TestEndsAreOneStep(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		s, db, table := fresh(t, url, sqlstore.Config{})
		ctx := t.Context()
		pool, l := lossyDB(t, db, url)
		for name, end := range map[string]func(*sqlstore.Store, string, store.Owner) error{
			"Fail, goes on": func(s *sqlstore.Store, key string, o store.Owner) error {
				return s.Capabilities().Fail(ctx, key, o, true)
			},
			"Fail": func(s *sqlstore.Store, key string, o store.Owner) error {
				return s.Capabilities().Fail(ctx, key, o, false)
			},
			"Release":  func(s *sqlstore.Store, key string, o store.Owner) error { return s.Release(ctx, key, o) },
			"Complete": func(s *sqlstore.Store, key string, o store.Owner) error { return s.Complete(ctx, key, o, nil, 0) },
		} {
			var whole store.Grant
			for at := 1; ; at++ {
				key, c, next := fmt.Sprint(name, at), claim(time.Hour), claim(time.Hour)
				c.ID, next.ID = store.ID{1}, store.ID{2}
				acquire := func(c store.Claim) store.Grant {
					g, err := s.Acquire(ctx, key, c)
					require.NoError(t, err)
					return g
				}
				acquire(c)
				require.NoError(t, s.Capabilities().Fail(ctx, key, c.Owner, true))
				_, dialect := open(t, url)
				ends, statements := newOn(t, pool, dialect, sqlstore.Config{Table: table}), 0
				l.step = func(string) {
					if statements++; statements == at {
						require.Equal(t, store.Acquired, acquire(c).State)
					}
				}
				err := end(ends, key, c.Owner)
				l.step = nil
				if statements < at {
					require.Greater(t, at, 2, name)
					break
				}
				switch got := acquire(next); {
				case at == 1:
					require.NoError(t, err, name)
					whole = got
				case err == nil:
					require.Equal(t, whole, got, "%s, claimed anew before statement %d", name, at)
				default:
					require.ErrorIs(t, err, store.ErrLost, name)
					require.Equal(t, store.Running, got.State, name)
				}
			}
		}
	})
}
