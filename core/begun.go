package core

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/core/store"
)

var errBegunUnknown = errors.New("idem does not know when the operation began")

// Begun returns when the first run of the operation began. The time is the same in all attempts. Use it for keys that must not be
// sent after some time, as idemclient.WithKey does: no key that [Run.Derive] has made for the operation was sent before Begun. (But
// a chosen key that was used for an earlier operation has the same derived keys.)
//
// A first attempt knows the time. A later one looks it up in the store, once: one round trip, and the time is by the clock of
// [store.Record].Begun. Call Begun outside of transactions of that store.
//
// The error is [store.ErrLost] if the run no longer holds its claim, by errors.Is [codes.NoRun] if r is nil, or the store's. It is
// also an error if the store can't be inspected ([store.Capabilities].Inspect), and if the store has failed and FailOpen has let a
// request with a chosen key pass.
func (r *Run) Begun(ctx context.Context) (time.Time, error) {
	if r == nil {
		return time.Time{}, refusal(codes.NoRun).because(errNoRun)
	}
	if at := r.begun.Load(); at != 0 {
		return time.Unix(0, at), nil
	}
	record, err := r.lookUp(ctx)
	if err == nil && record.Begun.IsZero() {
		err = errBegunUnknown
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("idem: Begun: %w", err)
	}
	r.begun.Store(record.Begun.UnixNano())
	return record.Begun, nil
}

// lookUp returns the run's record; none in a store that can't be looked into.
func (r *Run) lookUp(ctx context.Context) (store.Record, error) {
	e := r.guard.engine
	if r.Unprotected() || e.can.Inspect == nil {
		return store.Record{}, nil
	}
	ctx, cancel := e.storeContext(ctx)
	defer cancel()
	record, err := e.can.Inspect.Lookup(ctx, r.key.raw)
	if errors.Is(err, store.ErrNoRecord) || err == nil && (record.ID != r.id || record.Attempt != r.attempt) {
		err = store.ErrLost
	}
	return record, err
}
