package sign

import (
	"context"
	"time"
)

// Verified is what is known of a message that was verified.
type Verified struct {
	// KeyID is the id of the key that has signed it.
	KeyID string
	// Owner is whose key that is, see [OwnedBy].
	Owner string
	// Scheme is the scheme's name, "v1".
	Scheme string
	// Algorithm is the key's.
	Algorithm Algorithm
	// Time is when it was signed, by the client's clock.
	// It is zero if the message does not say, see [Signature].Undated.
	Time time.Time
	// Nonce is its nonce. Empty for an undated message.
	Nonce string
	// EventID is the id of the event that the message reports: the same in each delivery of it, and
	// made of what is signed. A guard behind the verifier takes it for its key under core.CallerEvent. Empty for schemes that are not
	// for webhooks.
	EventID string
	// Consumed are the names, as they were sent, of the parameters that belong to the signature: key id,
	// timestamp, nonce, and the signature itself, under sortedparams.Options.InParams. They are
	// not the same in a retry, which is signed anew; a guard behind the verifier does not count them.
	// Nil for schemes whose signatures stand in the header.
	Consumed []string
}

// NewContext returns a context that carries v, for [From]. Adapters put it into the request.
func NewContext(ctx context.Context, v Verified) context.Context {
	return &verifiedContext{ctx, v}
}

// From returns what is known of the message to which ctx belongs, if it was verified.
func From(ctx context.Context) (Verified, bool) {
	v, ok := ctx.Value(verifiedKey{}).(*Verified)
	if !ok {
		return Verified{}, false
	}
	return *v, true
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
