package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idem/core/store"
)

// A history is what concurrent clients asked of one key and what they were
// answered, with the moments at which each call began and returned. It is
// linearizable if all calls can be put in one order, each between its beginning and
// its return, in which one client alone would have got the same answers: that is
// what "each call is one atomic step" means.
//
// Time enters as what may have happened. A lease and a retention stand as long as they must, as the moments say at
// which calls began and returned; from then on they may have passed whenever a later call says so. The clients of the
// suite note no moments: their leases and retentions are either so long that they stand, or brief. A record whose
// retention has passed is forgotten: the next claim begins anew.
//
// A call that failed may have taken effect, at any moment since it began, or not at
// all. In its history it never returns. Under faults results are forgotten and
// abandoned runs are not: a failed claim could else either have taken over or have
// begun anew, and nobody would know which.

const (
	clients = 8
	// openCalls is how many calls of unknown outcome a key may gather before the
	// clients leave it alone: each doubles the orders that have to be tried.
	openCalls = 8
	// briefly is the longest brief lease or retention, and how early a store's clock may end one.
	briefly = 2 * time.Millisecond
	// callTimeout is what a call is given while the store is disturbed: more than a store's client waits for
	// a connection that is silent. A claim that was given up, and made, is released later: a second step.
	callTimeout = 10 * time.Second
)

// call is what a client asks of a key.
type call struct {
	method    string // of store.Store, or "Change", "Checkpoint", "Fail" or "Outlive"
	claim     store.Claim
	owner     store.Owner
	lease     time.Duration
	retention time.Duration
	known     time.Duration // of an Outlive
	result    string        // or the steps of a Checkpoint
	goesOn    bool          // of a Fail
	expected  store.Record
	to        store.State // of a Change
	remark    string      // of a Change
	from      int64       // when it began, and
	till      int64       // returned, in nanoseconds; 0: nobody has noted it; [math.MaxInt64]: it has not
}

// answer is what it gets.
type answer struct {
	grant store.Grant
	err   error
}

// operation is a call in a history, and its answer.
type operation struct {
	client   int
	call     call
	answer   answer
	begun    int64
	returned int64 // [math.MaxInt64]: it has not
}

// unknown reports that the call failed, so that nobody knows what it did.
func (a answer) unknown() bool {
	return a.err != nil && !a.refused() && !errors.Is(a.err, store.ErrFull)
}

// refused reports that the record is not, or no longer, the caller's, or the one that it expects.
func (a answer) refused() bool {
	return errors.Is(a.err, store.ErrLost) || errors.Is(a.err, store.ErrMovedOn) || errors.Is(a.err, store.ErrNoRecord)
}

// keyState is what the calls up to some point have made of a key. States are
// compared with ==.
type keyState struct {
	attempt     uint64 // 0: there is no record
	owner       store.Owner
	id          store.ID
	fingerprint string
	lease       leaseState
	stands      int64         // until then the lease has surely not passed, or it ended then
	passes      int64         // from then on it surely has
	retention   time.Duration // from the end of the lease, or of the run
	known       time.Duration // for so long, at the end of the retention, without the result
	fleeting    bool          // the retention may have passed
	free        bool          // without an owner: any claim gets it; with one: it was so before the claim
	uncertain   bool          // and the claim of it is a takeover
	kept        bool          // it has kept its operation
	done        bool
	result      string
	steps       string
}

type leaseState uint8

const (
	leaseStands leaseState = iota // for as long as the case lasts
	leaseBrief                    // it may have passed
	leasePassed                   // it has been seen to have passed
)

// forAges is more than any span: beyond it moments could overflow.
const forAges = 1 << 60

// leased returns r with a lease of d that c has given it.
func (r keyState) leased(c call, d time.Duration) keyState {
	d = min(d, forAges)
	stands := c.from + int64(max(d-briefly, 0))
	switch {
	case c.till == math.MaxInt64 && r.stands > 0: // all renewals that may have been made are alike
		r.stands, r.passes = min(r.stands, stands), math.MaxInt64
	case c.till == math.MaxInt64 || c.till == 0:
		r.stands, r.passes = stands, math.MaxInt64
	default:
		r.stands, r.passes = stands, c.till+int64(d+briefly)
	}
	r.lease = leaseBrief
	return r
}

