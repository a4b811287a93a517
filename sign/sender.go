package sign

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/idem-go/idem/sign/internal/form"
)

// Sender is the scheme of one sender of webhooks: [Stripe], [GitHub], [Slack] or [Shopify]. Keys are those
// of [NewSenderKey].
//
// All of them sign the body, some a timestamp, and nothing else: not the method, the path, the query, the host
// or any other header field. So give each endpoint a secret of its own; a handler must not act on what is not
// signed. A message with a Content-Encoding, an Idempotency-Key or another method than POST is refused ([ReasonUncovered]).
//
// # Events and messages
//
// A sender delivers an event until it gets a success for it, or when a person presses a button: the event
// is the same, the message is another. [Verified].EventID names the event. It is made of what is signed: of the id in the body, or of
// the whole body. The ids that senders put into the header (X-GitHub-Delivery, X-Shopify-Event-Id) are not signed: whoever has
// seen a message can send it again under another one. The guard behind the verifier runs an event once, and
// answers other deliveries of it as the first:
//
//	core.Policy{Key: core.CallerEvent(), User: core.UserFromCaller(), Retention: 72 * time.Hour}
//
// Where the sender signs a timestamp, the same message is also refused the second time ([CodeReplayed]); the nonce is made
// of timestamp and body. Where it does not, nothing tells a replay from a redelivery, in whatever year it comes
// ([Signature].Undated): the guard alone protects, for as long as its policy remembers.
//
// A Sender also signs, for tests of one's own endpoint.
type sender struct {
	name      string
	keyID     string
	signature string // the field with the signature
	timestamp string // the field with the timestamp; "": there is none, or it stands beside the signature
	version   string // what stands in front of a signature, with a "="; "": nothing
	list      bool   // the field is a list: t=1700000000,v1=…,v1=…
	content   func(timestamp string) string
	encoding  interface {
		EncodeToString([]byte) string
		DecodeString(string) ([]byte, error)
	}
	event string // the member of a JSON body that names the event; "": there is none
}

// hexadecimal is base 16 in lower case.
type hexadecimal struct{}

func (hexadecimal) EncodeToString(b []byte) string { return hex.EncodeToString(b) }

func (hexadecimal) DecodeString(s string) ([]byte, error) { return hex.DecodeString(s) }

func newSender(s sender, keyID string) Scheme {
	s.keyID = keyID
	setDefault(&s.keyID, DefaultWebhookKeyID)
	return &s
}

// Stripe is how Stripe signs (https://docs.stripe.com/webhooks#verify-manually):
//
//	Stripe-Signature: t=1492774577,v1=5257a869…,v1=…,v0=…
//
// HMAC-SHA256 over "<t>.<body>", in lower-case hexadecimal. There are several v1 while the secret is being changed;
// one good signature is enough, and other versions count for nothing. [Verified].EventID is the id in the
// body. Stripe allows timestamps to be 5 minutes off: set [Config].Window. It delivers for three days,
// each time with a new timestamp; the body may differ (pending_webhooks), so that the guard needs
// AnyParameters.
//
// The verifier looks for keys under keyID; messages name none. Empty: [DefaultWebhookKeyID].
func Stripe(keyID string) Scheme {
	return newSender(sender{
		name: "stripe", signature: "Stripe-Signature", version: "v1", list: true,
		content: func(timestamp string) string { return timestamp + "." }, encoding: hexadecimal{}, event: "id",
	}, keyID)
}

// Slack is how Slack signs (https://docs.slack.dev/authentication/verifying-requests-from-slack):
//
//	X-Slack-Request-Timestamp: 1531420618
//	X-Slack-Signature: v0=a2114d57…
//
// HMAC-SHA256 over "v0:<timestamp>:<body>", in lower-case hexadecimal. [Verified].EventID is the event_id in a JSON body; for forms
// (commands, interactions), which have none, it is made of the body. Slack allows timestamps to be 5 minutes off: set
// [Config].Window.
//
// The verifier looks for keys under keyID; messages name none. Empty: [DefaultWebhookKeyID].
func Slack(keyID string) Scheme {
	return newSender(sender{
		name: "slack", signature: "X-Slack-Signature", timestamp: "X-Slack-Request-Timestamp", version: "v0",
		content: func(timestamp string) string { return "v0:" + timestamp + ":" }, encoding: hexadecimal{}, event: "event_id",
	}, keyID)
}

