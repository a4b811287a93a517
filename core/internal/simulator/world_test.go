package simulator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/operations"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/memstore"
	"github.com/idem-go/idem/core/storetest"
)

const (
	lease        = time.Second
	storeTimeout = 2 * time.Second
	outage       = storeTimeout + time.Second // of the link of one process
	patience     = 3 * time.Second            // of those who wait
	tooMany      = 300                        // choices in a schedule: from then on nothing deviates
)

// outcome is what becomes of something that waits for the explorer.
type outcome string

const (
	answer outcome = "answered"           // a store's call is done and answered; whatever else waits goes on
	lose   outcome = "answer lost"        // it is done, and fails
	fail   outcome = "failed"             // it is not done, and fails
	crash  outcome = "process dies"       // before it is done
	die    outcome = "done, process dies" // after it
	cut    outcome = "cut off"            // the process is, for longer than a lease; then it is done and answered
	hold   outcome = "done, cut off"      // the process is, for longer than a lease; then it is answered
	brief  outcome = "done, slow"         // it is answered after half a lease
	stray  outcome = "failed, done later" // it is still under way, for half a lease
	later  outcome = "done later"         // it is on its way for half a lease, and then answered
	refuse outcome = "refused"            // for longer than an engine lets its callers wait: calls of this name, of this process
	down   outcome = "store away"         // for this process, for longer than an engine lets its callers wait
	lost   outcome = "failover"           // it is done and answered; the store loses it, and the write before it

	ended outcome = "ended" // its context has; nobody chooses that
)

// item waits for the explorer to choose what becomes of it.
type item struct {
	p        *process // nil: it is of no process
	who      string
	what     string
	key      string
	of       bool      // the store: it is one of its calls
	rank     int       // among all that wait
	from     time.Time // it can't be chosen before
	outcomes []outcome
	do       func(*memstore.Store) error
	err      error
	saw      func(before, after *store.Record, err error) // checks what was done
	reply    chan outcome
}

// process is an engine, and the link by which it reaches the store.
type process struct {
	*world
	number   int
	engine   *core.Engine
	ops      *operations.Operations
	do       func(ctx context.Context, c *client) reply
	gone     context.Context // ends when the process dies
	die      context.CancelFunc
	dead     bool
	cutUntil time.Time // no call reaches the store, and no answer comes
	away     time.Time // until then each call fails
	refused  string    // the name of calls that fail
	refuses  time.Time // until then
	troubled bool      // a call to renew may have failed
	draining bool
	events   map[string]*runEvents
}

// world is one run of a scenario.
type world struct {
	*scenario
	choose    func(at, n int) int
	choices   []int // how many possibilities there were at each choice
	calm      bool  // nothing deviates
	processes []*process
	began     time.Time
	wakeup    chan struct{}

	mu       sync.Mutex
	waiting  []*item
	arrivals []func()  // those who have not come yet
	arrives  time.Time // when the next one does, at the earliest
	seq      int       // of what callers and claims are about
	active   int       // those who have come, and have not been answered
	store    *memstore.Store
	inspect  store.Inspector
	clock    time.Time // of the store while it is made anew; zero: it is the time
	writes   []write
	traced   bool
	trace    []string
	broken   []string // invariants
	facts             // what has really happened
}

// write is one change of the store.
type write struct {
	at time.Time
	do func(*memstore.Store) error
}

func newWorld(s *scenario, choose func(at, n int) int, traced bool) *world {
	w := &world{scenario: s, choose: choose, traced: traced, began: time.Now(), wakeup: make(chan struct{}, 1)}
	w.facts.init()
	w.restore(0)
	for i := range cmp.Or(s.processes, 2) {
		p := &process{world: w, number: i, events: map[string]*runEvents{}}
		p.gone, p.die = context.WithCancel(context.Background())
		var records store.Store = link{p}
		if s.calls != nil {
			records = storetest.Traced(records, p)
		}
		p.engine = core.MustNew(core.Config{Store: records, Service: "shop", User: core.UserFromHeader("X-User"),
			StoreTimeout: storeTimeout,
			Observe:      p.observe, Secrets: []core.Secret{{Name: "one", Key: []byte("0123456789abcdef0123456789abcdef")}}})
		p.ops, _ = operations.Of(p.engine, operations.Options{})
		p.do = s.open(p)
		w.processes = append(w.processes, p)
	}
	for _, c := range s.clients {
		w.arrivals = append(w.arrivals, func() { w.come(c) })
	}
	for _, actor := range s.actors {
		w.arrivals = append(w.arrivals, func() { actor(w) })
	}
	return w
}

