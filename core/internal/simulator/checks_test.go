package simulator

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/core/store"
)

// facts are what has really happened, as nobody in the world knows it. The checks compare it with what engines do and answer.
type facts struct {
	names      map[store.Owner]string // who has made the claim
	grants     map[store.Owner]*grant
	operations map[string]*operation
	derived    map[string]string
	ending     map[store.Owner]bool // claims whose end was asked for
	lostWrites bool                 // a failover has
}

func (f *facts) init() {
	f.names, f.grants = map[store.Owner]string{}, map[store.Owner]*grant{}
	f.operations, f.derived, f.ending = map[string]*operation{}, map[string]string{}, map[store.Owner]bool{}
}

// operation is what has happened under one key.
type operation struct {
	holder   store.Owner
	done     string    // the value that duplicates get
	until    time.Time // and for how long its key is known
	seq      int       // when it was done
	without  bool      // its value
	runs     []*run
	verdicts map[uint64]string // of the reconcile function, by attempt
	steps    map[string]bool   // that are remembered, by the operation's id and their name
	changed  bool              // by an operator
	gone     int               // when an operator has removed what one had settled; answers to those who came before may be on their way
}

// grant is a claim that the store has granted.
type grant struct {
	of       *process
	seq      int // its number
	attempt  uint64
	id       store.ID
	takeover bool
	expires  time.Time // its lease
	renewals int
	run      *run // that has begun under it
}

// goOn is what becomes of the record of a failure whose operation goes on with the next claim.
const goOn = core.Disposition(100)

// run is one run of a handler.
type run struct {
	p        *process
	c        *client
	key      string
	owner    store.Owner
	value    string
	ctx      context.Context
	want     core.Disposition // of its record, as it has ended
	ended    time.Time        // zero: it has not
	seq      int              // the number of its end
	settled  core.Disposition // what the store has made of its record; zero: nothing yet
	until    time.Time        // duplicates who come get its result
	left     int              // the number of its answer; zero: it has not left
	renewals int              // of its lease, when it has ended
}

func (w *world) operation(key string) *operation {
	o := w.operations[key]
	if o == nil {
		o = &operation{verdicts: map[uint64]string{}, steps: map[string]bool{}}
		w.operations[key] = o
	}
	return o
}

// claims notes who claims. It returns the number of the claim.
func (w *world) claims(ctx context.Context, owner store.Owner) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names[owner], _ = ctx.Value(actor{}).(string)
	w.seq++
	return w.seq
}

func (w *world) claimant(owner store.Owner) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.names[owner] + "'s claim"
}

// ends notes a call that ends a claim, or prolongs it.
func (w *world) ends(owner store.Owner, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ending[owner] = w.ending[owner] || what != "acquire" && what != "checkpoint"
}

// The following are called when the store has done what it was asked for.

func (w *world) acquired(p *process, key string, claim *store.Claim, asked int, g *store.Grant, before *store.Record, err error) {
	if claim.Lease != lease || claim.Retention != w.remembers() {
		w.breaks(8, "a claim for %v, remembered for %v", claim.Lease, claim.Retention)
	}
	if err != nil || g.State != store.Acquired {
		return
	}
	o := w.operation(key)
	if last := w.grants[o.holder]; last != nil && last.run != nil && !w.lostWrites && !o.changed {
		r := last.run
		switch held := r.left > 0 && r.settled == 0 && r.want == core.Keep && !r.p.dead && !r.p.draining; {
		case r.p == p && r.seq > 0 && asked > r.seq && r.settled == 0 && r.want == core.Keep && !p.draining:
			w.breaks(15, "a process claims what it holds the result of: %s", r.value)
		case held && !r.p.troubled:
			w.breaks(15, "the lease of %s was not renewed while its record was not settled", r.value)
		case r.ended.IsZero() && !r.p.dead && !r.p.troubled:
			w.breaks(13, "the lease of %s was not renewed", r.value)
		}
	}
	if before != nil && before.State == store.Abandoned {
		if verdict := o.verdicts[before.Attempt]; w.uncertain && verdict == "" {
			w.breaks(7, "attempt %d was taken over unasked", before.Attempt)
		}
		delete(o.verdicts, before.Attempt)
	}
	o.holder = claim.Owner
	w.seq++
	w.grants[claim.Owner] = &grant{of: p, seq: w.seq, attempt: g.Attempt, id: g.ID, takeover: g.Attempt > 1 && !g.Free,
		expires: time.Now().Add(lease)}
}

