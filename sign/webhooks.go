package sign

import (
	"cmp"
	"crypto"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/idem-go/idem/sign/internal/form"
)

// defaultWebhookKeyID is the id of the keys of webhooks whose scheme was given none.
const defaultWebhookKeyID = "webhooks"

const (
	// maxWebhookID is the length of the longest webhook-id, in bytes.
	maxWebhookID = 128
	// maxWebhookSignatures is how many signatures a message may have.
	maxWebhookSignatures = 8
	// maxWebhookTries is how many pairs of a key and a signature are tried for a message. While a key is being changed,
	// there are four.
	maxWebhookTries = 16
	// The lengths of shared secrets, in bytes. The specification says 24 to 64, but senders hand out shorter ones.
	minWebhookSecret, maxWebhookSecret = 16, 64
	// timestampDigits is the number of digits of a timestamp from 2001 to 2286.
	timestampDigits = 10
)

// StandardWebhooksConfig configures [NewStandardWebhooks]. The zero StandardWebhooksConfig has the names of the specification.
type StandardWebhooksConfig struct {
	// ID, Timestamp and Signature are the names of the header fields, for senders with other names: svix-id,
	// svix-timestamp, svix-signature. Empty: webhook-id, webhook-timestamp and webhook-signature.
	ID, Timestamp, Signature string

	// KeyID is the id of the keys that the verifier uses, because messages name none. Give each sender a verifier with an
	// id of its own. Empty: "webhooks".
	KeyID string

	// AlsoSign are keys that sign each message in addition to the key of the [Transport] or [Request]: the old key, while
	// receivers change theirs. There may be 7. Verifiers ignore them.
	AlsoSign []*Key

	// UnsignedIdempotencyKey accepts messages with an Idempotency-Key, which is not signed: whoever relays the message can
	// change it. A guard inside such a verifier must use webhook-id instead. False: such messages are refused
	// ([ReasonUncovered]).
	UnsignedIdempotencyKey bool
}

// standardWebhooks is the [Scheme] of [NewStandardWebhooks].
type standardWebhooks struct {
	id, timestamp, signature string
	keyID                    string
	also                     []*Key
	unsignedIdempotencyKey   bool
}

// NewStandardWebhooks returns the scheme of https://www.standardwebhooks.com, version 1. It reports all errors of o at once, each
// as a [*ConfigError]. The signing string is
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
// have 8, including those of unknown versions. [NewStandardWebhooksKey] makes keys from the secrets that senders hand out. Keys
// of [NewHMACKey] and Ed25519 keys of [NewKey] work too.
//
// Messages name no key. All keys of a sender have the id [StandardWebhooksConfig].KeyID. To change the secret, add the new key
// to the [Ring] under this id, and remove the old one later, or give it a ValidUntil ([KeyConfig]).
//
// The specification allows timestamps to be 5 minutes off: set [Config].Window, which is 60 s by default.
//
// # Retries
//
// A sender that retries a delivery keeps webhook-id and signs a new webhook-timestamp. That is no replay: the nonce is id and
// timestamp together, "msg_2KWP….1674087231". The same id in the same second is a replay and is refused, or under
// [Config].GuardedByKey left to the guard. The guard inside the verifier (core.SignedEvent) runs the event once and answers later
// deliveries with the first response. Its key is the id.
//
// The specification allows any text as an id. This package accepts 1 to 128 letters, digits and !#$%&'*+-.^_`|~:/=, which a guard
// uses as its key without change. No part of an id after a full stop may be ten digits, because the signed
// "a.1700000000.1700000001.b" could then be a message with the id "a.1700000000", or one with the id "a" and another timestamp
// and body. Whoever sees the one could send the other.
//
// # Sending
//
// Set this scheme in the Options of [Transport] or [Request], and webhook-id to the event's id before each attempt. Without a
// webhook-id each signed request gets a new one, and receivers cannot tell that two of them report the same event.
func NewStandardWebhooks(o StandardWebhooksConfig) (Scheme, error) {
	var errs configErrors
	name := func(field, given, standard string) string {
		given = cmp.Or(given, standard)
		errs.addIf(!form.IsToken(given) || unsignable(strings.ToLower(given)), "StandardWebhooksConfig."+field, "%q cannot be the field's name", given)
		return http.CanonicalHeaderKey(given)
	}
	s := &standardWebhooks{
		id:                     name("ID", o.ID, "Webhook-Id"),
		timestamp:              name("Timestamp", o.Timestamp, "Webhook-Timestamp"),
		signature:              name("Signature", o.Signature, "Webhook-Signature"),
		keyID:                  cmp.Or(o.KeyID, defaultWebhookKeyID),
		also:                   slices.Clone(o.AlsoSign),
		unsignedIdempotencyKey: o.UnsignedIdempotencyKey,
	}
	errs.addIf(s.id == s.timestamp || s.timestamp == s.signature || s.signature == s.id, "StandardWebhooksConfig", "two fields have one name")
	errs.addIf(!isKeyID(s.keyID), "StandardWebhooksConfig.KeyID", "must be 1 to %d visible ASCII characters", form.MaxKeyID)
	errs.addIf(len(s.also) >= maxWebhookSignatures, "StandardWebhooksConfig.AlsoSign", "has %d keys; a message has no more than %d signatures", len(s.also), maxWebhookSignatures)
	for i, k := range s.also {
		errs.addIf(k == nil, "StandardWebhooksConfig.AlsoSign", "key %d is nil", i)
		if k != nil {
			errs.addIf(webhookVersions[k.algorithm].name == "", "StandardWebhooksConfig.AlsoSign", "this scheme has no keys for %s", k.algorithm)
			errs.addIf(k.public != nil && k.private == nil, "StandardWebhooksConfig.AlsoSign", "key %d has no private part: it can verify only", i)
		}
	}
	if err := errs.err(); err != nil {
		return nil, err
	}
	return s, nil
}

