package sign

import (
	"cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/idem-go/idem/sign/internal/form"
	"github.com/idem-go/idem/sign/internal/keys"
	"github.com/idem-go/idem/sign/internal/redact"
)

// V1Config configures [NewV1]. The zero V1Config is the scheme that verifiers and clients use by default.
type V1Config struct {
	// KeyID, Timestamp, Nonce, SignedHeaders and Signature are the names of the header fields. Empty: X-Key-Id,
	// X-Timestamp, X-Nonce, X-Signed-Headers and X-Signature.
	KeyID, Timestamp, Nonce, SignedHeaders, Signature string

	// Cover are the names of header fields that must be signed if they are present, besides Idempotency-Key, Content-Type
	// and Content-Encoding. List the fields that a guard or a handler reads, such as the one that names the user: anyone who
	// can change one of them in transit can turn a retry into another operation.
	Cover []string

	// UnsignedContentType accepts messages whose Content-Type is present and not signed, for clients that do not sign it.
	// Whoever relays such a message can have its body read as another type. Clients of this package sign it anyway.
	UnsignedContentType bool

	// Require are the names of header fields that must be present and signed.
	Require []string
}

// v1 is the [Scheme] of [NewV1].
type v1 struct {
	keyID, timestamp, nonce, signedHeaders, signature string
	cover, require                                    []form.FieldName
	known                                             []form.FieldName // fields that find looks up without allocating
}

var standardV1 = Must(NewV1(V1Config{}))

// NewV1 returns this package's own scheme, for HMAC-SHA256 and Ed25519 keys, with the names and rules of o. It reports all errors
// of o at once, each as a [*ConfigError].
//
// The signing string consists of these lines, joined by line feeds, with none after the last. Only the names of the header fields
// are sorted, and nothing is decoded:
//
//	v1                                   v1-ed25519 for an Ed25519 key
//	demo                                 key id: X-Key-Id
//	POST                                 method
//	api.example.com                      host in lower case, with the port if one was sent; [Config].Host if it is set
//	/transfers/a%2Fb                     path as sent
//	x=2&x=1                              query as sent, or an empty line
//	1700000000                           seconds since 1970, digits only: X-Timestamp
//	n-0123456789abcdef                   16 to 128 of A-Z a-z 0-9 . _ ~ -: X-Nonce
//	29ddb7bb...                          SHA-256 of the body as sent, 64 lower-case hexadecimal digits
//	content-type;idempotency-key         names of the signed header fields, lower case, sorted: X-Signed-Headers
//	content-type:application/json        name:value of each of them, without white space around the value
//	idempotency-key:"k-1"
//
// X-Signature is "v1=" and the 64 lower-case hexadecimal digits of the HMAC, or "v1-ed25519=" and the 128 digits of the Ed25519
// signature. These fields must be sent once, and so must each signed field. X-Signed-Headers may be missing or empty if no
// field is signed. Idempotency-Key, Content-Type and Content-Encoding must be signed if they are present: they change the
// meaning of the message. Fields that a proxy may change or that frameworks keep apart (Host, Connection, Content-Length,
// Transfer-Encoding and so on) cannot be signed.
func NewV1(o V1Config) (Scheme, error) {
	var errs configErrors
	name := func(field, given, standard string) string {
		given = cmp.Or(given, standard)
		errs.addIf(!form.IsToken(given), "V1Config."+field, "%q is not the name of a header field", given)
		return http.CanonicalHeaderKey(given)
	}
	s := &v1{
		keyID:         name("KeyID", o.KeyID, "X-Key-Id"),
		timestamp:     name("Timestamp", o.Timestamp, "X-Timestamp"),
		nonce:         name("Nonce", o.Nonce, "X-Nonce"),
		signedHeaders: name("SignedHeaders", o.SignedHeaders, "X-Signed-Headers"),
		signature:     name("Signature", o.Signature, "X-Signature"),
		cover:         []form.FieldName{form.NewFieldName(form.IdempotencyKey), form.NewFieldName("Content-Encoding")},
	}
	if !o.UnsignedContentType {
		s.cover = append(s.cover, form.NewFieldName("Content-Type"))
	}
	own := []string{s.keyID, s.timestamp, s.nonce, s.signedHeaders, s.signature}
	slices.Sort(own)
	errs.addIf(len(slices.Compact(own)) < 5, "V1Config", "two fields have the same name")
	for _, n := range o.Cover {
		errs.addIf(!s.canCover(strings.ToLower(n)), "V1Config.Cover", "%q cannot be signed", n)
		s.cover = append(s.cover, form.NewFieldName(n))
	}
	for _, n := range o.Require {
		errs.addIf(!s.canCover(strings.ToLower(n)), "V1Config.Require", "%q cannot be signed", n)
		s.require = append(s.require, form.NewFieldName(n))
	}
	if err := errs.err(); err != nil {
		return nil, err
	}
	s.known = slices.Concat(s.cover, s.require, []form.FieldName{form.NewFieldName("Content-Type")})
	return s, nil
}

