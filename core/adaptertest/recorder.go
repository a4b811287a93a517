package adaptertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/memstore"
)

// recorder is a store that writes down what it is asked. It is not local: the engine calls it as a remote one, with deadlines
// and all.
type recorder struct {
	inner *memstore.Store
	ahead atomic.Int64 // how far its clock has been moved

	order sync.Mutex // so that entries stand in the order in which calls took effect

	mu      sync.Mutex
	changed *sync.Cond
	entries []string // claims and what ended their runs, in the order in which it took effect
	claims  []claimed
	calls   int // claims that were asked for, also in vain
	open    map[store.Owner]bool
}

// claimed is a claim that was granted.
type claimed struct {
	key, fingerprint string
}

func newRecorder() (*recorder, error) {
	l := &recorder{open: map[store.Owner]bool{}}
	l.changed = sync.NewCond(&l.mu)
	now := time.Date(2020, 2, 29, 23, 59, 59, 0, time.UTC)
	var err error
	l.inner, err = memstore.New(memstore.Config{Now: func() time.Time { return now.Add(time.Duration(l.ahead.Load())) }})
	return l, err
}

// Capabilities implements store.Store. The suite meets with the same answers as an engine that recalls does.
func (l *recorder) Capabilities() store.Capabilities {
	can := l.inner.Capabilities()
	return store.Capabilities{Watch: can.Watch, Recall: l.recall, RecallFor: l, Checkpoint: can.Checkpoint,
		Fail: l.fail, Outlive: l.outlive, InProcess: true}
}

func (l *recorder) enter(owner store.Owner, open bool, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = append(l.entries, fmt.Sprintf(format, args...))
	if open {
		l.open[owner] = true
	} else {
		delete(l.open, owner)
	}
	l.changed.Broadcast()
}

// until waits for condition, which is called with the lock held, and reports false if
// it does not come true.
func (l *recorder) until(condition func() bool) bool {
	late := false
	timer := time.AfterFunc(patience, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		late = true
		l.changed.Broadcast()
	})
	defer timer.Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	for !condition() && !late {
		l.changed.Wait()
	}
	return condition()
}

func (l *recorder) count(asked int) (calls int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls += asked
	return l.calls
}

func (l *recorder) Acquire(ctx context.Context, key string, claim store.Claim) (store.Grant, error) {
	l.count(1)
	l.order.Lock()
	defer l.order.Unlock()
	g, err := l.inner.Acquire(ctx, key, claim)
	if err == nil && g.State == store.Acquired {
		l.enter(claim.Owner, true, "claim    %s %d %s", key, g.Attempt, orDash(claim.Fingerprint))
		l.mu.Lock()
		l.claims = append(l.claims, claimed{key, claim.Fingerprint})
		l.mu.Unlock()
	}
	return g, err
}

// recall counts what is found as an Acquire.
func (l *recorder) recall(key []byte) (store.Grant, uint64, bool) {
	g, raw, ok := l.inner.Capabilities().Recall(key)
	if ok {
		l.count(1)
	}
	return g, raw, ok
}

func (l *recorder) Renew(ctx context.Context, key string, owner store.Owner, lease time.Duration) error {
	return l.inner.Renew(ctx, key, owner, lease)
}

func (l *recorder) Complete(ctx context.Context, key string, owner store.Owner, result []byte, retention time.Duration) error {
	operation := "complete"
	if len(result) > 0 && result[0] == 5 { // an older process cannot read it
		operation = "reduced"
	}
	return l.finish(operation, key, owner, func() error { return l.inner.Complete(ctx, key, owner, result, retention) })
}

func (l *recorder) outlive(ctx context.Context, key string, owner store.Owner, result []byte, retention, known time.Duration) error {
	return l.finish("outlive", key, owner, func() error {
		return l.inner.Capabilities().Outlive(ctx, key, owner, result, retention, known)
	})
}

func (l *recorder) Release(ctx context.Context, key string, owner store.Owner) error {
	return l.finish("release", key, owner, func() error { return l.inner.Release(ctx, key, owner) })
}

func (l *recorder) Abandon(ctx context.Context, key string, owner store.Owner) error {
	return l.finish("abandon", key, owner, func() error { return l.inner.Abandon(ctx, key, owner) })
}

func (l *recorder) fail(ctx context.Context, key string, owner store.Owner, goesOn bool) error {
	return l.finish(fmt.Sprint("fail, goes on: ", goesOn), key, owner,
		func() error { return l.inner.Capabilities().Fail(ctx, key, owner, goesOn) })
}

func (l *recorder) finish(operation, key string, owner store.Owner, do func() error) error {
	l.order.Lock()
	defer l.order.Unlock()
	err := do()
	if errors.Is(err, store.ErrLost) {
		l.enter(owner, false, "%-8s %s: the claim is lost", operation, key)
	} else {
		l.enter(owner, false, "%-8s %s", operation, key)
	}
	return err
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
