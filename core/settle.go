package core

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/store"
)

// ending is how a run has ended: what its adapter tells and its context told, and whether that is a success.
type ending uint8

const (
	succeeded  ending = iota
	hasFailed         // with an answer, or the error of a task
	unanswered        // without an answer
	gaveUp            // its context ended, and the handler returned without having written anything
	cut               // the client has a part of the answer
	runsOn            // a timeout has answered, and the handler may still be running
)

// outcome is how a run has ended, and with what.
type outcome struct {
	ending   ending
	panicked bool
	again    bool     // if it has failed: another try makes sense
	refusal  bool     // the answer is a refusal, which is never kept
	sent     bool     // a part of the answer has been sent
	reported *Refusal // by the handler, and nothing has rendered it
	result   []byte   // for duplicates, if the record is kept
	status   int      // of the answer
	err      error    // for the observer
}

// settlement is what becomes of a run that has ended.
type settlement struct {
	record  Disposition // byDefault: it is left to its lease
	failed  bool
	instead *Refusal // what the client gets in place of the handler's answer; nil: that answer
}

// settlement decides what becomes of the record and of the answer, by how the run has ended and by what the handler
// has decided.
func (c *runContext) settlement(o *outcome, decided Disposition) settlement {
	p := &c.guard.policy
	s := settlement{record: p.OnFailure, failed: true, instead: o.reported}
	switch o.ending {
	case runsOn: // its end will not be known, whatever it decides
		return settlement{failed: true, instead: o.reported}
	case cut:
		s.record = Abandon
	case gaveUp:
		if s.instead = refusalUnfinished; context.Cause(c) == ErrShutdown {
			s.instead = refusalShuttingDown
		}
	case succeeded:
		if s.record, s.failed = p.OnSuccess, false; c.forgets {
			s.record = Release
		}
	}
	if decided != byDefault {
		s.record = decided
	}
	if s.record == Keep && o.refusal {
		s.record = Release
	}
	// What a handler answers because the engine has ended its context is not the operation's answer: a client may take a 500 for one.
	if s.failed && s.record == Release && s.instead == nil && !o.panicked && !o.sent && !c.guard.task &&
		(o.ending == unanswered || o.status >= 500) {
		switch context.Cause(c) {
		case ErrShutdown:
			s.instead = refusalShuttingDown
		case ErrLeaseLost:
			s.instead = refusalUnfinished
		}
	}
	return s
}

// settle completes, releases or abandons the record of a run that has ended, and ends the run's
// context. It does so even if the caller has gone: what has been done must be remembered. It returns
// what the client gets in place of the handler's answer, if it is still there, or nil.
func (c *runContext) settle(o outcome) (instead *Refusal) {
	g, e := c.guard, c.guard.engine
	expires := e.runs.endLease(c)
	late := false
	defer func() {
		if !late {
			e.runs.end(c)
		}
	}()
	defer c.close()

	decided := Disposition(c.decided.Load())
	s := c.settlement(&o, decided)
	if s.instead != nil {
		s.instead = g.told(s.instead)
		o.status = s.instead.Status
	}
	if s.failed && g.policy.Duplicate.kind == rejects {
		o.result = failed
	}
	if c.forgets && !s.failed && decided == byDefault && !c.lost() {
		e.handOver(c.key, store.Grant{State: store.Done, Result: o.result}, false)
	}

	u := c.endedWith(&o, &s, decided)
	if u.record == byDefault {
		u.err = errRunsOn
	} else {
		calling, cancel := e.storeContext(c.values)
		defer cancel()
		// If the lease may pass during the first try, nobody here is to claim the key meanwhile.
		if mayPass := !e.can.Local && expires.Sub(u.ended) <= e.storeTimeout; mayPass || u.try(calling) {
			var left *unsettled
			if left, late = e.late.settle(calling, u); late {
				c.ended.Store(true)
				defer e.late.answered(left)
				ev := left.event
				ev.Kind, ev.Err = Unsettled, left.first
				g.observe(c.values, ev)
				return s.instead
			}
			u = *left
		}
	}
	c.ended.Store(true)
	if u.err == nil && u.event.Kind == Completed {
		_, c.keptFor, _ = u.plan()
	}
	u.end()
	return s.instead
}

