package sign

import (
	"container/heap"
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"time"
)

// NonceStore remembers which nonces have been used. core.Engine.Nonces returns one that uses the engine's store. [MemoryNonces] is for a
// single process. A NonceStore must be safe for concurrent use.
type NonceStore interface {
	// Use marks nonce as used by the key for at least ttl, which is positive, and reports whether it was unused. This is
	// one atomic step: of all calls with the same key id and nonce within ttl, from all processes that share the store, at
	// most one gets true. The same nonce of another key is another one. An error means that it is unknown whether the nonce was
	// unused. The strings share memory with the message: copy them to keep them.
	//
	// ctx has a deadline ([Config].StoreTimeout), unless the calls have one of their own.
	Use(ctx context.Context, keyID, nonce string, ttl time.Duration) (unused bool, err error)

	// Limits returns what a verifier may rely on. It must always return the same. capacity is how many nonces there is room for: the
	// verifier gives owners no more than that ([Config].MaxNonces). Zero: unknown. ownTimeout means that calls of Use end in time by
	// themselves. Unless [Config].StoreTimeout is set, they then get no deadline, which saves an allocation. A store that wraps another
	// one returns what holds for itself.
	Limits() (capacity int, ownTimeout bool)
}

// ErrNoncesFull is the error of a [MemoryNonces] that has reached its bound, and the cause of a refusal beyond
// [Config].MaxNonces. Messages are then refused (503 store_unavailable): if a nonce were forgotten early, its message could be
// sent again.
var ErrNoncesFull = errors.New("sign: the store of nonces is full")

var errNoTTL = errors.New("sign: the time to keep a nonce must be positive")

// defaultMaxNonces is the default of Config.MaxNonces and MemoryNonces: 3,000 messages a second at a window of 60 s. One nonce
// takes about 150 bytes.
const defaultMaxNonces = 1 << 19

const nonceShards = 64

// minShardedNonces is the smallest bound that is divided among shards. Below it, a shard could be full long before the others.
const minShardedNonces = 1 << 17

// MemoryNonces is a [NonceStore] in the memory of one process. It is bounded, and returns [ErrNoncesFull] if it is full. After a
// restart, and in another process, a message can be sent again while its timestamp is in the window. It runs no goroutine, and is
// safe for concurrent use.
type MemoryNonces struct {
	// Max is how many nonces are remembered at a time. It must not change once the store is in use. From 131,072 on it is
	// divided among shards, so the store may be full up to a tenth early. Zero or less: 524,288.
	Max int

	shards [nonceShards]nonceShard
}

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
	used := uint64(1)
	room, _ := n.Limits()
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

// Limits implements [NonceStore].
func (n *MemoryNonces) Limits() (capacity int, ownTimeout bool) {
	if n.Max <= 0 {
		return defaultMaxNonces, true
	}
	return n.Max, true
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
