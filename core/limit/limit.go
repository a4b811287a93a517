// Package limit counts in the process how often something happens: at most n in a window, for each
// key (a user, say). It suits a service that runs as a single process. Limits that several processes
// share are those of redisstore.NewLimiter.
//
//	limiter := limit.New(20, time.Minute)
//	...
//	if err := core.Allow(r.Context(), limiter, user); err != nil {
//		httpidem.Refuse(w, r, err) // 429 rate_limited, with Retry-After
//		return
//	}
//
// Each key has a token bucket (golang.org/x/time/rate): n at once, and then one each window/n. So in
// a window that begins anywhere up to 2n-1 may happen, and n in the long run.
//
// # Memory
//
// A key takes some 200 bytes and its own length, from the first time that it is asked for until its bucket is
// full again: window/n later, if it was asked for once. Then it is forgotten: each call forgets
// at most two of the keys whose time has come, which is more than the one that it may add. There is no
// goroutine, and nothing to close. A limiter that nobody calls keeps what it has.
package limit

import (
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"math"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// shardCount is how many parts the keys are in. On two cores a single mutex is as fast; but a map that has
	// become too large is copied, and of a million keys that took 50 ms in one part.
	shardCount = 64

	// looksPerCall is at how many keys a call looks, whether they can be forgotten. It makes one look more
	// necessary at most: by taking one out of a bucket.
	looksPerCall = 2

	// keepKeys is for how many keys a shard keeps memory that it does not need. A map never shrinks by itself.
	keepKeys = 64

	longest = 100 * 365 * 24 * time.Hour
)

// Limiter is a limit in the process. It implements core.Limiter. All methods are safe for concurrent use. The
// zero Limiter is not usable; make one with [New].
type Limiter struct {
	rate  rate.Limit
	burst int
	step  time.Duration // in what time one comes back
	now   func() time.Time
	seed  maphash.Seed

	shards [shardCount]shard
}

// shard is a part of the keys.
type shard struct {
	mu      sync.Mutex
	buckets map[string]*bucket
	most    int // buckets has held so many since it was made
	// The same buckets, in the order in which they will be looked at: each is looked at a step after it has come
	// to the end of this list.
	first, last *bucket
	_           [64 - 8 - 8 - 8 - 16]byte // a cache line of its own
}

// bucket is what is known of a key.
type bucket struct {
	*rate.Limiter
	key  string
	look time.Time // whether it is full again
	next *bucket
}

// New returns a limiter that allows n in window for each key: n at once, and then one each window/n. It panics
// if n or window is not more than zero, or if window is more than 100 years.
func New(n int, window time.Duration) *Limiter {
	if n < 1 || window <= 0 || window > longest {
		panic(fmt.Sprintf("limit: New(%d, %v): both must be more than zero, and the window at most 100 years", n, window))
	}
	l := &Limiter{
		rate:  rate.Limit(float64(n) / window.Seconds()),
		burst: n,
		step:  window / time.Duration(n),
		now:   time.Now,
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
		b = &bucket{Limiter: rate.NewLimiter(l.rate, l.burst), key: strings.Clone(key)} // the caller's memory may be used again
		s.buckets[b.key] = b
		s.most = max(s.most, len(s.buckets))
		l.await(s, b, now)
	}
	if b.AllowN(now, 1) {
		return 0, nil
	}
	// AllowN has changed nothing.
	missing := 1 - b.TokensAt(now)
	return time.Duration(math.Ceil(missing / float64(l.rate) * float64(time.Second))), nil
}

// forget takes full buckets off the shard.
func (l *Limiter) forget(s *shard, now time.Time) {
	for range looksPerCall {
		b := s.first
		if b == nil || now.Before(b.look) {
			return
		}
		if s.first = b.next; s.first == nil {
			s.last = nil
		}
		if b.TokensAt(now) < float64(l.burst) {
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

// await puts b at the end of those that will be looked at.
func (l *Limiter) await(s *shard, b *bucket, now time.Time) {
	b.look, b.next = now.Add(l.step), nil
	if s.last == nil {
		s.first = b
	} else {
		s.last.next = b
	}
	s.last = b
}

// Len returns how many keys the limiter holds, including those whose bucket is full again and that no call has
// forgotten yet.
func (l *Limiter) Len() (n int) {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		n += len(s.buckets)
		s.mu.Unlock()
	}
	return n
}
