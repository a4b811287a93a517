package core

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/idem-go/idem/core/internal/canon"
)

// KeySource says what the key of an operation is made of, and which parameters count: [Params], [Header], [Token],
// [CallerEvent] or [Func]. The zero KeySource is Params without options.
type KeySource struct {
	kind     keyKind
	presence Presence
	name     string // of the header field
	member   string // of the body
	inBody   bool   // the key is in that member
	event    bool   // of SignedEvent: one key space, and answers for senders of webhooks
	fn       func(*Request) (string, error)
	valid    func(string) bool     // of CheckKey
	scope    func(*Request) string // of ScopeKey
	tokens   *Tokens

	fields            []string // of a key made of them alone
	onlyExcluded      bool     // the default names count
	excluded          []string
	headers           []string
	withoutFiles      bool
	withoutFileNames  bool
	ignoreFingerprint bool
	echo              bool
	checks, scoped    bool
	presences         int // given as options
}

type keyKind uint8

const (
	keyParams keyKind = iota
	keyHeader
	keyFields
	keyFunc
	keyToken
	keyTask
)

// Presence says whether a client must send a key.
type Presence uint8

const (
	// Required refuses a request without a key with 400 key_missing.
	Required Presence = iota
	// Optional lets a request without a key pass unprotected.
	Optional
	// OrParams makes a request without a key an operation of its parameters, as [Params] does with the same options, and with the
	// defaults of a Policy that has Params: it is kept for a minute, say. A request with a key and one without are two
	// operations. It is for [Header] only.
	OrParams
)

func (p Presence) ofKey(s *KeySource) { s.presence, s.presences = p, s.presences+1 }

// Option says which parameters count. Every key source takes it: [Exclude], [RequestHeaders], [WithoutFiles],
// [WithoutFileNames].
type Option func(*KeySource)

// ParamsOption is an option of [Params]: an [Option], [ExcludeOnly] or [Fields].
type ParamsOption interface{ ofParams(*KeySource) }

// KeyOption is an option of a source whose keys somebody has chosen ([Header], [Func], [CallerEvent]): an [Option],
// [CheckKey], [ScopeKey], [IgnoreFingerprint], for Header also [Named] and [EchoKey], and for the others a [Presence].
type KeyOption interface{ ofKey(*KeySource) }

func (o Option) ofParams(s *KeySource) { o(s) }
func (o Option) ofKey(s *KeySource)    { o(s) }

type paramsOption func(*KeySource)

func (o paramsOption) ofParams(s *KeySource) { o(s) }

type keyOption func(*KeySource)

func (o keyOption) ofKey(s *KeySource) { o(s) }

// Params makes the key of the digest of all parameters that are not excluded: path parameters, query,
// form fields, files, JSON, or the raw body; and of the header fields and the media type that count, see
// [RequestHeaders]. Without [ExcludeOnly] and [Fields], the default names (see [Exclude]) are excluded.
func Params(options ...ParamsOption) KeySource {
	var s KeySource
	for _, o := range options {
		o.ofParams(&s)
	}
	return s
}

// Fields makes the key of the values at paths in the query, the form or the JSON body, of the path
// parameters, and of the header fields and the media type that count (see [RequestHeaders]). All
// else may differ between two requests for one operation. Paths are as for [Exclude]. Excluded paths are left
// out within the fields, the default names are not. A request without any
// of the fields, also because its body is neither JSON nor a form, gets 400 key_missing.
func Fields(paths ...string) ParamsOption {
	return paramsOption(func(s *KeySource) { s.kind, s.fields = keyFields, append(s.fields, paths...) })
}

// Header takes the key from the Idempotency-Key header field (draft-ietf-httpapi-idempotency-key-header): an RFC 8941
// string or a bare token, of at most 255 bytes. Both spellings of one text are one key. The parameters become the
// fingerprint, also those with a default name (see [Exclude]): with another latitude it is another delivery. Parameters
// that a verifier has consumed do not count, because a retry is signed anew. Other parameters under a known key are
// refused with 422 key_reused.
func Header(p Presence, options ...KeyOption) KeySource {
	return KeySource{kind: keyHeader, presence: p, name: DefaultKeyHeader}.with(options)
}

