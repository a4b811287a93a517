package core

import (
	"context"
	"time"
)

// Drain prepares a shutdown. From now on a request that would run is refused with 503 shutting_down ([codes.ShuttingDown]).
// Duplicates of finished operations are still answered. Drain waits for the runs that have begun, and returns nil when the last one
// is settled. That includes unsettled runs ([Unsettled]), which Drain tries to settle at once.
//
// When ctx ends first, Drain gives up unsettled runs ([RunUnfinished]). It ends the contexts of the remaining runs with
// [ErrShutdown], gives them [Config.StoreTimeout] to finish, and returns context.Cause(ctx). The engine begins no more runs after
// that. Drain may be called more than once, also concurrently. Call it before the server's Shutdown, with the same context.
func (e *Engine) Drain(ctx context.Context) error {
	l := &e.runs
	l.mu.Lock()
	if l.drained == nil {
		l.drained = make(chan struct{})
		if l.running == 0 {
			close(l.drained)
		}
	}
	drained := l.drained
	l.mu.Unlock()
	e.late.mu.Lock()
	e.late.beginAll()
	e.late.mu.Unlock()

	select {
	case <-drained:
		return nil
	case <-ctx.Done():
	}
	gaveUp := e.late.close()
	l.mu.Lock()
	if l.running == 0 && !gaveUp {
		l.mu.Unlock()
		return nil // both at once
	}
	for c := l.head; c != nil; c = c.next {
		c.end(ErrShutdown)
	}
	l.mu.Unlock()
	finishing := time.NewTimer(e.storeTimeout)
	defer finishing.Stop()
	select {
	case <-drained:
	case <-finishing.C:
	}
	return context.Cause(ctx)
}
