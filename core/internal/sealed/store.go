package sealed

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/idem-go/idem/core/store"
)

// Store is a store as an engine sees it: what it is given is sealed, and what it has is opened. What can't be opened is reported as
// Unopened, in a [store.Grant] or a [store.Record]. Its Ring seals what else the store keeps of a run.
type Store struct {
	store.Store
	*Ring
	can store.Capabilities
}

// New decorates a store. It recalls only what stands in for inner's own Acquire.
func New(inner store.Store, r *Ring) *Store {
	s := &Store{Store: inner, Ring: r, can: inner.Capabilities()}
	can := &s.can
	if checkpoint := can.Checkpoint; checkpoint != nil {
		can.Checkpoint = func(ctx context.Context, key string, owner store.Owner, steps []byte) error {
			return checkpoint(ctx, key, owner, r.seal(ofSteps, key, steps))
		}
	}
	if outlive := can.Outlive; outlive != nil {
		can.Outlive = func(ctx context.Context, key string, owner store.Owner, result []byte, retention, known time.Duration) error {
			return outlive(ctx, key, owner, r.seal(ofResult, key, result), retention, known)
		}
	}
	if recall := can.Recall; recall != nil && can.RecallFor == inner {
		can.RecallFor, can.Recall = s, func(key []byte) (store.Grant, uint64, bool) {
			grant, raw, ok := recall(key)
			if ok && (len(r.keys) > 0 || isSealed(grant.Result)) { // else it costs no copy of the key
				r.openGrant(string(key), &grant)
			}
			return grant, raw, ok
		}
	} else {
		can.Recall = nil
	}
	if can.Inspect != nil {
		can.Inspect = &inspector{can.Inspect, r}
	}
	return s
}

// Capabilities implements [store.Store].
func (s *Store) Capabilities() store.Capabilities { return s.can }

// Acquire implements [store.Store]. If there are keys, and none opens the steps of the operation, nobody is to begin it again: the claim
// is given back.
func (s *Store) Acquire(ctx context.Context, key string, claim store.Claim) (store.Grant, error) {
	if s.seals() { // what is sealed is always valid
		if err := claim.Validate(); err != nil {
			return store.Grant{}, err
		}
		claim.Remark = s.sealRemark(key, claim.Remark)
	}
	grant, err := s.Store.Acquire(ctx, key, claim)
	if err != nil {
		return grant, err
	}
	s.openGrant(key, &grant)
	if err = grant.Unopened; err != nil && grant.State == store.Acquired && len(s.keys) > 0 {
		if lost := s.Store.Release(ctx, key, claim.Owner); lost != nil { // the lease has to pass
			err = fmt.Errorf("%w; and the claim was not given back: %w", err, lost)
		}
		return store.Grant{}, err
	}
	return grant, nil
}

// openGrant opens what a grant has: steps if the claim was made, else a result.
func (r *Ring) openGrant(key string, g *store.Grant) {
	if g.State == store.Acquired {
		g.Steps, g.Unopened = r.open(ofSteps, key, g.Steps)
		return
	}
	g.Result, g.Unopened = r.open(ofResult, key, g.Result)
	g.Remark = r.openRemark(key, g.Remark)
}

// Complete implements [store.Store].
func (s *Store) Complete(ctx context.Context, key string, owner store.Owner, result []byte, retention time.Duration) error {
	return s.Store.Complete(ctx, key, owner, s.seal(ofResult, key, result), retention)
}

// inspector is a [store.Inspector] as an engine sees it.
type inspector struct {
	store.Inspector
	*Ring
}

// Lookup implements [store.Inspector].
func (i *inspector) Lookup(ctx context.Context, key string) (store.Record, error) {
	r, err := i.Inspector.Lookup(ctx, key)
	r.Result, r.Unopened = i.open(ofResult, key, r.Result)
	r.Remark = i.openRemark(key, r.Remark)
	return r, err
}

// List implements [store.Inspector].
func (i *inspector) List(ctx context.Context, q store.Query, cursor string) ([]store.Record, string, error) {
	page, next, err := i.Inspector.List(ctx, q, cursor)
	for n := range page {
		page[n].Remark = i.openRemark(page[n].Key, page[n].Remark)
	}
	return page, next, err
}

// Change implements [store.Inspector]. What it stores beside a sealed remark is sealed under that one's key, which the service has. If this
// engine can't do that, it stores no remark, which everybody could read, and no result.
func (i *inspector) Change(ctx context.Context, key string, expected store.Record, c store.Change) error {
	if c.To == 0 { // the record goes
		return i.Inspector.Change(ctx, key, expected, c)
	}
	if err := c.Validate(expected.State); err != nil { // what is sealed is always valid
		return err
	}
	r, err := i.Inspector.Lookup(ctx, key)
	if err != nil && !errors.Is(err, store.ErrNoRecord) {
		return err
	}
	if !strings.HasPrefix(r.Remark, remarkPrefix) {
		c.Result = i.seal(ofResult, key, c.Result)
		if c.Remark != "" { // else that of the record stays
			c.Remark = i.sealRemark(key, c.Remark)
		}
		return i.Inspector.Change(ctx, key, expected, c)
	}
	_, of, err := i.remarkOf(key, r.Remark)
	switch {
	case err == nil && !i.openOnly:
		if len(c.Result) > 0 {
			c.Result = of.seal(ofResult, key, c.Result)
		}
		if c.Remark != "" {
			c.Remark = of.sealRemark(key, c.Remark)
		}
	case c.To == store.Done && err != nil:
		return fmt.Errorf("%w: %w", ErrUnsettled, err)
	case c.To == store.Done:
		return fmt.Errorf("%w: OpenOnly", ErrUnsettled)
	default:
		c.Remark = ""
	}
	return i.Inspector.Change(ctx, key, expected, c)
}
