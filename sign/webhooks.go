package sign

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/idem-go/idem/sign/internal/form"
)

// DefaultWebhookKeyID is the id of keys for webhooks, unless [StandardWebhooksOptions] has another one.
const DefaultWebhookKeyID = "webhooks"

const (
	// maxWebhookID is the length of the longest webhook-id, in bytes.
	maxWebhookID = 128
	// maxWebhookSignatures is how many signatures a message may have.
	maxWebhookSignatures = 8
	// maxWebhookTries is how many pairs of a key and a signature are tried for a message. While keys
	// are being changed there are four.
	maxWebhookTries = 16
	// The limits for shared secrets, in bytes. The specification says 24 to 64; its libraries take any, and
	// senders hand out shorter ones.
	minWebhookSecret, maxWebhookSecret = 16, 64
	// timestampDigits is how many digits a timestamp has from 2001 to 2286.
	timestampDigits = 10
)

// StandardWebhooksOptions are the choices of [NewStandardWebhooks]. The zero value is what
// [StandardWebhooks] describes.
type StandardWebhooksOptions struct {
	// ID, Timestamp and Signature are the names of the header fields, for senders with their
	// own: svix-id, svix-timestamp, svix-signature. Empty: the standard names, webhook-id and so
	// on.
	ID, Timestamp, Signature string

	// KeyID is the id under which the verifier looks for keys: messages name none. Give each
	// sender a verifier with an id of its own. Empty: [DefaultWebhookKeyID].
	KeyID string

	// AlsoSign are keys that sign each message beside the one that a [Transport] or [Request]
	// has: the old key, while receivers change theirs. At most 7. Verifiers don't look at
	// them.
	AlsoSign []*Key

	// UnsignedIdempotencyKey lets messages pass that have an Idempotency-Key, although it is not
	// signed and whoever relays the message can change it. A guard behind such a verifier must not
	// use it: webhook-id is the field for that. False: such messages are refused
	// ([ReasonUncovered]).
	UnsignedIdempotencyKey bool
}

// StandardWebhooks is the scheme of https://www.standardwebhooks.com, version 1. What is signed is
//
//	<webhook-id>.<webhook-timestamp>.<body as sent>
//
// and nothing else: not the method, the path, the query, the host or any other header field. So give each
// endpoint a key of its own; a handler must not act on what is not signed. The header has
//
//	webhook-id: msg_2KWPBgLlAfxdpx2AI54pPJ85f4W
//	webhook-timestamp: 1674087231
//	webhook-signature: v1,K5oZ…I4= v1a,hnO3…Ag==
//
// The signatures are base64 (RFC 4648, section 4): v1 is HMAC-SHA256, v1a is Ed25519. One good signature
// is enough; there may be 8, those of versions that are not known included. [NewStandardWebhooksKey] makes
// keys of the secrets that senders hand out. Keys of [NewHMACKey], and Ed25519 keys of [NewKey],
// will do, too.
//
// Messages name no key. All keys of a sender stand under [StandardWebhooksOptions].KeyID: while the
// secret is being changed, put both into the [Ring], under this one id, and take the old one
// out later (or let it end by [ValidUntil]).
//
// The specification lets timestamps be 5 minutes off, where [Config].Window is 60 s unless it is set.
//
// # Deliveries that are tried again
//
// A sender that tries a delivery again keeps webhook-id and signs with a new webhook-timestamp. That is
// no replay: the nonce is id and timestamp together, "msg_2KWP….1674087231". The same id with
// the same second is one, and is refused; the sender's next try, a second later, is not. That the
// event is handled once is for the guard behind the verifier, which takes the id for its key
// (and answers a second delivery by the first answer):
//
//	core.Policy{Key: core.Header(core.Required).Named("Webhook-Id"), User: core.UserFromCaller()}
//
// For the specification an id is any text. Here it is 1 to 128 letters, digits and
// !#$%&'*+-.^_`|~:/=, which a guard takes for a key as it is; but nothing between its full stops, or behind the last, is ten
// digits: the signed "a.1700000000.1700000001.b" could be the message "a.1700000000" or the message
// "a" with another timestamp and another body, and whoever sees the one could send the other.
//
// # Sending
//
// [Transport] and [Request] sign with this scheme in their Options. Set webhook-id to what names the
// event before each try; without it, every request that is signed gets a new one, and receivers can't
// tell that they belong together.
type StandardWebhooks struct {
	id, timestamp, signature string
	keyID                    string
	also                     []*Key
	unsignedIdempotencyKey   bool
}

