package core

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"strings"
	"time"

	"github.com/idem-go/idem/core/internal/canon"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/memstore"
)

// Engine holds what all guards of a service share: the store, the clock of leases, the
// hooks. It is built once with [New] and is safe for concurrent use. It has nothing to
// close: when nothing runs, no goroutine of it runs either.
type Engine struct {
	store        store.Store
	watcher      store.Watcher // nil if the store has none
	local        bool
	user         UserSource
	prefix       string
	storeTimeout time.Duration
	observer     func(context.Context, Event)
	refuse       func(context.Context, *Refusal) *Response
	renewals     renewals
	cleanups     chan struct{} // bounds the releases that follow a failed Acquire
	looks        chan struct{} // bounds the store calls of duplicates that wait; nil for a local store
	crowds       crowds
}

// New builds an engine. It reports every fault of c at once, each as a *[ConfigError].
func New(c Config) (*Engine, error) {
	f := faults{of: "Config"}
	if v := reflect.ValueOf(c.Store); v.Kind() == reflect.Pointer && v.IsNil() {
		f.add("Store", "is a nil %T; was there an error when it was made?", c.Store)
	}
	f.addIf(c.User.fault != "", "User", "%s", c.User.fault)
	f.addIf(c.StoreTimeout < 0, "StoreTimeout", "is negative: %v", c.StoreTimeout)
	f.addIf(len(c.Prefix) > 128, "Prefix", "has %d bytes; 128 are allowed", len(c.Prefix))
	f.addIf(strings.ContainsFunc(c.Prefix, func(r rune) bool { return r <= ' ' || r == 0x7f }), "Prefix",
		"holds a blank or a control character: %q; a key can be typed", c.Prefix)
	if err := f.err(); err != nil {
		return nil, err
	}
	e := &Engine{
		store:        c.Store,
		user:         c.User,
		prefix:       c.Prefix,
		storeTimeout: c.StoreTimeout,
		observer:     c.Observe,
		refuse:       c.Refuse,
		cleanups:     make(chan struct{}, maxCleanups),
	}
	if e.store == nil {
		e.store, _ = memstore.New(memstore.Options{}) // the zero Options has no fault
	}
	if e.prefix == "" {
		e.prefix = defaultPrefix
	}
	if e.storeTimeout == 0 {
		e.storeTimeout = defaultStoreTimeout
	}
	e.watcher, _ = e.store.(store.Watcher)
	_, e.local = e.store.(store.Local)
	if !e.local {
		e.looks = make(chan struct{}, maxLooks)
	} else if e.observer != nil {
		e.observer(context.Background(), Event{Kind: StoreIsLocal})
	}
	return e, nil
}

// MustNew is [New] for configurations that are fixed in the program; it panics with
// the faults.
func MustNew(c Config) *Engine {
	e, err := New(c)
	if err != nil {
		panic(err)
	}
	return e
}

// Guard is a policy compiled by an engine: what an adapter mounts. It is safe for
// concurrent use, and may be mounted on any number of routes: the route is part of
// the key.
type Guard struct {
	engine        *Engine
	policy        Policy // with defaults filled in
	identity      canon.Rules
	params        canon.Rules // for fingerprints
	user          UserSource
	callers       bool     // a verified caller is the user by default
	task          bool     // of a Task
	running       *Refusal // what a duplicate gets while the operation runs
	refused       *Refusal // what it gets under Reject when the operation has finished
	refusedFailed *Refusal // and what if the run has failed
}

// Guard compiles p for HTTP. It reports every fault of p at once, each as a
// *[ConfigError].
func (e *Engine) Guard(p Policy) (*Guard, error) { return e.compile(p, true) }

// MustGuard is [Engine.Guard] for policies that are fixed in the program; it panics
// with the faults.
func (e *Engine) MustGuard(p Policy) *Guard {
	g, err := e.Guard(p)
	if err != nil {
		panic(err)
	}
	return g
}

