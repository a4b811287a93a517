package sign

import (
	"cmp"
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idem/sign/internal/form"
	"github.com/idem-go/idem/sign/internal/keys"
)

// Config is what a [Verifier] is built from. Keys must be set. The zero values of all other fields are safe.
type Config struct {
	// Keys finds the keys: a [*Ring], or your own store.
	Keys KeyStore

	// Scheme is how messages are signed. Nil: [NewV1] with its standard names.
	Scheme Scheme

	// GuardedByKey states that each unsafe route inside this verifier has a guard that requires a key: the Idempotency-Key, or the id
	// of the event ([Verified].EventID: core.SignedEvent, core.CallerEvent). It must be set for schemes that leave replays to such a
	// guard ([Demands].Guard: rfc9421.UCP). A webhook that is repeated unchanged then gets the guard's answer instead of 401 replayed,
	// and no nonce is used. Other messages have nonces as before. The verifier cannot check that the guard is there. Without a guard,
	// anyone who relays a message can have it executed again.
	GuardedByKey bool

	// Nonces remembers which nonces have been used. If several processes verify, they must share one NonceStore. Nil: the verifier's
	// own [MemoryNonces], for a single process.
	Nonces NonceStore

	// NonceQuota is how many nonces of one owner ([KeyConfig]) are remembered at a time. An owner who has used up the quota is refused
	// (429 rate_limited, with Retry-After) until the first of these nonces is forgotten. Each verifier counts only what it has accepted
	// itself, so n processes that share a store allow n times as many. A nonce counts for a little longer than it is remembered, and
	// not at all if the store failed.
	//
	// Zero: a third of what is free of MaxNonces. One owner then gets at most a quarter of MaxNonces, and each further owner a quarter
	// of what the others have left: ten owners that take all they can leave a twentieth. MaxNonces/n gives each of n owners a share
	// that does not depend on the others.
	NonceQuota int

	// MaxNonces is how many nonces of all owners are remembered at a time, so that they leave room for other records in the same
	// store. Beyond it, every message is refused (503 store_unavailable). It must not exceed what Nonces has room for ([NonceStore]):
	// for core.Engine.Nonces, half of what an in-memory store holds. Each verifier counts its own nonces: divide MaxNonces among
	// verifiers that share an in-memory store. Zero: 524,288, or NonceQuota if that is more, but no more than Nonces has room for.
	MaxNonces int

	// Window is how far a timestamp may be behind or ahead of the verifier's clock, inclusive. It must be in whole seconds, and at
	// most an hour. Zero: what the scheme's specification says ([Demands]), or 60 s.
	Window time.Duration

	// Margin is how much longer a nonce is remembered than its timestamp is in the window. It must exceed the differences between the
	// clocks of the processes that share Nonces and, while you change Window, between their windows. It must be at most a day. Zero:
	// 30 s.
	Margin time.Duration

	// Hosts are the hosts that requests may be sent to, in upper or lower case, each with its port unless that is the default one. A
	// request for another host is refused ([CodeInvalid]). Empty: Host or, if that is empty too, any host. With any host, anyone who
	// relays a message that was signed for another service with the same key (for example staging) can use it here.
	Hosts []string

	// Host is the public host that clients sign, for a service behind a proxy that changes the Host field. Hosts must then name what
	// the proxy sends. Empty: clients sign the host that arrives here. A client whose URL has the default port must then leave the
	// port out, or set [RequestOptions].Host.
	Host string

	// BodyLimit is the length of the longest body that is read, in bytes. Zero: 1 MiB.
	BodyLimit int64

	// MaxHeaderLines and MaxHeaderBytes limit the size of the header, including method, target and host. Zero: 100 lines, 32 KiB.
	MaxHeaderLines, MaxHeaderBytes int

	// StoreTimeout is how long one call of Keys or Nonces may take, at most 10 minutes. Zero: 2 s, or no limit if the calls of Nonces
	// have their own.
	StoreTimeout time.Duration

	// Clock returns the current time. Nil: [time.Now].
	Clock func() time.Time

	// Observe is called with an event for each message, verified or refused. Calls are synchronous and concurrent, so it
	// must return quickly. Nil: no calls.
	Observe func(ctx context.Context, e Event)

	// Refuse returns the answer to a refused message, for services with their own error format. Show the client only the Code of e. If
	// Status is zero, the answer has the default status. If the answer is nil, the default answer is sent: application/problem+json
	// (RFC 9457). Every answer gets Idempotency-Refused and Cache-Control: no-store. Date, Retry-After and WWW-Authenticate are added
	// where they belong, unless Refuse has set them. ctx is the request's. Refuse may keep e, and must be safe for concurrent use.
	// Nil: the default answer.
	Refuse func(ctx context.Context, e *Error) *Answer
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
	maxSigningString    = 4 << 10
	maxEventText        = 256
	maxDetail           = 512
)

