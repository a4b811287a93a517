package core

import (
	"context"
	"time"

	"github.com/idem-go/idem/core/store"
)

// Nonces remembers in the engine's store which nonces have been used. It is a
// sign.NonceStore:
//
//	verifier, err := sign.NewVerifier(sign.Config{Keys: keys, Nonces: engine.Nonces()})
//
// So all services that share the store, and the prefix, share the nonces. It is safe for
// concurrent use.
type Nonces struct{ engine *Engine }

// Nonces returns the nonces of the engine's store.
func (e *Engine) Nonces() *Nonces { return &Nonces{e} }

// Use marks nonce as used by the key for ttl, and reports whether it was unused. It is one
// atomic step of the store: of any number of calls at once, one is told true. ttl must be more
// than zero. An error (of the store, its deadline [Config].StoreTimeout, ctx) means that it is
// not known whether the nonce was unused, nor whether it now is. The strings are not kept.
func (n *Nonces) Use(ctx context.Context, keyID, nonce string, ttl time.Duration) (unused bool, err error) {
	e := n.engine
	if !e.local {
		// Unlike an operation's claim, this one may be cut off half-way: nobody comes back
		// to it, for the next try has another nonce.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, e.storeTimeout)
		defer cancel()
	}
	// A claim that nobody settles: it stands for ttl, and then it is gone without a trace.
	grant, err := e.store.Acquire(ctx, e.nonceKey(keyID, nonce), store.Claim{Owner: store.NewOwner(), Lease: ttl})
	return err == nil && grant.State == store.Acquired, err
}

// Bounded does nothing; it says that Use ends in time by itself (see sign.NonceStore).
func (n *Nonces) Bounded() {}

// nonceKey is no operation's key: those go on with U= after the prefix.
func (e *Engine) nonceKey(keyID, nonce string) string {
	k := make([]byte, 0, len(e.prefix)+len(keyID)+len(nonce)+8)
	k = append(k, e.prefix...)
	k = append(k, "N="...)
	k = appendPart(k, keyID)
	k = append(k, '#') // which appendPart never leaves
	return string(appendPart(k, nonce))
}