// restore makes the store anew of its first n writes.
func (w *world) restore(n int) {
	w.store, _ = memstore.New(memstore.Config{Now: func() time.Time {
		if !w.clock.IsZero() {
			return w.clock
		}
		return time.Now()
	}})
	w.inspect = w.store.Capabilities().Inspect
	w.writes = w.writes[:n]
	for _, write := range w.writes {
		w.clock = write.at
		_ = write.do(w.store)
	}
	w.clock = time.Time{}
}

// spawn begins something that ends by itself.
func (w *world) spawn(do func()) {
	w.mu.Lock()
	w.active++
	w.mu.Unlock()
	go func() {
		defer w.wake()
		defer func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.active--
		}()
		do()
	}()
}

func (w *world) wake() {
	select {
	case w.wakeup <- struct{}{}:
	default:
	}
}

// await lets it wait for the explorer.
func (w *world) await(ctx context.Context, it *item) outcome {
	it.reply = make(chan outcome, 1)
	w.mu.Lock()
	if it.p != nil && it.p.dead {
		w.mu.Unlock()
		return crash
	}
	w.waiting = append(w.waiting, it)
	w.mu.Unlock()
	w.wake()
	select {
	case o := <-it.reply:
		return o
	case <-ctx.Done():
		w.mu.Lock()
		defer w.mu.Unlock()
		w.remove(it)
		return ended
	}
}

func (w *world) remove(it *item) {
	w.waiting = slices.DeleteFunc(w.waiting, func(i *item) bool { return i == it })
}

// run plays the schedule: first what its choices say, then nothing fails any more and what has been promised must be so.
func (w *world) run() {
	w.serve(func() bool { return w.active == 0 && len(w.waiting) == 0 && len(w.arrivals) == 0 })
	goesOn := time.Now().Add(w.goesOn)
	w.serve(func() bool { return !time.Now().Before(goesOn) })
	w.mu.Lock()
	w.calm = true
	for _, p := range w.processes {
		p.cutUntil, p.away, p.refuses = time.Time{}, time.Time{}, time.Time{}
	}
	w.mu.Unlock()
	quiet := time.Now().Add(15 * time.Second)
	w.serve(func() bool { return !time.Now().Before(quiet) })
	w.afterwards()
	for _, p := range w.processes {
		p.die()
	}
	w.serve(func() bool { return w.active == 0 })
}

// serve serves what waits, until done, which is called with mu held.
func (w *world) serve(done func() bool) {
	limit := time.Now().Add(time.Hour)
	for {
		synctest.Wait()
		w.mu.Lock()
		ready, next := w.ready()
		over := len(ready) == 0 && done()
		w.mu.Unlock()
		switch {
		case over:
			return
		case len(ready) > 0:
			it := ready[w.pick(len(ready))]
			w.take(it, it.outcomes[w.pick(len(it.outcomes))])
		case time.Now().After(limit):
			w.mu.Lock()
			if limit.Sub(w.began) > 2*time.Hour {
				panic(fmt.Sprint("somebody never ends: ", w.broken))
			}
			w.breaks(16, "somebody still waits after an hour: %d, %d", w.active, len(w.waiting))
			for _, p := range w.processes {
				w.kill(p)
			}
			w.mu.Unlock()
			limit = limit.Add(time.Hour)
		default:
			timer := time.NewTimer(next)
			select {
			case <-w.wakeup:
			case <-timer.C:
			}
			timer.Stop()
		}
	}
}

