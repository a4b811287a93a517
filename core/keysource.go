package core

// KeySource is where the identity of an operation comes from: [Params], [Header],
// [Fields] or [Func]. The zero KeySource is Params.
type KeySource struct {
	kind     keyKind
	presence Presence
	name     string
	paths    []string
	fn       func(*Request) (string, error)
}

type keyKind uint8

const (
	keyParams keyKind = iota
	keyHeader
	keyFields
	keyFunc
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
// parameters, query, form fields, files, JSON, or the raw body.
func Params() KeySource { return KeySource{} }

// Header takes the key from the Idempotency-Key header field: an RFC 8941 string or a
// bare token, of at most 255 bytes. Both spellings of one text are one key. The
// parameters become the fingerprint.
func Header(p Presence) KeySource {
	return KeySource{kind: keyHeader, presence: p, name: DefaultKeyHeader}
}

// Named reads the key from another header field, for a source made by [Header].
func (s KeySource) Named(field string) KeySource {
	s.name = field
	return s
}

// Fields makes the key from the values at paths in the query, the form or the JSON
// body, and from the path parameters; everything else may differ between two
// requests for the same operation. The paths are those of [Exclude]; what a policy
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
