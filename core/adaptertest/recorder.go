package adaptertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/memstore"
)

// recorder is a store that writes down what it is asked, and that can be made to fail. It
// is not local: the engine calls it as a remote one, with deadlines and all.
type recorder struct {
	inner *memstore.Store

	order sync.Mutex // so that entries stand in the order in which calls took effect

	mu      sync.Mutex
	changed *sync.Cond
	now     time.Time
	entries []string // claims and what ended their runs, in the order in which it took effect
	claims  []claimed
	count   map[string]int // calls by operation, also those without effect
	open    map[store.Owner]bool
	failing map[string]bool // operations that fail
}

// claimed is a claim that was granted.
type claimed struct {
	key, fingerprint string
}

var errUnreachable = errors.New("adaptertest: the store is made to fail")

func newRecorder() (*recorder, error) {
	l := &recorder{
		now:     time.Date(2020, 2, 29, 23, 59, 59, 0, time.UTC),
		count:   map[string]int{},
		open:    map[store.Owner]bool{},
		failing: map[string]bool{},
	}
	l.changed = sync.NewCond(&l.mu)
	clock := func() time.Time {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.now
	}
	var err error
	l.inner, err = memstore.New(memstore.Config{Now: clock})
	return l, err
}

func (l *recorder) advance(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = l.now.Add(d)
}

// Capabilities implements store.Store. The suite meets with the same answers as an engine that recalls does.
func (l *recorder) Capabilities() store.Capabilities {
	return store.Capabilities{Watch: l.watch, Recall: l.recall, RecallFor: l, InProcess: true}
}

func (l *recorder) fail(operations ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.failing)
	for _, op := range operations {
		l.failing[op] = true
	}
}

// arrive counts a call, and reports whether it has to fail.
func (l *recorder) arrive(ctx context.Context, operation string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count[operation]++
	l.changed.Broadcast()
	if l.failing[operation] {
		return errUnreachable
	}
	return ctx.Err()
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

// calls returns how often the store was called for an operation.
func (l *recorder) calls(operation string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count[operation]
}

func (l *recorder) Acquire(ctx context.Context, key string, claim store.Claim) (store.Grant, error) {
	if strings.HasPrefix(key, "idem:N=") {
		if err := l.arrive(ctx, "nonce"); err != nil {
			return store.Grant{}, err
		}
		return l.inner.Acquire(ctx, key, claim)
	}
	if err := l.arrive(ctx, "acquire"); err != nil {
		return store.Grant{}, err
	}
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

// recall counts what is found as an Acquire, and fails with it: then Acquire tells.
func (l *recorder) recall(key []byte) (store.Grant, uint64, bool) {
	l.mu.Lock()
	failing := l.failing["acquire"]
	l.mu.Unlock()
	g, raw, ok := l.inner.Capabilities().Recall(key)
	if !ok || failing {
		return store.Grant{}, 0, false
	}
	return g, raw, l.arrive(context.Background(), "acquire") == nil
}

func (l *recorder) Renew(ctx context.Context, key string, owner store.Owner, lease time.Duration) error {
	if err := l.arrive(ctx, "renew"); err != nil {
		return err
	}
	return l.inner.Renew(ctx, key, owner, lease)
}

func (l *recorder) Complete(ctx context.Context, key string, owner store.Owner, result []byte, retention time.Duration) error {
	err := l.arrive(ctx, "complete")
	l.order.Lock()
	defer l.order.Unlock()
	if err == nil {
		err = l.inner.Complete(ctx, key, owner, result, retention)
	}
	operation := "complete"
	if len(result) > 0 && result[0] == 5 { // an older process cannot read it
		operation = "reduced"
	}
	l.finish(operation, key, owner, err)
	return err
}

func (l *recorder) Release(ctx context.Context, key string, owner store.Owner) error {
	err := l.arrive(ctx, "release")
	l.order.Lock()
	defer l.order.Unlock()
	if err == nil {
		err = l.inner.Release(ctx, key, owner)
	}
	l.finish("release", key, owner, err)
	return err
}

func (l *recorder) Abandon(ctx context.Context, key string, owner store.Owner) error {
	err := l.arrive(ctx, "abandon")
	l.order.Lock()
	defer l.order.Unlock()
	if err == nil {
		err = l.inner.Abandon(ctx, key, owner)
	}
	l.finish("abandon", key, owner, err)
	return err
}

func (l *recorder) finish(operation, key string, owner store.Owner, err error) {
	l.mu.Lock()
	held := l.open[owner]
	l.mu.Unlock()
	if !held {
		return // the engine cleans up after a failed Acquire, in its own time
	}
	switch {
	case err == nil:
		l.enter(owner, false, "%-8s %s", operation, key)
	case errors.Is(err, store.ErrLost):
		l.enter(owner, false, "%-8s %s: the claim is lost", operation, key)
	default:
		l.enter(owner, false, "%-8s %s: the store fails", operation, key)
	}
}

func (l *recorder) watch(ctx context.Context, key string) (<-chan struct{}, func(), error) {
	changed, stop, err := l.inner.Capabilities().Watch(ctx, key)
	// Counted when the watch stands: whoever has seen the count may rely on it.
	if failed := l.arrive(ctx, "watch"); failed != nil && err == nil {
		stop()
		return nil, nil, failed
	}
	return changed, stop, err
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
