package core

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"html/template"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/core/internal/canon"
	"github.com/idem-go/idem/core/store"
)

// Where a token is read from.
const (
	TokenHeader = "X-Idempotency-Token" // header field
	TokenField  = "idempotency_token"   // field of a form, and parameter of a query
)

const (
	// defaultTokenLifetime is how long after its issue a token may be used for the first time.
	defaultTokenLifetime = 5 * time.Minute

	// tokenMargin is how much longer than its token a record is kept, because the clocks of two servers
	// may differ.
	tokenMargin      = 5 * time.Minute
	maxTokenLifetime = 365 * 24 * time.Hour

	tokenVersion = "t1."
	tokenExpiry  = 6 // bytes: milliseconds since 1970
	tokenID      = 16
	tokenSigned  = tokenExpiry + tokenID
	tokenBytes   = tokenSigned + sha256.Size
	tokenLength  = len(tokenVersion) + tokenBytes/3*4
)

// TokenConfig configures [Tokens]. The zero TokenConfig is for a single process.
type TokenConfig struct {
	// Secrets are the keys of the HMAC, of at least 32 random bytes each; one byte repeated is refused. Tokens are issued with the
	// first, and checked with all of them. All processes of a service need the same secrets. None: a random one, which requires an
	// in-process store.
	//
	// To rotate, append the new secret. When all processes have it, move it to the front (before that, other processes would refuse
	// its tokens). Remove the old one when the records of its tokens have expired ([Record].Retention).
	Secrets [][]byte `json:"-"`

	// Lifetime is how long after its issue a token may be used for the first time. Zero: 5 minutes; at most 365 days. If you
	// shorten Lifetime, older tokens that would outlive the record of their use are refused as expired until they have less time
	// left.
	Lifetime time.Duration

	// Limit limits how many tokens a user gets. [Guard.NewToken] calls it before it issues one. A retryAfter greater than zero
	// refuses the request with 429 rate_limited and that Retry-After. An error refuses it with 503 store_unavailable. Limit must be
	// safe for concurrent use. Nil: no limit.
	//
	// user.ID is the user part of stored keys. Users of different sources have different IDs, and a credential is a hash. Under
	// [SharedByAllCallers] all callers are one user, with an empty ID.
	Limit func(ctx context.Context, user User) (retryAfter time.Duration, err error) `json:"-"`

	// FromQuery also reads the token from a query parameter. Queries appear in logs, histories and Referer fields.
	FromQuery bool
}

// Format implements [fmt.Formatter]. Every verb prints the number of secrets, and not the secrets. But fmt calls no method for %p
// and %w, nor for a TokenConfig in an unexported field of a struct: these print all of it.
func (c TokenConfig) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "{Secrets:%d Lifetime:%v FromQuery:%t}", len(c.Secrets), c.Lifetime, c.FromQuery)
}

// Tokens issues and checks one-shot tokens, for guards whose key is [Token]. It is safe for concurrent use, by any number of
// guards.
//
// A token is a permit to do one thing once, for clients that make no keys. It is bound to a user and to a purpose, the policy's
// Name. It can't be guessed, and expires. It is self-contained: issuing writes nothing anywhere. The record of its use makes it
// work only once. So all guards of one purpose, in all processes, need one store and one [Config].Service. Otherwise the token
// works once in each.
//
// A token does not protect against cross-site requests: mount [net/http.CrossOriginProtection], or an equivalent, as well.
//
//	"t1." base64url( expiry(6) id(16) HMAC-SHA256(32) )
//
// The expiry is in milliseconds since 1970, big-endian. The HMAC is that of "idem t1", 0x00, expiry, id, the user's length as a
// uvarint, the user as in the key, and the purpose.
type Tokens struct {
	secrets   []*tokenSecret
	lifetime  time.Duration
	limit     func(context.Context, User) (time.Duration, error)
	fromQuery bool
	random    bool // the secret is known to this process only
}

