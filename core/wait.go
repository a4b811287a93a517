package core

import (
	"bytes"
	"context"
	"time"

	"github.com/idem-go/idem/core/internal/jitter"
	"github.com/idem-go/idem/core/store"
)

// wait is a key for which callers in this process wait. Its goroutine calls the store for all of them: it watches the
// record, asks for the claim in the name of the caller that has waited longest, and answers everybody whom that
// concerns. It ends with the last of them.
type wait struct {
	engine *Engine
	key    Key

	// Guarded by Engine.waitsMu.
	callers map[*waiter]uint64 // in the order in which they have begun to wait; 0: a caller does not wait
	latest  uint64             // the highest place in that order
	waiting int                // how many wait
	end     context.CancelFunc // ends the goroutine
}

// waiter is a caller that its wait can answer.
type waiter struct {
	claimant                 // the store is asked as the caller would ask it
	ctx      context.Context // for its values
	wait     *wait
	asking   bool                        // the store is being asked in its name
	leaving  bool                        // it waits only for the end of that: no call is cut off half-way
	answered chan struct{}               // closed when answer is set
	answer   func() (store.Grant, error) // others have the same Result; it panics as the store did
}

const (
	firstPause = 10 * time.Millisecond
	lastPause  = 250 * time.Millisecond
	// watchPause is how long after the last call the store is asked for a watched record all the same,
	// because a message may be lost; then twice as long, and so on up to lastWatchPause: thousands of
	// operations must not be a load.
	watchPause     = time.Second
	lastWatchPause = 4 * time.Second
)

// maxWaiterCalls is how many calls to the store are made for waiters at once. When many runs end, or thousands of
// waiters reach their limits, as many calls at once would outlast their deadlines.
const maxWaiterCalls = 64

// takeSlot waits for the permission to call the store for a waiter. It returns false if a context ends first. Each
// takeSlot that returns true is followed by freeSlot.
func (e *Engine) takeSlot(ctx, limit context.Context) bool {
	if e.can.Local {
		return true
	}
	select {
	case e.waiterCalls <- struct{}{}:
		return true
	default:
	}
	select {
	case e.waiterCalls <- struct{}{}:
		return true
	case <-limit.Done():
	case <-ctx.Done():
	}
	return false
}

func (e *Engine) freeSlot() {
	if !e.can.Local {
		<-e.waiterCalls
	}
}

// handOver gives the result of a run to those who have joined: to all if it is settled late, and else, because the run leaves no record,
// to those who have joined for that.
func (e *Engine) handOver(key Key, grant store.Grant, late bool) {
	e.waitsMu.Lock()
	defer e.waitsMu.Unlock()
	if k := e.waits[key]; k != nil {
		grant.Result = bytes.Clone(grant.Result)
		for w := range k.callers {
			if late || w.id.forgets {
				k.answer(w, func() (store.Grant, error) { return grant, nil })
			}
		}
	}
}

// join makes the caller one that can be answered. If the run leaves no record, callers join before they ask the store:
// so it hands its result to everybody whom the store has told, or will tell, that it runs. A caller that joins later
// belongs to the next run.
func (c *claimant) join(ctx context.Context) {
	e := c.guard.engine
	e.waitsMu.Lock()
	defer e.waitsMu.Unlock()
	k := e.waits[c.id.key]
	if k == nil {
		k = &wait{engine: e, key: c.id.key, callers: map[*waiter]uint64{}}
		e.waits[k.key] = k
	}
	c.waiter = &waiter{claimant: *c, ctx: ctx, wait: k, answered: make(chan struct{})}
	c.waiter.limit = nil // the goroutine takes a slot by itself
	k.callers[c.waiter] = 0
}

// leave undoes join. It returns false if the caller has been answered.
func (c *claimant) leave() bool {
	w := c.waiter
	if w == nil {
		return true
	}
	c.waiter = nil
	w.wait.engine.waitsMu.Lock()
	defer w.wait.engine.waitsMu.Unlock()
	return w.wait.answer(w, nil)
}

// wait waits until the caller is answered, has reached its limit or has gone. It reports whether the caller is to ask
// once more for itself. grant is what the store has answered it; zero: it has failed.
func (c *claimant) wait(ctx context.Context, grant store.Grant) bool {
	if c.limit == nil {
		c.running, c.since = grant, time.Now()
		c.limit, c.stop = context.WithTimeout(context.Background(), c.guard.policy.Duplicate.limit)
	}
	if c.limit.Err() != nil || ctx.Err() != nil {
		return false
	}
	if c.waiter == nil {
		c.join(ctx)
	}
	w, k, mu := c.waiter, c.waiter.wait, &c.guard.engine.waitsMu
	mu.Lock()
	if _, known := k.callers[w]; known {
		k.latest++
		k.callers[w] = k.latest
		if k.waiting++; k.waiting == 1 {
			run, end := context.WithCancel(context.Background())
			k.end = end
			go k.run(run, grant)
		}
	}
	mu.Unlock()
	select {
	case <-w.answered:
		return false
	case <-c.limit.Done():
	case <-ctx.Done():
	}
	mu.Lock()
	if w.leaving = w.asking; w.leaving {
		mu.Unlock()
		<-w.answered
		return false
	}
	defer mu.Unlock()
	return k.rest(w) && ctx.Err() == nil
}

