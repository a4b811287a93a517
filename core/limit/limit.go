// Package limit limits how often something happens: at most n times in a window, for each key (a user, say).
// It counts in the process, and suits a service that runs as a single one. For limits that processes share, use
// redisstore.NewLimiter.
//
//	limiter := limit.New(20, time.Minute)
//	...
//	if err := core.Allow(r.Context(), limiter, user); err != nil {
//		httpidem.Refuse(w, r, err) // 429 rate_limited, with Retry-After
//		return
//	}
//
// Each key has a token bucket: n calls are allowed at once, and then one each window/n. That is n in a window in
// the long run, and up to 2n-1 in any one window. (It counts by GCRA, as redisstore.NewLimiter does, in
// nanoseconds.)
//
// # Memory
//
// A key takes some 100 bytes and its own length, from its first call until its bucket is full again: window/n
// later, if there was one call. Later calls forget such keys, at most two each, and add at most one. There is no
// goroutine, and nothing to close. A limiter that is not called frees nothing.
package limit

import (
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"strings"
	"sync"
	"time"
)

const (
	// shardCount is how many parts the keys are in. On two cores a single mutex is as fast; but a map that has
	// become too large is copied, and of a million keys that took 50 ms in one part.
	shardCount = 64

	// looksPerCall is how many buckets a call may check for being full. It is more than one, the most that a call
	// adds.
	looksPerCall = 2

	// keepKeys is how many keys a shard keeps room for in any case. A map never shrinks by itself.
	keepKeys = 64

	longest = 100 * 365 * 24 * time.Hour
)

// Limiter is an in-process limit. It implements core.Limiter. All methods are safe for concurrent use. The
// zero Limiter is not usable; make one with [New].
type Limiter struct {
	step, whole time.Duration        // until one comes back, and until all n do
	now         func() time.Duration // since the limiter was made
	seed        maphash.Seed
	shards      [shardCount]shard
}

// shard is a part of the keys.
type shard struct {
	mu      sync.Mutex
	buckets map[string]*bucket
	most    int // the most that buckets has held since it was made
	// The same buckets as a queue, in the order in which forget checks them.
	first, last *bucket
	_           [64 - 8 - 8 - 8 - 16]byte // a cache line of its own
}

// bucket is what is known of a key.
type bucket struct {
	key  string
	full time.Duration // when it is full again: the theoretical arrival time of GCRA
	look time.Duration // when forget checks it
	next *bucket
}

// New returns a limiter that allows n in window for each key: n at once, and then one each window/n. It panics
// if n or window is not more than zero, or if window is more than 100 years.
func New(n int, window time.Duration) *Limiter {
	if n < 1 || window <= 0 || window > longest {
		panic(fmt.Sprintf("limit: New(%d, %v): both must be more than zero, and the window at most 100 years", n, window))
	}
	step := 1 + (window-1)/time.Duration(n) // rounded up: never more than n in window
	began := time.Now()
	l := &Limiter{
		step:  step,
		whole: step * time.Duration(n),
		now:   func() time.Duration { return time.Since(began) },
		seed:  maphash.MakeSeed(),
	}
	for i := range l.shards {
		l.shards[i].buckets = map[string]*bucket{}
	}
	return l
}

// Allow implements core.Limiter. The error is that of the context.
func (l *Limiter) Allow(ctx context.Context, key string) (wait time.Duration, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s := &l.shards[maphash.String(l.seed, key)%shardCount]
	s.mu.Lock()
	defer s.mu.Unlock()
	now := l.now()
	l.forget(s, now)
	b := s.buckets[key]
	if b == nil {
		b = &bucket{key: strings.Clone(key), full: now} // the caller's memory may be used again
		s.buckets[b.key] = b
		s.most = max(s.most, len(s.buckets))
		l.await(s, b, now)
	}
	full := max(b.full, now) + l.step
	if wait := full - now - l.whole; wait > 0 {
		return wait, nil
	}
	b.full = full
	return 0, nil
}

// forget drops full buckets.
func (l *Limiter) forget(s *shard, now time.Duration) {
	for range looksPerCall {
		b := s.first
		if b == nil || now < b.look {
			return
		}
		if s.first = b.next; s.first == nil {
			s.last = nil
		}
		if now < b.full {
			l.await(s, b, now)
			continue
		}
		delete(s.buckets, b.key)
		if s.most > keepKeys && len(s.buckets) < s.most/4 {
			s.most = len(s.buckets)
			fewer := make(map[string]*bucket, s.most)
			maps.Copy(fewer, s.buckets)
			s.buckets = fewer
		}
	}
}

// await puts b at the end of the queue.
func (l *Limiter) await(s *shard, b *bucket, now time.Duration) {
	b.look, b.next = now+l.step, nil
	if s.last == nil {
		s.first = b
	} else {
		s.last.next = b
	}
	s.last = b
}

// Len returns how many keys the limiter holds. Some may be full again, and not forgotten yet.
func (l *Limiter) Len() (n int) {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		n += len(s.buckets)
		s.mu.Unlock()
	}
	return n
}
