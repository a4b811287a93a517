package core

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/core/internal/jitter"
	"github.com/idem-go/idem/core/store"
)

// lateRuns lists the runs of an engine that the store has not taken at the first try. Callers of their operations are answered from
// it: they must not run what has a result. Each run that is settled late has a timer for its next try; there is no goroutine
// but for tries.
type lateRuns struct {
	listed atomic.Int32 // len(byKey): most callers ask while there are none
	late   atomic.Int32 // how many are unsettled after their answer

	mu      sync.Mutex
	byKey   map[Key]*unsettled
	size    int64        // what they hold, in bytes
	limit   int64        // of size
	tries   int          // under way
	queue   []*unsettled // for a try
	failing bool         // the last try has failed
	closed  bool         // nothing is settled late any more, see Engine.Drain
}

const (
	maxTries     = 64      // under way at once
	unsettledRun = 1 << 10 // bytes that a run counts for beside its result

	defaultUnsettledLimit = 64 << 20
)

// lateRun is the place of a run among the lateRuns, whose mu guards it.
type lateRun struct {
	answered bool          // its caller has its answer; the result is the run's own
	done     bool          // it is settled, or given up
	tried    chan struct{} // closed at the end of the try that is under way or queued; nil: there is none
	timer    *time.Timer
	pause    time.Duration // before the next try
	expires  time.Time     // the lease, by this process's clock
}

// settle goes on with a run whose first try has failed, or is to come: until the deadline of calling, and if that does not help, in the
// background. It returns the run as it is then; late says that it is not settled, and that its caller gets its answer now: answered is to
// follow.
func (l *lateRuns) settle(calling context.Context, run unsettled) (_ *unsettled, late bool) {
	u := &run
	l.add(u)
	again := true
	defer func() {
		if !late {
			l.mu.Lock()
			l.remove(u)
			l.mu.Unlock()
		}
	}()
	for pause := time.Duration(0); again && calling.Done() != nil && calling.Err() == nil; pause = max(2*pause, firstPause) {
		if errors.Is(u.err, store.ErrFull) || pause > 0 && !sleep(calling, pause) {
			break
		}
		again = u.try(calling) && u.renew(calling) // a lease may be shorter than the deadline
	}
	if !again || !l.reserve(u) {
		return u, false
	}
	u.result = bytes.Clone(u.result) // its buffer is the next request's
	u.values = context.WithoutCancel(u.values)
	return u, true
}

// add lists u, so that nobody in this process claims its key.
func (l *lateRuns) add(u *unsettled) {
	runs := &u.run.guard.engine.runs
	runs.mu.Lock()
	u.due, u.place.expires = u.run.due, u.run.expires
	runs.mu.Unlock()
	u.place.tried = make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byKey == nil {
		l.byKey = map[Key]*unsettled{}
	}
	l.byKey[u.run.key] = u
	l.listed.Store(int32(len(l.byKey)))
}

// remove takes u off the list: there is nothing more to do. l.mu is held.
func (l *lateRuns) remove(u *unsettled) {
	if l.byKey[u.run.key] == u { // not that of a later run
		delete(l.byKey, u.run.key)
		l.listed.Store(int32(len(l.byKey)))
	}
	if u.place.done = true; u.place.answered {
		l.size -= u.size()
		l.late.Add(-1)
		u.place.timer.Stop()
	}
	l.ended(u)
}

// ended tells those who wait for the try under way. l.mu is held.
func (l *lateRuns) ended(u *unsettled) {
	if u.place.tried != nil {
		close(u.place.tried)
		u.place.tried = nil
	}
}

func (u *unsettled) size() int64 { return int64(len(u.result)) + unsettledRun }

// reserve reserves room for u. It returns false if there is none, or if nothing is settled late any more.
func (l *lateRuns) reserve(u *unsettled) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.size+u.size() > l.limit {
		return false
	}
	l.size += u.size()
	l.late.Add(1)
	return true
}

// answered begins to settle u in the background.
func (l *lateRuns) answered(u *unsettled) {
	l.mu.Lock()
	u.place.answered = true
	l.failing = true
	l.ended(u)
	l.rest(u)
	grant, ok := u.grant()
	l.mu.Unlock()
	if ok && grant.State == store.Done {
		u.run.guard.engine.handOver(u.run.key, grant, true)
	}
}

