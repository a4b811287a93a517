package signtest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// patience is how long the suite waits for an answer before it calls a server stuck. It decides
// nothing but when that is reported.
const patience = 20 * time.Second

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
	// meanwhile is what happens before the last byte is sent.
	meanwhile func()

	signer  *party // who holds the secret
	rfc9421 bool   // signed as HTTP Message Signatures say, and not by v1
	// What is signed is taken from target and Host, unless it stands here.
	signedHost, signedPath, signedQuery *string
}

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

// bytes is what is written to the connection. Each connection is for one request.
func (m *message) bytes() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\n", m.method, m.target)
	for _, l := range m.lines {
		fmt.Fprintf(&b, "%s:%s\r\n", l.name, l.value)
	}
	b.WriteString("Connection: close\r\n")
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

// reply is what came back.
type reply struct {
	raw    []byte // everything, as it came
	status int    // 0: the connection was closed without an answer
	header http.Header
	body   []byte
	more   []byte // what came after the answer
}

// send sends m on a connection of its own and reads until the server closes it.
func send(addr string, m *message) (reply, error) {
	c, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return reply{}, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	// A server that answers early may close its side while the rest is still on the way, so
	// that an error of writing is none: there is an answer, or there is not.
	all := m.bytes()
	if m.meanwhile != nil {
		_, _ = c.Write(all[:len(all)-1])
		m.meanwhile()
		all = all[len(all)-1:]
	}
	_, _ = c.Write(all)
	if m.cut {
		_ = c.(*net.TCPConn).CloseWrite()
	}
	raw, err := io.ReadAll(c)
	if stuck, ok := err.(net.Error); ok && stuck.Timeout() {
		return reply{}, fmt.Errorf("the server is stuck: %w", err)
	}
	return parse(raw, m.method)
}

func parse(raw []byte, method string) (reply, error) {
	r := reply{raw: raw}
	in := bufio.NewReader(bytes.NewReader(raw))
	for {
		if _, err := in.Peek(1); err != nil {
			return r, nil // closed
		}
		resp, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			return r, fmt.Errorf("not a response: %w: %q", err, raw)
		}
		r.body, err = io.ReadAll(resp.Body)
		_ = resp.Body.Close() // of a buffer
		if err != nil {
			return r, fmt.Errorf("the response is incomplete: %w: %q", err, raw)
		}
		if resp.StatusCode < 200 {
			continue
		}
		r.status, r.header = resp.StatusCode, resp.Header
		r.more, _ = io.ReadAll(in) // of a buffer
		return r, nil
	}
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
