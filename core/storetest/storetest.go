// Package storetest is the suite that defines what a store is. Whatever passes it
// can stand behind an engine, whoever wrote it; what store.Store says in words is
// said here in cases.
//
// A store enrols with a factory and with what it is able to do:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(tb testing.TB) storetest.Instance {
//			return storetest.Instance{Store: mystore.New(openFreshDatabase(tb))}
//		}, storetest.Features{Watch: true})
//	}
//
//	func BenchmarkStore(b *testing.B) { storetest.Bench(b, factory) }
//
// Each case carries the rule or the trap for which it exists, and a failing one
// prints it. A store with an injectable clock gives [Instance] an Advance, and
// nothing sleeps; for any other the suite waits for leases of some tens of
// milliseconds, and in no case relies on anything happening in time: short leases
// are only ever waited out, and what must stand stands for an hour.
//
// Concurrent callers are answered differently at each run. Two cases therefore record
// what random clients were answered and let porcupine find an order in which one
// client alone would have been answered the same: the proof that each call is one
// atomic step, on an [Instance] with a Peer also across processes, and with
// [Features] Faulty also while connections break and servers restart. The history of
// a key without such an order is printed.
//
// [RunLimiter] is the suite that defines what a core.Limiter is.
package storetest

import (
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/core/store"
)

// Factory makes an empty store, or an empty name space in a shared one. It is
// called once for each case, gives up what it holds through tb.Cleanup, and fails
// tb if it can't make one.
type Factory func(tb testing.TB) Instance

// Instance is a store under test.
type Instance struct {
	// Store is the store. It must not be nil.
	Store store.Store
	// Advance moves the store's clock forward by d. Nil means that the store has a
	// clock that can't be moved (a server's): the suite then really waits. It is
	// called in the case's goroutine, also while calls are running in others.
	Advance func(d time.Duration)
	// Peer makes another store on the same records, as another process would have it:
	// with a client and connections of its own. Cases in which callers race use both.
	// It is called at most once for each case, in the case's goroutine. Nil means that
	// there is no such thing: the records belong to one process.
	Peer func() store.Store
}

// Features says what a store is able to do beyond store.Store. The zero Features is
// a store that does just that. Cases that need more than is declared are skipped.
type Features struct {
	// Watch says that the store implements store.Watcher.
	Watch bool
	// Local says that the store implements store.Local.
	Local bool
	// Bounded makes a store that has room for just so many records, and refuses
	// more with store.ErrFull. Nil for a store without bounds of its own.
	Bounded func(tb testing.TB, records int) Instance
	// Faulty makes a store that can be disturbed, and the means to do so. Nil for a
	// store that can't be.
	//
	// disturb breaks something once (cuts the connections, kills the sessions,
	// restarts the server) and returns when calls can succeed again, or will within
	// some milliseconds. It is called several times in the case's goroutine, while calls
	// are running in others that are given ten seconds each. What is acknowledged must
	// survive: a server that is restarted needs durable storage. Some call must fail,
	// and half of them must not.
	Faulty func(tb testing.TB) (i Instance, disturb func())
}

// Run checks the store that factory makes, in a subtest for each case.
func Run(t *testing.T, factory Factory, features Features) {
	t.Helper()
	if factory == nil {
		t.Fatal("storetest: the factory is nil")
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			run(t, c, factory, features)
		})
	}
}

// run runs one case, in a stand-in for the subtest when the suite tests itself.
func run(tb testing.TB, c testCase, factory Factory, features Features) {
	if c.needs&needWatch != 0 && !features.Watch {
		tb.Skip("the store declares no Watch")
	}
	if c.needs&needBounds != 0 && features.Bounded == nil {
		tb.Skip("the store declares no bounds")
	}
	if c.needs&needFaults != 0 && features.Faulty == nil {
		tb.Skip("the store declares no faults")
	}
	s := &subject{TB: tb, features: features}
	switch {
	case c.needs&needBounds != 0:
		s.Instance = features.Bounded(tb, bound)
	case c.needs&needFaults != 0:
		s.Instance, s.disturb = features.Faulty(tb)
	default:
		s.Instance = factory(tb)
	}
	if s.Store == nil {
		tb.Fatal("storetest: the factory made no store")
	}
	if c.needs&needClock != 0 && s.Advance == nil {
		tb.Skip("the store's clock can't be moved")
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("the rule: %s", c.why)
		}
	})
	c.run(s)
}

// needs are the capabilities that a case can't do without.
type needs uint8

const (
	needWatch  needs = 1 << iota // store.Watcher
	needClock                    // Instance.Advance
	needBounds                   // Features.Bounded; the case gets a store for so many records
	needFaults                   // Features.Faulty; the case gets a store that can be disturbed
)

// bound is the number of records that a store made by Features.Bounded is asked to
// hold.
const bound = 8

// testCase is one rule. why says where it comes from or what goes wrong without it.
type testCase struct {
	name  string
	why   string
	needs needs
	run   func(s *subject)
}

// Clock is a clock for stores that can be handed one. It stands still but for
// Advance. Its methods are safe for concurrent use.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock that shows a moment in 2020: no store can confuse it
// with the machine's own.
func NewClock() *Clock {
	return &Clock{now: time.Date(2020, 2, 29, 23, 59, 59, 0, time.UTC)}
}

// Now returns the moment that the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock forward by d.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