// NewTokens returns an issuer. It reports every fault of c at once, each as a *[ConfigError].
func NewTokens(c TokenConfig) (*Tokens, error) {
	f := faults{of: "TokenConfig"}
	f.addIf(c.Lifetime < 0 || c.Lifetime > maxTokenLifetime, "Lifetime",
		"is %v; it must be positive, and at most %v", c.Lifetime, maxTokenLifetime)
	for i, secret := range c.Secrets {
		f.addSecret("Secrets", fmt.Sprintf("the one at %d ", i), secret)
		f.addIf(slices.ContainsFunc(c.Secrets[:i], func(other []byte) bool { return bytes.Equal(other, secret) }),
			"Secrets", "the one at %d is there twice", i)
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	setDefault(&c.Lifetime, defaultTokenLifetime)
	t := &Tokens{lifetime: c.Lifetime, limit: c.Limit, fromQuery: c.FromQuery, random: len(c.Secrets) == 0}
	if t.random {
		secret := make([]byte, minSecret)
		_, _ = rand.Read(secret) // never fails
		c.Secrets = [][]byte{secret}
	}
	for _, secret := range c.Secrets {
		t.secrets = append(t.secrets, newTokenSecret(bytes.Clone(secret)))
	}
	return t, nil
}

// MustTokens is [NewTokens] for a configuration that is fixed in the program. It panics with the faults.
func MustTokens(c TokenConfig) *Tokens {
	t, err := NewTokens(c)
	if err != nil {
		panic(err)
	}
	return t
}

// Token takes the key from a token that t has issued for the user and for the policy's Name, which is required. The token is read
// from the header field X-Idempotency-Token; otherwise from the form field idempotency_token; otherwise, under
// [TokenConfig].FromQuery, from the query parameter of that name. The parameters become the fingerprint, as for [Header], except
// those called idempotency_token.
//
// An expired token is refused only on its first use: while its record is kept, a user who submits again gets the receipt. So the
// policy's Retention and RememberAbandoned must outlast the token's lifetime by 5 minutes; by default they do.
func Token(t *Tokens, options ...Option) KeySource {
	k := &tokenKey{tokens: t}
	k.field, k.path = TokenHeader, TokenField
	for _, o := range options {
		o(&k.parameters)
	}
	return KeySource{source: k}
}

// tokenKey is the source of [Token].
type tokenKey struct {
	parameters
	tokens *Tokens
}

// TokenInput returns the hidden input element with token for an HTML form, for html/template. The element forbids browsers to
// restore its value when the page is reloaded: they would put the used token into the new form.
func TokenInput(token string) template.HTML {
	return template.HTML(`<input type="hidden" name="` + TokenField +
		`" value="` + template.HTMLEscapeString(token) + `" autocomplete="off">`)
}

// NewToken issues a token for the user of r. An error is a *[Refusal]: user_missing, rate_limited, or store_unavailable if
// [TokenConfig].Limit has failed. NewToken panics if the guard's key is not a [Token].
//
// With the Request of a token_expired refusal ([Config.Refuse]) it renews the expired token, if g has issued that one to this user:
// the new one has the same id, so both are one permit. When one of them has been used, the other gets the first answer. Every other
// request gets a token of its own.
//
// The answer that contains the token is for this user and this visit. A page needs Cache-Control: private, no-cache, so that the
// browser's Back shows the form with its own token. Other answers need no-store.
func (g *Guard) NewToken(ctx context.Context, r *Request) (string, error) {
	g.mustUseTokens()
	t := g.tokens()
	q := *r
	if q.Caller == "" {
		q.Caller, _, _ = callerFrom(ctx)
	}
	if q.Headers == nil {
		q.Headers = noHeaders{}
	}
	user, err := g.findUser(&q)
	if err != nil || user.ID == "" && !user.Shared {
		return "", refusalUserMissing.because(err)
	}
	who := appendUser(nil, user)
	if t.limit != nil {
		retryAfter, err := t.limit(ctx, User{ID: string(who), Shared: user.Shared})
		if err != nil {
			refused := NewRefusal(codes.StoreUnavailable, err)
			refused.Detail = "Nothing was carried out, because the rate limit cannot be checked at the moment. Try again later."
			return "", refused
		}
		if retryAfter > 0 {
			refused := NewRefusal(codes.RateLimited, nil)
			refused.RetryAfter = retryAfter
			return "", refused
		}
	}
	return t.issue(who, g.policy.Name, r.Expired), nil
}

// ServeTokens returns the function that an adapter serves. It answers an exchange with a new token, {"token":"t1.…"}, or with a
// refusal. ctx is the request's context. ServeTokens panics if the guard's key is not a [Token].
func (g *Guard) ServeTokens() func(ctx context.Context, x adapter.Exchange) error {
	g.mustUseTokens()
	return g.serveToken
}

func (g *Guard) mustUseTokens() {
	if g.tokens() == nil {
		panic("idem: the key of the policy " + quote(g.policy.Name) + " is no Token: there is nothing to issue")
	}
}

func (g *Guard) serveToken(ctx context.Context, x adapter.Exchange) error {
	var r Request
	fill(ctx, &r, x)
	token, err := g.NewToken(ctx, &r)
	if refused := reported(err); refused != nil {
		g.observe(ctx, Event{Kind: Refused, Route: endpoint(&r), Status: refused.Status, Code: refused.Code, Err: refused.cause})
		return x.Answer(g.response(ctx, refused, &r))
	}
	answer := Response{Status: 200, Header: []Field{
		{Name: "Content-Type", Value: "application/json"}, {Name: "Cache-Control", Value: "no-store"}}}
	answer.Body = []byte(`{"token":"` + token + `"}`) // nothing of it needs an escape
	return x.Answer(&answer)
}

// issue makes a token for user, as it is in a key, and purpose. It has the id of expired, if that is
// such a token.
func (t *Tokens) issue(user []byte, purpose, expired string) string {
	var k, old token
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(time.Now().Add(t.lifetime).UnixMilli()))
	copy(k.raw[:], ms[8-tokenExpiry:])
	if id := k.raw[tokenExpiry:tokenSigned]; expired != "" && t.check(&old, expired, user, purpose) {
		copy(id, old.raw[tokenExpiry:])
	} else {
		_, _ = rand.Read(id) // never fails
	}
	m := t.secrets[0].mac(k.raw[:tokenSigned], user, purpose)
	copy(k.raw[tokenSigned:], m.sum)
	t.secrets[0].macs.Put(m)
	return k.String()
}

