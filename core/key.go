package core

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/internal/canon"
	"github.com/idem-go/idem/core/store"
)

// Key is the identity of an operation, as stored. It may name a user, so it prints as a short digest: with package fmt and every
// verb except %p, with log/slog, and as JSON, even as the key of a map. [Key.Raw] is the whole key. Equal keys are ==. The zero Key
// is no key, and prints as nothing.
//
// Package fmt can't call the methods of an unexported field: a struct that has a Key in one, and is printed whole, shows the whole
// key.
type Key struct{ raw string }

// Raw returns the key as the store has it. Do not log it.
func (k Key) Raw() string { return k.raw }

// String returns the first 16 hexadecimal digits of the key's SHA-256 digest.
func (k Key) String() string {
	if k.raw == "" {
		return ""
	}
	return canon.Digest(k.raw)
}

// Format implements [fmt.Formatter]: it formats what String returns, whatever the verb.
func (k Key) Format(f fmt.State, verb rune) { fmt.Fprintf(f, fmt.FormatString(f, verb), k.String()) }

// MarshalText implements [encoding.TextMarshaler]: it returns what String returns.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// identity is which operation a request is for.
type identity struct {
	key         Key
	fingerprint string
	other       string       // the fingerprint as it is with, or without, a Config.Seal; empty: it does not count
	raw         uint64       // see store.Claim
	done        *store.Grant // the finished record, if it has been found already
	expired     bool         // the key is a token that is too old for a first use
	refusal     *Refusal
	cause       error // behind the refusal
	pass        bool  // no key was sent, and none is needed

	route   string   // for events; empty if nobody observes
	request *Request // nil for a task
	forgets bool     // the operation leaves no record if it succeeds
}

func (f *httpOperation) identify() identity {
	id := f.derive()
	id.request, id.forgets = &f.req, f.guard.forgets && isIdempotent(f.req.Method)
	if f.guard.engine.observer != nil { // it is for events only
		id.route = endpoint(&f.req)
	}
	return id
}

// Key derives the key and the fingerprint of a request as [Guard.Serve] would, without calling the store. r has its Body filled in,
// and its Caller and Consumed if a verifier has set them. The error is a *[Refusal]. A request that needs no key and has none has
// the zero Key.
func (g *Guard) Key(r *Request) (key Key, fingerprint string, err error) {
	f := httpOperations.Get().(*httpOperation)
	own := f.req.PathParams
	f.req = *r
	f.req.PathParams = append(own, r.PathParams...) // reset clears it
	if f.req.Headers == nil {
		f.req.Headers = noHeaders{}
	}
	f.guard = g.of(&f.req)
	id := f.derive()
	f.reset()
	httpOperations.Put(f)
	if id.refusal != nil {
		return Key{}, "", id.refusal.because(id.cause)
	}
	return id.key, id.fingerprint, nil
}

type noHeaders struct{}

func (noHeaders) Header(string, int) (string, int) { return "", 0 }

// derive makes key and fingerprint.
func (f *httpOperation) derive() identity {
	if f.req.Preforked && f.guard.engine.can.InProcess {
		return identity{refusal: refusalNotShared, cause: errPreforked}
	}
	return f.guard.source.derive(f)
}

func (k *paramsKey) derive(f *httpOperation) identity {
	if refused, err := f.read(); refused != nil {
		return identity{refusal: refused, cause: err}
	}
	g, in := f.guard, f.parameters()
	key := append(g.appendOperation(f.scratch[:0], f.user, f.req.Method, f.req.Route), "P="...)
	key, info := g.identity.AppendDigest(key, &in)
	f.scratch = key
	if len(k.fields) > 0 && info.Selected == 0 {
		return identity{refusal: refusalKeyMissing}
	}
	// The parameters are in the key: there is nothing left to compare.
	return identity{key: Key{string(key)}, done: f.recall(key, 0)}
}

func (k *headerKey) derive(f *httpOperation) identity {
	r := &f.req
	field, lines := r.Headers.Header(k.field, 0)
	switch {
	case lines == 0 && k.presence == Optional:
		if f.guard.user.caller && r.Caller == "" {
			return identity{refusal: refusalUserMissing, cause: ErrNoUser}
		}
		return identity{pass: true}
	case lines == 0:
		return identity{refusal: refusalKeyMissing}
	case lines > 1:
		return identity{refusal: refusalKeyInvalid, cause: canon.ErrKeyList}
	}
	key, err := canon.ParseClientKey(field)
	if err != nil {
		return identity{refusal: refusalKeyInvalid, cause: err}
	}
	if k.echo {
		f.echo[0] = Field{Name: k.field, Value: strings.Clone(field)}
	}
	if refused, err := f.read(); refused != nil {
		return identity{refusal: refused, cause: err}
	}
	return k.chosen(f, key)
}

func (k *funcKey) derive(f *httpOperation) identity {
	if refused, err := f.read(); refused != nil {
		return identity{refusal: refused, cause: err}
	}
	key, err := k.fn(&f.req)
	switch {
	case err != nil:
		return identity{refusal: refusalKeyInvalid, cause: err}
	case len(key) > canon.MaxClientKey:
		return identity{refusal: refusalKeyInvalid, cause: canon.ErrKeyTooLong}
	case key == "" && k.presence == Optional:
		return identity{pass: true}
	case key == "":
		return identity{refusal: refusalKeyMissing}
	}
	return k.chosen(f, key)
}

// chosen is the identity of a key that somebody has chosen for an operation of its user and route.
func (k *chosenKey) chosen(f *httpOperation, chosen string) identity {
	if k.valid != nil && !k.valid(chosen) {
		return identity{refusal: refusalKeyInvalid, cause: errCheckedKey}
	}
	in := f.parameters()
	key := f.guard.appendOperation(f.scratch[:0], f.user, f.req.Method, f.req.Route)
	if k.scope != nil {
		key = appendScope(key, k.scope(&f.req))
	}
	return f.withFingerprint(appendPart(append(key, "K="...), chosen), &in)
}

