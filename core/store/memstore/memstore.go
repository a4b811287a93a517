// Package memstore keeps records in the memory of the process. An engine without a
// Config.Store uses it. It suits tests and services that run as a single process. Its
// records are lost when the process ends.
//
//	engine, err := core.New(core.Config{}) // a memstore with the default bounds
//
// To set bounds:
//
//	store, err := memstore.New(memstore.Config{MaxEntries: 100_000, MaxBytes: 64 << 20})
//	if err != nil {
//		return err
//	}
//	engine, err := core.New(core.Config{Store: store})
//
// # Bounds
//
// The store holds at most Config.MaxEntries records (default 1,048,576) that take at most Config.MaxBytes bytes
// (default 512 MiB). A record counts as its key, its fingerprint, its result or its steps, its remark and 190 bytes of
// overhead. So MaxBytes is close to the memory that the store takes; only a run takes up to 1 KiB more, for its result.
// When a bound is reached, expired records are removed to make room, and so are results that their records have
// outlived. If there are none, Acquire returns [store.ErrFull]. So do Complete for a result, and Checkpoint for steps,
// that do not fit. A record that has not expired is never dropped.
//
// # Expiry
//
// A lease or a retention ends exactly when its time has passed by the store's clock. Later calls free the memory of
// expired records, a few at a time. So there is no goroutine, nothing to close, and no call that waits for a long
// sweep. A store that is not called frees nothing. The clock is monotonic: setting the machine's clock expires nothing.
//
// # Waiting and replays
//
// The store has every capability ([store.Capabilities]). A waiting duplicate is woken when the run ends, and a retry
// with the same bytes costs only a look-up. A type that embeds the store, to count calls for example, sees all of them
// in its Acquire: nothing is recalled without it.
package memstore

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/idem-go/idem/core/store"
)

// The default bounds of [Config].
const (
	defaultMaxEntries = 1 << 20
	defaultMaxBytes   = 512 << 20
)

const (
	// overhead is what a record counts against MaxBytes beside its key, fingerprint
	// and result: the measured size of the entry, of its places in the queue and the map, of what it tells, and of
	// what is left over in its block, rounded up.
	overhead = 190

	// reclaimPerCall is how many expired records an Acquire removes at most while the
	// store has room.
	reclaimPerCall = 8

	// shardCount is a power of two. A few dozen cores seldom contend for a mutex, and
	// an empty store takes only 8 KiB.
	shardCount = 128

	// keepQueue is the capacity up to which an emptied shard keeps its table and
	// queue. Neither ever shrinks by itself.
	keepQueue = 256
)

// Config sets the bounds and the clock of a [Store]. The zero Config has the defaults.
type Config struct {
	// MaxEntries is how many records the store holds at most, running and finished.
	// Zero means 1,048,576 (1<<20). Negative values are refused.
	MaxEntries int
	// MaxBytes is how many bytes the records take at most: keys, fingerprints, results,
	// remarks and 190 bytes for each record. Zero means 512 MiB. Negative values are refused.
	MaxBytes int64
	// Now is the store's clock. Nil means time.Now with its monotonic reading. Now must
	// be safe for concurrent use and must not call the store: it is called with a lock
	// held.
	Now func() time.Time
}

// Store is an in-process store. It implements [store.Store]. All methods are safe for concurrent use. It needs no
// closing. The zero Store is not usable; make one with [New].
type Store struct {
	// Records lie in shards, each a table and a queue under one mutex. The queue is a
	// binary heap ordered by deadline. There is no goroutine: each Acquire first removes
	// up to reclaimPerCall expired records from its shard. That is more than the one
	// that it may add, so expired records can't accumulate, and no call removes a
	// million of them at once. Whether a record has expired is always decided by its own
	// deadline, never by whether it has been removed.
	//
	// The bounds hold for the store as a whole (two atomic counters), not per shard:
	// a store for n records takes n records, however their keys hash.

	maxEntries int64
	maxBytes   int64
	now        func() time.Time // nil: time.Since(base)
	base       time.Time        // the store's time is counted from here
	seed       maphash.Seed

	_       [64]byte // the counters change all the time, the fields above never
	entries atomic.Int64
	bytes   atomic.Int64
	cursor  atomic.Uint32 // the shard in which makeRoom last found something
	_       [64]byte

	shards [shardCount]shard
}

