package sign

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// KeySource finds keys by their ids. [Ring] holds them in memory; [KeyFunc] asks a database,
// say. It is used concurrently.
type KeySource interface {
	// Keys returns the keys that are known under id, in the order in which they are to be tried;
	// no more than 8 are. None, or [ReasonUnknownKey]: the id is not known. [ReasonRevokedKey]: it was revoked.
	// Keys beside an error do not count. Any other error means that the source could not be asked: the message is refused
	// with 503 store_unavailable. id belongs to the message: copy it to keep it.
	Keys(ctx context.Context, id string) ([]*Key, error)
}

// KeyFunc makes a [KeySource] of a function that resolves ids, for keys in a database. What
// it returns should be the same *Key for the same key: a key remembers what it has
// prepared for its next use. It is called before anything of the message is verified, with an
// id that anybody may have sent: cache, also what there is not.
type KeyFunc func(ctx context.Context, id string) ([]*Key, error)

// Keys calls the function.
func (f KeyFunc) Keys(ctx context.Context, id string) ([]*Key, error) { return f(ctx, id) }

// Ring is a set of keys in memory. Several may be live at once, also under one id: while a
// sender changes its secret, both are good. The zero value has no keys. It is safe for concurrent use.
type Ring struct {
	mu      sync.RWMutex
	keys    map[string][]*Key
	revoked map[string]struct{}
}

var errNilKey = errors.New("sign: a key is nil")

// maxCandidates is how many keys are tried for a message.
const maxCandidates = 8

// NewRing makes a ring of keys. A ring without keys refuses everything.
func NewRing(keys ...*Key) (*Ring, error) {
	r := new(Ring)
	for _, k := range keys {
		if err := r.Add(k); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// MustRing is [NewRing] for keys that are fixed in the program; it panics with the error.
func MustRing(keys ...*Key) *Ring {
	r, err := NewRing(keys...)
	if err != nil {
		panic(err)
	}
	return r
}

// Add adds a key, to be tried after those that have the same id. It refuses a ninth key of
// one id, and one whose id was revoked.
func (r *Ring) Add(k *Key) error {
	if k == nil {
		return errNilKey
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.revoked[k.id]; ok {
		return Errorf(ReasonRevokedKey, "the id %q was revoked; a new key needs a new id", k.id)
	}
	if len(r.keys[k.id]) >= maxCandidates {
		return &ConfigError{Field: "Ring", Problem: "there are too many keys of one id"}
	}
	if r.keys == nil {
		r.keys = make(map[string][]*Key)
	}
	// A slice that Keys has handed out must not change.
	r.keys[k.id] = append(slices.Clip(r.keys[k.id]), k)
	return nil
}

// Remove takes a key out, and leaves others of the same id.
func (r *Ring) Remove(k *Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k == nil {
		return
	}
	rest := slices.DeleteFunc(slices.Clone(r.keys[k.id]), func(other *Key) bool { return other == k })
	if len(rest) == 0 {
		delete(r.keys, k.id)
		return
	}
	r.keys[k.id] = rest
}

// Revoke takes out all keys of an id for good: messages are refused from now on, and no key of
// that id can be added again.
func (r *Ring) Revoke(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.keys, id)
	if r.revoked == nil {
		r.revoked = make(map[string]struct{})
	}
	r.revoked[strings.Clone(id)] = struct{}{}
}

// IDs returns the ids of the keys, sorted.
func (r *Ring) IDs() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Sorted(maps.Keys(r.keys))
}

// Keys implements [KeySource].
func (r *Ring) Keys(_ context.Context, id string) ([]*Key, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	keys := r.keys[id]
	if keys == nil {
		if _, ok := r.revoked[id]; ok {
			return nil, ReasonRevokedKey
		}
		return nil, ReasonUnknownKey
	}
	return keys, nil
}

// valid returns an error unless the key is valid at t.
func (k *Key) valid(t time.Time) error {
	switch {
	case !k.notBefore.IsZero() && t.Before(k.notBefore):
		return ReasonKeyNotYetValid
	case !k.notAfter.IsZero() && !t.Before(k.notAfter):
		return ReasonKeyExpired
	}
	return nil
}
