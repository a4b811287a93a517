package core

import (
	"hash/maphash"

	"github.com/idem-go/idem/core/internal/canon"
)

// Guard is a policy compiled by an engine; adapters mount it. It may be mounted on any number of routes,
// because the route is a part of the key. It is safe for concurrent use.
type Guard struct {
	engine        *Engine
	policy        Policy // with defaults filled in
	identity      canon.Rules
	params        canon.Rules  // for fingerprints
	seed          maphash.Seed // of store.Claim.Raw
	user          UserSource
	callers       bool     // a verified caller is the user by default
	task          bool     // of a Task
	forgets       bool     // a PUT or DELETE that succeeds is released: the policy says nothing else
	running       *Refusal // what a duplicate gets while the operation runs
	refused       *Refusal // what it gets under Reject when the operation has finished
	refusedFailed *Refusal // and what if the run has failed
}

// Guard compiles p for HTTP. It reports every fault of p at once, each as a
// *[ConfigError].
func (e *Engine) Guard(p Policy) (*Guard, error) { return e.compile(p, true) }

// MustGuard is [Engine.Guard] for a policy that is fixed in the program. It panics with the faults.
func (e *Engine) MustGuard(p Policy) *Guard {
	g, err := e.Guard(p)
	if err != nil {
		panic(err)
	}
	return g
}

func (e *Engine) compile(p Policy, forHTTP bool) (*Guard, error) {
	g := &Guard{engine: e, policy: p, user: p.User, task: !forHTTP, seed: maphash.MakeSeed()}
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
	g.forgets = ofParameters && p.Retention == 0 && p.OnSuccess == byDefault && p.OnFailure == byDefault
	if p.Key.kind == keyToken {
		setDefault(&q.Retention, max(DefaultKeyRetention, p.Key.tokens.outlasting()))
		setDefault(&q.RememberAbandoned, max(defaultRememberAbandoned, p.Key.tokens.outlasting()))
	}
	setDefault(&q.Lease, DefaultLease)
	setDefault(&q.RememberAbandoned, defaultRememberAbandoned)
	setDefault(&q.Linger, defaultLinger)
	setDefault(&q.BodyLimit, defaultBodyLimit)
	setDefault(&q.ResponseLimit, defaultResponseLimit)
	setDefault(&q.OnSuccess, Keep)
	setDefault(&q.OnFailure, Release)
	if ofParameters {
		setDefault(&q.Retention, defaultRetention)
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
	g.running = refusalInProgress
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