// shard is a part of the records under one mutex, in a cache line of its own.
type shard struct {
	mu      sync.Mutex
	records table
	queue   queue
	memory  *memory                  // nil: there has been no record
	watched map[uint32]chan struct{} // by the numbers of entries: closed to wake the watchers of a run; few are watched
}

// entry is one record. Its texts are elsewhere: it has no pointers, for the collector would follow them.
type entry struct {
	owner       store.Owner
	id          store.ID
	raw         uint64
	attempt     uint64
	begun       time.Duration // in the store's time
	lease       time.Duration // the end of the lease, in the store's time, until it is done; then for how long it outlives its result
	result      int           // the lengths of the texts
	key         uint32
	fingerprint uint8
	policy      uint8
	creator     uint8
	remark      uint8
	number      uint32
	hash        uint32
	block       uint32 // where the texts are
	place       int32  // index in the shard's queue, which holds the deadline
	class       uint8  // of the block
	done        bool
	free        bool // without an owner: any claim gets it; with one: it was so before the claim
	uncertain   bool // it is free, and an earlier run may have taken effect
	kept        bool // it is free, and has kept its operation
	expired     bool // it is done, and has lost its result; until then, its deadline is that of the result
}

// acquired is the grant of the record's claim.
func (sh *shard) acquired(e *entry) store.Grant {
	g := store.Grant{State: store.Acquired, Attempt: e.attempt, Free: e.free && !e.uncertain, ID: e.id}
	secret, steps, _ := strings.Cut(sh.texts(e).result, "\x00")
	if g.Secret = strings.Clone(secret); steps != "" {
		g.Steps = []byte(steps)
	}
	return g
}

func (e *entry) size() int64 {
	return overhead + int64(e.key) + int64(e.fingerprint) + int64(e.result) + int64(e.remark)
}

var errLease = errors.New("memstore: renew: a lease must be longer than zero")

