package core

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/idem-go/idem/core/store"
)

// runs lists the runs of an engine, and has the one timer that renews their leases: neither a goroutine
// nor a timer per request, and nothing to stop when nothing runs.
type runs struct {
	mu    sync.Mutex
	head  *runContext
	timer *time.Timer
	armed time.Time // when the timer fires; zero: it does not

	running int           // runs that have begun and are not settled
	drained chan struct{} // closed when none runs any more; nil: more may begin, see Engine.Drain
}

// lease is the place of a run among those of its engine; runs.mu guards it.
type lease struct {
	prev, next *runContext
	due        time.Time // of the next renewal
	expires    time.Time // by this process's clock
	renewing   bool
	listed     bool // it is to be renewed
	counted    bool // among those that Drain waits for
}

// begin lists a run, unless no more may begin.
func (l *runs) begin(c *runContext, now time.Time) bool {
	lease := c.guard.policy.Lease
	c.expires = c.started.Add(lease)
	c.due = c.started.Add(lease / 3)
	l.mu.Lock()
	if l.drained != nil {
		l.mu.Unlock()
		return false
	}
	l.running++
	c.listed, c.counted = true, true
	c.next = l.head
	if l.head != nil {
		l.head.prev = c
	}
	l.head = c
	l.arm(c.due, now)
	l.mu.Unlock()
	return true
}

// endLease takes a run off the list: its lease is not renewed any more. It returns when the lease passes.
func (l *runs) endLease(c *runContext) (expires time.Time) {
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
	expires = c.expires
	l.mu.Unlock()
	return expires
}

// end counts a run out when it is settled. A second call does nothing.
func (l *runs) end(c *runContext) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !c.counted {
		return
	}
	c.counted = false
	if l.running--; l.running == 0 && l.drained != nil {
		close(l.drained)
	}
}

// arm makes sure that the timer fires no later than at. l.mu is held.
func (l *runs) arm(at, now time.Time) {
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
func (l *runs) fire() {
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

func (c *runContext) renew(l *runs) {
	g := c.guard
	lease := g.policy.Lease
	sent := time.Now()

	// No answer is awaited beyond the end of the lease: from then on another run may begin.
	limit := min(g.engine.storeTimeout, c.expires.Sub(sent))
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.values), limit)
	err := g.engine.call(c.values, "renew", func() error { return g.engine.store.Renew(ctx, c.key.raw, c.owner, lease) })
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
	case errors.Is(err, store.ErrLost), !now.Before(c.expires):
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
		return // the run has ended meanwhile, and is settled
	}
	if lost {
		l.endLease(c)
		c.end(ErrLeaseLost)
		g.observe(c.values, Event{Kind: LeaseLost, Route: c.route, Key: c.key, ID: c.id,
			Attempt: c.attempt, Elapsed: now.Sub(c.started), Err: err})
		return
	}
	g.observe(c.values, Event{Kind: RenewFailed, Route: c.route, Key: c.key, ID: c.id,
		Attempt: c.attempt, Elapsed: now.Sub(c.started), Err: err})
}
