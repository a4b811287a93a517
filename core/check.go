package core

// The faults of a policy. A setting that has no effect, or contradicts another one, is a fault: its author
// meant something else. Most can't be written; settings_test.go decides the pairs of the rest.

// check reports the faults of what requests and tasks share.
func (p *Policy) check(f *faults) {
	f.addIf(p.Duplicate.kind == waits && p.Duplicate.limit <= 0, "Duplicate", "is %v; the limit must be more than zero", p.Duplicate)
	f.addIf(p.Lease < 0 || p.Lease > 0 && p.Lease < minLease, "Lease", "is %v; at least %v is needed", p.Lease, minLease)
	f.addIf(p.Retention < 0, "Retention", "is negative: %v", p.Retention)
	f.addIf(p.RememberAbandoned < 0, "RememberAbandoned", "is negative: %v", p.RememberAbandoned)
	f.addIf(p.OnSuccess > Abandon, "OnSuccess", "is unknown: %d", p.OnSuccess)
	f.addIf(p.OnSuccess == Abandon, "OnSuccess", "cannot be Abandon: a success has taken effect")
	f.addIf(p.OnFailure > Abandon, "OnFailure", "is unknown: %d", p.OnFailure)

	f.addIf(p.FailOpen && p.Abandoned.uncertain, "FailOpen",
		"contradicts Abandoned: Uncertain: while the store is down, an uncertain operation would run again; leave one of the two out")
	f.addIf(p.OnSuccess == Release && p.Duplicate.kind == replays, "OnSuccess",
		"is Release, which leaves nothing to replay; use Reject or Wait")
	if p.keepsNothing() {
		// DoubleClick sets both.
		f.addIf(p.Retention > 0 && !p.RetainFromStart, "Retention", keepsNothing)
		f.addIf(p.RetainFromStart && p.Retention == 0, "RetainFromStart", keepsNothing)
		f.addIf(p.Duplicate.message != "", "Duplicate", "Reject: the message %s", keepsNothing)
	}
}

// keepsNothing is why a setting is at fault if [Policy.keepsNothing].
const keepsNothing = "has no effect: OnSuccess and OnFailure keep nothing; leave it out, or keep successes " +
	"(a handler can release a run with Run.Release)"

// keepsNothing reports whether the policy keeps no result, unless a handler decides otherwise.
func (p *Policy) keepsNothing() bool {
	// What reconcile has found out is kept.
	return p.OnSuccess == Release && p.OnFailure != Keep && p.Abandoned.reconcile == nil
}

// compileHTTP checks and compiles the part of the policy that has to do with requests.
func (g *Guard) compileHTTP(f *faults) {
	p := &g.policy
	if g.user.isZero() {
		g.user, g.callers = g.engine.user, true
	}
	f.addIf(g.user.fault != "", "User", "%s", g.user.fault)
	f.addIf(g.user.isZero(), "User",
		"is not set, nor is Config.User: without it one caller could be given another's response "+
			"(UserFromCaller if all requests are signed, SharedByAllCallers if you want that)")
	switch {
	case p.RefuseExpired == 0:
	case p.RefuseExpired < 0:
		f.add("RefuseExpired", "is negative: %v", p.RefuseExpired)
	case !g.chosen():
		f.add("RefuseExpired", "is for keys that somebody has chosen (Header, Func, BodyKey, CallerEvent): a token has an expiry "+
			"of its own, and equal parameters may be meant again")
	case p.keepsNothing():
		f.add("RefuseExpired", "has no effect: OnSuccess and OnFailure keep nothing that could expire; leave it out, or keep successes")
	case g.engine.can.Outlive == nil:
		f.add("RefuseExpired", "needs a store whose records can outlive their results (store.Capabilities.Outlive)")
	}
	f.addIf(p.BodyLimit < 0, "BodyLimit", "is negative: %d", p.BodyLimit)
	f.addIf(p.ResponseLimit < 0, "ResponseLimit", "is negative: %d", p.ResponseLimit)
	f.addIf(p.Digest > SHA256, "Digest", "is unknown: %d", p.Digest)
	if fault := p.StoredHeaders.fault(); fault != "" {
		f.add("StoredHeaders", "%s", fault)
	}
	if p.Duplicate.kind == rejects || p.keepsNothing() {
		const why = "has no effect: no response is stored under Reject, or if nothing is kept; leave it out"
		f.addIf(p.Authorize != nil, "Authorize", why)
		f.addIf(p.Replayed != nil, "Replayed", why)
		f.addIf(p.StoredHeaders.isSet(), "StoredHeaders", why)
		f.addIf(p.ResponseLimit > 0 && p.Failed == nil, "ResponseLimit", why) // Failed sees that much of the body
	}
	g.source.compile(g, f)
}