// rest makes the pause before the next try. l.mu is held.
func (l *lateRuns) rest(u *unsettled) {
	// Thousands of runs must not be a load for a store that has just come back.
	longest := time.Second + time.Duration(len(l.byKey))*time.Millisecond
	u.place.pause = min(max(2*u.place.pause, firstPause), longest)
	d := jitter.Spread(u.place.pause)
	if u.place.timer == nil {
		u.place.timer = time.AfterFunc(d, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.begin(u)
		})
		return
	}
	u.place.timer.Reset(d)
}

// begin begins a try, unless one is under way, or queues it. l.mu is held.
func (l *lateRuns) begin(u *unsettled) {
	if u.place.done || u.place.tried != nil {
		return
	}
	u.place.timer.Stop()
	u.place.tried = make(chan struct{})
	if l.queue = append(l.queue, u); l.tries < maxTries {
		l.tries++
		go l.work()
	}
}

// beginAll begins a try of each run. l.mu is held.
func (l *lateRuns) beginAll() {
	for _, u := range l.byKey {
		u.place.pause = 0
		l.begin(u)
	}
}

// work makes the tries that are queued.
func (l *lateRuns) work() {
	for {
		l.mu.Lock()
		if len(l.queue) == 0 {
			l.tries--
			l.mu.Unlock()
			return
		}
		u := l.queue[0]
		l.queue = l.queue[1:]
		l.mu.Unlock()

		e := u.run.guard.engine
		calling, cancel := e.storeContext(u.values)
		again := u.try(calling)
		if cancel(); again {
			calling, cancel = e.storeContext(u.values)
			again = u.renew(calling)
			cancel()
		}

		l.mu.Lock()
		if again && !l.closed && time.Since(u.ended) < u.run.guard.policy.RememberAbandoned {
			l.failing = true
			l.ended(u)
			l.rest(u)
			l.mu.Unlock()
			continue
		}
		l.remove(u)
		if u.err == nil && l.failing { // the store is back
			l.failing = false
			l.beginAll()
		}
		l.mu.Unlock()
		u.end()
	}
}

func (l *lateRuns) renewed(u *unsettled, expires time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u.place.expires = expires
}

// find returns what a caller of an operation gets whose run has ended here, and whose record the store has not taken. It has the
// store asked at once: one try is for all who come meanwhile. ok is false if the caller is to ask the store for itself.
func (l *lateRuns) find(ctx context.Context, key Key, patience time.Duration) (grant store.Grant, ok bool) {
	if l.listed.Load() == 0 {
		return grant, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.byKey[key]
	if u == nil {
		return grant, false
	}
	l.begin(u)
	tried := u.place.tried
	l.mu.Unlock()
	limit := time.NewTimer(patience)
	select {
	case <-tried:
	case <-limit.C:
	case <-ctx.Done():
	}
	limit.Stop()
	l.mu.Lock()
	return u.grant()
}

// grant is what the store would answer if it had taken the run as far as this process knows. lateRuns.mu is held.
func (u *unsettled) grant() (grant store.Grant, ok bool) {
	c := u.run
	grant = store.Grant{State: store.Running, ID: c.id, Attempt: c.attempt, Fingerprint: c.fingerprint,
		Remaining: time.Until(u.place.expires)}
	switch {
	case u.place.done && (errors.Is(u.err, store.ErrLost) || !u.place.answered):
		return grant, false
	case !u.place.answered: // its own caller has not been answered yet
		return grant, true
	}
	record, retention, known := u.plan()
	switch {
	case record == Keep && retention > 0:
		grant.State, grant.Remaining, grant.Result = store.Done, retention, u.result
	case record == Keep:
		grant.State, grant.Remaining, grant.Expired = store.Done, known, true
	default: // there is no answer to give
		return grant, !u.place.done && grant.Remaining > 0
	}
	return grant, true
}

// close gives up what is not being tried just now, if there is anything. No run is settled late from now on.
func (l *lateRuns) close() (any bool) {
	l.mu.Lock()
	l.closed = true
	left := l.queue
	l.queue = nil
	for _, u := range l.byKey {
		if u.place.answered && u.place.tried == nil {
			left = append(left, u)
		}
	}
	for _, u := range left {
		l.remove(u)
	}
	l.mu.Unlock()
	for _, u := range left {
		u.end()
	}
	return len(left) > 0
}

// Unsettled returns how many runs have ended and been answered although the store has not taken their records yet; see
// [Unsettled]. It is for health checks: such results are lost with the process.
func (e *Engine) Unsettled() int { return int(e.late.late.Load()) }