// NewStandardWebhooks makes a [StandardWebhooks]. It reports every fault at once, each as a
// *[ConfigError].
func NewStandardWebhooks(o StandardWebhooksOptions) (*StandardWebhooks, error) {
	var f faults
	name := func(field, given, standard string) string {
		setDefault(&given, standard)
		f.addIf(!form.IsToken(given) || unsignable(strings.ToLower(given)), "StandardWebhooksOptions."+field, "%q cannot be the field's name", given)
		return http.CanonicalHeaderKey(given)
	}
	setDefault(&o.KeyID, DefaultWebhookKeyID)
	s := &StandardWebhooks{
		id:                     name("ID", o.ID, "Webhook-Id"),
		timestamp:              name("Timestamp", o.Timestamp, "Webhook-Timestamp"),
		signature:              name("Signature", o.Signature, "Webhook-Signature"),
		keyID:                  o.KeyID,
		also:                   slices.Clone(o.AlsoSign),
		unsignedIdempotencyKey: o.UnsignedIdempotencyKey,
	}
	f.addIf(s.id == s.timestamp || s.timestamp == s.signature || s.signature == s.id, "StandardWebhooksOptions", "two fields have one name")
	f.addIf(!isKeyID(s.keyID), "StandardWebhooksOptions.KeyID", "must be 1 to %d visible ASCII characters", form.MaxKeyID)
	f.addIf(len(s.also) >= maxWebhookSignatures, "StandardWebhooksOptions.AlsoSign", "has %d keys; a message has no more than %d signatures", len(s.also), maxWebhookSignatures)
	for i, k := range s.also {
		f.addIf(k == nil, "StandardWebhooksOptions.AlsoSign", "key %d is nil", i)
		if k != nil {
			f.addIf(webhookVersions[k.algorithm].name == "", "StandardWebhooksOptions.AlsoSign", "a key for %s is no key for webhooks", k.algorithm)
			f.addIf(k.public != nil && k.private == nil, "StandardWebhooksOptions.AlsoSign", "key %d has no private part: it can verify only", i)
		}
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	return s, nil
}

// webhookVersions are the identifiers of signatures, and their lengths in bytes, by which they
// can be told from each other once they are decoded.
var webhookVersions = map[Algorithm]struct {
	name string
	size int
}{
	HMACSHA256: {"v1", sha256.Size},
	Ed25519:    {"v1a", ed25519.SignatureSize},
}

// webhookBase64 has one text for each signature.
var webhookBase64 = base64.StdEncoding.Strict()

// Name implements [Scheme].
func (*StandardWebhooks) Name() string { return "standard-webhooks" }

// Parse implements [Scheme]. The nonce is webhook-id and webhook-timestamp.
func (s *StandardWebhooks) Parse(m *Message, sig *Signature) error {
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

// checkWebhook refuses what no webhook has, no sender signs, and would change the meaning of a message. A guard lets
// requests with a safe method pass, and another method is another operation: senders use POST.
func checkWebhook(m *Message) error {
	if m.Method != http.MethodPost {
		return Errorf(ReasonUncovered, "the method is %s; this scheme does not sign it, and takes POST only", m.Method)
	}
	for _, encoding := range m.Source.Values("Content-Encoding") {
		if encoding != "" && !strings.EqualFold(encoding, "identity") {
			return Errorf(ReasonUncovered, "Content-Encoding is there, but this scheme does not sign it")
		}
	}
	return nil
}

// checkWebhookID holds that the signed content can be taken apart in one way only: what stands behind a full
// stop of the id is no timestamp that could be in a window.
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

var errWebhookID = Errorf(CodeMalformed, "the webhook's id must be 1 to %d letters, digits and !#$%%&'*+-.^_`|~:/=, and have no ten digits alone behind a full stop", maxWebhookID)

// parseWebhook takes the list of signatures apart. Those of a version that is not known are
// none: a sender may add them while it moves on.
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
			// The decoder passes over line feeds; the length of the text tells.
			if err != nil || len(value) != known.size || len(text) != webhookBase64.EncodedLen(known.size) {
				return errWebhookSignatures
			}
			sig.Values = append(sig.Values, value)
		}
	}
	return nil
}

var errWebhookSignatures = Errorf(CodeMalformed, "the signatures are at most %d of v1,<base64> and v1a,<base64>, with a blank between them", maxWebhookSignatures)

