package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/core/store"
)

// unsettled is a run that has ended and whose record the store has not taken yet. The engine tries within
// [Config.StoreTimeout], while the caller waits for its answer, and after that in the background: see lateRuns.
type unsettled struct {
	run    *runContext
	values context.Context // of the caller
	record Disposition     // what becomes of the record; byDefault: it is left to its lease
	failed bool
	fail   bool   // a failure is released by [store.Capabilities].Fail
	goesOn bool   // and its record is kept for the next attempt
	result []byte // of a record that is kept
	event  Event  // the ending one
	ended  time.Time

	first   error // of the first try that failed: it may have taken effect all the same; nil: none has failed
	err     error // of the last try
	renewed int   // how often the lease was renewed since
	due     time.Time
	place   lateRun
}

// plan returns what is to become of the record by now, and for how long its result is kept and its key is known after that.
func (u *unsettled) plan() (record Disposition, retention, known time.Duration) {
	p := &u.run.guard.policy
	if u.record != Keep {
		return u.record, 0, 0
	}
	retention, known = p.Retention, p.RefuseExpired
	if p.RetainFromStart {
		retention -= time.Since(u.run.started)
	}
	if retention <= 0 { // the result would be kept for no time
		if known += retention; known <= 0 {
			return Release, 0, 0
		}
	}
	return Keep, retention, known
}

// maxRenewals is how often a lease is renewed while the store does not take the record. Then it gets the record without the
// result, see hopeless; where there is none, the lease passes.
const maxRenewals = 3

// hopeless reports whether the store takes renewals, but not the result. A store that has not answered may only be slow.
func (u *unsettled) hopeless() bool {
	patience := 10 * u.run.guard.engine.storeTimeout
	if errors.Is(u.err, context.DeadlineExceeded) {
		patience *= 10
	}
	return u.renewed >= maxRenewals && time.Since(u.ended) >= patience
}

// call has the store take the record.
func (u *unsettled) call(calling context.Context) error {
	c, e := u.run, u.run.guard.engine
	record, retention, known := u.plan()
	switch {
	case record == Abandon:
		u.event.Kind = RunAbandoned
		return e.call(u.values, "abandon", func() error { return e.store.Abandon(calling, c.key.raw, c.owner) })
	case record == Keep:
		u.event.Kind = Completed
		result, without := u.result, error(store.ErrFull)
		if u.hopeless() {
			result, without = nil, fmt.Errorf("%w: it takes the record, but not the result: %w", store.ErrFull, u.first)
		}
		full, err := e.complete(u.values, calling, c.key, c.owner, result, max(retention, 1), known)
		if err == nil && (full || len(result) < len(u.result)) {
			u.event.Err = without
		}
		return err
	}
	u.event.Kind = Released
	switch {
	case !u.failed: // nothing of it is to be remembered, not even that it has been committed
		_, err := e.complete(u.values, calling, c.key, c.owner, nil, 0, 0)
		return err
	case u.fail:
		return e.call(u.values, "fail", func() error { return e.can.Fail(calling, c.key.raw, c.owner, u.goesOn) })
	}
	return e.call(u.values, "release", func() error { return e.store.Release(calling, c.key.raw, c.owner) })
}

// try tries once to settle the run. It reports whether another try makes sense.
func (u *unsettled) try(calling context.Context) (again bool) {
	u.err = u.call(calling)
	switch {
	case u.err == nil:
		return false
	case errors.Is(u.err, store.ErrLost):
		return u.first != nil && u.look(calling)
	case u.first == nil:
		u.first = u.err
	}
	return true
}

// look finds out what has become of the record, because the claim is gone: by an earlier try whose answer was lost, or because another
// run has begun. If that can't be known, the error is that of the first try.
func (u *unsettled) look(calling context.Context) (again bool) {
	c, can := u.run, &u.run.guard.engine.can
	lost := u.err
	u.err = u.first
	if can.Inspect == nil {
		return false
	}
	switch r, err := can.Inspect.Lookup(calling, c.key.raw); {
	case errors.Is(err, store.ErrNoRecord):
	case err != nil:
		return true
	case r.ID != c.id, c.id == store.ID{}: // another operation's
	case r.Attempt != c.attempt:
		u.err = lost
	case r.State == store.Done:
		u.event.Kind, u.err = Completed, nil
		u.event.Err = cmp.Or(u.event.Err, u.first) // somebody may have to know: no replica has it, say
	case r.State == store.Abandoned && u.event.Kind != Completed, r.State == store.Free && u.event.Kind == Released:
		u.err = nil
	default:
		u.err = lost
	}
	return false
}

// renew renews the lease, if it is time, so that others keep off. It reports whether another try to settle the run makes sense.
func (u *unsettled) renew(calling context.Context) (again bool) {
	c, e := u.run, u.run.guard.engine
	sent := time.Now()
	if sent.Before(u.due) || u.renewed >= maxRenewals && u.record != Keep {
		return true
	}
	lease := c.guard.policy.Lease
	err := e.call(u.values, "renew", func() error { return e.store.Renew(calling, c.key.raw, c.owner, lease) })
	switch {
	case err == nil:
		u.renewed++
		u.due = sent.Add(lease / 3)
		e.late.renewed(u, sent.Add(lease))
	case errors.Is(err, store.ErrLost):
		return u.try(calling) // which finds out why
	default:
		u.due = time.Now().Add(lease / 10)
	}
	return true
}

// end tells the observer what has become of the record, and counts the run out.
func (u *unsettled) end() {
	c, ev := u.run, u.event
	defer c.guard.engine.runs.end(c)
	ev.Late = u.place.answered
	switch {
	case errors.Is(u.err, store.ErrLost):
		ev.Kind, ev.Err = RunLost, u.err
	case u.err != nil:
		if ev.Kind, ev.Err = RunUnfinished, u.err; u.first != nil {
			ev.Err = u.first
		}
	}
	c.guard.observe(u.values, ev)
}
