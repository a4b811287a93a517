package redisstore

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/redis/rueidis"
)

// channel is where the scripts publish the key of a watched run that has ended. It is the
// same for all stores: keys say what belongs to whom.
const channel = "idem:wake"

var errUnsubscribed = errors.New("redisstore: the subscription has ended")

// watches are the waiters of one store. All of them share one subscription, which is made
// for the first and stays until it breaks or the store is closed.
type watches struct {
	alive context.Context // ends when the store is closed
	end   context.CancelFunc

	wmu     sync.Mutex
	waiters map[string]map[*waiter]struct{}
	sub     *subscription // nil: none
}

// waiter is one call of Watch. Its channel is closed by whoever takes it out of the map.
type waiter struct{ changed chan struct{} }

// subscription is one stay on the channel.
type subscription struct {
	confirmed chan struct{} // closed when the server has confirmed it
	ended     chan struct{} // closed at its end, after err was set
	err       error
}

// Watch implements store.Watcher. A waiter is woken by a message of the server, on one
// subscription for all waiters of the store. When that breaks, all of them are woken.
func (s *Store) Watch(ctx context.Context, key string) (<-chan struct{}, func(), error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	w := &waiter{changed: make(chan struct{})}
	sub, err := s.enrol(key, w)
	if err != nil {
		return nil, nil, err
	}
	stop := func() { s.strike(key, w) }
	// The run may end at any time from now on. What ends it tells us only if it finds the
	// mark, and we are told only once the subscription stands: in this order, nothing is lost.
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

// enrol adds w to the waiters for key, and returns the subscription that will wake it.
func (s *Store) enrol(key string, w *waiter) (*subscription, error) {
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

// strike takes w out, if it is still in, and closes its channel.
func (s *Store) strike(key string, w *waiter) {
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
	ctx, cancel := context.WithCancel(s.alive)
	defer cancel()
	confirm := sync.OnceFunc(func() { close(sub.confirmed) })
	hooked := rueidis.WithOnSubscriptionHook(ctx, func(e rueidis.PubSubSubscription) {
		if e.Kind == "subscribe" {
			confirm()
		}
	})
	// When a subscription breaks, the client would subscribe again by itself, and what was
	// published in between would be lost. With the context ended, it doesn't.
	hooked = rueidis.WithOnReceiveReturnHook(hooked, func(err error, _ rueidis.CommandClient) error {
		cancel()
		return err
	})
	// On a connection of its own: Redis bounds what may wait to be sent on one that is
	// subscribed, and ends it, with all answers that are on their way.
	conn, release := s.client.Dedicate()
	err := conn.Receive(hooked, conn.B().Subscribe().Channel(channel).Build(), func(m rueidis.PubSubMessage) {
		s.wake(m.Message)
	})
	release()
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
