package sqlstore_test

import (
	"crypto/rand"
	"database/sql"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/core/store/sqlstore"
	"github.com/idem-go/idem/internal/backend"
)

// TestReadOnlySessions: any call that meets a read-only server leaves its connections, and succeeds on a new one.
func TestReadOnlySessions(t *testing.T) {
	t.Parallel()
	run(t, engines[:2], func(t *testing.T, url string) {
		c := newCounter(t, url, byKey)
		c.handler = func(w http.ResponseWriter, r *http.Request) { c.order(w, r, "RunTx") }
		const sessions = 6
		demote := func() {
			var held []*sql.Conn
			for range sessions {
				conn, err := c.db.Conn(t.Context())
				require.NoError(t, err)
				held = append(held, conn)
				_, err = conn.ExecContext(t.Context(), map[sqlstore.Dialect]string{
					sqlstore.PostgreSQL: "SET default_transaction_read_only = on",
					sqlstore.MySQL:      "SET SESSION TRANSACTION READ ONLY",
				}[dialectOf(url)])
				require.NoError(t, err)
			}
			for _, conn := range held {
				require.NoError(t, conn.Close())
			}
			c.store.LeftLongAgo()
		}

		held := claim(time.Hour)
		demote()
		_, err := c.store.Acquire(t.Context(), "k", held)
		require.NoError(t, err)
		for name, pool := range map[string]sqlstore.TxBeginner{"DoTx": c.db, "of another type": struct{ *sql.DB }{c.db}} {
			demote()
			_, err := c.store.DoTx(t.Context(), pool, name, c.enter(name))
			require.NoError(t, err, name)
		}
		demote()
		require.NoError(t, c.store.Complete(t.Context(), "k", held.Owner, nil, time.Hour))
		assert.Equal(t, 1, c.count("DoTx"))

		c.handler = func(w http.ResponseWriter, r *http.Request) {
			demote() // between the claim and the change
			c.order(w, r, "RunTx")
		}
		w := c.post("k-1")
		assert.Equal(t, http.StatusCreated, w.Code, w.Body)
		assert.Equal(t, 1, c.count("RunTx"))
	})
}

// TestDemotedPrimary: a server that becomes read-only keeps its connections. Calls fail, and say why, until the address leads to
// another server.
func TestDemotedPrimary(t *testing.T) {
	for _, e := range []struct {
		name   string
		start  func(testing.TB, ...string) *backend.Server
		demote []string
		user   string // with no right to write all the same
		text   string // of the error
	}{
		{"PostgreSQL", backend.StartPostgres, []string{"ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()"},
			"postgres", "read-only transaction"},
		{"MariaDB", backend.StartMariaDB, []string{"SET GLOBAL read_only = 1"}, "app", "read-only option"},
	} {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			was, next := e.start(t), e.start(t)
			var roots []*sql.DB
			for _, server := range []*backend.Server{was, next} {
				root, _ := open(t, server.URL())
				roots = append(roots, root)
				if e.name == "MariaDB" { // root may write all the same
					for _, q := range []string{"CREATE USER app@'127.0.0.1'", "GRANT ALL ON test.* TO app@'127.0.0.1'"} {
						_, err := root.Exec(q)
						require.NoError(t, err)
					}
				}
			}
			link := backend.NewProxy(t, was.Addr())
			u, err := url.Parse(link.URL(was.URL()))
			require.NoError(t, err)
			u.User = url.User(e.user)
			s, err := sqlstore.NewURL(t.Context(), u.String(), sqlstore.Config{})
			require.NoError(t, err)
			t.Cleanup(s.Close)
			db, _ := open(t, u.String())
			on, err := sqlstore.NewURL(t.Context(), next.URL(), sqlstore.Config{}) // what replication has brought there
			require.NoError(t, err)
			on.Close()

			calls := map[string]func() error{
				"Acquire": func() error {
					_, err := s.Acquire(t.Context(), "k", claim(time.Hour))
					return err
				},
				"DoTx": func() error {
					_, err := s.DoTx(t.Context(), db, "DoTx", func(*sql.Tx) ([]byte, error) { return nil, nil })
					return err
				},
			}
			for _, call := range calls { // there are connections
				require.NoError(t, call())
			}
			for _, q := range e.demote {
				_, err := roots[0].Exec(q)
				require.NoError(t, err)
			}
			var failed error
			require.Eventually(t, func() bool { // until the sessions have heard of it
				_, failed = s.Acquire(t.Context(), rand.Text(), claim(time.Hour))
				return failed != nil
			}, 10*time.Second, 10*time.Millisecond)
			require.ErrorContains(t, failed, e.text)
			require.Eventually(t, func() bool {
				_, failed = s.DoTx(t.Context(), db, rand.Text(), func(*sql.Tx) ([]byte, error) { return nil, nil })
				return failed != nil
			}, 10*time.Second, 10*time.Millisecond)
			require.ErrorIs(t, failed, codes.StoreUnavailable)
			require.ErrorContains(t, failed, e.text)

			link.Lead(next.Addr())
			for name, call := range calls { // connections are closed once a second
				require.Eventually(t, func() bool { return call() == nil }, 10*time.Second, 10*time.Millisecond, name)
			}
		})
	}
}

// TestCutOff: a statement that a cut-off node of Galera refuses may have taken effect, and is repeated in a transaction only.
// Connections are left at most once a second.
func TestCutOff(t *testing.T) {
	t.Parallel()
	run(t, engines[1:2], func(t *testing.T, url string) {
		_, db, name := fresh(t, url, sqlstore.Config{})
		left := 0
		s := newOn(t, db, sqlstore.MySQL, sqlstore.Config{Table: name, Reset: func() { left++ }})
		for _, q := range []string{
			"CREATE TABLE " + name + "_tries (n INT) ENGINE=MyISAM", // which knows no transactions
			"CREATE TRIGGER " + name + "_refused BEFORE INSERT ON " + name + " FOR EACH ROW " +
				"BEGIN INSERT INTO " + name + "_tries VALUES (1); " +
				"SIGNAL SQLSTATE '08S01' SET MYSQL_ERRNO = 1047, MESSAGE_TEXT = 'cut off'; END",
		} {
			_, err := db.Exec(q)
			require.NoError(t, err)
		}
		t.Cleanup(func() {
			_, err := db.Exec("DROP TABLE " + name + "_tries")
			require.NoError(t, err)
		})
		tries := func(call func() error) (n int) {
			_, err := db.Exec("DELETE FROM " + name + "_tries")
			require.NoError(t, err)
			require.ErrorContains(t, call(), "cut off")
			require.NoError(t, db.QueryRow("SELECT COUNT(*) FROM "+name+"_tries").Scan(&n))
			return n
		}
		began := time.Now()
		require.Equal(t, 1, tries(func() error {
			_, err := s.Acquire(t.Context(), "k", claim(time.Hour))
			return err
		}))
		require.Equal(t, 3, tries(func() error {
			_, err := s.DoTx(t.Context(), db, "k", never)
			return err
		}))
		require.Positive(t, left)
		require.LessOrEqual(t, left, 1+int(time.Since(began)/time.Second))
	})
}
