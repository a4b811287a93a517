package rfc9421

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/form"
	"github.com/idem-go/idem/sign/internal/redact"
)

// Config configures [New]. The zero Config is the profile that the package comment describes. [UCP], [WebBotAuth], [WebBotAuthMeunier],
// [AdCP], [AdCP31] and [AdCPWebhooks] return the Configs of published protocols. Client and verifier need the same options, except HTTPS.
type Config struct {
	// Label is the signature's name in Signature-Input and Signature. If it is set, the verifier uses the signature with that label, and
	// ignores others in the same line (for example those of proxies). Empty: the client uses "sig1". The verifier then accepts any
	// label, but refuses a message with several signatures, unless the profile says that one valid signature is enough.
	Label string

	// Tag names the application that a signature is made for (RFC 9421, section 2.3). A message must have this tag.
	// Empty: the client sends no tag, and the verifier refuses a message with one.
	Tag string

	// HTTPS makes the verifier assume https, for a process behind a proxy that terminates TLS. It affects @scheme, @target-uri, and
	// the default port that @authority omits. Clients do not need it, because they know the URL.
	HTTPS bool

	// Cover are the names of header fields that must be covered if they are present, in addition to Idempotency-Key, Content-Type,
	// Content-Encoding and Content-Digest. List the fields that a guard or a handler reads, such as the one that names the user.
	Cover []string

	// UnsignedContentType accepts messages whose Content-Type is present and not covered, for clients that do not cover it.
	// Anyone who relays such a message can have its body read as another type. Clients of this package cover it anyway.
	UnsignedContentType bool

	// Require are the names of header fields that must be present and covered, or of derived components that must be
	// covered: "@scheme".
	Require []string

	// UnsignedBody accepts messages with a body and without a Content-Digest. It is for [AdCP31] only, on an endpoint whose
	// covers_content_digest is "either". Anyone who relays such a message can send another body with it, once.
	UnsignedBody bool

	rules *rules // of one of the published profiles; nil: of this package's
}

// The header fields of the scheme.
const (
	headerInput     = "Signature-Input"
	headerSignature = "Signature"
	headerDigest    = "Content-Digest"
)

// defaultLabel is the default of Config.Label for clients.
const defaultLabel = "sig1"

// profile is the [sign.Scheme] of this package.
type profile struct {
	label, tag     string
	https          bool
	cover, require []form.FieldName
	derived        []string // derived components that Config.Require names
	needed         coverage // by Config.Require
	unsignedBody   bool
	*rules
}

var (
	idempotencyKey  = form.NewFieldName(form.IdempotencyKey)
	contentType     = form.NewFieldName("Content-Type") // this one and the next change the meaning of the body
	contentEncoding = form.NewFieldName("Content-Encoding")
	contentDigest   = form.NewFieldName(headerDigest)
)