func (w *world) renewed(key string, owner store.Owner, d time.Duration, err error) {
	if d != lease {
		w.breaks(8, "a lease was renewed for %v", d)
	}
	if g := w.grants[owner]; err == nil && g != nil {
		g.expires = time.Now().Add(lease)
		g.renewals++
	}
}

func (w *world) completed(key string, owner store.Owner, result []byte, retention, known time.Duration, err error) {
	if retention <= 0 {
		w.settled(key, owner, core.Release, err)
		return
	}
	if err != nil {
		return
	}
	o, g := w.operation(key), w.grants[owner]
	own := "found;" // by the reconcile function
	if g.run != nil {
		own = g.run.value
	}
	for _, r := range o.runs {
		if r.value != own && bytes.Contains(result, []byte(r.value)) {
			w.breaks(3, "%s was stored under the claim of %s", r.value, own)
		}
	}
	if len(result) > 0 && !bytes.Contains(result, []byte(own)) && !w.rejects {
		w.breaks(3, "%q was stored for %s", result, own)
	}
	if len(result) == 0 && g.run != nil && !w.rejects && g.renewals-g.run.renewals < 3 {
		w.breaks(15, "the result of %s is not stored", own)
	}
	if retention != w.retention() || known != w.known() {
		w.breaks(4, "a result is kept for %v, and its key known for %v", retention, known)
	}
	w.seq++
	o.without, o.seq = len(result) == 0, w.seq
	o.done, o.until = own, time.Now().Add(w.retention()+w.known())
	w.settled(key, owner, core.Keep, nil)
}

func (w *world) settled(key string, owner store.Owner, as core.Disposition, err error) {
	g := w.grants[owner]
	if err != nil || g == nil || g.run == nil {
		return
	}
	r := g.run
	r.until = time.Now()
	if as == core.Keep {
		r.until = w.operation(key).until
	}
	if r.settled = as; r.ended.IsZero() {
		w.breaks(14, "the record of %s was settled while it ran", r.value)
	} else if as != r.want {
		w.breaks(14, "the record of %s was settled as %d, not %d", r.value, as, r.want)
	}
}

func (w *world) changed(key string, seen *store.Record, c *store.Change, before *store.Record, err error) {
	if err != nil {
		return
	}
	if before == nil || before.ID != seen.ID || before.Attempt != seen.Attempt || before.State != seen.State {
		w.breaks(12, "an operator has changed another run than was seen")
	}
	o := w.operation(key)
	o.changed = true
	if o.done == "settled;" {
		w.seq++
		o.gone = w.seq
	}
	o.done, o.until = "", time.Time{}
	if c.To == store.Done {
		w.seq++
		o.seq = w.seq
		o.done, o.until = "settled;", time.Now().Add(c.Retention)
	}
}

// failover loses the last two writes.
func (w *world) failover() {
	w.lostWrites = true
	w.restore(max(0, len(w.writes)-2))
}

// The following are called by those who act.

