package sign

import (
	"context"
	"time"
)

// Verified describes a message that was verified.
type Verified struct {
	// KeyID is the id of the key that signed it.
	KeyID string
	// Owner is the owner of that key, see [KeyConfig].
	Owner string
	// Scheme is the name of the scheme: "v1".
	Scheme string
	// Algorithm is the key's algorithm.
	Algorithm Algorithm
	// Time is when the message was signed, by the client's clock. It is zero if the message has none ([Signature].NoTimestamp).
	Time time.Time
	// Nonce is the message's nonce. It is empty if the message has none, or no timestamp, or if a guard takes its place
	// ([Config].GuardedByKey).
	Nonce string
	// EventID is the id of the event that a webhook reports. It is signed, and the same in each delivery of the event. With
	// core.SignedEvent, a guard inside the verifier uses it as its key. Of rfc9421.UCP it is the Idempotency-Key. It is empty
	// for schemes whose messages have nonces and that are not for webhooks.
	EventID string
	// Consumed are the names, as sent, of the parameters that belong to the signature: with sortedparams.Config.InParams,
	// those of key id, timestamp, nonce and signature. They differ in a retry, which has a new signature, so a guard inside the
	// verifier leaves them out of its keys and fingerprints. Consumed is nil if the signature is in the header.
	Consumed []string
}

// NewContext returns a context from which [From] returns v. Adapters give it to the request.
func NewContext(ctx context.Context, v Verified) context.Context {
	return &verifiedContext{ctx, v}
}

// From returns what [NewContext] put into ctx. ok is false if no message was verified.
func From(ctx context.Context) (v Verified, ok bool) {
	if verified, ok := ctx.Value(verifiedKey{}).(*Verified); ok {
		return *verified, true
	}
	return Verified{}, false
}

type verifiedKey struct{}

// verifiedContext is the context and its value in one allocation.
type verifiedContext struct {
	context.Context
	verified Verified
}

// Value implements [context.Context].
func (c *verifiedContext) Value(key any) any {
	if _, ok := key.(verifiedKey); ok {
		return &c.verified
	}
	return c.Context.Value(key)
}