// pick chooses one of n possibilities.
func (w *world) pick(n int) int {
	if n == 1 || w.calm || len(w.choices) >= tooMany {
		return 0
	}
	w.choices = append(w.choices, n)
	return w.choose(len(w.choices)-1, n)
}

// ready returns what may be chosen now, in an order that is the same each time, and how long it takes until more may be.
func (w *world) ready() (ready []*item, next time.Duration) {
	now := time.Now()
	next = time.Second
	for _, it := range w.waiting {
		p := it.p
		if now.Before(it.from) {
			next = min(next, it.from.Sub(now))
			continue
		}
		if it.of && p != nil && now.Before(p.cutUntil) {
			next = min(next, p.cutUntil.Sub(now))
			continue
		}
		if it.of && p != nil && (now.Before(p.away) || it.what == p.refused && now.Before(p.refuses)) {
			it = &item{p: p, who: it.who, what: it.what, key: it.key, of: true, outcomes: []outcome{fail}, reply: it.reply, rank: it.rank}
		}
		ready = append(ready, it)
	}
	switch {
	case len(w.arrivals) == 0:
	case now.Before(w.arrives):
		next = min(next, w.arrives.Sub(now))
	default:
		it := &item{what: "arrival", rank: 3, outcomes: []outcome{answer, cut}}
		if w.together {
			it.rank = -1
		}
		ready = append(ready, it)
	}
	slices.SortStableFunc(ready, func(a, b *item) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.process(), b.process()), strings.Compare(a.who, b.who),
			strings.Compare(a.what, b.what), strings.Compare(a.key, b.key))
	})
	return ready, next
}

func (it *item) process() int {
	if it.p == nil {
		return -1
	}
	return it.p.number
}

// take makes o become of it.
func (w *world) take(it *item, o outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(it.outcomes) > 1 || o != fail {
		w.note("%d %s %s: %s", it.process(), it.who, it.what, o)
	}
	if it.what == "arrival" {
		if o == cut {
			w.arrives = time.Now().Add(cmp.Or(w.later, lease+lease/5))
			return
		}
		next := w.arrivals[0]
		w.arrivals = w.arrivals[1:]
		w.mu.Unlock()
		time.Sleep(time.Millisecond) // no two have their deadlines at once
		next()
		w.mu.Lock()
		return
	}
	switch o {
	case cut, hold, brief, later: // nothing is answered for now
	default:
		w.waiting = slices.DeleteFunc(w.waiting, func(i *item) bool { return i.reply == it.reply })
	}
	now := time.Now()
	if it.of && (o == cut || o == hold || o == brief || o == down || it.what == "renew" && o != answer) {
		it.p.troubled = true
	}
	switch o {
	case crash:
		w.kill(it.p)
		it.reply <- o
	case die:
		w.perform(it)
		w.kill(it.p)
		it.reply <- o
	case cut:
		it.p.cutUntil, it.outcomes = now.Add(lease+lease/5), []outcome{answer}
	case hold:
		w.perform(it)
		it.p.cutUntil, it.outcomes, it.do = now.Add(lease+lease/5), []outcome{answer}, nil
	case brief:
		w.perform(it)
		it.p.cutUntil, it.outcomes, it.do = now.Add(lease/2), []outcome{answer}, nil
	case later:
		it.from, it.outcomes = now.Add(lease/2), []outcome{answer}
	case refuse:
		it.p.refused, it.p.refuses = it.what, now.Add(2*outage)
		it.reply <- o
	case stray:
		w.waiting = append(w.waiting, &item{who: it.who, what: it.what + " under way", key: it.key, rank: 2, outcomes: []outcome{answer},
			do: it.do, saw: it.saw, from: now.Add(lease / 2), reply: make(chan outcome, 1)})
		it.reply <- o
	case down:
		it.p.away = now.Add(outage)
		it.reply <- o
	case lost:
		w.perform(it)
		w.failover()
		it.reply <- answer
	case answer, lose:
		w.perform(it)
		it.reply <- o
	default:
		it.reply <- o
	}
}