// checkIdempotencyKey refuses what looks as if it were signed.
func (s *StandardWebhooks) checkIdempotencyKey(m *Message) error {
	switch lines := len(m.Source.Values(form.IdempotencyKey)); {
	case lines > 1:
		return Errorf(CodeDuplicateHeader, "%s", form.IdempotencyKey)
	case lines > 0 && !s.unsignedIdempotencyKey && s.id != form.IdempotencyKey:
		return Errorf(ReasonUncovered, "%s is there, but this scheme does not sign it; %s identifies the event", form.IdempotencyKey, s.id)
	}
	return nil
}

// Check implements [Scheme].
func (s *StandardWebhooks) Check(m *Message, sig *Signature, key *Key) error {
	version := webhookVersions[key.algorithm]
	if version.name == "" {
		return Errorf(ReasonWrongAlgorithm, "a key for %s is no key for webhooks", key.algorithm)
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

// Sign implements [Scheme]. It keeps the webhook-id that m has. Otherwise the nonce becomes the
// id.
func (s *StandardWebhooks) Sign(m *Message, sig *Signature, key *Key) (Additions, error) {
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
			return Additions{}, Errorf(ReasonWrongAlgorithm, "a key for %s is no key for webhooks", k.algorithm)
		}
		value, err := k.sign(content)
		if err != nil {
			return Additions{}, err
		}
		list = append(list, version.name+","+webhookBase64.EncodeToString(value))
	}
	return Additions{Header: []Field{
		{s.id, id},
		{s.timestamp, timestamp},
		{s.signature, strings.Join(list, " ")},
	}}, nil
}

// SigningString implements [Scheme]. The body is there as its length and its SHA-256 only.
func (s *StandardWebhooks) SigningString(m *Message, sig *Signature, _ *Key) string {
	if sig.Nonce == "" {
		return "" // it was not understood so far
	}
	return sig.Nonce + "." + m.redactedBody()
}

// redactedBody stands for the body in a signing string.
func (m *Message) redactedBody() string {
	if !m.hasBody() {
		return "[the body was not read]"
	}
	return "[" + strconv.Itoa(len(m.body)) + " bytes, SHA-256 " + NonceOf(m.body) + "]"
}

// NewStandardWebhooksKey makes a key of a secret as senders of webhooks hand it out: "whsec_" or nothing, and the
// base64 of 16 to 64 random bytes (HMAC-SHA256), "whpk_" and the base64 of an Ed25519 public key, which
// verifies only, or "whsk_" and that of a private key (its seed of 32 bytes, or seed and
// public key). What has no prefix is a shared secret: don't give a public key so, with which anybody
// could sign. As such secrets may be shorter than 32 bytes, the key is good for
// [StandardWebhooks] and for no other scheme of this package. id is [StandardWebhooksOptions].KeyID.
func NewStandardWebhooksKey(id, secret string, opts ...KeyOption) (*Key, error) {
	var f faults
	k := &Key{id: id, owner: id, webhook: true}
	kind, text, prefixed := strings.Cut(secret, "_") // base64 has none
	if !prefixed {
		kind, text = "whsec", secret
	}
	raw, err := webhookBase64.DecodeString(text)
	bad := func(is bool, format string, args ...any) bool {
		f.addIf(is, "secret", format, args...)
		return is
	}
	switch {
	case bad(kind != "whsec" && kind != "whpk" && kind != "whsk", "begins with something else than whsec_, whpk_ or whsk_"):
	case bad(err != nil, "is not base64 (RFC 4648, section 4)"):
	case kind == "whsec":
		if !bad(len(raw) < minWebhookSecret || len(raw) > maxWebhookSecret, "has %d bytes; %d to %d are allowed", len(raw), minWebhookSecret, maxWebhookSecret) {
			bad(isRepeated(raw), "is one byte repeated")
		}
		k.algorithm, k.secret = HMACSHA256, raw
	case kind == "whpk":
		bad(len(raw) != ed25519.PublicKeySize, "has %d bytes; a public key has %d", len(raw), ed25519.PublicKeySize)
		k.algorithm, k.public = Ed25519, ed25519.PublicKey(raw)
	case !bad(len(raw) != ed25519.SeedSize && len(raw) != ed25519.PrivateKeySize, "has %d bytes; a private key has %d or %d", len(raw), ed25519.SeedSize, ed25519.PrivateKeySize):
		private := ed25519.NewKeyFromSeed(raw[:ed25519.SeedSize])
		bad(len(raw) == ed25519.PrivateKeySize && !private.Equal(ed25519.PrivateKey(raw)), "holds a public key that does not belong to the private one")
		k.algorithm, k.private, k.public = Ed25519, private, private.Public()
	}
	return newKey(&f, k, opts)
}