// New returns an empty store. It returns an error, which names every fault, if
// o.MaxEntries or o.MaxBytes is negative, or MaxEntries is over 2,147,483,647.
func New(o Config) (*Store, error) {
	var faults []error
	if o.MaxEntries < 0 {
		faults = append(faults, fmt.Errorf("memstore: Config.MaxEntries is %d, must not be negative", o.MaxEntries))
	}
	if o.MaxEntries > math.MaxInt32 {
		faults = append(faults, fmt.Errorf("memstore: Config.MaxEntries is %d, must not be over %d", o.MaxEntries, math.MaxInt32))
	}
	if o.MaxBytes < 0 {
		faults = append(faults, fmt.Errorf("memstore: Config.MaxBytes is %d, must not be negative", o.MaxBytes))
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	if o.MaxEntries == 0 {
		o.MaxEntries = defaultMaxEntries
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = defaultMaxBytes
	}
	s := &Store{
		maxEntries: int64(o.MaxEntries),
		maxBytes:   o.MaxBytes,
		now:        o.Now,
		seed:       maphash.MakeSeed(),
	}
	if s.now == nil {
		s.base = time.Now()
	} else {
		s.base = s.now()
	}
	return s, nil
}

// Capabilities implements [store.Store]. The store has all of them.
func (s *Store) Capabilities() store.Capabilities {
	return store.Capabilities{
		Inspect:     inspector{s},
		ListsOldest: true,
		Watch:       s.watch,
		Checkpoint:  s.checkpoint,
		Fail:        s.fail,
		Outlive:     s.outlive,
		Recall:      s.recall,
		RecallFor:   s,
		Capacity:    int(max(1, min(s.maxEntries, s.maxBytes/512))),
		InProcess:   true,
		Local:       true,
	}
}

// Len returns how many records the store holds, including expired ones that no call has
// removed yet.
func (s *Store) Len() int { return int(s.entries.Load()) }

// Bytes returns how many bytes the records count against Config.MaxBytes.
func (s *Store) Bytes() int64 { return s.bytes.Load() }

// Acquire implements [store.Store]. The error is the context's, that of Claim.Validate,
// or [store.ErrFull].
func (s *Store) Acquire(ctx context.Context, key string, claim store.Claim) (store.Grant, error) {
	if err := ctx.Err(); err != nil {
		return store.Grant{}, err
	}
	if err := claim.Validate(); err != nil {
		return store.Grant{}, err
	}
	sh, hash := s.locate(key)
	for {
		grant, result, woken, ok := s.acquire(sh, hash, key, &claim)
		if woken != nil {
			close(woken)
		}
		if ok {
			if result != "" {
				grant.Result = []byte(result)
			}
			return grant, nil
		}
		if !s.makeRoom(1, overhead+int64(len(key)+len(claim.Fingerprint)+len(claim.Secret)+len(claim.Remark))) {
			return store.Grant{}, store.ErrFull
		}
	}
}

// acquire is the atomic part of Acquire. It reports false, with nothing changed,
// if there is no room for a new record. The caller closes woken.
func (s *Store) acquire(sh *shard, hash uint32, key string,
	claim *store.Claim) (grant store.Grant, result string, woken chan struct{}, ok bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := s.elapsed()
	s.reclaim(sh, now)

	e := sh.find(hash, key)
	if e != nil && sh.expired(e, now) {
		s.remove(sh, e) // expired, but not reclaimed yet
		e = nil
	}
	switch {
	case e == nil:
		if !s.create(sh, hash, key, claim, now) {
			return store.Grant{}, "", nil, false
		}
		return store.Grant{State: store.Acquired, Attempt: 1, ID: claim.ID, Secret: claim.Secret}, "", nil, true

	case e.done:
		grant, result = sh.finished(e, now, claim.Fingerprint)
		return grant, result, nil, true

	case now < e.lease:
		grant.State = store.Running
		grant.Remaining = e.lease - now

	case e.free && e.owner.IsZero():
		if !s.reserve(0, int64(len(claim.Fingerprint)-int(e.fingerprint))) {
			return store.Grant{}, "", nil, false
		}
		if claim.Fingerprint != sh.texts(e).fingerprint {
			e.id, e.kept = store.ID{}, false
		}
		woken = s.claim(sh, e, claim, now)
		return sh.acquired(e), "", woken, true

	case claim.Takeover && claim.Fingerprint == sh.texts(e).fingerprint && (claim.Attempt == 0 || claim.Attempt == e.attempt):
		e.free, e.uncertain, e.kept = false, false, false
		woken = s.claim(sh, e, claim, now)
		return sh.acquired(e), "", woken, true

	default:
		grant.State = store.Abandoned
		grant.Remaining = sh.queue[e.place].at - now
	}
	grant.Attempt, grant.ID = e.attempt, e.id
	sh.tell(e, &grant, claim.Fingerprint, "")
	return grant, "", nil, true
}

// tell puts copies of e's fingerprint, remark and result into g; own is a fingerprint that the caller has. It makes one allocation at
// most, and none for a large record, whose texts nobody changes: then it returns result, to be copied when the lock has been released.
func (sh *shard) tell(e *entry, g *store.Grant, own, result string) string {
	t := sh.texts(e)
	if e.class == inLarge {
		g.Fingerprint, g.Remark = t.fingerprint, t.remark
		return result
	}
	if t.fingerprint == own {
		g.Fingerprint, t.fingerprint = own, ""
	}
	n := len(result)
	if n+len(t.fingerprint)+len(t.remark) == 0 {
		return ""
	}
	b := append(append(append(make([]byte, 0, n+len(t.fingerprint)+len(t.remark)), result...), t.fingerprint...), t.remark...)
	texts := unsafe.String(unsafe.SliceData(b), len(b))[n:]
	if g.Remark = texts[len(t.fingerprint):]; t.fingerprint != "" {
		g.Fingerprint = texts[:len(t.fingerprint)]
	}
	if n > 0 {
		g.Result = b[:n:n]
	}
	return ""
}

// claim makes an existing record the claim's. The caller closes woken.
//
// The run gets what those before it have left, unless the operation begins. A takeover needs no room: if there is none for the secret's
// name, the next claim names it, and without room for the remark, the old one stays.
func (s *Store) claim(sh *shard, e *entry, claim *store.Claim, now time.Duration) (woken chan struct{}) {
	e.owner, e.raw = claim.Owner, claim.Raw
	e.attempt++
	t := sh.texts(e)
	if e.id == (store.ID{}) {
		s.put(&t, "")
		e.begun, e.id = now, claim.ID
	}
	if t.result == "" || t.result[0] == 0 {
		s.put(&t, claim.Secret+t.result)
	}
	if s.reserve(0, int64(len(claim.Remark)-len(t.remark))) {
		t.remark = claim.Remark
	}
	t.fingerprint, t.policy, t.creator = claim.Fingerprint, claim.Policy, claim.Creator
	sh.write(e, &t)
	e.lease = later(now, claim.Lease)
	sh.move(e, later(e.lease, claim.Retention))
	return sh.unwatch(e)
}

// put makes result that of t. It reports false, with nothing changed, if there is no room.
func (s *Store) put(t *texts, result string) bool {
	if !s.reserve(0, int64(len(result)-len(t.result))) {
		return false
	}
	t.result = result
	return true
}

// recall is [store.Capabilities].Recall.
func (s *Store) recall(key []byte) (grant store.Grant, raw uint64, ok bool) {
	grant, result, raw := s.find(unsafe.String(unsafe.SliceData(key), len(key))) // which nothing keeps
	if grant.State != store.Done {
		return store.Grant{}, 0, false
	}
	if result != "" {
		grant.Result = []byte(result)
	}
	return grant, raw, true
}

// find is the atomic part of recall. The State is zero if there is no finished record.
func (s *Store) find(key string) (grant store.Grant, result string, raw uint64) {
	sh, hash := s.locate(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.find(hash, key)
	if e == nil || !e.done {
		return store.Grant{}, "", 0 // at the cost of a look: the first request of each operation pays it
	}
	now := s.elapsed()
	if sh.expired(e, now) {
		return store.Grant{}, "", 0
	}
	s.reclaim(sh, now)
	grant, result = sh.finished(e, now, "")
	return grant, result, e.raw
}

// create adds a running record under a key that has none. It reports false, with nothing
// changed, if there is no room.
func (s *Store) create(sh *shard, hash uint32, key string, claim *store.Claim, now time.Duration) bool {
	t := texts{key, claim.Fingerprint, claim.Policy, claim.Creator, claim.Remark, claim.Secret}
	if !s.reserve(1, overhead+int64(len(key)+len(claim.Fingerprint)+len(claim.Secret)+len(claim.Remark))) {
		return false
	}
	if sh.memory == nil {
		sh.memory = new(memory)
	}
	number := sh.memory.entries.take(1)
	e := sh.entry(number)
	*e = entry{owner: claim.Owner, id: claim.ID, raw: claim.Raw, attempt: 1, begun: now, lease: later(now, claim.Lease),
		number: number, hash: hash, class: none}
	sh.write(e, &t)
	sh.index(e)
	sh.enqueue(e, later(e.lease, claim.Retention))
	return true
}

// Renew implements [store.Store]. The error is the context's, [store.ErrLost], or one for
// a lease that is not more than zero.
func (s *Store) Renew(ctx context.Context, key string, owner store.Owner, lease time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if lease <= 0 {
		return errLease
	}
	sh, hash := s.locate(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := s.elapsed()
	e := sh.held(hash, key, owner, now)
	if e == nil {
		return store.ErrLost
	}
	retention := sh.queue[e.place].at - e.lease
	e.lease = later(now, lease)
	sh.move(e, later(e.lease, retention))
	return nil
}

// Complete implements [store.Store]. The error is the context's, [store.ErrLost], or
// [store.ErrFull] if result does not fit; the record then stays running.
func (s *Store) Complete(ctx context.Context, key string, owner store.Owner, result []byte, retention time.Duration) error {
	if retention <= 0 {
		return s.drop(ctx, key, owner, forget)
	}
	return s.outlive(ctx, key, owner, result, retention, 0)
}

// outlive is [store.Capabilities].Outlive. The error is that of Complete.
func (s *Store) outlive(ctx context.Context, key string, owner store.Owner, result []byte, retention, known time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	stored := unsafe.String(unsafe.SliceData(result), len(result))
	if len(stored) >= largeResult {
		stored = strings.Clone(stored) // before the lock is taken
	}
	sh, hash := s.locate(key)
	return s.fit(len(stored), func() (held, ok bool) {
		woken, held, ok := s.complete(sh, hash, key, owner, stored, retention, known)
		if woken != nil {
			close(woken)
		}
		return held, ok
	})
}

// fit calls try, which changes a record that is held, until there is room for so many bytes.
func (s *Store) fit(bytes int, try func() (held, ok bool)) error {
	for {
		switch held, ok := try(); {
		case !held:
			return store.ErrLost
		case ok:
			return nil
		case !s.makeRoom(0, int64(bytes)):
			return store.ErrFull
		}
	}
}

// checkpoint is [store.Capabilities].Checkpoint. The error is the context's, [store.ErrLost] or [store.ErrFull].
func (s *Store) checkpoint(ctx context.Context, key string, owner store.Owner, steps []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	behind := "\x00" + string(steps)
	sh, hash := s.locate(key)
	return s.fit(len(behind), func() (held, ok bool) {
		sh.mu.Lock()
		defer sh.mu.Unlock()
		e := sh.held(hash, key, owner, s.elapsed())
		if e == nil {
			return false, false
		}
		t := sh.texts(e)
		secret, old, _ := strings.Cut(t.result, "\x00")
		if old[:min(8, len(old))] >= behind[1:min(9, len(behind))] {
			return true, true // a newer one has come before it
		}
		if !s.put(&t, secret+behind) {
			return true, false
		}
		sh.write(e, &t)
		return true, true
	})
}

// complete is the atomic part of Complete. It changes nothing unless the record is
// held by owner and there is room for the result. The caller closes woken.
func (s *Store) complete(sh *shard, hash uint32, key string, owner store.Owner, result string, retention,
	known time.Duration) (woken chan struct{}, held, ok bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := s.elapsed()
	e := sh.held(hash, key, owner, now)
	if e == nil {
		return nil, false, false
	}
	t := sh.texts(e)
	if !s.put(&t, result) {
		return nil, true, false
	}
	sh.finish(e, &t)
	e.lease = known
	sh.move(e, later(now, retention))
	woken = sh.unwatch(e)
	return woken, true, true
}

// Release implements [store.Store]. The error is the context's or [store.ErrLost].
func (s *Store) Release(ctx context.Context, key string, owner store.Owner) error {
	return s.drop(ctx, key, owner, undo)
}

// Abandon implements [store.Store]. The error is the context's or [store.ErrLost].
func (s *Store) Abandon(ctx context.Context, key string, owner store.Owner) error {
	return s.drop(ctx, key, owner, abandon)
}

// fail is [store.Capabilities].Fail. The error is the context's or [store.ErrLost].
func (s *Store) fail(ctx context.Context, key string, owner store.Owner, goesOn bool) error {
	if goesOn {
		return s.drop(ctx, key, owner, keep)
	}
	return s.drop(ctx, key, owner, forget)
}

// ending is what becomes of the record of a run that leaves no result.
type ending uint8

const (
	forget  ending = iota // a first attempt is removed, a later one becomes free
	undo                  // … what it was before the claim
	abandon               // it becomes an abandoned one
	keep                  // it becomes free, and keeps its operation
)

// drop ends a run without a result.
func (s *Store) drop(ctx context.Context, key string, owner store.Owner, how ending) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	woken, held := s.release(key, owner, how)
	if woken != nil {
		close(woken)
	}
	if !held {
		return store.ErrLost
	}
	return nil
}

// release is the atomic part of drop. The caller closes woken.
func (s *Store) release(key string, owner store.Owner, how ending) (woken chan struct{}, held bool) {
	sh, hash := s.locate(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := s.elapsed()
	e := sh.held(hash, key, owner, now)
	if e == nil {
		return nil, false
	}
	woken = sh.unwatch(e)
	retention := sh.queue[e.place].at - e.lease
	if e.attempt == 1 && how < abandon || retention == 0 {
		s.remove(sh, e)
		return woken, true
	}
	// The record stays, without an owner, so that attempt numbers go on.
	switch e.owner = (store.Owner{}); how {
	case forget, abandon:
		e.free, e.uncertain, e.kept = how == forget, false, false
	case keep:
		e.uncertain = e.uncertain || e.attempt > 1 && !e.free
		e.free, e.kept = true, true
	}
	t := sh.texts(e)
	if e.free && !e.uncertain && !e.kept { // the operation has ended
		e.id = store.ID{}
		s.put(&t, "")
	}
	sh.write(e, &t) // without room for a result
	e.lease = now
	sh.move(e, later(now, retention))
	return woken, true
}

// closed is what watch returns when nothing runs.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// watch is [store.Capabilities].Watch. The error is the context's. All watchers of a run
// share one channel, which belongs to the record; stop has nothing to do.
func (s *Store) watch(ctx context.Context, key string) (<-chan struct{}, func(), error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	sh, hash := s.locate(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.standing(hash, key, s.elapsed())
	if e == nil || e.done {
		return closed, stop, nil
	}
	changed := sh.watched[e.number]
	if changed == nil {
		if sh.watched == nil {
			sh.watched = map[uint32]chan struct{}{}
		}
		changed = make(chan struct{})
		sh.watched[e.number] = changed
	}
	return changed, stop, nil
}

func stop() {}

// unwatch ends the watch of e. It returns the channel of its watchers, which the caller closes, or nil.
func (sh *shard) unwatch(e *entry) chan struct{} {
	changed := sh.watched[e.number]
	if changed != nil {
		delete(sh.watched, e.number)
	}
	return changed
}

// finished is the grant for a finished record. A large result is returned beside it, see tell.
func (sh *shard) finished(e *entry, now time.Duration, own string) (g store.Grant, result string) {
	g = store.Grant{State: store.Done, Attempt: e.attempt, ID: e.id, Remaining: sh.queue[e.place].at - now}
	if g.Remaining > 0 && !e.expired {
		result = sh.texts(e).result
	} else {
		g.Remaining, g.Expired = sh.end(e)-now, true
	}
	return g, sh.tell(e, &g, own, result)
}

// end is when e is forgotten.
func (sh *shard) end(e *entry) time.Duration {
	at := sh.queue[e.place].at
	if e.done && !e.expired {
		at = later(at, e.lease)
	}
	return at
}

// standing returns the record under key, unless it has expired.
func (sh *shard) standing(hash uint32, key string, now time.Duration) *entry {
	e := sh.find(hash, key)
	if e == nil || sh.expired(e, now) {
		return nil
	}
	return e
}

// expired reports whether e is forgotten.
func (sh *shard) expired(e *entry, now time.Duration) bool { return sh.end(e) <= now }

// held returns the running record under key, if its lease has not passed and it is owner's. The zero
// Owner holds nothing: it marks a record that was abandoned, or released and kept.
func (sh *shard) held(hash uint32, key string, owner store.Owner, now time.Duration) *entry {
	e := sh.standing(hash, key, now)
	if e == nil || e.done || owner.IsZero() || e.owner != owner {
		return nil
	}
	return e
}

// reclaim removes at most reclaimPerCall expired records of sh, or results that their records outlive, and returns how many. The
// shard is locked.
func (s *Store) reclaim(sh *shard, now time.Duration) int {
	for n := range reclaimPerCall {
		if len(sh.queue) == 0 || sh.queue[0].at > now {
			return n
		}
		if e := sh.entry(sh.queue[0].number); sh.expired(e, now) {
			s.remove(sh, e)
		} else {
			at, t := sh.end(e), sh.texts(e)
			s.put(&t, "")
			sh.write(e, &t)
			e.expired = true
			sh.move(e, at)
		}
	}
	return reclaimPerCall
}

// makeRoom removes expired records, in any shard, until the given number of entries and
// bytes fits. It removes no more than that takes, give or take reclaimPerCall, and holds
// one lock at a time, for reclaimPerCall records. It reports whether there is room.
func (s *Store) makeRoom(entries, bytes int64) bool {
	if bytes > s.maxBytes {
		return false
	}
	first := s.cursor.Load()
	for i := range uint32(shardCount) {
		sh := &s.shards[(first+i)%shardCount]
		for {
			n := s.reclaimLocked(sh)
			if s.entries.Load()+entries <= s.maxEntries && s.bytes.Load()+bytes <= s.maxBytes {
				s.cursor.Store(first + i)
				return true
			}
			if n < reclaimPerCall {
				break
			}
		}
	}
	return false
}

func (s *Store) reclaimLocked(sh *shard) int {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return s.reclaim(sh, s.elapsed())
}

// remove takes e out of the locked shard and gives its room back.
func (s *Store) remove(sh *shard, e *entry) {
	if changed := sh.unwatch(e); changed != nil { // the run is forgotten: waiters look again
		close(changed)
	}
	s.bytes.Add(-e.size())
	s.entries.Add(-1)
	sh.unindex(e)
	sh.dequeue(e)
	sh.erase(e.number, e.class, e.block)
	sh.memory.entries.give(e.number, 1)
	if len(sh.queue) == 0 && cap(sh.queue) > keepQueue {
		sh.records, sh.queue, sh.memory = table{}, nil, nil
	}
}

// reserve adds entries and bytes to the counters. It reports false and changes nothing
// if that would exceed a bound.
func (s *Store) reserve(entries, bytes int64) bool {
	if !add(&s.bytes, bytes, s.maxBytes) {
		return false
	}
	if !add(&s.entries, entries, s.maxEntries) {
		s.bytes.Add(-bytes)
		return false
	}
	return true
}

// add adds n to c unless the sum would exceed limit. c never exceeds limit even for a
// moment, so that a claim that is too large does not make a smaller one fail.
func add(c *atomic.Int64, n, limit int64) bool {
	if n == 0 {
		return true
	}
	for {
		have := c.Load()
		if n > limit-have {
			return false
		}
		if c.CompareAndSwap(have, have+n) {
			return true
		}
	}
}

// locate returns the shard of key, and the part of the key's hash for the shard's table.
func (s *Store) locate(key string) (sh *shard, hash uint32) {
	sum := maphash.String(s.seed, key)
	return &s.shards[sum%shardCount], uint32(sum >> 32)
}

// elapsed is the store's time: how long ago the store was made. It is read under
// a shard's lock, so that it never goes back between two calls on one key.
func (s *Store) elapsed() time.Duration {
	if s.now == nil {
		return time.Since(s.base)
	}
	return s.now().Sub(s.base)
}

// later adds d, which is not negative, to a moment of the store's time. A sum that
// overflows (292 years) is the latest moment.
func later(at, d time.Duration) time.Duration {
	if at > 0 && d > math.MaxInt64-at {
		return math.MaxInt64
	}
	return at + d
}
