package core

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/core/store"
)

// crowd is the duplicates of one operation that wait for it in this process. One of them
// leads: it holds the token, and watches and looks at the record for all. When it finds that
// nothing runs any more, it tells those who follow. When it leaves, whatever the reason, one
// of them gets the token, and goes on where it was.
type crowd struct {
	id    crowdID
	token chan struct{} // holds the token while nobody leads; has room for it always

	waiters atomic.Int64 // grows with crowds.mu held

	// Guarded by crowds.mu.
	looks uint64 // how many have begun
	news  *news  // that are not out yet

	// The leader's, who hands them on with the token. due is when to look again at the
	// latest; zero: at once.
	changed <-chan struct{} // nil: never
	stop    func()          // gives up the watch; nil if there is none
	due     time.Time
	pause   time.Duration // of a store that cannot be watched
	watched time.Duration // pause of one that can
}

// crowdID says who waits together. What a look finds depends on the key alone, and on whether it may
// take over, which with a token that is too old it may not. That parameters and policy are the same as well is so
// that nobody has to prove it.
type crowdID struct {
	key         Key
	fingerprint string
	expired     bool
	guard       *Guard
}

// news is what a look has found. It is read only: all who follow get the same bytes.
type news struct {
	out   chan struct{} // closed when the rest is set
	look  uint64        // its number
	grant store.Grant
}

// crowds are those of an engine. It knows nothing of operations for which nobody waits.
type crowds struct {
	mu  sync.Mutex
	all map[crowdID]*crowd
}

// join makes w one of those who wait for an operation. The first one leads.
func (l *crowds) join(w *waiting, id crowdID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.all[id]
	if w.leads = c == nil; w.leads {
		c = &crowd{id: id, token: make(chan struct{}, 1), news: &news{out: make(chan struct{})}}
		c.waitAnew()
		if l.all == nil {
			l.all = map[crowdID]*crowd{}
		}
		l.all[id] = c
	}
	c.waiters.Add(1)
	w.crowd, w.joined, w.news = c, c.looks, c.news
}

// leave takes one who waits out of c, and passes on the token if it leads. When the operation
// is done, all leave at once: only the leader and the last one need the lock.
func (l *crowds) leave(c *crowd, leads bool) {
	if !leads && c.waiters.Add(-1) > 0 {
		return
	}
	l.mu.Lock()
	if leads && c.waiters.Add(-1) > 0 {
		c.token <- struct{}{}
	}
	// Somebody may have joined meanwhile, and even have left as the last one.
	last := c.waiters.Load() == 0 && l.all[c.id] == c
	if last {
		delete(l.all, c.id)
	}
	l.mu.Unlock()
	if last {
		c.unwatch()
	}
}

// begin counts a look of the leader's that begins now.
func (l *crowds) begin(c *crowd) (look uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.looks++
	return c.looks
}

// tell publishes what a look has found.
func (l *crowds) tell(c *crowd, look uint64, grant store.Grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.waiters.Load() == 1 {
		return
	}
	c.news.look, c.news.grant = look, grant
	close(c.news.out)
	c.news = &news{out: make(chan struct{})}
}

// latest returns the news that are not out yet.
func (l *crowds) latest(c *crowd) *news {
	l.mu.Lock()
	defer l.mu.Unlock()
	return c.news
}

// waitAnew makes the pauses short again: it is another run that the crowd waits for now.
func (c *crowd) waitAnew() { c.pause, c.watched = firstPause, watchPause }

// watch begins a pause between two looks of the leader's. It ends when the record may have
// changed, or when the lease may have passed, which is after remaining.
func (c *crowd) watch(ctx context.Context, w *waiting, e *Engine, remaining time.Duration) {
	c.unwatch()
	if e.watcher != nil && w.enter(ctx, e) {
		wctx, cancel := context.WithTimeout(ctx, min(e.storeTimeout, max(w.left(), 1)))
		changed, stop, err := e.watcher.Watch(wctx, string(c.id.key))
		cancel()
		w.leave(e)
		if err == nil {
			c.changed, c.stop = changed, stop
		}
	}
	if e.watcher != nil && c.stop == nil && (w.left() <= 0 || ctx.Err() != nil) {
		return // it is not the store that has failed: who leads next looks and watches at once
	}
	// The pauses are random, so that the waiters of several processes do not march in step.
	var pause time.Duration
	if c.stop != nil {
		pause = c.watched/2 + rand.N(c.watched)
		c.watched = min(c.watched*2, lastWatchPause)
	} else {
		pause = c.pause/2 + rand.N(c.pause)
		c.pause = min(c.pause*3/2, lastPause)
	}
	// When the lease passes, nobody calls; one more millisecond makes sure that it has.
	c.due = time.Now().Add(min(pause, remaining+time.Millisecond))
}

// unwatch ends the pause.
func (c *crowd) unwatch() {
	if c.stop != nil {
		c.stop()
	}
	c.changed, c.stop, c.due = nil, nil, time.Time{}
}