// rest makes w one that does not wait. It returns false if w has been answered.
func (k *wait) rest(w *waiter) bool {
	place, known := k.callers[w]
	if place > 0 {
		k.callers[w] = 0
		if k.waiting--; k.waiting == 0 {
			k.end()
		}
	}
	return known
}

// answer answers w, or takes it out if a is nil. It returns false if w has been answered, or has gone.
func (k *wait) answer(w *waiter, a func() (store.Grant, error)) bool {
	known := k.rest(w)
	if known {
		w.answer = a
		close(w.answered)
		if delete(k.callers, w); len(k.callers) == 0 {
			delete(k.engine.waits, k.key)
		}
	}
	return known
}

// oldest returns the caller that has waited longest, or nil.
func (k *wait) oldest() (w *waiter) {
	for v, place := range k.callers {
		if place > 0 && (w == nil || place < k.callers[w]) {
			w = v
		}
	}
	return w
}

// run is the goroutine. grant is the latest answer of the store; zero: it has failed.
func (k *wait) run(ctx context.Context, grant store.Grant) {
	pauses, failures := 0, 0 // in a row
	for atOnce := false; ctx.Err() == nil; {
		grant, atOnce = k.step(ctx, grant, atOnce, pauses, failures)
		switch pauses++; {
		case grant.State == store.Acquired:
			pauses, failures = 0, 0 // another run is waited for now
		case grant.State == 0 && !atOnce:
			failures++
		default:
			failures = 0
		}
	}
}

// step makes a pause, unless it is to ask at once, and asks again. again says that the store is to be asked at once for the others.
func (k *wait) step(ctx context.Context, grant store.Grant, atOnce bool, pauses, failures int) (next store.Grant, again bool) {
	defer func() {
		if p := recover(); p != nil { // the store's: it goes on in the caller in whose name it was asked
			k.engine.waitsMu.Lock()
			k.answer(k.oldest(), func() (store.Grant, error) { panic(p) })
			k.engine.waitsMu.Unlock()
			again = true
		}
	}()
	if !atOnce {
		k.pause(ctx, grant, pauses, failures)
	}
	next = k.ask(ctx)
	return next, next.State == store.Done || next.State == store.Abandoned
}

// pause returns when the record may have changed, and from time to time.
func (k *wait) pause(ctx context.Context, grant store.Grant, pauses, failures int) {
	var changed <-chan struct{}
	first, last := firstPause, lastPause
	if failures < 2 { // else a store that fails and says that nothing runs would be asked without a pause
		var stop func()
		if changed, stop = k.watch(ctx); changed != nil {
			defer stop()
			first, last = watchPause, lastWatchPause
		}
	}
	d := jitter.Spread(min(first<<min(pauses, 8), last)) // the waiters of several processes must not march in step
	if grant.State != 0 {
		// No message says that the lease has passed; one more millisecond makes sure that it has.
		d = min(d, grant.Remaining+time.Millisecond)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// watch begins to watch the record. changed is nil if the store can't.
func (k *wait) watch(ctx context.Context) (changed <-chan struct{}, stop func()) {
	e := k.engine
	if e.can.Watch != nil && e.takeSlot(ctx, ctx) {
		defer e.freeSlot()
		ctx, cancel := context.WithTimeout(ctx, e.storeTimeout)
		defer cancel()
		if changed, stop, err := e.can.Watch(ctx, k.key.raw); err == nil {
			return changed, stop
		}
	}
	return nil, nil
}

// ask asks the store for the claim, and answers everybody whom that concerns.
func (k *wait) ask(ctx context.Context) (grant store.Grant) {
	e := k.engine
	if !e.takeSlot(ctx, ctx) {
		return
	}
	defer e.freeSlot()
	e.waitsMu.Lock()
	w, latest := k.oldest(), k.latest
	if ctx.Err() != nil { // nobody has waited meanwhile: who does now has another goroutine
		e.waitsMu.Unlock()
		return
	}
	w.asking = true
	e.waitsMu.Unlock()
	grant, err := w.acquire(w.ctx)
	switch {
	case err != nil:
		grant = store.Grant{}
		e.releaseFailed(k.key, w.claim.Owner, err)
	case grant.State == store.Acquired:
		grant.Remaining = w.claim.Lease
	}

	e.waitsMu.Lock()
	w.asking = false
	found := func() (store.Grant, error) { return grant, err }
	told := (w.leaving || err == nil && !w.mayWait(grant)) && k.answer(w, found)
	for v, place := range k.callers {
		switch {
		case place == 0, place > latest: // who has come since may wait for another run
		case grant.State == store.Done,
			grant.State == store.Running && !v.mayWait(grant),
			grant.State == store.Abandoned && v.guard == w.guard && v.claim.Fingerprint == w.claim.Fingerprint:
			k.answer(v, found)
		}
	}
	e.waitsMu.Unlock()
	if !told {
		_ = w.giveBack(w.ctx, grant) // a result was handed to w meanwhile
	}
	return grant
}