// metBy returns r as c may find it.
func (r keyState) metBy(c call) keyState {
	switch {
	case r.attempt == 0:
		return r
	case r.lease == leasePassed || c.from > r.passes:
		r.lease = leasePassed
	case c.till < r.stands:
		r.lease = leaseStands
	default:
		r.lease = leaseBrief
	}
	r.fleeting = r.mayBeOver(c, r.retention)
	return r
}

// mayBeOver reports whether c may find that d has passed since the end of the lease, or of the run.
func (r keyState) mayBeOver(c call, d time.Duration) bool {
	return c.till >= r.stands+int64(min(d, forAges)-briefly)
}

// mayBeForgotten reports whether there may be no record any more.
func (r keyState) mayBeForgotten() bool {
	return r.attempt == 0 || r.fleeting && (r.done || r.lease != leaseStands)
}

// after returns what c, taking effect on r, makes of it. Where that depends on
// whether a brief lease or retention has passed, it has; but a record that can be
// taken over is, and one that its owner changes is there.
func (c call) after(r keyState) keyState {
	switch {
	case c.method == "Acquire" && c.mayTakeOver(r):
		return c.claimed(r)
	case c.method == "Acquire" && r.mayBeForgotten():
		return c.claimed(keyState{})
	case c.method == "Acquire", !c.mayAct(r):
		return r
	case c.method == "Change" && c.to == 0:
		return keyState{}
	case c.method == "Change" && c.to == store.Free:
		r.owner, r.lease, r.stands, r.free, r.uncertain = store.Owner{}, leasePassed, c.from, true, true
	case c.method == "Renew":
		r = r.leased(c, c.lease)
	case c.method == "Checkpoint":
		if c.result[:min(8, len(c.result))] > r.steps[:min(8, len(r.steps))] { // else it comes late
			r.steps = c.result
		}
	case c.method == "Complete" && c.retention > 0, c.method == "Outlive", c.method == "Change":
		r.done, r.result, r.steps = true, c.result, ""
		r.stands, r.retention, r.known = c.from, c.retention+c.known, c.known
	case r.attempt == 1 && c.method != "Abandon" && !c.goesOn:
		return keyState{}
	default: // Abandon, a Fail that goes on, or the end of a later attempt
		r.owner, r.lease, r.stands = store.Owner{}, leasePassed, c.from
		switch {
		case c.goesOn:
			r.uncertain = r.uncertain || r.attempt > 1 && !r.free
			r.free, r.kept = true, true
		case c.method != "Release":
			r.free, r.uncertain, r.kept = c.method != "Abandon", false, false
		}
		if r.free && !r.uncertain && !r.kept {
			r.id, r.steps = store.ID{}, ""
		}
	}
	return r
}

// claimed returns what an Acquire makes of a record, or of none.
func (c call) claimed(r keyState) keyState {
	next := keyState{
		attempt: r.attempt + 1, free: r.isFree(), uncertain: r.isFree() && r.uncertain, kept: r.isFree() && r.kept, id: r.id,
		steps: r.steps, owner: c.claim.Owner, fingerprint: c.claim.Fingerprint, retention: c.claim.Retention,
	}.leased(c, c.claim.Lease)
	if next.id == (store.ID{}) || r.fingerprint != c.claim.Fingerprint {
		next.id, next.kept, next.steps = c.claim.ID, false, ""
	}
	return next
}

// mayAct reports whether a call other than Acquire changes the record.
func (c call) mayAct(r keyState) bool {
	if c.method != "Change" {
		return c.holds(r)
	}
	running := !r.done && !r.isFree()
	return r.attempt > 0 && r.attempt == c.expected.Attempt && r.id == c.expected.ID && map[store.State]bool{
		store.Running: running && r.lease != leasePassed, store.Abandoned: running && r.lease != leaseStands,
		store.Free: r.isFree(), store.Done: r.done,
	}[c.expected.State]
}

// isFree reports whether any claim gets the record.
func (r keyState) isFree() bool { return r.free && r.owner.IsZero() && !r.done }

func (c call) mayTakeOver(r keyState) bool {
	return r.isFree() || r.attempt > 0 && !r.done && r.lease != leaseStands && c.claim.Takeover &&
		c.claim.Fingerprint == r.fingerprint && (c.claim.Attempt == 0 || c.claim.Attempt == r.attempt)
}

