package core

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Run is what a handler can learn about its own run.
type Run struct {
	key     Key
	owner   Owner
	attempt uint64

	engine  *Engine
	outer   *Run        // the run in which this one was begun, if any
	refused atomic.Bool // a guard further in has refused the request
}

// Key returns the key of the operation.
func (r *Run) Key() Key { return r.key }

// Owner returns the random token that holds the claim.
func (r *Run) Owner() Owner { return r.owner }

// Attempt returns the number of the run, from 1. It is one higher at each takeover: hand
// it on as a fencing token to systems that can refuse a lower one than they have seen.
func (r *Run) Attempt() uint64 { return r.attempt }

// Takeover reports whether an earlier run of the operation was begun and never finished.
// What that run did is not known; the handler should find out before it does it again.
func (r *Run) Takeover() bool { return r.attempt > 1 }

// RunFrom returns the run to which ctx belongs, if any: the request's context under an
// adapter, the function's under [Engine.Do].
func RunFrom(ctx context.Context) (*Run, bool) {
	r, ok := ctx.Value(runKey{}).(*Run)
	return r, ok
}

type runKey struct{}

// ErrLeaseLost is the cause of a run's cancelled context (context.Cause) when the claim
// was lost while the handler was running: its lease could not be renewed in time, and
// another run may have begun.
var ErrLeaseLost = errors.New("idem: the lease was lost while the operation was running")

// errRunEnded is the cause when the run has ended, as for a net/http request.
var errRunEnded = errors.New("idem: the run has ended")

// runContext is the context of a run, and everything else that a run needs: one allocation.
type runContext struct {
	context.Context // cancelled when the lease is lost or the run has ended
	cancel          context.CancelCauseFunc
	run             Run
	guard           *Guard
	values          context.Context // the caller's context, for values
	route           string
	started         time.Time // when the store was asked for the claim: the lease has begun since
	done            bool      // the handler has returned

	// For the engine's list of runs to renew; guarded by renewals.mu.
	prev, next *runContext
	due        time.Time // of the next renewal
	expires    time.Time // of the lease, by this process's clock
	renewing   bool
	listed     bool
}

// Value makes the run itself a value of the context.
func (c *runContext) Value(key any) any {
	if _, ok := key.(runKey); ok {
		return &c.run
	}
	return c.Context.Value(key)
}

// renewals is the list of running claims, and the one timer that renews them: neither a
// goroutine nor a timer per request, and nothing to stop when nothing runs.
type renewals struct {
	mu    sync.Mutex
	head  *runContext
	timer *time.Timer
	armed time.Time // when the timer fires; zero: it does not
}

func (l *renewals) add(c *runContext, now time.Time) {
	lease := c.guard.policy.Lease
	c.expires = now.Add(lease)
	c.due = now.Add(lease / 3)
	l.mu.Lock()
	c.listed = true
	c.next = l.head
	if l.head != nil {
		l.head.prev = c
	}
	l.head = c
	l.arm(c.due, now)
	l.mu.Unlock()
}

func (l *renewals) remove(c *runContext) {
	l.mu.Lock()
	if c.listed {
		c.listed = false
		if c.prev != nil {
			c.prev.next = c.next
		} else {
			l.head = c.next
		}
		if c.next != nil {
			c.next.prev = c.prev
		}
		c.prev, c.next = nil, nil
	}
	// The timer stays armed: it finds nothing to do and is not armed again.
	l.mu.Unlock()
}

// arm makes sure that the timer fires no later than at. l.mu is held.
func (l *renewals) arm(at, now time.Time) {
	if !l.armed.IsZero() && !at.Before(l.armed) {
		return
	}
	l.armed = at
	if l.timer == nil {
		l.timer = time.AfterFunc(at.Sub(now), l.fire)
	} else {
		l.timer.Reset(at.Sub(now))
	}
}

// fire starts the renewals that are due. Each has a goroutine of its own, because a store
// that hangs for one key must not cost the others their leases; it ends at the latest
// with the store's deadline.
func (l *renewals) fire() {
	now := time.Now()
	var next time.Time
	l.mu.Lock()
	l.armed = time.Time{}
	for c := l.head; c != nil; c = c.next {
		switch {
		case c.renewing:
			// Its next due time is set when the renewal has ended.
		case c.due.Sub(now) <= c.guard.policy.Lease/10:
			// Also what is due a little later: the list is walked a few times in each lease,
			// however many runs there are.
			c.renewing = true
			go c.renew(l)
		case next.IsZero() || c.due.Before(next):
			next = c.due
		}
	}
	if !next.IsZero() {
		l.arm(next, now)
	}
	l.mu.Unlock()
}

func (c *runContext) renew(l *renewals) {
	g := c.guard
	lease := g.policy.Lease
	sent := time.Now()

	// No answer is awaited beyond the end of the lease: from then on another run may begin.
	limit := min(g.engine.storeTimeout, c.expires.Sub(sent))
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.values), limit)
	err := g.engine.store.Renew(ctx, string(c.run.key), c.run.owner, lease)
	cancel()

	now := time.Now()
	l.mu.Lock()
	c.renewing = false
	listed := c.listed
	lost := false
	switch {
	case err == nil:
		// The store counts from when it was asked at the earliest.
		c.expires = sent.Add(lease)
		c.due = sent.Add(lease / 3)
	case errors.Is(err, ErrLost), !now.Before(c.expires):
		lost = true
	default:
		// Try again soon: a restarting store is often back before the lease ends.
		c.due = now.Add(min(lease/10, c.expires.Sub(now)))
	}
	if listed && !lost {
		l.arm(c.due, now)
	}
	l.mu.Unlock()

	if !listed || err == nil {
		return // the run has ended meanwhile, and settled its record itself
	}
	if lost {
		l.remove(c)
		c.cancel(ErrLeaseLost)
		g.observe(c.values, Event{Kind: LeaseLost, Route: c.route, Key: c.run.key,
			Attempt: c.run.attempt, Elapsed: now.Sub(c.started), Err: err})
		return
	}
	g.observe(c.values, Event{Kind: StoreFailed, Route: c.route, Key: c.run.key,
		Attempt: c.run.attempt, Elapsed: now.Sub(c.started), Err: err})
}
