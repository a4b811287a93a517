package sqlstore

import (
	"context"
	"sync"
)

// keyedMutex is a mutex for each key. The zero keyedMutex is unlocked.
type keyedMutex struct {
	mu    sync.Mutex
	locks map[string]*keyLock
}

type keyLock struct {
	held    chan struct{} // full while the lock is held
	callers int           // that hold the lock or wait for it
}

// lock locks key, or returns the error of a context that ends before.
func (m *keyedMutex) lock(ctx context.Context, key string) (unlock func(), err error) {
	m.mu.Lock()
	l := m.locks[key]
	if l == nil {
		if m.locks == nil {
			m.locks = map[string]*keyLock{}
		}
		l = &keyLock{held: make(chan struct{}, 1)}
		m.locks[key] = l
	}
	l.callers++
	m.mu.Unlock()

	done := func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if l.callers--; l.callers == 0 {
			delete(m.locks, key)
		}
	}
	select {
	case l.held <- struct{}{}:
		return func() { <-l.held; done() }, nil
	case <-ctx.Done():
		done()
		return nil, ctx.Err()
	}
}