// Name implements [Scheme].
func (*v1) Name() string { return "v1" }

// The tags with which X-Signature and the signing string begin.
const (
	tagHMAC    = "v1"
	tagEd25519 = "v1-ed25519"
)

// tagOf returns the tag of messages that key signs.
func tagOf(key *Key) (string, error) {
	switch {
	case keys.Of(key).Webhook:
		return "", Errorf(ReasonWrongAlgorithm, "the key is for webhooks only")
	case key.algorithm == HMACSHA256:
		return tagHMAC, nil
	case key.algorithm == Ed25519:
		return tagEd25519, nil
	}
	return "", Errorf(ReasonWrongAlgorithm, "v1 has no keys for %s", key.algorithm)
}

// canCover reports whether a field may be named in X-Signed-Headers. The signature cannot sign itself.
func (s *v1) canCover(lower string) bool {
	return form.IsToken(lower) && !form.IsUnsignable(lower) && !strings.EqualFold(lower, s.signature) &&
		!strings.EqualFold(lower, s.signedHeaders)
}

// Parse implements [Scheme].
func (s *v1) Parse(m *Message, sig *Signature) error {
	signature, err := m.Required(s.signature)
	if err != nil {
		return err
	}
	keyID, err := m.Required(s.keyID)
	if err != nil {
		return err
	}
	if err := form.CheckKeyID(keyID); err != nil {
		return Errorf(CodeMalformed, "%v", err)
	}
	sig.KeyID = keyID
	timestamp, err := m.Required(s.timestamp)
	if err != nil {
		return err
	}
	if sig.Nonce, err = m.Required(s.nonce); err != nil {
		return err
	}
	signed, lines := m.Field(s.signedHeaders)
	if lines > 1 {
		return Errorf(CodeDuplicateHeader, "%s", s.signedHeaders)
	}

	if sig.Created, err = ParseTimestamp(timestamp); err != nil {
		return err
	}
	if err := form.CheckNonce(sig.Nonce); err != nil {
		return Errorf(CodeMalformed, "%v", err)
	}
	if err := sig.parseV1(signature); err != nil {
		return err
	}
	return s.parseCovered(m, sig, form.Trim(signed))
}

// parseV1 splits "v1=<hex>". An unknown tag is left to Check, which knows the key.
func (sig *Signature) parseV1(field string) error {
	tag, digits, ok := strings.Cut(field, "=")
	switch {
	case !ok || tag != tagHMAC && (!form.IsToken(tag) || len(tag) > maxTag) || digits == "" || len(digits)%2 != 0 ||
		len(digits) > 2*ed25519.SignatureSize,
		tag == tagHMAC && len(digits) != 2*sha256.Size,
		tag == tagEd25519 && len(digits) != 2*ed25519.SignatureSize:
		return errV1Form
	}
	n := len(sig.scratch)
	for i := 0; i < len(digits); i += 2 {
		high, low := lowerHex[digits[i]], lowerHex[digits[i+1]]
		if high > 15 || low > 15 {
			return errV1Form
		}
		sig.scratch = append(sig.scratch, high<<4|low)
	}
	sig.Algorithm = tag
	sig.Values = append(sig.Values, sig.scratch[n:len(sig.scratch):len(sig.scratch)])
	return nil
}

