package core

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/store"
)

// The list of runs holds those that have begun and not ended, in whatever order they end.
func TestRunsEndInAnyOrder(t *testing.T) {
	guard := &Guard{policy: Policy{Record: Record{Lease: time.Hour}}}
	for _, order := range [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		var l runs
		var all [3]*runContext
		left := map[*runContext]bool{}
		for i := range all {
			all[i] = &runContext{Run: Run{guard: guard}, started: time.Now()}
			left[all[i]] = true
			require.True(t, l.begin(all[i], time.Now()))
		}
		l.timer.Stop()
		for _, i := range order {
			l.endLease(all[i])
			l.endLease(all[i]) // which does nothing
			delete(left, all[i])
			listed := map[*runContext]bool{}
			for c := l.head; c != nil && len(listed) < len(all); c = c.next {
				listed[c] = true
			}
			require.Equal(t, left, listed, order)
		}
		require.Nil(t, l.head, order)
	}
}

// Leases are renewed at a third of their time, and when that fails, at a tenth, until they end.
func TestRenewalsArePaced(t *testing.T) {
	for name, tc := range map[string]struct {
		renew error
		calls int64
		lasts time.Duration
	}{
		"renewed":     {nil, 59, time.Minute - time.Millisecond},
		"not renewed": {errors.New("connection refused"), 8, 3 * time.Second},
		"lost":        {store.ErrLost, 1, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &stubborn{grant: store.Grant{State: store.Acquired, Attempt: 1}, renew: tc.renew}
			task := MustNew(Config{Service: "shop", Store: s}).MustTask(TaskPolicy{Name: "n", Record: Record{Lease: 3 * time.Second}})
			begun := time.Now()
			_, _ = Do(t.Context(), task, Call{Key: "k"}, func(ctx context.Context) (int, error) {
				sleep(ctx, time.Minute-time.Millisecond)
				assert.Equal(t, tc.lasts, time.Since(begun), name)
				return 0, nil
			})
			time.Sleep(time.Minute)
			assert.Equal(t, 1+tc.calls, s.calls.Load(), "%s: nothing is renewed when nothing runs", name)
		})
	}
}