// token is a token without its version: expiry, id and HMAC.
type token struct{ raw [tokenBytes]byte }

// String returns the token as it is sent.
func (k *token) String() string {
	return string(base64.RawURLEncoding.AppendEncode(append(make([]byte, 0, tokenLength), tokenVersion...), k.raw[:]))
}

func (k *token) expiry() time.Time {
	var ms [8]byte
	copy(ms[8-tokenExpiry:], k.raw[:])
	return time.UnixMilli(int64(binary.BigEndian.Uint64(ms[:])))
}

// check reads sent into k. It reports false if it was not issued for user, as it is in a key, and
// purpose.
func (t *Tokens) check(k *token, sent string, user []byte, purpose string) bool {
	encoded, ok := strings.CutPrefix(sent, tokenVersion)
	if !ok || len(sent) != tokenLength {
		return false
	}
	// The decoder skips line feeds: then fewer bytes come out. No other text stands for the same ones, for
	// no character has bits to spare.
	if n, err := base64.RawURLEncoding.Decode(k.raw[:], append(make([]byte, 0, tokenLength), encoded...)); err != nil || n != tokenBytes {
		return false
	}
	return t.signed(k, user, purpose)
}

// signed reports whether k was issued for user and purpose.
func (t *Tokens) signed(k *token, user []byte, purpose string) bool {
	return slices.ContainsFunc(t.secrets, func(s *tokenSecret) bool {
		m := s.mac(k.raw[:tokenSigned], user, purpose)
		defer s.macs.Put(m)
		return hmac.Equal(m.sum, k.raw[tokenSigned:])
	})
}

