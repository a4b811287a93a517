package core_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/memstore"
)

func newStore(t testing.TB) store.Store {
	t.Helper()
	s, err := memstore.New(memstore.Config{})
	require.NoError(t, err)
	return s
}

var errDown = errors.New("connection refused")

// shared shows no more of a store than its calls: other processes may reach it.
type shared struct{ store.Store }

func (shared) Capabilities() store.Capabilities { return store.Capabilities{} }

// spy counts the calls of a store and lets each fail or hang. Unless it says otherwise it is neither local nor
// watchable, so that the engine calls it as one on another machine.
type spy struct {
	store.Store
	can                                             *store.Capabilities
	asked                                           func(key string, claim store.Claim) // before each Acquire
	acquires, renews, completes, releases, abandons atomic.Int64

	acquire, renew, complete, release, abandon func(ctx context.Context) error // nil: works
	after                                      bool                            // the failing call takes effect all the same
}

func (s *spy) Capabilities() store.Capabilities {
	if s.can != nil {
		return *s.can
	}
	return store.Capabilities{InProcess: true}
}

func (s *spy) fault(ctx context.Context, hook func(context.Context) error, call func() error) error {
	if hook == nil {
		return call()
	}
	if s.after {
		effect := call()
		if err := hook(ctx); err != nil {
			return err
		}
		return effect
	}
	if err := hook(ctx); err != nil {
		return err
	}
	return call()
}

func (s *spy) Acquire(ctx context.Context, key string, claim store.Claim) (g store.Grant, err error) {
	s.acquires.Add(1)
	if s.asked != nil {
		s.asked(key, claim)
	}
	err = s.fault(ctx, s.acquire, func() (err error) { g, err = s.Store.Acquire(ctx, key, claim); return })
	return
}

func (s *spy) Renew(ctx context.Context, key string, owner store.Owner, lease time.Duration) error {
	s.renews.Add(1)
	return s.fault(ctx, s.renew, func() error { return s.Store.Renew(ctx, key, owner, lease) })
}

func (s *spy) Complete(ctx context.Context, key string, owner store.Owner, result []byte, retention time.Duration) error {
	s.completes.Add(1)
	return s.fault(ctx, s.complete, func() error { return s.Store.Complete(ctx, key, owner, result, retention) })
}

func (s *spy) Release(ctx context.Context, key string, owner store.Owner) error {
	s.releases.Add(1)
	return s.fault(ctx, s.release, func() error { return s.Store.Release(ctx, key, owner) })
}

func (s *spy) Abandon(ctx context.Context, key string, owner store.Owner) error {
	s.abandons.Add(1)
	return s.fault(ctx, s.abandon, func() error { return s.Store.Abandon(ctx, key, owner) })
}

func down(context.Context) error { return errDown }

// hang blocks for as long as the caller allows.
func hang(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

// crash leaves a claim behind that nobody will finish.
func crash(t *testing.T, records store.Store, g *core.Guard, c *call, lease time.Duration) {
	t.Helper()
	key, fingerprint := keyOf(t, g, c)
	grant, err := records.Acquire(context.Background(), key, store.Claim{
		Owner: store.NewOwner(), Fingerprint: fingerprint, Lease: lease, Retention: time.Hour,
	})
	require.NoError(t, err)
	require.Equal(t, store.Acquired, grant.State)
}

// keyOf returns the stored key and the fingerprint of c.
func keyOf(t *testing.T, g *core.Guard, c *call) (key, fingerprint string) {
	t.Helper()
	r := core.Request{Headers: c, Body: []byte(c.body)}
	c.Describe(&r)
	k, fingerprint, err := g.Key(&r)
	require.NoError(t, err)
	return k.Raw(), fingerprint
}
