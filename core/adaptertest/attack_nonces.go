package adaptertest

import (
	"context"
	"sync"
	"time"

	"github.com/idem-go/idem/sign"
)

// nonces is a nonce store that forgets by the suite's clock, and fails as it is told.
type nonces struct {
	clock *clock

	mu    sync.Mutex
	until map[[2]string]time.Time
	calls int
	fail  func(ctx context.Context) error // nil: it does not
}

func newNonces(c *clock) *nonces { return &nonces{clock: c, until: make(map[[2]string]time.Time)} }

// Use implements sign.NonceStore.
func (n *nonces) Use(ctx context.Context, keyID, nonce string, ttl time.Duration) (bool, error) {
	n.mu.Lock()
	n.calls++
	fail := n.fail
	n.mu.Unlock()
	if fail != nil {
		if err := fail(ctx); err != nil {
			return false, err
		}
	}
	now := n.clock.now()
	n.mu.Lock()
	defer n.mu.Unlock()
	entry := [2]string{string([]byte(keyID)), string([]byte(nonce))}
	if until, ok := n.until[entry]; ok && now.Before(until) {
		return false, nil
	}
	n.until[entry] = now.Add(ttl)
	return true, nil
}

// roomUnknown is a store that does not tell how much it holds.
type roomUnknown struct{ *sign.MemoryNonces }

func (roomUnknown) Limits() (capacity int, ownTimeout bool) { return 0, true }

// Limits implements sign.NonceStore.
func (n *nonces) Limits() (capacity int, ownTimeout bool) { return 0, false }

func (n *nonces) failing(f func(context.Context) error) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fail = f
}

func (n *nonces) called() int {
	if n == nil {
		return 0
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.calls
}

// clock is the verifier's.
type clock struct {
	mu sync.Mutex
	at time.Time
}

const minute = time.Minute

// noon is when each attack begins.
var noon = time.Unix(1700000000, 0)

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = t
}