// tokenSecret makes the HMACs of one secret.
type tokenSecret struct{ macs sync.Pool }

type tokenMAC struct {
	hash.Hash
	text []byte
	sum  []byte
}

func newTokenSecret(secret []byte) *tokenSecret {
	return &tokenSecret{sync.Pool{New: func() any { return &tokenMAC{Hash: hmac.New(sha256.New, secret)} }}}
}

// mac returns an HMAC. The caller puts it back into macs after it has used the sum.
func (s *tokenSecret) mac(signed, user []byte, purpose string) *tokenMAC {
	m := s.macs.Get().(*tokenMAC)
	m.text = append(append(m.text[:0], "idem t1\x00"...), signed...)
	m.text = append(binary.AppendUvarint(m.text, uint64(len(user))), user...)
	m.text = append(m.text, purpose...)
	m.Reset()
	m.Write(m.text)
	m.sum = m.Sum(m.sum[:0])
	return m
}

// outlasting is how long a record must be kept to outlast its token.
func (t *Tokens) outlasting() time.Duration { return t.lifetime + tokenMargin }

// derive makes the key of the token, and of its purpose in place of the route.
func (k *tokenKey) derive(f *httpOperation) identity {
	refused, err := f.findUser()
	if refused != nil {
		return identity{refusal: refused, cause: err}
	}
	g, r, t := f.guard, &f.req, k.tokens
	who := appendUser(make([]byte, 0, 96), f.user)
	var id token
	sent, lines := r.Headers.Header(TokenHeader, 0)
	if lines > 1 {
		return identity{refusal: refusalTokenInvalid}
	}
	if sent != "" && !t.check(&id, sent, who, g.policy.Name) {
		return identity{refusal: refusalTokenInvalid}
	}
	if refused, err = f.readBody(); refused != nil {
		return identity{refusal: refused, cause: err}
	}
	if sent == "" {
		if sent = f.sentToken(t.fromQuery); sent == "" {
			return identity{refusal: refusalTokenMissing}
		}
		if !t.check(&id, sent, who, g.policy.Name) {
			return identity{refusal: refusalTokenInvalid}
		}
	}
	in := f.parameters()
	// The key does not name the route: under another one it is another request. No header field has such a name.
	in.Header = append(in.Header, adapter.Pair{Name: ":method", Value: r.Method}, adapter.Pair{Name: ":route", Value: r.Route})
	f.counted = in.Header
	key := append(f.scratch[:0], g.engine.prefix...)
	key = append(key, "U=M="...)
	key = appendPart(key, g.policy.Name)
	key = append(key, "T="...)
	key = base64.RawURLEncoding.AppendEncode(key, id.raw[tokenExpiry:tokenSigned])
	found := f.withFingerprint(key, &in)
	left := time.Until(id.expiry())
	if found.expired = left <= 0 || left > min(g.policy.Retention, g.policy.RememberAbandoned); found.expired {
		r.Expired = id.String()
	}
	return found
}

// An expired token goes on with what was begun in time, and begins nothing: the next four functions see to that. Whether
// there is such a thing, its claim finds out.

// expiredUse is the fingerprint of a claim that only finds out whether an expired token has been used
// before. It is no digest. A record that the claim leaves behind is never taken over; it is forgotten when
// its lease has passed (those of version 0.1.0, after RememberAbandoned).
const expiredUse = "expired"

// beginNothing makes the claim of an expired token one that takes over nothing unasked. If it can't be released, it must
// not pass for a run that was begun, and is valid for its lease only, because the token may be renewed.
func (c *claimant) beginNothing() {
	if c.id.expired {
		c.claim.Takeover, c.claim.Fingerprint, c.claim.Raw, c.claim.Retention = false, expiredUse, 0, 0
	}
}

