package sign

import (
	"slices"
	"strconv"
)

// Scheme is a way to sign requests: where signature, timestamp and nonce stand in a message, and
// what exactly is signed. A scheme decides nothing about time, keys or nonces; that is
// the [Verifier]'s.
//
// This package has [V1] (the default), [StandardWebhooks] and those of some senders of webhooks ([Sender]); package
// sign/rfc9421 has HTTP Message Signatures, and sign/sortedparams sorted parameters. A scheme is safe for concurrent use.
//
// # A scheme of your own
//
// The example of [Scheme] is a whole one. What it has to get right:
//
//   - The nonce. It is signed (V1), or made of all that is signed by [NonceOf], in Check. A nonce from a field that is
//     not signed lets anybody send the message again; one that is made of the signature lets a message through
//     once for each signature that it has. A verifier refuses every message of a scheme that sets none.
//   - The timestamp. Created is the number that is signed. A sender that signs no time is
//     Undated, and EventID is made of what is signed.
//   - The content. What is signed can be taken apart in one way only: parts of variable length that stand side by side need
//     something between them that is in none of them. Otherwise the end of a header field and the beginning of a body change places.
//   - What is not signed, and changes the meaning of a message, is refused: Content-Encoding, Idempotency-Key.
//   - A field that counts stands in one line ([Message.Required]).
//   - Comparison is in constant time: [Key.Verify].
//
// sign/signtest.RunScheme holds a scheme to that.
type Scheme interface {
	// Name tells schemes apart in events and problems: "v1".
	Name() string

	// Parse finds the signature in m and fills in s, which is blank but for the
	// capacity of its slices. It checks the form of everything, and that what has to be
	// signed is among what is said to be signed; it knows no key. It does not read
	// the body unless the signature stands there. Its errors are of this package's
	// kinds, see [Errorf]: [CodeMissing], [CodeDuplicateHeader], [CodeMalformed],
	// [ReasonUncovered], or [CodeInvalid] for a message that is meant for somebody else.
	Parse(m *Message, s *Signature) error

	// Check reports by an error ([ReasonBadSignature], [ReasonDigestMismatch], [ReasonUncovered],
	// [ReasonWrongAlgorithm]) that s, which Parse has filled in, is not key's signature of
	// m. It compares by [Key.Verify], in constant time. The body has been read. It is called once
	// for each key that may have signed, and, of a message that is refused, for keys that nobody has, too, so that
	// all take the same time. What of s is made of the body (Nonce, EventID), it sets when the signature is good.
	Check(m *Message, s *Signature, key *Key) error

	// Sign signs m with key: it returns what is to be added to the request. KeyID,
	// Created, Nonce (and Expires, which may be zero) of s are filled in; schemes
	// without a place for one of them leave it out.
	Sign(m *Message, s *Signature, key *Key) (Additions, error)

	// SigningString returns what is signed, for people who look for the difference
	// between the two sides. Secrets and bodies must not be in it. key is nil if it is
	// not known.
	SigningString(m *Message, s *Signature, key *Key) string
}

// Signature is what a message says about its signature. Strings and bytes of one that was
// parsed may belong to the message.
type Signature struct {
	// KeyID names the key. A scheme whose messages do not name one takes it from its own
	// configuration.
	KeyID string
	// Algorithm is what the message says it was made with; the key decides. "": it
	// says nothing.
	Algorithm string
	// Created is when the message was signed, in seconds since 1970.
	Created int64
	// Expires is when the client wants the message to be refused, in seconds since 1970. Zero: it says
	// nothing. It can only shorten the verifier's window.
	Expires int64
	// Nonce makes the message unlike all others of its key. It must be signed, or made of what is
	// signed ([NonceOf]): whoever can change it sends the message again.
	Nonce string
	// Undated says that the message has no signed timestamp. The verifier checks no time then, and uses
	// no nonce: a replay is like the sender's own redelivery, byte for byte. EventID must be set, by which a guard behind
	// the verifier (core.CallerEvent) runs the event once.
	Undated bool
	// EventID is the id of the event that the message reports, for senders that deliver an event several
	// times: see [Verified].EventID. Like a nonce, it must be signed, or made of what is signed.
	EventID string
	// Values are the signatures. Where there are several (a sender that changes its key),
	// one good one is enough.
	Values [][]byte
	// Covered are the names of the signed header fields, or of RFC 9421's components.
	Covered []string
	// Consumed are the names of the parameters in which all this stands, as they were sent: see
	// [Verified].Consumed. None, if it stands in the header.
	Consumed []string
	// State is whatever the scheme's Parse leaves for its Check and SigningString. A [Verifier] frees one that is a
	// [Freer].
	State any

	scratch []byte   // decoded values; the signing string
	fields  []string // the values of Covered
	tries   int      // how many values have been compared
}

// Freer is a [Signature].State whose memory is used again. A [Verifier] calls Free once for each message, verified or
// refused, after [Config].Observe has returned. The state must then hold nothing of that message. Free must not panic.
type Freer interface{ Free() }

// Scratch returns empty memory for n bytes, for what a scheme decodes and puts together. It is used for another
// message when this one has been verified.
func (sig *Signature) Scratch(n int) []byte {
	from := len(sig.scratch)
	sig.scratch = slices.Grow(sig.scratch, n)[:from+n]
	return sig.scratch[from : from : from+n]
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

var errTimestamp = Errorf(CodeMalformed, "the timestamp is the number of seconds since 1970, digits only")

// Additions are what a signature adds to a request.
type Additions struct {
	// Header are fields to be set, in place of those of the same name. One without a value is
	// to be removed.
	Header []Field
	// Query is to be appended to the query: "sign=0af3". Empty: nothing.
	Query string
	// Body replaces the body. Nil: it stays.
	Body []byte
}

// Field is one line of a header.
type Field struct{ Name, Value string }
