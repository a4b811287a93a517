package webhook

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/form"
	"github.com/idem-go/idem/sign/internal/keys"
)

// sender is the scheme of one sender of webhooks, see the package comment.
type sender struct {
	name      string
	keyID     string
	signature string                        // the header field of the signature
	timestamp string                        // the header field of the timestamp; "": none, or it is in the field of the signature
	version   string                        // comes before a signature, with a "="; "": nothing does
	list      bool                          // the signature's field is a list of hexadecimal in any case: t=1700000000,v1=…,v1=…
	content   func(timestamp string) string // what is signed before the body
	encoding  interface {
		EncodeToString([]byte) string
		DecodeString(string) ([]byte, error)
	}
	event string // the member of a JSON body that holds the event id; "": none
}

// hexadecimal is base 16 in lower case.
type hexadecimal struct{}

func (hexadecimal) EncodeToString(b []byte) string { return hex.EncodeToString(b) }

func (hexadecimal) DecodeString(s string) ([]byte, error) { return hex.DecodeString(s) }

func newSender(s sender, keyID string) sign.Scheme {
	s.keyID = cmp.Or(keyID, defaultKeyID)
	return &s
}

// Stripe returns the scheme of Stripe (https://docs.stripe.com/webhooks#verify-manually):
//
//	Stripe-Signature: t=1492774577,v1=5257a869…,v1=…,v0=…
//
// The signature is the HMAC-SHA256 of "<t>.<body>" in hexadecimal. While the secret is being changed there are several v1. One
// valid signature is enough, and malformed ones next to it are ignored. So are other versions. Capitals, and blanks after a comma,
// are accepted. [sign.Verified].EventID is the id in the body, or the body's digest if it has none.
//
// Stripe allows timestamps to be 5 minutes off: set [sign.Config].Window. It delivers an event for three days, each time with a
// new timestamp. The body may differ (pending_webhooks); core.SignedEvent ignores that.
//
// Messages name no key. The verifier uses the keys whose id is keyID. Empty: "webhooks".
func Stripe(keyID string) sign.Scheme {
	return newSender(sender{
		name: "stripe", signature: "Stripe-Signature", version: "v1", list: true,
		content: func(timestamp string) string { return timestamp + "." }, encoding: hexadecimal{}, event: "id",
	}, keyID)
}

// ACP returns the scheme of webhooks in the Agentic Commerce Protocol (openapi.agentic_checkout_webhook.yaml, 2026-04-17):
//
//	Merchant-Signature: t=1709123456,v1=e3b0c442…
//
// It is the scheme of [Stripe] under another name. The body has no event id, so [sign.Verified].EventID is a digest of the body.
// The protocol recommends allowing 5 minutes: set [sign.Config].Window.
//
// Messages name no key. The verifier uses the keys whose id is keyID. Empty: "webhooks".
func ACP(keyID string) sign.Scheme {
	return newSender(sender{
		name: "acp", signature: "Merchant-Signature", version: "v1", list: true,
		content: func(timestamp string) string { return timestamp + "." }, encoding: hexadecimal{},
	}, keyID)
}

// Slack returns the scheme of Slack (https://docs.slack.dev/authentication/verifying-requests-from-slack):
//
//	X-Slack-Request-Timestamp: 1531420618
//	X-Slack-Signature: v0=a2114d57…
//
// The signature is the HMAC-SHA256 of "v0:<timestamp>:<body>" in lower-case hexadecimal. [sign.Verified].EventID is the event_id
// in a JSON body. For a form (commands, interactions) it is a digest of the body. Slack allows timestamps to be 5 minutes off: set
// [sign.Config].Window.
//
// Messages name no key. The verifier uses the keys whose id is keyID. Empty: "webhooks".
func Slack(keyID string) sign.Scheme {
	return newSender(sender{
		name: "slack", signature: "X-Slack-Signature", timestamp: "X-Slack-Request-Timestamp", version: "v0",
		content: func(timestamp string) string { return "v0:" + timestamp + ":" }, encoding: hexadecimal{}, event: "event_id",
	}, keyID)
}