// begin is for a handler that begins. It returns nil for a run without a claim.
func (w *world) begin(ctx context.Context, c *client, p *process) *run {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, told := time.Now(), core.RunFrom(ctx)
	key := told.Key().Raw()
	o := w.operation(key)
	r := &run{p: p, c: c, key: key, owner: told.Owner(), ctx: ctx, want: core.Keep,
		value: fmt.Sprintf("%s/%s#%d;", c.user, c.key, len(o.runs))}
	o.runs = append(o.runs, r)
	w.note("%d %s: %s begins, attempt %d", p.number, c.name, r.value, told.Attempt())
	if p.draining {
		w.breaks(17, "%s begins in a process that drains", r.value)
	}
	if told.Unprotected() {
		if !w.failOpen {
			w.breaks(11, "%s begins without a claim", r.value)
		}
		return r
	}
	g := w.grants[r.owner]
	switch {
	case g == nil || g.of != p || g.run != nil:
		w.breaks(1, "%s begins under a claim that is not its own", r.value)
		return r
	case w.lostWrites:
	case (o.holder != r.owner || !now.Before(g.expires)) && !o.changed:
		w.breaks(1, "%s begins, and does not hold its claim", r.value)
	case now.Before(o.until) && g.seq > o.seq:
		w.breaks(4, "%s begins although the operation is done: %s", r.value, o.done)
	}
	g.run = r
	if told.Attempt() != g.attempt || told.ID() != g.id || told.Takeover() != g.takeover {
		w.breaks(2, "%s is told attempt %d (takeover: %t), and has attempt %d (%t), or another operation's id", r.value,
			told.Attempt(), told.Takeover(), g.attempt, g.takeover)
	}
	for _, other := range o.runs[:len(o.runs)-1] {
		protected := w.grants[other.owner] != nil
		if protected && !w.lostWrites && !other.p.dead && other.ended.IsZero() && other.ctx.Err() == nil && !o.changed && !w.forgets {
			w.breaks(13, "%s begins beside %s, whose context goes on", r.value, other.value)
		}
	}
	return r
}

// end is for a handler that has returned.
func (w *world) end(r *run, want core.Disposition) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seq++
	r.ended, r.seq, r.want = time.Now(), w.seq, want
	if g := w.grants[r.owner]; g != nil {
		r.renewals = g.renewals
	}
	w.note("%d %s: %s ends", r.p.number, r.c.name, r.value)
}

// step is for a step that begins, or that is remembered.
func (w *world) step(ctx context.Context, name string, remembered bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	run := core.RunFrom(ctx)
	o, step := w.operation(run.Key().Raw()), run.ID().String()+" "+name
	switch {
	case remembered || w.lostWrites:
	case o.steps[step]:
		w.breaks(9, "step %s begins again in attempt %d", name, run.Attempt())
	case ctx.Err() != nil:
		w.breaks(13, "step %s begins although the run has lost its lease", name)
	}
	o.steps[step] = o.steps[step] || remembered
}

// derives is for a key that a run has derived.
func (w *world) derives(ctx context.Context, call, derived string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	run := core.RunFrom(ctx)
	of := run.Key().Raw() + " " + call
	if !w.chosen {
		of += " " + run.ID().String()
	}
	for other, key := range w.derived {
		if err == nil && (other == of) != (key == derived) {
			w.breaks(10, "attempt %d derived %s for %q, and %s was derived for %q", run.Attempt(), derived, of, key, other)
		}
	}
	if err == nil {
		w.derived[of] = derived
	}
}

// reply is what a caller gets.
type reply struct {
	value    string // empty: a refusal, or an error
	replayed bool
	code     codes.Code
	err      error // of the handler
}

// leaves is when the answer of a client's own run leaves its process.
func (w *world) leaves(c *client, p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := c.run
	if r == nil || p.dead || r.ended.IsZero() || w.grants[r.owner] == nil || r.left > 0 {
		return
	}
	w.seq++
	r.left = w.seq
	o, after := w.operation(r.key), time.Since(r.ended)
	if r.settled == 0 && o.holder == r.owner && !w.lostWrites && !o.changed && after < storeTimeout && !p.draining {
		w.breaks(6, "the answer of %s leaves after %v, and its record is not settled", r.value, after)
	}
	if after > storeTimeout {
		w.breaks(6, "the answer of %s leaves after %v", r.value, after)
	}
}