func (c call) holds(r keyState) bool {
	return r.attempt > 0 && !r.done && !c.owner.IsZero() && c.owner == r.owner
}

// step reports whether c can be answered with a in state r, and the state then.
func (c call) step(r keyState, a answer) (bool, keyState) {
	r = r.metBy(c)
	switch {
	case a.unknown():
		// Where it would change nothing it can as well be left out.
		next := c.after(r)
		return next != r, next
	case errors.Is(a.err, store.ErrFull):
		return true, r
	case c.method != "Acquire" && a.err == nil:
		return c.mayAct(r), c.after(r)
	case c.method == "Change" && r.lease == leaseBrief:
		return true, r
	case c.method != "Acquire" && c.mayAct(r):
		// A call may read the clock when it begins and take effect when it has waited
		// for others: what one call finds forgotten, an earlier one of the same owner may
		// still keep. Only the next claim decides it.
		return r.mayBeForgotten(), r
	case c.method != "Acquire":
		return true, r
	case a.err != nil:
		return false, r
	}
	g := a.grant
	if g.State == store.Acquired {
		may := c.mayTakeOver(r)
		if g.Attempt == 1 {
			may, r = r.mayBeForgotten(), keyState{}
		}
		next := c.claimed(r)
		return may && g.Attempt == next.attempt && g.Free == (next.free && !next.uncertain) && g.ID == next.id &&
			string(g.Steps) == next.steps && g.Fingerprint == "" && len(g.Result) == 0, next
	}
	result := r.result
	if g.Expired {
		result = ""
	}
	if r.attempt == 0 || g.Attempt != r.attempt || g.ID != r.id || g.Fingerprint != r.fingerprint || string(g.Result) != result {
		return false, r
	}
	noted, remains := c.till > 0, g.Remaining > long/2
	switch g.State {
	case store.Running:
		if noted {
			return !r.done && r.lease != leasePassed && c.from+int64(g.Remaining) <= r.passes, r
		}
		return !r.done && r.lease != leasePassed && remains == (r.lease == leaseStands), r
	case store.Abandoned:
		may := !r.done && r.lease != leaseStands && !c.mayTakeOver(r) && (noted || remains == !r.fleeting)
		r.lease = leasePassed
		return may, r
	case store.Done:
		expired := !g.Expired || r.known > 0 && r.mayBeOver(c, r.retention-r.known)
		return r.done && expired && (noted || remains == !r.fleeting), r
	}
	return false, r
}

// tell writes a history down, with the place of each call in the order.
func tell(history []operation, order []int) string {
	var b strings.Builder
	b.WriteString("place  began returned client  call\n")
	byBeginning := make([]int, len(history))
	for i := range byBeginning {
		byBeginning[i] = i
	}
	slices.SortFunc(byBeginning, func(i, j int) int { return cmp.Compare(history[i].begun, history[j].begun) })
	for _, i := range byBeginning {
		op := history[i]
		place, returned := "-", "-"
		if p := slices.Index(order, i); p >= 0 {
			place = fmt.Sprint(p + 1)
		}
		if op.returned != math.MaxInt64 {
			returned = fmt.Sprint(op.returned)
		}
		fmt.Fprintf(&b, "%5s  %5d %8s %6d  %v: %v\n", place, op.begun, returned, op.client, op.call, op.answer)
	}
	return b.String()
}

func (c call) String() string {
	switch c.method {
	case "Acquire":
		takeover := ""
		if c.claim.Takeover {
			takeover = fmt.Sprintf(", takeover of %d", c.claim.Attempt) // 0 is any
		}
		return fmt.Sprintf("Acquire by %x of %x, %q for %v and %v%s", c.claim.Owner[:3], c.claim.ID[:3], c.claim.Fingerprint,
			c.claim.Lease, c.claim.Retention, takeover)
	case "Change":
		return fmt.Sprintf("Change of %x, attempt %d, from %v to %v for %v", c.expected.ID[:3], c.expected.Attempt,
			c.expected.State, c.to, c.retention)
	case "Renew":
		return fmt.Sprintf("Renew by %x for %v", c.owner[:3], c.lease)
	case "Complete", "Outlive":
		return fmt.Sprintf("%s by %x with %q for %v", c.method, c.owner[:3], c.result, c.retention)
	case "Checkpoint":
		return fmt.Sprintf("Checkpoint by %x of %q", c.owner[:3], c.result)
	case "Fail":
		return fmt.Sprintf("Fail by %x, goes on %t", c.owner[:3], c.goesOn)
	}
	return fmt.Sprintf("%s by %x", c.method, c.owner[:3])
}