// endedWith returns the run as it has ended, to be settled.
func (c *runContext) endedWith(o *outcome, s *settlement, decided Disposition) unsettled {
	g, now := c.guard, time.Now()
	u := unsettled{run: c, values: c.values, record: s.record, failed: s.failed, result: o.result, ended: now}
	u.event = Event{Route: c.route, Key: c.key, ID: c.id, Attempt: c.attempt, Status: o.status,
		Elapsed: now.Sub(c.started), Failed: s.failed, Panicked: o.panicked, Err: o.err}
	if r := c.answered.Load(); r != nil && o.err == nil {
		u.event.Err = r
	}
	// What an earlier run has kept stays so, unless this one has advanced, or is to end it.
	if u.fail = s.failed && g.engine.can.Fail != nil && (c.advanced() || c.origin == continues && decided == Release); u.fail {
		u.goesOn = o.again || o.panicked
		if s.instead != nil {
			u.goesOn = FailedByStatus(&Response{Status: s.instead.Status}) || s.instead.RetryAfter > 0
		}
		u.goesOn = (u.goesOn || g.ofEvents()) && decided != Release // a sender tries again whatever the answer
	}
	return u
}

// settlePanic settles a run that has ended with a panic, or with runtime.Goexit. That of the handler leaves nothing
// rendered (Unrendered). Behind that of a hook (Policy.Failed) is a handler that has ended as told: what it has done
// must not be done again.
func (c *runContext) settlePanic(told adapter.Ending) {
	if c.ended.Load() {
		return // an observer has panicked
	}
	c.mu.Lock()
	if told == adapter.Unrendered && c.sent != nothingSent {
		told = adapter.Cut
	}
	c.mu.Unlock()
	_ = c.settle(outcome{ending: c.ending(told), panicked: true, result: unavailable})
}

var errRunsOn = errors.New("idem: a timeout inside the guard has answered; the handler may still be running; " +
	"mount the guard inside the timeout")

// answer settles the run by what the handler has answered, and sends that, or has refuse send what the client gets instead. The
// result is made in buf, which is returned as it has grown.
func (c *runContext) answer(x adapter.Exchange, echo *[2]Field, captured *adapter.Capture, buf []byte,
	refuse func(*Refusal) error) ([]byte, error) {
	settled := false
	defer func() {
		if !settled { // Policy.Failed has panicked, or an observer: the client gets the handler's answer
			c.settlePanic(captured.Ending)
			_ = deliver(x, echo, c.keptFor)
		}
	}()
	o, buf := c.outcome(captured, buf)
	instead := c.settle(o)
	settled = true
	if instead != nil {
		return buf, refuse(instead)
	}
	return buf, deliver(x, echo, c.keptFor)
}

// outcome makes an outcome of a capture, with the result in buf.
func (c *runContext) outcome(captured *adapter.Capture, buf []byte) (outcome, []byte) {
	p, told := &c.guard.policy, captured.Ending
	if captured.Response == nil {
		told = adapter.Unrendered
	}
	o := outcome{ending: c.ending(told), again: true, sent: captured.Incomplete, result: unavailable, err: captured.Err}
	if told != adapter.Unrendered {
		o.again = FailedByStatus(captured.Response)
		o.status, o.refusal = captured.Response.Status, captured.Response.Get(RefusedHeader) != ""
	}
	blank := told == adapter.Empty || told == adapter.Unrendered
	if r := reported(captured.Err); r != nil {
		o.refusal = true
		if (blank || o.status == http.StatusInternalServerError) && !captured.Incomplete {
			o.reported = r
		}
	}
	if o.reported == nil && (told == adapter.Unrendered || blank && captured.Err != nil) {
		o.err, o.again, told = unrendered(captured.Err), true, adapter.Unrendered
		if o.ending == succeeded { // the middleware that was to render the error has ignored it
			o.ending = unanswered
		}
	}
	o.refusal = o.refusal || o.ending == gaveUp
	noAnswer := o.refusal || told == adapter.Unrendered
	if fails := noAnswer || p.Failed(captured.Response); fails && o.ending == succeeded {
		o.ending = hasFailed
	}
	switch {
	case noAnswer:
	case p.Duplicate.kind == rejects:
		o.result = nil // the response is never replayed
	case !captured.Incomplete && len(captured.Response.Body) <= p.ResponseLimit:
		c.mu.Lock()
		buf = appendResponse(buf, captured.Response, &p.StoredHeaders, c.echoed...)
		c.mu.Unlock()
		o.result = buf
	}
	return o, buf
}

// reported returns the refusal that err is, or holds, or nil.
func reported(err error) *Refusal {
	if err == nil {
		return nil // at no cost
	}
	var r *Refusal
	errors.As(err, &r)
	return r
}

func unrendered(err error) error {
	if err == nil {
		return adapter.ErrUnrendered
	}
	return fmt.Errorf("%w: %w", adapter.ErrUnrendered, err)
}
