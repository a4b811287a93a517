package sign

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Scheme is a way to sign requests. It says where signature, timestamp and nonce are in a message, and what is signed. The
// [Verifier] decides about time, keys and nonces. A scheme is safe for concurrent use.
//
// # A scheme of your own
//
// The example of [Scheme] is a complete one. sign/signtest.RunScheme tests these rules:
//
//   - Nonce: it is signed, as in [NewV1], or Check makes it with [NonceOf] from all that is signed. If it came from a field that
//     is not signed, anybody could send the message again. If it came from the signature, a message would be accepted once
//     for each signature that it can have. A verifier refuses a message without a nonce, unless NoTimestamp is set.
//   - Timestamp: Created is a number that is signed. If the sender signs no time, NoTimestamp is true, and EventID comes from
//     what is signed.
//   - Content: there is only one way to take a signing string apart. Between two parts of variable length there is
//     something that neither can contain, or the end of a header field and the beginning of a body could change places.
//   - Unsigned fields that change the meaning of a message are refused: Content-Encoding, Idempotency-Key.
//   - Fields that the scheme reads have one line ([Message.Required]).
//   - Signatures are compared in constant time ([Key.Verify]).
//
// A scheme that needs more of its verifier than the defaults is a [DemandingScheme].
type Scheme interface {
	// Name identifies the scheme in events and in the challenge of a 401: "v1".
	Name() string

	// Parse finds the signature in m and fills in s. All fields of s are zero, but its slices have capacity. Parse checks
	// the form of what it reads, and that the message says it signs what must be signed. It does not know the key, and
	// reads the body only if the signature is there. Its errors are codes or reasons of this package, see [Errorf]:
	// [CodeMissing], [CodeDuplicateHeader], [CodeMalformed], [ReasonUncovered], or [CodeInvalid] for a message that is
	// meant for another verifier.
	Parse(m *Message, s *Signature) error

	// Check returns nil if s, which Parse has filled in, is key's signature of m. Otherwise the error is
	// [ReasonBadSignature], [ReasonDigestMismatch], [ReasonUncovered] or [ReasonWrongAlgorithm]. Check compares in
	// constant time, with [Key.Verify]. The body has been read. If Nonce or EventID comes from the body, Check sets it
	// once the signature is good. The verifier calls Check for each key that may have signed. For a message that it
	// refuses, it also calls Check with keys that nobody has, so that all refusals take the same time.
	Check(m *Message, s *Signature, key *Key) error

	// Sign signs m with key and returns what to add to the request. KeyID, Created, Nonce and Expires (which may be zero)
	// of s are set, and Covered names the header fields that the client wants signed. A scheme ignores what it has no
	// place for. If Check derives the nonce from what is signed, Sign sets Nonce to the same: a [Transport]
	// then retries no sooner than in the next second.
	Sign(m *Message, s *Signature, key *Key) (Additions, error)

	// SigningString returns what is signed, for people who compare both sides. It must contain neither secrets nor
	// bodies. key is nil if the key is not known.
	SigningString(m *Message, s *Signature, key *Key) string
}

// DemandingScheme is a [Scheme] that needs more of its verifier than the defaults.
type DemandingScheme interface {
	Scheme
	// Demands returns what it needs. [NewVerifier] calls it once.
	Demands() Demands
}

// Signature is what a message says about its signature. After Parse its strings and bytes may share memory with the message.
type Signature struct {
	// KeyID names the key. If messages of the scheme name none, it comes from the scheme's configuration.
	KeyID string
	// KeyURL is where the message says that the key is published. It must be signed. Empty: the message does not say.
	KeyURL string
	// Algorithm is the one that the message names, or empty. The key's algorithm counts.
	Algorithm string
	// Created is when the message was signed, in seconds since 1970.
	Created int64
	// Expires is when the message expires, in seconds since 1970, if the client wants that to be before the end of the
	// verifier's window. Zero: the window decides.
	Expires int64
	// Nonce is different for each message of a key. It must be signed, or come from what is signed ([NonceOf]): anyone who
	// can change it can send the message again.
	Nonce string
	// NoTimestamp is true for a message without a signed timestamp. The verifier then checks no time and uses no nonce: a replay
	// cannot be told from the sender's own redelivery. EventID must be set, so that a guard inside the verifier
	// (core.SignedEvent) runs the event once.
	NoTimestamp bool
	// NoNonce is true for a message with a signed timestamp that may be sent again as it is. The verifier then uses no nonce,
	// and EventID must be set. Set it only if a repetition does no harm, as of a GET, or with [Demands].Guard. The verifier sets
	// it for messages with an EventID under [Config].GuardedByKey.
	NoNonce bool
	// EventID is the id of the event that a message reports, see [Verified].EventID. Like a nonce, it must be signed, or
	// come from what is signed.
	EventID string
	// Values are the signatures. One good signature is enough: a sender that changes its key sends several.
	Values [][]byte
	// Covered are the names of the signed header fields or, for RFC 9421, of the covered components.
	Covered []string
	// Consumed are the names, as sent, of the parameters that belong to the signature, see [Verified].Consumed. It is
	// empty if the signature is in the header.
	Consumed []string
	// State is what Parse leaves for Check and SigningString.
	State any

	scheme  Scheme   // that reads it
	scratch []byte   // decoded values, and the signing string
	fields  []string // the values of Covered
	tries   int      // see Try
}

