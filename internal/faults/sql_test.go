package faults_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/sqlstore"
	"github.com/idem-go/idem/internal/backend"
)

// sqlEngine is a kind of database server, and the SQL by which a fault is made there.
type sqlEngine struct {
	name     string
	start    func(tb testing.TB, args ...string) *backend.Server
	sessions string // on a database: their ids
	waiting  string // those of them that wait for the table
	blocked  string // those that wait for a row
	self     string // the one that asks
	kill     string
	lock     []string // what keeps everybody off the table
	commit   string   // what the driver sends at the end of a transaction
}

var (
	postgres = sqlEngine{
		name: "PostgreSQL", start: backend.StartPostgres,
		sessions: "SELECT pid FROM pg_stat_activity WHERE datname = '%s'",
		waiting:  "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = '%s'",
		blocked:  "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = '%s'",
		self:     "SELECT pg_backend_pid()",
		kill:     "SELECT pg_terminate_backend(%d)",
		lock:     []string{"BEGIN", "LOCK TABLE idem_records IN ACCESS EXCLUSIVE MODE"},
		commit:   "commit",
	}
	mariaDB = sqlEngine{
		name: "MariaDB", start: backend.StartMariaDB,
		sessions: "SELECT id FROM information_schema.processlist WHERE db = '%s'",
		waiting:  "SELECT id FROM information_schema.processlist WHERE state LIKE 'Waiting for table%%' AND db = '%s'",
		blocked:  "SELECT id FROM information_schema.processlist WHERE state = 'Update' AND db = '%s'",
		self:     "SELECT CONNECTION_ID()",
		kill:     "KILL %d",
		lock:     []string{"LOCK TABLES idem_records WRITE"},
		commit:   "COMMIT",
	}
	sqlEngines = []sqlEngine{postgres, mariaDB}
)

func init() {
	// It logs each connection that breaks, which is what these tests do.
	_ = mysql.SetLogger(&mysql.NopLogger{})
}