func (a answer) String() string {
	switch g := a.grant; {
	case a.err != nil:
		return a.err.Error()
	case g.Attempt == 0:
		return "ok"
	case g.State == store.Acquired:
		return fmt.Sprintf("%v, attempt %d of %x, free %t, steps %q", g.State, g.Attempt, g.ID[:3], g.Free, g.Steps)
	default:
		return fmt.Sprintf("%v, attempt %d of %x, %q, result %q, %v remain", g.State, g.Attempt,
			g.ID[:3], g.Fingerprint, g.Result, g.Remaining)
	}
}

// concurrentRun is a few fresh keys and what the clients do to them.
type concurrentRun struct {
	s       *env
	disturb func() // nil: the store is left in peace
	keys    []string

	mu      sync.Mutex
	clock   int64                    // counts beginnings and returns
	begun   int                      // calls
	claims  map[string][]store.Claim // those that were acquired, or may have been
	history map[string][]operation
	open    map[string]int // calls of unknown outcome

	errands chan func() // what the clients leave to the case's own goroutine
	trouble sync.Once
	over    chan struct{} // closed when the trouble is
}

// runClients lets the clients do so many calls each, and disturbs the store in the midst of
// them.
func (s *env) runClients(name string, keys, calls int, storeOf func(client int) store.Store, disturb func()) *concurrentRun {
	sc := &concurrentRun{
		s: s, disturb: disturb,
		claims: map[string][]store.Claim{}, history: map[string][]operation{}, open: map[string]int{},
		errands: make(chan func()), over: make(chan struct{}),
	}
	for i := range keys {
		sc.keys = append(sc.keys, fmt.Sprintf("%s, key %d", name, i))
	}
	go func() {
		defer close(sc.errands)
		together(clients, func(client int) {
			for range calls {
				if !sc.call(client, storeOf(client), clients*calls/3) {
					return
				}
			}
		})
		if disturb != nil {
			sc.inTrouble()
		}
	}()
	for errand := range sc.errands {
		errand()
	}
	return sc
}

// call does one call and reports whether there is more to be done. The call that is
// number when begins the trouble.
func (sc *concurrentRun) call(client int, records store.Store, when int) bool {
	key, c, number, ok := sc.draw()
	if !ok {
		return false
	}
	timeout := patience
	if sc.disturb != nil {
		timeout = callTimeout
		if number == when {
			go sc.inTrouble()
		}
	}
	op := operation{client: client, call: c, begun: sc.tick()}
	ctx, cancel := context.WithTimeout(sc.s.Context(), timeout)
	a := c.on(ctx, records, key)
	cancel()
	sc.note(key, op, a)

	switch {
	case sc.disturb == nil && a.err != nil && !a.refused():
		sc.s.Errorf("%v: %v", c, a.err)
		return false
	case a.unknown():
		sc.inTrouble() // a disturbed client waits until it is worth trying again
		time.Sleep(briefly)
	case rand.IntN(8) == 0: // what is brief passes
		d := rand.N(briefly)
		if sc.s.Advance != nil {
			sc.leave(func() { sc.s.Advance(d) })
		} else {
			time.Sleep(d)
		}
	case rand.IntN(4) == 0: // in process a call is so short that the clients would hardly meet
		runtime.Gosched()
	}
	return true
}

// inTrouble disturbs the store, once, and returns when it has been.
func (sc *concurrentRun) inTrouble() {
	sc.trouble.Do(func() {
		sc.leave(func() {
			defer close(sc.over)
			sc.disturb()
		})
	})
	select {
	case <-sc.over:
	case <-sc.s.Context().Done():
	}
}

// leave leaves an errand to the case's own goroutine, where it may end the case.
func (sc *concurrentRun) leave(errand func()) {
	select {
	case sc.errands <- errand:
	case <-sc.s.Context().Done():
	}
}

