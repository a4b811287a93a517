package core

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/idem-go/idem/core/internal/canon"
)

// KeySource says what the key of an operation is made of, and which parameters count: [Params], [Header], [BodyKey], [Token],
// [CallerEvent] or [Func]. The zero KeySource is Params without options.
type KeySource struct {
	_      [0]func() // equal sources are not ==
	source keySource // nil: Params
}

// keySource is one kind of key source. Guards share it, so that it does not change.
type keySource interface {
	// compile checks the policy of g, and compiles what g needs of the source.
	compile(g *Guard, f *faults)
	// defaults fills in the defaults of this kind that differ from those of other policies.
	defaults(p *Policy)
	// derive makes key and fingerprint. What can be refused without the body is refused before the body is read.
	derive(f *httpOperation) identity
}

// paramsKey is the source of [Params].
type paramsKey struct {
	parameters
	fields       []string // the key is made of them alone
	onlyExcluded bool     // the default names count
}

// chosenKey is what the sources have whose keys somebody has chosen, within the operations of a user and a route.
type chosenKey struct {
	parameters
	ignoreFingerprint bool
	valid             func(string) bool     // of CheckKey
	scope             func(*Request) string // of ScopeKey
}

// headerKey is the source of [Header], whose field is where the key is.
type headerKey struct {
	chosenKey
	presence HeaderPresence
	echo     bool
}

// funcKey is the source of [Func], [BodyKey] and [CallerEvent].
type funcKey struct {
	chosenKey
	presence Presence
	name     string // of the policy, by default
	fn       func(*Request) (string, error)
}

// eventKey is the source of [SignedEvent]: one key space, and answers for senders of webhooks.
type eventKey struct {
	content *parameters // nil: the id alone counts
}

// Presence says whether a client must send a key. It is the first argument of [Header], and an option of [Func], [BodyKey] and
// [CallerEvent].
type Presence uint8

const (
	// Required refuses a request without a key with 400 key_missing.
	Required Presence = iota
	// Optional lets a request without a key pass unprotected.
	Optional
)

// HeaderPresence is the first argument of [Header]: a [Presence], or [OrParams].
type HeaderPresence interface{ isHeaderPresence() }

func (Presence) isHeaderPresence() {}

type orParams uint8

// OrParams makes the key of a request without an Idempotency-Key from its parameters, as [Params] does with the same options. Such
// a request has the defaults of a Policy that has Params: its result is kept for a minute, for example. A request with a key and
// one without are two operations. OrParams is for [Header] only.
const OrParams orParams = 0

func (orParams) isHeaderPresence() {}

// Option says which parameters count. Every key source takes it: [Exclude], [RequestHeaders], [WithoutFiles],
// [WithoutFileNames].
type Option func(*parameters)

// ParamsOption is an option of [Params]: an [Option], [ExcludeOnly] or [Fields].
type ParamsOption interface{ ofParams(*paramsKey) }

// KeyOption is an option of every source whose keys somebody has chosen ([Header], [Func], [BodyKey], [CallerEvent]):
// [CheckKey], [ScopeKey] and [IgnoreFingerprint].
type KeyOption func(*chosenKey)

// HeaderOption is an option of [Header]: an [Option], a [KeyOption], [Named] or [EchoKey].
type HeaderOption interface{ ofHeader(*headerKey) }

// FuncOption is an option of [Func], [BodyKey] and [CallerEvent]: an [Option], a [KeyOption] or a [Presence].
type FuncOption interface{ ofFunc(*funcKey) }

type paramsOption func(*paramsKey)

type headerOption func(*headerKey)

func (o Option) ofParams(k *paramsKey)       { o(&k.parameters) }
func (o Option) ofHeader(k *headerKey)       { o(&k.parameters) }
func (o Option) ofFunc(k *funcKey)           { o(&k.parameters) }
func (o paramsOption) ofParams(k *paramsKey) { o(k) }
func (o KeyOption) ofHeader(k *headerKey)    { o(&k.chosenKey) }
func (o KeyOption) ofFunc(k *funcKey)        { o(&k.chosenKey) }
func (o headerOption) ofHeader(k *headerKey) { o(k) }
func (p Presence) ofFunc(k *funcKey)         { k.presence = p }

// Params makes the key from the digest of all parameters that are not excluded: path parameters, query, form fields, files, JSON,
// or the raw body. The header fields and the media type that count are part of it, see [RequestHeaders]. Without [ExcludeOnly] and
// [Fields], the default names (see [Exclude]) are excluded.
func Params(options ...ParamsOption) KeySource {
	k := new(paramsKey)
	for _, o := range options {
		o.ofParams(k)
	}
	return KeySource{source: k}
}