func (e *Engine) compile(p Policy, forHTTP bool) (*Guard, error) {
	g := &Guard{engine: e, policy: p, user: p.User, task: !forHTTP}
	f := faults{of: "Policy"}
	checkPolicy(&f, &p)
	if forHTTP {
		g.compileHTTP(&f)
	} else {
		checkTask(&f, &p)
	}
	if err := f.err(); err != nil {
		return nil, err
	}

	q, ofParameters := &g.policy, forHTTP && (p.Key.kind == keyParams || p.Key.kind == keyFields)
	if p.Key.kind == keyToken {
		setDefault(&q.Retention, max(DefaultKeyRetention, p.Key.tokens.outlasting()))
		setDefault(&q.RememberAbandoned, max(DefaultRememberAbandoned, p.Key.tokens.outlasting()))
	}
	setDefault(&q.Lease, DefaultLease)
	setDefault(&q.RememberAbandoned, DefaultRememberAbandoned)
	setDefault(&q.Linger, DefaultLinger)
	setDefault(&q.BodyLimit, DefaultBodyLimit)
	setDefault(&q.ResponseLimit, DefaultResponseLimit)
	setDefault(&q.OnSuccess, Keep)
	setDefault(&q.OnFailure, Release)
	if ofParameters {
		setDefault(&q.Retention, DefaultRetention)
	} else {
		setDefault(&q.Retention, DefaultKeyRetention)
	}
	switch {
	case q.Failed != nil:
	case ofParameters, p.Key.kind == keyToken:
		q.Failed = FailedByAnyError
	default:
		q.Failed = FailedByStatus
	}
	if !forHTTP {
		q.Linger = 0 // the context is the caller's own: its end is meant
	}
	g.running = inProgress
	if q.Duplicate == Reject {
		g.running = refusal(CodeInProgress)
		g.running.Detail = "The same operation is being carried out."
	}
	g.refused, g.refusedFailed = refusal(CodeDuplicate), refusal(CodeDuplicate)
	g.refusedFailed.Detail = "This operation has just been tried, and did not succeed."
	if q.Message != "" {
		g.refused.Detail, g.refusedFailed.Detail = q.Message, q.Message
	}
	return g, nil
}