// DefaultKeyHeader is the header field that [Header] reads.
const DefaultKeyHeader = "Idempotency-Key"

// Named reads the key of [Header] from another header field, which can't be Host.
func Named(field string) KeyOption {
	return keyOption(func(s *KeySource) { s.name = http.CanonicalHeaderKey(field) })
}

// EchoKey adds header fields to the handler's answers and to replays: the client's key, in the field from which
// [Header] reads it, and, if the result is kept, when it will be forgotten ([ExpiresHeader]). A response that was sent
// in part before its handler returned does not get them. Fields of these names are never stored, nor are those that
// guards further in add: a duplicate may have another key.
func EchoKey() KeyOption { return keyOption(func(s *KeySource) { s.echo = true }) }

// IgnoreFingerprint makes the key alone decide: other parameters under a known key are a duplicate.
func IgnoreFingerprint() KeyOption {
	return keyOption(func(s *KeySource) { s.ignoreFingerprint = true })
}

// CheckKey refuses a key for which valid is false with 400 key_invalid, before the store is asked. It is for APIs that say what a key
// looks like. valid gets the key as [Header] reads it, without quotes, and must be safe for concurrent use.
func CheckKey(valid func(key string) bool) KeyOption {
	return keyOption(func(s *KeySource) { s.checks, s.valid = true, valid })
}

// ScopeKey makes keys mean something within a scope only: the same key in another scope is another operation, not a reuse. Without
// it the scope of a key is the user and the route's pattern. of returns the scope of a request, which has its Body: an account that the
// body names, or a part of the path. It must be safe for concurrent use. A digest of the scope is a part of the stored key.
func ScopeKey(of func(r *Request) string) KeyOption {
	return keyOption(func(s *KeySource) { s.scoped, s.scope = true, of })
}

func (s KeySource) with(options []KeyOption) KeySource {
	for _, o := range options {
		o.ofKey(&s)
	}
	return s
}

// Func takes the key from fn, which must be safe for concurrent use. An empty key is refused as missing (400
// key_missing) unless the options say [Optional]; an error, or a key of more than 255 bytes, as malformed (400 key_invalid; only the
// observer gets the error). The key may have any bytes. The parameters become the fingerprint.
func Func(fn func(r *Request) (string, error), options ...KeyOption) KeySource {
	return KeySource{kind: keyFunc, fn: fn}.with(options)
}

// BodyKey takes the key from the member called name of the JSON object that is the body: a string of 1 to 255 bytes. It is left out
// of the fingerprint. A request without it, or whose body is no JSON, is refused with 400 key_missing, unless the options say
// [Optional]; a member that is no such string, and JSON that is malformed (with two members of one name, say), with 400 key_invalid.
func BodyKey(name string, options ...KeyOption) KeySource {
	return KeySource{kind: keyFunc, inBody: true, member: name}.with(options)
}

