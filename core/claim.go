package core

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/idem-go/idem/core/store"
)

// claimant is a caller that asks the store for the claim of its operation, and waits for it if the
// policy says so.
type claimant struct {
	guard   *Guard
	id      identity
	claim   store.Claim // what the next Acquire asks for
	askedOf uint64      // the abandoned attempt that the last Acquire was limited to; 0: none
	asked   time.Time   // when the last Acquire began; zero for a local store

	waiter  *waiter         // nil: nobody answers the caller but the store
	running store.Grant     // for which it began to wait
	since   time.Time       // when it began to wait
	limit   context.Context // ends at the limit of the wait; nil: it has not waited yet
	stop    context.CancelFunc
}

func newClaimant(ctx context.Context, g *Guard, id *identity) claimant {
	c := claimant{guard: g, id: *id, stop: noCancel}
	c.claim.Lease, c.claim.Secret = g.policy.Lease, g.engine.newest()
	c.claim.About = store.About{ID: store.NewID(), Policy: g.name, Creator: g.engine.creator, Remark: g.engine.remarkOf(ctx, id)}
	c.resetClaim()
	return c
}

// resetClaim makes the claim one that knows of no earlier run.
func (c *claimant) resetClaim() {
	c.forRun()
	c.claim.Raw, c.claim.Attempt = c.id.raw, 0
	c.claim.Takeover = !c.guard.policy.Abandoned.uncertain
	c.beginNothing()
}

// forRun makes the claim one under which the operation may run.
func (c *claimant) forRun() {
	c.claim.Fingerprint, c.claim.Retention = c.id.fingerprint, c.guard.policy.RememberAbandoned
}

// acquireOrWait asks the store for the claim. As long as another run holds it, it waits, up to the policy's
// limit, and then asks once more. Running is its answer at the limit, and when the caller has gone.
func (c *claimant) acquireOrWait(ctx context.Context) (store.Grant, error) {
	if c.id.forgets && c.guard.policy.Duplicate.limit > 0 {
		c.join(ctx)
	}
	grant, err := c.acquire(ctx)
	if err != nil && c.limit == nil {
		return grant, err
	}
	// A waiter has time for a store that fails for a moment.
	if (err != nil || c.mayWait(grant)) && c.wait(ctx, grant) {
		grant, err = c.acquire(ctx)
	}
	w := c.waiter
	if c.leave() {
		return grant, err
	}
	_ = c.giveBack(ctx, grant) // if that fails, the lease has to pass
	c.askedOf = 0
	if grant, err = w.answer(); grant.State == store.Acquired {
		c.claim.Owner, c.asked = w.claim.Owner, w.asked
	}
	if c.guard.task { // a Result's Value belongs to the caller of Do; responses are only ever read
		grant.Result = bytes.Clone(grant.Result)
	}
	return grant, err
}

// waited returns how long the caller has waited.
func (c *claimant) waited() time.Duration {
	if c.since.IsZero() {
		return 0
	}
	return time.Since(c.since)
}

// acquire asks the store for the claim, once. Too late an answer is an error.
func (c *claimant) acquire(ctx context.Context) (store.Grant, error) {
	e := c.guard.engine
	// Each call has its own owner: one that failed may have claimed the key, and its release may come after the next call.
	c.claim.Owner = store.NewOwner()
	if grant, ok := e.late.find(ctx, c.id.key, e.storeTimeout); ok {
		if c.guard.task { // see acquireOrWait
			grant.Result = bytes.Clone(grant.Result)
		}
		return grant, nil
	}
	if c.limit != nil {
		if !e.takeSlot(ctx, c.limit) {
			return c.running, nil
		}
		defer e.freeSlot()
	}
	if grant, err := c.goOn(ctx); err != nil || grant.State != 0 {
		return grant, err
	}
	if !e.can.Local {
		c.asked = time.Now()
	}
	grant, err := e.acquire(ctx, c.id.key, c.claim)
	if err == nil && grant.State == store.Acquired && !c.asked.IsZero() && time.Since(c.asked) >= c.claim.Lease {
		err = errLate
	}
	if err != nil && c.limit != nil {
		e.releaseFailed(c.id.key, c.claim.Owner, err)
	}
	c.askedOf = c.claim.Attempt
	c.resetClaim() // a verdict about an abandoned run counts once
	return grant, err
}

// Another run may have begun by then.
var errLate = errors.New("idem: the store answered after the lease of the claim had passed")

