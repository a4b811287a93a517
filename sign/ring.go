package sign

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"
)

// KeyStore finds keys by their id: a [Ring] in memory, or one of your own, in a database. It must be safe for concurrent use.
type KeyStore interface {
	// Keys returns the keys of an id in the order in which to try them. The verifier tries at most 8. No keys, or
	// [ReasonUnknownKey], means that the id is unknown; [ReasonRevokedKey], that it was revoked. With any other error the
	// message is refused (503 store_unavailable). If there is an error, the keys are ignored. id shares memory with the
	// message: copy it to keep it.
	//
	// Return the same *Key for the same key each time, because a key keeps prepared state. Keys is called before anything is verified,
	// with an id that anyone may have sent, so cache unknown ids too.
	//
	// If a message names the URL where its key is published ([Signature].KeyURL), a [URLKeyStore] is asked for the keys at that URL.
	// Other stores, such as a Ring, find the key by its id alone. Its owner is then the one that they know, not the URL.
	Keys(ctx context.Context, id string) ([]*Key, error)
}

// URLKeyStore is a [KeyStore] that knows where keys are published, such as jwk.Source.
type URLKeyStore interface {
	KeyStore
	// KeysAt returns the keys of an id that are published at url. It is called in place of Keys for a message that names a URL
	// ([Signature].KeyURL), which anyone may have sent. The rules of Keys apply to it too.
	KeysAt(ctx context.Context, url, id string) ([]*Key, error)
}

// Ring is a set of keys in memory. Several keys may be live at once, also under one id, as while a client changes its secret.
// The zero value has no keys. It is safe for concurrent use.
type Ring struct {
	mu      sync.RWMutex
	keys    map[string][]*Key
	revoked map[string]struct{}
}

var errNilKey = errors.New("sign: a key is nil")

// maxCandidates is how many keys are tried for a message at most.
const maxCandidates = 8

// NewRing returns a ring with the keys. It returns the error of [Ring.Add], if there is one. With an empty ring, a verifier
// refuses every message.
func NewRing(keys ...*Key) (*Ring, error) {
	r := new(Ring)
	for _, k := range keys {
		if err := r.Add(k); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Add adds a key, which is tried after the keys of the same id. It returns an error for a nil key, for the ninth key of an id,
// and for an id that was revoked ([ReasonRevokedKey]).
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
	// A slice that Keys has returned must not change.
	r.keys[k.id] = append(slices.Clip(r.keys[k.id]), k)
	return nil
}

// Remove removes a key. Other keys of the same id stay. A key that is not in the ring is ignored.
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

// Revoke removes all keys of an id for good. Messages that name it are refused, and no key of that id can be added again. The
// ring remembers revoked ids for as long as the process runs.
func (r *Ring) Revoke(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.keys, id)
	if r.revoked == nil {
		r.revoked = make(map[string]struct{})
	}
	r.revoked[strings.Clone(id)] = struct{}{}
}

// Keys implements [KeyStore].
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
	case !k.validFrom.IsZero() && t.Before(k.validFrom):
		return ReasonKeyNotYetValid
	case !k.validUntil.IsZero() && !t.Before(k.validUntil):
		return ReasonKeyExpired
	}
	return nil
}
