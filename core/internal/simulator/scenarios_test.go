package simulator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/core/operations"
	"github.com/idem-go/idem/core/store"
)

// scenario is who does what, and under which policy. What an explorer chooses is left open.
type scenario struct {
	name      string
	processes int // 0: two
	clients   []*client
	actors    []func(w *world) // who come after the clients
	together  bool             // all come before anything else happens, unless a schedule says otherwise
	later     time.Duration    // how long a delayed arrival takes; 0: longer than a lease
	during    bool             // handlers end when all have come, unless a schedule says otherwise
	goesOn    time.Duration    // for how long schedules go on when everybody has an answer
	leave     bool             // clients may leave before they have an answer
	open      func(p *process) func(ctx context.Context, c *client) reply
	work      []outcome // how handlers end
	steps     bool      // they have steps, and derive keys

	uncertain, failOpen, rejects, forgets, keepsFailures, chosen bool // what the policy says
	keeps, outlives, recalls                                     time.Duration
	deaf                                                         bool      // handlers ignore their contexts
	polls                                                        bool      // the store can't be watched
	failovers, refusing                                          bool      // what may also become of calls
	calls                                                        io.Writer // gets the calls of the processes, as a trace
}

// client is a caller. The fields behind name are what a scenario says of it.
type client struct {
	name              string
	at                int // the process
	user, key, params string
	wait              time.Duration

	came   time.Time
	seq    int    // its number
	stored string // the key, as the store has it
	run    *run
	got    reply
}

// How handlers end.
const (
	succeed outcome = "succeeds"
	failing outcome = "fails"
	panics  outcome = "panics"
	slow    outcome = "takes three leases"
	doubt   outcome = "abandons"
	keeps   outcome = "keeps, and fails"
)

// What clients do.
const (
	stays      outcome = "stays"
	leaves     outcome = "leaves after half a lease"
	leavesLate outcome = "leaves after a lease"
)

var errFailing = errors.New("it has failed")

// come has the client send its request.
func (w *world) come(template *client) {
	c := *template
	own := &c
	if w.calm {
		own = template // afterwards looks at what it got
	}
	own.came = time.Now()
	p := w.processes[own.at]
	w.mu.Lock()
	dead := p.dead
	w.seq++
	own.seq = w.seq
	w.note("%d %s comes", p.number, own.name)
	w.mu.Unlock()
	if dead {
		return
	}
	w.spawn(func() {
		ctx, leave := context.WithCancel(context.WithValue(p.gone, actor{}, own.name))
		defer leave()
		if w.leave {
			it := &item{p: p, who: own.name, what: "client", rank: -2, outcomes: []outcome{stays, leaves, leavesLate}}
			if after := map[outcome]time.Duration{leaves: 9 * lease / 20, leavesLate: 27 * lease / 20}[w.await(ctx, it)]; after > 0 {
				time.AfterFunc(after, leave)
			}
		}
		w.answered(own, p, p.do(ctx, own))
	})
}

// handle is every handler.
func (p *process) handle(ctx context.Context, c *client) (string, error) {
	r := p.begin(ctx, c, p)
	c.run, c.stored = r, r.key
	if p.scenario.steps {
		if err := p.takeSteps(ctx); err != nil {
			p.end(r, p.failed(ctx))
			return "", err
		}
	}
	it := &item{p: p, who: c.name, what: "handler", outcomes: p.work}
	if p.during {
		it.rank = 4
	}
	if p.calm {
		it.outcomes = []outcome{succeed}
	}
	o := p.await(ctx, it)
	if o == slow {
		select {
		case <-time.After(3 * lease):
			o = p.await(ctx, &item{p: p, who: c.name, what: "handler", outcomes: []outcome{succeed}}) // one at a time
		case <-p.obeyed(ctx):
			o = ended
		case <-p.gone.Done():
			o = crash
		}
	}
	switch o {
	case failing:
		p.end(r, p.failed(ctx))
		return "", errFailing
	case panics:
		p.end(r, p.failed(ctx))
		panic(errFailing)
	case doubt:
		core.RunFrom(ctx).Abandon()
		p.end(r, core.Abandon)
		return "", errFailing
	case ended:
		p.end(r, p.failed(ctx))
		return "", context.Cause(ctx)
	case crash:
		return "", errFailing
	}
	want := core.Keep
	if p.forgets {
		want = core.Release
	}
	p.end(r, want)
	return r.value, nil
}

// obeyed is the end of ctx, unless handlers ignore it.
func (s *scenario) obeyed(ctx context.Context) <-chan struct{} {
	if s.deaf {
		return nil
	}
	return ctx.Done()
}

// failed is what becomes of the record of a failure.
func (s *scenario) failed(ctx context.Context) core.Disposition {
	switch {
	case s.steps:
		return goOn
	case s.keepsFailures && ctx.Err() == nil:
		return core.Keep
	}
	return core.Release
}

