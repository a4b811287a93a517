package core

import (
	"context"
	"errors"
	"time"

	"github.com/idem-go/idem/core/store"
)

func (e *Engine) acquire(ctx context.Context, key Key, claim store.Claim) (grant store.Grant, err error) {
	calling, cancel := e.storeContext(ctx)
	defer cancel()
	err = e.call(ctx, "acquire", func() error {
		grant, err = e.store.Acquire(calling, key.raw, claim)
		return err
	})
	return grant, err
}

// call calls the store, and tells the observer how long that took. ctx is the request's.
func (e *Engine) call(ctx context.Context, name string, call func() error) error {
	if e.observeStore == nil {
		return call()
	}
	began := time.Now()
	err := call()
	e.observeStore(ctx, name, time.Since(began), err)
	return err
}

// complete completes a record, in one try. If the store has no room for the result, the record is completed
// without it, and full is true: that the operation has been done must be remembered, and takes no
// more room than the record already has. known is how much longer the key is known than the result is kept; zero: no longer.
// calling is the call's context, ctx the caller's.
func (e *Engine) complete(ctx, calling context.Context, key Key, owner store.Owner, result []byte,
	retention, known time.Duration) (full bool, err error) {
	complete := func(result []byte) error {
		return e.call(ctx, "complete", func() error {
			if known > 0 {
				return e.can.Outlive(calling, key.raw, owner, result, retention, known)
			}
			return e.store.Complete(calling, key.raw, owner, result, retention)
		})
	}
	if err = complete(result); errors.Is(err, store.ErrFull) && len(result) > 0 {
		return true, complete(nil)
	}
	return false, err
}

func (e *Engine) release(ctx context.Context, key Key, owner store.Owner) error {
	return e.persist(ctx, "release", func(ctx context.Context) error { return e.store.Release(ctx, key.raw, owner) })
}

// persist calls the store, and retries, within the deadline of one call.
func (e *Engine) persist(ctx context.Context, name string, call func(context.Context) error) error {
	calling, cancel := e.storeContext(ctx)
	defer cancel()
	return retry(calling, func() error {
		return e.call(ctx, name, func() error { return call(calling) })
	})
}

// retry calls a store, and again while the call fails, until ctx ends: at once first, because the
// usual failure is a connection that breaks under the call, and the next call gets another one;
// then after growing pauses, because a store that restarts is soon back. A later try that finds the
// claim lost may only mean that an earlier one took effect: retry then returns the first failure.
func retry(ctx context.Context, call func() error) error {
	err := call()
	if ctx.Done() == nil {
		return err // a local store: it has no connection, and no deadline
	}
	for pause := time.Duration(0); err != nil && !isFinal(err) && ctx.Err() == nil; pause = max(2*pause, firstPause) {
		if pause > 0 && !sleep(ctx, pause) {
			return err
		}
		again := call()
		if again == nil || errors.Is(again, store.ErrFull) {
			return again
		}
		if isFinal(again) {
			return err
		}
	}
	return err
}

// isFinal reports whether err is an answer of the store: another try would get the same.
func isFinal(err error) bool { return errors.Is(err, store.ErrLost) || errors.Is(err, store.ErrFull) }

// sleep waits for d. It returns false if ctx has ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// storeContext is the context of one store call: it has a deadline of its own, and does not end
// with the caller's, so that no call is cut off half-way.
func (e *Engine) storeContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if e.can.Local {
		return context.Background(), noCancel
	}
	return context.WithTimeout(context.WithoutCancel(ctx), e.storeTimeout)
}

func noCancel() {}

// maxCleanups bounds the releases that follow failed Acquires. Each takes a goroutine or a timer, for no
// longer than three times the store's deadline; a broken link fails all requests at once.
const maxCleanups = 4096

// releaseFailed follows an Acquire that has failed: the store may have carried it out all the same,
// and the client's next try would meet a claim without a run. It is an attempt, not a promise:
// if it fails, the lease has to pass.
func (e *Engine) releaseFailed(key Key, owner store.Owner, err error) {
	if e.can.Local || errors.Is(err, store.ErrFull) {
		return
	}
	select {
	case e.cleanups <- struct{}{}:
	default:
		return
	}
	release := func() error {
		calling, cancel := e.storeContext(context.Background())
		defer cancel()
		return e.call(context.Background(), "release", func() error { return e.store.Release(calling, key.raw, owner) }) // which is told
	}
	go func() {
		if err := release(); !errors.Is(err, store.ErrLost) {
			<-e.cleanups
			return
		}
		// It may have overtaken the claim: a transaction that has not ended is not seen.
		time.AfterFunc(e.storeTimeout, func() { _ = release(); <-e.cleanups })
	}()
}
