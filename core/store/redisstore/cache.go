package redisstore

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/core/store"
)

// finished holds the keys whose records this process has seen done. Only these are looked up by GET, which costs the server less than
// a claim, or in the client's cache: a miss costs a round trip, which a new key must not pay.
type finished struct {
	ttl time.Duration // in the cache
	off atomic.Bool   // the client has no cache, the user may not run GET, or it may not come from the master

	mu      sync.RWMutex
	records map[string]known
}

// known is what this process knows of a record that is done.
type known struct {
	until time.Time // when its retention ends, at the earliest
	head  uint64    // see hashOf
}

var seed = maphash.MakeSeed()

// hashOf returns a hash of what stands in a record before its result. If another record has the same, it was made later and is kept for as
// long from then, unless it outlives its result and has no id.
func hashOf(text string, r *record) uint64 {
	return maphash.String(seed, text[:len(text)-len(r.result)])
}

// finishedMax is how many keys are held at most. More keys than the client's cache has records
// (128 MiB for each connection by default) would be of no use.
const finishedMax = 64 << 10

// left returns how long the result of the record under key is kept, and the hash of the record's head; zero if the key is not in f.
func (f *finished) left(key string) (time.Duration, uint64) {
	f.mu.RLock()
	r, ok := f.records[key]
	f.mu.RUnlock()
	if !ok {
		return 0, 0
	}
	left := time.Until(r.until)
	if left <= 0 {
		f.forget(key)
	}
	return max(0, left), r.head
}

// add adds key, whose record was still kept for remaining at the moment now.
func (f *finished) add(key string, now time.Time, remaining time.Duration, head uint64) {
	if f.off.Load() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.records[key]; !ok && len(f.records) >= finishedMax {
		for any := range f.records {
			delete(f.records, any)
			break
		}
	}
	f.records[key] = known{now.Add(remaining), head}
}

func (f *finished) forget(key string) {
	f.mu.Lock()
	delete(f.records, key)
	f.mu.Unlock()
}

// replay looks up a finished record. It reports false if there is none; then the claim decides.
func (s *Store) replay(ctx context.Context, key string) (store.Grant, bool) {
	f := &s.finished
	if ctx.Err() != nil || s.closed.Load() || f.off.Load() {
		return store.Grant{}, false
	}
	if left, _ := f.left(key); left == 0 {
		return store.Grant{}, false
	}
	record, err, off := s.get(ctx, key)
	if off {
		f.off.Store(true)
		defer f.forget(key)
	}
	if err != nil {
		return store.Grant{}, false
	}
	r, err := parseRecord(record, -1)                                        // empty if there is none
	if err != nil || r.state != store.Done || r.outlives && r.result == "" { // which may have lost it
		f.forget(key)
		return store.Grant{}, false
	}
	// Checked after the look-up: the known record may have expired meanwhile, and the one that was
	// found be its successor. Only the server knows how long that one is kept.
	var head uint64
	if r.remaining, head = f.left(key); r.remaining == 0 {
		return store.Grant{}, false
	}
	if head != hashOf(record, &r) { // an operator has forgotten the known one, say
		f.forget(key)
		return store.Grant{}, false
	}
	return r.grant(), true
}

// get returns the string under key, empty if there is none, from the client's cache if it has one. off reports that there is no use in
// calling it again.
func (s *Store) get(ctx context.Context, key string) (record string, err error, off bool) {
	if s.cache == nil {
		a, _, err := s.run(ctx, command{key: key})
		return a.record, err, err != nil && isForbidden(errors.Unwrap(err))
	}
	// In the caller's own goroutine, for the answer is mostly in this process. If it is not, and
	// the connection has just ended, this may wait for a new one.
	reply, cached := s.cache.GetCached(ctx, key, s.finished.ttl)
	if reply.Err == ErrNil {
		reply.Err = nil
	}
	return reply.Text, reply.Err, !cached
}
