package faults_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/internal/backend"
)

// TestRedisLosesAcknowledgedRecordsAtFailover measures how many: the master is killed under
// load, the replica is promoted, and what clients had been told is looked for there.
func TestRedisLosesAcknowledgedRecordsAtFailover(t *testing.T) {
	const kills = 3
	for _, delay := range []time.Duration{0, 5 * time.Millisecond, 50 * time.Millisecond} {
		t.Run(delay.String(), func(t *testing.T) {
			told, lost, struck := 0, 0, 0
			for range kills {
				a, b := failover(t, delay)
				told, lost = told+a, lost+b
				if b > 0 {
					struck++
				}
			}
			require.Greater(t, told, 100, "this measures nothing")
			if delay >= 50*time.Millisecond {
				require.Positive(t, lost, "what was written within the delay can't have arrived")
			}
			measured.Lock()
			defer measured.Unlock()
			measured.lines = append(measured.lines, fmt.Sprintf("| %v | %d | %d | %d | %d |\n", delay, kills, struck, told, lost))
		})
	}
}

// failover returns how many operations were done by a master that was then killed, and how
// many of them the promoted replica knows nothing of.
func failover(t *testing.T, delay time.Duration) (told, lost int) {
	master, replica := replicated(t), replicated(t)
	link := backend.NewProxy(t, master.Addr())
	replicate(t, master, link.Addr(), replica)
	link.Delay(delay)

	store := openRedis(t, master.URL())
	ctx, stop := context.WithCancel(t.Context())
	var mu sync.Mutex
	var done []string
	var wg sync.WaitGroup
	enough := make(chan struct{})
	for client := range 4 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				key := strconv.Itoa(client) + ":" + strconv.Itoa(i)
				claim := core.Claim{Owner: core.NewOwner(), Lease: time.Hour, Retention: time.Hour}
				if g, err := store.Acquire(ctx, key, claim); err != nil || g.State != core.Acquired {
					return
				}
				if store.Complete(ctx, key, claim.Owner, []byte("result"), time.Hour) != nil {
					return
				}
				mu.Lock()
				if done = append(done, key); len(done) == 500 {
					close(enough)
				}
				mu.Unlock()
			}
		})
	}
	<-enough
	link.Cut()
	master.Kill() // under load; what is still on the link is gone, too
	stop()
	wg.Wait()

	command(t, replica, "REPLICAOF", "NO", "ONE")
	promoted := openRedis(t, replica.URL())
	for _, key := range done {
		g, err := promoted.Acquire(t.Context(), key, core.Claim{Owner: core.NewOwner(), Lease: time.Hour, Retention: time.Hour})
		require.NoError(t, err)
		if g.State != core.Done {
			lost++ // the operation would run again
		}
	}
	return len(done), lost
}
