package core

import (
	"errors"
	"net/http"
)

// KeySource is where the identity of an operation comes from: [Params], [Header],
// [Fields], [Token], [CallerEvent] or [Func]. The zero KeySource is Params.
type KeySource struct {
	kind     keyKind
	presence Presence
	name     string
	named    bool
	paths    []string
	fn       func(*Request) (string, error)
	tokens   *Tokens
}

type keyKind uint8

const (
	keyParams keyKind = iota
	keyHeader
	keyFields
	keyFunc
	keyToken
)

// DefaultKeyHeader is the header field that [Header] reads
// (draft-ietf-httpapi-idempotency-key-header).
const DefaultKeyHeader = "Idempotency-Key"

// Presence says whether a client must send a key.
type Presence uint8

const (
	// Required refuses a request without a key with 400 key_missing.
	Required Presence = iota
	// Optional lets a request without a key pass unprotected.
	Optional
)

// Params makes the key from the digest of all parameters that are not excluded: path
// parameters, query, form fields, files, JSON, or the raw body; and of the header fields and
// the media type that count, see [Policy].RequestHeaders.
func Params() KeySource { return KeySource{} }

// Header takes the key from the Idempotency-Key header field: an RFC 8941 string or a
// bare token, of at most 255 bytes. Both spellings of one text are one key. The
// parameters become the fingerprint, those with a default name included (see [Exclude]): with
// another latitude it is another delivery. Only what a verifier in front has consumed as the
// signature does not count, for a retry is signed anew.
func Header(p Presence) KeySource {
	return KeySource{kind: keyHeader, presence: p, name: DefaultKeyHeader}
}

// Named reads the key from another header field, for a source made by [Header]. Host is none.
func (s KeySource) Named(field string) KeySource {
	s.name, s.named = http.CanonicalHeaderKey(field), true
	return s
}

// Fields makes the key from the values at paths in the query, the form or the JSON
// body, from the path parameters, and from the header fields and the media type that count
// (see [Policy].RequestHeaders); everything else may differ between two requests for the
// same operation. The paths are those of [Exclude]; what a policy
// excludes by path is left out within the fields, but the default names are not. A
// request that has none of the fields, or whose body can't be read as JSON or a form
// and has none in the query, gets 400 key_missing.
func Fields(paths ...string) KeySource { return KeySource{kind: keyFields, paths: paths} }

// Func takes the key from fn, which must be safe for concurrent use. An empty key is a
// missing one (400 key_missing), an error a malformed one (400 key_invalid; the
// error goes to the observer only). The key may have up to 255 bytes of any kind.
func Func(fn func(r *Request) (string, error)) KeySource {
	return KeySource{kind: keyFunc, fn: fn}
}

// CallerEvent takes the key from the id of the event that a signed request reports
// ([WithCallerEvent]; the adapters' Verify does so for schemes for webhooks, see sign.Verified.EventID): all deliveries of an event
// are one operation. The key is made of what the sender has signed, so that nobody gets an event run again by another
// header field. A request without such an id is refused (400 key_missing), and so is one whose route has no pattern
// ([Request].Unmatched, 400 key_invalid; so also below an outer http.StripPrefix): the path is not signed, and would be a part of the key.
//
// The parameters become the fingerprint: the same event with another query, or with another value of
// one of [Policy].RequestHeaders, is refused (422 key_reused). Set [Policy].IgnoreFingerprint for senders whose bodies
// differ from one delivery to the next.
func CallerEvent() KeySource {
	return Func(func(r *Request) (string, error) {
		if r.Unmatched {
			return "", errEventPath
		}
		return r.CallerEvent, nil
	})
}

var errEventPath = errors.New("core: the route of an event has no pattern: with another path, which no sender of webhooks signs, the event would run again")