// maxTag is the length of the longest unknown tag, in bytes.
const maxTag = 32

// lowerHex has the values of lower-case hexadecimal digits, and 255 for all other bytes.
var lowerHex = func() (values [256]byte) {
	for c := range values {
		values[c] = 255
	}
	for value, c := range []byte("0123456789abcdef") {
		values[c] = byte(value)
	}
	return values
}()

var errV1Form = Errorf(CodeMalformed, "the signature must be v1= and 64 lower-case hexadecimal digits, or v1-ed25519= and 128")

// parseCovered parses X-Signed-Headers. It checks that each field in it was sent once, and that it names all fields that must be
// signed.
func (s *v1) parseCovered(m *Message, sig *Signature, signed string) error {
	for rest, more := signed, signed != ""; more; {
		var name string
		name, rest, more = strings.Cut(rest, ";")
		canonical, known := s.find(name)
		if n := len(sig.Covered); n > 0 && name <= sig.Covered[n-1] || !known && !form.IsLowerToken(name) {
			return Errorf(CodeMalformed, "%s must be lower-case names, sorted, each once, joined by ;", s.signedHeaders)
		}
		if !known && !s.canCover(name) {
			return Errorf(CodeMalformed, "%q cannot be signed", name)
		}
		switch value, lines := m.Field(canonical); lines {
		case 0:
			return Errorf(ReasonUncovered, "%s is listed as signed, but not present", name)
		case 1:
			if !form.IsLine(value) || form.Trim(value) != value {
				// White space around a value is not signed. If a framework left it there, the handler would see
				// another user or another key.
				return Errorf(CodeMalformed, "%s has control characters, or white space around it", name)
			}
			sig.Covered = append(sig.Covered, name)
			sig.fields = append(sig.fields, value)
		default:
			return Errorf(CodeDuplicateHeader, "%s", name)
		}
	}
	for _, name := range s.require {
		if !slices.Contains(sig.Covered, name.Lower) {
			return Errorf(ReasonUncovered, "%s must be signed", name.Canonical)
		}
	}
	for _, name := range s.cover {
		if slices.Contains(sig.Covered, name.Lower) {
			continue
		}
		switch lines := len(m.Source.Values(name.Canonical)); {
		case lines > 1:
			return Errorf(CodeDuplicateHeader, "%s", name.Canonical)
		case lines > 0:
			return Errorf(ReasonUncovered, "%s is present, but not signed", name.Canonical)
		}
	}
	return nil
}

// find returns the canonical spelling of a name. known is true for a common field that can be signed; then find allocates
// nothing.
func (s *v1) find(lower string) (canonical string, known bool) {
	for _, n := range s.known {
		if n.Lower == lower {
			return n.Canonical, true
		}
	}
	return http.CanonicalHeaderKey(lower), false
}

// Check implements [Scheme].
func (s *v1) Check(m *Message, sig *Signature, key *Key) error {
	tag, err := tagOf(key)
	if err != nil {
		return err
	}
	if sig.Algorithm != tag {
		return Errorf(ReasonWrongAlgorithm, "the message says %s", sig.Algorithm)
	}
	n := len(sig.scratch)
	sig.scratch = s.appendSigningString(sig.scratch, m, sig, tag)
	if !key.Verify(sig.scratch[n:], sig.Values[0]) {
		return ReasonBadSignature
	}
	return nil
}

