package core

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/core/store"
)

// waiters are the callers that wait for one operation in this process. One of them leads: it watches
// the record, and calls the store for all. When it finds that nothing runs any more, it publishes the
// answer to the others. When it leaves, for whatever reason, another one leads and goes on where it was.
type waiters struct {
	operation waitedFor
	lead      chan struct{} // holds a value while no waiter leads; has room for it always

	count atomic.Int64 // grows with waitersByOperation.mu held

	// Guarded by waitersByOperation.mu.
	calls uint64  // how many have begun
	next  *answer // of the next call that gets one

	// The leader's, handed on with the lead. due is when to call at the latest; zero: at once.
	changed    <-chan struct{} // nil: never
	stop       func()          // gives up the watch; nil if there is none
	due        time.Time
	pollPause  time.Duration // of a store that cannot be watched
	watchPause time.Duration // of one that can
}

// waitedFor says which callers wait together. The answer to a call depends on the key alone, and on
// whether it may take over, which an expired token may not. Parameters and policy are compared as
// well, to be on the safe side.
type waitedFor struct {
	key         Key
	fingerprint string
	expired     bool
	guard       *Guard
}

// answer is a store's answer to a call of the leader. It is read only: all waiters get the same bytes.
type answer struct {
	ready chan struct{} // closed when the rest is set
	call  uint64        // its number
	grant store.Grant
}

// waitersByOperation are those of an engine. It has an entry only for operations with waiters.
type waitersByOperation struct {
	mu  sync.Mutex
	all map[waitedFor]*waiters
}

// join makes w one of the waiters for its operation. The first one leads.
func (l *waitersByOperation) join(w *waiter) {
	operation := waitedFor{w.id.key, w.id.fingerprint, w.id.expired, w.guard}
	l.mu.Lock()
	defer l.mu.Unlock()
	group := l.all[operation]
	if w.leads = group == nil; w.leads {
		group = &waiters{operation: operation, lead: make(chan struct{}, 1), next: &answer{ready: make(chan struct{})}}
		group.resetPauses()
		if l.all == nil {
			l.all = map[waitedFor]*waiters{}
		}
		l.all[operation] = group
	}
	group.count.Add(1)
	w.group, w.joined, w.next = group, group.calls, group.next
}

// leave takes a waiter out of group, and passes on the lead if it has it. When the operation is done, all
// leave at once: only the leader and the last one need the lock.
func (l *waitersByOperation) leave(group *waiters, leads bool) {
	if !leads && group.count.Add(-1) > 0 {
		return
	}
	l.mu.Lock()
	if leads && group.count.Add(-1) > 0 {
		group.lead <- struct{}{}
	}
	// Another waiter may have joined meanwhile, and even have left as the last one.
	last := group.count.Load() == 0 && l.all[group.operation] == group
	if last {
		delete(l.all, group.operation)
	}
	l.mu.Unlock()
	if last {
		group.unwatch()
	}
}

// begin counts a call of the leader that begins now.
func (l *waitersByOperation) begin(group *waiters) (call uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	group.calls++
	return group.calls
}

// publish gives the others the answer to a call.
func (l *waitersByOperation) publish(group *waiters, call uint64, grant store.Grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if group.count.Load() == 1 {
		return
	}
	group.next.call, group.next.grant = call, grant
	close(group.next.ready)
	group.next = &answer{ready: make(chan struct{})}
}

// nextAnswer returns the answer that is not published yet.
func (l *waitersByOperation) nextAnswer(group *waiters) *answer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return group.next
}

// resetPauses makes the pauses short again: the waiters now wait for another run.
func (group *waiters) resetPauses() { group.pollPause, group.watchPause = firstPause, watchPause }

// watch begins a pause between two calls of the leader w. The pause ends when the record may have changed,
// or when its lease may have passed, which is after remaining.
func (group *waiters) watch(ctx context.Context, w *waiter, remaining time.Duration) {
	group.unwatch()
	e := w.guard.engine
	if e.watcher != nil && w.takeSlot(ctx) {
		wctx, cancel := context.WithTimeout(ctx, min(e.storeTimeout, max(w.left(), 1)))
		changed, stop, err := e.watcher.Watch(wctx, group.operation.key.raw)
		cancel()
		w.freeSlot()
		if err == nil {
			group.changed, group.stop = changed, stop
		}
	}
	if e.watcher != nil && group.stop == nil && w.over(ctx) {
		return // it is not the store that has failed: the next leader calls and watches at once
	}
	// The pauses are random, so that the waiters of several processes do not march in step.
	var pause time.Duration
	if group.stop != nil {
		pause = group.watchPause/2 + rand.N(group.watchPause)
		group.watchPause = min(group.watchPause*2, lastWatchPause)
	} else {
		pause = group.pollPause/2 + rand.N(group.pollPause)
		group.pollPause = min(group.pollPause*3/2, lastPause)
	}
	// No message says that the lease has passed; one more millisecond makes sure that it has.
	group.due = time.Now().Add(min(pause, remaining+time.Millisecond))
}

// unwatch ends the pause.
func (group *waiters) unwatch() {
	if group.stop != nil {
		group.stop()
	}
	group.changed, group.stop, group.due = nil, nil, time.Time{}
}
