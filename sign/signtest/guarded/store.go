package guarded

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/memstore"
)

// store is a store in memory that counts claims, and fails as it is told.
type spyStore struct {
	store.Store
	claimed chan struct{} // has one for each claim of an operation

	mu             sync.Mutex
	claims, nonces int
	down           bool
}

func newStore(tb testing.TB) *spyStore {
	tb.Helper()
	memory, err := memstore.New(memstore.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return &spyStore{Store: memory, claimed: make(chan struct{}, 1000)}
}

var errDown = errors.New("dial tcp 10.0.0.7:6379: connection refused")

func (s *spyStore) Acquire(ctx context.Context, key string, claim store.Claim) (store.Grant, error) {
	s.mu.Lock()
	if strings.HasPrefix(key, "idem:N=") {
		s.nonces++
	} else {
		s.claims++
		select {
		case s.claimed <- struct{}{}:
		default: // nobody waits for so many
		}
	}
	down := s.down
	s.mu.Unlock()
	if down {
		return store.Grant{}, errDown
	}
	return s.Store.Acquire(ctx, key, claim)
}

func (s *spyStore) setDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

// count returns how many claims were made, of operations and of nonces.
func (s *spyStore) count() (claims, nonces int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claims, s.nonces
}