// GitHub returns the scheme of GitHub (https://docs.github.com/webhooks/using-webhooks/validating-webhook-deliveries):
//
//	X-Hub-Signature-256: sha256=757107ea…
//
// The signature is the HMAC-SHA256 of the body in lower-case hexadecimal. GitHub signs neither a time nor the kind of event
// (X-GitHub-Event) nor the delivery's id (X-GitHub-Delivery, which a redelivery keeps). It delivers again only on request.
// [sign.Verified].EventID is a digest of the body, and messages have no timestamp ([sign.Signature].NoTimestamp). With both fields
// in the RequestHeaders of core.CompareContent, a body that comes again under another id or kind is refused.
//
// Messages name no key. The verifier uses the keys whose id is keyID. Empty: "webhooks".
func GitHub(keyID string) sign.Scheme {
	return newSender(sender{
		name: "github", signature: "X-Hub-Signature-256", version: "sha256",
		content: nothing, encoding: hexadecimal{},
	}, keyID)
}

// Shopify returns the scheme of Shopify (https://shopify.dev/docs/apps/build/webhooks/verify-deliveries):
//
//	X-Shopify-Hmac-Sha256: XWmrwMey6OsLMeiZKwP4FppHH3cmAiiJJAweH5Jo4bM=
//
// The signature is the HMAC-SHA256 of the body in base64. Shopify signs neither a time nor the topic (X-Shopify-Topic), the shop
// or the event's id (X-Shopify-Event-Id). [sign.Verified].EventID is a digest of the body, and messages have no timestamp
// ([sign.Signature].NoTimestamp). Two topics may have equal bodies (orders/create, orders/updated): give each topic its own route,
// and a guard with its own name.
//
// Messages name no key. The verifier uses the keys whose id is keyID. Empty: "webhooks".
func Shopify(keyID string) sign.Scheme {
	return newSender(sender{
		name: "shopify", signature: "X-Shopify-Hmac-Sha256",
		content: nothing, encoding: standardBase64,
	}, keyID)
}

func nothing(string) string { return "" }

// Name implements [sign.Scheme].
func (s *sender) Name() string { return s.name }

// noTimestamp reports whether the sender signs no timestamp.
func (s *sender) noTimestamp() bool { return !s.list && s.timestamp == "" }

// Parse implements [sign.Scheme].
func (s *sender) Parse(m *sign.Message, sig *sign.Signature) error {
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
			return sign.Errorf(sign.CodeMalformed, "%s does not begin with %s=", s.signature, s.version)
		}
		err = s.parseValue(text, sig)
	}
	if err != nil {
		return err
	}
	if sig.NoTimestamp = s.noTimestamp(); !sig.NoTimestamp {
		if sig.Created, err = sign.ParseTimestamp(timestamp); err != nil {
			return err
		}
	}
	sig.KeyID = s.keyID
	return checkSender(m)
}

// parseList parses "t=1700000000,v1=…,v1=…". It skips unknown versions, and signatures that are none.
func (s *sender) parseList(list string, sig *sign.Signature) (timestamp string, err error) {
	var bad error
	for n, more := 1, true; more; n++ {
		var item string
		item, list, more = strings.Cut(list, ",")
		name, text, ok := strings.Cut(form.Trim(item), "=")
		switch {
		case n > maxSignatures+1 || !ok || !form.IsToken(name), name == "t" && timestamp != "":
			return "", sign.Errorf(sign.CodeMalformed, "%s is a list of one t=<timestamp> and at most %d signatures %s=<hexadecimal>",
				s.signature, maxSignatures, s.version)
		case name == "t":
			timestamp = text
		case name == s.version:
			bad = cmp.Or(bad, s.parseValue(strings.ToLower(text), sig))
		}
	}
	switch {
	case timestamp == "":
		return "", sign.Errorf(sign.CodeMissing, "%s has no timestamp", s.signature)
	case len(sig.Values) == 0 && bad != nil:
		return "", bad
	case len(sig.Values) == 0:
		return "", sign.Errorf(sign.CodeMissing, "%s has no signature %s", s.signature, s.version)
	}
	return timestamp, nil
}

// parseValue decodes a signature. It accepts one text for each.
func (s *sender) parseValue(text string, sig *sign.Signature) error {
	value, err := s.encoding.DecodeString(text)
	if err != nil || len(value) != sha256.Size || s.encoding.EncodeToString(value) != text {
		return sign.Errorf(sign.CodeMalformed, "%s is not an HMAC-SHA256 in the sender's encoding", s.signature)
	}
	sig.Values = append(sig.Values, value)
	return nil
}