// Fields makes the key from the values at paths in the query, the form or the JSON body, from the path parameters, and from the
// header fields and the media type that count (see [RequestHeaders]). Everything else may differ between two requests for one
// operation. Paths are written as for [Exclude]. Excluded paths are left out within the fields; the default names are not. A
// request without any of the fields, for example because its body is neither JSON nor a form, gets 400 key_missing.
func Fields(paths ...string) ParamsOption {
	return paramsOption(func(k *paramsKey) {
		k.faultIf(len(paths) == 0, "Fields names no field")
		k.fields = append(k.fields, paths...)
	})
}

// Header takes the key from the Idempotency-Key header field (draft-ietf-httpapi-idempotency-key-header): an RFC 8941 string or a
// bare token, of at most 255 bytes. Both spellings of one text are one key. The parameters become the fingerprint, including those
// with a default name (see [Exclude]): a delivery to another latitude is another delivery. Parameters that a verifier has consumed
// do not count, because a retry is signed anew. Other parameters under a known key are refused with 422 key_reused.
func Header(p HeaderPresence, options ...HeaderOption) KeySource {
	k := &headerKey{presence: p}
	k.field = DefaultKeyHeader
	for _, o := range options {
		o.ofHeader(k)
	}
	return KeySource{source: k}
}

// DefaultKeyHeader is the header field that [Header] reads.
const DefaultKeyHeader = "Idempotency-Key"

// Named reads the key of [Header] from another header field. The field can't be Host.
func Named(field string) HeaderOption {
	return headerOption(func(k *headerKey) { k.field = http.CanonicalHeaderKey(field) })
}

// EchoKey adds header fields to the handler's answers and to replays: the client's key, in the field from which [Header] reads it,
// and, if the result is kept, when it will be forgotten ([ExpiresHeader]). A response that was sent in part before its handler
// returned does not get them. Fields of these names are never stored, even if an inner guard has added them: a duplicate may have
// another key.
func EchoKey() HeaderOption { return headerOption(func(k *headerKey) { k.echo = true }) }

// IgnoreFingerprint makes the key alone decide: a request with a known key and other parameters is a duplicate.
func IgnoreFingerprint() KeyOption {
	return func(k *chosenKey) { k.ignoreFingerprint = true }
}

// CheckKey refuses a key for which valid returns false with 400 key_invalid, before the store is asked. It is for APIs that define
// the form of keys. valid gets the key as [Header] reads it, without quotes, and must be safe for concurrent use.
func CheckKey(valid func(key string) bool) KeyOption {
	return func(k *chosenKey) {
		k.faultIf(valid == nil, "CheckKey was given no function")
		k.valid = valid
	}
}

// ScopeKey narrows the scope in which a key is unique: the same key in another scope is another operation, not a reuse. Without it
// the scope of a key is the user and the route's pattern. of returns the scope of a request, which has its Body: an account that
// the body names, or a part of the path. of must be safe for concurrent use. A digest of the scope is a part of the stored key.
func ScopeKey(of func(r *Request) string) KeyOption {
	return func(k *chosenKey) {
		k.faultIf(of == nil, "ScopeKey was given no function")
		k.scope = of
	}
}

// Func takes the key from fn, which must be safe for concurrent use. An empty key is refused as missing (400 key_missing) unless
// the options contain [Optional]. An error, or a key of more than 255 bytes, is refused as malformed (400 key_invalid); only the
// observer gets the error. The key may contain any bytes. The parameters become the fingerprint.
func Func(fn func(r *Request) (string, error), options ...FuncOption) KeySource {
	k := &funcKey{name: "func", fn: fn}
	k.faultIf(fn == nil, "Func was given no function")
	return k.with(options)
}

func (k *funcKey) with(options []FuncOption) KeySource {
	for _, o := range options {
		o.ofFunc(k)
	}
	return KeySource{source: k}
}

