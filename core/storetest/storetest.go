// Package storetest tests whether a store keeps the contract of store.Store. A store
// that passes can be used with an engine.
//
// A store's test passes a factory:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(tb testing.TB) storetest.Instance {
//			return storetest.Instance{Store: mystore.New(openFreshDatabase(tb))}
//		}, storetest.Features{})
//	}
//
//	func BenchmarkStore(b *testing.B) { storetest.Bench(b, factory) }
//
// Each case has the rule that it checks, and prints it when it fails. If the store's
// clock can be moved, set Advance in [Instance], and nothing sleeps. Otherwise the
// suite waits for leases of some tens of milliseconds. No case depends on the speed of
// the machine: short leases are only waited out, and a lease that must stand is an hour
// long.
//
// Two cases check that each call is one atomic step. They record the answers that
// concurrent random clients get, and search for an order of the calls
// in which a single client would get the same answers. With a Peer in [Instance] the
// clients use two stores, as two processes do; with Faulty in [Features] connections
// break and servers restart meanwhile. A key whose calls have no such order fails, and
// its history is printed.
package storetest

import (
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/core/store"
)

// Factory makes an empty store, or an empty name space in a shared one. It is
// called once for each case. It releases its resources by tb.Cleanup, and fails tb if
// it can't make a store.
type Factory func(tb testing.TB) Instance

// Instance is a store under test.
type Instance struct {
	// Store is the store. It must not be nil.
	Store store.Store
	// Advance moves the store's clock forward by d. Leave it nil if the clock can't be
	// moved, as a server's: the suite then sleeps. It is called in the case's goroutine,
	// also while other goroutines call the store.
	Advance func(d time.Duration)
	// Peer makes another store on the same records, as another process would: with a
	// client and connections of its own. Cases with concurrent callers use both stores.
	// It is called at most once for each case, in the case's goroutine. Leave it nil if
	// the records belong to one process.
	Peer func() store.Store
	// Encrypts says that the store encrypts what another one keeps: a remark may be cut after 100 bytes, and the size of a result may be
	// greater than its length.
	Encrypts bool
	// WholeLists says that a page of a list may have all records, whatever its limit. It is for servers that stand in for another in tests.
	WholeLists bool
}

// Features are what a test can do to a store beyond that. Cases that need a feature are skipped without it, and so are
// those that need a capability that the store does not declare (store.Capabilities).
type Features struct {
	// Bounded makes a store that has room for exactly that many records, and refuses
	// more with store.ErrFull. Leave it nil for a store without bounds of its own.
	Bounded func(tb testing.TB, records int) Instance
	// Faulty makes a store whose connections or server can be broken, and a function that
	// does so. Leave it nil if they can't be.
	//
	// disturb breaks something once (cuts the connections, kills the sessions, restarts
	// the server) and returns when calls succeed again, or will within some
	// milliseconds. It is called several times in the case's goroutine, while other
	// goroutines make calls that take up to ten seconds each. Acknowledged records must
	// survive: a server that is restarted needs durable storage. At least one call must
	// fail, and at least half must succeed.
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
	if c.needs&needBounds != 0 && features.Bounded == nil {
		tb.Skip("the test makes no bounded store")
	}
	if c.needs&needFaults != 0 && features.Faulty == nil {
		tb.Skip("the test makes no faulty store")
	}
	s := &env{TB: tb, bounded: features.Bounded}
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
	s.can = s.Store.Capabilities()
	if c.needs&needWatch != 0 && s.can.Watch == nil {
		tb.Skip("the store declares no Watch")
	}
	if c.needs&needRecall != 0 && s.can.Recall == nil {
		tb.Skip("the store declares no Recall")
	}
	if c.needs&needInspect != 0 && s.can.Inspect == nil {
		tb.Skip("the store declares no Inspect")
	}
	if c.needs&needCheckpoint != 0 && s.can.Checkpoint == nil {
		tb.Skip("the store declares no Checkpoint")
	}
	if c.needs&needOutlive != 0 && s.can.Outlive == nil {
		tb.Skip("the store declares no Outlive")
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

// needs are the features that a case requires.
type needs uint8

const (
	needWatch      needs = 1 << iota // Capabilities.Watch
	needRecall                       // Capabilities.Recall
	needInspect                      // Capabilities.Inspect
	needCheckpoint                   // Capabilities.Checkpoint and Fail
	needOutlive                      // Capabilities.Outlive
	needClock                        // Instance.Advance
	needBounds                       // Features.Bounded; the case gets a store for bound records
	needFaults                       // Features.Faulty; the case gets a store that can be disturbed
)

// bound is the number of records for which Features.Bounded is asked.
const bound = 8

// testCase is one rule. why says where it comes from, or what goes wrong without it.
type testCase struct {
	name  string
	why   string
	needs needs
	run   func(s *env)
}

// Clock is a clock for stores that take one. Only Advance moves it. Its methods are
// safe for concurrent use. Make one with [NewClock].
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock that shows a moment in 2020, so that it differs from the
// machine's clock.
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