// perform has the store do what it is asked for.
func (w *world) perform(it *item) {
	if it.do == nil {
		return
	}
	before := w.record(it.key)
	it.err = it.do(w.store)
	if it.saw != nil {
		w.writes = append(w.writes, write{time.Now(), it.do})
		it.saw(before, w.record(it.key), it.err)
	}
}

// record is the one under key; nil: there is none.
func (w *world) record(key string) *store.Record {
	r, err := w.inspect.Lookup(context.Background(), key)
	if err != nil {
		return nil
	}
	return &r
}

// kill ends a process. Others get no answer of it from now on, and the store no call.
func (w *world) kill(p *process) {
	p.dead = true
	p.die()
	w.waiting = slices.DeleteFunc(w.waiting, func(it *item) bool {
		if it.p == p {
			it.reply <- crash
		}
		return it.p == p
	})
}

// Write writes a line of the trace of the process's calls. A process that is dead hears no answers.
func (p *process) Write(line []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return len(line), nil
	}
	return p.calls.Write(line)
}

// mayDie reports whether there are others who go on.
func (p *process) mayDie() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	alive := 0
	for _, other := range p.processes {
		if !other.dead {
			alive++
		}
	}
	return alive > 1
}

// note adds to what is said of a schedule that somebody looks at.
func (w *world) note(format string, args ...any) {
	if !w.traced {
		return
	}
	w.trace = append(w.trace, fmt.Sprintf("%8v  ", time.Since(w.began))+fmt.Sprintf(format, args...))
}

// breaks says that an invariant does not hold.
func (w *world) breaks(invariant int, format string, args ...any) {
	text := fmt.Sprintf("invariant %d: ", invariant) + fmt.Sprintf(format, args...)
	w.broken = append(w.broken, text)
	w.note("%s", text)
}

// String is what has happened.
func (w *world) String() string { return strings.Join(w.trace, "\n") }

var errAway = errors.New("the store can't be reached")

// link is how a process reaches the store.
type link struct{ p *process }

// actor is the key of who acts, in contexts, and seen that of the record that an operator has seen.
type (
	actor struct{}
	seen  struct{}
)

// call makes a call that may change the record under key. saw gets what it has changed.
func (l link) call(ctx context.Context, owner store.Owner, key, what string, do func(*memstore.Store) error,
	saw func(before, after *store.Record, err error)) error {
	who, _ := ctx.Value(actor{}).(string)
	if who == "" { // a clean-up has no caller
		who = l.p.claimant(owner)
	}
	it := &item{p: l.p, who: who, what: what, key: key, of: true, do: do, saw: saw, outcomes: []outcome{answer, fail, cut, down}}
	l.p.ends(owner, what)
	switch {
	case what == "acquire":
		it.outcomes = append(it.outcomes, lose, stray, hold, brief)
	case what == "renew":
		it.outcomes = append(it.outcomes, lose, stray, brief, later)
	case saw != nil:
		it.outcomes = append(it.outcomes, lose, stray, hold)
		if l.p.refusing {
			it.outcomes = append(it.outcomes, refuse)
		}
	}
	if l.p.mayDie() {
		it.outcomes = append(it.outcomes, crash)
		if saw != nil {
			it.outcomes = append(it.outcomes, die)
		}
	}
	if l.p.failovers && saw != nil {
		it.outcomes = append(it.outcomes, lost)
	}
	switch l.p.await(ctx, it) {
	case answer:
		return it.err
	case crash, die:
		return store.ErrLost // nobody hears of what the engine does then
	case ended:
		return ctx.Err()
	}
	return errAway
}

func (l link) Acquire(ctx context.Context, key string, claim store.Claim) (g store.Grant, err error) {
	asked := l.p.claims(ctx, claim.Owner)
	err = l.call(ctx, claim.Owner, key, "acquire", func(s *memstore.Store) (err error) {
		g, err = s.Acquire(context.Background(), key, claim)
		return err
	}, func(before, after *store.Record, err error) { l.p.acquired(l.p, key, &claim, asked, &g, before, err) })
	if err != nil {
		return store.Grant{}, err
	}
	return g, nil
}