// webhookVersions are the identifiers of signatures and their lengths in bytes, which differ.
var webhookVersions = map[Algorithm]struct {
	name string
	size int
}{
	HMACSHA256: {"v1", sha256.Size},
	Ed25519:    {"v1a", ed25519.SignatureSize},
}

// webhookBase64 decodes one text only for each signature.
var webhookBase64 = base64.StdEncoding.Strict()

// Name implements [Scheme].
func (*standardWebhooks) Name() string { return "standard-webhooks" }

// Parse implements [Scheme]. The nonce is webhook-id and webhook-timestamp.
func (s *standardWebhooks) Parse(m *Message, sig *Signature) error {
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
	if err := checkWebhookID(id); err != nil {
		return err
	}
	if sig.Created, err = ParseTimestamp(timestamp); err != nil {
		return err
	}
	if err := sig.parseWebhook(signatures); err != nil {
		return err
	}
	sig.KeyID, sig.Nonce, sig.EventID = s.keyID, id+"."+timestamp, id
	if err := checkWebhook(m); err != nil {
		return err
	}
	return s.checkIdempotencyKey(m)
}

// checkWebhook refuses unsigned methods and content codings, which would change the meaning of a message: senders use POST and
// no coding. A guard lets safe methods pass, and another method is another operation.
func checkWebhook(m *Message) error {
	if m.Method != http.MethodPost {
		return Errorf(ReasonUncovered, "the method is %s; this scheme does not sign it, and accepts POST only", m.Method)
	}
	for _, encoding := range m.Source.Values("Content-Encoding") {
		if encoding != "" && !strings.EqualFold(encoding, "identity") {
			return Errorf(ReasonUncovered, "Content-Encoding is present, but this scheme does not sign it")
		}
	}
	return nil
}

// checkWebhookID makes sure that there is only one way to take the signing string apart: no part of the id after a full stop is
// a timestamp that could be in a window.
func checkWebhookID(id string) error {
	if len(id) > maxWebhookID || !form.IsWebhookID(id) {
		return errWebhookID
	}
	_, rest, more := strings.Cut(id, ".")
	for more {
		var part string
		part, rest, more = strings.Cut(rest, ".")
		if _, err := ParseTimestamp(part); err == nil && len(part) == timestampDigits {
			return errWebhookID
		}
	}
	return nil
}