// memberPath is the path of a member of the body, see [Exclude].
func (s *KeySource) memberPath() string {
	return strings.NewReplacer(`\`, `\\`, ".", `\.`, "*", `\*`).Replace(s.member)
}

// compileBodyKey makes the function of a BodyKey.
func (s *KeySource) compileBodyKey(f *faults) {
	path, err := canon.CompilePaths([]string{s.memberPath()})
	if err != nil { // of the escaped name: it is empty
		f.add("Key", "BodyKey names no member")
		return
	}
	rules := canon.Rules{Select: path}
	s.fn = func(r *Request) (string, error) {
		contentType, isJSON := r.ContentType, canon.IsJSON(r.ContentType)
		if isJSON {
			contentType = "application/json" // another one has a line in the text
		}
		text, info := rules.AppendCanonical(nil, &canon.Input{ContentType: contentType, ContentEncoding: r.ContentEncoding, Body: r.Body})
		switch {
		case info.Raw && isJSON:
			return "", errBodyKey
		case info.Raw || len(text) == 0 || text[0] != '{':
			return "", nil
		}
		var members map[string]*string
		if json.Unmarshal(text, &members) != nil {
			return "", errBodyKey
		}
		for _, key := range members { // the one
			if key != nil && *key != "" {
				return *key, nil
			}
		}
		return "", errBodyKey
	}
}

var errBodyKey = errors.New("idem: the member that holds the key is no string, or the JSON is malformed")

// withoutKey returns the policy for requests without a key, under [OrParams].
func (p Policy) withoutKey() Policy {
	k := p.Key
	p.Key = KeySource{headers: k.headers, withoutFiles: k.withoutFiles, withoutFileNames: k.withoutFileNames,
		excluded: slices.DeleteFunc(slices.Clone(k.excluded), canon.NeverCounts)}
	p.Compare, p.RefuseExpired = byMeaning, 0 // which are for keys that somebody has chosen
	return p
}

// CallerEvent takes the key from the id of the event that a signed request reports, so that all deliveries of
// an event are one operation. The id comes from [WithCallerEvent]; the adapters' Verify sets it for webhooks,
// see sign.Verified.EventID. The sender has signed it: an unsigned header field can't make an event run
// again. [SignedEvent] is a policy for receivers of webhooks.
//
// A request without an id is refused with 400 key_missing. A request whose route has no pattern
// ([Request].Unmatched, so also below an outer http.StripPrefix) is refused with 400 key_invalid: its path, which is
// not signed, would be a part of the key.
//
// The parameters become the fingerprint: the same event with another query, or with another value of one of
// [RequestHeaders], is refused with 422 key_reused. [IgnoreFingerprint] is for senders whose
// bodies differ from one delivery to the next.
func CallerEvent(options ...KeyOption) KeySource {
	return Func(func(r *Request) (string, error) {
		if r.Unmatched {
			return "", errEventPath
		}
		return r.CallerEvent, nil
	}, options...)
}

// EventOption is an option of [SignedEvent]: [CompareContent].
type EventOption func(*KeySource)

// CompareContent refuses an event whose content has changed with 422 key_reused. The content is all parameters; options
// say which count. Without it only the id counts.
func CompareContent(options ...Option) EventOption {
	return func(s *KeySource) {
		s.ignoreFingerprint = false
		for _, o := range options {
			o(s)
		}
	}
}

// eventID is the key of a SignedEvent. The route is not a part of it, so that it needs no pattern.
func eventID(r *Request) (string, error) { return r.CallerEvent, nil }

var errEventPath = errors.New("idem: CallerEvent needs a route with a pattern: " +
	"senders do not sign the path, so the same event on another path would run again")

// compileKey checks and compiles the key source.
func (g *Guard) compileKey(f *faults) {
	k := &g.policy.Key
	g.identity = g.params
	f.addIf(k.presence > OrParams, "Key", "presence is unknown: %d", k.presence)
	f.addIf(k.presence == OrParams && k.kind != keyHeader, "Key", "OrParams is for Header")
	f.addIf(k.checks && k.valid == nil, "Key", "CheckKey was given no function")
	f.addIf(k.scoped && k.scope == nil, "Key", "ScopeKey was given no function")
	switch k.kind {
	case keyParams:
		g.identity.DefaultNames = !k.onlyExcluded
	case keyHeader:
		f.addIf(!isFieldName(k.name) || k.name == "Host" || contains(neverStored, k.name), "Key",
			"Named: %q is no header field that can hold a key", k.name)
		f.addIf(k.presences > 0, "Key", "presence is the first argument of Header; leave the option out")
	case keyFields:
		f.addIf(len(k.fields) == 0, "Key", "Fields names no field")
		f.addIf(k.onlyExcluded, "Key", "ExcludeOnly is not for Fields: the default names count in any case; use Exclude")
		g.identity.Select = compilePaths(f, "Fields", k.fields)
		if g.identity.Select != nil && g.params.Exclude != nil {
			checkExcludedFields(f, k.excluded, k.fields)
		}
	case keyFunc:
		if k.inBody {
			k.compileBodyKey(f)
		} else {
			f.addIf(k.fn == nil, "Key", "Func was given no function")
		}
		f.addIf(k.name != "" || k.echo, "Key", "Named and EchoKey are for Header")
		f.addIf(k.event && g.policy.Name == "", "Name", "is empty; it is a part of the keys of a SignedEvent, in place of the route")
		f.addIf(k.event && g.policy.Duplicate.message != "", "Duplicate", "Reject: the message has no effect: a sender of events gets 200 without a body; leave it out")
	case keyToken:
		g.compileToken(f)
	}
}
