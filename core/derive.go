package core

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/core/internal/canon"
	"github.com/idem-go/idem/core/store"
)

// Secret is one of [Config.Secrets], or of [Seal].Keys.
type Secret struct {
	// Name is how records name it: 1 to 64 ASCII letters, digits and '-'. It is not secret.
	Name string
	// Key has at least 32 random bytes.
	Key []byte `json:"-"`
}

// Format implements [fmt.Formatter]. Every verb prints the name alone. But fmt asks no method for %p and %w, nor for a Secret in an
// unexported field of a struct: these print all of it.
func (s Secret) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "{Name:%s}", s.Name) }

// ringSecret is a secret as the engine has it.
type ringSecret struct {
	name string
	mac  *canon.MAC
}

// newRing checks the secrets of a field, and returns a copy.
func newRing(f *faults, field string, secrets []Secret) []ringSecret {
	ring := make([]ringSecret, len(secrets))
	for i, s := range secrets {
		_, named := canon.ServicePrefix(s.Name)
		f.addIf(!named, field, "the one at %d is called %q; a name has 1 to 64 letters (a-z, A-Z), digits and '-'", i, s.Name)
		f.addSecret(field, fmt.Sprintf("the one at %d ", i), s.Key)
		for _, other := range secrets[:i] {
			f.addIf(other.Name == s.Name, field, "two are called %q; a record has only the name", s.Name)
			f.addIf(bytes.Equal(other.Key, s.Key), field, "the one at %d is there twice", i)
		}
		ring[i] = ringSecret{s.Name, canon.NewMAC(s.Key)}
	}
	return ring
}

// newest returns the name of the secret under which operations begin; empty: there is none.
func (e *Engine) newest() string {
	if len(e.secrets) == 0 {
		return ""
	}
	return e.secrets[0].name
}

var (
	errNoSecret = errors.New("idem: Derive: there is no secret; set Config.Secrets")
	errNoCall   = errors.New("idem: Derive: the call has no name")
	// Nothing would keep the record for the next attempt, which would have another key.
	errDeriveEnded = fmt.Errorf("idem: Derive: the run has ended: %w", store.ErrLost)
)

// Derive returns a key for one call downstream of the run: the Idempotency-Key of a request to a payment provider, say. It has 40
// lower-case hexadecimal digits. call names the call among all that the operation makes ("stripe/charge", "stripe/refund/2"): each call
// has a name of its own, and so a key of its own.
//
// The key is the same whenever the operation runs again: after a crash, and after a failure that may be tried again, for which
// Derive keeps the record (see Failures below). So a retry of what was charged, but not answered, is no second charge. It is the
// beginning of an HMAC-SHA256 under one of [Config.Secrets]. Of what, depends on the policy's key:
//
//   - Keys made of parameters, and tokens: of call and [Run.ID]. Two equal orders, one after the other, are two operations, and have two
//     keys. The key is lost with the record ([Record].RememberAbandoned, a restart of an in-process store).
//   - Keys that somebody has chosen ([Header], [Func], [CallerEvent], [SignedEvent], a [Task]): of call and the stored key. So it
//     survives even the loss of the record, and two users who have chosen the same key have different ones. But a client that uses
//     its key again, when the result has been forgotten or with other parameters after a failure, gets the same derived key for ever.
//
// # How long a key is good
//
// The other side must remember the key for longer than the operation may be tried again. That is at least
// [Record].RememberAbandoned (24 h) after its latest attempt, and each attempt begins that time anew. If the other side has
// forgotten the key by then, it runs a second time. So send no key that is older than the other side's retention: [Run.Begun]
// says when the operation was begun, and idemclient.WithKey takes it.
//
// # Failures
//
// A run that has called Derive, or finished a [Step], may fail by a panic, without an answer, by the error of a task, or with a
// response that [FailedByStatus] takes for "try again" (under [SignedEvent] with each). Where its record would be released then,
// it is kept for [Record].RememberAbandoned instead: the next attempt has the next number, and the same ID, keys and steps. Any
// claim gets it, also under [Uncertain]. It is no takeover, unless an earlier run was never heard of again. Any other failure (a
// 402: the form must run after a top-up), and [Run.Release], end the operation: the next one has a new ID. So does a request with
// other parameters, which is no reuse of a key then.
//
// An error says that there is no Config.Secrets, or no longer the one that the record names; that call is empty; by errors.Is
// [store.ErrLost], that the run has ended; or, by errors.Is [codes.NoRun], that r is nil. If a guard has let the request pass
// ([Run.Unprotected]), the keys are the request's own, and random; but under FailOpen, with a chosen key, the usual ones.
func (r *Run) Derive(call string) (string, error) {
	switch {
	case r == nil:
		return "", refusal(codes.NoRun).because(errNoRun)
	case call == "":
		return "", errNoCall
	case r.ended.Load():
		return "", errDeriveEnded
	}
	secret, err := r.secret()
	if err != nil {
		return "", err
	}
	p := r.progressed()
	p.derived.Store(true)

	b := binary.AppendUvarint([]byte("idem derive 1\x00"), uint64(len(call)))
	b = append(b, call...)
	switch id := r.id; {
	case r.guard.chosen() && r.key != (Key{}):
		b = append(append(b, 'K'), r.key.raw...)
	case id == (store.ID{}):
		p.once.Do(func() { p.id = store.NewID() })
		id = p.id
		fallthrough
	default:
		b = append(append(b, 'O'), id[:]...)
	}
	return hex.EncodeToString(secret.mac.Append(nil, b)[:20]), nil
}

// secret returns the secret that the record names. A record that names none has the newest.
func (r *Run) secret() (ringSecret, error) {
	ring := r.guard.engine.secrets
	if len(ring) == 0 {
		return ringSecret{}, errNoSecret
	}
	name := ring[0].name
	if p := r.progress.Load(); p != nil && p.secret != "" {
		name = p.secret
	}
	for _, s := range ring {
		if s.name == name {
			return s, nil
		}
	}
	return ringSecret{}, fmt.Errorf("idem: Derive: the operation was begun with the secret %q, which Config.Secrets has no longer", name)
}

// unprotected is the context of a request, or a call of a task, that a guard lets pass without a claim.
type unprotected struct {
	context.Context
	run Run
	progress
}

// passing returns the context of an operation that passes without a claim. A run that holds one already stays its run.
func (g *Guard) passing(ctx context.Context, id *identity, d *decision) context.Context {
	if d.refusal == nil || !RunFrom(ctx).Unprotected() {
		return ctx
	}
	u := &unprotected{Context: ctx}
	u.run.guard, u.run.key, u.run.attempt = g, id.key, 1
	u.passed = d.refusal
	if !g.chosen() || id.key == (Key{}) {
		u.run.begun.Store(time.Now().UnixNano())
	}
	u.run.progress.Store(&u.progress)
	return u
}

// Value makes the run a value of the context.
func (u *unprotected) Value(key any) any {
	if _, ok := key.(runKey); ok {
		return &u.run
	}
	return u.Context.Value(key)
}

// Unprotected reports whether r holds no claim: a guard has let the request pass ([Optional] without a key, [Policy].FailOpen), or r
// is nil. What runs with it may run twice.
func (r *Run) Unprotected() bool {
	if r == nil {
		return true
	}
	p := r.progress.Load()
	return p != nil && p.passed != nil
}