// GitHub is how GitHub signs (https://docs.github.com/webhooks/using-webhooks/validating-webhook-deliveries):
//
//	X-Hub-Signature-256: sha256=757107ea…
//
// HMAC-SHA256 over the body, in lower-case hexadecimal. No time is signed, nor is the kind of event
// (X-GitHub-Event) or the delivery's id (X-GitHub-Delivery, which a redelivery keeps): [Verified].EventID is made of the body, and messages are
// undated. Name both fields in the guard's RequestHeaders: what was sent before under another id or kind is then refused.
//
// The verifier looks for keys under keyID; messages name none. Empty: [DefaultWebhookKeyID].
func GitHub(keyID string) Scheme {
	return newSender(sender{
		name: "github", signature: "X-Hub-Signature-256", version: "sha256",
		content: nothing, encoding: hexadecimal{},
	}, keyID)
}

// Shopify is how Shopify signs (https://shopify.dev/docs/apps/build/webhooks/verify-deliveries):
//
//	X-Shopify-Hmac-Sha256: XWmrwMey6OsLMeiZKwP4FppHH3cmAiiJJAweH5Jo4bM=
//
// HMAC-SHA256 over the body, in base64. No time is signed, nor is the topic (X-Shopify-Topic), the shop or the event's id
// (X-Shopify-Event-Id): [Verified].EventID is made of the body, and messages are undated. Two topics may have
// one body (orders/create, orders/updated): give each topic a route. Name the fields in the guard's RequestHeaders: what was sent before
// with another value is then refused.
//
// The verifier looks for keys under keyID; messages name none. Empty: [DefaultWebhookKeyID].
func Shopify(keyID string) Scheme {
	return newSender(sender{
		name: "shopify", signature: "X-Shopify-Hmac-Sha256",
		content: nothing, encoding: webhookBase64,
	}, keyID)
}

func nothing(string) string { return "" }

// Name implements [Scheme]: "stripe", "github", "slack" or "shopify".
func (s *sender) Name() string { return s.name }

// undated reports whether the sender signs no timestamp.
func (s *sender) undated() bool { return !s.list && s.timestamp == "" }

// Parse implements [Scheme].
func (s *sender) Parse(m *Message, sig *Signature) error {
	field, err := m.Required(s.signature)
	if err != nil {
		return err
	}
	timestamp := ""
	if s.timestamp != "" {
		if timestamp, err = m.Required(s.timestamp); err != nil {
			return err
		}
	}
	if s.list {
		timestamp, err = s.parseList(field, sig)
	} else {
		text, ok := field, true
		if s.version != "" {
			text, ok = strings.CutPrefix(field, s.version+"=")
		}
		if !ok {
			return Errorf(CodeMalformed, "%s does not begin with %s=", s.signature, s.version)
		}
		err = s.parseValue(text, sig)
	}
	if err != nil {
		return err
	}
	if sig.Undated = s.undated(); !sig.Undated {
		if sig.Created, err = ParseTimestamp(timestamp); err != nil {
			return err
		}
	}
	sig.KeyID = s.keyID
	return checkUnsigned(m)
}

// parseList takes "t=1700000000,v1=…,v1=…" apart. Versions that are not known are none.
func (s *sender) parseList(list string, sig *Signature) (timestamp string, err error) {
	for n, more := 1, true; more; n++ {
		var item string
		item, list, more = strings.Cut(list, ",")
		name, text, ok := strings.Cut(item, "=")
		switch {
		case n > maxWebhookSignatures+1 || !ok || !form.IsToken(name), name == "t" && timestamp != "":
			return "", Errorf(CodeMalformed, "%s is a list of one t=<timestamp> and at most %d signatures %s=<hexadecimal>", s.signature, maxWebhookSignatures, s.version)
		case name == "t":
			timestamp = text
		case name == s.version:
			if err := s.parseValue(text, sig); err != nil {
				return "", err
			}
		}
	}
	switch {
	case timestamp == "":
		return "", Errorf(CodeMissing, "%s has no timestamp", s.signature)
	case len(sig.Values) == 0:
		return "", Errorf(CodeMissing, "%s has no signature %s", s.signature, s.version)
	}
	return timestamp, nil
}

// parseValue decodes a signature. There is one text for each.
func (s *sender) parseValue(text string, sig *Signature) error {
	value, err := s.encoding.DecodeString(text)
	if err != nil || len(value) != sha256.Size || s.encoding.EncodeToString(value) != text {
		return Errorf(CodeMalformed, "%s is no HMAC-SHA256 in the sender's encoding", s.signature)
	}
	sig.Values = append(sig.Values, value)
	return nil
}

