package webhook

import (
	"cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/form"
	"github.com/idem-go/idem/sign/internal/keys"
)

// defaultKeyID is the id of the keys of webhooks whose scheme was given none.
const defaultKeyID = "webhooks"

const (
	// maxID is the length of the longest webhook-id, in bytes.
	maxID = 128
	// maxSignatures is how many signatures a message may have.
	maxSignatures = 8
	// The lengths of shared secrets, in bytes. The specification says 24 to 64, but senders hand out shorter ones.
	minSecret, maxStandardSecret = 16, 64
	// timestampDigits is the number of digits of a timestamp from 2001 to 2286.
	timestampDigits = 10
)

// StandardConfig configures [NewStandard]. The zero StandardConfig has the names of the specification.
type StandardConfig struct {
	// ID, Timestamp and Signature are the names of the header fields, for senders with other names: svix-id,
	// svix-timestamp, svix-signature. Empty: webhook-id, webhook-timestamp and webhook-signature.
	ID, Timestamp, Signature string

	// KeyID is the id of the keys that the verifier uses, because messages name none. Give each sender a verifier with an
	// id of its own. Empty: "webhooks".
	KeyID string

	// AlsoSign are keys that sign each message in addition to the key of the [sign.Transport] or [sign.Request]: the old key, while
	// receivers change theirs. There may be 7. Verifiers ignore them.
	AlsoSign []*sign.Key

	// UnsignedIdempotencyKey accepts messages with an Idempotency-Key, which is not signed: anyone who relays the message can
	// change it. A guard inside such a verifier must use webhook-id instead. False: such messages are refused
	// ([sign.ReasonUncovered]).
	UnsignedIdempotencyKey bool
}

// standard is the [sign.Scheme] of [NewStandard].
type standard struct {
	id, timestamp, signature string
	keyID                    string
	also                     []*sign.Key
	unsignedIdempotencyKey   bool
}

