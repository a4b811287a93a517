package redisstore

import (
	"cmp"
	"context"
	"errors"
	"sync"
)

// channel is where the scripts publish the key of a watched run that has ended. All stores use
// the same one, for their keys differ.
const channel = "idem:wake"

var errUnsubscribed = errors.New("redisstore: the subscription has ended")

// watches holds the waiters of one store. They share one subscription, which is made for the
// first of them and stays until it breaks or the store is closed.
type watches struct {
	alive context.Context // ends when the store is closed
	end   context.CancelFunc

	wmu     sync.Mutex
	waiters map[string]map[*waiter]struct{}
	sub     *subscription // nil: none
}

// waiter is one call of watch. Whoever removes it from the map closes its channel.
type waiter struct{ changed chan struct{} }

// subscription is one subscription to the channel.
type subscription struct {
	confirmed chan struct{} // closed when the server has confirmed it
	ended     chan struct{} // closed at its end, after err was set
	err       error
}

// watch is store.Capabilities.Watch. The error is the context's, or that of the subscription.
// When the subscription breaks, all waiters of the store are woken.
func (s *Store) watch(ctx context.Context, key string) (<-chan struct{}, func(), error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	w := &waiter{changed: make(chan struct{})}
	sub, err := s.addWaiter(key, w)
	if err != nil {
		return nil, nil, err
	}
	stop := func() { s.removeWaiter(key, w) }
	// The run may end at any time from now on. Its end is published only if it was marked, and
	// received only after the subscription is confirmed: so the mark comes second.
	select {
	case <-sub.confirmed:
	case <-sub.ended:
		stop()
		return nil, nil, cmp.Or(ctx.Err(), sub.err)
	case <-ctx.Done():
		stop()
		return nil, nil, ctx.Err()
	}
	a, _, err := s.run(ctx, command{script: watchScript, key: key})
	if err != nil {
		stop()
		return nil, nil, err
	}
	if a.number == 0 {
		stop()
	}
	return w.changed, stop, nil
}

// addWaiter adds w to the waiters for key, and returns the subscription that will wake it.
func (s *Store) addWaiter(key string, w *waiter) (*subscription, error) {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	if s.sub == nil {
		sub := &subscription{confirmed: make(chan struct{}), ended: make(chan struct{})}
		if err := s.begin(); err != nil {
			return nil, err
		}
		s.sub = sub
		go s.receive(sub)
	}
	if s.waiters[key] == nil {
		s.waiters[key] = map[*waiter]struct{}{}
	}
	s.waiters[key][w] = struct{}{}
	return s.sub, nil
}

// removeWaiter removes w, if it is still there, and closes its channel.
func (s *Store) removeWaiter(key string, w *waiter) {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	if _, waits := s.waiters[key][w]; !waits {
		return
	}
	delete(s.waiters[key], w)
	if len(s.waiters[key]) == 0 {
		delete(s.waiters, key)
	}
	close(w.changed)
}

// wake wakes the waiters for key.
func (s *Store) wake(key string) {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	for w := range s.waiters[key] {
		close(w.changed)
	}
	delete(s.waiters, key)
}

// receive is the goroutine of a subscription.
func (s *Store) receive(sub *subscription) {
	defer s.wg.Done()
	err := s.client.Subscribe(s.alive, channel, func() { close(sub.confirmed) }, s.wake)
	switch {
	case s.alive.Err() != nil:
		err = errClosed
	case err == nil:
		err = errUnsubscribed
	}
	s.wmu.Lock()
	defer s.wmu.Unlock()
	s.sub, sub.err = nil, err
	close(sub.ended)
	for _, waiters := range s.waiters {
		for w := range waiters {
			close(w.changed)
		}
	}
	clear(s.waiters)
}