func setDefault[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

// operation is what once carries out at most once: an HTTP exchange or a task.
type operation interface {
	identify() identity
	request() *Request // nil for a task
	route() string

	// perform runs the operation. If it panics, the run counts as failed.
	perform(c *runContext) (outcome, error)
	// deliver hands the answer on, once the record is settled. The result stands for as long as
	// stands says; zero: it was not kept.
	deliver(stands time.Duration) error
	// replay answers with a stored result, or refuses.
	replay(ctx context.Context, grant store.Grant) (status int, r *Refusal, err error)
	refuse(ctx context.Context, r *Refusal) error
	// stored returns the response behind grant, if a refusal may tell of it, or nil.
	stored(ctx context.Context, grant store.Grant) *Response
	// unprotected runs the operation without a claim.
	unprotected(ctx context.Context) error
	// settle makes a stored result of a verdict.
	settle(v Verdict) ([]byte, error)
}

// identity is which operation a request is for.
type identity struct {
	key         Key
	fingerprint string
	expired     bool // the key is a token that is too old for a first use
	refusal     *Refusal
	cause       error // behind the refusal
	pass        bool  // no key was sent, and none is needed
}

// outcome is how a run has ended.
type outcome struct {
	failed   bool
	panicked bool
	refusal  bool     // the response is one, and must not be kept
	refused  *Refusal // what the handler has reported, and nobody has rendered; nil: nothing
	runsOn   bool     // the handler may still be running
	cut      bool     // a part of the response has been sent, and the rest could not be
	empty    bool     // the handler has written nothing
	deferred bool     // how it has ended will be known later
	result   []byte   // to be stored, if the record is kept
	status   int
	err      error // for the observer
}

// once is the flow: key, claim, run, settle, deliver. It stands nowhere else.
func (g *Guard) once(ctx context.Context, op operation) error {
	e := g.engine
	id := op.identify()
	if id.refusal != nil {
		return g.refuse(ctx, op, "", id.refusal, id.cause)
	}
	if id.pass {
		g.observe(ctx, Event{Kind: Passed, Route: op.route()})
		return op.unprotected(ctx)
	}
	outer := RunFrom(ctx)
	for r := outer; r != nil; r = r.outer {
		if r.key != id.key || r.guard.engine != e || r.ended.Load() {
			continue
		}
		if r.guard != g {
			// It would wait for itself, or be refused as a duplicate of itself; and to let it
			// pass would switch its policy off.
			return g.refuse(ctx, op, id.key, guardConflict, nil)
		}
		// The same guard is mounted twice on the way to the handler.
		return op.unprotected(ctx)
	}

	claim := store.Claim{Owner: store.NewOwner(), Lease: g.policy.Lease, Retention: g.policy.RememberAbandoned}
	g.claimAnew(&claim, id)
	var w waiting
	defer w.end(e)
	for {
		if !w.enter(ctx, e) {
			w.end(e)
			return g.refuse(ctx, op, id.key, g.running, nil)
		}
		var asked time.Time
		if !e.local {
			asked = time.Now()
		}
		grant, err := w.look(ctx, g, id, claim)
		w.leave(e)
		if err == nil && grant.State == store.Acquired && !asked.IsZero() && time.Since(asked) >= claim.Lease {
			err = errLate
		}
		// A verdict is about one run, and has been used up.
		tried := claim.Attempt
		g.claimAnew(&claim, id)
		if err != nil && w.began() {
			// Who waits has time for a store that is slow for a moment. Whether this look has
			// claimed the key is not known: the next one must not meet with its own claim.
			e.releaseUnclaimed(id.key, claim.Owner, err)
			if w.wait(ctx, g, id, watchPause) {
				claim.Owner = store.NewOwner()
				continue
			}
		}
		if err != nil {
			return g.storeUnavailable(ctx, op, id, claim.Owner, err)
		}
		switch {
		case grant.State == store.Acquired && id.expired && grant.Attempt == 1:
			return g.refuse(ctx, op, id.key, refusalTokenExpired, e.release(ctx, id.key, claim.Owner))
		case g.isOfExpiredUse(grant) && (id.expired || grant.State != store.Running):
			return g.refuse(ctx, op, id.key, refusalTokenExpired, nil)
		}
		if grant.State == store.Acquired {
			c := &runContext{guard: g, values: ctx, route: op.route(), started: asked}
			c.run.key, c.run.owner, c.run.attempt = id.key, claim.Owner, grant.Attempt
			c.run.guard, c.run.outer = g, outer
			now := time.Now()
			if c.started.IsZero() { // a local store has answered just now
				c.started = now
			}
			c.open() // before it is listed: from then on it may be ended
			if !e.renewals.add(c, now) {
				c.close()
				return g.refuse(ctx, op, id.key, shuttingDown, e.release(ctx, id.key, claim.Owner))
			}
			return c.carryOut(op)
		}
		if g.reused(id, grant) {
			reused := *keyReused
			reused.Stored = op.stored(ctx, grant)
			return g.refuse(ctx, op, id.key, &reused, nil)
		}
		switch grant.State {
		case store.Done:
			if g.policy.Duplicate == Reject {
				r := g.refused
				if bytes.Equal(grant.Result, failed) {
					r = g.refusedFailed
				}
				return g.refuse(ctx, op, id.key, r, nil)
			}
			return g.replay(ctx, op, id.key, grant)

		case store.Running:
			if g.policy.Duplicate.limit() == 0 || !w.wait(ctx, g, id, grant.Remaining) {
				return g.refuse(ctx, op, id.key, g.running, nil)
			}

		case store.Abandoned:
			claim.Fingerprint = id.fingerprint
			if id.expired && g.policy.Abandoned == TakeOver && tried != grant.Attempt {
				// The token was used in time: only that was asked so far of this attempt.
				claim.Takeover, claim.Attempt = true, grant.Attempt
				continue
			}
			if claim.Takeover || tried == grant.Attempt {
				// Only another fingerprint can have kept the store from handing it over (with
				// AnyParameters: one from before the policy said so).
				return g.refuse(ctx, op, id.key, keyReused, nil)
			}
			again, settled, err := g.reconcile(ctx, op, id.key, claim, grant.Attempt)
			if !again && !settled {
				return g.refuse(ctx, op, id.key, uncertain, err)
			}
			claim.Takeover, claim.Attempt = again, grant.Attempt

		default:
			return g.storeUnavailable(ctx, op, id, claim.Owner, errBadGrant)
		}
	}
}

// claimAnew makes claim one that knows of no earlier run. With a token that is too old it takes over
// nothing, and leaves a mark: if it can't be released, it must not pass for a run that was begun.
func (g *Guard) claimAnew(claim *store.Claim, id identity) {
	claim.Fingerprint, claim.Takeover, claim.Attempt = id.fingerprint, g.policy.Abandoned == TakeOver && !id.expired, 0
	if id.expired {
		claim.Fingerprint = expiredUse
	}
}

// reused reports whether a record with other parameters stands in the way.
func (g *Guard) reused(id identity, grant store.Grant) bool {
	return grant.State != store.Acquired && grant.Fingerprint != id.fingerprint && !g.policy.AnyParameters && !g.isOfExpiredUse(grant)
}

// isOfExpiredUse reports whether what stands is the claim of a token that is too old, or what it has left. (A task's
// fingerprint may read like its mark.) While it is running, it may just be about to be released.
func (g *Guard) isOfExpiredUse(grant store.Grant) bool {
	return grant.State != store.Acquired && grant.Fingerprint == expiredUse && g.policy.Key.kind == keyToken
}

var (
	inProgress    = refusal(CodeInProgress)
	keyReused     = refusal(CodeKeyReused)
	uncertain     = refusal(CodeUncertain)
	shuttingDown  = refusal(CodeShuttingDown)
	unfinished    = refusal(CodeUnfinished)
	guardConflict = refusal(CodeGuardConflict)

	errBadGrant = errors.New("idem: the store reported an unknown state")
	// Another run may have begun by then.
	errLate   = errors.New("idem: the store answered when the lease of the claim had passed")
	errRunsOn = errors.New("idem: a timeout behind the guard has answered, and the handler may run on; mount the guard inside of the timeout, around the handler")
)

// carryOut runs an operation whose claim is held.
func (c *runContext) carryOut(op operation) error {
	g := c.guard
	returned := false
	defer func() {
		if returned {
			return
		}
		c.settlePanic() // a panic or runtime.Goexit, which goes on
		if c.done {
			_ = op.deliver(c.stands) // it was not the handler's: the client gets the answer
		}
	}()
	g.observe(c.values, Event{Kind: Started, Route: c.route, Key: c.run.key, Attempt: c.run.attempt})
	o, err := op.perform(c)
	if o.deferred {
		returned = true
		return err
	}
	instead := c.settle(o)
	returned = true
	if instead != nil {
		return op.refuse(c.values, instead)
	}
	if derr := op.deliver(c.stands); err == nil {
		err = derr
	}
	return err
}

// settle brings the record of a run that has ended into its final state, and ends the run's
// context. It does so although the caller may have gone: what has been done must be
// remembered. If the handler has given up without an answer, instead is what a client that is
// still there gets.
func (c *runContext) settle(o outcome) (instead *Refusal) {
	g, e := c.guard, c.guard.engine
	e.renewals.remove(c)
	defer e.renewals.settled(c)
	defer c.close()

	instead = o.refused
	decided := Disposition(c.run.decided.Load())
	if o.empty && c.over && decided != Keep {
		if instead = unfinished; context.Cause(c) == ErrShutdown {
			instead = shuttingDown
		}
		o.failed, o.refusal, o.status = true, true, instead.Status
	}
	disposition := g.policy.OnSuccess
	switch {
	case o.cut || c.cut(o.panicked):
		disposition, o.failed = Abandon, true
	case o.failed:
		disposition = g.policy.OnFailure
	}
	if decided != ByDefault {
		disposition = decided
	}
	elapsed := time.Since(c.started)
	retention := g.policy.Retention
	if g.policy.RetainFrom == FromStart {
		retention -= elapsed
	}
	if disposition == Keep && (o.refusal || retention <= 0) {
		disposition = Release
	}
	if o.failed && g.policy.Duplicate == Reject {
		o.result = failed
	}

	ev := Event{Route: c.route, Key: c.run.key, Attempt: c.run.attempt, Status: o.status,
		Elapsed: elapsed, Failed: o.failed, Panicked: o.panicked, Err: o.err}
	var err error
	switch {
	case o.runsOn:
		err = errRunsOn // nobody will know when it has ended
	case disposition == Release:
		ev.Kind = Released
		if o.failed {
			err = e.release(c.values, c.run.key, c.run.owner)
		} else { // nothing of it is to be remembered, not even that it has been committed
			_, err = e.complete(c.values, c.run.key, c.run.owner, nil, 0)
		}
	case disposition == Abandon:
		ev.Kind = RunAbandoned
		err = e.abandon(c.values, c.run.key, c.run.owner)
	default:
		ev.Kind = Finished
		var full bool
		if full, err = e.complete(c.values, c.run.key, c.run.owner, o.result, retention); full {
			ev.Err = store.ErrFull
		}
	}
	c.run.ended.Store(true)
	if err == nil && ev.Kind == Finished {
		c.stands = retention
	}
	switch {
	case errors.Is(err, store.ErrLost):
		ev.Kind, ev.Err = RunLost, err
	case err != nil:
		ev.Kind, ev.Err = Unsettled, err
	}
	g.observe(c.values, ev)
	return instead
}

// settlePanic settles a run that has ended with a panic.
func (c *runContext) settlePanic() {
	if c.run.ended.Load() {
		return // it was an observer's
	}
	// If it was not the handler but a hook behind it (Policy.Failed), then the operation has
	// been done, and must not be done again.
	_ = c.settle(outcome{failed: !c.done, panicked: true, result: unavailable})
}

func (g *Guard) replay(ctx context.Context, op operation, key Key, grant store.Grant) error {
	status, r, err := op.replay(ctx, grant)
	if r != nil {
		return g.refuse(ctx, op, key, r, err)
	}
	g.observe(ctx, Event{Kind: Replayed, Route: op.route(), Key: key, Status: status})
	return err
}

func (g *Guard) refuse(ctx context.Context, op operation, key Key, r *Refusal, cause error) error {
	g.observe(ctx, Event{Kind: Refused, Route: op.route(), Key: key, Status: r.Status, Code: r.Code, Err: cause})
	return op.refuse(ctx, r.because(cause))
}

// storeUnavailable decides what happens when the store has failed before the handler.
func (g *Guard) storeUnavailable(ctx context.Context, op operation, id identity, owner store.Owner, err error) error {
	if g.policy.FailOpen && !id.expired {
		g.observe(ctx, Event{Kind: Unprotected, Route: op.route(), Key: id.key, Err: err})
		return op.unprotected(ctx)
	}
	g.engine.releaseUnclaimed(id.key, owner, err)
	return g.refuse(ctx, op, id.key, storeUnavailable, err)
}

var storeUnavailable = refusal(CodeStoreUnavailable)

// maxCleanups bounds the releases under way that follow a failed Acquire: each is a goroutine,
// for no longer than the store's deadline. A link that is cut strikes all requests at once.
const maxCleanups = 4096

// releaseUnclaimed follows an Acquire that has failed: the store may have carried it out
// all the same, and the client's next try would meet a claim that nobody holds. It is
// an attempt, not a promise; if it fails the lease has to pass.
func (e *Engine) releaseUnclaimed(key Key, owner store.Owner, err error) {
	if e.local || errors.Is(err, store.ErrFull) {
		return
	}
	select {
	case e.cleanups <- struct{}{}:
	default:
		return
	}
	go func() {
		defer func() { <-e.cleanups }()
		ctx, cancel := e.storeContext(context.Background())
		defer cancel()
		_ = e.store.Release(ctx, string(key), owner) // the first failure has been reported
	}()
}

// reconcile asks the policy about an abandoned run. again: it may be taken over; settled: its
// result is stored now, or somebody else was faster. It is neither if there is an err.
func (g *Guard) reconcile(ctx context.Context, op operation, key Key, claim store.Claim, attempt uint64) (again, settled bool, err error) {
	if g.policy.Reconcile == nil {
		return false, false, nil
	}
	v, err := g.policy.Reconcile(ctx, Uncertainty{Key: key, Attempt: attempt, Request: op.request()})
	if err != nil || v.kind == verdictUnknown {
		return false, false, err
	}
	if v.kind == verdictRunAgain {
		return true, false, nil
	}
	result, err := op.settle(v)
	if err != nil {
		return false, false, err
	}
	claim.Takeover, claim.Attempt = true, attempt
	grant, err := g.engine.acquire(ctx, key, claim)
	if err != nil || grant.State != store.Acquired {
		return false, err == nil, err // somebody else was faster: look again
	}
	_, err = g.engine.complete(ctx, key, claim.Owner, result, g.policy.Retention)
	return false, err == nil, err
}

func (e *Engine) acquire(ctx context.Context, key Key, claim store.Claim) (store.Grant, error) {
	ctx, cancel := e.storeContext(ctx)
	defer cancel()
	return e.store.Acquire(ctx, string(key), claim)
}

// complete finishes a record. If there is no room for the result, it is kept without: that
// the operation has been done must be remembered, and takes no more room than the record
// has already. full then says so.
func (e *Engine) complete(ctx context.Context, key Key, owner store.Owner, result []byte, retention time.Duration) (full bool, err error) {
	ctx, cancel := e.storeContext(ctx)
	defer cancel()
	err = settled(ctx, func() error { return e.store.Complete(ctx, string(key), owner, result, retention) })
	if errors.Is(err, store.ErrFull) && len(result) > 0 {
		return true, settled(ctx, func() error { return e.store.Complete(ctx, string(key), owner, nil, retention) })
	}
	return false, err
}

func (e *Engine) release(ctx context.Context, key Key, owner store.Owner) error {
	ctx, cancel := e.storeContext(ctx)
	defer cancel()
	return settled(ctx, func() error { return e.store.Release(ctx, string(key), owner) })
}

func (e *Engine) abandon(ctx context.Context, key Key, owner store.Owner) error {
	ctx, cancel := e.storeContext(ctx)
	defer cancel()
	return settled(ctx, func() error { return e.store.Abandon(ctx, string(key), owner) })
}

// settled calls a store to settle a record, and again if that failed, until the store's
// deadline: at once first, for the usual failure is a connection that breaks with the call
// under way, and the next one goes over another; then after pauses that grow, for a store
// that restarts is soon back. That the owner has lost the claim on a later try may only mean
// that an earlier one took effect; what is then reported is the first failure.
func settled(ctx context.Context, call func() error) error {
	err := call()
	if ctx.Done() == nil {
		return err // a local store: it has no connection, and no deadline
	}
	for pause := time.Duration(0); err != nil && !isFinal(err) && ctx.Err() == nil; pause = max(2*pause, firstPause) {
		if pause > 0 && !sleep(ctx, pause) {
			return err
		}
		again := call()
		if again == nil || errors.Is(again, store.ErrFull) {
			return again
		}
		if isFinal(again) {
			return err
		}
	}
	return err
}

// isFinal reports whether a store's error is an answer.
func isFinal(err error) bool { return errors.Is(err, store.ErrLost) || errors.Is(err, store.ErrFull) }

// sleep waits for d. It returns false if ctx has ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// storeContext is the context of one store call: with a deadline of its own, and without
// the caller's end, because a claim that is cut off half-way helps nobody.
func (e *Engine) storeContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if e.local {
		return context.Background(), noCancel
	}
	return context.WithTimeout(context.WithoutCancel(ctx), e.storeTimeout)
}

func noCancel() {}

func (g *Guard) observe(ctx context.Context, ev Event) {
	if g.engine.observer != nil {
		ev.Policy = g.policy.Name
		g.engine.observer(ctx, ev)
	}
}
