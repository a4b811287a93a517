package core

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/idem-go/idem/core/store"
)

// outcome is how a run has ended.
type outcome struct {
	failed   bool
	panicked bool
	refusal  bool     // the response is one, and must not be kept
	refused  *Refusal // a refusal that the handler has reported, and nothing has rendered
	runsOn   bool     // the handler may still be running
	cut      bool     // a part of the response has been sent, and the rest could not be
	empty    bool     // the handler has written nothing
	result   []byte   // to be stored, if the record is kept
	status   int
	err      error // for the observer
}

// finish completes, releases or abandons the record of a run that has ended, and ends the run's
// context. It does so even if the caller has gone: what has been done must be remembered. If the
// handler has given up without an answer, instead is what the client gets if it is still there.
func (c *runContext) finish(o outcome) (instead *Refusal) {
	g, e := c.guard, c.guard.engine
	e.runs.endLease(c)
	defer e.runs.end(c)
	defer c.close()

	instead = o.refused
	decided := Disposition(c.decided.Load())
	if o.empty && c.over && decided != Keep {
		if instead = refusalUnfinished; context.Cause(c) == ErrShutdown {
			instead = refusalShuttingDown
		}
		o.failed, o.refusal, o.status = true, true, instead.Status
	}
	disposition := g.policy.OnSuccess
	switch {
	case o.cut || c.cut(o.panicked):
		disposition, o.failed = Abandon, true
	case o.failed:
		disposition = g.policy.OnFailure
	case c.forgets:
		disposition = Release
	}
	if decided != byDefault {
		disposition = decided
	}
	elapsed := time.Since(c.started)
	retention := g.policy.Retention
	if g.policy.RetainFromStart {
		retention -= elapsed
	}
	if disposition == Keep && (o.refusal || retention <= 0) {
		disposition = Release
	}
	if o.failed && g.policy.Duplicate == Reject {
		o.result = failed
	}
	if c.forgets && !o.failed && decided == byDefault && !c.lost() {
		e.handovers.handOver(c.key, o.result)
	}

	ev := Event{Route: c.route, Key: c.key, Attempt: c.attempt, Status: o.status,
		Elapsed: elapsed, Failed: o.failed, Panicked: o.panicked, Err: o.err}
	if r := c.answered.Load(); r != nil && ev.Err == nil {
		ev.Err = r
	}
	var err error
	switch {
	case o.runsOn:
		err = errRunsOn // the end of the handler will not be known
	case disposition == Release:
		ev.Kind = Released
		if o.failed {
			err = e.release(c.values, c.key, c.owner)
		} else { // nothing of it is to be remembered, not even that it has been committed
			_, err = e.complete(c.values, c.key, c.owner, nil, 0)
		}
	case disposition == Abandon:
		ev.Kind = RunAbandoned
		err = e.abandon(c.values, c.key, c.owner)
	default:
		ev.Kind = Completed
		var full bool
		if full, err = e.complete(c.values, c.key, c.owner, o.result, retention); full {
			ev.Err = store.ErrFull
		}
	}
	c.ended.Store(true)
	if err == nil && ev.Kind == Completed {
		c.keptFor = retention
	}
	switch {
	case errors.Is(err, store.ErrLost):
		ev.Kind, ev.Err = RunLost, err
	case err != nil:
		ev.Kind, ev.Err = RunUnfinished, err
	}
	g.observe(c.values, ev)
	return instead
}

// finishPanic finishes a run that has ended with a panic.
func (c *runContext) finishPanic() {
	if c.ended.Load() {
		return // an observer has panicked
	}
	// If not the handler but a hook after it (Policy.Failed) has panicked, the operation has been
	// done, and must not be done again.
	_ = c.finish(outcome{failed: !c.done, panicked: true, result: unavailable})
}

var errRunsOn = errors.New("idem: a timeout behind the guard has answered, and the handler may run on; mount the guard inside of the timeout, around the handler")

// answer settles the run by what the handler has answered, and sends that, or has refuse send what the client gets instead. The
// result is made in buf, which is returned as it has grown.
func (c *runContext) answer(x Exchange, echo *[2]Field, captured *Capture, buf []byte, refuse func(*Refusal) error) ([]byte, error) {
	settled := false
	defer func() {
		if !settled { // Policy.Failed has panicked, or an observer: the client gets the handler's answer
			c.finishPanic()
			_ = deliver(x, echo, c.keptFor)
		}
	}()
	c.done = true
	o, buf := c.outcome(captured, buf)
	instead := c.finish(o)
	settled = true
	if instead != nil {
		return buf, refuse(instead)
	}
	return buf, deliver(x, echo, c.keptFor)
}

// outcome makes an outcome of a capture, with the result in buf.
func (c *runContext) outcome(captured *Capture, buf []byte) (outcome, []byte) {
	g := c.guard
	if captured.Unrendered || captured.Response == nil {
		o := outcome{failed: true, result: unavailable, err: unrendered(captured.Err)}
		if r := reported(captured.Err); r != nil {
			if o.refusal = true; !captured.Incomplete {
				o.refused, o.status, o.err = r, r.Status, captured.Err
			}
		}
		return o, buf
	}
	o := outcome{status: captured.Response.Status, cut: captured.Cut, empty: captured.Empty, err: captured.Err,
		refusal: captured.Response.Get(RefusedHeader) != "", runsOn: captured.RunsOn}
	if r := reported(captured.Err); r != nil {
		o.refusal = true
		if (captured.Empty || o.status == http.StatusInternalServerError) && !captured.Incomplete {
			o.refused, o.status = r, r.Status
		}
	}
	if captured.Empty && captured.Err != nil && o.refused == nil { // the middleware that was to render the error has ignored it
		o.failed, o.result, o.err = true, unavailable, unrendered(captured.Err)
		return o, buf
	}
	o.failed = o.refusal || g.policy.Failed(captured.Response) || o.runsOn
	switch {
	case g.policy.Duplicate == Reject:
		// The response is never replayed.
	case captured.Incomplete || len(captured.Response.Body) > g.policy.ResponseLimit:
		o.result = unavailable
	default:
		c.mu.Lock()
		buf = appendResponse(buf, captured.Response, &g.policy.StoredHeaders, c.echoed...)
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
		return ErrUnrendered
	}
	return fmt.Errorf("%w: %w", ErrUnrendered, err)
}