// New returns the scheme. It reports all errors of o at once, each as a [*sign.ConfigError].
func New(o Config) (sign.Scheme, error) {
	var errs []error
	refuse := func(name, format string, args ...any) {
		errs = append(errs, &sign.ConfigError{Field: "rfc9421.Config." + name, Problem: fmt.Sprintf(format, args...)})
	}
	s := &profile{
		label: o.Label, tag: o.Tag, https: o.HTTPS, cover: []form.FieldName{idempotencyKey, contentEncoding},
		unsignedBody: o.UnsignedBody, rules: cmp.Or(o.rules, strict),
	}
	if s.rules == strict && !o.UnsignedContentType { // the others want it if there is a body, see Check
		s.cover = append(s.cover, contentType)
	}
	s.cover = append(s.cover, s.rules.cover...)
	if o.UnsignedContentType && s.rules != strict {
		refuse("UnsignedContentType", "has no effect in profile %s", s.rules.name)
	}
	if o.UnsignedBody && s.rules != adcp31 {
		refuse("UnsignedBody", "is for AdCP31 only")
	}
	if o.Label != "" && !isKey(o.Label) {
		refuse("Label", "%q is not a label: a-z or *, then a-z 0-9 _ - . *", o.Label)
	}
	if !isPrintable(o.Tag) {
		refuse("Tag", "%q has characters other than printable ASCII", o.Tag)
	}
	for _, name := range o.Cover {
		if !canCover(strings.ToLower(name)) {
			refuse("Cover", "%q cannot be covered", name)
		}
		s.cover = append(s.cover, form.NewFieldName(name))
	}
	for _, name := range o.Require {
		lower := strings.ToLower(name)
		switch covers := derivedComponents[lower]; {
		case covers != 0:
			s.needed |= covers
			s.derived = append(s.derived, lower)
		case !canCover(lower):
			refuse("Require", "%q cannot be covered", name)
		default:
			s.require = append(s.require, form.NewFieldName(name))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return s, nil
}

// Name implements [sign.Scheme].
func (s *profile) Name() string { return s.rules.name }

var _ sign.DemandingScheme = (*profile)(nil)

// Demands returns what the profile asks of the verifier, see [sign.Demands].
func (s *profile) Demands() sign.Demands {
	d := s.rules.demands
	if s.rules.several && s.label == "" {
		d.Each = s.each
	}
	return d
}

// each returns the scheme for each label of a message with several signatures.
func (s *profile) each(m *sign.Message) []sign.Scheme {
	input, _ := m.Field(headerInput)
	if !strings.Contains(input, ",") { // only a comma separates signatures
		return nil
	}
	dictionary, err := parseDictionary(headerInput, input)
	if err != nil || len(dictionary.Names()) == 1 {
		return nil // Parse says why
	}
	var each []sign.Scheme
	for _, label := range dictionary.Names() {
		one := *s
		one.label = label
		each = append(each, &one)
	}
	return each
}

// state is what Parse and Sign leave for Check and SigningString.
type state struct {
	base       []byte
	digests    digests
	typed      bool // content-type is covered
	thumbprint bool // keyid must be the key's thumbprint
}

// The scratch memory of a message, in bytes. A longer signature, such as one of RSA, gets memory of its own.
const (
	scratchSignature = 64 + 2 // the decoder needs a little more than it writes
	scratchBase      = 896
)

// Parse implements [sign.Scheme].
func (s *profile) Parse(m *sign.Message, sig *sign.Signature) error {
	input, value, err := fields(m)
	if err != nil {
		return err
	}
	p := parameters{components: sig.Covered}
	label, err := s.parseInput(input, &p)
	if err != nil {
		return err
	}
	sig.Covered = p.components
	if form.CheckKeyID(p.keyID) == nil {
		sig.KeyID = p.keyID
	}
	if s.rules.base64URL {
		value = fromBase64URL(value)
	}
	if err := s.parseSignature(value, label, sig); err != nil {
		return err
	}
	if err := s.checkParameters(&p); err != nil {
		return err
	}
	if err := s.checkCovered(m, &p); err != nil {
		return err
	}
	if s.rules.locate != nil {
		if sig.KeyURL, err = s.rules.locate(m, p, label); err != nil {
			return err
		}
	}
	st := &state{typed: slices.Contains(p.components, contentType.Lower), thumbprint: s.rules.agent && p.tag == tagWebBotAuth}
	if p.covers&digest != 0 {
		if err := st.digests.parse(m, s.rules.base64URL); err != nil {
			return err
		}
	}
	if st.base, err = s.appendBase(sig.Scratch(scratchBase), m, p.components, ""); err != nil {
		return err
	}
	st.base = appendParams(st.base, p.text)
	sig.Created, sig.Expires = p.created, p.expires
	sig.Nonce, sig.Algorithm = p.nonce, p.alg
	sig.State = st
	if s.rules.skew != 0 {
		sig.Expires += s.rules.skew
	}
	if s.rules.noNonce || p.nonce == "" {
		sig.NoTimestamp, sig.NoNonce = p.has&created == 0, true
		if sig.EventID, _ = m.Field(form.IdempotencyKey); sig.EventID == "" {
			sig.EventID = sign.NonceOf(st.base) // of a safe method
		}
	}
	return nil
}

// fields returns Signature-Input and Signature.
func fields(m *sign.Message) (input, value string, err error) {
	input, err = m.Required(headerInput)
	value, err2 := m.Required(headerSignature)
	switch none := errors.Is(err, sign.CodeMissing); {
	case none && errors.Is(err2, sign.CodeMissing):
		err = sign.Errorf(sign.ReasonUnsigned, "%s", headerSignature)
	case none, errors.Is(err2, sign.CodeMissing):
		err = sign.Errorf(&sign.Error{Code: sign.CodeMissing, Reason: sign.ReasonBadHeader}, "one of %s and %s",
			headerInput, headerSignature)
	}
	return input, value, cmp.Or(err, err2)
}

// checkParameters checks that all required parameters are present and well formed.
func (s *profile) checkParameters(p *parameters) error {
	r := s.rules
	if s.rules == ucp && p.tag == tagWebBotAuth {
		r = webBotAuth
	}
	if name := r.missing(p); name != "" {
		return sign.Errorf(sign.ReasonParameterMissing, "the parameter %s", name)
	}
	badKeyID := form.CheckKeyID(p.keyID)
	switch {
	case p.nonce != "" && !s.rules.noNonce && !r.isNonce(p.nonce):
		return sign.Errorf(sign.CodeMalformed, "the nonce must be %s", r.nonces)
	case p.has&alg != 0 && p.alg == "", p.has&tag != 0 && p.tag == "":
		return sign.Errorf(sign.CodeMalformed, "alg or tag is present and empty") // a missing one is allowed
	case s.tag != "" && p.has&tag == 0:
		return sign.Errorf(sign.ReasonParameterMissing, "the parameter tag")
	case badKeyID != nil:
		return sign.Errorf(sign.CodeMalformed, "%v", badKeyID)
	case p.has&expires != 0 && p.expires < p.created:
		return sign.Errorf(sign.ReasonBadWindow, "the signature expires before it was created")
	case r.lifetime > 0 && (p.expires == p.created || p.expires-p.created > r.lifetime):
		return sign.Errorf(sign.ReasonBadWindow, "the signature is valid for %d seconds; 1 to %d are allowed",
			p.expires-p.created, r.lifetime)
	case p.has&alg != 0 && !r.uses(sign.Algorithm(p.alg)):
		return sign.Errorf(sign.ReasonWrongAlgorithm, "the profile does not use %q", p.alg)
	}
	if p.tag != s.tag && (s.rules != ucp || p.tag != tagWebBotAuth) {
		return sign.Errorf(sign.ReasonWrongTag, "the signature was made for the application %q", p.tag)
	}
	return nil
}

// missing returns the name of a required parameter that is missing, or empty.
func (r *rules) missing(p *parameters) string {
	switch missing := r.parameters &^ p.has; {
	case missing&created != 0:
		return "created"
	case missing&expires != 0:
		return "expires"
	case p.keyID == "":
		return "keyid"
	case p.nonce == "" && r.parameters&nonce != 0:
		return "nonce"
	case missing&alg != 0:
		return "alg"
	}
	return ""
}

// checkCovered checks that everything is covered that the profile requires.
func (s *profile) checkCovered(m *sign.Message, p *parameters) error {
	if missing := (s.needed | s.rules.needs(m)) &^ p.covers; missing != 0 {
		return sign.Errorf(sign.ReasonUncovered, "%s must be covered", missing)
	}
	for _, name := range s.rules.signs {
		if s.rules.named && !slices.Contains(p.components, name) {
			return sign.Errorf(sign.ReasonUncovered, "%s must be covered", name)
		}
	}
	if s.rules.check != nil {
		if err := s.rules.check(m, *p); err != nil {
			return err
		}
	}
	for _, f := range s.require {
		if !slices.Contains(p.components, f.Lower) {
			return sign.Errorf(sign.ReasonUncovered, "%s must be covered", f.Lower)
		}
	}
	for _, f := range s.cover {
		if err := checkField(m, f, slices.Contains(p.components, f.Lower)); err != nil {
			return err
		}
	}
	return checkField(m, contentDigest, p.covers&digest != 0)
}

// checkField checks that a header field is covered if it is present.
func checkField(m *sign.Message, f form.FieldName, covered bool) error {
	switch lines := len(m.Source.Values(f.Canonical)); {
	case lines > 1:
		return sign.Errorf(sign.CodeDuplicateHeader, "%s", f.Canonical)
	case lines > 0 && !covered:
		return sign.Errorf(sign.ReasonUncovered, "%s is present, but not covered", f.Lower)
	}
	return nil
}

// Check implements [sign.Scheme].
func (s *profile) Check(m *sign.Message, sig *sign.Signature, key *sign.Key) error {
	st, ok := sig.State.(*state)
	if !ok || len(sig.Values) != 1 {
		return sign.Errorf(sign.ReasonBadSignature, "the message was not parsed")
	}
	body, err := m.Body()
	if err != nil {
		return err
	}
	if s.rules.adcp { // whose codes have an order
		if err := cmp.Or(s.checkBodyCovered(m, st, body), s.checkPurpose(key)); err != nil {
			return err
		}
	}
	if sig.Algorithm != "" && sig.Algorithm != string(key.Algorithm()) {
		return sign.Errorf(sign.ReasonWrongAlgorithm, "the message says %q, but the key is for %s", sig.Algorithm, key.Algorithm())
	}
	if !s.rules.uses(key.Algorithm()) {
		return sign.Errorf(sign.ReasonWrongAlgorithm, "the profile does not use %s", key.Algorithm())
	}
	// The signature comes first: then the key holder has made the digest.
	switch good := key.Verify(st.base, sig.Values[0]); {
	case !good:
		return sign.ReasonBadSignature
	case st.thumbprint && sig.KeyID != key.Thumbprint():
		return sign.Errorf(sign.ReasonBadSignature, "the keyid is not the key's thumbprint")
	}
	if err := s.checkBodyCovered(m, st, body); err != nil {
		return err
	}
	return st.digests.check(body)
}

// checkPurpose checks that the key is for the profile.
func (s *profile) checkPurpose(key *sign.Key) error {
	if !slices.Contains(s.rules.purposes, key.Purpose()) {
		return sign.Errorf(sign.ReasonWrongPurpose, "the key's purpose is %q", key.Purpose())
	}
	return nil
}

// checkBodyCovered checks that the type and the digest of a body are covered.
func (s *profile) checkBodyCovered(m *sign.Message, st *state, body []byte) error {
	switch {
	case len(body) == 0:
	case s.rules != strict && !st.typed && (s.rules.typed || len(m.Source.Values(contentType.Canonical)) > 0):
		return sign.Errorf(sign.ReasonUncovered, "there is a body, but %s is not covered", contentType.Lower)
	case st.digests.has == 0 && !s.unsignedBody:
		return sign.Errorf(sign.ReasonUncovered, "there is a body, but %s is not covered", contentDigest.Lower)
	}
	return nil
}

// Sign implements [sign.Scheme]. sig.Covered names components to cover besides those that must be covered, in any case and order.
// Sign skips fields that the message does not have. It adds and covers a Content-Digest with SHA-256: in this package's profile
// always, in others if there is a body.
func (s *profile) Sign(m *sign.Message, sig *sign.Signature, key *sign.Key) (sign.Additions, error) {
	body, err := m.Body()
	if err != nil {
		return sign.Additions{}, err
	}
	label := cmp.Or(s.label, defaultLabel)
	components, err := s.toCover(m, sig.Covered, label, len(body) > 0)
	if err != nil {
		return sign.Additions{}, err
	}
	sum := sha256.Sum256(body)
	digestValue, err := serialiseBytes(algorithmSHA256, sum[:])
	if err != nil {
		return sign.Additions{}, err
	}
	p := parameters{
		components: components, created: sig.Created, expires: sig.Expires,
		keyID: sig.KeyID, alg: string(key.Algorithm()), nonce: sig.Nonce, tag: s.tag,
	}
	if err := s.rules.complete(m, &p, key); err != nil {
		return sign.Additions{}, err
	}
	if err := p.serialise(); err != nil {
		return sign.Additions{}, sign.Errorf(sign.CodeMalformed, "the signature's parameters cannot be written: %w", err)
	}
	if s.rules != strict { // what the verifier would refuse
		again := parameters{agent: s.rules.agent}
		if err := cmp.Or(again.read(p.text), s.checkParameters(&again), s.checkCovered(m, &again)); err != nil {
			return sign.Additions{}, err
		}
	}
	st := new(state)
	if st.base, err = s.appendBase(nil, m, components, digestValue); err != nil {
		return sign.Additions{}, err
	}
	st.base = appendParams(st.base, p.text)
	value, err := key.Sign(st.base)
	if err != nil {
		return sign.Additions{}, err
	}
	signature, err := serialiseBytes(label, value)
	if err != nil {
		return sign.Additions{}, err
	}
	if s.rules.base64URL {
		signature = toBase64URL(signature)
	}
	if !slices.Contains(components, contentDigest.Lower) {
		digestValue = "" // none is sent: the verifier would refuse one that is not covered
	}
	sig.Covered, sig.Algorithm, sig.State = components, p.alg, st
	return sign.Additions{Header: http.Header{
		headerDigest: {digestValue}, headerInput: {label + "=" + p.text}, headerSignature: {signature},
	}}, nil
}

// toCover returns the components that Sign covers: those that the profile requires in a fixed order, then the rest, sorted.
func (s *profile) toCover(m *sign.Message, asked []string, label string, body bool) ([]string, error) {
	components := []string{"@method", "@authority", "@path", "@query", contentDigest.Lower}
	if s.rules != strict {
		components = slices.Clone(s.rules.signs)
		if _, present := m.Query(); present && !s.rules.named {
			components = append(components, "@query")
		}
		if s.rules.agent {
			asked = append(asked, agentField.Canonical)
		}
		if body {
			asked = append(asked, contentType.Canonical)
			components = append(components, contentDigest.Lower)
		}
	}
	var rest []string
	add := func(name, lower string) error {
		switch {
		case derivedComponents[lower] != 0:
		case !canCover(lower) || lower == "content-length": // net/http sets that one by itself
			return sign.Errorf(sign.ReasonUncovered, "%q cannot be covered", name)
		case len(m.Source.Values(s.canonical(lower))) == 0:
			return nil
		case lower == agentField.Lower && s.rules.agent:
			var err error
			if lower, err = coverAgent(m, label); err != nil {
				return err
			}
		}
		if !slices.Contains(components, lower) && !slices.Contains(rest, lower) {
			rest = append(rest, lower)
		}
		return nil
	}
	for _, f := range s.require {
		if len(m.Source.Values(f.Canonical)) == 0 && f.Lower != contentDigest.Lower {
			return nil, sign.Errorf(sign.ReasonUncovered, "%s is missing, but must be covered", f.Canonical)
		}
	}
	for _, names := range [][]form.FieldName{s.require, s.cover} {
		for _, f := range names {
			if err := add(f.Lower, f.Lower); err != nil {
				return nil, err
			}
		}
	}
	for _, names := range [][]string{s.derived, asked} {
		for _, name := range names {
			if err := add(name, strings.ToLower(name)); err != nil {
				return nil, err
			}
		}
	}
	slices.Sort(rest)
	return append(components, rest...), nil
}

// SigningString implements [sign.Scheme]. It contains the body's digest, not the body, and no values of header fields and query
// parameters that hold credentials.
func (*profile) SigningString(_ *sign.Message, sig *sign.Signature, _ *sign.Key) string {
	st, ok := sig.State.(*state)
	if !ok {
		return ""
	}
	// No value contains a line feed, so the nth line is that of the nth component.
	lines := strings.Split(string(st.base), "\n")
	for i, name := range sig.Covered {
		start := len(name) + len(`"": `)
		lines[i] = lines[i][:start] + redacted(name, lines[i][start:])
	}
	return strings.Join(lines, "\n")
}

// redacted returns a component's value without credentials.
func redacted(name, value string) string {
	switch name {
	case "@query", "@request-target", "@target-uri":
		path, query, ok := strings.Cut(value, "?")
		if ok {
			query = "?" + redact.Query(query)
		}
		return path + query
	}
	return redact.Field(name, value)
}
