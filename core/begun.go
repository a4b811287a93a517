package core

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/core/store"
)

var errBegunUnknown = errors.New("it is not known when the operation was begun")

// Begun returns when the first run of the operation was begun. It is the same in all attempts. It is for what must not be sent
// again after some time, as by idemclient.WithKey: no key that [Run.Derive] has made for the operation was sent before. (But
// a key that somebody has chosen, and used for an operation before this one, has the same derived keys.)
//
// A first attempt knows it. A later one looks it up in the store, once: one round trip, and the time is by the clock of
// [store.Record].Begun. Call it outside of transactions of that store.
//
// The error is [store.ErrLost] if the run does not hold its claim any more, by errors.Is [codes.NoRun] if r is nil, or the
// store's. It is also an error if the store can't be looked into ([store.Capabilities].Inspect), and if the store has failed
// and FailOpen has let a request pass with a key that somebody has chosen.
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
