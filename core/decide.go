package core

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/idem-go/idem/core/store"
)

// decision is what is to be done about a request, or the call of a task. [Guard.decide] makes it, and Serve and Do
// act on it.
type decision struct {
	action  action
	run     *runContext // toRun: it holds the claim
	grant   store.Grant // toReplay: the finished record; toRefuse: the record that is there, if any
	refusal *Refusal    // toRefuse; toPass: why there is no run, or nil if the request has one already
	cause   error       // behind the refusal
	waited  time.Duration
}

type action uint8

const (
	toRun action = iota
	toReplay
	toRefuse
	toPass // without a claim
)

// decide makes every decision up to the run: key, claim, wait. Nothing else does.
func (g *Guard) decide(ctx context.Context, id *identity) (d decision) {
	switch {
	case id.refusal != nil:
		return decision{action: toRefuse, refusal: id.refusal, cause: id.cause}
	case id.pass:
		g.observe(ctx, Event{Kind: Passed, Route: id.route})
		return decision{action: toPass, refusal: refusalKeyMissing}
	}
	outer := RunFrom(ctx)
	switch outer.claimedBy(g.engine, id.key) {
	case nil: // the request has not claimed the key yet
	case g:
		return decision{action: toPass} // the guard is mounted twice on the way to the handler
	default:
		// A claim would wait for itself, or be refused as its own duplicate. Running the handler
		// would switch this guard's policy off.
		return decision{action: toRefuse, refusal: refusalGuardConflict}
	}
	if id.done != nil {
		return g.duplicate(*id.done)
	}

	c := newClaimant(ctx, g, id)
	defer func() {
		d.waited = c.waited()
		c.leave()
		c.stop()
	}()
	for {
		grant, err := c.acquireOrWait(ctx)
		switch {
		case err != nil:
			return g.storeUnavailable(ctx, &c, err)
		case c.tokenExpired(grant):
			return decision{action: toRefuse, refusal: refusalTokenExpired, cause: c.giveBack(ctx, grant)}
		case grant.State == store.Acquired:
			if run := g.begin(ctx, outer, &c, grant); run != nil {
				return decision{action: toRun, run: run}
			}
			return decision{action: toRefuse, refusal: refusalShuttingDown, cause: c.giveBack(ctx, grant)}
		case grant.Expired: // before its parameters are looked at
			return g.duplicate(grant)
		case c.keyReused(grant):
			return decision{action: toRefuse, refusal: refusalKeyReused, grant: grant}
		case grant.State == store.Running:
			return decision{action: toRefuse, refusal: g.inProgress(grant), grant: grant}
		case grant.State == store.Done:
			return g.duplicate(grant)
		case grant.State == store.Abandoned:
			done, refusal, err := c.recover(ctx, grant)
			switch {
			case refusal != nil:
				return decision{action: toRefuse, refusal: refusal, cause: err, grant: grant}
			case done != nil:
				return g.duplicate(*done)
			} // else it acquires again, knowing more about the abandoned run
		default:
			return g.storeUnavailable(ctx, &c, errBadGrant)
		}
	}
}

var errBadGrant = errors.New("idem: the store reported an unknown state")

// duplicate decides about a duplicate of a finished operation.
func (g *Guard) duplicate(grant store.Grant) decision {
	switch {
	case grant.Expired && !g.ofEvents():
		return decision{action: toRefuse, refusal: refusalKeyExpired, grant: grant}
	case g.policy.Duplicate.kind != rejects, g.ofEvents():
		return decision{action: toReplay, grant: grant}
	case grant.Unopened != nil:
		return decision{action: toRefuse, refusal: refusalUnavailable, cause: grant.Unopened, grant: grant}
	case bytes.Equal(grant.Result, failed):
		return decision{action: toRefuse, refusal: g.refusedFailed, grant: grant}
	}
	return decision{action: toRefuse, refusal: g.refused, grant: grant}
}

// inProgress is what a duplicate gets while the operation runs. A lease is renewed after each third. If less
// than 60 % is left, a renewal was missed: the run may have died, and another try makes no sense before the lease has passed.
func (g *Guard) inProgress(grant store.Grant) *Refusal {
	if left := grant.Remaining; left > g.running.RetryAfter && left < g.policy.Lease/5*3 {
		r := *g.running
		r.RetryAfter = left
		return &r
	}
	return g.running
}

// storeUnavailable refuses, or lets the operation pass without a claim if the policy says FailOpen: the
// store has failed before the run. Steps that can't be opened are of a run that has begun.
func (g *Guard) storeUnavailable(ctx context.Context, c *claimant, err error) decision {
	if g.policy.FailOpen && !c.id.expired && !errors.Is(err, ErrSealed) {
		g.observe(ctx, Event{Kind: Unprotected, Route: c.id.route, Key: c.id.key, Waited: c.waited(), Err: err})
		return decision{action: toPass, refusal: refusalStoreUnavailable}
	}
	if c.limit == nil { // else acquire has released it
		g.engine.releaseFailed(c.id.key, c.claim.Owner, err)
	}
	return decision{action: toRefuse, refusal: refusalStoreUnavailable, cause: err}
}

// refuse tells the observer of a refusal, and returns a copy that says what is behind it.
func (g *Guard) refuse(ctx context.Context, id *identity, d *decision) *Refusal {
	r := g.told(d.refusal)
	g.observe(ctx, Event{Kind: Refused, Route: id.route, Key: id.key, ID: d.grant.ID, Remark: d.grant.Remark, Status: r.Status,
		Code: r.Code, Waited: d.waited, Err: d.cause})
	return r.because(d.cause)
}

func (g *Guard) observe(ctx context.Context, ev Event) {
	if g.engine.observer != nil {
		ev.Policy = g.policy.Name
		g.engine.observer(ctx, ev)
	}
}
