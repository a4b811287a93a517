package sign

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Config is what a [Verifier] is built from. Keys must be set; the zero values of all other
// fields are safe and sensible.
type Config struct {
	// Keys finds the keys: a [*Ring], or a [KeyFunc].
	Keys KeySource

	// Scheme is the way in which messages are signed. Nil: [V1] with its standard names. A
	// verifier knows one scheme; a message cannot choose.
	Scheme Scheme

	// Nonces remembers which nonces have been used. Nil: a [MemoryNonces] of its own, which
	// is right for a single process only; a service with several needs one that they share.
	Nonces NonceStore

	// Window is how far a timestamp may lie behind or ahead of the verifier's clock, in whole
	// seconds; it is inclusive. Zero: 60 s. At most an hour.
	Window time.Duration

	// Margin is how much longer than its timestamp is in the window a nonce is kept: more
	// than the clocks (and the windows, while they are being changed) of the processes that share
	// Nonces differ. Zero: 30 s. At most a day.
	Margin time.Duration

	// Host is the public host (and port, unless it is the scheme's default one) under which
	// clients address the service. Set it if a proxy in front changes the Host field, and if
	// clients sign for other services with the same key (for staging, say): empty, the host is taken
	// as sent, and what was signed for another one is good here, for whoever sends it on with its Host. Clients sign what they send: one whose URL spells out the default port has to leave
	// it out, or to set [RequestOptions].Host.
	Host string

	// BodyLimit is the length of the longest body that is read, in bytes. Zero: 1 MiB.
	BodyLimit int64

	// MaxHeaderLines and MaxHeaderBytes bound the header that is looked at. Zero: 100 lines,
	// 32 KiB.
	MaxHeaderLines, MaxHeaderBytes int

	// StoreTimeout is how long Keys and Nonces may take to answer, each. Zero: 2 s, or the
	// nonce store's own limit, if it has one (see [NonceStore]).
	StoreTimeout time.Duration

	// Clock is the time. Nil: [time.Now].
	Clock func() time.Time

	// Observe is told of every message. It is called synchronously and concurrently, and must
	// return quickly. Nil: nobody is told.
	Observe func(ctx context.Context, e Event)

	// RefusalBody renders the whole body of a refusal, for houses with an envelope of
	// their own such as {code,msg,data}. Only the error's Code is for the client. It is called
	// concurrently. Nil: application/problem+json (RFC 9457).
	RefusalBody func(e *Error) (contentType string, body []byte)
}

const (
	defaultWindow       = time.Minute
	maxWindow           = time.Hour
	maxMargin           = 24 * time.Hour
	maxStoreTimeout     = 10 * time.Minute
	defaultMargin       = 30 * time.Second
	defaultBodyLimit    = 1 << 20
	defaultHeaderLines  = 100
	defaultHeaderBytes  = 32 << 10
	defaultStoreTimeout = 2 * time.Second
)

// Event is what has become of a message.
type Event struct {
	// Scheme is the scheme's name.
	Scheme string
	// KeyID is the key id that the message names, if that much was understood. Unless Err is
	// nil, anybody may have sent it.
	KeyID string
	// Err is why the message was refused; nil: it was verified.
	Err *Error
	// Duration is how long it took, with the time for reading the body.
	Duration time.Duration

	signingString func() string
}

// SigningString returns what the verifier thinks was signed, with secrets and bodies redacted, to be
// compared with what the client's side says ([RequestOptions].Observe). It is empty if the message
// could not be understood so far, and when Observe has returned.
func (e Event) SigningString() string {
	if e.signingString == nil {
		return ""
	}
	return e.signingString()
}

// Verifier tells whether messages are what the holder of a key has sent, now, and for the
// first time. It is built once with [NewVerifier], and is safe for concurrent use.
type Verifier struct {
	c       Config
	window  int64         // in seconds
	bounded bool          // Nonces need no deadline
	decoys  []*Key        // stand in for keys that are not known: one of each algorithm, HMAC first
	last    atomic.Uint32 // the algorithm by which a message was last verified
}