// appendSigningString appends the signing string to b. The body has been read.
func (s *v1) appendSigningString(b []byte, m *Message, sig *Signature, tag string) []byte {
	query, _ := m.Query()
	digest := m.digest()

	b = append(b, tag...)
	b = append(b, '\n')
	b = append(b, sig.KeyID...)
	b = append(b, '\n')
	b = append(b, m.Method...)
	b = append(b, '\n')
	b = form.AppendLower(b, m.Authority())
	b = append(b, '\n')
	b = append(b, m.Path()...)
	b = append(b, '\n')
	b = append(b, query...)
	b = append(b, '\n')
	b = strconv.AppendInt(b, sig.Created, 10)
	b = append(b, '\n')
	b = append(b, sig.Nonce...)
	b = append(b, '\n')
	b = hex.AppendEncode(b, digest[:])
	b = append(b, '\n')
	for i, name := range sig.Covered {
		if i > 0 {
			b = append(b, ';')
		}
		b = append(b, name...)
	}
	for i, name := range sig.Covered {
		b = append(b, '\n')
		b = append(b, name...)
		b = append(b, ':')
		b = append(b, sig.fields[i]...)
	}
	return b
}

// Sign implements [Scheme]. sig.Covered names fields to sign besides those that must be signed, in any case and order. It skips
// fields that the message does not have.
func (s *v1) Sign(m *Message, sig *Signature, key *Key) (Additions, error) {
	tag, err := tagOf(key)
	if err != nil {
		return Additions{}, err
	}
	if _, err := m.Body(); err != nil {
		return Additions{}, err
	}
	var covered []string
	for _, name := range s.require {
		covered = append(covered, name.Lower)
	}
	for _, name := range s.cover {
		covered = append(covered, name.Lower)
	}
	for _, name := range sig.Covered {
		lower := strings.ToLower(name)
		if !s.canCover(lower) {
			return Additions{}, Errorf(ReasonUncovered, "%q cannot be signed", name)
		}
		covered = append(covered, lower)
	}
	slices.Sort(covered)
	sig.Covered = nil
	for _, name := range slices.Compact(covered) {
		value, lines := m.Field(http.CanonicalHeaderKey(name))
		switch {
		case lines == 0:
			continue
		case lines > 1:
			return Additions{}, Errorf(CodeDuplicateHeader, "%s", name)
		case !form.IsLine(value):
			return Additions{}, Errorf(CodeMalformed, "%s has control characters", name)
		}
		sig.Covered = append(sig.Covered, name)
		sig.fields = append(sig.fields, form.Trim(value))
	}
	for _, name := range s.require {
		if !slices.Contains(sig.Covered, name.Lower) {
			return Additions{}, Errorf(ReasonUncovered, "%s is missing, but must be signed", name.Canonical)
		}
	}
	value, err := key.Sign(s.appendSigningString(nil, m, sig, tag))
	if err != nil {
		return Additions{}, err
	}
	return Additions{Header: http.Header{
		s.keyID:         {sig.KeyID},
		s.timestamp:     {strconv.FormatInt(sig.Created, 10)},
		s.nonce:         {sig.Nonce},
		s.signature:     {tag + "=" + hex.EncodeToString(value)},
		s.signedHeaders: {strings.Join(sig.Covered, ";")},
	}}, nil
}

// SigningString implements [Scheme]. It contains the body's digest, not the body, and no values of header fields and query
// parameters that hold credentials.
func (s *v1) SigningString(m *Message, sig *Signature, key *Key) string {
	tag := sig.Algorithm
	if key != nil {
		if own, err := tagOf(key); err == nil {
			tag = own
		}
	}
	lines := strings.Split(string(s.appendSigningString(nil, m, sig, tag)), "\n")
	if len(lines) < v1FixedLines {
		return "" // it cannot have been parsed
	}
	if !m.hasBody() {
		lines[v1DigestLine] = "[the body was not read]"
	}
	lines[v1QueryLine] = redact.Query(lines[v1QueryLine])
	for i, line := range lines[v1FixedLines:] {
		if name, value, ok := strings.Cut(line, ":"); ok {
			lines[v1FixedLines+i] = name + ":" + redact.Field(name, value)
		}
	}
	return strings.Join(lines, "\n")
}

const (
	v1QueryLine  = 5  // the index of the query's line
	v1DigestLine = 8  // the index of the line of the body's digest
	v1FixedLines = 10 // the number of lines before those of the header fields
)