// checkUnsigned refuses what changes the meaning of a message, and is not signed.
func checkUnsigned(m *Message) error {
	if err := checkWebhook(m); err != nil {
		return err
	}
	if len(m.Source.Values(form.IdempotencyKey)) > 0 {
		return Errorf(ReasonUncovered, "%s is there, but this scheme does not sign it; EventID identifies the event", form.IdempotencyKey)
	}
	return nil
}

// Check implements [Scheme]. Nonce and EventID are made of the body, so they are set here.
func (s *sender) Check(m *Message, sig *Signature, key *Key) error {
	if key.algorithm != HMACSHA256 {
		return Errorf(ReasonWrongAlgorithm, "a key for %s is no key of this sender's", key.algorithm)
	}
	body, err := m.Body()
	if err != nil {
		return err
	}
	prefix := []byte(s.prefix(sig))
	expected := key.mac(prefix, body) // once, however many signatures there are
	for _, v := range sig.Values {
		if expected.equals(v) {
			if sig.EventID = s.eventID(body); !sig.Undated {
				sig.Nonce = NonceOf(prefix, body)
			}
			return nil
		}
	}
	return ReasonBadSignature
}

// prefix is what is signed in front of the body.
func (s *sender) prefix(sig *Signature) string { return s.content(strconv.FormatInt(sig.Created, 10)) }

// maxEventID is the length of the longest id that is taken from a body, in bytes: what a guard takes for a key.
const maxEventID = 255

// eventID returns the id in a body whose signature is good, or else one that is made of the body.
func (s *sender) eventID(body []byte) string {
	if s.event != "" && bytes.HasPrefix(body, []byte("{")) {
		var members struct {
			ID      any `json:"id"`
			EventID any `json:"event_id"`
		}
		err := json.Unmarshal(body, &members)
		named := members.ID
		if s.event == "event_id" {
			named = members.EventID
		}
		if id, ok := named.(string); err == nil && ok && id != "" && len(id) <= maxEventID {
			return id
		}
	}
	return "sha256=" + NonceOf(body)
}

// NonceOf returns what is made of all that is signed, one part after the other (SHA-256, in hexadecimal): a nonce for
// schemes whose messages have none. Two messages have the same if, and only if, the same is signed.
// Give it everything that is signed, and nothing else. A nonce that is made of the signature is none: the same content
// may have several signatures.
func NonceOf(signed ...[]byte) string {
	h := sha256.New()
	for _, part := range signed {
		h.Write(part)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Sign implements [Scheme].
func (s *sender) Sign(m *Message, sig *Signature, key *Key) (Additions, error) {
	if err := checkUnsigned(m); err != nil {
		return Additions{}, err
	}
	if key.algorithm != HMACSHA256 {
		return Additions{}, Errorf(ReasonWrongAlgorithm, "a key for %s is no key of this sender's", key.algorithm)
	}
	body, err := m.Body()
	if err != nil {
		return Additions{}, err
	}
	value := key.mac([]byte(s.prefix(sig)), body)
	text := s.encoding.EncodeToString(value.sum[:])
	if s.version != "" {
		text = s.version + "=" + text
	}
	timestamp := strconv.FormatInt(sig.Created, 10)
	if s.list {
		text = "t=" + timestamp + "," + text
	}
	added := Additions{Header: []Field{{s.signature, text}}}
	if s.timestamp != "" {
		added.Header = append(added.Header, Field{s.timestamp, timestamp})
	}
	return added, nil
}

// SigningString implements [Scheme]. The body is there as its length and its SHA-256 only.
func (s *sender) SigningString(m *Message, sig *Signature, _ *Key) string {
	return s.prefix(sig) + m.redactedBody()
}

// NewSenderKey makes a key of a secret as [Stripe] ("whsec_…", with the prefix), [GitHub], [Slack] and [Shopify] use it: the text as it
// stands, of 16 to 256 bytes. As such secrets may be shorter than 32 bytes, the key is good for webhooks and for no other scheme of this
// package. id is the scheme's keyID.
func NewSenderKey(id, secret string, opts ...KeyOption) (*Key, error) {
	var f faults
	f.addIf(len(secret) < minWebhookSecret || len(secret) > maxSenderSecret, "secret", "has %d bytes; %d to %d are allowed", len(secret), minWebhookSecret, maxSenderSecret)
	f.addIf(secret != "" && isRepeated([]byte(secret)), "secret", "is one byte repeated")
	return newKey(&f, &Key{id: id, owner: id, webhook: true, algorithm: HMACSHA256, secret: []byte(secret)}, opts)
}

// maxSenderSecret is the length of the longest secret of a sender, in bytes.
const maxSenderSecret = 256
