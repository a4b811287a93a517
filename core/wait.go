package core

import (
	"context"
	"math/rand/v2"
	"time"
)

// waiting is a duplicate's wait for a run to end.
type waiting struct {
	until time.Time
	pause time.Duration // of a store that cannot be watched
	timer *time.Timer
}

const (
	firstPause = 10 * time.Millisecond
	lastPause  = 250 * time.Millisecond
	// watchPause is how often a watched record is looked at all the same, in case a
	// message was lost on the way.
	watchPause = time.Second
)

// wait returns true when it is worth looking at the record again: it may have changed, or
// its lease has passed. It returns false when the limit is reached or the caller has gone.
func (w *waiting) wait(ctx context.Context, g *Guard, key Key, remaining time.Duration) bool {
	now := time.Now()
	if w.until.IsZero() {
		w.until = now.Add(time.Duration(g.policy.Duplicate))
		w.pause = firstPause
	}
	left := w.until.Sub(now)
	if left <= 0 || ctx.Err() != nil {
		return false
	}

	var changed <-chan struct{} // nil: never
	pause := watchPause
	watched := false
	if g.engine.watcher != nil {
		wctx, cancel := context.WithTimeout(ctx, min(g.engine.storeTimeout, left))
		ch, stop, err := g.engine.watcher.Watch(wctx, string(key))
		cancel()
		if err == nil {
			defer stop()
			changed, watched = ch, true
		}
	}
	if !watched {
		pause = w.pause/2 + rand.N(w.pause) // so that waiters do not march in step
		w.pause = min(w.pause*3/2, lastPause)
	}

	if left = time.Until(w.until); left <= 0 {
		return false
	}
	// When the lease passes, nobody calls; one more millisecond makes sure that it has.
	pause = min(pause, remaining+time.Millisecond, left)
	if w.timer == nil {
		w.timer = time.NewTimer(pause)
	} else {
		w.timer.Reset(pause)
	}
	select {
	case <-changed:
	case <-w.timer.C:
	case <-ctx.Done():
		return false
	}
	return true
}

func (w *waiting) end() {
	if w.timer != nil {
		w.timer.Stop()
	}
}