// takeSteps is a handler's two steps, each with a key for a call downstream.
func (p *process) takeSteps(ctx context.Context) error {
	for _, name := range []string{"bill", "mail"} {
		got, err := core.Step(ctx, name, func(ctx context.Context) (string, error) {
			p.step(ctx, name, false)
			derived, err := core.RunFrom(ctx).Derive(name)
			p.derives(ctx, name, derived, err)
			return name, err
		})
		if err != nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			if !p.troubled && !p.dead && ctx.Err() == nil {
				p.breaks(9, "step %s is not remembered, although the store answers: %v", name, err)
			}
			return err
		}
		if got != name {
			p.mu.Lock()
			p.breaks(9, "step %s returned %q", name, got)
			p.mu.Unlock()
		}
		p.step(ctx, name, true)
	}
	return nil
}

// exchange is a request of a client, as an adapter shows it.
type exchange struct {
	p    *process
	c    *client
	held *adapter.Response
	got  reply
}

func (x *exchange) Header(name string, i int) (string, int) {
	value := map[string]string{"X-User": x.c.user, core.DefaultKeyHeader: x.c.key}[name]
	if value == "" || i > 0 {
		return "", len(value) & 1
	}
	return value, 1
}

func (x *exchange) Describe(r *adapter.Request) {
	r.Method, r.Route, r.ContentType = "POST", "/payments", "application/json"
	if x.p.forgets {
		r.Method = "PUT"
	}
}

func (x *exchange) ReadBody(int64) ([]byte, error) {
	return fmt.Appendf(nil, `{"params":%q}`, x.c.params), nil
}

func (x *exchange) Answer(r *adapter.Response) error {
	x.p.leaves(x.c, x.p)
	x.got = reply{code: codes.Code(r.Get(core.RefusedHeader))}
	if r.Get(core.ReplayedHeader) != "" {
		if x.got = (reply{value: string(r.Body), replayed: true}); r.Status != 200 {
			x.got = reply{err: errFailing, replayed: true}
		}
	}
	return nil
}

func (x *exchange) Pass(ctx context.Context) error {
	value, err := x.p.handle(ctx, x.c)
	x.got = reply{value: value, err: err}
	return nil
}

func (x *exchange) Run(ctx context.Context, _ int) (adapter.Capture, error) {
	value, err := x.p.handle(ctx, x.c)
	x.held = &adapter.Response{Status: 200, Body: []byte(value)}
	captured := adapter.Capture{Response: x.held}
	switch {
	case ctx.Err() != nil && err != nil: // it gives up
		captured.Ending = adapter.Empty
	case err != nil:
		x.held.Status = 503
	}
	return captured, nil
}

func (x *exchange) Deliver([]adapter.Field) error {
	x.p.leaves(x.c, x.p)
	if x.held.Status == 200 {
		x.got = reply{value: string(x.held.Body)}
	} else {
		x.got = reply{err: errFailing}
	}
	return nil
}

// guarded opens processes whose clients send requests.
func guarded(policy func(p *process) core.Policy) func(p *process) func(context.Context, *client) reply {
	return func(p *process) func(context.Context, *client) reply {
		made := policy(p)
		guard := p.engine.MustGuard(made)
		return func(ctx context.Context, c *client) (got reply) {
			x := &exchange{p: p, c: c}
			var r adapter.Request
			x.Describe(&r)
			r.Headers = x
			r.Body, _ = x.ReadBody(0)
			key, _, _ := guard.Key(&r)
			c.stored = key.Raw()
			defer func() {
				if recover() != nil {
					got = reply{err: errFailing}
				}
			}()
			if err := guard.Serve(ctx, x); err != nil {
				return reply{err: err}
			}
			return x.got
		}
	}
}

// tasks opens processes whose clients call Do.
func tasks(policy func(p *process) core.TaskPolicy) func(p *process) func(context.Context, *client) reply {
	return func(p *process) func(context.Context, *client) reply {
		task := p.engine.MustTask(policy(p))
		return func(ctx context.Context, c *client) (got reply) {
			defer func() {
				if recover() != nil {
					got = reply{err: errFailing}
				}
			}()
			c.stored = "idem:shop:U=" + c.user + "M=DO%20payK=" + c.key
			call := core.Call{User: c.user, Key: c.key, Fingerprint: c.params}
			result, err := core.Do(ctx, task, call, func(ctx context.Context) (string, error) { return p.handle(ctx, c) })
			p.leaves(c, p)
			if refusal, ok := errors.AsType[*core.Refusal](err); ok {
				return reply{code: refusal.Code, err: err}
			}
			return reply{value: result.Value, replayed: result.Replayed, err: err}
		}
	}
}