// answered is for a caller who gets a reply.
func (w *world) answered(c *client, p *process, a reply) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.dead {
		return
	}
	w.note("%d %s gets %q %s %v (replayed: %t)", p.number, c.name, a.value, a.code, a.err, a.replayed)
	now := time.Now()
	r := c.run
	switch {
	case a.value == "" && a.code == "" && a.err == nil:
		w.breaks(5, "%s gets an answer that is none", c.name)
	case a.value == "" && a.replayed && !w.keepsFailures:
		w.breaks(5, "%s gets a failure that was not kept", c.name)
	case a.value == "":
	case a.replayed:
		w.replayed(c, p, a.value)
	case r == nil || r.value != a.value:
		w.breaks(5, "%s gets %s, and did not run it", c.name, a.value)
	}
	if a.code == codes.KeyReused && !w.differ() {
		w.breaks(5, "%s is told that its parameters are others", c.name)
	}
	o := w.operation(c.stored)
	for _, r := range o.runs {
		held := r.p == p && r.left > 0 && r.left < c.seq && r.settled == 0 && r.want == core.Keep && o.holder == r.owner
		if held && r.c.params == c.params && !p.draining && !w.lostWrites && !o.changed && a.value != r.value {
			w.breaks(15, "%s is not answered with %s, which its process holds", c.name, r.value)
		}
	}
	if bound := c.wait + 3*storeTimeout; r == nil && now.Sub(c.came) > bound {
		w.breaks(16, "%s gets an answer after %v, and did not run", c.name, now.Sub(c.came))
	}
	c.got = a
}

// replayed is for a duplicate that gets a value.
func (w *world) replayed(c *client, p *process, value string) {
	o := w.operation(c.stored)
	i := slices.IndexFunc(o.runs, func(r *run) bool { return r.value == value })
	if i < 0 && (value == o.done || value == "found;" || value == "settled;" && c.seq < o.gone) {
		return
	}
	if i < 0 || o.runs[i].c.params != c.params {
		w.breaks(5, "%s gets %s, which is no answer to it", c.name, value)
		return
	}
	r := o.runs[i]
	unsettled := r.p == p && !r.ended.IsZero()
	if r.want != core.Keep && !w.forgets || !unsettled && r.settled != core.Keep {
		w.breaks(5, "%s gets %s, which was not kept", c.name, value)
	}
	if r.settled != 0 && c.came.After(r.until) && !w.lostWrites {
		w.breaks(5, "%s gets %s, whose record was gone when it came", c.name, value)
	}
	early := r.settled == 0 && o.holder == r.owner && time.Since(r.ended) < storeTimeout
	if early && !w.forgets && !w.lostWrites && !o.changed && !p.draining {
		w.breaks(6, "%s gets %s, and its record is not settled", c.name, value)
	}
}

// runEvents are the events of one run.
type runEvents struct {
	started, ended, lost int
	unsettled            bool
}

// observe is the observer of an engine.
func (p *process) observe(_ context.Context, ev core.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ev.Attempt == 0 || ev.Kind == core.Operated || p.dead || p.lostWrites {
		return
	}
	p.note("%d event: %s, attempt %d, %v", p.number, ev.Kind, ev.Attempt, ev.Err)
	run := fmt.Sprint(ev.ID, " ", ev.Attempt)
	e := p.events[run]
	if e == nil {
		e = &runEvents{}
		p.events[run] = e
	}
	switch ev.Kind {
	case core.Started:
		e.started++
	case core.LeaseLost:
		for _, g := range p.grants {
			if r := g.run; r != nil && g.id == ev.ID && g.attempt == ev.Attempt && !r.ended.IsZero() && time.Since(r.ended) > 0 {
				p.breaks(13, "a lease was lost %v after the end of %s", time.Since(r.ended), r.value)
			}
		}
		if e.lost++; e.lost > 1 || e.ended > 0 {
			p.breaks(13, "a lease was lost %d times, and the run has %d endings", e.lost, e.ended)
		}
		if !p.troubled && !p.operation(ev.Key.Raw()).changed {
			p.breaks(13, "a lease was lost although nothing has kept it from being renewed")
		}
	case core.Unsettled:
		e.unsettled = true
	case core.Completed, core.Released, core.RunAbandoned, core.RunLost, core.RunUnfinished:
		if e.ended++; e.ended > e.started || ev.Late != e.unsettled {
			p.breaks(18, "a run has %d beginnings and %d endings (late: %t, unsettled: %t)", e.started, e.ended, ev.Late, e.unsettled)
		}
		as := map[core.Kind]core.Disposition{core.Completed: core.Keep, core.Released: core.Release,
			core.RunAbandoned: core.Abandon}[ev.Kind]
		for _, g := range p.grants {
			if g.run != nil && g.id == ev.ID && g.attempt == ev.Attempt && g.of == p && !p.operation(g.run.key).changed {
				p.tells(g.run, ev.Kind, as)
			}
		}
	}
}

