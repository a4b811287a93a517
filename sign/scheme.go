package sign

// Scheme is a way to sign requests: where signature, timestamp and nonce stand in a message, and
// what exactly is signed. A scheme decides nothing about time, keys or nonces; that is
// the [Verifier]'s.
//
// This package has [V1] (the default), [StandardWebhooks] and [SortedParams]; package
// sign/rfc9421 has HTTP Message Signatures. A scheme is safe for concurrent use.
type Scheme interface {
	// Name tells schemes apart in events and problems: "v1".
	Name() string

	// Parse finds the signature in m and fills in s, which is blank but for the
	// capacity of its slices. It checks the form of everything, and that what has to be
	// signed is among what is said to be signed; it knows no key. It does not read
	// the body unless the signature stands there. Its errors are made by this
	// package's sentinels, with [Errorf]: [ErrMissing], [ErrDuplicateHeader], [ErrMalformed],
	// [ErrUncovered], or [ErrInvalid] for a message that is meant for somebody else.
	Parse(m *Message, s *Signature) error

	// Check reports by an error ([ErrBadSignature], [ErrDigestMismatch], [ErrUncovered],
	// [ErrWrongAlgorithm]) that s, which Parse has filled in, is not key's signature of
	// m. It compares by [Key.Verify], in constant time. The body has been read.
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
	// Nonce makes the message unlike all others of its key.
	Nonce string
	// Values are the signatures. Where there are several (a sender that changes its key),
	// one good one is enough.
	Values [][]byte
	// Covered are the names of the signed header fields, or of RFC 9421's components.
	Covered []string
	// State is the scheme's own.
	State any

	scratch []byte   // decoded values; the signing string
	fields  []string // the values of Covered
	params  params   // what is signed by SortedParams
	tries   int      // how many values have been compared
}

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
