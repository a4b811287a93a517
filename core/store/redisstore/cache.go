package redisstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/idem-go/idem/core/store"
)

// ClientSideCache lets replays be answered from the client's cache in this process, where the
// client has one (client-side caching, RESP3). A result is held there for at most ttl, and
// the server tells the client when the record is gone. See the package comment for what it
// buys, and when it is safe. Zero or less switches it off, which is the default.
func ClientSideCache(ttl time.Duration) Option {
	return func(s *Store) {
		s.finished = nil
		if ttl > 0 {
			s.finished = &finished{ttl: ttl, until: map[string]time.Time{}}
		}
	}
}

// finished knows the keys whose records this process has seen done. Only these are looked up
// in the cache: what is not in there costs a round trip, which a fresh key must not pay. A
// nil finished knows none.
type finished struct {
	ttl time.Duration
	off atomic.Bool // the client has no cache

	mu    sync.RWMutex
	until map[string]time.Time // when a record's retention ends, at the earliest
}

// finishedMax is how many keys are known at most. More than the client's cache holds would be
// of no use: 128 MiB for each connection by default.
const finishedMax = 64 << 10

// left returns how long the record under key still stands; zero if it isn't known to be
// finished.
func (f *finished) left(key string) time.Duration {
	if f == nil {
		return 0
	}
	f.mu.RLock()
	until, known := f.until[key]
	f.mu.RUnlock()
	if !known {
		return 0
	}
	left := time.Until(until)
	if left <= 0 {
		f.forget(key)
	}
	return max(0, left)
}

// note notes that the record under key was met with at the moment now and stood for
// remaining then.
func (f *finished) note(key string, now time.Time, remaining time.Duration) {
	if f == nil || f.off.Load() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.until[key]; !known && len(f.until) >= finishedMax {
		for any := range f.until {
			delete(f.until, any)
			break
		}
	}
	f.until[key] = now.Add(remaining)
}

func (f *finished) forget(key string) {
	f.mu.Lock()
	delete(f.until, key)
	f.mu.Unlock()
}

// recall looks key up in the client's cache, or for it, in the server. Anything but
// a finished record is left to the script.
func (s *Store) recall(ctx context.Context, key string) (store.Grant, bool) {
	f := s.finished
	if ctx.Err() != nil || s.closed.Load() {
		return store.Grant{}, false
	}
	if f.left(key) == 0 {
		return store.Grant{}, false
	}
	// In the caller's own goroutine, for most of the time the answer is in this process. If it
	// is not, and the connection has just ended, this may wait for a new one.
	message, err := s.client.DoCache(ctx, s.client.B().Get().Key(key).Cache(), f.ttl).ToMessage()
	if err != nil && !rueidis.IsRedisNil(err) {
		// A user who may not do what the cache takes, say.
		if _, refused := rueidis.IsRedisErr(err); refused || errors.Is(err, rueidis.ErrDoCacheAborted) {
			f.off.Store(true)
			f.forget(key)
		}
		return store.Grant{}, false
	}
	record, _ := message.ToString() // empty if there is none
	g, err := parseRecord(record, 0)
	if err != nil || g.State != store.Done {
		f.forget(key)
		return store.Grant{}, false
	}
	// Asked only now: the record that was known may have passed during the look, and the one
	// that was found be its successor. The script knows how long that one stands.
	if g.Remaining = f.left(key); g.Remaining == 0 {
		return store.Grant{}, false
	}
	if message.CachePTTL() < 0 {
		f.off.Store(true)
		f.forget(key)
	}
	return g, true
}