var record = core.Record{Lease: lease, Retention: 24 * time.Hour}

func with(d core.Duplicate, change func(r *core.Record)) core.TaskPolicy {
	p := core.TaskPolicy{Name: "pay", Duplicate: d, Record: record}
	if change != nil {
		change(&p.Record)
	}
	return p
}

// clients are three who want the same thing, at these processes.
func clients(at ...int) (all []*client) {
	for i, p := range at {
		all = append(all, &client{name: []string{"ann", "bob", "cem", "dee"}[i], user: "u", key: "k", params: "1", at: p})
	}
	return all
}

// eve sends something else under their key.
func eve(at int) *client { return &client{name: "eve", user: "u", key: "k", params: "2", at: at} }

// operator is somebody who releases, settles or forgets the operation.
func operator(w *world) {
	p := w.processes[1]
	w.spawn(func() {
		ctx := context.WithValue(p.gone, actor{}, "operator")
		op, err := p.ops.LookupKey(ctx, "u", "", "k")
		if err != nil {
			return
		}
		can := []outcome{"forget"}
		switch op.State {
		case store.Abandoned:
			can = []outcome{"release", "settle", "forget"}
		case store.Free:
			can = []outcome{"settle", "forget"}
		}
		ctx = context.WithValue(ctx, seen{}, op.Record)
		by := operations.By{Actor: "dan", Reason: "asked the bank"}
		switch w.await(ctx, &item{p: p, who: "operator", what: "acts", outcomes: can}) {
		case "release":
			_ = p.ops.Release(ctx, op, by)
		case "settle":
			_ = p.ops.SettleTask(ctx, op, []byte(`"settled;"`), time.Hour, by)
		case "forget":
			_ = p.ops.Forget(ctx, op, true, by)
		}
	})
}

// drains drains the first process.
func drains(w *world) {
	p := w.processes[0]
	w.spawn(func() {
		ctx, cancel := context.WithTimeoutCause(p.gone, lease/2, errAway)
		defer cancel()
		p.mu.Lock()
		p.draining = true
		p.mu.Unlock()
		began := time.Now()
		err := p.engine.Drain(ctx)
		p.mu.Lock()
		defer p.mu.Unlock()
		if took := time.Since(began); !p.dead && (took > lease/2+storeTimeout || err != nil && err != errAway) {
			p.breaks(17, "draining the process has taken %v: %v", took, err)
		}
		for _, g := range p.grants {
			r := g.run
			switch {
			case r == nil || r.p != p || p.dead:
			case err == nil && (r.ended.IsZero() || r.settled == 0 && p.operation(r.key).holder == r.owner):
				p.breaks(17, "the process is drained, and %s runs, or is not settled", r.value)
			case r.ended.IsZero() && r.ctx.Err() == nil:
				p.breaks(17, "the time to drain has passed, and the context of %s goes on", r.value)
			}
		}
	})
}

// asks is a reconcile function whose verdict the explorer chooses.
func asks(p *process) func(context.Context, core.Uncertainty) (core.Verdict, error) {
	return func(ctx context.Context, u core.Uncertainty) (core.Verdict, error) {
		who, _ := ctx.Value(actor{}).(string)
		o := p.await(ctx, &item{p: p, who: who, what: "reconcile", outcomes: []outcome{"again", "finished", "unknown", fail}})
		p.mu.Lock()
		verdicts := p.operation(u.Key.Raw()).verdicts
		if o == "again" || o == "finished" {
			verdicts[u.Attempt] = string(o)
		}
		p.mu.Unlock()
		switch o {
		case "again":
			return core.RunAgain(), nil
		case "finished":
			if u.Request == nil {
				return core.Finished([]byte(`"found;"`)), nil
			}
			return core.Finished(&core.Response{Status: 200, Body: []byte("found;")}), nil
		case fail, crash:
			return core.Verdict{}, errAway
		}
		return core.Unknown(), nil
	}
}