// NewVerifier builds a verifier. It reports every fault of c at once, each as a
// *[ConfigError].
func NewVerifier(c Config) (*Verifier, error) {
	var f faults
	f.addIf(isNil(c.Keys), "Config.Keys", "is not set")
	f.addIf(c.Scheme != nil && isNil(c.Scheme), "Config.Scheme", "is a nil %T", c.Scheme)
	f.addIf(c.Nonces != nil && isNil(c.Nonces), "Config.Nonces", "is a nil %T", c.Nonces)
	f.addIf(c.Window < 0 || c.Window > maxWindow || c.Window%time.Second != 0, "Config.Window", "is %v; whole seconds up to %v are allowed", c.Window, maxWindow)
	f.addIf(c.Margin < 0 || c.Margin > maxMargin, "Config.Margin", "is %v; up to %v is allowed", c.Margin, maxMargin)
	f.addIf(c.BodyLimit < 0, "Config.BodyLimit", "is negative: %d", c.BodyLimit)
	f.addIf(c.MaxHeaderLines < 0, "Config.MaxHeaderLines", "is negative: %d", c.MaxHeaderLines)
	f.addIf(c.MaxHeaderBytes < 0, "Config.MaxHeaderBytes", "is negative: %d", c.MaxHeaderBytes)
	f.addIf(c.StoreTimeout < 0 || c.StoreTimeout > maxStoreTimeout, "Config.StoreTimeout", "is %v; up to %v is allowed", c.StoreTimeout, maxStoreTimeout)
	f.addIf(c.Host != "" && !isAuthority(c.Host), "Config.Host", "%q is no host", c.Host)
	if err := f.err(); err != nil {
		return nil, err
	}
	limited := c.StoreTimeout > 0
	setDefault(&c.Window, defaultWindow)
	setDefault(&c.Margin, defaultMargin)
	setDefault(&c.BodyLimit, defaultBodyLimit)
	setDefault(&c.MaxHeaderLines, defaultHeaderLines)
	setDefault(&c.MaxHeaderBytes, defaultHeaderBytes)
	setDefault(&c.StoreTimeout, defaultStoreTimeout)
	if c.Scheme == nil {
		c.Scheme = standardV1
	}
	if c.Nonces == nil {
		c.Nonces = NewMemoryNonces(0)
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	v := &Verifier{c: c, window: int64(c.Window / time.Second), decoys: newDecoys()}
	_, bounded := c.Nonces.(interface{ Bounded() })
	v.bounded = bounded && !limited
	return v, nil
}

// MustVerifier is [NewVerifier] for configurations that are fixed in the program; it panics
// with the faults.
func MustVerifier(c Config) *Verifier {
	v, err := NewVerifier(c)
	if err != nil {
		panic(err)
	}
	return v
}

// isNil reports whether an interface holds nothing that could be called.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	switch held := reflect.ValueOf(v); held.Kind() {
	case reflect.Pointer, reflect.Func, reflect.Map, reflect.Slice, reflect.Interface, reflect.Chan:
		return held.IsNil()
	}
	return false
}

