package shop

import (
	"context"
	"sync"

	"github.com/idem-go/idem/core"
)

// submits counts how often each form has arrived. A replay does not get as far as the handler, so the
// engine's events are counted: each request is started, replayed or refused, once. It counts what this
// process has seen.
type submits struct {
	mu      sync.Mutex
	arrived map[core.Key]int
}

func (s *submits) observe(_ context.Context, e core.Event) {
	if e.Policy != policyCheckout || e.Key == (core.Key{}) {
		return
	}
	switch e.Kind {
	case core.Started, core.Replayed, core.Refused:
		s.mu.Lock()
		s.arrived[e.Key]++
		s.mu.Unlock()
	}
}

func (s *submits) of(key core.Key) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.arrived[key]
}
