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
