package sqlstore_test

import (
	"crypto/rand"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/sqlstore"
	"github.com/idem-go/idem/internal/backend"
)

// TestGalera: a record that was made on one node of a cluster is found on the other, which lags behind.
func TestGalera(t *testing.T) {
	nodes := backend.StartGalera(t)
	var pools [2]*sql.DB
	for i, node := range nodes {
		pools[i], _ = open(t, with(node.URL(), "wsrep_sync_wait=3"))
		require.Eventually(t, func() bool {
			var name, state string
			err := pools[i].QueryRow("SHOW STATUS LIKE 'wsrep_local_state_comment'").Scan(&name, &state)
			return err == nil && state == "Synced"
		}, time.Minute, 50*time.Millisecond)
	}

	// Sessions that do not wait are refused, at the start.
	careless, dialect := open(t, nodes[1].URL())
	s := newOn(t, careless, dialect, sqlstore.Config{})
	require.ErrorContains(t, s.Migrate(t.Context()), "wsrep_sync_wait")
	_, err := sqlstore.NewURL(t.Context(), with(nodes[1].URL(), "wsrep_sync_wait=1"), sqlstore.Config{})
	require.ErrorContains(t, err, "wsrep_sync_wait")

	var stores [2]*sqlstore.Store
	for i, node := range nodes {
		stores[i], err = sqlstore.NewURL(t.Context(), node.URL(), sqlstore.Config{})
		require.NoError(t, err)
		t.Cleanup(stores[i].Close)
	}

	// Where the table is there, only the session is at fault, and nothing is made.
	made := func() (name string, n int) {
		require.NoError(t, careless.QueryRow("SHOW GLOBAL STATUS LIKE 'Com_create_table'").Scan(&name, &n))
		return name, n
	}
	_, before := made()
	require.ErrorContains(t, s.Migrate(t.Context()), "wsrep_sync_wait")
	_, after := made()
	require.Equal(t, before, after)

	// The first node has so much to write that the second lags.
	for _, q := range []string{
		"CREATE TABLE ballast (id INT PRIMARY KEY, n INT NOT NULL, filling CHAR(200) NOT NULL)",
		"INSERT INTO ballast SELECT seq, 0, '' FROM seq_1_to_5000",
		"CREATE TABLE entries (id BIGINT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(64) NOT NULL, amount BIGINT NOT NULL)",
	} {
		_, err := pools[0].Exec(q)
		require.NoError(t, err)
	}
	done := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				_, err := pools[0].Exec("UPDATE ballast SET n = n + 1")
				if fault := sqlstore.Class(dialect, err); err != nil && fault != sqlstore.ClassTransient && fault != sqlstore.ClassLocked {
					t.Errorf("the load: %v", err)
					return
				}
			}
		}
	})
	stop := sync.OnceFunc(func() { close(done); writing.Wait() })
	t.Cleanup(stop)
	for i := range 40 {
		key := fmt.Sprint("k", i)
		c := claim(time.Hour)
		g, err := stores[0].Acquire(t.Context(), key, c)
		require.NoError(t, err)
		require.Equal(t, store.Acquired, g.State)
		require.NoError(t, stores[1].Complete(t.Context(), key, c.Owner, []byte("result"), time.Hour), i)
		g, err = stores[0].Acquire(t.Context(), key, claim(time.Hour))
		require.NoError(t, err)
		require.Equal(t, store.Done, g.State)
	}
	stop()

	// Of duplicates on both nodes one commits, whichever the cluster lets pass.
	first := &books{t: t, store: stores[0], db: pools[0], rows: "entries"}
	first.atOnce(&books{t: t, store: stores[1], db: pools[1], rows: "entries"})

	// A node that is left alone takes no commands, and says so.
	nodes[0].Kill()
	require.Eventually(t, func() bool {
		_, err = stores[1].Acquire(t.Context(), rand.Text(), claim(time.Hour))
		return err != nil && strings.Contains(err.Error(), "WSREP has not yet prepared node")
	}, time.Minute, 50*time.Millisecond)
}
