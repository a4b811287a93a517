package faults_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/httpidem"
)

// The spans of the shops under test. A lease is short, for some tests wait for its end.
const (
	lease        = time.Second
	storeTimeout = time.Second
	patience     = 20 * time.Second // for what must happen at some time
)

// shop is a service in this process, over net/http. Its handler writes into the ledger.
type shop struct {
	service

	mu     sync.Mutex
	events []core.Event
}

func newShop(t *testing.T, store core.Store, p core.Policy) *shop {
	s := &shop{service: service{trial: newTrial(t)}}
	engine := core.MustNew(core.Config{Store: store, User: core.UserFromHeader("X-User"), StoreTimeout: storeTimeout,
		Observe: func(_ context.Context, e core.Event) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.events = append(s.events, e)
		}})
	p.Key, p.Lease = core.Header(core.Required), lease
	mux := http.NewServeMux()
	mux.Handle("POST /payments", httpidem.New(engine.MustGuard(p))(http.HandlerFunc(s.pay)))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *shop) pay(w http.ResponseWriter, r *http.Request) {
	operation := r.Header.Get("Idempotency-Key")
	run, _ := core.RunFrom(r.Context())
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
	core.Store
	complete func(key string)
}

func (b before) Complete(ctx context.Context, key string, owner core.Owner, result []byte, retention time.Duration) error {
	b.complete(key)
	return b.Store.Complete(ctx, key, owner, result, retention)
}
