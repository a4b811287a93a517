package sqlstore_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/sqlstore"
)

// childFile names the environment variable that makes the test binary a service on a file of
// SQLite, see child.
const childFile = "IDEM_SQLSTORE_CHILD"

// child carries out operations until it is killed, and says of each that it is done when the
// store has said so. Every other one is a DoTx, with a business row.
func child() {
	die := func(err error) {
		if err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
	}
	ctx := context.Background()
	url := os.Getenv(childFile)
	s, err := sqlstore.NewURL(ctx, url)
	die(err)
	db, _, err := sqlstore.Open(url)
	die(err)
	_, err = db.Exec("CREATE TABLE IF NOT EXISTS business (name TEXT NOT NULL)")
	die(err)
	for i := 0; ; i++ {
		key := fmt.Sprintf("%d/%d", os.Getpid(), i)
		if i%2 == 0 {
			c := store.Claim{Owner: store.NewOwner(), Lease: time.Hour, Retention: time.Hour}
			_, err := s.Acquire(ctx, key, c)
			die(err)
			die(s.Complete(ctx, key, c.Owner, []byte("result of "+key), time.Hour))
		} else {
			_, err := s.DoTx(ctx, db, key, func(tx *sql.Tx) ([]byte, error) {
				_, err := tx.Exec("INSERT INTO business (name) VALUES (?)", key)
				return []byte("result of " + key), err
			})
			die(err)
		}
		fmt.Println(key)
	}
}

// TestKilled: whatever was acknowledged is there after a SIGKILL, and business rows and
// records are there together or not at all.
func TestKilled(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "idem.db")
	var acknowledged []string
	for _, lines := range []int{1, 20, 75, 76} {
		acknowledged = append(acknowledged, kill(t, url, lines)...)
	}

	s, err := sqlstore.NewURL(t.Context(), url)
	require.NoError(t, err)
	defer s.Close()
	for _, key := range acknowledged {
		g, err := s.Acquire(t.Context(), key, claim(time.Hour))
		require.NoError(t, err)
		require.Equal(t, store.Done, g.State, key)
		require.Equal(t, "result of "+key, string(g.Result))
	}

	db, _ := open(t, url)
	var rows, both int
	require.NoError(t, db.QueryRow("SELECT COUNT(*), COUNT(DISTINCT name) FROM business").Scan(&rows, &both))
	assert.Equal(t, both, rows, "an operation took effect twice")
	require.NoError(t, db.QueryRow("SELECT COUNT(*) FROM business JOIN idem_records ON serial_number = CAST(name AS BLOB) AND state = 2").Scan(&both))
	assert.Equal(t, both, rows, "business rows without a record")
	var records int // of DoTx: those that end in an odd digit
	require.NoError(t, db.QueryRow("SELECT COUNT(*) FROM idem_records WHERE CAST(serial_number AS TEXT) GLOB '*[13579]'").Scan(&records))
	assert.Equal(t, rows, records, "records without a business row")
	assert.GreaterOrEqual(t, rows, len(acknowledged)/2-4)
	t.Logf("%d operations were acknowledged before 4 kills", len(acknowledged))

	// A restart is a kill that was announced.
	require.Greater(t, len(kill(t, url, 5)), 4)
}

// kill runs a child until it has printed so many lines, kills it, and returns all that it has
// printed.
func kill(t *testing.T, url string, lines int) (acknowledged []string) {
	t.Helper()
	binary, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), binary) // killed with the test, too
	cmd.Env = append(os.Environ(), childFile+"="+url)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	in := bufio.NewScanner(out)
	for in.Scan() {
		if line := in.Text(); len(line) > 6 && line[:6] == "error:" {
			t.Error("the child: ", line)
			break
		}
		acknowledged = append(acknowledged, in.Text())
		if len(acknowledged) == lines {
			require.NoError(t, cmd.Process.Kill())
		}
	}
	require.Error(t, cmd.Wait(), "nobody has killed the child")
	require.GreaterOrEqual(t, len(acknowledged), lines)
	return acknowledged
}
