package faults_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/internal/backend"
)

const load = 2000 // operations before the master is gone: more than the slowest link delays

// TestRedisLosesAcknowledgedRecordsAtFailover measures how many: the master is killed under
// load, the replica is promoted, and what clients had been told is looked for there. A store that waits for the replica
// loses nothing.
func TestRedisLosesAcknowledgedRecordsAtFailover(t *testing.T) {
	t.Parallel()
	kills := 6
	if testing.Short() {
		kills = 2
	}
	for _, test := range []struct {
		clients  int
		delay    time.Duration
		replicas int
	}{{4, 0, 0}, {16, 0, 0}, {16, time.Millisecond, 0}, {16, 50 * time.Millisecond, 0}, {16, 0, 1}, {16, time.Millisecond, 1}} {
		t.Run(fmt.Sprintf("%d clients, %v, replicas waited for: %d", test.clients, test.delay, test.replicas), func(t *testing.T) {
			acknowledged, lost, struck := 0, 0, 0
			var elapsed time.Duration
			for range kills {
				a, b, d := failover(t, test.clients, test.delay,
					redisstore.Config{WaitForReplicas: test.replicas, ReplicaTimeout: patience})
				acknowledged, lost, elapsed = acknowledged+a, lost+b, elapsed+d
				if b > 0 {
					struck++
				}
			}
			require.GreaterOrEqual(t, acknowledged, kills*load)
			switch {
			case test.replicas > 0:
				require.Zero(t, lost)
			case test.delay >= 50*time.Millisecond:
				require.Positive(t, lost, "what was written within the delay can't have arrived")
			}
			measured.Lock()
			defer measured.Unlock()
			rate := float64(kills*load) / elapsed.Seconds()
			measured.lines = append(measured.lines, fmt.Sprintf("| %d | %v | %d | %.0f | %d | %d | %d | %d |\n",
				test.clients, test.delay, test.replicas, rate, kills, struck, acknowledged, lost))
			t.Log(measured.lines[len(measured.lines)-1])
		})
	}
}

// failover returns how many operations were done by a master that was then killed, how many of
// them the promoted replica knows nothing of, and how long the load took.
func failover(t *testing.T, clients int, delay time.Duration, config redisstore.Config) (acknowledged, lost int, elapsed time.Duration) {
	master, replica := replicated(t), replicated(t)
	link := backend.NewProxy(t, master.Addr())
	replicate(t, master, link.Addr(), replica)
	warm := store.Claim{Owner: store.NewOwner(), Lease: time.Hour, Retention: time.Hour}
	connections := make([]store.Store, clients) // one for each, as processes have
	for i := range connections {
		connections[i] = openRedis(t, master.URL(), config)
		_, err := connections[i].Acquire(t.Context(), "warm", warm)
		require.NoError(t, err)
	}
	caughtUp(t, master) // the replica has not only a copy, but follows
	link.Delay(delay)

	ctx, stop := context.WithCancel(t.Context())
	var mu sync.Mutex
	var done []string
	var wg sync.WaitGroup
	enough := make(chan struct{})
	for client, records := range connections {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				key := strconv.Itoa(client) + ":" + strconv.Itoa(i)
				claim := store.Claim{Owner: store.NewOwner(), Lease: time.Hour, Retention: time.Hour}
				if g, err := records.Acquire(ctx, key, claim); err != nil || g.State != store.Acquired {
					return
				}
				if records.Complete(ctx, key, claim.Owner, []byte("result"), time.Hour) != nil {
					return
				}
				mu.Lock()
				if done = append(done, key); len(done) == load {
					close(enough)
				}
				mu.Unlock()
			}
		})
	}
	started := time.Now()
	<-enough
	elapsed = time.Since(started)
	// The machine vanishes under load, and with it what is on its way to the replica. To wait
	// until the server has ended would give that the time to arrive.
	process, err := os.FindProcess(master.Pid())
	require.NoError(t, err)
	require.NoError(t, process.Signal(os.Kill))
	link.Cut()
	master.Kill()
	stop()
	wg.Wait()

	command(t, replica, "REPLICAOF", "NO", "ONE")
	promoted := openRedis(t, replica.URL(), redisstore.Config{})
	for _, key := range done {
		g, err := promoted.Acquire(t.Context(), key, store.Claim{Owner: store.NewOwner(), Lease: time.Hour, Retention: time.Hour})
		require.NoError(t, err)
		if g.State != store.Done {
			lost++ // the operation would run again
		}
	}
	return len(done), lost, elapsed
}
