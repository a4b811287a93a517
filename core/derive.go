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
	// Name identifies the secret in records: 1 to 64 ASCII letters, digits and '-'. It is not secret.
	Name string
	// Key has at least 32 random bytes.
	Key []byte `json:"-"`
}

// Format implements [fmt.Formatter]. Every verb prints only the name. But fmt calls no method for %p and %w, nor for a Secret in an
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

// Derive returns a key for one call downstream of the run, such as the Idempotency-Key of a request to a payment provider. It has
// 40 lower-case hexadecimal digits. call names the call among all that the operation makes ("stripe/charge", "stripe/refund/2").
// Give each call a name of its own, and so a key of its own.
//
// The key is the same whenever the operation runs again: after a crash, and after a failure that may be tried again, for which
// Derive keeps the record (see Failures below). So retrying a charge whose answer was lost does not charge twice. The key is the
// beginning of an HMAC-SHA256 under one of [Config.Secrets]. Its input depends on the policy's key:
//
//   - Keys made of parameters, and tokens: call and [Run.ID]. Two equal orders, one after the other, are two operations, and have
//     two keys. The key is lost with the record ([Record].RememberAbandoned, a restart of an in-process store).
//   - Keys that somebody has chosen ([Header], [Func], [BodyKey], [CallerEvent], [SignedEvent], a [Task]): call and the stored key.
//     So the derived key survives even the loss of the record, and two users who have chosen the same key have different ones. But
//     a client that uses its key again, after the result was forgotten or with other parameters after a failure, always gets the
//     same derived key.
//
// # How long a key is good
//
// The other side must remember the key for longer than the operation may be tried again. That is at least
// [Record].RememberAbandoned (24 h) after its latest attempt, and each attempt starts that time anew. If the other side has
// forgotten the key by then, it runs a second time. So do not send a key that is older than the other side's retention: [Run.Begun]
// returns when the operation began, and idemclient.WithKey takes that time.
//
// # Failures
//
// A run that has called Derive, or finished a [Step], may fail by a panic, without an answer, by the error of a task, or with a
// response that [FailedByStatus] takes for "try again" (under [SignedEvent] with any failure). If its record would then be
// released, it is kept for [Record].RememberAbandoned instead. The next attempt has the next number, and the same ID, keys and
// steps. Any claim gets the record, even under [Uncertain]. It is no takeover, unless an earlier run never finished. Any other
// failure (a 402: the form must be able to run again after a top-up), and [Run.Release], end the operation: the next one has a new
// ID. So does a request with other parameters, which then is no reuse of a key.
//
// Derive returns an error if there is no Config.Secrets, if the secret that the record names is no longer there, or if call is
// empty. To errors.Is, it is [store.ErrLost] if the run has ended, and [codes.NoRun] if r is nil. If a guard has let the request
// pass ([Run.Unprotected]), the keys are random, and belong to this request only; but under FailOpen, with a chosen key, they are
// the usual ones.
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
	return ringSecret{}, fmt.Errorf("idem: Derive: the operation began with the secret %q, which is no longer in Config.Secrets", name)
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

// Unprotected reports whether r holds no claim: a guard has let the request pass ([Optional] without a key, [Policy].FailOpen), or
// r is nil. The handler may then run twice.
func (r *Run) Unprotected() bool {
	if r == nil {
		return true
	}
	p := r.progress.Load()
	return p != nil && p.passed != nil
}