// tells is for the ending event of a run.
func (w *world) tells(r *run, kind core.Kind, as core.Disposition) {
	settled := r.settled
	if settled == goOn {
		settled = core.Release
	}
	if as != 0 && settled != as || kind == core.RunLost && (settled == core.Keep || settled != 0 && w.operation(r.key).holder == r.owner) {
		w.breaks(18, "the record of %s is told to be %s", r.value, kind)
	}
	stands := settled != 0 && settled != core.Release && (settled != core.Keep || time.Now().Before(r.until))
	if kind == core.RunUnfinished && stands && w.operation(r.key).holder == r.owner && !r.p.draining {
		w.breaks(18, "nobody is told what has become of the record of %s", r.value)
	}
}

// afterwards is when nothing has failed for a while: what has been promised is so.
func (w *world) afterwards() {
	for owner, g := range w.grants {
		if g.run == nil && !g.of.dead && !w.ending[owner] && !w.failOpen {
			w.breaks(16, "a claim of attempt %d, under which nothing runs, was not given back", g.attempt)
		}
		if r := g.run; r != nil && !r.p.dead && !r.p.draining && !r.ended.IsZero() && r.settled == 0 {
			if o := w.operation(r.key); o.holder == owner && !o.changed && !w.lostWrites {
				w.breaks(15, "the record of %s has not been settled", r.value)
			}
		}
	}
	for _, p := range w.processes {
		if p.dead {
			continue
		}
		for i, c := range w.clients {
			if i == 0 || c.params != w.clients[0].params {
				w.probe(p, c)
			}
		}
	}
	for _, p := range w.processes {
		if p.dead {
			continue
		}
		w.spawn(func() {
			ctx, cancel := context.WithTimeout(p.gone, outage)
			defer cancel()
			if err := p.engine.Drain(ctx); err != nil || p.engine.Unsettled() > 0 {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.breaks(17, "the process has nothing to do, and can't be drained: %v, %d unsettled", err, p.engine.Unsettled())
			}
		})
	}
	w.serve(func() bool { return w.active == 0 })
	for _, p := range w.processes {
		for _, e := range p.events {
			if !p.dead && !w.lostWrites && (e.started != 1 || e.ended != 1) {
				w.breaks(18, "a run has %d beginnings and %d endings", e.started, e.ended)
			}
		}
	}
}

// probe sends a client once more. It must get what the policy says.
func (w *world) probe(p *process, c *client) {
	again := &client{name: "probe " + c.name, user: c.user, key: c.key, params: c.params, at: p.number}
	w.come(again)
	w.serve(func() bool { return w.active == 0 })
	a := again.got
	var refusals []codes.Code
	if w.differ() {
		refusals = append(refusals, codes.KeyReused)
	}
	if w.uncertain {
		refusals = append(refusals, codes.Uncertain)
	}
	if w.known() > 0 {
		refusals = append(refusals, codes.KeyExpired)
	}
	if w.rejects {
		refusals = append(refusals, codes.Duplicate)
	}
	if w.operation(again.stored).without {
		refusals = append(refusals, codes.ResultUnavailable)
	}
	if p.draining {
		refusals = append(refusals, codes.ShuttingDown)
	}
	if a.value == "" && !slices.Contains(refusals, a.code) {
		w.breaks(16, "%s, who comes when all is well, gets %s %v", again.name, a.code, a.err)
	}
	if a.code == codes.Uncertain {
		if r := w.record(again.stored); r == nil || r.State != store.Abandoned {
			w.breaks(16, "%s is told of an uncertain run, and there is none", again.name)
		}
	}
}

// differ reports whether clients send different parameters under one key.
func (s *scenario) differ() bool {
	return slices.ContainsFunc(s.clients, func(c *client) bool { return c.params != s.clients[0].params })
}

// known, retention and remembers are what the policy says, with the defaults.
func (s *scenario) known() time.Duration     { return s.outlives }
func (s *scenario) retention() time.Duration { return cmp.Or(s.keeps, 24*time.Hour) }
func (s *scenario) remembers() time.Duration { return cmp.Or(s.recalls, 24*time.Hour) }
