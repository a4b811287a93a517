package core

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/core/store"
)

// Run tells a handler about its own run, and lets it decide what becomes of the record. A nil *Run answers like the first attempt
// of an operation without a key, and decides nothing, so that handlers need no check for nil. It is safe for concurrent use.
type Run struct {
	key     Key
	owner   store.Owner
	id      store.ID
	attempt uint64
	origin  origin
	inTx    atomic.Int32 // how many transactions are under way, see BeginTx
	begun   atomic.Int64 // when the operation was, in ns since 1970; 0: not known yet, see Begun

	guard   *Guard
	outer   *Run          // the run in which this one was begun, if any
	decided atomic.Uint32 // the Disposition that the handler has decided on
	ended   atomic.Bool   // the run has been settled, as far as the store could

	answered atomic.Pointer[Refusal]  // by the handler, see RefusalResponse
	progress atomic.Pointer[progress] // nil: neither Derive nor Step was called, and the record has told nothing of earlier runs
}

// origin is what the claim of a run has found.
type origin uint8

const (
	startsAnew origin = iota // no record, or one that another operation has left
	takesOver                // an abandoned run
	continues                // a failure whose record was kept for the next attempt
)

// claimedBy returns the guard that has claimed key for r, or for a run of e in which r was begun; nil if none
// has. r may be nil.
func (r *Run) claimedBy(e *Engine, key Key) *Guard {
	for ; r != nil; r = r.outer {
		if r.key == key && r.guard.engine == e && !r.ended.Load() && !r.Unprotected() {
			return r.guard
		}
	}
	return nil
}

// Key returns the key of the operation.
func (r *Run) Key() Key {
	if r == nil {
		return Key{}
	}
	return r.key
}

// ID returns the operation's id, as logs show it: 128 random bits, made with the first claim of the operation. It stays the same
// over takeovers and over failures whose record is kept ([Run.Derive]). The next operation under the same key has another one. It
// is not secret. A request that passes unprotected has none.
func (r *Run) ID() store.ID {
	if r == nil {
		return store.ID{}
	}
	return r.id
}

// Owner returns the owner of the claim.
func (r *Run) Owner() store.Owner {
	if r == nil {
		return store.Owner{}
	}
	return r.owner
}

// Attempt returns the number of the run, from 1. It increases by one on each takeover, on a run that continues a kept failure
// ([Run.Derive]), and on the first run after a successful takeover was released. It is a fencing token for systems that can refuse
// a number lower than one they have seen.
func (r *Run) Attempt() uint64 {
	if r == nil {
		return 1
	}
	return r.attempt
}

// Takeover reports whether an earlier run of the operation began and never finished. idem does not know whether that run took
// effect. The handler should find out before it acts.
func (r *Run) Takeover() bool { return r != nil && r.origin == takesOver }

// Renew renews the lease of the run's claim, as the engine does by itself. It is for code that must know whether the run still
// holds its claim. The error is [store.ErrLost] if the run does not, or has ended; otherwise it is the store's.
func (r *Run) Renew(ctx context.Context) error {
	switch {
	case r.Unprotected():
		return nil
	case r.ended.Load():
		return store.ErrLost
	}
	e := r.guard.engine
	calling, cancel := context.WithTimeout(ctx, e.storeTimeout)
	defer cancel()
	return e.call(ctx, "renew", func() error { return e.store.Renew(calling, r.key.raw, r.owner, r.guard.policy.Lease) })
}

// Keep keeps the record of this run when it ends, whether it succeeds or fails, and overrides [Record].OnSuccess and OnFailure. The
// last call of Keep, [Run.Release] and [Run.Abandon] before the handler returns counts. A response that is a refusal is released
// anyway.
func (r *Run) Keep() { r.decide(Keep) }

// Release releases the record of this run when it ends, see [Run.Keep]. Even a record that would be kept for the next attempt
// ([Run.Derive]) is released: the operation ends.
func (r *Run) Release() { r.decide(Release) }

// Abandon abandons the record of this run when it ends, see [Run.Keep]. It is for a handler that does not know whether the
// operation took effect, because the bank has not answered, for example.
func (r *Run) Abandon() { r.decide(Abandon) }

func (r *Run) decide(d Disposition) {
	if r != nil {
		r.decided.Store(uint32(d))
	}
}

// RunFrom returns the run to which ctx belongs, or nil if there is none. Under an adapter ctx is the request's context; under [Do]
// it is the function's. If a guard has let the request pass, its run is [Run.Unprotected].
func RunFrom(ctx context.Context) *Run {
	r, _ := ctx.Value(runKey{}).(*Run)
	return r
}

