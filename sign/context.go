package sign

import (
	"context"
	"time"
)

// Verified is what is known of a message that was verified.
type Verified struct {
	// KeyID is the id of the key that has signed it.
	KeyID string
	// Scheme is the scheme's name, "v1".
	Scheme string
	// Algorithm is the key's.
	Algorithm Algorithm
	// Time is when it was signed, by the client's clock.
	Time time.Time
	// Nonce is its nonce.
	Nonce string
}

// NewContext returns a context that carries v, for [From]. Adapters put it into the request.
func NewContext(ctx context.Context, v Verified) context.Context {
	return context.WithValue(ctx, verifiedKey{}, v)
}

// From returns what is known of the message to which ctx belongs, if it was verified.
func From(ctx context.Context) (Verified, bool) {
	v, ok := ctx.Value(verifiedKey{}).(Verified)
	return v, ok
}

type verifiedKey struct{}