// NewStandard returns the scheme of https://www.standardwebhooks.com, version 1. It reports all errors of o at once, each
// as a [*sign.ConfigError]. The signing string is
//
//	<webhook-id>.<webhook-timestamp>.<body as sent>
//
// Nothing else is signed: not the method, the path, the query, the host or any other header field. Give each endpoint a key of
// its own, and act only on what is signed. The header fields are
//
//	webhook-id: msg_2KWPBgLlAfxdpx2AI54pPJ85f4W
//	webhook-timestamp: 1674087231
//	webhook-signature: v1,K5oZ…I4= v1a,hnO3…Ag==
//
// The signatures are base64 (RFC 4648, section 4): v1 is HMAC-SHA256, v1a is Ed25519. One good signature is enough. A message may
// have 8, including those of unknown versions. [NewStandardKey] makes keys from the secrets that senders hand out. Keys
// of [sign.NewHMACKey] and Ed25519 keys of [sign.NewKey] work too.
//
// Messages name no key. All keys of a sender have the id [StandardConfig].KeyID. To change the secret, add the new key
// to the [sign.Ring] under this id, and remove the old one later, or give it a ValidUntil ([sign.KeyConfig]).
//
// The specification allows timestamps to be 5 minutes off: set [sign.Config].Window, which is 60 s by default.
//
// # Retries
//
// A sender that retries a delivery keeps webhook-id and signs a new webhook-timestamp. That is no replay: the nonce is id and
// timestamp together, "msg_2KWP….1674087231". The same id in the same second is a replay and is refused, or under
// [sign.Config].GuardedByKey left to the guard. The guard inside the verifier (core.SignedEvent) runs the event once and answers later
// deliveries with the first response. Its key is the id.
//
// The specification allows any text as an id. This package accepts 1 to 128 letters, digits and !#$%&'*+-.^_`|~:/=, which a guard
// uses as its key without change. No part of an id after a full stop may be ten digits, because the signed
// "a.1700000000.1700000001.b" could then be a message with the id "a.1700000000", or one with the id "a" and another timestamp
// and body. Whoever sees the one could send the other.
//
// # Sending
//
// Set this scheme in the Options of [sign.Transport] or [sign.Request], and webhook-id to the event's id before each attempt. Without a
// webhook-id each signed request gets a new one, and receivers cannot tell that two of them report the same event.
func NewStandard(o StandardConfig) (sign.Scheme, error) {
	var errs []error
	addIf := func(bad bool, field, format string, args ...any) {
		if bad {
			errs = append(errs, &sign.ConfigError{Field: "webhook.StandardConfig" + field, Problem: fmt.Sprintf(format, args...)})
		}
	}
	name := func(field, given, standard string) string {
		given = cmp.Or(given, standard)
		addIf(!form.IsToken(given) || form.IsUnsignable(strings.ToLower(given)), "."+field, "%q cannot be the field's name", given)
		return http.CanonicalHeaderKey(given)
	}
	s := &standard{
		id:                     name("ID", o.ID, "Webhook-Id"),
		timestamp:              name("Timestamp", o.Timestamp, "Webhook-Timestamp"),
		signature:              name("Signature", o.Signature, "Webhook-Signature"),
		keyID:                  cmp.Or(o.KeyID, defaultKeyID),
		also:                   slices.Clone(o.AlsoSign),
		unsignedIdempotencyKey: o.UnsignedIdempotencyKey,
	}
	addIf(s.id == s.timestamp || s.timestamp == s.signature || s.signature == s.id, "", "two fields have the same name")
	addIf(form.CheckKeyID(s.keyID) != nil, ".KeyID", "must be 1 to %d visible ASCII characters", form.MaxKeyID)
	addIf(len(s.also) >= maxSignatures, ".AlsoSign", "has %d keys; a message has no more than %d signatures", len(s.also), maxSignatures)
	for i, k := range s.also {
		addIf(k == nil, ".AlsoSign", "key %d is nil", i)
		if k != nil {
			addIf(standardVersions[k.Algorithm()].name == "", ".AlsoSign", "this scheme has no keys for %s", k.Algorithm())
			addIf(keys.Of(k).VerifiesOnly(), ".AlsoSign", "key %d has no private part: it can verify only", i)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return s, nil
}

// standardVersions are the identifiers of signatures and their lengths in bytes, which differ.
var standardVersions = map[sign.Algorithm]struct {
	name string
	size int
}{
	sign.HMACSHA256: {"v1", sha256.Size},
	sign.Ed25519:    {"v1a", ed25519.SignatureSize},
}

// standardBase64 decodes one text only for each signature.
var standardBase64 = base64.StdEncoding.Strict()

// Name implements [sign.Scheme].
func (*standard) Name() string { return "standard-webhooks" }

// Parse implements [sign.Scheme]. The nonce is webhook-id and webhook-timestamp.
func (s *standard) Parse(m *sign.Message, sig *sign.Signature) error {
	signatures, err := m.Required(s.signature)
	if err != nil {
		return err
	}
	id, err := m.Required(s.id)
	if err != nil {
		return err
	}
	timestamp, err := m.Required(s.timestamp)
	if err != nil {
		return err
	}
	if err := checkID(id); err != nil {
		return err
	}
	if sig.Created, err = sign.ParseTimestamp(timestamp); err != nil {
		return err
	}
	if err := parseSignatures(signatures, sig); err != nil {
		return err
	}
	sig.KeyID, sig.Nonce, sig.EventID = s.keyID, id+"."+timestamp, id
	if err := checkUnsigned(m); err != nil {
		return err
	}
	return s.checkIdempotencyKey(m)
}

// checkUnsigned refuses unsigned methods and content codings, which would change the meaning of a message: senders use POST and
// no coding. A guard lets safe methods pass, and another method is another operation.
func checkUnsigned(m *sign.Message) error {
	if m.Method != http.MethodPost {
		return sign.Errorf(sign.ReasonUncovered, "the method is %s; this scheme does not sign it, and accepts POST only", m.Method)
	}
	for _, encoding := range m.Source.Values("Content-Encoding") {
		if encoding != "" && !strings.EqualFold(encoding, "identity") {
			return sign.Errorf(sign.ReasonUncovered, "Content-Encoding is present, but this scheme does not sign it")
		}
	}
	return nil
}

// checkID makes sure that there is only one way to take the signing string apart: no part of the id after a full stop is
// a timestamp that could be in a window.
func checkID(id string) error {
	if len(id) > maxID || !form.IsWebhookID(id) {
		return errID
	}
	_, rest, more := strings.Cut(id, ".")
	for more {
		var part string
		part, rest, more = strings.Cut(rest, ".")
		if _, err := sign.ParseTimestamp(part); err == nil && len(part) == timestampDigits {
			return errID
		}
	}
	return nil
}

var errID = sign.Errorf(sign.CodeMalformed,
	"the webhook's id must be 1 to %d letters, digits and !#$%%&'*+-.^_`|~:/=, and have no part of ten digits after a full stop", maxID)

// parseSignatures parses the list of signatures. It skips unknown versions, which a sender may add one day.
func parseSignatures(list string, sig *sign.Signature) error {
	for n, more := 1, true; more; n++ {
		var item string
		item, list, more = strings.Cut(list, " ")
		version, text, ok := strings.Cut(item, ",")
		if n > maxSignatures || !ok || !form.IsToken(version) || text == "" {
			return errSignatures
		}
		for _, known := range standardVersions {
			if version != known.name {
				continue
			}
			value, err := standardBase64.DecodeString(text)
			// The decoder skips line feeds; the length of the text shows them.
			if err != nil || len(value) != known.size || len(text) != standardBase64.EncodedLen(known.size) {
				return errSignatures
			}
			sig.Values = append(sig.Values, value)
		}
	}
	return nil
}

var errSignatures = sign.Errorf(sign.CodeMalformed,
	"the signatures are at most %d of v1,<base64> and v1a,<base64>, with a space between them", maxSignatures)

// checkIdempotencyKey refuses an Idempotency-Key, which looks signed and is not.
func (s *standard) checkIdempotencyKey(m *sign.Message) error {
	switch lines := len(m.Source.Values(form.IdempotencyKey)); {
	case lines > 1:
		return sign.Errorf(sign.CodeDuplicateHeader, "%s", form.IdempotencyKey)
	case lines > 0 && !s.unsignedIdempotencyKey && s.id != form.IdempotencyKey:
		return sign.Errorf(sign.ReasonUncovered, "%s is present, but this scheme does not sign it; %s identifies the event",
			form.IdempotencyKey, s.id)
	}
	return nil
}

// Check implements [sign.Scheme].
func (s *standard) Check(m *sign.Message, sig *sign.Signature, key *sign.Key) error {
	version := standardVersions[key.Algorithm()]
	if version.name == "" {
		return sign.Errorf(sign.ReasonWrongAlgorithm, "this scheme has no keys for %s", key.Algorithm())
	}
	ofKind := 0
	for _, v := range sig.Values {
		if len(v) == version.size {
			ofKind++
		}
	}
	if ofKind == 0 {
		return sign.Errorf(sign.ReasonWrongAlgorithm, "the message has no %s signature", version.name)
	}
	body, err := m.Body()
	if err != nil {
		return err
	}
	content, material := append(append(sig.Scratch(len(sig.Nonce)+1), sig.Nonce...), '.'), keys.Of(key)
	var verify func(signature []byte) bool
	if key.Algorithm() == sign.HMACSHA256 {
		expected := material.MAC(content, body) // once, however many signatures there are
		verify = expected.Equals
	} else {
		content = append(content, body...)
		verify = func(signature []byte) bool { return material.Verify(content, signature) }
	}
	for _, v := range sig.Values {
		if len(v) != version.size {
			continue
		}
		if !sig.Try() {
			break
		}
		if verify(v) {
			return nil
		}
	}
	return sign.ReasonBadSignature
}

// Sign implements [sign.Scheme]. It keeps m's webhook-id. Without one, the nonce becomes the id.
func (s *standard) Sign(m *sign.Message, sig *sign.Signature, key *sign.Key) (sign.Additions, error) {
	if err := s.checkIdempotencyKey(m); err != nil {
		return sign.Additions{}, err
	}
	id, lines := m.Field(s.id)
	switch {
	case lines > 1:
		return sign.Additions{}, sign.Errorf(sign.CodeDuplicateHeader, "%s", s.id)
	case id == "":
		id = sig.Nonce
	}
	if err := checkID(id); err != nil {
		return sign.Additions{}, err
	}
	body, err := m.Body()
	if err != nil {
		return sign.Additions{}, err
	}
	timestamp := strconv.FormatInt(sig.Created, 10)
	sig.Nonce = id + "." + timestamp
	content := slices.Concat([]byte(sig.Nonce+"."), body)
	var list []string
	for _, k := range append([]*sign.Key{key}, s.also...) {
		version := standardVersions[k.Algorithm()]
		if version.name == "" {
			return sign.Additions{}, sign.Errorf(sign.ReasonWrongAlgorithm, "this scheme has no keys for %s", k.Algorithm())
		}
		value, err := keys.Of(k).Sign(content)
		if err != nil {
			return sign.Additions{}, err
		}
		list = append(list, version.name+","+standardBase64.EncodeToString(value))
	}
	return sign.Additions{Header: http.Header{s.id: {id}, s.timestamp: {timestamp}, s.signature: {strings.Join(list, " ")}}}, nil
}

// SigningString implements [sign.Scheme]. It contains the body's length and SHA-256, not the body.
func (s *standard) SigningString(m *sign.Message, sig *sign.Signature, _ *sign.Key) string {
	if sig.Nonce == "" {
		return "" // m was not parsed
	}
	return sig.Nonce + "." + m.RedactedBody()
}

// NewStandardKey makes a key for [NewStandard] from a secret as its senders hand it out, a prefix and base64:
//
//   - "whsec_" or no prefix: a shared secret of 16 to 64 bytes (HMAC-SHA256).
//   - "whpk_": an Ed25519 public key, which verifies and does not sign.
//   - "whsk_": an Ed25519 private key, as its seed of 32 bytes, or seed and public key.
//
// White space around it, such as a file's last line feed, is refused. Never pass a public key without its prefix: it would be a
// shared secret that everybody knows. Such secrets may be shorter than 32 bytes, so the key is for webhooks only: [sign.Key.Sign] and
// [sign.Key.Verify] reject it. Its ID is [StandardConfig].KeyID. For Stripe's "whsec_" use [NewSenderKey].
func NewStandardKey(o sign.KeyConfig, secret string) (*sign.Key, error) {
	m := new(keys.Material)
	kind, text, prefixed := strings.Cut(secret, "_") // base64 has none
	if !prefixed {
		kind, text = "whsec", secret
	}
	raw, err := standardBase64.DecodeString(text)
	problems := spaces(secret)
	bad := func(is bool, format string, args ...any) bool {
		if is {
			problems = append(problems, fmt.Sprintf(format, args...))
		}
		return is
	}
	switch {
	case len(problems) > 0:
	case bad(kind != "whsec" && kind != "whpk" && kind != "whsk", "begins with something else than whsec_, whpk_ or whsk_"):
	case bad(err != nil || standardBase64.EncodeToString(raw) != text, "is not base64 (RFC 4648, section 4)"):
		// the decoder skips line feeds
	case kind == "whsec":
		if !bad(len(raw) < minSecret || len(raw) > maxStandardSecret,
			"has %d bytes; %d to %d are allowed", len(raw), minSecret, maxStandardSecret) {
			bad(keys.IsRepeated(raw), "is one byte repeated")
		}
		m = keys.NewSecret(string(sign.HMACSHA256), raw)
	case kind == "whpk":
		bad(len(raw) != ed25519.PublicKeySize, "has %d bytes; a public key has %d", len(raw), ed25519.PublicKeySize)
		m.Algorithm, m.Public = string(sign.Ed25519), ed25519.PublicKey(raw)
	case !bad(len(raw) != ed25519.SeedSize && len(raw) != ed25519.PrivateKeySize,
		"has %d bytes; a private key has %d or %d", len(raw), ed25519.SeedSize, ed25519.PrivateKeySize):
		private := ed25519.NewKeyFromSeed(raw[:ed25519.SeedSize])
		bad(len(raw) == ed25519.PrivateKeySize && !private.Equal(ed25519.PrivateKey(raw)),
			"holds a public key that does not belong to the private one")
		m = keys.NewPrivate(string(sign.Ed25519), private)
	}
	m.Webhook, m.Problems = true, problems
	return sign.NewKey(o, m)
}

// spaces returns the problems of white space around a secret: a file ends with a line feed, which is no part of the secret.
func spaces(secret string) (problems []string) {
	begin, end := strings.TrimLeftFunc(secret, unicode.IsSpace), strings.TrimRightFunc(secret, unicode.IsSpace)
	if begin != secret {
		problems = append(problems, fmt.Sprintf("begins with white space (%q)", strings.TrimSuffix(secret, begin)))
	}
	if end != secret {
		problems = append(problems, fmt.Sprintf("ends with white space (%q)", strings.TrimPrefix(secret, end)))
	}
	return problems
}
