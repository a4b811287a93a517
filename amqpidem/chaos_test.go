package amqpidem

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/store/sqlstore"
	"github.com/idem-go/idem/internal/backend"
)

// job configures a worker process.
type job struct {
	AMQP, Database string
	Ledger         string // name of the table
	Topology       Topology
	Inbox          bool   // the effect and its mark are one transaction
	Held           string // the id of a message: who makes its effect first never makes the record of it
}

// TestChaos kills workers and their broker while messages come more than once, and counts the
// effects in a ledger. With the inbox each message has one. With the guard alone, some have another one
// after a process that was killed when it had made the effect, and not yet the record of it.
func TestChaos(t *testing.T) {
	t.Parallel()
	messages, kills, restarts := 2000, 5, 2
	if testing.Short() {
		messages, kills, restarts = 500, 2, 1
	}
	if os.Getenv("IDEM_LONG") == "1" {
		messages = 10_000
	}
	database := backend.Postgres(t)
	db := must(sql.Open("pgx", database))
	t.Cleanup(func() { _ = db.Close() })
	broker := backend.StartRabbitMQ(t)
	for _, inbox := range []bool{true, false} {
		t.Run(map[bool]string{true: "inbox", false: "guard alone"}[inbox], func(t *testing.T) {
			chaos(t, db, broker, job{Database: database, Inbox: inbox}, messages, kills, restarts)
		})
	}
}

func chaos(t *testing.T, db *sql.DB, broker *backend.Server, j job, messages, kills, restarts int) {
	j.AMQP, j.Ledger = broker.URL(), "idem_ledger_"+strings.ToLower(rand.Text())
	must(db.Exec("CREATE TABLE " + j.Ledger + " (message text NOT NULL, pid int NOT NULL, attempt int NOT NULL, n serial)"))
	t.Cleanup(func() { must(db.Exec("DROP TABLE " + j.Ledger + ", " + j.Ledger + "_records")) })
	store := must(sqlstore.New(db, sqlstore.PostgreSQL, sqlstore.Config{Table: j.Ledger + "_records"}))
	t.Cleanup(store.Close)
	require.NoError(t, store.Migrate(t.Context()))
	k := newKitAt(t, broker.URL(), func(k *kit) {
		k.topology.DeliveryLimit = -1
		k.topology.Delays = []time.Duration{50 * time.Millisecond, 200 * time.Millisecond, time.Second}
	})
	j.Topology = k.topology
	require.NoError(t, k.topology.Declare(k.conn))
	k.settle()
	require.NoError(t, k.conn.Close())

	// One message in ten is published twice, and the broker goes while they are.
	var all []Message
	for i := range messages {
		all = append(all, k.message(fmt.Sprint(i)))
		if i%10 == 0 {
			all = append(all, k.message(fmt.Sprint(i)))
		}
	}
	mathrand.Shuffle(len(all), func(a, b int) { all[a], all[b] = all[b], all[a] })
	j.Held = all[0].Publishing.MessageId
	var publishing sync.WaitGroup
	publishing.Go(func() {
		for some := range slices.Chunk(all, 100) {
			if err := k.publisher.Publish(context.Background(), some...); err != nil {
				t.Error(err)
			}
		}
	})

	workers := []*exec.Cmd{worker(t, j), worker(t, j)}
	killed := map[int]bool{}
	effects := func() (distinct, total int) {
		require.NoError(t, db.QueryRow("SELECT count(DISTINCT message), count(*) FROM "+j.Ledger).Scan(&distinct, &total))
		return distinct, total
	}
	// Faults come while there is work, spread over the first three quarters of it.
	faults := kills + restarts
	for i := range faults {
		k.eventually("progress", func() bool {
			done, _ := effects()
			return done >= messages*3/4*(i+1)/(faults+1)
		})
		if restarts > 0 && i%3 == 1 {
			restarts--
			broker.Kill()
			broker.Start()
			continue
		}
		victim := i % 2
		if i == 0 && !j.Inbox { // whoever holds a message: at least one kill strikes between effect and record
			pid := 0
			k.eventually("the effect of the message that is held", func() bool {
				return db.QueryRow("SELECT pid FROM "+j.Ledger+" WHERE message = $1", j.Held).Scan(&pid) == nil
			})
			victim = slices.IndexFunc(workers, func(w *exec.Cmd) bool { return w.Process.Pid == pid })
		}
		w := workers[victim]
		require.NoError(t, w.Process.Kill())
		_ = w.Wait()
		killed[w.Process.Pid] = true
		workers[victim] = worker(t, j)
	}
	require.Len(t, killed, kills)
	done := 0
	for before := -1; before < done && done < messages; { // as long as there is progress
		before = done
		deadline := time.Now().Add(patience)
		for done == before && time.Now().Before(deadline) {
			time.Sleep(10 * time.Millisecond)
			done, _ = effects()
		}
	}
	require.Equal(t, messages, done)
	publishing.Wait()
	k.conn = must(amqp.Dial(broker.URL()))
	defer k.conn.Close()
	k.ch = must(k.conn.Channel())
	// Let what is on its way, duplicates too, come to its end.
	k.eventually("an end", func() bool {
		left := 0
		for _, name := range k.topology.Queues() {
			left += must(k.ch.QueueDeclarePassive(name, true, false, false, false, nil)).Messages
		}
		return left == 0
	})
	for _, w := range workers {
		require.NoError(t, w.Process.Signal(os.Interrupt))
		require.NoError(t, w.Wait(), "it drains")
	}
	// What a connection that broke at the end has brought back is of no effect any more; but nothing is dead.
	require.Zero(t, must(k.ch.QueueDeclarePassive(k.topology.DeadLetters(), true, false, false, false, nil)).Messages)

	distinct, total := effects()
	require.Equal(t, messages, distinct)
	if j.Inbox {
		t.Logf("%d messages, %d published, %d workers killed: %d effects", messages, len(all), kills, total)
		require.Equal(t, messages, total, "each effect exactly once")
		return
	}
	// The rest: each further effect is of a run that took over, after one whose process was killed.
	rows, err := db.Query("SELECT message, pid, attempt FROM " + j.Ledger + " WHERE message IN (SELECT message FROM " + j.Ledger +
		" GROUP BY message HAVING count(*) > 1) ORDER BY message, n")
	require.NoError(t, err)
	defer rows.Close()
	before, beforePid, further := "", 0, 0
	for rows.Next() {
		var message string
		var pid, attempt int
		require.NoError(t, rows.Scan(&message, &pid, &attempt))
		if message == before {
			further++
			require.Greater(t, attempt, 1, "message %s: a run that took over", message)
			require.True(t, killed[beforePid], "message %s: the process before was killed", message)
		}
		before, beforePid = message, pid
	}
	require.NoError(t, rows.Err())
	t.Logf("%d messages, %d published, %d workers killed: %d effects, %d of them again, each after a killed process",
		messages, len(all), kills, total, further)
	require.Equal(t, total-messages, further)
	require.Positive(t, further, "nothing was shown")
	require.LessOrEqual(t, further, kills*concurrency, "at most one for each function that a kill has struck")
}

const concurrency = 16 // of a worker

// worker starts this test binary as a worker process.
func worker(t *testing.T, j job) *exec.Cmd {
	text := must(json.Marshal(j))
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "IDEM_AMQP_WORKER="+string(text))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}
