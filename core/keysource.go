package core

import (
	"errors"
	"net/http"
)

// KeySource says what the key of an operation is made of: [Params], [Header], [Fields], [Token],
// [CallerEvent] or [Func]. The zero KeySource is Params.
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

// Params makes the key of the digest of all parameters that are not excluded: path parameters, query,
// form fields, files, JSON, or the raw body; and of the header fields and the media type that count, see
// [Policy].RequestHeaders.
func Params() KeySource { return KeySource{} }

// Header takes the key from the Idempotency-Key header field: an RFC 8941 string or a bare token, of at
// most 255 bytes. Both spellings of one text are one key. The parameters become the fingerprint, also those
// with a default name (see [Exclude]): with another latitude it is another delivery. Parameters that
// a verifier has consumed do not count, because a retry is signed anew.
func Header(p Presence) KeySource {
	return KeySource{kind: keyHeader, presence: p, name: DefaultKeyHeader}
}

// Named reads the key of a source made by [Header] from another header field, which can't be Host.
func (s KeySource) Named(field string) KeySource {
	s.name, s.named = http.CanonicalHeaderKey(field), true
	return s
}

// Fields makes the key of the values at paths in the query, the form or the JSON body, of the path
// parameters, and of the header fields and the media type that count (see [Policy].RequestHeaders). All
// else may differ between two requests for one operation. Paths are as for [Exclude]. The policy's
// excluded paths are left out within the fields, the default names are not. A request without any
// of the fields, also because its body is neither JSON nor a form, gets 400 key_missing.
func Fields(paths ...string) KeySource { return KeySource{kind: keyFields, paths: paths} }

// Func takes the key from fn, which must be safe for concurrent use. An empty key is refused as missing (400
// key_missing); an error, or a key of more than 255 bytes, as malformed (400 key_invalid; only the
// observer gets the error). The key may have any bytes. The parameters become the fingerprint.
func Func(fn func(r *Request) (string, error)) KeySource {
	return KeySource{kind: keyFunc, fn: fn}
}

// CallerEvent takes the key from the id of the event that a signed request reports, so that all deliveries of
// an event are one operation. The id comes from [WithCallerEvent]; the adapters' Verify sets it for webhooks,
// see sign.Verified.EventID. The sender has signed it: an unsigned header field can't make an event run
// again.
//
// A request without an id is refused with 400 key_missing. A request whose route has no pattern
// ([Request].Unmatched, so also below an outer http.StripPrefix) is refused with 400 key_invalid: its path, which is
// not signed, would be a part of the key.
//
// The parameters become the fingerprint: the same event with another query, or with another value of one of
// [Policy].RequestHeaders, is refused with 422 key_reused. Set [Policy].IgnoreFingerprint for senders whose
// bodies differ from one delivery to the next.
func CallerEvent() KeySource {
	return Func(func(r *Request) (string, error) {
		if r.Unmatched {
			return "", errEventPath
		}
		return r.CallerEvent, nil
	})
}

var errEventPath = errors.New("core: the route of an event has no pattern: with another path, which no sender of webhooks signs, the event would run again")