// checkSender refuses a message with unsigned fields that change its meaning.
func checkSender(m *sign.Message) error {
	if err := checkUnsigned(m); err != nil {
		return err
	}
	if len(m.Source.Values(form.IdempotencyKey)) > 0 {
		return sign.Errorf(sign.ReasonUncovered, "%s is present, but this scheme does not sign it; EventID identifies the event",
			form.IdempotencyKey)
	}
	return nil
}

// Check implements [sign.Scheme]. It sets Nonce and EventID, which come from the body.
func (s *sender) Check(m *sign.Message, sig *sign.Signature, key *sign.Key) error {
	if key.Algorithm() != sign.HMACSHA256 {
		return sign.Errorf(sign.ReasonWrongAlgorithm, "this sender has no keys for %s", key.Algorithm())
	}
	body, err := m.Body()
	if err != nil {
		return err
	}
	prefix := []byte(s.prefix(sig))
	expected := keys.Of(key).MAC(prefix, body) // once, however many signatures there are
	for _, v := range sig.Values {
		if expected.Equals(v) {
			if sig.EventID = s.eventID(body); !sig.NoTimestamp {
				sig.Nonce = sign.NonceOf(prefix, body)
			}
			return nil
		}
	}
	return sign.ReasonBadSignature
}

// prefix returns what is signed before the body.
func (s *sender) prefix(sig *sign.Signature) string {
	return s.content(strconv.FormatInt(sig.Created, 10))
}

// maxEventID is the length of the longest event id that is read from a body, in bytes. It is that of a guard's longest key.
const maxEventID = 255

// eventID returns the event id in a body whose signature is good, or a digest of the body.
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
	return "sha256=" + sign.NonceOf(body)
}

// Sign implements [sign.Scheme].
func (s *sender) Sign(m *sign.Message, sig *sign.Signature, key *sign.Key) (sign.Additions, error) {
	if err := checkSender(m); err != nil {
		return sign.Additions{}, err
	}
	if key.Algorithm() != sign.HMACSHA256 {
		return sign.Additions{}, sign.Errorf(sign.ReasonWrongAlgorithm, "this sender has no keys for %s", key.Algorithm())
	}
	body, err := m.Body()
	if err != nil {
		return sign.Additions{}, err
	}
	prefix := []byte(s.prefix(sig))
	if !s.noTimestamp() {
		sig.Nonce = sign.NonceOf(prefix, body)
	}
	value := keys.Of(key).MAC(prefix, body)
	text := s.encoding.EncodeToString(value.Bytes())
	if s.version != "" {
		text = s.version + "=" + text
	}
	timestamp := strconv.FormatInt(sig.Created, 10)
	if s.list {
		text = "t=" + timestamp + "," + text
	}
	header := http.Header{s.signature: {text}}
	if s.timestamp != "" {
		header[s.timestamp] = []string{timestamp}
	}
	return sign.Additions{Header: header}, nil
}

// SigningString implements [sign.Scheme]. It contains the body's length and SHA-256, not the body.
func (s *sender) SigningString(m *sign.Message, sig *sign.Signature, _ *sign.Key) string {
	return s.prefix(sig) + m.RedactedBody()
}

// NewSenderKey makes a key for [Stripe], [GitHub], [Slack] or [Shopify] from the secret as the sender shows it, of 16 to 256
// bytes. Do not decode the secret, and keep Stripe's prefix whsec_. A secret with white space around it, such as a file's last
// line feed, is refused. The key's ID must be the scheme's keyID. Such secrets may be shorter than 32 bytes, so the key is for
// webhooks only: [sign.Key.Sign] and [sign.Key.Verify] reject it.
func NewSenderKey(o sign.KeyConfig, secret string) (*sign.Key, error) {
	m := keys.NewSecret(string(sign.HMACSHA256), []byte(secret))
	m.Webhook = true
	if len(secret) < minSecret || len(secret) > maxSenderSecret {
		m.Problems = append(m.Problems, fmt.Sprintf("has %d bytes; %d to %d are allowed", len(secret), minSecret, maxSenderSecret))
	}
	if keys.IsRepeated([]byte(secret)) {
		m.Problems = append(m.Problems, "is one byte repeated")
	}
	m.Problems = append(m.Problems, spaces(secret)...)
	return sign.NewKey(o, m)
}

// maxSenderSecret is the length of the longest secret of NewSenderKey, in bytes.
const maxSenderSecret = 256
