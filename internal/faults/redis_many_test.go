package faults_test

import (
	"context"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/internal/backend"
)

// TestManyOperations: two processes call each operation at the same time, while connections are cut and the server forgets its scripts.
// Each operation is done once, by the ledger, and both get the answer of that run.
func TestManyOperations(t *testing.T) {
	for _, kind := range redisKinds {
		t.Run(kind.name, func(t *testing.T) { t.Parallel(); manyOperations(t, kind.start) })
	}
}

func manyOperations(t *testing.T, start func(testing.TB, ...string) *backend.Server) {
	many, workers, between := 2000, 16, int64(40) // so many calls are answered between two cuts, however slow the machine is
	if os.Getenv("IDEM_LONG") != "" {
		many, workers, between = 1_000_000, 128, 8000
	}
	server := start(t)
	var links [2]*backend.Proxy
	var tasks [2]*core.Task
	for i := range tasks {
		links[i] = backend.NewProxy(t, server.Addr())
		engine := core.MustNew(core.Config{Service: "many", Store: openRedis(t, links[i].URL(server.URL()), redisstore.Config{})})
		tasks[i] = engine.MustTask(core.TaskPolicy{Name: "operation", Duplicate: core.Wait(time.Second),
			Record: core.Record{Lease: 10 * time.Second, Retention: time.Hour}}) // else it may be taken over, and done twice
	}
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	ledger := make([]atomic.Int32, many)
	var refused, replayed, done atomic.Int64
	ended := make(chan struct{})
	var calling, disturbing sync.WaitGroup
	for w := range workers {
		calling.Go(func() {
			for i := w / 2; i < many; i += workers / 2 {
				for {
					result, err := core.Do(context.Background(), tasks[w%2], core.Call{Key: strconv.Itoa(i)},
						func(context.Context) (string, error) {
							return strconv.Itoa(i) + " done " + strconv.Itoa(int(ledger[i].Add(1))), nil
						})
					if err == nil {
						assert.Equal(t, strconv.Itoa(i)+" done 1", result.Value)
						if done.Add(1); result.Replayed {
							replayed.Add(1)
						}
						break
					}
					refused.Add(1)
					time.Sleep(time.Millisecond) // as a client does
				}
			}
		})
	}
	cuts := 0
	disturbing.Go(func() {
		for last := int64(0); ; {
			select {
			case <-ended:
				return
			case <-time.After(5 * time.Millisecond):
			}
			if done.Load()-last < between {
				continue
			}
			last = done.Load()
			if cuts++; cuts%4 == 0 {
				assert.NoError(t, client.Do(context.Background(), client.B().ScriptFlush().Build()).Error())
			}
			links[cuts%2].Cut()
			links[cuts%2].Restore()
		}
	})
	calling.Wait()
	close(ended)
	disturbing.Wait()
	for i := range ledger {
		if n := ledger[i].Load(); n != 1 {
			t.Errorf("operation %d was done %d times", i, n)
		}
	}
	require.EqualValues(t, 2*many, done.Load())
	require.Positive(t, cuts)
	t.Logf("%d operations, %d calls replayed, %d refused and made again, %d cuts", many, replayed.Load(), refused.Load(), cuts)
}
