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

// Key is the identity of an operation, as stored. It may name a user, so it prints as a short digest:
// by package fmt with every verb but %p, by log/slog, and as JSON, also as the key of a map. [Key.Raw] is the
// whole key. Equal keys are ==. The zero Key is no key, and prints as nothing.
//
// Package fmt can't call the methods of an unexported field: a struct that has a Key in one, and is
// printed whole, shows it.
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
	id := f.derive(func() ([]byte, *Refusal, error) {
		body, err := f.x.ReadBody(f.guard.policy.BodyLimit)
		switch {
		case errors.Is(err, adapter.ErrBodyTooLarge):
			return nil, refusalBodyTooLarge, err
		case errors.Is(err, adapter.ErrBodyConsumed):
			return nil, refusalBodyConsumed, err
		case err != nil:
			return nil, refusalBodyUnreadable, err
		}
		return body, nil, nil
	})
	id.request, id.forgets = &f.req, f.guard.forgets && isIdempotent(f.req.Method)
	if f.guard.engine.observer != nil { // it is for events only
		id.route = endpoint(&f.req)
	}
	return id
}

// Key derives the key and the fingerprint of a request as Serve would, without calling the store. r has
// its Body filled in, and its Caller and Consumed if a verifier has set them. The error is a *[Refusal].
// A request that needs no key and has none has the zero Key.
func (g *Guard) Key(r *Request) (key Key, fingerprint string, err error) {
	f := httpOperations.Get().(*httpOperation)
	own := f.req.PathParams
	f.req = *r
	f.req.PathParams = append(own, r.PathParams...) // reset clears it
	if f.req.Headers == nil {
		f.req.Headers = noHeaders{}
	}
	f.guard = g.of(&f.req)
	id := f.derive(func() ([]byte, *Refusal, error) { return f.req.Body, nil, nil })
	f.reset()
	httpOperations.Put(f)
	if id.refusal != nil {
		return Key{}, "", id.refusal.because(id.cause)
	}
	return id.key, id.fingerprint, nil
}

type noHeaders struct{}

func (noHeaders) Header(string, int) (string, int) { return "", 0 }

// derive makes key and fingerprint. What can be refused without the body is refused before the body is
// read.
func (f *httpOperation) derive(readBody func() ([]byte, *Refusal, error)) identity {
	g, r := f.guard, &f.req
	if r.Preforked && g.engine.can.InProcess {
		return identity{refusal: refusalNotShared, cause: errPreforked}
	}
	var clientKey string
	if g.policy.Key.kind == keyHeader {
		field, lines := r.Headers.Header(g.policy.Key.name, 0)
		switch {
		case lines == 0 && g.policy.Key.presence == Optional:
			if g.user.caller && r.Caller == "" {
				return identity{refusal: refusalUserMissing, cause: ErrNoUser}
			}
			return identity{pass: true}
		case lines == 0:
			return identity{refusal: refusalKeyMissing}
		case lines > 1:
			return identity{refusal: refusalKeyInvalid}
		}
		var err error
		if clientKey, err = canon.ParseClientKey(field); err != nil {
			return identity{refusal: refusalKeyInvalid, cause: err}
		}
		if g.policy.Key.echo {
			f.echo[0] = Field{Name: g.policy.Key.name, Value: strings.Clone(field)}
		}
	}
	user, err := g.findUser(r)
	if err != nil || user.ID == "" && !user.Shared {
		return identity{refusal: refusalUserMissing, cause: tellOnce(err)}
	}
	if g.policy.Key.kind == keyToken {
		return f.deriveFromToken(user, readBody)
	}
	body, refused, err := readBody()
	if refused != nil {
		return identity{refusal: refused, cause: err}
	}
	r.Body = body
	if g.policy.Key.kind == keyFunc {
		if clientKey, err = g.policy.Key.fn(r); err != nil || len(clientKey) > 255 {
			return identity{refusal: refusalKeyInvalid, cause: err}
		}
		switch {
		case clientKey == "" && g.policy.Key.presence == Optional:
			return identity{pass: true}
		case clientKey == "":
			return identity{refusal: refusalKeyMissing}
		}
	}
	if valid := g.policy.Key.valid; valid != nil && !valid(clientKey) {
		return identity{refusal: refusalKeyInvalid, cause: errCheckedKey}
	}

	in := f.parameters()
	if g.policy.Key.event {
		k := appendPart(g.appendBeginning(f.scratch[:0], user), g.policy.Name)
		return f.withFingerprint(appendPart(append(k, "E="...), clientKey), &in)
	}
	k := g.appendOperation(f.scratch[:0], user, r.Method, r.Route)

	if g.policy.Key.kind == keyParams || g.policy.Key.kind == keyFields {
		var info canon.Info
		k = append(k, "P="...)
		k, info = g.identity.AppendDigest(k, &in)
		f.scratch = k
		if g.policy.Key.kind == keyFields && info.Selected == 0 {
			return identity{refusal: refusalKeyMissing}
		}
		// The parameters are in the key: there is nothing left to compare.
		return identity{key: Key{string(k)}, done: f.recall(k, 0)}
	}

	if scope := g.policy.Key.scope; scope != nil {
		k = appendScope(k, scope(r))
	}
	k = append(k, "K="...)
	k = canon.AppendPart(k, clientKey)
	return f.withFingerprint(k, &in)
}

// appendScope appends the part of [ScopeKey]: the first half of a SHA-256 digest, in hexadecimal.
func appendScope(k []byte, scope string) []byte {
	sum := sha256.Sum256([]byte(scope))
	return hex.AppendEncode(append(k, "S="...), sum[:16])
}

// parameters are the parts of the request that count. Its body has been read.
func (f *httpOperation) parameters() canon.Input {
	f.count(conditions[:])
	f.count(f.guard.policy.Key.headers)
	r := &f.req
	return canon.Input{PathParams: r.PathParams, RawQuery: r.RawQuery, ContentType: r.ContentType,
		ContentEncoding: r.ContentEncoding, Body: r.Body, Header: f.counted, Consumed: r.Consumed}
}

// withFingerprint is the identity of key, which the client has chosen, with the fingerprint of in.
func (f *httpOperation) withFingerprint(key []byte, in *canon.Input) identity {
	n := len(key)
	var raw uint64
	if f.recalls() && !f.guard.policy.Key.ignoreFingerprint {
		raw, key = f.guard.raw(key, in)
	}
	if done := f.recall(key[:n], raw); done != nil {
		f.scratch = key // which may have grown
		return identity{key: Key{string(key[:n])}, done: done}
	}
	if !f.guard.policy.Key.ignoreFingerprint {
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

var errCheckedKey = errors.New("idem: the function of CheckKey does not take the key")

var errPreforked = errors.New("idem: the application runs as several processes (Prefork), and the store is one of each process; set Config.Store to one that they share")

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
