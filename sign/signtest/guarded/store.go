package guarded

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store/memstore"
)

// store is a store in memory that counts claims, and fails as it is told.
type store struct {
	core.Store
	claimed chan struct{} // has one for each claim of an operation

	mu             sync.Mutex
	claims, nonces int
	down           bool
}

func newStore(tb testing.TB) *store {
	tb.Helper()
	memory, err := memstore.New(memstore.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return &store{Store: memory, claimed: make(chan struct{}, 1000)}
}

var errDown = errors.New("dial tcp 10.0.0.7:6379: connection refused")

func (s *store) Acquire(ctx context.Context, key string, claim core.Claim) (core.Grant, error) {
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
		return core.Grant{}, errDown
	}
	return s.Store.Acquire(ctx, key, claim)
}

func (s *store) setDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

// count returns how many claims were made, of operations and of nonces.
func (s *store) count() (claims, nonces int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claims, s.nonces
}
