package core

import (
	"context"
	"math/rand/v2"
	"time"
)

// waiting is a duplicate's wait for a run to end.
type waiting struct {
	until   time.Time
	pause   time.Duration // of a store that cannot be watched
	watched time.Duration // pause of one that can
	timer   *time.Timer
}

const (
	firstPause = 10 * time.Millisecond
	lastPause  = 250 * time.Millisecond
	// watchPause is after how long a watched record is looked at all the same, in case a
	// message was lost on the way; then after twice as long, and so on up to
	// lastWatchPause: thousands of waiters must not be a load.
	watchPause     = time.Second
	lastWatchPause = 4 * time.Second
)

// maxLooks is how many waiting duplicates look at the store at once. When a run ends, all
// that wait for it are woken, and thousands of calls at once would outlast their deadlines.
const maxLooks = 64

// began reports whether the caller has waited.
func (w *waiting) began() bool { return !w.until.IsZero() }

// enter waits for the caller's turn to call the store, if it is one that waits anyway. It
// returns false when the limit is reached or the caller has gone. After it comes leave.
func (w *waiting) enter(ctx context.Context, e *Engine) bool {
	if e.looks == nil || !w.began() {
		return true
	}
	select {
	case e.looks <- struct{}{}:
		return true
	default:
	}
	limit := time.NewTimer(time.Until(w.until))
	defer limit.Stop()
	select {
	case e.looks <- struct{}{}:
		return true
	case <-limit.C:
	case <-ctx.Done():
	}
	return false
}

func (w *waiting) leave(e *Engine) {
	if e.looks != nil && w.began() {
		<-e.looks
	}
}

// wait returns true when it is worth looking at the record again: it may have changed, or
// its lease has passed. It returns false when the limit is reached or the caller has gone.
func (w *waiting) wait(ctx context.Context, g *Guard, key Key, remaining time.Duration) bool {
	now := time.Now()
	if w.until.IsZero() {
		w.until = now.Add(time.Duration(g.policy.Duplicate))
		w.pause, w.watched = firstPause, watchPause
	}
	left := w.until.Sub(now)
	if left <= 0 || ctx.Err() != nil {
		return false
	}

	var changed <-chan struct{} // nil: never
	var pause time.Duration
	watched := false
	if g.engine.watcher != nil {
		if !w.enter(ctx, g.engine) {
			return false
		}
		wctx, cancel := context.WithTimeout(ctx, min(g.engine.storeTimeout, max(time.Until(w.until), 1)))
		ch, stop, err := g.engine.watcher.Watch(wctx, string(key))
		cancel()
		w.leave(g.engine)
		if err == nil {
			defer stop()
			changed, watched = ch, true
		}
	}
	// The pauses are random, so that waiters do not march in step.
	if watched {
		pause = w.watched/2 + rand.N(w.watched)
		w.watched = min(w.watched*2, lastWatchPause)
	} else {
		pause = w.pause/2 + rand.N(w.pause)
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
