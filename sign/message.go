package sign

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"strconv"
	"strings"

	"github.com/idem-go/idem/sign/internal/form"
)

// Message is an HTTP request as it was sent, for a [Scheme] to sign or to verify. Nothing in it is decoded or cleaned, because
// what a proxy, a router or a framework makes of a path is not what the client has signed. A message is not safe for concurrent use.
//
// The strings may belong to a framework that uses their memory again after the request. Copy what you keep.
type Message struct {
	// Method is the request's method, as sent.
	Method string
	// Target is the request-target as sent (RFC 9112, section 3.2): "/a%2Fb?x=1", or
	// "http://example.com/a?x=1" in its absolute form.
	Target string
	// Host is the Host header field (the :authority of HTTP/2) as sent. A verifier refuses a message
	// whose target, in absolute form, names another host, because some routers use one and some the other. A server
	// that replaces Host by the target's host (RFC 9112, section 3.2.2), as net/http does, leaves nothing to compare.
	Host string
	// TLS is true if the client used https. It matters only to schemes that sign the URI's scheme.
	TLS bool
	// Source holds the header and the body.
	Source Source

	limit int64
	host  string // Config.Host
	// It is a client's: Host may have a zone of IPv6, which is not sent.
	outgoing bool
	read     bool
	body     []byte
	err      error

	digested bool
	sum      [sha256.Size]byte
}

// Source is the header and the body of a [Message]. An adapter implements it on its framework's request. It need not be safe for
// concurrent use.
type Source interface {
	// Values returns the values of a header field, one for each line, in the order sent and as the handler gets them. name
	// is in canonical form: "Content-Type". A field that the framework moves out of its header (Host in net/http) may be
	// missing, unless it was sent more than once. If Host is found, it must equal Message.Host. The strings must stay
	// valid until the request is answered, the slice until the next call.
	Values(name string) []string
	// HeaderSize returns the number of field lines, and the number of bytes in their names and values.
	HeaderSize() (lines, bytes int)
	// ReadBody returns the whole body as sent, not decompressed. The handler can still read all of it afterwards. If the
	// body has more than limit bytes, the error is [CodeBodyTooLarge], and no more is read than it takes to know that. The
	// bytes must not change until the request is answered.
	ReadBody(limit int64) ([]byte, error)
	// RemoteAddr returns the peer's network address as "IP:port", for [Event].RemoteAddr, or "" if it is not known.
	RemoteAddr() string
}

// Authority returns the host, with the port if there is one, to which the client sent the message, or [Config].Host if
// that is set.
func (m *Message) Authority() string {
	if m.host != "" {
		return m.host
	}
	if m.outgoing {
		return withoutZone(m.Host)
	}
	return m.sentTo()
}

// sentTo returns the host, with the port if there is one, as sent.
func (m *Message) sentTo() string {
	if _, authority, _, ok := m.absolute(); ok {
		return authority
	}
	return m.Host
}

// Path returns the path as sent. It is "*" for a target of that form (RFC 9112, section 3.2.4), and "/" if the target has no
// path.
func (m *Message) Path() string {
	path, _, _ := strings.Cut(m.origin(), "?")
	if path == "" {
		return "/"
	}
	return path
}

// Query returns the query as sent, without the question mark. present is false if there is no question mark.
func (m *Message) Query() (query string, present bool) {
	_, query, present = strings.Cut(m.origin(), "?")
	return query, present
}

// origin returns the target from its path on.
func (m *Message) origin() string {
	if _, _, rest, ok := m.absolute(); ok {
		return rest
	}
	return m.Target
}

// absolute splits a target in absolute form. rest is empty or begins with a slash or a question mark.
func (m *Message) absolute() (scheme, authority, rest string, ok bool) {
	if strings.HasPrefix(m.Target, "/") {
		return "", "", "", false
	}
	scheme, rest, ok = strings.Cut(m.Target, "://")
	if !ok || strings.ContainsAny(scheme, "/?") {
		return "", "", "", false
	}
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	return scheme, rest[:end], rest[end:], true
}

// Field returns the value of a header field and the number of its lines. name is in canonical form. Unless there is exactly
// one line, value is empty.
func (m *Message) Field(name string) (value string, lines int) {
	values := m.Source.Values(name)
	if len(values) == 1 {
		value = values[0]
	}
	return value, len(values)
}

// Required returns the value of a header field without the white space around it. name is in canonical form. The error is
// [CodeMissing] if there is no field or its value is empty, and [CodeDuplicateHeader] if it has several lines.
func (m *Message) Required(name string) (string, error) {
	value, lines := m.Field(name)
	value = form.Trim(value)
	switch {
	case lines > 1:
		return "", Errorf(CodeDuplicateHeader, "%s", name)
	case value == "":
		return "", Errorf(CodeMissing, "%s", name)
	}
	return value, nil
}

// Body returns the whole body as sent. The first call reads it, up to the verifier's limit. Errors are of type [*Error].
func (m *Message) Body() ([]byte, error) {
	if !m.read {
		m.read = true
		limit := m.limit
		if limit == 0 {
			limit = math.MaxInt64 - 1 // no verifier has set one
		}
		m.body, m.err = m.Source.ReadBody(limit)
		m.err = bodyError(m.err)
	}
	return m.body, m.err
}

// RedactedBody returns what stands for the body in a [Scheme].SigningString: its length and its SHA-256, or that it was not read. It
// does not read the body.
func (m *Message) RedactedBody() string {
	if !m.hasBody() {
		return "[the body was not read]"
	}
	sum := m.digest()
	return "[" + strconv.Itoa(len(m.body)) + " bytes, SHA-256 " + hex.EncodeToString(sum[:]) + "]"
}

// digest returns the SHA-256 of the body, which has been read. It is computed once, however many keys are tried.
func (m *Message) digest() [sha256.Size]byte {
	if !m.digested {
		m.digested, m.sum = true, sha256.Sum256(m.body)
	}
	return m.sum
}

// hasBody reports whether the body has been read to its end.
func (m *Message) hasBody() bool { return m.read && m.err == nil }
