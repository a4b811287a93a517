package adaptertest

import (
	"bytes"
	"fmt"
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
	// meanwhile is what happens before the last byte is sent.
	meanwhile func()

	signer  *signer // who holds the secret
	rfc9421 bool    // signed as HTTP Message Signatures say, and not by v1
	sorted  bool    // signed by the scheme sorted
	// What is signed is taken from target and Host, unless it stands here.
	signedHost, signedPath, signedQuery *string
}

// message is m itself: it is sent byte for byte.
func (m *message) message() *message { return m }

func (m *message) clone() *message {
	c := *m
	c.lines = append([]line(nil), m.lines...)
	c.trailers = append([]line(nil), m.trailers...)
	c.body = bytes.Clone(m.body)
	return &c
}

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

// withoutDate is the whole answer but for the Date line.
func (r reply) withoutDate() string {
	lines := strings.SplitAfter(string(r.raw), "\r\n")
	var b strings.Builder
	for _, l := range lines {
		if !strings.HasPrefix(strings.ToLower(l), "date:") {
			b.WriteString(l)
		}
	}
	return b.String()
}