// tick returns the next moment.
func (sc *concurrentRun) tick() int64 {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.clock++
	return sc.clock
}

// draw picks a key and what to ask of it. It reports false if no key is left.
func (sc *concurrentRun) draw() (key string, c call, number int, ok bool) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.begun++
	var keys []string
	for _, key := range sc.keys {
		if sc.open[key] < openCalls {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return "", call{}, sc.begun, false
	}
	key = keys[rand.IntN(len(keys))]

	// Mostly the latest claim is referred to, often a former one. At first, and now and
	// then, it is a stranger's.
	claim := store.Claim{Owner: store.NewOwner(), Fingerprint: fmt.Sprint(sc.begun)}
	claims := sc.claims[key]
	switch n := len(claims); {
	case n > 0 && rand.IntN(2) == 0:
		claim = claims[n-1]
	case n > 0 && rand.IntN(8) > 0:
		claim = claims[rand.IntN(n)]
	}
	c.owner = claim.Owner
	c.lease, c.retention = long, long
	if rand.IntN(3) > 0 {
		c.lease = 1 + rand.N(briefly)
	}
	if rand.IntN(3) > 0 {
		c.retention = 1 + rand.N(briefly)
	}
	switch dice := rand.IntN(100); {
	case dice < 15 && sc.s.can.Inspect != nil && claim.ID != store.ID{}:
		c.method = "Change"
		c.expected = store.Record{About: claim.About, Attempt: 1 + rand.Uint64N(2), State: store.Abandoned}
		switch c.to = []store.State{0, store.Free, store.Free, store.Done}[rand.IntN(4)]; {
		case c.to == store.Done:
			c.result = fmt.Sprint("settled ", sc.begun)
		case c.to == 0 && rand.IntN(2) == 0:
			c.expected.State = store.Free
		}
	case dice < 50:
		c.method = "Acquire"
		c.claim = store.Claim{Owner: store.NewOwner(), About: store.About{ID: store.NewID()}, Fingerprint: claim.Fingerprint,
			Lease: c.lease, Retention: c.retention, Takeover: rand.IntN(4) > 0}
		if sc.disturb != nil {
			c.claim.Retention = long // see above
		}
		if rand.IntN(16) == 0 {
			c.claim.Owner = claim.Owner // asks again
		}
		if rand.IntN(8) == 0 {
			c.claim.Fingerprint = fmt.Sprint(sc.begun) // by which its record can be known
		}
		if rand.IntN(4) == 0 {
			c.claim.Attempt = 1 + rand.Uint64N(3)
		}
	case dice < 62 && sc.s.can.Checkpoint != nil:
		if c.method = "Checkpoint"; rand.IntN(3) == 0 {
			c.method, c.goesOn = "Fail", rand.IntN(4) > 0
		} else {
			c.result = fmt.Sprintf("%08d steps %d", max(0, sc.begun-rand.IntN(2)*rand.IntN(10)), sc.begun)
		}
	case dice < 68:
		c.method = "Renew"
	case dice < 73:
		c.method = "Complete"
		c.result = fmt.Sprint("result ", sc.begun)
	case dice < 80:
		c.method = "Complete"
		c.retention = 0
	case dice < 90:
		c.method = "Release"
	default:
		c.method = "Abandon"
	}
	return key, c, sc.begun, true
}

// on makes the call.
func (c call) on(ctx context.Context, store store.Store, key string) (a answer) {
	switch c.method {
	case "Acquire":
		a.grant, a.err = store.Acquire(ctx, key, c.claim)
	case "Renew":
		a.err = store.Renew(ctx, key, c.owner, c.lease)
	case "Complete":
		a.err = store.Complete(ctx, key, c.owner, []byte(c.result), c.retention)
	case "Release":
		a.err = store.Release(ctx, key, c.owner)
	case "Change":
		a.err = store.Capabilities().Inspect.Change(ctx, key, c.expected, c.asChange())
	case "Checkpoint":
		a.err = store.Capabilities().Checkpoint(ctx, key, c.owner, []byte(c.result))
	case "Fail":
		a.err = store.Capabilities().Fail(ctx, key, c.owner, c.goesOn)
	case "Outlive":
		a.err = store.Capabilities().Outlive(ctx, key, c.owner, []byte(c.result), c.retention, c.known)
	default:
		a.err = store.Abandon(ctx, key, c.owner)
	}
	return a
}

