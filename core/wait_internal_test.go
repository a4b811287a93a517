package core

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A waiter may count itself out of a group, and get the lock only when that group is gone and others wait in a
// new one.
func TestLateLeaverSparesItsSuccessors(t *testing.T) {
	var l waitersByOperation
	guard := new(Guard)
	first, second := &waiter{guard: guard}, &waiter{guard: guard}
	l.join(first)
	gone := first.group
	l.leave(gone, true)
	require.Empty(t, l.all)
	l.join(second)
	require.NotSame(t, gone, second.group)

	gone.count.Store(1) // the late leaver, which leave counts out
	l.leave(gone, false)
	require.Same(t, second.group, l.all[second.group.operation])
	l.leave(second.group, true)
	require.Empty(t, l.all)
}

// A waiter that has its answer does not call the store, and waits for nobody who does.
func TestAnsweredWaiterNeedsNoSlot(t *testing.T) {
	e := &Engine{waiterCalls: make(chan struct{}, 1)}
	e.waiterCalls <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := waiter{guard: &Guard{engine: e}, until: time.Now().Add(time.Hour)}
	require.False(t, w.takeSlot(ctx), "there is none")
	w.answered = true
	require.True(t, w.takeSlot(ctx))
	w.freeSlot()
	require.Len(t, e.waiterCalls, 1, "it had none to give back")
	w.stopWaiting()
}

// A result stays with those who awaited it: later callers, and what becomes of the run's memory, do not touch it.
func TestHandovers(t *testing.T) {
	var l handovers
	var key Key
	buf := []byte("first")
	first := l.join(key)
	l.handOver(key, buf)
	copy(buf, "other")
	next := l.join(key)
	l.leave(key, first)
	l.handOver(key, buf)
	require.Equal(t, "first", string(first.grant.Result))
	require.Equal(t, "other", string(next.grant.Result))
	l.leave(key, next)
	require.Empty(t, l.all)
}
