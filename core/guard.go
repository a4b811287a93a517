package core

import (
	"context"
	"hash/maphash"
	"strings"
	"sync"

	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/core/internal/canon"
	"github.com/idem-go/idem/core/store"
)

// Guard is a policy compiled by an engine; adapters mount it. It may be mounted on any number of routes, because the route is a
// part of the key. (Under [SignedEvent] it is not: an event runs once on all of them.) It is safe for concurrent use.
type Guard struct {
	engine        *Engine
	policy        Policy    // with defaults filled in
	name          string    // of the policy, as records have it
	source        keySource // of the policy's key; nil for a Task
	identity      canon.Rules
	params        canon.Rules  // for fingerprints
	headers       []string     // the fields of RequestHeaders, in canonical form
	other         *canon.Rules // for fingerprints of engines with another Config.Seal; nil: they don't count
	seed          maphash.Seed // of store.Claim.Raw
	user          UserSource
	callers       bool                                      // a verified caller is the user by default
	task          bool                                      // of a Task
	ignores       bool                                      // the parameters: the key alone decides (IgnoreFingerprint)
	keyless       bool                                      // a Task's: calls without a key pass
	forgets       bool                                      // a PUT or DELETE that succeeds is released: the policy says nothing else
	running       *Refusal                                  // what a duplicate gets while the operation runs
	refuses       func(context.Context, *Refusal) *Response // Policy.Refuse, Config.Refuse, both or nil
	refused       *Refusal                                  // what it gets under Reject when the operation has finished
	refusedFailed *Refusal                                  // and what if the run has failed
	withoutKey    *Guard                                    // for requests that have no key, under OrParams
	ignoredKeys   sync.Map                                  // the routes of which an event has said that a key was ignored
}

// Guard compiles p for HTTP. It reports every fault of p at once, each as a
// *[ConfigError].
func (e *Engine) Guard(p Policy) (*Guard, error) {
	g := &Guard{engine: e, policy: p, source: p.Key.source, user: p.User, seed: maphash.MakeSeed()}
	if g.source == nil {
		g.source = new(paramsKey)
	}
	f := faults{of: "Policy"}
	g.policy.check(&f)
	g.compileHTTP(&f)
	compiled, err := g.compile(&f)
	if k, ok := g.source.(*headerKey); ok && err == nil && k.presence == OrParams {
		g.withoutKey, err = e.Guard(k.withoutKey(p))
	}
	if err != nil {
		return nil, err
	}
	return compiled, nil
}

// of returns the guard for r: g, or another one for a request without a key.
func (g *Guard) of(r *Request) *Guard {
	if g.withoutKey != nil {
		if _, lines := r.Headers.Header(g.source.(*headerKey).field, 0); lines == 0 {
			return g.withoutKey
		}
	}
	return g
}

// chosen reports whether somebody has chosen the keys, so that each is one operation for ever.
func (g *Guard) chosen() bool {
	switch g.source.(type) {
	case *paramsKey, *tokenKey:
		return false
	}
	return true
}

// ofEvents reports whether the policy's key is that of [SignedEvent].
func (g *Guard) ofEvents() bool {
	_, ok := g.source.(*eventKey)
	return ok
}

// tokens are those of a policy whose key is a [Token]; else nil.
func (g *Guard) tokens() *Tokens {
	if k, ok := g.source.(*tokenKey); ok {
		return k.tokens
	}
	return nil
}

// noticeIgnoredKey tells the observer, once for a route, that a client sends keys at which the policy does not look.
func (g *Guard) noticeIgnoredKey(ctx context.Context, r *Request) {
	if g.engine.observer == nil || g.chosen() {
		return
	}
	if _, lines := r.Headers.Header(DefaultKeyHeader, 0); lines == 0 {
		return
	}
	route := endpoint(r)
	_, pattern, _ := strings.Cut(route, " ") // a client may make up methods
	if _, told := g.ignoredKeys.LoadOrStore(pattern, true); !told {
		g.observe(ctx, Event{Kind: KeyIgnored, Route: route})
	}
}

// MustGuard is [Engine.Guard] for a policy that is fixed in the program. It panics with the faults.
func (e *Engine) MustGuard(p Policy) *Guard {
	g, err := e.Guard(p)
	if err != nil {
		panic(err)
	}
	return g
}

// compileTask compiles p. What it has no field for is zero.
func (e *Engine) compileTask(p TaskPolicy) (*Guard, error) {
	f := faults{of: "TaskPolicy"}
	f.addIf(p.Name == "", "Name", "is empty; it is part of the keys of a task")
	f.addIf(p.Presence > Optional, "Presence", "is %d; a task has Required or Optional", p.Presence)
	f.addIf(p.Linger < 0, "Linger", "is negative: %v", p.Linger)
	f.addIf(p.ResultLimit < 0, "ResultLimit", "is negative: %d", p.ResultLimit)
	g := &Guard{engine: e, task: true, ignores: p.IgnoreFingerprint, keyless: p.Presence == Optional, seed: maphash.MakeSeed()}
	g.policy = Policy{Name: p.Name, Duplicate: p.Duplicate, Record: p.Record, FailOpen: p.FailOpen, Linger: p.Linger,
		ResponseLimit: p.ResultLimit}
	f.addIf(p.ResultLimit > 0 && (p.Duplicate.kind == rejects || g.policy.keepsNothing()), "ResultLimit",
		"has no effect: no value is stored under Reject, or if nothing is kept; leave it out")
	g.policy.check(&f)
	return g.compile(&f)
}

// compile fills in the defaults of a policy that has been checked.
func (g *Guard) compile(f *faults) (*Guard, error) {
	p := &g.policy
	if err := f.err(); err != nil {
		return nil, err
	}
	if !g.task { // which lingers only if its policy says so: the end of the caller's context is meant
		g.source.defaults(p)
		setDefault(&p.Linger, defaultLinger)
	}
	g.name = store.Note(p.Name)
	g.refuses = g.engine.refuse
	if own, general := p.Refuse, g.engine.refuse; own != nil {
		g.refuses = func(ctx context.Context, r *Refusal) *Response {
			theirs := *r
			if resp := own(ctx, &theirs); resp != nil || general == nil {
				return resp
			}
			return general(ctx, r)
		}
	}
	setDefault(&p.Lease, defaultLease)
	setDefault(&p.Retention, defaultKeyRetention)
	setDefault(&p.RememberAbandoned, defaultRememberAbandoned)
	setDefault(&p.BodyLimit, defaultBodyLimit)
	setDefault(&p.ResponseLimit, defaultResponseLimit)
	setDefault(&p.OnSuccess, Keep)
	setDefault(&p.OnFailure, Release)
	p.failsBy(FailedByStatus)
	g.running = refusalInProgress
	if p.Duplicate.kind == rejects {
		g.running = refusal(codes.InProgress)
		g.running.Detail = "The same operation is being carried out."
	}
	g.refused, g.refusedFailed = refusal(codes.Duplicate), refusal(codes.Duplicate)
	g.refusedFailed.Detail = "This operation was tried just now and did not succeed."
	if message := p.Duplicate.message; message != "" {
		g.refused.Detail, g.refusedFailed.Detail = message, message
	}
	return g, nil
}

func setDefault[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}
