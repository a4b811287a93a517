package core

import (
	"context"
	"time"
)

// end counts a run out when it is finished. A second call does nothing.
func (l *runs) end(c *runContext) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !c.counted {
		return
	}
	c.counted = false
	if l.running--; l.running == 0 && l.drained != nil {
		close(l.drained)
	}
}

// Drain ends the engine's work in good order: a new run is refused from now on, with 503
// shutting_down ([CodeShuttingDown]), while duplicates of what is done are still answered. It
// waits for the runs that there are, and returns nil when the last one is settled.
//
// When ctx ends, it ends the contexts of the runs that are left, with [ErrShutdown], gives them
// [Config.StoreTimeout] to settle, and returns context.Cause(ctx) if that was not enough or any
// had to be ended. An engine cannot be used for runs again. Drain may be called more than once,
// also concurrently. Call it before the server's Shutdown, with the same context.
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

	select {
	case <-drained:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	if l.running == 0 {
		l.mu.Unlock()
		return nil // both at once
	}
	for c := l.head; c != nil; c = c.next {
		c.cancel(ErrShutdown)
	}
	l.mu.Unlock()
	settling := time.NewTimer(e.storeTimeout)
	defer settling.Stop()
	select {
	case <-drained:
	case <-settling.C:
	}
	return context.Cause(ctx)
}
