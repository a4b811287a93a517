package adaptertest

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// line is a line of a header.
type line struct{ name, value string }

// message is a request as it stands on the wire.
type message struct {
	method, target string
	lines          []line // all but those that frame the body
	body           []byte

	chunked  bool
	length   string // Content-Length, if it is not that of body; "-": no such field
	cut      bool   // the client goes after having sent the body, which is less than it has said
	trailers []line
	http10   bool // a request of HTTP/1.0
	// keepAlive: the connection is for more than this request.
	keepAlive bool
	signer    *signer
	// signs are the host, the path and the query that are signed. Nil: those that are sent.
	signs  *[3]string
	sorted bool // signed by the scheme sorted
}

// message is m itself: it is sent byte for byte.
func (m *message) message() *message { return m }

// value returns the value of the first line of that name, without the space around it.
func (m *message) value(name string) string {
	for _, l := range m.lines {
		if strings.EqualFold(l.name, name) {
			return strings.Trim(l.value, " \t")
		}
	}
	return ""
}

func (m *message) drop(name string) {
	kept := m.lines[:0]
	for _, l := range m.lines {
		if !strings.EqualFold(l.name, name) {
			kept = append(kept, l)
		}
	}
	m.lines = kept
}

// set puts a line in the place of the first one of that name, or at the end.
func (m *message) set(name, value string) {
	for i, l := range m.lines {
		if strings.EqualFold(l.name, name) {
			m.lines[i] = line{name, value}
			return
		}
	}
	m.lines = append(m.lines, line{name, value})
}

// bytes is what is written to the connection.
func (m *message) bytes() []byte {
	var b bytes.Buffer
	version := "1.1"
	if m.http10 {
		version = "1.0"
	}
	fmt.Fprintf(&b, "%s %s HTTP/%s\r\n", m.method, m.target, version)
	for _, l := range m.lines {
		fmt.Fprintf(&b, "%s:%s\r\n", l.name, l.value)
	}
	if !m.keepAlive {
		b.WriteString("Connection: close\r\n")
	}
	switch {
	case m.length != "" && m.length != "-":
		fmt.Fprintf(&b, "Content-Length: %s\r\n", m.length)
	case m.length == "" && !m.chunked:
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(m.body))
	}
	if m.chunked {
		b.WriteString("Transfer-Encoding: chunked\r\n")
	}
	b.WriteString("\r\n")
	if !m.chunked {
		b.Write(m.body)
		return b.Bytes()
	}
	for rest := m.body; len(rest) > 0; {
		n := min(len(rest), max(7, len(rest)/3))
		fmt.Fprintf(&b, "%x\r\n%s\r\n", n, rest[:n])
		rest = rest[n:]
	}
	b.WriteString("0\r\n")
	for _, t := range m.trailers {
		fmt.Fprintf(&b, "%s: %s\r\n", t.name, t.value)
	}
	b.WriteString("\r\n")
	return b.Bytes()
}

// signedRequest is how a message is made: what is changed before it is signed, by somebody who can sign, and after, by anybody.
type signedRequest struct{ before, after []change }

type change func(m *message)

// good is a request in which everything that v1 knows is used.
var good signedRequest

// with changes what is signed.
func (r signedRequest) with(c ...change) signedRequest {
	return signedRequest{slices.Concat(r.before, c), r.after}
}

// then changes what has been signed.
func (r signedRequest) then(c ...change) signedRequest {
	return signedRequest{r.before, slices.Concat(r.after, c)}
}

const (
	goodBody   = `{"amount":5,"to":"bob"}`
	goodTarget = "/transfers/a%2Fb?x=2&x=1"
)

func (r signedRequest) message() *message {
	m := &message{
		method: "POST",
		target: goodTarget,
		lines: []line{
			{"Host", " api.example.com"},
			{"Content-Type", " application/json"},
			{"Idempotency-Key", ` "k-1"`},
			{"X-Key-Id", " demo"},
			{"X-Timestamp", fmt.Sprintf(" %d", noon.Unix())},
			{"X-Nonce", " " + newNonce()},
			{"X-Signed-Headers", " content-type;idempotency-key"},
		},
		body:   []byte(goodBody),
		signer: demo,
	}
	for _, c := range r.before {
		c(m)
	}
	m.sign()
	for _, c := range r.after {
		c(m)
	}
	return m
}

// set sets a field, in the place where it stands, raw to a value that is written right after the colon.
func set(name, value string) change { return raw(name, " "+value) }

func raw(name, value string) change { return func(m *message) { m.set(name, value) } }

func drop(names ...string) change {
	return func(m *message) {
		for _, name := range names {
			m.drop(name)
		}
	}
}

// first adds a line in front of all others, last behind them.
func first(name, value string) change {
	return func(m *message) { m.lines = append([]line{{name, " " + value}}, m.lines...) }
}

func last(name, value string) change {
	return func(m *message) { m.lines = append(m.lines, line{name, " " + value}) }
}

// spelled changes the spelling of fields' names.
func spelled(as func(name string) string, names ...string) change {
	return func(m *message) {
		for i, l := range m.lines {
			if names == nil || slices.Contains(names, l.name) {
				m.lines[i].name = as(l.name)
			}
		}
	}
}

func method(name string) change { return func(m *message) { m.method = name } }

func target(t string) change { return func(m *message) { m.target = t } }

func host(h string) change { return set("Host", h) }

func body(b string) change { return func(m *message) { m.body = []byte(b) } }

// empty is a body of no bytes, and no type.
func empty() change {
	return func(m *message) {
		m.body = nil
		m.drop("Content-Type")
		m.set("X-Signed-Headers", " idempotency-key")
	}
}

// by has it signed by somebody else.
func by(p *signer) change {
	return func(m *message) {
		m.signer = p
		m.set("X-Key-Id", " "+p.id)
	}
}

// secondsAhead sets the timestamp, counted from noon.
func secondsAhead(n int64) change { return set("X-Timestamp", strconv.FormatInt(noon.Unix()+n, 10)) }

// cover sets the list of signed fields.
func cover(list string) change { return set("X-Signed-Headers", list) }

// uncovered leaves the list, and what must be on it, out.
func uncovered() change { return drop("X-Signed-Headers", "Idempotency-Key", "Content-Type") }

// signs says what is signed in the place of what target and Host make of it.
func signs(host, path, query string) change {
	return func(m *message) { m.signs = &[3]string{host, path, query} }
}

func inChunks() change { return func(m *message) { m.chunked = true } }

func trailer(name, value string) change {
	return func(m *message) {
		m.chunked = true
		m.trailers = append(m.trailers, line{name, value})
	}
}

// length says how long the body is, whatever it is.
func length(n string) change { return func(m *message) { m.length = n } }

// cutAfter sends n bytes of the body, says that there are more, and goes.
func cutAfter(n int) change {
	return func(m *message) {
		m.length = strconv.Itoa(len(m.body))
		m.body = m.body[:n]
		m.cut = true
	}
}

// cutOff sends the body, which is less than was said, and goes.
func cutOff() change { return func(m *message) { m.cut = true } }

// kept keeps the connection open for more.
func kept(m *message) { m.keepAlive = true }

func flip(i int) change {
	return func(m *message) { m.body[(i+len(m.body))%len(m.body)] ^= 0x20 }
}
