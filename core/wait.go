package core

import (
	"bytes"
	"context"
	"time"

	"github.com/idem-go/idem/core/store"
)

// waiter is a caller's wait for another run to end. Callers that wait for the same run in this process
// share their store calls, see [waiters].
type waiter struct {
	guard *Guard
	id    identity

	until    time.Time // the limit; zero: the caller has not waited yet
	timer    *time.Timer
	hasSlot  bool     // one of Engine.waiterCalls
	group    *waiters // nil: the caller asks the store for itself alone
	leads    bool     // the caller asks for the group
	joined   uint64   // how many calls of the group had begun before the caller joined
	next     *answer  // of the group's next call
	answered bool     // next is there, and is the caller's answer
	handed   *handover
}

const (
	firstPause = 10 * time.Millisecond
	lastPause  = 250 * time.Millisecond
	// watchPause is how long after the last call the leader asks for a watched record all the same,
	// because a message may be lost; then twice as long, and so on up to lastWatchPause: thousands of
	// operations must not be a load.
	watchPause     = time.Second
	lastWatchPause = 4 * time.Second
)

// maxWaiterCalls is how many waiters call the store at once. When many runs end, or thousands of waiters
// reach their limits, as many calls at once would outlast their deadlines.
const maxWaiterCalls = 64

func (w *waiter) hasWaited() bool { return !w.until.IsZero() }

// takeSlot waits for the permission to call the store, if the caller has waited before. It returns false
// when the limit is reached or the caller has gone. Each takeSlot is followed by freeSlot.
func (w *waiter) takeSlot(ctx context.Context) bool {
	slots := w.guard.engine.waiterCalls
	if slots == nil || !w.hasWaited() || w.answered {
		return true
	}
	select {
	case slots <- struct{}{}:
		w.hasSlot = true
		return true
	default:
	}
	w.arm(w.left())
	select {
	case slots <- struct{}{}:
		w.hasSlot = true
		return true
	case <-w.timer.C:
	case <-ctx.Done():
	}
	return false
}

func (w *waiter) freeSlot() {
	if w.hasSlot {
		w.hasSlot = false
		<-w.guard.engine.waiterCalls
	}
}

// acquireForAll asks the store for the claim, unless the group's leader has got the answer already. If the
// caller leads, it passes on an answer that ends the wait, and leaves the group before it does anything
// else, which may take long.
func (w *waiter) acquireForAll(ctx context.Context, claim store.Claim) (store.Grant, error) {
	e, group := w.guard.engine, w.group
	if w.answered {
		w.answered = false
		return w.ownCopy(w.next.grant), nil
	}
	if group == nil {
		return e.acquire(ctx, w.id.key, claim)
	}
	call := e.waiters.begin(group)
	grant, err := e.acquire(ctx, w.id.key, claim)
	if err != nil || grant.State == store.Running && !w.keyReused(grant) {
		return grant, err // the wait goes on
	}
	if grant.State == store.Acquired {
		group.resetPauses()
	} else {
		e.waiters.publish(group, call, w.ownCopy(grant))
	}
	w.stopWaiting()
	return grant, nil
}

// answersAll reports whether grant answers the whole group. An abandoned run about which the policy is
// asked does not: each waiter then asks for itself.
func (w *waiter) answersAll(grant store.Grant) bool {
	return grant.State == store.Done || w.keyReused(grant) || grant.State == store.Abandoned && w.guard.policy.Abandoned.reconcile == nil
}

// ownCopy returns grant with a result of its own if it is a task's, because a Result's Value belongs to
// the caller of Do. Responses are only ever read, and are shared.
func (w *waiter) ownCopy(grant store.Grant) store.Grant {
	if w.guard.task {
		grant.Result = bytes.Clone(grant.Result)
	}
	return grant
}

// wait returns true when it is worth asking the store again: the record may have changed, its lease has
// passed, or the limit is reached, at which the caller asks once more. It returns false after that, and
// when the caller has gone. remaining is what is left of the lease.
func (w *waiter) wait(ctx context.Context, remaining time.Duration) bool {
	if !w.hasWaited() {
		w.until = time.Now().Add(w.guard.policy.Duplicate.limit)
	}
	again := w.pause(ctx, remaining)
	if !again {
		w.stopWaiting()
	}
	return again
}

func (w *waiter) pause(ctx context.Context, remaining time.Duration) bool {
	if w.over(ctx) {
		return false
	}
	if w.group == nil {
		w.guard.engine.waiters.join(w)
	}
	if w.leads { // and has just asked
		w.group.watch(ctx, w, remaining)
		if w.over(ctx) {
			return false
		}
	} else if !w.follow(ctx) {
		return false
	}
	group := w.group
	if group == nil || group.due.IsZero() {
		return true
	}
	w.arm(min(time.Until(group.due), w.left()))
	select {
	case <-group.changed:
	case <-w.handedOver():
		w.take(&w.handed.answer)
		return true
	case <-w.timer.C:
		if w.left() <= 0 {
			w.stopWaiting() // the others need not wait for the caller's last call
			return true
		}
	case <-ctx.Done():
		return false
	}
	group.unwatch()
	return true
}

// follow sleeps until the caller leads, or need not wait any longer and has left the group. It returns
// false when the caller has gone.
func (w *waiter) follow(ctx context.Context) bool {
	w.arm(w.left())
	for {
		select {
		case <-w.group.lead:
			w.leads = true
			return true
		case <-w.next.ready:
			// A call that began before the caller joined may tell of a record that was gone by then.
			if w.joined < w.next.call {
				w.answered = w.answersAll(w.next.grant)
				w.stopWaiting()
				return true
			}
			w.next = w.guard.engine.waiters.nextAnswer(w.group)
		case <-w.handedOver():
			w.take(&w.handed.answer)
			return true
		case <-w.timer.C:
			w.stopWaiting()
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// over reports whether the limit is reached or the caller has gone.
func (w *waiter) over(ctx context.Context) bool { return w.left() <= 0 || ctx.Err() != nil }

func (w *waiter) left() time.Duration { return time.Until(w.until) }

func (w *waiter) arm(d time.Duration) {
	if w.timer == nil {
		w.timer = time.NewTimer(d)
	} else {
		w.timer.Reset(d)
	}
}

// stopWaiting leaves the group, and gives back whatever else the caller holds.
func (w *waiter) stopWaiting() {
	if w.timer != nil {
		w.timer.Stop()
	}
	w.freeSlot()
	if w.group != nil {
		w.guard.engine.waiters.leave(w.group, w.leads)
		w.group, w.leads = nil, false
	}
}
