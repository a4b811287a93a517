package core

import (
	"bytes"
	"context"
	"time"

	"github.com/idem-go/idem/core/store"
)

// waiting is a duplicate's wait for a run to end, in the [crowd] of those who wait for it.
type waiting struct {
	until  time.Time
	timer  *time.Timer
	crowd  *crowd // nil: it looks at the record for itself
	leads  bool   // it holds the crowd's token
	joined uint64 // how many looks of the crowd had begun before
	news   *news  // what it listens to
	told   bool   // news holds the answer
	inTurn bool   // it holds a place in Engine.looks
}

const (
	firstPause = 10 * time.Millisecond
	lastPause  = 250 * time.Millisecond
	// watchPause is after how long a watched record is looked at all the same, in case a
	// message was lost on the way; then after twice as long, and so on up to
	// lastWatchPause: thousands of operations must not be a load.
	watchPause     = time.Second
	lastWatchPause = 4 * time.Second
)

// maxLooks is how many waiting duplicates look at the store at once. When many runs end, or
// the limits of thousands that wait, as many calls at once would outlast their deadlines.
const maxLooks = 64

// began reports whether the caller has waited.
func (w *waiting) began() bool { return !w.until.IsZero() }

// enter waits for the caller's turn to call the store, if it is one that waits anyway. It
// returns false when the limit is reached or the caller has gone. After it comes leave.
func (w *waiting) enter(ctx context.Context, e *Engine) bool {
	if e.looks == nil || !w.began() || w.told {
		return true
	}
	select {
	case e.looks <- struct{}{}:
		w.inTurn = true
		return true
	default:
	}
	w.arm(w.left())
	select {
	case e.looks <- struct{}{}:
		w.inTurn = true
		return true
	case <-w.timer.C:
	case <-ctx.Done():
	}
	return false
}

func (w *waiting) leave(e *Engine) {
	if w.inTurn {
		w.inTurn = false
		<-e.looks
	}
}

// look asks the store for the claim, unless the look of another has answered already. Who
// leads tells the others what it has found, if that ends their wait, and leaves them before it
// does anything else, for that may take long.
func (w *waiting) look(ctx context.Context, g *Guard, id identity, claim store.Claim) (store.Grant, error) {
	e, c := g.engine, w.crowd
	if w.told {
		w.told = false
		return g.copied(w.news.grant), nil
	}
	if c == nil {
		return e.acquire(ctx, id.key, claim)
	}
	look := e.crowds.begin(c)
	grant, err := e.acquire(ctx, id.key, claim)
	if err != nil || grant.State == store.Running && !g.reused(id, grant) {
		return grant, err // and waits on
	}
	if grant.State == store.Acquired {
		c.waitAnew()
	} else {
		e.crowds.tell(c, look, g.copied(grant))
	}
	w.end(e)
	return grant, nil
}

// answersAll reports whether what a look has found is the answer to all who wait together. It is
// not if they would ask what has become of an abandoned run: then each of them looks for itself.
func (g *Guard) answersAll(id identity, grant store.Grant) bool {
	switch {
	case grant.State == store.Done, g.reused(id, grant):
		return true
	case grant.State == store.Abandoned:
		return g.policy.Reconcile == nil
	}
	return false
}

// copied returns grant with a result of its own if it is a task's: a Result's Value belongs to who
// called Do. Responses are only ever read, and are shared.
func (g *Guard) copied(grant store.Grant) store.Grant {
	if g.task {
		grant.Result = bytes.Clone(grant.Result)
	}
	return grant
}

// wait returns true when it is worth looking again: the record may have changed, its lease
// has passed, or the limit is reached, at which there is one last look. It returns false
// after that, or when the caller has gone.
func (w *waiting) wait(ctx context.Context, g *Guard, id identity, remaining time.Duration) bool {
	if !w.began() {
		w.until = time.Now().Add(g.policy.Duplicate.limit())
	}
	again := w.pause(ctx, g, id, remaining)
	if !again {
		w.end(g.engine)
	}
	return again
}

func (w *waiting) pause(ctx context.Context, g *Guard, id identity, remaining time.Duration) bool {
	e := g.engine
	if w.left() <= 0 || ctx.Err() != nil {
		return false
	}
	if w.crowd == nil {
		e.crowds.join(w, crowdID{id.key, id.fingerprint, id.expired, g})
	}
	if w.leads { // and has just looked
		w.crowd.watch(ctx, w, e, remaining)
		if w.left() <= 0 || ctx.Err() != nil {
			return false
		}
	} else if !w.follow(ctx, g, id) {
		return false
	}
	c := w.crowd
	if c == nil || c.due.IsZero() {
		return true
	}
	w.arm(min(time.Until(c.due), w.left()))
	select {
	case <-c.changed:
	case <-w.timer.C:
		if w.left() <= 0 {
			w.end(e) // the others need not wait for the last look
			return true
		}
	case <-ctx.Done():
		return false
	}
	c.unwatch()
	return true
}

// follow sleeps until the caller leads, or need not wait any longer and has left the crowd. It
// returns false when the caller has gone.
func (w *waiting) follow(ctx context.Context, g *Guard, id identity) bool {
	e := g.engine
	w.arm(w.left())
	for {
		select {
		case <-w.crowd.token:
			w.leads = true
			return true
		case <-w.news.out:
			// A look that began before the caller came may tell of a record that was gone by then.
			if w.joined < w.news.look {
				w.told = g.answersAll(id, w.news.grant)
				w.end(e)
				return true
			}
			w.news = e.crowds.latest(w.crowd)
		case <-w.timer.C:
			w.end(e)
			return true
		case <-ctx.Done():
			return false
		}
	}
}

func (w *waiting) left() time.Duration { return time.Until(w.until) }

func (w *waiting) arm(d time.Duration) {
	if w.timer == nil {
		w.timer = time.NewTimer(d)
	} else {
		w.timer.Reset(d)
	}
}

// end leaves the crowd, and whatever else the caller holds.
func (w *waiting) end(e *Engine) {
	if w.timer != nil {
		w.timer.Stop()
	}
	w.leave(e)
	if w.crowd != nil {
		e.crowds.leave(w.crowd, w.leads)
		w.crowd, w.leads = nil, false
	}
}