var scenarios = []*scenario{
	{name: "takeover", processes: 3, clients: clients(0, 1, 2), chosen: true, work: []outcome{succeed, slow, failing, panics, doubt, crash},
		open: tasks(func(*process) core.TaskPolicy { return with(core.Replay(), nil) })},
	{name: "uncertain", processes: 3, clients: waiting(clients(0, 1, 2)), chosen: true, uncertain: true, recalls: time.Hour,
		work: []outcome{succeed, doubt, slow, failing, crash},
		open: tasks(func(*process) core.TaskPolicy {
			return with(core.Wait(patience), func(r *core.Record) { r.Abandoned, r.RememberAbandoned = core.Uncertain(nil), time.Hour })
		})},
	{name: "reconciled", processes: 3, clients: clients(0, 1, 2), chosen: true, uncertain: true,
		work: []outcome{doubt, succeed, failing, crash},
		open: guarded(func(p *process) core.Policy {
			own := record
			own.Abandoned = core.Uncertain(asks(p))
			return core.Policy{Key: core.Header(core.Required), Record: own}
		})},
	{name: "waiters", clients: waiting(clients(0, 0, 1, 0)), chosen: true, together: true, leave: true,
		work: []outcome{succeed, failing, slow, panics, doubt, crash},
		open: guarded(func(*process) core.Policy {
			return core.Policy{Key: core.Header(core.Required), Duplicate: core.Wait(patience), Record: record}
		})},
	{name: "polling", clients: waiting(append(clients(0, 1, 0), eve(0))), chosen: true, together: true, leave: true, polls: true,
		work: []outcome{failing, succeed, slow, crash},
		open: tasks(func(*process) core.TaskPolicy { return with(core.Wait(patience), nil) })},
	{name: "leases", clients: waiting(clients(0, 1, 1)), chosen: true, together: true, work: []outcome{slow, failing, crash},
		open: tasks(func(*process) core.TaskPolicy { return with(core.Wait(patience), nil) })},
	{name: "put", clients: waiting(clients(0, 0, 1, 0)), together: true, forgets: true, work: []outcome{succeed, slow, failing},
		open: guarded(func(*process) core.Policy {
			own := core.Record{Lease: lease}
			return core.Policy{Duplicate: core.Wait(patience), Record: own}
		})},
	{name: "steps", processes: 3, clients: clients(0, 1, 2), chosen: true, steps: true,
		work: []outcome{failing, succeed, slow, panics, crash},
		open: tasks(func(*process) core.TaskPolicy { return with(core.Replay(), nil) })},
	{name: "reordered", clients: clients(0, 1), chosen: true, steps: true, work: []outcome{crash, succeed},
		open: tasks(func(*process) core.TaskPolicy { return with(core.Replay(), nil) })},
	{name: "derived", clients: clients(0, 1, 0), steps: true, keeps: 3 * time.Second,
		work: []outcome{succeed, failing, slow, panics, crash},
		open: guarded(func(*process) core.Policy {
			own := record
			own.Retention = 3 * time.Second
			return core.Policy{Record: own}
		})},
	{name: "kept", clients: append(clients(0, 1), eve(1)),
		chosen: true, keepsFailures: true, outlives: time.Hour, rejects: true, work: []outcome{failing, succeed, panics, crash},
		open: guarded(func(*process) core.Policy {
			own := record
			own.OnFailure = core.Keep
			return core.Policy{Key: core.Header(core.Required), Duplicate: core.Reject(""), Record: own, RefuseExpired: time.Hour}
		})},
	{name: "operator", processes: 3, clients: clients(0, 1, 2), actors: []func(*world){operator, operator}, chosen: true, uncertain: true,
		work: []outcome{doubt, succeed, slow, crash},
		open: tasks(func(*process) core.TaskPolicy {
			return with(core.Replay(), func(r *core.Record) { r.Abandoned = core.Uncertain(nil) })
		})},
	{name: "late", clients: append(clients(0, 0, 1), eve(0)),
		chosen: true, refusing: true, leave: true, later: storeTimeout + lease/2, goesOn: 6 * time.Second,
		work: []outcome{succeed, slow, failing, doubt},
		open: guarded(func(*process) core.Policy { return core.Policy{Key: core.Header(core.Required), Record: record} })},
	{name: "drain", clients: append(clients(0, 1), &client{name: "cem", user: "u", key: "other", params: "1"}),
		actors: []func(*world){drains}, chosen: true, during: true,
		work: []outcome{succeed, slow, failing, doubt},
		open: guarded(func(*process) core.Policy { return core.Policy{Key: core.Header(core.Required), Record: record} })},
	{name: "unprotected", clients: clients(0, 1), chosen: true, failOpen: true, work: []outcome{succeed, slow, failing},
		open: tasks(func(*process) core.TaskPolicy {
			p := with(core.Replay(), nil)
			p.FailOpen = true
			return p
		})},
	{name: "failover", clients: clients(0, 1, 0), chosen: true, failovers: true, work: []outcome{succeed, slow, failing, doubt},
		open: tasks(func(*process) core.TaskPolicy { return with(core.Replay(), nil) })},
}

// exhibits are scenarios that show what is not promised: see docs/invariants.md.
var exhibits = []*scenario{
	{name: "deaf", clients: waiting(clients(0, 1)), chosen: true, together: true, deaf: true, work: []outcome{slow, succeed},
		open: tasks(func(*process) core.TaskPolicy { return with(core.Wait(patience), nil) })},
}

func waiting(all []*client) []*client {
	for _, c := range all {
		c.wait = cmp.Or(c.wait, patience)
	}
	return all
}
