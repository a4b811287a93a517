package sign

import (
	"crypto/sha256"
	"math"
	"strings"

	"github.com/idem-go/idem/sign/internal/form"
)

// Message is an HTTP request as it was sent, for a [Scheme] to sign or to verify. Nothing in
// it is decoded or cleaned: what a proxy, a router or a framework makes of a path is not what
// the client has signed.
//
// The strings may belong to a framework that reuses them after the request; who keeps one
// must copy it.
type Message struct {
	// Method is the request's method, as sent.
	Method string
	// Target is the request-target as sent (RFC 9112, section 3.2): "/a%2Fb?x=1", or
	// "http://example.com/a?x=1" in its absolute form.
	Target string
	// Host is the Host header field (the :authority of HTTP/2) as sent. A verifier refuses a message
	// whose target, in absolute form, names another host: routers go by one or by the other. A server
	// that replaces Host by the target's (RFC 9112, section 3.2.2), as net/http does, leaves nothing to
	// be compared.
	Host string
	// TLS says that the client has come by https. Only schemes that sign the URI's scheme
	// ask for it.
	TLS bool
	// Source is where header and body come from.
	Source Source

	limit int64
	host  string // the configured public host, if any
	read  bool
	body  []byte
	err   error

	digested bool
	sum      [sha256.Size]byte
}

// Source is the header and the body of a [Message]. An adapter implements it on its
// framework's request. It is not used concurrently. A source that knows the peer is a [PeerSource].
type Source interface {
	// Values returns the values of the field's lines in the order in which they were
	// sent, and as the handler gets them. name is in canonical form,
	// "Content-Type". Fields that the framework takes out of its header (Host, in
	// net/http) need not be found here, unless they were sent more than once. A Host that is
	// found must be Message.Host. The strings
	// must be good until the request has been answered, the slice until the next call only.
	Values(name string) []string
	// HeaderSize returns the number of field lines, and the bytes of their names and values.
	HeaderSize() (lines, bytes int)
	// ReadBody returns the whole body as sent, not decompressed, and leaves the request
	// so that the handler can read all of it. It returns [CodeBodyTooLarge] for one of
	// more than limit bytes, having read no more than it needs to know that. The bytes
	// must not change until the request has been answered.
	ReadBody(limit int64) ([]byte, error)
}

// PeerSource is a [Source] that knows the peer.
type PeerSource interface {
	Source
	// RemoteAddr returns the network address of the peer as "IP:port", for [Event].RemoteAddr.
	RemoteAddr() string
}

// Authority returns host and port, as the client has addressed them; or the public host, if
// one is configured (see [Config].Host).
func (m *Message) Authority() string {
	if m.host != "" {
		return m.host
	}
	return m.sentTo()
}

// sentTo returns host and port as sent.
func (m *Message) sentTo() string {
	if _, authority, _, ok := m.absolute(); ok {
		return authority
	}
	return m.Host
}

// Path returns the path as sent: "/" at least, or "*".
func (m *Message) Path() string {
	path, _, _ := strings.Cut(m.origin(), "?")
	if path == "" {
		return "/"
	}
	return path
}

// Query returns the query as sent, without the question mark. present tells an empty query
// from none.
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

// absolute takes a target in absolute form apart. rest begins with a slash or a question
// mark, or is empty.
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

// Field returns the value of a header field and the number of its lines. name is in
// canonical form. Only the value of a single line is returned.
func (m *Message) Field(name string) (value string, lines int) {
	values := m.Source.Values(name)
	if len(values) == 1 {
		value = values[0]
	}
	return value, len(values)
}

// Required returns the value of a header field that must be there in a single line, without the white space around it.
// name is in canonical form. The errors are [CodeMissing], also for an empty value, and [CodeDuplicateHeader].
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

// Body returns the whole body as sent. It is read once, up to the verifier's limit. The
// errors are [*Error] values.
func (m *Message) Body() ([]byte, error) {
	if !m.read {
		m.read = true
		limit := m.limit
		if limit == 0 {
			limit = math.MaxInt64 - 1 // there is no verifier
		}
		m.body, m.err = m.Source.ReadBody(limit)
		m.err = bodyError(m.err)
	}
	return m.body, m.err
}

// digest returns the SHA-256 of the body, which has been read. It is computed once, however many
// keys are tried.
func (m *Message) digest() [sha256.Size]byte {
	if !m.digested {
		m.digested, m.sum = true, sha256.Sum256(m.body)
	}
	return m.sum
}

// hasBody reports whether the body has been read to its end.
func (m *Message) hasBody() bool { return m.read && m.err == nil }
