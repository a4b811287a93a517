package core

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/memstore"
)

// Engine holds what all guards of a service share: the store, the hooks, and the renewal of leases. Build
// it once, with [New]. It is safe for concurrent use. It need not be closed: without runs it has no
// goroutines.
type Engine struct {
	store        store.Store
	watcher      store.Watcher  // nil if the store has none
	local        bool           // its calls never block
	inProcess    bool           // no other process reaches its records
	recaller     store.Recaller // nil if the store has none
	user         UserSource
	prefix       string
	storeTimeout time.Duration
	observer     func(context.Context, Event)
	refuse       func(context.Context, *Refusal) *Response
	runs         runs
	cleanups     chan struct{} // bounds the releases that follow a failed Acquire
	waiters      waitersByOperation
	handovers    handovers
	waiterCalls  chan struct{} // bounds the store calls of waiters; nil for a local store
}

// New returns an engine. It reports every fault of c at once, each as a *[ConfigError].
func New(c Config) (*Engine, error) {
	f := faults{of: "Config"}
	if v := reflect.ValueOf(c.Store); v.Kind() == reflect.Pointer && v.IsNil() {
		f.add("Store", "is a nil %T; was there an error when it was made?", c.Store)
	}
	f.addIf(c.User.fault != "", "User", "%s", c.User.fault)
	f.addIf(c.StoreTimeout < 0, "StoreTimeout", "is negative: %v", c.StoreTimeout)
	_, inProcess := c.Store.(store.InProcess)
	inProcess = inProcess || c.Store == nil
	prefix := c.prefix(&f, inProcess)
	if err := f.err(); err != nil {
		return nil, err
	}
	e := &Engine{
		store:        c.Store,
		inProcess:    inProcess,
		user:         c.User,
		prefix:       prefix,
		storeTimeout: c.StoreTimeout,
		observer:     c.Observe,
		refuse:       c.Refuse,
		cleanups:     make(chan struct{}, maxCleanups),
	}
	if e.store == nil {
		e.store, _ = memstore.New(memstore.Options{}) // the zero Options has no fault
	}
	if e.storeTimeout == 0 {
		e.storeTimeout = defaultStoreTimeout
	}
	e.watcher, _ = e.store.(store.Watcher)
	_, e.local = e.store.(store.Local)
	if r, ok := e.store.(store.Recaller); ok && r.RecallsFor(e.store) {
		e.recaller = r
	}
	if !e.local {
		e.waiterCalls = make(chan struct{}, maxWaiterCalls)
	}
	if e.inProcess && e.observer != nil {
		e.observer(context.Background(), Event{Kind: StoreIsLocal})
	}
	return e, nil
}

// MustNew is [New] for a configuration that is fixed in the program. It panics with the faults.
func MustNew(c Config) *Engine {
	e, err := New(c)
	if err != nil {
		panic(err)
	}
	return e
}

// operation is what [Guard.once] carries out at most once: an HTTP exchange, or the call of a task.
type operation interface {
	identify() identity
	request() *Request // nil for a task
	route() string

	// perform runs the operation. If it panics, the run counts as failed.
	perform(c *runContext) (outcome, error)
	// deliver sends the answer, once the run is finished. The result stands for retention; zero
	// means that it was not kept.
	deliver(retention time.Duration) error
	// replay answers with a stored result, or returns a refusal.
	replay(ctx context.Context, grant store.Grant) (status int, r *Refusal, err error)
	// refuse answers with a refusal. Those of a task go to the caller of Do, and are copies.
	refuse(ctx context.Context, r *Refusal) error
	// stored returns the response in grant, or nil if there is none or a refusal may not show it.
	stored(ctx context.Context, grant store.Grant) *Response
	// unprotected runs the operation with ctx, without a claim.
	unprotected(ctx context.Context) error
	// result encodes what a verdict says that the abandoned run has answered.
	result(v Verdict) ([]byte, error)
}

// identity is which operation a request is for.
type identity struct {
	key         Key
	fingerprint string
	raw         uint64       // see store.Claim
	done        *store.Grant // the finished record, if it has been found already
	expired     bool         // the key is a token that is too old for a first use
	refusal     *Refusal
	cause       error // behind the refusal
	pass        bool  // no key was sent, and none is needed
}