// RequireRun is [RunFrom] for code that can do nothing without a run, such as a transaction that marks the run's record. If there
// is none, the error is a *[Refusal]. Its code is [codes.KeyMissing] if a guard has let a request without a key pass,
// [codes.StoreUnavailable] if the store has failed and the policy has FailOpen, and otherwise [codes.NoRun]: no guard has seen ctx,
// or the method is a safe one (GET), which guards let pass.
func RequireRun(ctx context.Context) (*Run, error) {
	r := RunFrom(ctx)
	switch {
	case r == nil:
		return nil, refusal(codes.NoRun).because(errNoRun)
	case r.Unprotected():
		return nil, r.progress.Load().passed.because(errPassed)
	}
	return r, nil
}

var (
	errPassed = errors.New("idem: a guard let the request pass without a run")
	errNoRun  = errors.New("idem: no guard and no task has begun a run with this context (guards let GET pass); " +
		"pass on the request's: c.Request.Context() in Gin, c.Request().Context() in Echo, " +
		"c.UserContext() in Fiber v2, c.Context() in Fiber v3, r.Context() in net/http, or the one that a task's function gets")
)

type runKey struct{}

// The causes with which the engine ends a run's context (context.Cause).
var (
	// ErrLeaseLost means that the lease could not be renewed in time while the handler was
	// running. Another run may have begun.
	ErrLeaseLost = errors.New("idem: the lease was lost while the operation was running")
	// ErrShutdown means that the time given to [Engine.Drain] has passed.
	ErrShutdown = errors.New("idem: the engine was shut down while the operation was running")
)

// errRunEnded is the cause when the run has ended, as for a net/http request.
var errRunEnded = errors.New("idem: the run has ended")

// runContext is a run, its lease and its context: one allocation.
type runContext struct {
	Run
	lease
	route       string
	fingerprint string        // of the operation's parameters
	started     time.Time     // when the store was asked for the claim: the lease has begun since
	waited      time.Duration // for the claim
	keptFor     time.Duration // how long its result is kept; zero: it was not

	values  context.Context    // the caller's context
	unwatch func() bool        // gives up waiting for the caller's end
	timeout context.CancelFunc // of the deadline

	mu        sync.Mutex
	own       context.Context // the run's alone: it has the caller's deadline, but not its end; see context
	cancel    context.CancelCauseFunc
	cause     error // why the context was ended; nil: it was not
	lingering *time.Timer
	forgets   bool // it leaves no record if it succeeds
	sent      sending
	unseen    bool     // a stream was held back, because the client had left
	early     ending   // what the context told when the handler returned: succeeded (nothing), gaveUp or cut; see ending
	echoed    []string // the fields of EchoKey, of its own guard and of those further in
}

// sending is how much of a response has gone out before its handler returned.
type sending uint8

const (
	nothingSent sending = iota
	partSent            // what did not fit into the policy's ResponseLimit
	streamed            // a part that the client was to see at once
)

// begin makes the run of a claim that c has acquired. It returns nil if no more runs may begin. outer is the run in
// which it is called, if any.
func (g *Guard) begin(ctx context.Context, outer *Run, c *claimant, grant store.Grant) *runContext {
	run := &runContext{values: ctx, route: c.id.route, fingerprint: c.id.fingerprint, started: c.asked}
	run.guard, run.outer = g, outer
	run.key, run.owner, run.id, run.attempt = c.id.key, c.claim.Owner, grant.ID, grant.Attempt
	run.forgets, run.waited = c.id.forgets, c.waited()
	switch {
	case grant.Free && grant.ID != c.claim.ID:
		run.origin = continues
	case grant.Attempt > 1 && !grant.Free:
		run.origin = takesOver
	}
	run.resumes(&grant)
	now := time.Now()
	if run.started.IsZero() { // a local store has answered just now
		run.started = now
	}
	if grant.ID == c.claim.ID {
		run.begun.Store(run.started.UnixNano())
	}
	run.open() // before it is listed: from then on it may be ended
	if !g.engine.runs.begin(run, now) {
		run.close()
		return nil
	}
	return run
}

// announce tells the observer that the handler begins.
func (c *runContext) announce() {
	c.guard.observe(c.values, Event{Kind: Started, Route: c.route, Key: c.key, ID: c.id, Attempt: c.attempt,
		Takeover: c.Takeover(), Waited: c.waited})
}

