package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The list of runs holds those that have begun and not ended, in whatever order they end.
func TestRunsEndInAnyOrder(t *testing.T) {
	guard := &Guard{policy: Policy{Lease: time.Hour}}
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