// Demands are what a [Scheme] asks of its verifier. The zero value asks for nothing.
type Demands struct {
	// Behind and Ahead are how far a timestamp may be behind and ahead of the verifier's clock, if the scheme's
	// specification says so: whole seconds, at most an hour. [Config].Window must then be zero. Zero Behind: Config.Window
	// says both.
	Behind, Ahead time.Duration
	// Guard is true if nothing in a message keeps it from being accepted twice, and a guard inside the verifier that requires
	// an Idempotency-Key must. The scheme refuses messages that do not sign that key. [NewVerifier] refuses the scheme unless
	// [Config].GuardedByKey is set.
	Guard bool
	// Each returns a scheme for each signature of a message that has several, at most 4. The first that verifies is enough, and
	// the message is its signer's. If none does, the error is that of the first that could be parsed, or 503 if its keys could
	// not be looked up. Empty, or a nil Each: the scheme itself reads the message.
	Each func(m *Message) []Scheme
	// Challenge returns the WWW-Authenticate of the answer to a refused message, for protocols that say why there. The status is
	// then 401, unless it would be 5xx or [Config].Refuse sets it. Empty, or a nil Challenge: Signature scheme="<name>", on a 401.
	Challenge func(e *Error) string
	// QuotaFirst is true if an owner whose quota of nonces is used up ([Config].NonceQuota) is refused before the signature is
	// checked. Then anybody who knows a key's id can find out that its owner's quota is used up.
	QuotaFirst bool
	// Finish is called last, when the message is verified and its nonce is used up. With an error, which is as those of
	// [Scheme].Parse, the message is refused. Nil: no call.
	Finish func(m *Message) error
}

// Scratch returns an empty slice with room for n bytes. The verifier uses the memory again for another message once this one
// is verified or refused.
func (sig *Signature) Scratch(n int) []byte {
	from := len(sig.scratch)
	sig.scratch = slices.Grow(sig.scratch, n)[:from+n]
	return sig.scratch[from : from : from+n]
}

// maxTries is how many pairs of a key and a signature are tried for a message. While a key is being changed, there are four.
const maxTries = 16

// Try counts a comparison of one of the message's signatures with a key. It returns false from the 17th on, which Check must then
// leave out: the sender of a message chooses how many signatures it has. When the keys are looked up again, it counts anew. Only
// schemes whose messages have several signatures need it.
func (sig *Signature) Try() bool {
	sig.tries++
	return sig.tries <= maxTries
}

// NonceOf returns a nonce for a message that carries none: the SHA-256 of the concatenated parts in lower-case hexadecimal. Pass
// all that is signed, and nothing else; then two messages have the same nonce exactly if the same is signed. Do not pass the
// signature, because the same content may have several signatures.
func NonceOf(signed ...[]byte) string {
	h := sha256.New()
	for _, part := range signed {
		h.Write(part)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// ParseTimestamp parses seconds since 1970 (UTC). It accepts digits only, without a sign or a leading zero. The error is
// [CodeMalformed].
func ParseTimestamp(text string) (int64, error) {
	n, err := strconv.ParseUint(text, 10, 63) // which takes no sign
	if err != nil || text[0] == '0' && len(text) > 1 {
		return 0, errTimestamp
	}
	return int64(n), nil
}

var errTimestamp = Errorf(CodeMalformed, "the timestamp must be the number of seconds since 1970, digits only")

// Additions are what a signature adds to a request.
type Additions struct {
	// Header are the fields to set. Each replaces all fields of its name. A field with an empty value is removed.
	Header http.Header
	// Query is appended to the query: "sign=0af3". Empty: the query stays.
	Query string
	// Body replaces the body. Nil: the body stays.
	Body []byte
}