// mayWait reports whether the end of a run is worth waiting for.
func (c *claimant) mayWait(grant store.Grant) bool {
	return grant.State == store.Running && c.guard.policy.Duplicate.limit > 0 && !c.keyReused(grant) && !c.tokenExpired(grant)
}

// keyReused reports whether the record under the key has other parameters.
func (c *claimant) keyReused(grant store.Grant) bool {
	return grant.State != store.Acquired && !c.guard.ignores && !c.id.has(grant.Fingerprint) && !c.ofExpiredUse(grant)
}

// giveBack releases the claim, if it is held.
func (c *claimant) giveBack(ctx context.Context, grant store.Grant) error {
	if grant.State != store.Acquired {
		return nil
	}
	return c.guard.engine.release(ctx, c.id.key, c.claim.Owner)
}

// recover decides what becomes of an abandoned run: it returns what the run has answered, or a refusal and the error
// that caused it, or prepares the claim to be acquired once more.
func (c *claimant) recover(ctx context.Context, abandoned store.Grant) (done *store.Grant, refusal *Refusal, err error) {
	attempt, policy := abandoned.Attempt, &c.guard.policy
	if (c.guard.ignores || c.id.has(abandoned.Fingerprint)) && c.id.fingerprint != abandoned.Fingerprint { // from before the policy or Seal
		c.id.fingerprint = abandoned.Fingerprint
		c.resetClaim()
		if c.claim.Takeover {
			return nil, nil, nil
		}
	}
	if c.claim.Takeover || c.askedOf == attempt {
		// Only another fingerprint can have kept the store from handing it over.
		return nil, refusalKeyReused, nil
	}
	var verdict Verdict // unknown
	switch reconcile := policy.Abandoned.reconcile; {
	case !policy.Abandoned.uncertain: // the claim was to take over nothing unasked
		verdict = RunAgain()
	case reconcile != nil:
		verdict, err = reconcile(ctx, Uncertainty{Key: c.id.key, Attempt: attempt, Request: c.id.request})
	}
	if err != nil || verdict.kind == verdictUnknown {
		return nil, refusalUncertain, err
	}
	c.forRun()
	if verdict.kind == verdictFinished {
		if done, err = c.complete(ctx, attempt, verdict); err != nil {
			return nil, refusalUncertain, err
		}
	}
	c.claim.Takeover, c.claim.Attempt = verdict.kind == verdictRunAgain, attempt
	return done, nil, nil
}

// complete takes over an abandoned run, and completes it with what a verdict says that it has answered. It returns that
// if the store does not keep it. If another caller was faster, it does nothing.
func (c *claimant) complete(ctx context.Context, attempt uint64, verdict Verdict) (*store.Grant, error) {
	result, err := c.guard.result(verdict)
	if err != nil {
		return nil, err
	}
	e, claim := c.guard.engine, c.claim
	claim.Owner = store.NewOwner() // see acquire: that of the last call may be being released
	claim.Takeover, claim.Attempt = true, attempt
	grant, err := e.acquire(ctx, c.id.key, claim)
	if err != nil {
		e.releaseFailed(c.id.key, claim.Owner, err)
	}
	if err != nil || grant.State != store.Acquired {
		return nil, err
	}
	retention, known := c.guard.policy.Retention, c.guard.policy.RefuseExpired
	var done *store.Grant
	if c.id.forgets {
		done = &store.Grant{State: store.Done, Result: result}
		result, retention, known = nil, 0, 0
	}
	calling, cancel := e.storeContext(ctx)
	defer cancel()
	return done, retry(calling, func() error {
		_, err := e.complete(ctx, calling, c.id.key, claim.Owner, result, retention, known)
		return err
	})
}

// result encodes what a verdict says that an abandoned run has answered.
func (g *Guard) result(v Verdict) ([]byte, error) {
	switch r := v.response; {
	case g.task && r != nil:
		return nil, errors.New("idem: Finished was given a response, and this is a task: give it the value")
	case !g.task && (r == nil || r.Status < 200 || r.Status > 999):
		return nil, errors.New("idem: Finished needs a response with a final status")
	case g.policy.Duplicate.kind == rejects:
		return nil, nil
	case g.task && len(v.value) > g.policy.ResponseLimit, !g.task && len(r.Body) > g.policy.ResponseLimit:
		return unavailable, nil
	case g.task:
		return append([]byte{resultValue}, v.value...), nil
	}
	own := *v.response
	own.Header = canonical(own.Header)
	return appendResponse(nil, &own, &g.policy.StoredHeaders), nil
}
