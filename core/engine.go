package core

import (
	"context"
	"crypto/fips140"
	"errors"
	"time"

	"github.com/idem-go/idem/core/internal/canon"
	"github.com/idem-go/idem/core/internal/memory"
)

// Engine holds what all guards of a service share: the store, the clock of leases, the
// hooks. It is built once with [New] and is safe for concurrent use. It has nothing to
// close: when nothing runs, no goroutine of it runs either.
type Engine struct {
	store        Store
	watcher      Watcher // nil if the store has none
	local        bool
	user         UserSource
	prefix       string
	storeTimeout time.Duration
	observer     func(context.Context, Event)
	refusalBody  func(*Refusal) (string, []byte)
	renewals     renewals
	cleanups     chan struct{} // bounds the releases that follow a failed Acquire
	looks        chan struct{} // bounds the store calls of duplicates that wait; nil for a local store
	crowds       crowds
}

// New builds an engine. It reports every fault of c at once, each as a *[ConfigError].
func New(c Config) (*Engine, error) {
	f := faults{of: "Config"}
	f.addIf(c.User.fault != "", "User", "%s", c.User.fault)
	f.addIf(c.StoreTimeout < 0, "StoreTimeout", "is negative: %v", c.StoreTimeout)
	f.addIf(len(c.Prefix) > 128, "Prefix", "has %d bytes; 128 are allowed", len(c.Prefix))
	if err := f.err(); err != nil {
		return nil, err
	}
	e := &Engine{
		store:        c.Store,
		user:         c.User,
		prefix:       c.Prefix,
		storeTimeout: c.StoreTimeout,
		observer:     c.Observe,
		refusalBody:  c.RefusalBody,
		cleanups:     make(chan struct{}, maxCleanups),
	}
	if e.store == nil {
		e.store = memory.Default()
	}
	if e.prefix == "" {
		e.prefix = defaultPrefix
	}
	if e.storeTimeout == 0 {
		e.storeTimeout = defaultStoreTimeout
	}
	e.watcher, _ = e.store.(Watcher)
	_, e.local = e.store.(Local)
	if !e.local {
		e.looks = make(chan struct{}, maxLooks)
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
	engine   *Engine
	policy   Policy // with defaults filled in
	identity canon.Rules
	params   canon.Rules // for fingerprints
	user     UserSource
	callers  bool     // a verified caller is the user by default
	task     bool     // for Do, which compiles one at each call
	refused  *Refusal // what a finished duplicate gets under Reject
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

func (e *Engine) compile(p Policy, http bool) (*Guard, error) {
	g := &Guard{engine: e, policy: p, user: p.User, task: !http}
	q := &g.policy
	f := faults{of: "Policy"}

	f.addIf(p.Duplicate < Reject, "Duplicate", "Wait needs a limit of more than zero")
	f.addIf(p.Message != "" && p.Duplicate != Reject, "Message", "is only shown under Reject")
	f.addIf(p.Lease < 0 || p.Lease > 0 && p.Lease < minLease, "Lease", "is %v; at least %v is needed", p.Lease, minLease)
	f.addIf(p.Retention < 0, "Retention", "is negative: %v", p.Retention)
	f.addIf(p.RetainFrom > FromStart, "RetainFrom", "is unknown: %d", p.RetainFrom)
	f.addIf(p.OnSuccess > Release, "OnSuccess", "is unknown: %d", p.OnSuccess)
	f.addIf(p.OnFailure > Release, "OnFailure", "is unknown: %d", p.OnFailure)
	f.addIf(p.Abandoned > Uncertain, "Abandoned", "is unknown: %d", p.Abandoned)
	f.addIf(p.Reconcile != nil && p.Abandoned != Uncertain, "Reconcile", "is only asked if Abandoned is Uncertain")
	f.addIf(p.ResponseLimit < 0, "ResponseLimit", "is negative: %d", p.ResponseLimit)
	if http {
		g.compileHTTP(&f)
	} else {
		f.addIf(p.Name == "", "Name", "is empty; it is part of the keys of Do")
	}
	if err := f.err(); err != nil {
		return nil, err
	}

	setDefault(&q.Lease, DefaultLease)
	setDefault(&q.Retention, DefaultRetention)
	setDefault(&q.BodyLimit, DefaultBodyLimit)
	setDefault(&q.ResponseLimit, DefaultResponseLimit)
	setDefault(&q.OnSuccess, Keep)
	setDefault(&q.OnFailure, Release)
	if q.Failed == nil {
		q.Failed = FailedByStatus
	}
	g.refused = refusal(CodeDuplicate)
	if q.Message != "" {
		g.refused.Detail = q.Message
	}
	return g, nil
}

func setDefault[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

// compileHTTP checks and compiles the part of the policy that has to do with requests.
func (g *Guard) compileHTTP(f *faults) {
	p := &g.policy
	if g.user.isZero() {
		g.user, g.callers = g.engine.user, true
	}
	f.addIf(g.user.fault != "", "User", "%s", g.user.fault)
	f.addIf(g.user.isZero(), "User",
		"is not set, nor is Config.User: without it one caller could be given another's response (UserFromCaller if all requests are signed, SharedByAllCallers if that is meant)")
	f.addIf(p.BodyLimit < 0, "BodyLimit", "is negative: %d", p.BodyLimit)
	f.addIf(p.Digest > SHA256, "Digest", "is unknown: %d", p.Digest)
	f.addIf(p.Digest == MD5 && fips140.Enabled(), "Digest", "must be SHA256 under FIPS 140")
	if fault := p.StoredHeaders.fault(); fault != "" {
		f.add("StoredHeaders", "%s", fault)
	}

	rules := canon.Rules{Algorithm: p.Digest, DefaultNames: !p.Exclude.only, WithoutFiles: p.WithoutFiles}
	rules.Exclude = compilePaths(f, "Exclude", p.Exclude.paths)
	g.params, g.identity = rules, rules

	switch p.Key.kind {
	case keyHeader:
		f.addIf(!isToken(p.Key.name), "Key", "%q is no header field name", p.Key.name)
		f.addIf(p.Key.presence > Optional, "Key", "presence is unknown: %d", p.Key.presence)
	case keyFields:
		f.addIf(len(p.Key.paths) == 0, "Key", "Fields names no field")
		g.identity.Select = compilePaths(f, "Key", p.Key.paths)
		g.identity.DefaultNames = false // a field that is named is meant
	case keyFunc:
		f.addIf(p.Key.fn == nil, "Key", "Func was given no function")
	}
}

func compilePaths(f *faults, field string, paths []string) *canon.Paths {
	if len(paths) == 0 {
		return nil
	}
	compiled, err := canon.CompilePaths(paths)
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			f.add(field, "%v", err)
		}
	} else if err != nil {
		f.add(field, "%v", err)
	}
	return compiled
}

// operation is what once carries out at most once: an HTTP exchange or a task.
type operation interface {
	identify() identity
	request() *Request // nil for a task
	route() string

	// perform runs the operation. If it panics, the run counts as failed.
	perform(c *runContext) (outcome, error)
	// deliver hands the answer on, once the record is settled.
	deliver() error
	// replay answers with a stored result, or refuses.
	replay(ctx context.Context, result []byte) (status int, r *Refusal, err error)
	refuse(r *Refusal) error
	// unprotected runs the operation without a claim.
	unprotected(ctx context.Context) error
	// settle makes a stored result of a verdict.
	settle(v Verdict) ([]byte, error)
}

// identity is which operation a request is for.
type identity struct {
	key         Key
	fingerprint string
	refusal     *Refusal
	cause       error // behind the refusal
	pass        bool  // no key was sent, and none is needed
}

// outcome is how a run has ended.
type outcome struct {
	failed     bool
	panicked   bool
	unrendered bool
	deferred   bool   // how it has ended will be known later
	streaming  bool   // the response may still be on its way when the handler has returned
	result     []byte // to be stored, if the record is kept
	status     int
	err        error // for the observer
}

// once is the flow: key, claim, run, settle, deliver. It stands nowhere else.
func (g *Guard) once(ctx context.Context, op operation) error {
	e := g.engine
	id := op.identify()
	if id.refusal != nil {
		return g.refuse(ctx, op, "", id.refusal, id.cause)
	}
	if id.pass {
		return op.unprotected(ctx)
	}
	outer, _ := RunFrom(ctx)
	for r := outer; r != nil; r = r.outer {
		if r.engine == e && r.key == id.key {
			// The same guard is mounted twice on the way to the handler.
			return op.unprotected(ctx)
		}
	}

	claim := Claim{
		Owner: NewOwner(), Fingerprint: id.fingerprint,
		Lease: g.policy.Lease, Retention: g.policy.Retention,
		Takeover: g.policy.Abandoned == TakeOver,
	}
	var w waiting
	defer w.end(e)
	for {
		if !w.enter(ctx, e) {
			w.end(e)
			return g.refuse(ctx, op, id.key, inProgress, nil)
		}
		var asked time.Time
		if !e.local {
			asked = time.Now()
		}
		grant, err := w.look(ctx, g, id, claim)
		w.leave(e)
		// A verdict is about one run, and has been used up.
		tried := claim.Attempt
		claim.Takeover, claim.Attempt = g.policy.Abandoned == TakeOver, 0
		if err != nil && w.began() {
			// Who waits has time for a store that is slow for a moment. Whether this look has
			// claimed the key is not known: the next one must not meet with its own claim.
			e.releaseUnclaimed(id.key, claim.Owner, err)
			if w.wait(ctx, g, id, watchPause) {
				claim.Owner = NewOwner()
				continue
			}
		}
		if err != nil {
			return g.storeUnavailable(ctx, op, id.key, claim.Owner, err)
		}
		if grant.State == Acquired {
			c := &runContext{guard: g, values: ctx, route: op.route(), started: asked}
			c.run.key, c.run.owner, c.run.attempt = id.key, claim.Owner, grant.Attempt
			c.run.engine, c.run.outer = e, outer
			return c.carryOut(op)
		}
		if g.reused(id, grant) {
			return g.refuse(ctx, op, id.key, ErrKeyReused, nil)
		}
		switch grant.State {
		case Done:
			if g.policy.Duplicate == Reject {
				return g.refuse(ctx, op, id.key, g.refused, nil)
			}
			return g.replay(ctx, op, id.key, grant)

		case Running:
			if g.policy.Duplicate <= 0 || !w.wait(ctx, g, id, grant.Remaining) {
				return g.refuse(ctx, op, id.key, inProgress, nil)
			}

		case Abandoned:
			if claim.Takeover || tried == grant.Attempt {
				// Only another fingerprint can have kept the store from handing it over (with
				// AnyParameters: one from before the policy said so).
				return g.refuse(ctx, op, id.key, ErrKeyReused, nil)
			}
			again, settled, err := g.reconcile(ctx, op, id.key, claim, grant.Attempt)
			if err != nil || !again && !settled {
				return g.refuse(ctx, op, id.key, ErrUncertain, err)
			}
			claim.Takeover, claim.Attempt = again, grant.Attempt

		default:
			return g.storeUnavailable(ctx, op, id.key, claim.Owner, errBadGrant)
		}
	}
}

// reused reports whether a record with other parameters stands in the way.
func (g *Guard) reused(id identity, grant Grant) bool {
	return grant.State != Acquired && grant.Fingerprint != id.fingerprint && !g.policy.AnyParameters
}

var (
	inProgress = func() *Refusal {
		r := refusal(CodeInProgress)
		r.RetryAfter = time.Second
		return r
	}()
	errBadGrant = errors.New("idem: the store reported a state that there is none of")
)

// carryOut runs an operation whose claim is held.
func (c *runContext) carryOut(op operation) error {
	g := c.guard
	if c.started.IsZero() { // a local store has answered just now
		c.started = time.Now()
	}
	c.Context, c.cancel = context.WithCancelCause(c.values)
	g.engine.renewals.add(c, c.started)

	returned := false
	defer func() {
		if !returned { // a panic or runtime.Goexit, which goes on
			c.settlePanic()
		}
	}()
	g.observe(c.values, Event{Kind: Started, Route: c.route, Key: c.run.key, Attempt: c.run.attempt})
	o, err := op.perform(c)
	returned = true
	if o.deferred {
		return err
	}
	c.settle(o)
	if derr := op.deliver(); err == nil {
		err = derr
	}
	return err
}

// settle brings the record of a run that has ended into its final state, and ends the run's
// context. It does so although the caller may have gone: what has been done must be
// remembered.
func (c *runContext) settle(o outcome) {
	g, e := c.guard, c.guard.engine
	e.renewals.remove(c)
	if !o.streaming {
		defer c.cancel(errRunEnded)
	}

	disposition := g.policy.OnSuccess
	if o.failed {
		disposition = g.policy.OnFailure
	}
	elapsed := time.Since(c.started)
	retention := g.policy.Retention
	if g.policy.RetainFrom == FromStart {
		retention -= elapsed
	}

	kind, err := Finished, error(nil)
	refused := c.run.refused.Load() // then the handler was not reached, and nothing was done
	if refused || disposition == Release || retention <= 0 {
		kind = Released
		err = e.release(c.values, c.run.key, c.run.owner)
	} else {
		var full bool
		if full, err = e.complete(c.values, c.run.key, c.run.owner, o.result, retention); full {
			o.err = ErrStoreFull
		}
	}
	if o.panicked {
		g.observe(c.values, Event{Kind: Panicked, Route: c.route, Key: c.run.key, Attempt: c.run.attempt, Elapsed: elapsed})
	}
	ev := Event{Kind: kind, Route: c.route, Key: c.run.key, Attempt: c.run.attempt,
		Status: o.status, Elapsed: elapsed, Err: o.err}
	switch {
	case errors.Is(err, ErrLost):
		ev.Kind, ev.Err = LeaseLost, err
	case err != nil:
		ev.Kind, ev.Err = StoreFailed, err
	case o.unrendered:
		ev.Kind = Unrendered
	}
	g.observe(c.values, ev)
}

// settlePanic settles a run that has ended with a panic.
func (c *runContext) settlePanic() {
	// If it was not the handler but a hook behind it (Policy.Failed), then the operation has
	// been done, and must not be done again.
	c.settle(outcome{failed: !c.done, panicked: true, result: unavailable})
}

func (g *Guard) replay(ctx context.Context, op operation, key Key, grant Grant) error {
	status, r, err := op.replay(ctx, grant.Result)
	if r != nil {
		return g.refuse(ctx, op, key, r, err)
	}
	g.observe(ctx, Event{Kind: Replayed, Route: op.route(), Key: key, Status: status})
	return err
}

func (g *Guard) refuse(ctx context.Context, op operation, key Key, r *Refusal, cause error) error {
	if op.request() != nil { // the runs around it are this request's own
		NotReached(ctx)
	}
	g.observe(ctx, Event{Kind: Refused, Route: op.route(), Key: key, Status: r.Status, Code: r.Code, Err: cause})
	return op.refuse(r)
}

// storeUnavailable decides what happens when the store has failed before the handler.
func (g *Guard) storeUnavailable(ctx context.Context, op operation, key Key, owner Owner, err error) error {
	if g.policy.FailOpen {
		g.observe(ctx, Event{Kind: Unprotected, Route: op.route(), Key: key, Err: err})
		return op.unprotected(ctx)
	}
	g.engine.releaseUnclaimed(key, owner, err)
	r := refusal(CodeStoreUnavailable)
	r.RetryAfter = time.Second
	r.cause = err
	return g.refuse(ctx, op, key, r, err)
}

// maxCleanups bounds the releases under way that follow a failed Acquire: each is a goroutine,
// for no longer than the store's deadline. A link that is cut strikes all requests at once.
const maxCleanups = 4096

// releaseUnclaimed follows an Acquire that has failed: the store may have carried it out
// all the same, and the client's next try would meet a claim that nobody holds. It is
// an attempt, not a promise; if it fails the lease has to pass.
func (e *Engine) releaseUnclaimed(key Key, owner Owner, err error) {
	if e.local || errors.Is(err, ErrStoreFull) {
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

// reconcile asks the policy about an abandoned run. again: it may be taken over;
// settled: its result is stored now.
func (g *Guard) reconcile(ctx context.Context, op operation, key Key, claim Claim, attempt uint64) (again, settled bool, err error) {
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
	if err != nil || grant.State != Acquired {
		// Somebody else was faster: look again. But if it is still there, it cannot be had.
		there := grant.State == Abandoned && grant.Attempt == attempt
		return false, err == nil && !there, err
	}
	_, err = g.engine.complete(ctx, key, claim.Owner, result, g.policy.Retention)
	return false, err == nil, err
}

func (e *Engine) acquire(ctx context.Context, key Key, claim Claim) (Grant, error) {
	ctx, cancel := e.storeContext(ctx)
	defer cancel()
	return e.store.Acquire(ctx, string(key), claim)
}

// complete finishes a record. If there is no room for the result, it is kept without: that
// the operation has been done must be remembered, and takes no more room than the record
// has already. full then says so.
func (e *Engine) complete(ctx context.Context, key Key, owner Owner, result []byte, retention time.Duration) (full bool, err error) {
	ctx, cancel := e.storeContext(ctx)
	defer cancel()
	err = settled(ctx, func() error { return e.store.Complete(ctx, string(key), owner, result, retention) })
	if errors.Is(err, ErrStoreFull) && len(result) > 0 {
		return true, settled(ctx, func() error { return e.store.Complete(ctx, string(key), owner, nil, retention) })
	}
	return false, err
}

func (e *Engine) release(ctx context.Context, key Key, owner Owner) error {
	ctx, cancel := e.storeContext(ctx)
	defer cancel()
	return settled(ctx, func() error { return e.store.Release(ctx, string(key), owner) })
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
		if again == nil || errors.Is(again, ErrStoreFull) {
			return again
		}
		if isFinal(again) {
			return err
		}
	}
	return err
}

// isFinal reports whether a store's error is an answer.
func isFinal(err error) bool { return errors.Is(err, ErrLost) || errors.Is(err, ErrStoreFull) }

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