var errWebhookID = Errorf(CodeMalformed, "the webhook's id must be 1 to %d letters, digits and !#$%%&'*+-.^_`|~:/=, and have no part of ten digits after a full stop", maxWebhookID)

// parseWebhook parses the list of signatures. It skips unknown versions, which a sender may add one day.
func (sig *Signature) parseWebhook(list string) error {
	for n, more := 1, true; more; n++ {
		var item string
		item, list, more = strings.Cut(list, " ")
		version, text, ok := strings.Cut(item, ",")
		if n > maxWebhookSignatures || !ok || !form.IsToken(version) || text == "" {
			return errWebhookSignatures
		}
		for _, known := range webhookVersions {
			if version != known.name {
				continue
			}
			value, err := webhookBase64.DecodeString(text)
			// The decoder skips line feeds; the length of the text shows them.
			if err != nil || len(value) != known.size || len(text) != webhookBase64.EncodedLen(known.size) {
				return errWebhookSignatures
			}
			sig.Values = append(sig.Values, value)
		}
	}
	return nil
}

var errWebhookSignatures = Errorf(CodeMalformed, "the signatures are at most %d of v1,<base64> and v1a,<base64>, with a space between them", maxWebhookSignatures)

// checkIdempotencyKey refuses an Idempotency-Key, which looks signed and is not.
func (s *standardWebhooks) checkIdempotencyKey(m *Message) error {
	switch lines := len(m.Source.Values(form.IdempotencyKey)); {
	case lines > 1:
		return Errorf(CodeDuplicateHeader, "%s", form.IdempotencyKey)
	case lines > 0 && !s.unsignedIdempotencyKey && s.id != form.IdempotencyKey:
		return Errorf(ReasonUncovered, "%s is present, but this scheme does not sign it; %s identifies the event", form.IdempotencyKey, s.id)
	}
	return nil
}

// Check implements [Scheme].
func (s *standardWebhooks) Check(m *Message, sig *Signature, key *Key) error {
	version := webhookVersions[key.algorithm]
	if version.name == "" {
		return Errorf(ReasonWrongAlgorithm, "this scheme has no keys for %s", key.algorithm)
	}
	ofKind := 0
	for _, v := range sig.Values {
		if len(v) == version.size {
			ofKind++
		}
	}
	if ofKind == 0 {
		return Errorf(ReasonWrongAlgorithm, "the message has no %s signature", version.name)
	}
	body, err := m.Body()
	if err != nil {
		return err
	}
	n := len(sig.scratch)
	content := append(append(sig.scratch, sig.Nonce...), '.')
	verify := func(signature []byte) bool { return key.verify(content[n:], signature) }
	if key.algorithm == HMACSHA256 {
		expected := key.mac(content[n:], body) // once, however many signatures there are
		verify = expected.equals
	} else {
		content = append(content, body...)
	}
	sig.scratch = content[:n]
	for _, v := range sig.Values {
		if len(v) != version.size {
			continue
		}
		if sig.tries++; sig.tries > maxWebhookTries {
			break
		}
		if verify(v) {
			return nil
		}
	}
	return ReasonBadSignature
}

// Sign implements [Scheme]. It keeps m's webhook-id. Without one, the nonce becomes the id.
func (s *standardWebhooks) Sign(m *Message, sig *Signature, key *Key) (Additions, error) {
	if err := s.checkIdempotencyKey(m); err != nil {
		return Additions{}, err
	}
	id, lines := m.Field(s.id)
	switch {
	case lines > 1:
		return Additions{}, Errorf(CodeDuplicateHeader, "%s", s.id)
	case id == "":
		id = sig.Nonce
	}
	if err := checkWebhookID(id); err != nil {
		return Additions{}, err
	}
	body, err := m.Body()
	if err != nil {
		return Additions{}, err
	}
	timestamp := strconv.FormatInt(sig.Created, 10)
	sig.Nonce = id + "." + timestamp
	content := slices.Concat([]byte(sig.Nonce+"."), body)
	var list []string
	for _, k := range append([]*Key{key}, s.also...) {
		version := webhookVersions[k.algorithm]
		if version.name == "" {
			return Additions{}, Errorf(ReasonWrongAlgorithm, "this scheme has no keys for %s", k.algorithm)
		}
		value, err := k.sign(content)
		if err != nil {
			return Additions{}, err
		}
		list = append(list, version.name+","+webhookBase64.EncodeToString(value))
	}
	return Additions{Header: http.Header{s.id: {id}, s.timestamp: {timestamp}, s.signature: {strings.Join(list, " ")}}}, nil
}

