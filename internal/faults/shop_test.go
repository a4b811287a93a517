package faults_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/httpidem"
)

// The spans of the shops under test. A lease is short, for some tests wait for its end; longLease is for
// those in which it must not end, however busy the machine is. The same goes for the deadline of the store.
const (
	lease        = 4 * time.Second
	longLease    = time.Minute
	storeTimeout = 4 * time.Second
	longTimeout  = 20 * time.Second
	patience     = time.Minute // for what must happen at some time
)

// shop is a service in this process, over net/http. Its handler writes into the ledger.
type shop struct {
	service

	mu     sync.Mutex
	events []core.Event
}

// newShop returns a shop whose store answers at some time, if only by an error. Unless p says otherwise,
// no lease ends: a claim that takes longer than its lease is refused.
func newShop(t *testing.T, store store.Store, p core.Policy) *shop {
	p.Lease = cmp.Or(p.Lease, longLease)
	return openShop(t, store, p, longTimeout)
}

// newHastyShop returns a shop for a test that waits for the end of storeTimeout.
func newHastyShop(t *testing.T, store store.Store, p core.Policy) *shop {
	p.Lease = cmp.Or(p.Lease, lease)
	return openShop(t, store, p, storeTimeout)
}

func openShop(t *testing.T, store store.Store, p core.Policy, storeTimeout time.Duration) *shop {
	s := &shop{service: service{trial: newTrial(t)}}
	engine := core.MustNew(core.Config{Service: "shop", Store: store, User: core.UserFromHeader("X-User"), StoreTimeout: storeTimeout,
		Observe: func(_ context.Context, e core.Event) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.events = append(s.events, e)
		}})
	p.Key = core.Header(core.Required)
	mux := http.NewServeMux()
	mux.Handle("POST /payments", httpidem.New(engine.MustGuard(p))(http.HandlerFunc(s.pay)))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *shop) pay(w http.ResponseWriter, r *http.Request) {
	operation := r.Header.Get("Idempotency-Key")
	run := core.RunFrom(r.Context())
	s.execute(operation, run.Attempt())
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "%s, attempt %d", operation, run.Attempt())
}

// saw reports whether there was an event of a kind.
func (s *shop) saw(kind core.Kind) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.events, func(e core.Event) bool { return e.Kind == kind })
}

// ended waits until so many runs are settled, or given up, and returns the events that say so.
func (s *shop) ended(n int) (events []core.Event) {
	require.Eventually(s.t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		events = slices.DeleteFunc(slices.Clone(s.events), func(e core.Event) bool {
			return e.Kind < core.Completed || e.Kind > core.RunUnfinished
		})
		return len(events) >= n
	}, patience, 10*time.Millisecond)
	return events
}

// started returns the keys of the runs, in their order.
func (s *shop) started() (keys []core.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if e.Kind == core.Started {
			keys = append(keys, e.Key)
		}
	}
	return keys
}

// three are the operations of most tests.
var three = []string{"op-1", "op-2", "op-3"}

// once means that each of them ran once.
var once = tally{executions: 3}

// trier returns what tries a fault: do breaks a shop's fresh store by means of with, and the row is reported.
func trier[B any](t *testing.T, section, name string, fresh func(t *testing.T) (with B, records store.Store)) func(
	fault string, open func(*testing.T, store.Store, core.Policy) *shop, record core.Record, want tally, do func(with B, s *shop),
) {
	return func(
		fault string, open func(*testing.T, store.Store, core.Policy) *shop, record core.Record, want tally, do func(with B, s *shop),
	) {
		t.Run(fault, func(t *testing.T) {
			with, records := fresh(t)
			s := open(t, records, core.Policy{Record: record})
			do(with, s)
			s.report(section, fault, name, want, three...)
		})
	}
}

func nothing() {}

// first does harm in the first run of each operation.
func first(harm func()) func(operation string, attempt uint64) {
	return func(_ string, attempt uint64) {
		if attempt == 1 {
			harm()
		}
	}
}

// refuses expects that no handler runs while the store is harmed before the claim, and that retries get a
// success when it is repaired: each asks for it (until, or gets for the first one).
func (s *shop) refuses(harm func(operation string), repair func(), ask func(want, operation string)) {
	s.t.Helper()
	for _, op := range three {
		harm(op)
		s.gets("503 store_unavailable", op)
		require.Zero(s.t, s.ledger.of(op))
		repair()
		ask("201", op)
		s.gets("201 replayed", op)
	}
}

// answers expects that a client whose handler has run gets the real response, whatever becomes of the store
// meanwhile, and a retry gets last when it is repaired.
func (s *shop) answers(repair func(), ask func(want, operation string), last string) {
	s.t.Helper()
	for _, op := range three {
		s.gets("201", op)
		repair()
		ask(last, op)
	}
}

// before calls a hook before a store is called to complete a record: the one moment that no
// handler and no observer sees.
type before struct {
	store.Store
	complete func(key string)
}

func (b before) Complete(ctx context.Context, key string, owner store.Owner, result []byte, retention time.Duration) error {
	b.complete(key)
	return b.Store.Complete(ctx, key, owner, result, retention)
}
