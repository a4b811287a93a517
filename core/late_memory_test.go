package core_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/internal/race"
)

// unwritable is a store that keeps nothing, so that memory is the engine's. While it is down, no result can be stored.
type unwritable struct{ down atomic.Bool }

func (*unwritable) Capabilities() store.Capabilities { return store.Capabilities{InProcess: true} }

func (*unwritable) Acquire(_ context.Context, _ string, c store.Claim) (store.Grant, error) {
	return store.Grant{State: store.Acquired, ID: c.About.ID, Attempt: 1}, nil
}

func (s *unwritable) Complete(context.Context, string, store.Owner, []byte, time.Duration) error {
	if s.down.Load() {
		return errDown
	}
	return nil
}

func (s *unwritable) Renew(ctx context.Context, key string, owner store.Owner, lease time.Duration) error {
	return s.Complete(ctx, key, owner, nil, lease)
}
func (*unwritable) Release(context.Context, string, store.Owner) error { return nil }
func (*unwritable) Abandon(context.Context, string, store.Owner) error { return nil }

// Results that a store does not take fill as much memory as UnsettledLimit says. What does not fit is given up as before, and nothing is
// left when the store is back.
func TestGrowthOfUnsettled(t *testing.T) {
	race.Skip(t, "the race detector keeps memory of its own")
	runs, workers := 10_000, 100
	if testing.Short() {
		runs /= 5
	}
	synctest.Test(t, func(t *testing.T) {
		records := &unwritable{}
		var unsettled, late, unfinished, others atomic.Int64
		observe := func(_ context.Context, ev core.Event) {
			switch {
			case ev.Kind == core.Unsettled:
				unsettled.Add(1)
			case ev.Kind == core.Completed && ev.Late:
				late.Add(1)
			case ev.Kind == core.RunUnfinished && !ev.Late:
				unfinished.Add(1)
			case ev.Kind != core.Started:
				others.Add(1)
			}
		}
		e := core.MustNew(core.Config{User: byUser, Store: records, StoreTimeout: 100 * time.Millisecond, Observe: observe})
		task, guard := e.MustTask(core.TaskPolicy{Name: "export"}), e.MustGuard(core.Policy{Key: core.Header(core.Required)})
		body := make([]byte, 64<<10)
		run := func(i int) {
			key := fmt.Sprint(i)
			if i%2 == 0 {
				_, err := core.Do(t.Context(), task, core.Call{Key: key},
					func(context.Context) ([]byte, error) { return make([]byte, len(body)), nil })
				assert.NoError(t, err)
				return
			}
			assert.NoError(t, guard.Serve(t.Context(), &null{key: key, resp: core.Response{Status: 201, Body: body}}))
		}
		run(runs)
		run(runs + 1) // what is made once is there
		others.Store(0)
		before, goroutines := heap(), runtime.NumGoroutine()

		records.down.Store(true)
		var all sync.WaitGroup
		for w := range workers {
			all.Go(func() {
				for i := w; i < runs; i += workers {
					run(i)
				}
			})
		}
		all.Wait()
		const limit, each = 64 << 20, 64<<10 + 1<<10
		kept := int64(e.Unsettled())
		t.Logf("%d of %d runs are unsettled, and %d MiB more in use", kept, runs, (heap()-before)>>20)
		assert.LessOrEqual(t, kept*each, int64(limit))
		assert.Greater(t, (kept+2)*(each+128), int64(limit), "there was room for more")
		assert.Equal(t, kept, unsettled.Load())
		assert.Equal(t, int64(runs)-kept, unfinished.Load())
		assert.Less(t, heap(), before+limit+limit/4, "memory is allocated in sizes that are up to an eighth larger")

		records.down.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Zero(t, e.Unsettled())
		assert.Equal(t, kept, late.Load())
		assert.Equal(t, int64(runs)-kept, unfinished.Load())
		assert.Zero(t, others.Load())
		assert.Less(t, heap(), before+1<<20)
		assert.Equal(t, goroutines, runtime.NumGoroutine())
	})
}