// once is the flow: key, claim, run, finish. No other function has it.
func (g *Guard) once(ctx context.Context, op operation) error {
	id := op.identify()
	switch {
	case id.refusal != nil:
		return g.refuse(ctx, op, Key{}, id.refusal, id.cause)
	case id.pass:
		g.observe(ctx, Event{Kind: Passed, Route: op.route()})
		return op.unprotected(context.WithValue(ctx, passedKey{}, refusalKeyMissing))
	}
	outer := RunFrom(ctx)
	switch outer.claimedBy(g.engine, id.key) {
	case nil: // the request has not claimed the key yet
	case g:
		return op.unprotected(ctx) // the guard is mounted twice on the way to the handler
	default:
		// A claim would wait for itself, or be refused as its own duplicate. Running the handler
		// would switch this guard's policy off.
		return g.refuse(ctx, op, id.key, guardConflict, nil)
	}
	if id.done != nil {
		return g.answerDone(ctx, op, id.key, *id.done)
	}

	c := newClaimant(g, id)
	defer c.stopWaiting()
	if c.forgets = g.forgets && isIdempotent(op.request().Method); c.forgets && g.policy.Duplicate.limit() > 0 {
		c.awaitHandover()
		defer c.stopAwaiting()
	}
	for {
		grant, err := c.acquireOrWait(ctx)
		switch {
		case err != nil:
			return g.storeUnavailable(ctx, op, &c, err)
		case c.tokenExpired(grant):
			return g.refuse(ctx, op, id.key, refusalTokenExpired, c.giveBack(ctx, grant))
		case grant.State == store.Acquired:
			return g.run(ctx, op, outer, &c, grant)
		case c.keyReused(grant):
			return g.refuse(ctx, op, id.key, keyReused.with(op.stored(ctx, grant)), nil)
		case grant.State == store.Running:
			return g.refuse(ctx, op, id.key, g.inProgress(grant), nil)
		case grant.State == store.Done:
			return g.answerDone(ctx, op, id.key, grant)
		case grant.State == store.Abandoned:
			if refusal, err := c.recover(ctx, op, grant); refusal != nil {
				return g.refuse(ctx, op, id.key, refusal, err)
			} // else it acquires again, knowing more about the abandoned run
		default:
			return g.storeUnavailable(ctx, op, &c, errBadGrant)
		}
	}
}

var (
	inProgress    = refusal(CodeInProgress)
	keyReused     = refusal(CodeKeyReused)
	uncertain     = refusal(CodeUncertain)
	shuttingDown  = refusal(CodeShuttingDown)
	unfinished    = refusal(CodeUnfinished)
	guardConflict = refusal(CodeGuardConflict)

	storeUnavailable = refusal(CodeStoreUnavailable)

	errBadGrant = errors.New("idem: the store reported an unknown state")
)

// answerDone answers a duplicate of a finished operation.
func (g *Guard) answerDone(ctx context.Context, op operation, key Key, grant store.Grant) error {
	if g.policy.Duplicate == Reject {
		return g.refuse(ctx, op, key, g.rejection(grant), nil)
	}
	status, r, err := op.replay(ctx, grant)
	if r != nil {
		return g.refuse(ctx, op, key, r, err)
	}
	g.observe(ctx, Event{Kind: Replayed, Route: op.route(), Key: key, Status: status})
	return err
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

// rejection is what a duplicate gets under Reject when the operation has finished.
func (g *Guard) rejection(grant store.Grant) *Refusal {
	if bytes.Equal(grant.Result, failed) {
		return g.refusedFailed
	}
	return g.refused
}

func (g *Guard) refuse(ctx context.Context, op operation, key Key, r *Refusal, cause error) error {
	g.observe(ctx, Event{Kind: Refused, Route: op.route(), Key: key, Status: r.Status, Code: r.Code, Err: cause})
	return op.refuse(ctx, r.because(cause))
}

// storeUnavailable refuses, or runs the operation without a claim if the policy says FailOpen: the
// store has failed before the run.
func (g *Guard) storeUnavailable(ctx context.Context, op operation, c *claimant, err error) error {
	if g.policy.FailOpen && !c.id.expired {
		g.observe(ctx, Event{Kind: Unprotected, Route: op.route(), Key: c.id.key, Err: err})
		return op.unprotected(context.WithValue(ctx, passedKey{}, storeUnavailable))
	}
	g.engine.releaseFailed(c.id.key, c.claim.Owner, err)
	return g.refuse(ctx, op, c.id.key, storeUnavailable, err)
}

func (g *Guard) observe(ctx context.Context, ev Event) {
	if g.engine.observer != nil {
		ev.Policy = g.policy.Name
		g.engine.observer(ctx, ev)
	}
}