// derive makes the key of the event's id and the policy's name. The route is not a part of it, so that it needs no pattern.
func (*eventKey) derive(f *httpOperation) identity {
	if refused, err := f.read(); refused != nil {
		return identity{refusal: refused, cause: err}
	}
	event := f.req.CallerEvent
	switch {
	case event == "":
		return identity{refusal: refusalKeyMissing}
	case len(event) > canon.MaxClientKey:
		return identity{refusal: refusalKeyInvalid, cause: canon.ErrKeyTooLong}
	}
	in := f.parameters()
	key := appendPart(f.guard.appendBeginning(f.scratch[:0], f.user), f.guard.policy.Name)
	return f.withFingerprint(appendPart(append(key, "E="...), event), &in)
}

// read finds the user, and then reads the body.
func (f *httpOperation) read() (*Refusal, error) {
	if refused, err := f.findUser(); refused != nil {
		return refused, err
	}
	return f.readBody()
}

func (f *httpOperation) findUser() (*Refusal, error) {
	var err error
	if f.user, err = f.guard.findUser(&f.req); err != nil || f.user.ID == "" && !f.user.Shared {
		return refusalUserMissing, tellOnce(err)
	}
	return nil, nil
}

// readBody reads the body of the request. That of [Guard.Key] is there.
func (f *httpOperation) readBody() (*Refusal, error) {
	if f.x == nil {
		return nil, nil
	}
	body, err := f.x.ReadBody(f.guard.policy.BodyLimit)
	switch {
	case errors.Is(err, adapter.ErrBodyTooLarge):
		return refusalBodyTooLarge, err
	case errors.Is(err, adapter.ErrBodyConsumed):
		return refusalBodyConsumed, err
	case err != nil:
		return refusalBodyUnreadable, err
	}
	f.req.Body = body
	return nil, nil
}

// appendScope appends the part of [ScopeKey]: the first half of a SHA-256 digest, in hexadecimal.
func appendScope(k []byte, scope string) []byte {
	sum := sha256.Sum256([]byte(scope))
	return hex.AppendEncode(append(k, "S="...), sum[:16])
}

// parameters are the parts of the request that count. Its body has been read.
func (f *httpOperation) parameters() canon.Input {
	f.count(conditions[:])
	f.count(f.guard.headers)
	r := &f.req
	return canon.Input{PathParams: r.PathParams, RawQuery: r.RawQuery, ContentType: r.ContentType,
		ContentEncoding: r.ContentEncoding, Body: r.Body, Header: f.counted, Consumed: r.Consumed}
}

// withFingerprint is the identity of key, which the client has chosen, with the fingerprint of in.
func (f *httpOperation) withFingerprint(key []byte, in *canon.Input) identity {
	n := len(key)
	var raw uint64
	if f.recalls() && !f.guard.ignores {
		raw, key = f.guard.raw(key, in)
	}
	if done := f.recall(key[:n], raw); done != nil {
		f.scratch = key // which may have grown
		return identity{key: Key{string(key[:n])}, done: done}
	}
	if !f.guard.ignores {
		key, _ = f.guard.params.AppendDigest(key[:n], in)
	}
	both := string(key) // one allocation for the two
	id := identity{key: Key{both[:n]}, fingerprint: both[n:], raw: raw}
	if id.fingerprint != "" && f.guard.other != nil {
		key, _ = f.guard.other.AppendDigest(key[:n], in)
		id.other = string(key[n:])
	}
	f.scratch = key
	return id
}

// has reports whether fingerprint is that of the operation's parameters.
func (id *identity) has(fingerprint string) bool {
	return fingerprint == id.fingerprint || id.other != "" && fingerprint == id.other
}

// conditions are the preconditions and ranges of RFC 9110, sections 13 and 14, which are a part of the
// request's meaning.
var conditions = [...]string{"If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since",
	"If-Range", "Range", "Content-Range"}

// count adds the header fields called names to those that count as parameters.
func (f *httpOperation) count(names []string) {
	for _, name := range names {
		value, lines := f.req.Headers.Header(name, 0)
		for i := 0; i < lines; {
			f.counted = append(f.counted, adapter.Pair{Name: strings.ToLower(name), Value: value})
			if i++; i < lines {
				value, _ = f.req.Headers.Header(name, i)
			}
		}
	}
}

var errCheckedKey = errors.New("idem: the function of CheckKey rejects the key")

var errPreforked = errors.New("idem: the application runs as several processes (Prefork), and each process has a store of its own; " +
	"set Config.Store to one that they share")

func (g *Guard) findUser(r *Request) (User, error) {
	if g.callers && r.Caller != "" {
		return g.user.of(r)
	}
	return g.user.find(r)
}

// appendRoute appends the part of method and route, in which the blank between them is escaped like
// any other.
func appendRoute(k []byte, method, route string) []byte {
	k = appendPart(k, method)
	k = append(k, "%20"...)
	return appendPart(k, route)
}

func appendPart(k []byte, s string) []byte { return canon.AppendPart(k, s) }

// appendOperation appends what every key begins with, but those of tokens and signed events.
func (g *Guard) appendOperation(k []byte, u User, method, route string) []byte {
	return appendRoute(g.appendBeginning(k, u), method, route)
}

// appendBeginning appends what every key begins with, but that of a token.
func (g *Guard) appendBeginning(k []byte, u User) []byte {
	k = append(k, g.engine.prefix...)
	k = append(k, "U="...)
	k = appendUser(k, u)
	return append(k, "M="...)
}