// Event describes one message, verified or refused, to [Config].Observe.
type Event struct {
	// Scheme is the name of the scheme.
	Scheme string
	// KeyID is the key id that the message names, cut to 256 bytes. It is empty if the message was refused before its key id was read.
	// Unless Err is nil, anyone may have sent it.
	KeyID string
	// Err is why the message was refused. Its Detail, which may quote the message, is cut to 512 bytes. Nil: it was verified.
	Err *Error
	// Method and Path are the message's, as sent, each cut to 256 bytes.
	Method, Path string
	// RemoteAddr is the peer's network address as "IP:port". Behind a proxy, it is the proxy's. Empty: unknown.
	RemoteAddr string
	// Elapsed is how long verification took, including the time to read the body.
	Elapsed time.Duration

	signingString func() string
}

// SigningString returns the verifier's signing string, without secrets and bodies, cut to 4 KiB. Compare it with the client's
// ([RequestOptions].Observe). It is empty if the message was refused before it was parsed, and once Observe has returned.
func (e Event) SigningString() string {
	if e.signingString == nil {
		return ""
	}
	return e.signingString()
}

// Verifier verifies messages: each must come from the holder of a key, unchanged, now, and for the first time. Build one with
// [NewVerifier]. It is safe for concurrent use.
type Verifier struct {
	c          Config
	behind     int64 // how far a timestamp may be behind, in seconds
	ahead      int64
	demands    Demands
	quota      *quota
	ownTimeout bool   // calls of Nonces get no deadline
	decoys     []*Key // one of each algorithm, for pad
}

