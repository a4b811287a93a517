package examples_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/idem-go/idem/core/store/sqlstore"
	"github.com/idem-go/idem/examples/internal/program"
	"github.com/idem-go/idem/internal/backend"
)

// stores are the stores behind which the shop must be the same, each with nobody else's
// records in it.
var stores = map[string]func(t *testing.T) (url string){
	"redis": func(t *testing.T) string { return backend.StartRedis(t).URL() },
	"postgres": func(t *testing.T) string {
		u, err := url.Parse(backend.Postgres(t))
		require.NoError(t, err)
		schema := fresh(t, u.String(), "CREATE SCHEMA ", "DROP SCHEMA ", " CASCADE")
		q := u.Query()
		q.Set("search_path", schema)
		u.RawQuery = q.Encode()
		return u.String()
	},
	"mysql": func(t *testing.T) string {
		u, err := url.Parse(backend.MySQL(t))
		require.NoError(t, err)
		u.Path = "/" + fresh(t, u.String(), "CREATE DATABASE ", "DROP DATABASE ", "")
		return u.String()
	},
	"sqlite": func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "shop.db") },
}

// fresh makes a name space in a database for the time of the test.
func fresh(t *testing.T, url, create, drop, how string) (name string) {
	db, _, err := sqlstore.Open(url)
	require.NoError(t, err)
	name = "idem_" + strings.ToLower(rand.Text()[:10])
	execute(t, db, create+name)
	t.Cleanup(func() {
		execute(t, db, drop+name+how)
		assert.NoError(t, db.Close())
	})
	return name
}

func execute(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	// The test's own context has ended when it cleans up.
	_, err := db.ExecContext(context.Background(), statement)
	require.NoError(t, err)
}

// resultsOutliveTheProgram: what one process has answered, the next one replays, and
// another one beside it too.
func resultsOutliveTheProgram(t *testing.T, dir string) {
	for store, open := range stores {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			flags := []string{"-store", open(t)}
			first := newClient(t, program.Start(t, filepath.Join(dir, "gin"), flags...))
			a := first.expect("201", "/payments", `{"amount":5}`, "Idempotency-Key", "durable")
			for _, name := range []string{"echo", "echo5"} {
				beside := newClient(t, program.Start(t, filepath.Join(dir, name), flags...))
				b := beside.expect("201 replayed", "/payments", `{"amount":5}`, "Idempotency-Key", "durable")
				require.Equal(t, a.body, b.body)
			}

			first.process.Kill(t)
			for _, name := range []string{"fiber", "fiber3"} {
				next := newClient(t, program.Start(t, filepath.Join(dir, name), flags...))
				b := next.expect("201 replayed", "/payments", `{"amount":5}`, "Idempotency-Key", "durable")
				require.Equal(t, a.body, b.body)
				next.expect("422 key_reused", "/payments", `{"amount":6}`, "Idempotency-Key", "durable")
				next.ran(0, "POST /payments")
			}
		})
	}
}

// tokensAreRationedOverTwoProcesses: a user gets no more of them by asking another process.
func tokensAreRationedOverTwoProcesses(t *testing.T, dir string) {
	redis := backend.StartRedis(t)
	var clients [2]*client
	for i, name := range []string{"echo", "fiber"} {
		clients[i] = newClient(t, program.Start(t, filepath.Join(dir, name), "-store", redis.URL()))
	}
	began, served := time.Now(), 0
	for ; ; served++ {
		a := clients[served%2].get("/tokens", "X-User", "greedy")
		if a.status == 429 {
			break
		}
		require.Equal(t, 200, a.status)
	}
	require.GreaterOrEqual(t, served, 20)
	require.LessOrEqual(t, served, 20*(1+int(time.Since(began)/time.Minute)))
}

// tenThousandDuplicatesOverTwoProcesses: one of them runs, and everybody gets an honest
// answer: the one that runs, its answer again, that it is under way, or, from a machine that is
// too busy, that the store did not answer in time. Who tries again gets the first answer.
func tenThousandDuplicatesOverTwoProcesses(t *testing.T, dir string) {
	n := min(10_000, openFiles()-1000)
	redis := backend.StartRedis(t)
	var processes []*program.Process
	for _, name := range []string{"gin", "fiber"} {
		processes = append(processes, program.Start(t, filepath.Join(dir, name), "-store", redis.URL()))
	}
	transport := &http.Transport{MaxIdleConnsPerHost: n}
	t.Cleanup(transport.CloseIdleConnections)
	var clients []*client
	for _, p := range processes {
		c := newClient(t, p)
		c.http = &http.Client{Transport: transport, Timeout: 2 * time.Minute}
		clients = append(clients, c)
	}

	for _, route := range []struct {
		path, name string
		waits      bool
	}{{"/payments", "POST /payments", false}, {"/transfers", "POST /transfers", true}} {
		answers := make([]answer, n)
		var wg sync.WaitGroup
		gate := make(chan struct{})
		for i := range n {
			wg.Go(func() {
				<-gate
				// A busy server closes connections that are silent for long, or answers 408 (fasthttp); a
				// client then tries again, which is one more duplicate.
				for range 10 {
					answers[i] = clients[i%2].send(route.path, `{"amount":5}`, "Idempotency-Key", "one-of-many", "X-Demo-Sleep", "2s")
					if answers[i].err == nil && answers[i].status != http.StatusRequestTimeout {
						return
					}
				}
			})
		}
		close(gate)
		wg.Wait()

		seen := map[string]int{}
		bodies := map[string]bool{}
		for _, a := range answers {
			switch {
			case a.err != nil:
				seen[a.err.Error()]++
			case a.status == 201:
				bodies[string(a.body)] = true
				seen[a.summary()]++
			default:
				seen[a.summary()+", Retry-After "+a.header.Get("Retry-After")]++
			}
		}
		t.Logf("%s: %v", route.path, seen)
		ran := 0
		for _, c := range clients {
			ran += c.executions()[route.name]
		}
		assert.Equal(t, 1, ran, "executions")
		assert.Equal(t, 1, seen["201"], "first answers")
		assert.Len(t, bodies, 1)
		again := n - seen["201"] - seen["201 replayed"]
		assert.Equal(t, again, seen["409 in_progress, Retry-After 1"]+seen["503 store_unavailable, Retry-After 1"], "%v", seen)
		if route.waits {
			assert.Positive(t, seen["201 replayed"])
		}
		for i := range again {
			a := clients[i%2].expect("201 replayed", route.path, `{"amount":5}`, "Idempotency-Key", "one-of-many")
			bodies[string(a.body)] = true
		}
		assert.Len(t, bodies, 1)
	}
}