func openSQL(t *testing.T, url string) *sql.DB {
	t.Helper()
	db, _, err := sqlstore.Open(url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func openSQLStore(t *testing.T, url string) store.Store {
	t.Helper()
	s, err := sqlstore.NewURL(t.Context(), url, sqlstore.Config{})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

var databases atomic.Int64

// freshDatabase makes a database on a server and returns its URL.
func freshDatabase(t *testing.T, server *backend.Server) string {
	name := "fault" + strconv.FormatInt(databases.Add(1), 10)
	db, _, err := sqlstore.Open(server.URL())
	require.NoError(t, err)
	defer db.Close()
	_, err = db.ExecContext(t.Context(), "CREATE DATABASE "+name)
	require.NoError(t, err)
	u, err := url.Parse(server.URL())
	require.NoError(t, err)
	u.Path = "/" + name
	return u.String()
}

// serve starts a server for the time of a test, and returns what makes databases on it.
func (e sqlEngine) serve(t *testing.T) func(t *testing.T) (url string) {
	server := e.start(t)
	return func(t *testing.T) string { return freshDatabase(t, server) }
}

// operator is somebody who looks after a database, over sessions on another one.
type operator struct {
	t    *testing.T
	e    sqlEngine
	url  string // of the database
	name string
	db   *sql.DB
}

func newOperator(t *testing.T, e sqlEngine, server *backend.Server, rawURL string) *operator {
	u, err := url.Parse(rawURL)
	require.NoError(t, err)
	return &operator{t: t, e: e, url: rawURL, name: u.Path[1:], db: openSQL(t, server.URL())}
}

// lock keeps everybody off the table of records, until unlock is called.
func (o *operator) lock() (unlock func()) {
	db, _, err := sqlstore.Open(o.url)
	if !assert.NoError(o.t, err) {
		return func() {}
	}
	conn, err := db.Conn(context.Background())
	if assert.NoError(o.t, err) {
		for _, s := range o.e.lock {
			_, err := conn.ExecContext(context.Background(), s)
			assert.NoError(o.t, err, s)
		}
		assert.NoError(o.t, conn.Close())
	}
	return func() { assert.NoError(o.t, db.Close()) }
}

// find returns the ids of sessions.
func (o *operator) find(query string) (ids []int64) {
	rows, err := o.db.QueryContext(context.Background(), fmt.Sprintf(query, o.name))
	if !assert.NoError(o.t, err) {
		return nil
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		assert.NoError(o.t, rows.Scan(&id))
		ids = append(ids, id)
	}
	assert.NoError(o.t, rows.Err())
	return ids
}

// await waits until a query finds so many sessions, and returns them.
func (o *operator) await(query string, n int) (ids []int64) {
	for deadline := time.Now().Add(patience); len(ids) < n; time.Sleep(5 * time.Millisecond) {
		if !assert.True(o.t, time.Now().Before(deadline), "still none: %s", query) {
			return nil
		}
		ids = o.find(query)
	}
	return ids
}

// end kills sessions and waits until they have gone.
func (o *operator) end(ids ...int64) {
	for _, id := range ids {
		_, err := o.db.ExecContext(context.Background(), fmt.Sprintf(o.e.kill, id))
		assert.NoError(o.t, err)
	}
	among := func(id int64) bool { return slices.Contains(ids, id) }
	for deadline := time.Now().Add(patience); slices.ContainsFunc(o.find(o.e.sessions), among); time.Sleep(5 * time.Millisecond) {
		if !assert.True(o.t, time.Now().Before(deadline), "sessions outlive their end") {
			return
		}
	}
}

// endAll kills all sessions.
func (o *operator) endAll() { o.end(o.find(o.e.sessions)...) }

func TestSQLSessions(t *testing.T) {
	t.Parallel()
	for _, e := range sqlEngines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			server := e.start(t)
			fresh := func(t *testing.T) (*operator, store.Store) {
				t.Parallel()
				url := freshDatabase(t, server)
				return newOperator(t, e, server, url), openSQLStore(t, url)
			}
			try := trier(t, sqlServers, e.name, fresh)
			uncertain := core.Record{Abandoned: core.Uncertain(nil)}
			try("sessions killed before the claim", newShop, core.Record{Lease: lease}, once, func(o *operator, s *shop) {
				for _, op := range three {
					o.endAll()
					s.until("201", op) // whether the driver notices in time is its own affair
					s.gets("201 replayed", op)
				}
			})
			try("session killed while its claim waits for a lock", newShop, core.Record{}, once, func(o *operator, s *shop) {
				for _, op := range three {
					unlock := o.lock()
					answer := s.sent(op)
					o.end(o.await(e.waiting, 1)...)
					unlock()
					require.Equal(s.t, "503 store_unavailable", <-answer)
					require.Zero(s.t, s.ledger.of(op))
					s.until("201", op)
					s.gets("201 replayed", op)
				}
			})
			try("sessions killed while the handler runs", newShop, uncertain, once, func(o *operator, s *shop) {
				s.while(first(o.endAll))
				s.answers(nothing, s.gets, "201 replayed") // the second try has brought it there
			})
			t.Run("eight idle sessions killed while a handler runs", func(t *testing.T) {
				o, records := fresh(t)
				s := newShop(t, records, core.Policy{Record: uncertain})
				var ops []string
				var answers []<-chan string
				unlock := o.lock() // so that each has a connection of its own, which stays in the pool
				for i := range 8 {
					ops = append(ops, "op-"+strconv.Itoa(i))
					answers = append(answers, s.sent(ops[i]))
				}
				o.await(e.waiting, len(ops))
				unlock()
				for i := range ops {
					require.Equal(t, "201", <-answers[i])
				}
				s.while(func(string, uint64) { o.endAll() })
				require.Equal(t, "201", s.send("op-8"))
				require.False(t, s.saw(core.RunUnfinished))
				require.Equal(t, "201 replayed", s.send("op-8"))
				ops = append(ops, "op-8")
				s.report(sqlServers, "eight idle sessions killed while a handler runs", e.name, tally{executions: len(ops)}, ops...)
			})
			try("session killed while its result waits for a lock", newShop, uncertain, once, func(o *operator, s *shop) {
				done := make(chan struct{}, len(three))
				s.while(func(string, uint64) {
					unlock := o.lock()
					go func() {
						o.end(o.await(e.waiting, 1)...)
						unlock()
						done <- struct{}{}
					}()
				})
				s.answers(func() { <-done }, s.gets, "201 replayed") // the second try has brought it there
			})
			brokenLink(t, sqlServers, e.name, func(t *testing.T) (*backend.Proxy, store.Store) {
				t.Parallel()
				proxy := backend.NewProxy(t, server.Addr())
				return proxy, openSQLStore(t, proxy.URL(freshDatabase(t, server)))
			})
		})
	}
}

func TestSQLServer(t *testing.T) {
	t.Parallel()
	for _, e := range sqlEngines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			server := e.start(t) // one after the other break it
			durableServer(t, sqlServers, e.name, func(t *testing.T) (*backend.Server, store.Store) {
				return server, openSQLStore(t, freshDatabase(t, server))
			})
		})
	}
}