func (l link) Renew(ctx context.Context, key string, owner store.Owner, d time.Duration) error {
	return l.call(ctx, owner, key, "renew", func(s *memstore.Store) error { return s.Renew(context.Background(), key, owner, d) },
		func(_, _ *store.Record, err error) { l.p.renewed(key, owner, d, err) })
}

func (l link) Complete(ctx context.Context, key string, owner store.Owner, result []byte, retention time.Duration) error {
	return l.call(ctx, owner, key, "complete",
		func(s *memstore.Store) error { return s.Complete(context.Background(), key, owner, result, retention) },
		func(_, _ *store.Record, err error) { l.p.completed(key, owner, result, retention, 0, err) })
}

func (l link) Release(ctx context.Context, key string, owner store.Owner) error {
	return l.call(ctx, owner, key, "release", func(s *memstore.Store) error { return s.Release(context.Background(), key, owner) },
		func(_, _ *store.Record, err error) { l.p.settled(key, owner, core.Release, err) })
}

func (l link) Abandon(ctx context.Context, key string, owner store.Owner) error {
	return l.call(ctx, owner, key, "abandon", func(s *memstore.Store) error { return s.Abandon(context.Background(), key, owner) },
		func(_, _ *store.Record, err error) { l.p.settled(key, owner, core.Abandon, err) })
}

func (l link) Capabilities() store.Capabilities {
	c := store.Capabilities{Inspect: inspector{l}, ListsOldest: true}
	if !l.p.polls {
		c.Watch = l.watch
	}
	c.Checkpoint = func(ctx context.Context, key string, owner store.Owner, steps []byte) error {
		return l.call(ctx, owner, key, "checkpoint",
			func(s *memstore.Store) error {
				return s.Capabilities().Checkpoint(context.Background(), key, owner, steps)
			},
			func(_, _ *store.Record, err error) {})
	}
	c.Fail = func(ctx context.Context, key string, owner store.Owner, goesOn bool) error {
		return l.call(ctx, owner, key, "fail",
			func(s *memstore.Store) error { return s.Capabilities().Fail(context.Background(), key, owner, goesOn) },
			func(_, _ *store.Record, err error) {
				if goesOn {
					l.p.settled(key, owner, goOn, err)
				} else {
					l.p.settled(key, owner, core.Release, err)
				}
			})
	}
	c.Outlive = func(ctx context.Context, key string, owner store.Owner, result []byte, retention, known time.Duration) error {
		return l.call(ctx, owner, key, "outlive", func(s *memstore.Store) error {
			return s.Capabilities().Outlive(context.Background(), key, owner, result, retention, known)
		}, func(_, _ *store.Record, err error) { l.p.completed(key, owner, result, retention, known, err) })
	}
	return c
}

// watch loses no message but by a cut: whoever watches looks again from time to time.
func (l link) watch(ctx context.Context, key string) (changed <-chan struct{}, stop func(), err error) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if l.p.dead {
		return nil, nil, errAway
	}
	return l.p.store.Capabilities().Watch(context.Background(), key)
}

// inspector is an operator's link, and that of an engine that looks a record up.
type inspector struct{ link }

func (l inspector) Lookup(ctx context.Context, key string) (r store.Record, err error) {
	err = l.call(ctx, store.Owner{}, key, "look up", func(s *memstore.Store) (err error) {
		r, err = s.Capabilities().Inspect.Lookup(context.Background(), key)
		return err
	}, nil)
	return r, err
}

func (l inspector) List(ctx context.Context, q store.Query, cursor string) ([]store.Record, string, error) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	return l.p.inspect.List(ctx, q, cursor) // the look-up behind it is what counts
}

func (l inspector) Change(ctx context.Context, key string, expected store.Record, c store.Change) error {
	seen, _ := ctx.Value(seen{}).(store.Record)
	return l.call(ctx, store.Owner{}, key, "change",
		func(s *memstore.Store) error {
			return s.Capabilities().Inspect.Change(context.Background(), key, expected, c)
		},
		func(before, _ *store.Record, err error) { l.p.changed(key, &seen, &c, before, err) })
}