func setDefault[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

// Verify tells whether m is what the holder of a key has sent, now, and for the first time. Errors
// are [*Error] values; [Verifier.Refusal] makes the answer of one. ctx bounds the calls of the
// key source and the nonce store.
//
// The checks have this order: size of the header, form of the signature, timestamp, key and
// algorithm, body, signature, nonce. So a body is read only for a message that may be in
// time, a nonce is used up only by a signature that is good, and who guesses key ids learns
// nothing: a message of an unknown key goes the same way as one with a bad signature.
func (v *Verifier) Verify(ctx context.Context, m *Message) (Verified, error) {
	s := signatures.Get().(*Signature)
	m.limit, m.host = v.c.BodyLimit, v.c.Host
	var key *Key
	var started time.Time
	if v.c.Observe != nil {
		started = time.Now()
	}
	err := v.verify(ctx, m, s, &key)
	if v.c.Observe != nil {
		v.observe(ctx, m, s, key, err, time.Since(started))
	}
	var verified Verified
	if err == nil {
		verified = Verified{
			KeyID: key.id, Scheme: v.c.Scheme.Name(), Algorithm: key.algorithm,
			Time: time.Unix(s.Created, 0), Nonce: strings.Clone(s.Nonce),
		}
	}
	// A panic leaves it to the garbage collector.
	s.reset()
	signatures.Put(s)
	if err != nil {
		return Verified{}, err // not a nil *Error
	}
	return verified, nil
}

var signatures = sync.Pool{New: func() any { return new(Signature) }}

// maxScratch is the largest buffer that is kept for another message.
const maxScratch = 16 << 10

func (sig *Signature) reset() {
	values, covered, fields, scratch := sig.Values, sig.Covered, sig.fields, sig.scratch
	clear(values[:cap(values)])
	clear(covered[:cap(covered)])
	clear(fields[:cap(fields)])
	if cap(scratch) > maxScratch {
		scratch = nil
	}
	params := sig.params
	params.reset()
	*sig = Signature{Values: values[:0], Covered: covered[:0], fields: fields[:0], scratch: scratch[:0], params: params}
}

// verify is the order of the checks: it stands nowhere else.
func (v *Verifier) verify(ctx context.Context, m *Message, s *Signature, key **Key) *Error {
	if err := v.checkHeader(m); err != nil {
		return err
	}
	if err := v.c.Scheme.Parse(m, s); err != nil {
		return asError(err)
	}
	now := v.c.Clock()
	if err := v.checkTime(s, now.Unix()); err != nil {
		return err
	}
	candidates, unknown := v.candidates(ctx, s, now)
	if unknown != nil && unknown.Code == CodeStoreUnavailable {
		return unknown
	}
	if _, err := m.Body(); err != nil {
		return asError(err)
	}
	var err *Error
	*key, err = v.checkSignature(m, s, candidates)
	switch {
	case unknown != nil:
		*key = nil // a decoy
		return unknown
	case err != nil:
		return err
	}
	if a := uint32((*key).algorithm); v.last.Load() != a {
		v.last.Store(a)
	}
	later := v.c.Clock()
	if later.Unix() != now.Unix() {
		if err := v.checkAgain(ctx, m, s, *key, later); err != nil {
			return err
		}
	}
	return v.useNonce(ctx, s, *key, later)
}

// checkAgain is for messages whose body took its time. Who holds back the last byte of one must not
// get it in when its timestamp has left the window, and its nonce is forgotten, or its key has been
// revoked.
func (v *Verifier) checkAgain(ctx context.Context, m *Message, s *Signature, key *Key, now time.Time) *Error {
	if err := v.checkTime(s, now.Unix()); err != nil {
		return err
	}
	candidates, err := v.candidates(ctx, s, now)
	if err == nil && !slices.Contains(candidates, key) { // it has gone, or was made anew
		s.tries = 0
		_, err = v.checkSignature(m, s, candidates)
	}
	return err
}

func (v *Verifier) checkHeader(m *Message) *Error {
	lines, bytes := m.Source.HeaderSize()
	if lines > v.c.MaxHeaderLines || bytes > v.c.MaxHeaderBytes {
		return Errorf(ErrMalformed, "the header has %d lines and %d bytes; %d and %d are allowed", lines, bytes, v.c.MaxHeaderLines, v.c.MaxHeaderBytes)
	}
	if len(m.Source.Values("Host")) > 1 {
		return Errorf(ErrDuplicateHeader, "Host")
	}
	// A target has no fragment (RFC 9112, section 3.2); some servers cut one off, and others don't.
	if !isToken(m.Method) || !isLine(m.Target) || strings.Contains(m.Target, "#") {
		return Errorf(ErrMalformed, "the request line has characters that it must not have")
	}
	if !isAuthority(m.Authority()) {
		return Errorf(ErrMalformed, "the request does not say for which host it is")
	}
	return nil
}

// isAuthority reports whether s can be a host with a port.
func isAuthority(s string) bool { return consistsOf(s, inAuthority) }

// checkTime compares whole seconds, so that a message which is just Window old is in time.
func (v *Verifier) checkTime(s *Signature, now int64) *Error {
	switch {
	case s.Created < now-v.window:
		return Errorf(ErrExpired, "it was signed %d seconds ago", now-s.Created)
	case s.Created > now+v.window:
		return Errorf(ErrNotYetValid, "it was signed %d seconds ahead of this clock", s.Created-now)
	case s.Expires != 0 && now > s.Expires:
		return Errorf(ErrExpired, "it has expired %d seconds ago", now-s.Expires)
	}
	return nil
}

// candidates returns the keys to be tried. If there is none, it returns a decoy, and why: a
// message of an unknown key must not be told from one with a bad signature, also by the
// time or the memory that it takes.
func (v *Verifier) candidates(ctx context.Context, s *Signature, now time.Time) ([]*Key, *Error) {
	keys, err := v.keys(ctx, s.KeyID)
	if err != nil && !errors.Is(err, ErrInvalid) {
		return nil, Errorf(ErrStoreUnavailable, "the key could not be looked up: %w", err)
	}
	why := ErrUnknownKey
	if err != nil {
		keys, why = nil, asError(err)
	}
	live, all := 0, true
	for _, k := range keys {
		switch {
		case k == nil:
			all = false
		case k.valid(now) != nil:
			all, why = false, asError(k.valid(now))
		default:
			live++
		}
	}
	switch {
	case live == 0:
		return v.decoy(s), why
	case all && live <= maxCandidates:
		return keys, nil
	}
	chosen := make([]*Key, 0, maxCandidates)
	for _, k := range keys {
		if k != nil && k.valid(now) == nil && len(chosen) < maxCandidates {
			chosen = append(chosen, k)
		}
	}
	return chosen, nil
}

// decoy returns a key that takes about as long as the one that the message should have been signed
// with: of the algorithm that the message names or, if it names none, of the one by which a message
// was last verified here. What comes of it does not count.
func (v *Verifier) decoy(s *Signature) []*Key {
	kind := Algorithm(v.last.Load())
	for a, k := range v.decoys {
		if s.Algorithm == k.algorithm.String() || s.Algorithm == tagEd25519 && k.algorithm == Ed25519 {
			return v.decoys[a : a+1]
		}
		if s.Algorithm == "" && k.algorithm == kind {
			return v.decoys[a : a+1]
		}
	}
	return v.decoys[:1]
}

func (v *Verifier) keys(ctx context.Context, id string) ([]*Key, error) {
	if r, ok := v.c.Keys.(*Ring); ok {
		return r.Keys(ctx, id)
	}
	ctx, cancel := context.WithTimeout(ctx, v.c.StoreTimeout)
	defer cancel()
	return v.c.Keys.Keys(ctx, id)
}

// checkSignature returns the key that has signed, or the first that could have.
func (v *Verifier) checkSignature(m *Message, s *Signature, candidates []*Key) (*Key, *Error) {
	var first error
	for _, k := range candidates {
		err := v.c.Scheme.Check(m, s, k)
		if err == nil {
			return k, nil
		}
		if first == nil {
			first = err
		}
	}
	if errors.Is(first, ErrWrongAlgorithm) {
		// It took no time to find that out, which would tell that the key is known.
		_ = v.c.Scheme.Check(m, s, v.decoy(s)[0])
	}
	return candidates[0], asError(first)
}

// useNonce burns the nonce. It is kept until its timestamp has left the window by the clock
// of every process that shares the store: Created + Window is the last second in which
// the message is in time. A call of Keys and one of Nonces may pass between that check and the end of
// this step.
func (v *Verifier) useNonce(ctx context.Context, s *Signature, key *Key, now time.Time) *Error {
	ttl := time.Unix(s.Created+v.window+1, 0).Sub(now) + v.c.Margin + 2*v.c.StoreTimeout
	if !v.bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, v.c.StoreTimeout)
		defer cancel()
	}
	unused, err := v.c.Nonces.Use(ctx, key.id, s.Nonce, ttl)
	switch {
	case err != nil:
		return Errorf(ErrStoreUnavailable, "the nonce could not be looked up: %w", err)
	case !unused:
		return ErrReplayed
	}
	return nil
}

func (v *Verifier) observe(ctx context.Context, m *Message, s *Signature, key *Key, err *Error, took time.Duration) {
	e := Event{Scheme: v.c.Scheme.Name(), KeyID: strings.Clone(s.KeyID), Err: err, Duration: took}
	var over atomic.Bool
	if s.KeyID != "" {
		e.signingString = func() string {
			if over.Load() {
				return "" // the message belongs to another request by now
			}
			return v.c.Scheme.SigningString(m, s, key)
		}
	}
	v.c.Observe(ctx, e)
	over.Store(true)
}

// asError returns err, which a scheme or a key source has made, as an *Error. One that is
// none is a fault of theirs, and refuses.
func asError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok && e != nil {
		return e
	}
	return &Error{Code: CodeInvalid, Detail: fmt.Sprint(err), cause: err}
}