// goOn makes the claim of an expired token that of a run, if a free record has kept the operation: that had its token in time.
// If it has kept another one, a claim would end that, or forget the number of its attempt: goOn returns what is found in its place.
func (c *claimant) goOn(ctx context.Context) (found store.Grant, err error) {
	e := c.guard.engine
	if !c.id.expired || c.claim.Attempt != 0 || e.can.Fail == nil || e.can.Inspect == nil {
		return found, nil
	}
	ctx, cancel := e.storeContext(ctx)
	defer cancel()
	r, err := e.can.Inspect.Lookup(ctx, c.id.key.raw)
	switch {
	case errors.Is(err, store.ErrNoRecord):
		return found, nil
	case err != nil || r.State != store.Free:
		return found, err
	case r.ID != (store.ID{}) && r.Fingerprint == c.id.fingerprint:
		c.forRun()
		return found, nil
	}
	return store.Grant{State: store.Running, ID: r.ID, Fingerprint: expiredUse}, nil
}

// tokenExpired reports whether an expired token was not used in time, or its claim has left its record behind.
func (c *claimant) tokenExpired(grant store.Grant) bool {
	if grant.State == store.Acquired {
		return c.id.expired && (grant.Attempt == 1 || grant.Free && grant.ID == c.claim.ID)
	}
	return c.ofExpiredUse(grant) && (c.id.expired || grant.State != store.Running) // a running one may be released soon
}

// ofExpiredUse reports whether a record that is there is the claim of an expired token. (A task may have the same fingerprint.)
func (c *claimant) ofExpiredUse(grant store.Grant) bool {
	return grant.Fingerprint == expiredUse && !c.guard.task
}

// sentToken returns the token of a request whose body has been read, and which has none in its header.
// The canonical text of this one field is its name and value: a token holds nothing that is escaped, and
// a field that was sent twice is no token.
func (f *httpOperation) sentToken(fromQuery bool) string {
	r := &f.req
	const inForm, inQuery = "body:" + TokenField + "=", TokenField + "="
	in := canon.Input{ContentType: r.ContentType, ContentEncoding: r.ContentEncoding}
	if !canon.IsJSON(r.ContentType) { // which is no form, and costs time to read
		in.Body = r.Body
	}
	f.scratch, _ = onlyToken.AppendCanonical(f.scratch[:0], &in)
	token, ok := bytes.CutPrefix(f.scratch, []byte(inForm))
	if !ok && fromQuery {
		f.scratch, _ = onlyToken.AppendCanonical(f.scratch[:0], &canon.Input{RawQuery: r.RawQuery})
		token, _ = bytes.CutPrefix(f.scratch, []byte(inQuery))
	} else if !ok {
		return ""
	}
	return string(token)
}

var onlyToken = canon.Rules{Select: mustCompile(TokenField)}

func mustCompile(path string) *canon.Paths {
	p, err := canon.CompilePaths([]string{path})
	if err != nil {
		panic(err)
	}
	return p
}

func (k *tokenKey) compile(g *Guard, f *faults) {
	p, t := &g.policy, k.tokens
	g.compileParameters(f, &k.parameters)
	f.addIf(p.Name == "", "Name", "is empty; it is the purpose to which a token is bound")
	f.addIf(p.OnSuccess == Release, "OnSuccess", "is Release: a token would work more than once (Run.Release releases a single run)")
	if t == nil {
		f.add("Key", "Token was given no Tokens")
		return
	}
	const why = "is %v: a token could be used again once its record is forgotten; at least %v is needed, its lifetime and 5 minutes"
	f.addIf(p.Retention > 0 && p.Retention < t.outlasting(), "Retention", why, p.Retention, t.outlasting())
	f.addIf(p.RememberAbandoned > 0 && p.RememberAbandoned < t.outlasting(), "RememberAbandoned", why, p.RememberAbandoned, t.outlasting())
	f.addIf(t.random && !g.engine.can.InProcess, "Key",
		"is a Token with a random secret: processes that share the store could not check its tokens; set TokenConfig.Secrets")
}

func (k *tokenKey) defaults(p *Policy) {
	setDefault(&p.Retention, max(defaultKeyRetention, k.tokens.outlasting()))
	setDefault(&p.RememberAbandoned, max(defaultRememberAbandoned, k.tokens.outlasting()))
	p.failsBy(FailedByAnyError)
}
