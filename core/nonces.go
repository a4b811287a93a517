package core

import (
	"context"
	"time"

	"github.com/idem-go/idem/core/store"
)

// Nonces stores used nonces in an engine's store. It is a sign.NonceStore:
//
//	verifier, err := sign.NewVerifier(sign.Config{Keys: keys, Nonces: engine.Nonces()})
//
// All engines with the same store and [Config].Service share the nonces. It is safe for concurrent use.
type Nonces struct{ engine *Engine }

// Nonces returns the nonces of the engine's store.
func (e *Engine) Nonces() *Nonces { return &Nonces{e} }

// Use marks nonce as used by the key called keyID for ttl, which must be greater than zero, and reports whether it was unused. It
// is one atomic step of the store: exactly one of several concurrent calls returns true. After an error (of the store, ctx, or the
// deadline [Config].StoreTimeout) it is not known whether the nonce was unused, nor whether it is marked now. The strings are not
// kept.
func (n *Nonces) Use(ctx context.Context, keyID, nonce string, ttl time.Duration) (unused bool, err error) {
	e, calling := n.engine, ctx
	if !e.can.Local {
		// Unlike an operation's claim, this one may be cut off half-way: the next try has
		// another nonce.
		var cancel context.CancelFunc
		calling, cancel = context.WithTimeout(ctx, e.storeTimeout)
		defer cancel()
	}
	// The claim is never completed: it is valid for ttl, and is then gone without a trace.
	err = e.call(ctx, "acquire", func() error {
		grant, err := e.store.Acquire(calling, e.nonceKey(keyID, nonce), store.Claim{Owner: store.NewOwner(), Lease: ttl})
		unused = grant.State == store.Acquired
		return err
	})
	return unused && err == nil, err
}

// Limits returns half of the store's [store.Capabilities].Capacity, because the other half is for the records of operations, and
// true, because Use has a deadline of its own. A capacity of zero means that it is not known.
func (n *Nonces) Limits() (capacity int, ownTimeout bool) {
	return (n.engine.can.Capacity + 1) / 2, true
}

// nonceKey is no operation's key: those go on with U= after the prefix.
func (e *Engine) nonceKey(keyID, nonce string) string {
	k := make([]byte, 0, len(e.prefix)+len(keyID)+len(nonce)+8)
	k = append(k, e.prefix...)
	k = append(k, "N="...)
	k = appendPart(k, keyID)
	k = append(k, '#') // which appendPart never leaves
	return string(appendPart(k, nonce))
}