// BodyKey takes the key from the member called name of the JSON object that is the body: a string of 1 to 255 bytes. The member is
// left out of the fingerprint. A request without it, or whose body is not JSON, is refused with 400 key_missing, unless the options
// contain [Optional]. A member that is no such string, and malformed JSON (with two members of one name, say), are refused with 400
// key_invalid.
func BodyKey(name string, options ...FuncOption) KeySource {
	k := &funcKey{name: "body-key"}
	k.path = strings.NewReplacer(`\`, `\\`, ".", `\.`, "*", `\*`).Replace(name)
	path, err := canon.CompilePaths([]string{k.path})
	k.faultIf(err != nil, "BodyKey names no member") // of an escaped name: it is empty
	rules := canon.Rules{Select: path}
	k.fn = func(r *Request) (string, error) {
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
	return k.with(options)
}

var errBodyKey = errors.New("idem: the member that holds the key is no string, or the JSON is malformed")

// CallerEvent takes the key from the id of the event that a signed request reports, so that all deliveries of an event are one
// operation. The id comes from [WithCallerEvent]; the adapters' Verify sets it for webhooks, see sign.Verified.EventID. The sender
// has signed the id: an unsigned header field can't make an event run again. [SignedEvent] is a policy for receivers of webhooks.
//
// A request without an id is refused with 400 key_missing. A request whose route has no pattern ([Request].Unmatched, so also
// inside http.StripPrefix) is refused with 400 key_invalid: otherwise its path, which is not signed, would be a part of the key.
//
// The parameters become the fingerprint: the same event with another query, or with another value of one of the [RequestHeaders],
// is refused with 422 key_reused. [IgnoreFingerprint] is for senders whose bodies differ from one delivery to the next.
func CallerEvent(options ...FuncOption) KeySource {
	return Func(func(r *Request) (string, error) {
		if r.Unmatched {
			return "", errEventPath
		}
		return r.CallerEvent, nil
	}, options...)
}

// EventOption is an option of [SignedEvent]: [CompareContent].
type EventOption func(*eventKey)

// CompareContent refuses an event whose content has changed with 422 key_reused. The content is all parameters; options say which
// count. Without CompareContent only the id counts.
func CompareContent(options ...Option) EventOption {
	return func(k *eventKey) {
		if k.content == nil {
			k.content = new(parameters)
		}
		for _, o := range options {
			o(k.content)
		}
	}
}

var errEventPath = errors.New("idem: CallerEvent needs a route with a pattern: " +
	"senders do not sign the path, so the same event on another path would run again")

func (k *paramsKey) compile(g *Guard, f *faults) {
	p := &g.policy
	g.forgets = p.Retention == 0 && p.OnSuccess == byDefault && p.OnFailure == byDefault
	g.compileParameters(f, &k.parameters)
	g.identity = g.params
	if len(k.fields) > 0 {
		f.addIf(k.onlyExcluded, "Key", "ExcludeOnly is not for Fields: the default names count in any case; use Exclude")
		g.identity.Select = compilePaths(f, "Fields", k.fields)
		if g.identity.Select != nil && g.params.Exclude != nil {
			checkExcludedFields(f, k.excluded, k.fields)
		}
		return
	}
	g.identity.DefaultNames = !k.onlyExcluded
	if g.params.Exclude != nil && !k.onlyExcluded {
		for _, path := range k.excluded {
			f.addIf(canon.NeverCounts(path), "Key", "Exclude: %q is left out in any case; leave it out", path)
		}
	}
}

func (k *chosenKey) compile(g *Guard, f *faults) {
	g.ignores = k.ignoreFingerprint
	g.compileParameters(f, &k.parameters)
}

func (k *headerKey) compile(g *Guard, f *faults) {
	switch k.presence {
	case Required, Optional, OrParams:
	default:
		f.add("Key", "presence is unknown: %v", k.presence)
	}
	f.addIf(!isFieldName(k.field) || k.field == "Host" || contains(neverStored, k.field), "Key",
		"Named: %q is no header field that can hold a key", k.field)
	f.addIf(k.echo && g.policy.keepsNothing(), "Key", "EchoKey %s", keepsNothing)
	k.chosenKey.compile(g, f)
}

func (k *funcKey) compile(g *Guard, f *faults) {
	f.addIf(k.presence > Optional, "Key", "presence is unknown: %d", k.presence)
	k.chosenKey.compile(g, f)
}

func (k *eventKey) compile(g *Guard, f *faults) {
	f.addIf(g.policy.Name == "", "Name", "is empty; it is a part of the keys of a SignedEvent, in place of the route")
	f.addIf(g.policy.Duplicate.message != "", "Duplicate",
		"Reject: the message has no effect: a sender of events gets 200 without a body; leave it out")
	g.ignores = k.content == nil
	g.compileParameters(f, cmp.Or(k.content, new(parameters)))
}

func (*paramsKey) defaults(p *Policy) {
	setDefault(&p.Name, "params")
	setDefault(&p.Retention, defaultRetention)
	p.failsBy(FailedByAnyError)
}

func (*headerKey) defaults(p *Policy) { setDefault(&p.Name, "client-key") }

func (k *funcKey) defaults(p *Policy) { setDefault(&p.Name, k.name) }

func (*eventKey) defaults(p *Policy) {
	setDefault(&p.Retention, defaultEventRetention)
	setDefault(&p.RememberAbandoned, p.Retention)
	p.failsBy(failedBySender)
}

// failsBy makes failed the default of Failed.
func (p *Policy) failsBy(failed func(*Response) bool) {
	if p.Failed == nil {
		p.Failed = failed
	}
}

// withoutKey returns the policy p for requests without a key, under [OrParams].
func (k *headerKey) withoutKey(p Policy) Policy {
	own := &paramsKey{parameters: k.parameters}
	own.excluded = slices.DeleteFunc(slices.Clone(k.excluded), canon.NeverCounts)
	p.Key = KeySource{source: own}
	p.Compare, p.RefuseExpired = byMeaning, 0 // which are for keys that somebody has chosen
	return p
}