// NewVerifier returns a verifier. It reports all errors of c at once, each as a [*ConfigError].
func NewVerifier(c Config) (*Verifier, error) {
	var errs configErrors
	errs.addIf(isNil(c.Keys), "Config.Keys", "is not set")
	errs.addIf(c.Scheme != nil && isNil(c.Scheme), "Config.Scheme", "is a nil %T", c.Scheme)
	errs.addIf(c.Nonces != nil && isNil(c.Nonces), "Config.Nonces", "is a nil %T", c.Nonces)
	errs.addIf(c.Window < 0 || c.Window > maxWindow || c.Window%time.Second != 0, "Config.Window",
		"is %v; whole seconds up to %v are allowed", c.Window, maxWindow)
	errs.addIf(c.Margin < 0 || c.Margin > maxMargin, "Config.Margin", "is %v; up to %v is allowed", c.Margin, maxMargin)
	errs.addIf(c.BodyLimit < 0, "Config.BodyLimit", "is negative: %d", c.BodyLimit)
	errs.addIf(c.MaxHeaderLines < 0, "Config.MaxHeaderLines", "is negative: %d", c.MaxHeaderLines)
	errs.addIf(c.MaxHeaderBytes < 0, "Config.MaxHeaderBytes", "is negative: %d", c.MaxHeaderBytes)
	errs.addIf(c.StoreTimeout < 0 || c.StoreTimeout > maxStoreTimeout, "Config.StoreTimeout",
		"is %v; up to %v is allowed", c.StoreTimeout, maxStoreTimeout)
	errs.addIf(c.NonceQuota < 0, "Config.NonceQuota", "is negative: %d", c.NonceQuota)
	errs.addIf(c.MaxNonces < 0, "Config.MaxNonces", "is negative: %d", c.MaxNonces)
	errs.addIf(c.NonceQuota > max(c.MaxNonces, 0) && c.MaxNonces != 0, "Config.NonceQuota",
		"is %d, and MaxNonces %d", c.NonceQuota, c.MaxNonces)
	room, ownTimeout := math.MaxInt, c.StoreTimeout == 0
	if !isNil(c.Nonces) {
		capacity, own := c.Nonces.Limits()
		room, ownTimeout = cmp.Or(capacity, room), ownTimeout && own
	}
	errs.addIf(c.NonceQuota > room, "Config.NonceQuota", "is %d, and Nonces has room for %d", c.NonceQuota, room)
	errs.addIf(c.MaxNonces > room, "Config.MaxNonces", "is %d, and Nonces has room for %d", c.MaxNonces, room)
	errs.addIf(c.Host != "" && !form.IsAuthority(c.Host), "Config.Host", "%q is not a host", c.Host)
	for _, host := range c.Hosts {
		errs.addIf(!form.IsAuthority(host), "Config.Hosts", "%q is not a host", host)
	}
	var d Demands
	if s, ok := c.Scheme.(DemandingScheme); ok && !isNil(c.Scheme) {
		d = s.Demands()
	}
	errs.addIf(d.Guard && !c.GuardedByKey, "Config.GuardedByKey",
		"is not set, but scheme %s leaves replays to a guard that requires the Idempotency-Key", nameOf(c.Scheme))
	errs.addIf(d.Behind != 0 && c.Window != 0, "Config.Window", "is %v, but scheme %s sets the window", c.Window, nameOf(c.Scheme))
	errs.addIf(d.Behind < 0 || d.Ahead < 0 || max(d.Behind, d.Ahead) > maxWindow, "Config.Scheme",
		"demands a window of %v and %v; up to %v is allowed", d.Behind, d.Ahead, maxWindow)
	if err := errs.err(); err != nil {
		return nil, err
	}
	c.Window = cmp.Or(c.Window, defaultWindow)
	c.Margin = cmp.Or(c.Margin, defaultMargin)
	c.BodyLimit = cmp.Or(c.BodyLimit, defaultBodyLimit)
	c.MaxHeaderLines = cmp.Or(c.MaxHeaderLines, defaultHeaderLines)
	c.MaxHeaderBytes = cmp.Or(c.MaxHeaderBytes, defaultHeaderBytes)
	c.StoreTimeout = cmp.Or(c.StoreTimeout, defaultStoreTimeout)
	c.Hosts = slices.Clone(c.Hosts)
	if len(c.Hosts) == 0 && c.Host != "" {
		c.Hosts = []string{c.Host}
	}
	if c.Scheme == nil {
		c.Scheme = standardV1
	}
	c.MaxNonces = cmp.Or(c.MaxNonces, min(room, max(defaultMaxNonces, c.NonceQuota)))
	if c.Nonces == nil {
		c.Nonces = &MemoryNonces{Max: c.MaxNonces}
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if d.Behind == 0 {
		d.Behind, d.Ahead = c.Window, c.Window
	}
	v := &Verifier{
		c: c, behind: int64(d.Behind / time.Second), ahead: int64(d.Ahead / time.Second), demands: d,
		ownTimeout: ownTimeout, decoys: newDecoys(),
	}
	v.quota = newQuota(c.NonceQuota, c.MaxNonces, v.behind+v.ahead+v.afterWindow()+1)
	return v, nil
}

// nameOf returns the name of a scheme, which may be nil.
func nameOf(s Scheme) string {
	if isNil(s) {
		return ""
	}
	return s.Name()
}

// isNil reports whether v is nil, or holds a nil pointer or function.
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

// Verify verifies m and uses up its nonce. Errors are of type [*Error]; [Verifier.Answer] returns the answer to one. ctx limits the
// calls of the key store and the nonce store.
//
// Verify checks in this order: size of the header, form of the signature, timestamp, key and algorithm, body, signature, nonce.
// Therefore a body is read only if the timestamp is in the window, unless the scheme reads it first (sign/sortedparams), and only a
// valid signature uses up a nonce. Guessing key ids reveals nothing: a message with an unknown key passes through the same steps as one
// with a bad signature.
func (v *Verifier) Verify(ctx context.Context, m *Message) (Verified, error) {
	s := signatures.Get().(*Signature)
	m.limit, m.host = v.c.BodyLimit, v.c.Host
	var key *Key
	var started time.Time
	if v.c.Observe != nil {
		started = time.Now()
	}
	err := v.verify(ctx, m, s, &key)
	if err != nil {
		err.Detail = cut(err.Detail, maxDetail)
	}
	if v.c.Observe != nil {
		v.observe(ctx, m, s, key, err, time.Since(started))
	}
	var verified Verified
	if err == nil {
		verified = Verified{
			KeyID: key.id, Owner: key.owner, Scheme: v.c.Scheme.Name(), Algorithm: key.algorithm,
			Consumed: cloneAll(s.Consumed),
		}
		if !s.NoTimestamp {
			verified.Time = time.Unix(s.Created, 0)
		}
		if !s.NoTimestamp && !s.NoNonce {
			verified.Nonce = strings.Clone(s.Nonce)
		}
		if strings.HasPrefix(verified.Nonce, s.EventID) {
			verified.EventID = verified.Nonce[:len(s.EventID)] // one copy for both
		} else {
			verified.EventID = strings.Clone(s.EventID)
		}
	}
	// After a panic the garbage collector takes it.
	s.reset()
	signatures.Put(s)
	if err != nil {
		return Verified{}, err // an error that holds a nil *Error is not nil
	}
	return verified, nil
}

// cloneAll copies strings that may share memory with a message.
func cloneAll(texts []string) []string {
	if len(texts) == 0 {
		return nil
	}
	own := make([]string, len(texts))
	for i, text := range texts {
		own[i] = strings.Clone(text)
	}
	return own
}

var signatures = sync.Pool{New: func() any { return new(Signature) }}

// maxScratch is the largest buffer that is kept for another message.
const maxScratch = 16 << 10

func (sig *Signature) reset() {
	values, covered, consumed, fields, scratch := sig.Values, sig.Covered, sig.Consumed, sig.fields, sig.scratch
	clear(values[:cap(values)])
	clear(covered[:cap(covered)])
	clear(consumed[:cap(consumed)])
	clear(fields[:cap(fields)])
	if cap(scratch) > maxScratch {
		scratch = nil
	}
	*sig = Signature{Values: values[:0], Covered: covered[:0], Consumed: consumed[:0], fields: fields[:0], scratch: scratch[:0]}
}

// maxEach is how many signatures of a message are tried, see Demands.
const maxEach = 4

// verify fixes the order of the checks.
func (v *Verifier) verify(ctx context.Context, m *Message, s *Signature, key **Key) *Error {
	if err := v.checkHeader(m); err != nil {
		return err
	}
	var several []Scheme
	if v.demands.Each != nil {
		several = v.demands.Each(m)
	}
	var now time.Time
	var err *Error
	switch {
	case len(several) > maxEach:
		return Errorf(CodeMalformed, "the message has %d signatures; %d are tried", len(several), maxEach)
	case len(several) > 0:
		now, err = v.authenticateEach(ctx, m, s, key, several)
	default:
		s.scheme = v.c.Scheme
		now, _, err = v.authenticate(ctx, m, s, key)
	}
	if err != nil {
		return err
	}
	s.NoNonce = s.NoNonce || v.c.GuardedByKey && s.EventID != ""
	if err := v.useNonce(ctx, s, *key, now); err != nil || v.demands.Finish == nil {
		return err
	}
	if err := v.demands.Finish(m); err != nil {
		return asError(err)
	}
	return nil
}

// authenticateEach tries the signatures of a message. With an error, s and key are those that it is about.
func (v *Verifier) authenticateEach(ctx context.Context, m *Message, s *Signature, key **Key, schemes []Scheme) (time.Time, *Error) {
	var first *Error
	best := 0 // of first: 1 for a signature that was parsed, 2 if it can't be said whether it is good
	for _, scheme := range schemes {
		own, k := &Signature{scheme: scheme}, (*Key)(nil)
		now, parsed, err := v.authenticate(ctx, m, own, &k)
		rank := 0
		switch {
		case err == nil:
			*s, *key = *own, k
			return now, nil
		case err.Code == CodeStoreUnavailable:
			rank = 2
		case parsed:
			rank = 1
		}
		if first == nil || rank > best {
			first, best, *s, *key = err, rank, *own, k
		}
	}
	return time.Time{}, first
}

// authenticate checks all but the nonce, and returns the time at which it has. parsed is true if the signature has the right form.
func (v *Verifier) authenticate(ctx context.Context, m *Message, s *Signature, key **Key) (at time.Time, parsed bool, _ *Error) {
	if err := s.scheme.Parse(m, s); err != nil {
		return at, false, asError(err)
	}
	now := v.c.Clock()
	if err := v.checkTime(s, now.Unix()); err != nil {
		return at, true, err
	}
	candidates, unknown := v.candidates(ctx, s, now)
	if unknown != nil && unknown.Code == CodeStoreUnavailable {
		return at, true, unknown
	}
	if _, err := m.Body(); err != nil {
		return at, true, asError(err)
	}
	if v.demands.QuotaFirst && len(candidates) > 0 {
		if err := v.quota.check(candidates[0].owner, now.Unix()); err != nil {
			return at, true, err
		}
	}
	var err *Error
	*key, err = v.checkSignature(m, s, candidates)
	switch {
	case unknown != nil:
		return at, true, unknown
	case err != nil:
		return at, true, err
	}
	later := v.c.Clock()
	if _, cheap := v.c.Keys.(*Ring); cheap || later.Unix() != now.Unix() {
		err = v.checkAgain(ctx, m, s, *key, later)
	}
	return later, true, err
}

// checkAgain checks timestamp and key once more after the body has arrived. Whoever holds back its last byte must not get the
// message accepted after its timestamp has left the window and its nonce is forgotten, or after its key was revoked. A [Ring]
// is asked each time; another store, which may be far away, only if a second has passed.
func (v *Verifier) checkAgain(ctx context.Context, m *Message, s *Signature, key *Key, now time.Time) *Error {
	if err := v.checkTime(s, now.Unix()); err != nil {
		return err
	}
	candidates, err := v.candidates(ctx, s, now)
	if err == nil && !slices.Contains(candidates, key) { // it was removed, or the source has made it anew
		s.tries = 0
		_, err = v.checkSignature(m, s, candidates)
	}
	return err
}

func (v *Verifier) checkHeader(m *Message) *Error {
	lines, bytes := m.Source.HeaderSize()
	bytes += len(m.Method) + len(m.Target) + len(m.Host)
	if lines > v.c.MaxHeaderLines || bytes > v.c.MaxHeaderBytes {
		return Errorf(CodeMalformed, "request line and header have %d lines and %d bytes; %d and %d are allowed", lines, bytes,
			v.c.MaxHeaderLines, v.c.MaxHeaderBytes)
	}
	host, lines := m.Field("Host")
	if lines > 1 {
		return Errorf(CodeDuplicateHeader, "Host")
	}
	// A target has no fragment (RFC 9112, section 3.2). Some servers cut one off, others don't.
	if !form.IsToken(m.Method) || !form.IsLine(m.Target) || strings.Contains(m.Target, "#") {
		return Errorf(CodeMalformed, "the request line has forbidden characters")
	}
	authority := m.sentTo()
	if !form.IsAuthority(authority) {
		return Errorf(CodeMalformed, "the request names no host")
	}
	// Routers differ in which one they use.
	if m.Host != "" && !sameHost(m.Host, authority) || lines == 1 && host != "" && !sameHost(host, authority) {
		return Errorf(ReasonBadTarget, "target, Host and :authority name different hosts")
	}
	if len(v.c.Hosts) > 0 && !slices.ContainsFunc(v.c.Hosts, func(h string) bool { return sameHost(h, authority) }) {
		return Errorf(&Error{Code: CodeInvalid, Reason: ReasonBadTarget}, "it was sent to %q, which Config.Hosts does not name", authority)
	}
	return nil
}

// sameHost reports whether two hosts are the same. Most are spelled alike.
func sameHost(a, b string) bool { return a == b || strings.EqualFold(a, b) }

// checkTime compares whole seconds, so a message that is exactly Window old is in the window.
func (v *Verifier) checkTime(s *Signature, now int64) *Error {
	switch {
	case s.NoTimestamp && s.Expires == 0:
	case !s.NoTimestamp && s.Created < now-v.behind:
		return Errorf(CodeExpired, "it was signed %d seconds ago", now-s.Created)
	case !s.NoTimestamp && s.Created > now+v.ahead:
		return Errorf(CodeNotYetValid, "it was signed %d seconds ahead of this clock", s.Created-now)
	case s.Expires != 0 && now > s.Expires:
		return Errorf(CodeExpired, "it has expired %d seconds ago", now-s.Expires)
	}
	return nil
}

// candidates returns the keys to try. If there is none, the error says why.
func (v *Verifier) candidates(ctx context.Context, s *Signature, now time.Time) ([]*Key, *Error) {
	why := error(ReasonUnknownKey)
	keys, err := v.keys(ctx, s)
	if err != nil {
		if !errors.Is(err, CodeInvalid) {
			return nil, Errorf(ReasonKeysUnavailable, "the key could not be looked up: %w", err)
		}
		keys, why = nil, err
	}
	live, all := 0, true
	for _, k := range keys {
		switch {
		case k == nil:
			all = false
		case k.valid(now) != nil:
			all, why = false, k.valid(now)
		default:
			live++
		}
	}
	switch {
	case live == 0:
		return nil, asError(why)
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

// algorithmNamed returns the algorithm that a message names, by its name in RFC 9421 or by a tag of [NewV1], or "".
func algorithmNamed(name string) Algorithm {
	switch a := Algorithm(name); a {
	case HMACSHA256, Ed25519, ECDSAP256SHA256, RSAPSSSHA512:
		return a
	case tagHMAC:
		return HMACSHA256
	case tagEd25519:
		return Ed25519
	}
	return ""
}

// pad makes refusals take the same work whether their key is known or not, and whatever its algorithm. For each algorithm that
// the message may be signed with, and that no candidate has, it checks the signature with a key that nobody has, and drops the
// result. Only two live keys of one id and algorithm take one check more.
func (v *Verifier) pad(m *Message, s *Signature, candidates []*Key) {
	for _, decoy := range v.decoys {
		if named := algorithmNamed(s.Algorithm); named != "" && named != decoy.algorithm {
			continue
		}
		if !slices.ContainsFunc(candidates, func(k *Key) bool { return k.algorithm == decoy.algorithm }) {
			_ = s.scheme.Check(m, s, decoy)
		}
	}
}

func (v *Verifier) keys(ctx context.Context, s *Signature) ([]*Key, error) {
	if r, ok := v.c.Keys.(*Ring); ok {
		return r.Keys(ctx, s.KeyID)
	}
	ctx, cancel := context.WithTimeout(ctx, v.c.StoreTimeout)
	defer cancel()
	if at, ok := v.c.Keys.(URLKeyStore); ok && s.KeyURL != "" {
		return at.KeysAt(ctx, s.KeyURL, s.KeyID)
	}
	return v.c.Keys.Keys(ctx, s.KeyID)
}

// checkSignature returns the candidate that has signed. With an error it returns the first candidate, or nil.
func (v *Verifier) checkSignature(m *Message, s *Signature, candidates []*Key) (*Key, *Error) {
	var first error
	for _, k := range candidates {
		err := s.scheme.Check(m, s, k)
		if err == nil {
			return k, nil
		}
		if first == nil {
			first = err
		}
	}
	v.pad(m, s, candidates)
	if len(candidates) == 0 {
		return nil, asError(ReasonUnknownKey)
	}
	return candidates[0], asError(first)
}

// useNonce uses up the nonce. It is remembered until its timestamp has left the window by the clock of every process that
// shares the store. Created + Window is the last second in which the message is accepted. The time between that check and the
// end of this step can be that of one call of Keys and one of Nonces.
func (v *Verifier) useNonce(ctx context.Context, s *Signature, key *Key, now time.Time) *Error {
	switch {
	case (s.NoTimestamp || s.NoNonce) && s.EventID == "":
		return Errorf(CodeInvalid, "scheme %s has set no EventID for a message without a nonce", v.c.Scheme.Name())
	case s.NoTimestamp || s.NoNonce:
		return nil
	case s.Nonce == "":
		return Errorf(CodeInvalid, "scheme %s has set no Nonce", v.c.Scheme.Name())
	}
	last := s.Created + v.behind + 1
	ttl := time.Duration(last)*time.Second - time.Duration(now.UnixNano()) + v.c.Margin + 2*v.c.StoreTimeout
	slot, refused := v.quota.take(key.owner, now.Unix(), last+v.afterWindow())
	if refused != nil {
		return refused
	}
	if !v.ownTimeout {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, v.c.StoreTimeout)
		defer cancel()
	}
	unused, err := v.c.Nonces.Use(ctx, key.nonceID(), s.Nonce, ttl)
	// A replay does not count, or whoever replays another owner's message would use up that owner's quota.
	v.quota.finish(key.owner, slot, err == nil && unused)
	switch {
	case err != nil:
		return Errorf(CodeStoreUnavailable, "the nonce could not be looked up: %w", err)
	case !unused:
		return asError(CodeReplayed)
	}
	return nil
}

// nonceID returns the id that tells the nonces of the key from those of others.
func (k *Key) nonceID() string {
	if keys.Of(k).Published {
		return k.thumbprint
	}
	return k.id
}

// afterWindow is how many seconds a nonce is remembered after its timestamp has left the window.
func (v *Verifier) afterWindow() int64 {
	return int64((v.c.Margin + 2*v.c.StoreTimeout + time.Second - 1) / time.Second)
}

// cut returns a copy of what anybody may have sent, for a log.
func cut(text string, bytes int) string { return strings.Clone(text[:min(len(text), bytes)]) }

func (v *Verifier) observe(ctx context.Context, m *Message, s *Signature, key *Key, err *Error, took time.Duration) {
	e := Event{
		Scheme: v.c.Scheme.Name(), KeyID: cut(s.KeyID, maxEventText), Err: err, Elapsed: took,
		Method: cut(m.Method, maxEventText), Path: cut(m.Path(), maxEventText), RemoteAddr: strings.Clone(m.Source.RemoteAddr()),
	}
	var mu sync.Mutex
	over := false
	if s.KeyID != "" {
		e.signingString = func() string {
			mu.Lock()
			defer mu.Unlock()
			if over {
				return "" // the message's memory belongs to another request now
			}
			text := s.scheme.SigningString(m, s, key)
			if len(text) > maxSigningString {
				text = cut(text, maxSigningString) + "[cut off]"
			}
			return text
		}
	}
	v.c.Observe(ctx, e)
	mu.Lock()
	defer mu.Unlock()
	over = true
}
