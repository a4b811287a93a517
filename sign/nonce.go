package sign

import (
	"container/heap"
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"time"
)

// NonceStore remembers which nonces have been used. core.Engine.Nonces returns one that uses the engine's store. [MemoryNonces]
// is one for a single process. It must be safe for concurrent use.
type NonceStore interface {
	// Use marks nonce as used by the key for at least ttl, which is positive, and reports whether it was unused. This is
	// one atomic step: of all calls with the same key id and nonce within ttl, from all processes that share the store, at
	// most one gets true. The same nonce of another key is another one. An error means that it is unknown whether the nonce was
	// unused. The strings share memory with the message: copy them to keep them.
	//
	// ctx has a deadline ([Config].StoreTimeout) unless the store is a [BoundedNonceStore].
	Use(ctx context.Context, keyID, nonce string, ttl time.Duration) (unused bool, err error)
}

// BoundedNonceStore is a [NonceStore] whose calls end in time by themselves. Unless [Config].StoreTimeout is set, the
// verifier gives its calls no deadline, which saves an allocation.
type BoundedNonceStore interface {
	NonceStore
	// Bounded does nothing. It marks the store.
	Bounded()
}

// SizedNonceStore is a [NonceStore] that knows how much it holds. A verifier then lets owners have no more: see
// [Config].MaxNonces.
type SizedNonceStore interface {
	NonceStore
	// Capacity returns how many nonces there is room for. It is always the same. Zero: nobody knows.
	Capacity() int
}

// ErrNoncesFull is the error of a [MemoryNonces] that has reached its bound, and the cause of a refusal beyond
// [Config].MaxNonces. Messages are then refused (503 store_unavailable): if a nonce were forgotten early, its message could be
// sent again.
var ErrNoncesFull = errors.New("sign: the store of nonces is full")

var errNoTTL = errors.New("sign: a nonce must be kept for more than no time")

// defaultMaxNonces is the default of Config.MaxNonces and MemoryNonces: 3,000 messages a second at a window of 60 s. One nonce
// takes about 150 bytes.
const defaultMaxNonces = 1 << 19

const nonceShards = 64

// minShardedNonces is the smallest bound that is divided among shards. Below it, a shard could be full long before the others.
const minShardedNonces = 1 << 17

// MemoryNonces is a [NonceStore] in the memory of one process. It is bounded, and returns [ErrNoncesFull] if it is full. The zero
// value holds 524,288 nonces. After a restart, and in another process, a message can be sent again while its timestamp is in
// the window. It runs no goroutine, and is safe for concurrent use.
type MemoryNonces struct {
	max    int // zero: defaultMaxNonces
	shards [nonceShards]nonceShard
}

// NewMemoryNonces returns a store for max nonces. Zero or less means 524,288. From 131,072 on, the bound is divided among shards,
// so the store may be full up to a tenth early.
func NewMemoryNonces(max int) *MemoryNonces { return &MemoryNonces{max: max} }

// hashSeed keeps others from choosing nonces of one shard.
var hashSeed = maphash.MakeSeed()

// nonceShard holds a part of the nonces: a set, and a heap of the same ordered by when they may
// be forgotten.
type nonceShard struct {
	mu    sync.Mutex
	used  map[string]struct{}
	dates nonceDates
	_     [32]byte // a line of cache each
}

type nonceDate struct {
	until time.Time
	nonce string
}

// maxForgotten is how many nonces a call forgets at most: more than it adds, so that what is past
// goes, and few, so that none waits for a sweep.
const maxForgotten = 4

// Use implements [NonceStore]. It returns ctx's error if ctx has ended.
func (n *MemoryNonces) Use(ctx context.Context, keyID, nonce string, ttl time.Duration) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if ttl <= 0 {
		return false, errNoTTL
	}
	// The one string cannot be that of another pair: no key id has a line feed.
	entry := keyID + "\n" + nonce
	room, used := n.Capacity(), uint64(1)
	if room >= minShardedNonces {
		room, used = (room-1)/nonceShards+1, nonceShards
	}
	s := &n.shards[maphash.String(hashSeed, entry)%used]
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(now)
	if _, ok := s.used[entry]; ok {
		// It may be past, and only not forgotten yet. To refuse it all the same is safe: a
		// nonce is not to be used again.
		return false, nil
	}
	if len(s.dates) >= room {
		return false, ErrNoncesFull
	}
	if s.used == nil {
		s.used = make(map[string]struct{})
	}
	s.used[entry] = struct{}{}
	s.dates = append(s.dates, nonceDate{now.Add(ttl), entry})
	heap.Fix(&s.dates, len(s.dates)-1) // heap.Push would allocate
	return true, nil
}

// Bounded implements [BoundedNonceStore].
func (n *MemoryNonces) Bounded() {}

// Capacity implements [SizedNonceStore].
func (n *MemoryNonces) Capacity() int {
	if n.max <= 0 {
		return defaultMaxNonces
	}
	return n.max
}

// Len returns how many nonces are remembered. Some of them may be due to be forgotten.
func (n *MemoryNonces) Len() int {
	sum := 0
	for i := range n.shards {
		s := &n.shards[i]
		s.mu.Lock()
		sum += len(s.dates)
		s.mu.Unlock()
	}
	return sum
}

func (s *nonceShard) forget(now time.Time) {
	for range maxForgotten {
		if len(s.dates) == 0 || s.dates[0].until.After(now) {
			return
		}
		delete(s.used, s.dates[0].nonce)
		heap.Pop(&s.dates)
	}
}

// nonceDates is a heap; its exported methods are for package container/heap.
type nonceDates []nonceDate

func (d nonceDates) Len() int           { return len(d) }
func (d nonceDates) Less(i, j int) bool { return d[i].until.Before(d[j].until) }
func (d nonceDates) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *nonceDates) Push(any)          { panic("unreachable: Use appends") }

// Pop drops the last date.
func (d *nonceDates) Pop() any {
	last := len(*d) - 1
	(*d)[last] = nonceDate{} // lets go of the string
	*d = (*d)[:last]
	return nil
}