// open begins the run's context. It has the caller's deadline. If the client has only left, it does not
// end with the caller's context, but lingers, so that the run finishes.
func (c *runContext) open() {
	if at, ok := c.values.Deadline(); ok {
		parent, timeout := context.WithDeadline(context.Background(), at)
		c.own, c.cancel = context.WithCancelCause(parent)
		c.timeout = timeout
	}
	if c.values.Done() != nil {
		c.unwatch = context.AfterFunc(c.values, c.callerEnded)
	}
}

// context returns the context of the run alone. Many handlers never ask for it, so that it is made when somebody does.
func (c *runContext) context() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.own == nil {
		c.own, c.cancel = context.WithCancelCause(context.Background())
		if c.cause != nil {
			c.cancel(c.cause)
		}
	}
	return c.own
}

// end ends the run's context, unless it has ended before.
func (c *runContext) end(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endLocked(cause)
}

// endLocked is end for a caller that holds c.mu.
func (c *runContext) endLocked(cause error) {
	if c.cause == nil {
		c.cause = cause
	}
	if c.own != nil {
		c.cancel(cause)
	}
}

// lost reports whether the claim was lost while the handler ran.
func (c *runContext) lost() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause == ErrLeaseLost
}

// Deadline implements [context.Context].
func (c *runContext) Deadline() (time.Time, bool) { return c.values.Deadline() }

// Done implements [context.Context].
func (c *runContext) Done() <-chan struct{} { return c.context().Done() }

// Err implements [context.Context].
func (c *runContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.own != nil:
		return c.own.Err()
	case c.cause != nil:
		return context.Canceled
	}
	return nil
}

// close ends the run's context.
func (c *runContext) close() {
	if c.unwatch != nil {
		c.unwatch()
	}
	c.mu.Lock()
	if c.lingering != nil {
		c.lingering.Stop()
	}
	c.endLocked(errRunEnded)
	c.mu.Unlock()
	if c.timeout != nil {
		c.timeout()
	}
}

// callerEnded ends the run's context, now or after it has lingered: the caller's has ended.
func (c *runContext) callerEnded() {
	if c.timeout != nil && errors.Is(c.values.Err(), context.DeadlineExceeded) {
		return // the run's context has the same deadline
	}
	cause := context.Cause(c.values)
	c.mu.Lock()
	defer c.mu.Unlock()
	if cause == context.Canceled && c.guard.policy.Linger > 0 && c.sent != streamed && c.cause == nil {
		c.lingering = time.AfterFunc(c.guard.policy.Linger, func() { c.end(cause) })
		return
	}
	c.endLocked(cause)
}

// returned notes what the context tells now that the handler has returned.
func (c *runContext) returned() {
	over := c.Err() != nil
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.sent == streamed && (over || c.values.Err() != nil), c.unseen && over:
		c.early = cut // the handler may have seen the client leave before the run's context has ended
	case over:
		c.early = gaveUp
	}
}

// ending joins what the adapter has told of the run's ending with what the context told. An answer counts as a success here.
func (c *runContext) ending(told adapter.Ending) ending {
	switch {
	case told == adapter.RunsOn:
		return runsOn
	case told == adapter.Cut, c.early == cut:
		return cut
	case told == adapter.Empty && c.early == gaveUp && Disposition(c.decided.Load()) != Keep:
		return gaveUp
	case told == adapter.Answered, told == adapter.Empty:
		return succeeded
	}
	return unanswered
}

// MayStream implements the method of [adapter.Sender].
func (c *runContext) MayStream() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sent == streamed || context.Cause(c.values) != context.Canceled {
		return true
	}
	c.unseen = true
	return false
}

// PartSent implements the method of [adapter.Sender].
func (c *runContext) PartSent(streaming bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = max(c.sent, partSent)
	if streaming {
		c.sent = streamed
		if c.lingering != nil {
			c.endLocked(context.Cause(c.values))
		}
	}
}

// echoes tells the runs to which ctx belongs that a guard in them adds the field to the answer, and to replays.
func echoes(ctx context.Context, name string) {
	c, _ := ctx.Value(adapter.RunKey{}).(*runContext)
	for ; c != nil; c, _ = c.values.Value(adapter.RunKey{}).(*runContext) {
		c.mu.Lock()
		c.echoed = append(c.echoed, name)
		c.mu.Unlock()
	}
}

// Value makes the run itself a value of the context.
func (c *runContext) Value(key any) any {
	switch key.(type) {
	case runKey:
		return &c.Run
	case adapter.RunKey:
		return c
	}
	if v := c.context().Value(key); v != nil {
		return v // package context looks for its own
	}
	return c.values.Value(key)
}