// SigningString implements [Scheme]. It contains the body's length and SHA-256, not the body.
func (s *standardWebhooks) SigningString(m *Message, sig *Signature, _ *Key) string {
	if sig.Nonce == "" {
		return "" // m was not parsed
	}
	return sig.Nonce + "." + m.redactedBody()
}

// redactedBody returns what replaces the body in SigningString.
func (m *Message) redactedBody() string {
	if !m.hasBody() {
		return "[the body was not read]"
	}
	return "[" + strconv.Itoa(len(m.body)) + " bytes, SHA-256 " + NonceOf(m.body) + "]"
}

// NewStandardWebhooksKey makes a key for [NewStandardWebhooks] from a secret as its senders hand it out, a prefix and base64:
//
//   - "whsec_" or no prefix: a shared secret of 16 to 64 bytes (HMAC-SHA256).
//   - "whpk_": an Ed25519 public key, which verifies and does not sign.
//   - "whsk_": an Ed25519 private key, as its seed of 32 bytes, or seed and public key.
//
// White space around it, such as a file's last line feed, is refused. Never pass a public key without its prefix: it would be a
// shared secret that everybody knows. Such secrets may be shorter than 32 bytes, so the key is for webhooks only: [Key.Sign] and
// [Key.Verify] reject it. Its ID is [StandardWebhooksConfig].KeyID. For Stripe's "whsec_" use [NewSenderKey].
func NewStandardWebhooksKey(o KeyConfig, secret string) (*Key, error) {
	var errs configErrors
	k := &Key{webhook: true}
	kind, text, prefixed := strings.Cut(secret, "_") // base64 has none
	if !prefixed {
		kind, text = "whsec", secret
	}
	raw, err := webhookBase64.DecodeString(text)
	bad := func(is bool, format string, args ...any) bool {
		errs.addIf(is, "secret", format, args...)
		return is
	}
	switch {
	case errs.addIfSpaced(secret):
	case bad(kind != "whsec" && kind != "whpk" && kind != "whsk", "begins with something else than whsec_, whpk_ or whsk_"):
	case bad(err != nil || webhookBase64.EncodeToString(raw) != text, "is not base64 (RFC 4648, section 4)"): // the decoder skips line feeds
	case kind == "whsec":
		if !bad(len(raw) < minWebhookSecret || len(raw) > maxWebhookSecret, "has %d bytes; %d to %d are allowed", len(raw), minWebhookSecret, maxWebhookSecret) {
			bad(isRepeated(raw), "is one byte repeated")
		}
		k.algorithm, k.secret = HMACSHA256, hide(raw)
	case kind == "whpk":
		bad(len(raw) != ed25519.PublicKeySize, "has %d bytes; a public key has %d", len(raw), ed25519.PublicKeySize)
		k.algorithm, k.public = Ed25519, ed25519.PublicKey(raw)
	case !bad(len(raw) != ed25519.SeedSize && len(raw) != ed25519.PrivateKeySize, "has %d bytes; a private key has %d or %d", len(raw), ed25519.SeedSize, ed25519.PrivateKeySize):
		private := ed25519.NewKeyFromSeed(raw[:ed25519.SeedSize])
		bad(len(raw) == ed25519.PrivateKeySize && !private.Equal(ed25519.PrivateKey(raw)), "holds a public key that does not belong to the private one")
		k.algorithm, k.private, k.public = Ed25519, hide[crypto.Signer](private), private.Public()
	}
	return newKey(errs, k, o)
}