func (c call) asChange() store.Change {
	return store.Change{To: c.to, Result: []byte(c.result), Retention: c.retention, Remark: c.remark}
}

func (sc *concurrentRun) note(key string, op operation, a answer) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.clock++
	op.answer, op.returned = a, sc.clock
	if op.call.method == "Acquire" && (a.unknown() || a.grant.State == store.Acquired) {
		sc.claims[key] = append(sc.claims[key], op.call.claim)
	}
	if a.unknown() {
		op.returned = math.MaxInt64
		sc.open[key]++
	}
	sc.history[key] = append(sc.history[key], op)
}

// check checks the histories of all keys, and counts what was answered.
func (sc *concurrentRun) check(met map[string]int) {
	for key, history := range sc.history {
		records := 0 // that were begun and not released
		for _, op := range history {
			met[sortOf(op)]++
			switch c, a := op.call, op.answer; {
			case a.err != nil:
			case c.method == "Acquire" && a.grant.State == store.Acquired && a.grant.Attempt == 1:
				records++
			case c.method == "Release", c.method == "Fail", c.method == "Complete" && c.retention <= 0, c.method == "Change" && c.to == 0:
				records--
			}
		}
		met["forgotten"] += max(0, records-1) // all but the last one, at least
		if err := checkHistory(key, history); err != nil {
			sc.s.Fatal(err)
		}
	}
}

// sortOf says what a call has met with, for the count of what was tried at all.
func sortOf(op operation) string {
	c, a := op.call, op.answer
	switch {
	case a.unknown():
		return "failed"
	case a.refused():
		return c.method + ": lost"
	case a.err != nil:
		return c.method + ": full"
	case c.method == "Acquire" && len(a.grant.Steps) > 0:
		return "Acquire: steps"
	case c.method == "Acquire" && a.grant.Free:
		return "Acquire: free"
	case c.method == "Acquire" && a.grant.State == store.Acquired && a.grant.Attempt > 1:
		return "Acquire: takeover"
	case c.method == "Acquire":
		return "Acquire: " + a.grant.State.String()
	}
	return c.method + ": ok"
}

// checkHistories checks that what concurrent clients see can be put in order.
func checkHistories(s *env) {
	store, checkTrace := s.traced(s.spread())
	met := map[string]int{}
	for round := range s.rounds() / 2 {
		s.runClients(fmt.Sprint("round ", round), 2, 10, store, nil).check(met)
		if s.Failed() {
			return
		}
	}
	checkTrace()
	sorts := []string{
		"Acquire: acquired", "Acquire: takeover", "Acquire: running", "Acquire: abandoned", "Acquire: done",
		"Renew: ok", "Renew: lost", "Complete: ok", "Complete: lost", "Release: ok", "Release: lost",
		"Abandon: ok", "Abandon: lost", "forgotten",
	}
	if s.can.Inspect != nil {
		sorts = append(sorts, "Change: ok", "Change: lost")
	}
	if s.can.Checkpoint != nil {
		sorts = append(sorts, "Checkpoint: ok", "Checkpoint: lost", "Fail: ok", "Fail: lost")
	}
	if s.can.Checkpoint != nil && s.can.Local { // others are called less often
		sorts = append(sorts, "Acquire: steps")
	}
	for _, sort := range sorts {
		if met[sort] == 0 {
			s.Errorf("storetest: the histories have nothing of the sort %q; they have %v", sort, met)
		}
	}
}

// checkFaultyHistories does so while the store is disturbed.
func checkFaultyHistories(s *env) {
	store, checkTrace := s.traced(s.spread())
	met := map[string]int{}
	for round := range s.rounds() / 4 {
		s.runClients(fmt.Sprint("round ", round), 4, 15, store, s.disturb).check(met)
		if s.Failed() {
			return
		}
	}
	checkTrace()
	calls := 0
	for _, n := range met {
		calls += n
	}
	if met["failed"] == 0 {
		s.Error("no call has failed: the store was not disturbed")
	}
	if answered := calls - met["failed"]; answered < clients*15*(s.rounds()/4)/2 {
		s.Errorf("only %d calls were answered, and %d failed: too few to tell much", answered, met["failed"])
	}
}
