package adaptertest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
)

// patience is how long the suite waits for anything before it calls it stuck. It decides
// nothing but when a hanging adapter is reported.
var patience = 20 * time.Second

// request is what is written to the connection. The zero request is alice's POST of an
// order.
type request struct {
	method string // "": POST
	target string // "": /orders; path and query, as they stand on the wire
	user   string // X-User; "": alice; "-": no such field
	host   string // Host; "": shop.test; "-": no such field, and HTTP/1.0
	keys   []string
	fields []adapter.Field
	body   string
	media  string // Content-Type; "": application/json if there is a body; "-": none
	// chunked sends the body in chunks of a few bytes, without a Content-Length.
	chunked bool
	// cut sends this many bytes of the body and then half-closes the connection.
	cut int
	// expect asks for 100-continue first, and sends the body in any case.
	expect bool
}

func (r request) orDefaults() request {
	if r.method == "" {
		r.method = "POST"
	}
	if r.target == "" {
		r.target = "/orders"
	}
	if r.user == "" {
		r.user = "alice"
	}
	if r.media == "" && r.body != "" {
		r.media = "application/json"
	}
	return r
}

// message is r as it stands on the wire.
func (r request) message() *message {
	m := &message{method: r.method, target: r.target, body: []byte(r.body), chunked: r.chunked, keepAlive: true}
	add := func(name, value string) { m.lines = append(m.lines, line{name, " " + value}) }
	switch r.host {
	case "-":
		m.http10 = true
	case "":
		add("Host", "shop.test")
	default:
		add("Host", r.host)
	}
	if r.user != "-" {
		add("X-User", r.user)
	}
	for _, k := range r.keys {
		add(core.DefaultKeyHeader, k)
	}
	if r.media != "" && r.media != "-" {
		add("Content-Type", r.media)
	}
	for _, f := range r.fields {
		add(f.Name, f.Value)
	}
	if r.expect {
		add("Expect", "100-continue")
	}
	if r.body == "" && (r.method == http.MethodGet || r.method == http.MethodHead) {
		m.length = "-"
	}
	if r.cut > 0 {
		cutAfter(r.cut)(m)
	}
	return m
}

// reply is what was read from the connection.
type reply struct {
	status int
	fields []adapter.Field
	body   []byte
	hints  []reply // 1xx responses that came before, except 100
	// framing is how the end of the body was marked: "length", "chunked", "close" or
	// "none" for a response that has no body by its status or method.
	framing string
	// raw is all that has come on the connection, and more what came after the response. Only roundTrip fills them in.
	raw, more []byte
}

func (r *reply) lines(name string) (values []string) {
	for _, f := range r.fields {
		if strings.EqualFold(f.Name, name) {
			values = append(values, f.Value)
		}
	}
	return values
}

func (r *reply) get(name string) string {
	if v := r.lines(name); len(v) > 0 {
		return v[0]
	}
	return ""
}

// connection is one TCP connection to the service under test.
type connection struct {
	net.Conn
	r *bufio.Reader
}

func dial(addr string) (*connection, error) {
	c, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	return &connection{Conn: c, r: bufio.NewReader(c)}, nil
}

func (c *connection) send(r request) { c.write(r.message()) }

// write writes m. A server that answers early may close its side while a large body is
// still on the way, so that an error of writing is none: there is an answer or there is not.
func (c *connection) write(m *message) {
	_, _ = c.Write(m.bytes())
	if m.cut {
		_ = c.Conn.(*net.TCPConn).CloseWrite()
	}
}

// roundTrip sends m on a connection of its own and reads until the server closes it. The status is 0 if it closes it without
// an answer.
func roundTrip(addr string, m *message) (reply, error) {
	c, err := dial(addr)
	if err != nil {
		return reply{}, err
	}
	defer c.Close()
	var raw bytes.Buffer
	c.r = bufio.NewReader(io.TeeReader(c.Conn, &raw))
	c.write(m)
	r, err := c.receive(m.method)
	if stuck, ok := errors.AsType[net.Error](err); ok && stuck.Timeout() {
		return reply{}, fmt.Errorf("the server is stuck: %w", err)
	}
	if err != nil && raw.Len() > 0 {
		return r, fmt.Errorf("%w: %q", err, raw.Bytes())
	}
	more, err := io.ReadAll(c.r)
	if stuck, ok := errors.AsType[net.Error](err); ok && stuck.Timeout() {
		return reply{}, fmt.Errorf("the server does not close the connection: %w", err)
	}
	r.raw, r.more = raw.Bytes(), more // a reset is an end, too
	return r, nil
}

// receive reads the final response to a request with method.
func (c *connection) receive(method string) (reply, error) {
	var hints []reply
	for {
		r, err := c.readHead()
		if err != nil {
			return reply{}, err
		}
		if r.status >= 200 || r.status == 101 {
			r.hints = hints
			err = c.readBody(&r, method)
			return r, err
		}
		if r.status != 100 {
			hints = append(hints, r)
		}
	}
}

func (c *connection) line() (string, error) {
	s, err := c.r.ReadString('\n')
	if err != nil {
		return "", err
	}
	if !strings.HasSuffix(s, "\r\n") {
		return "", fmt.Errorf("a line does not end with CR LF: %q", s)
	}
	return s[:len(s)-2], nil
}

func (c *connection) readHead() (r reply, err error) {
	line, err := c.line()
	if err != nil {
		return r, err
	}
	version, rest, _ := strings.Cut(line, " ")
	code, _, _ := strings.Cut(rest, " ")
	if r.status, err = strconv.Atoi(code); err != nil || version != "HTTP/1.1" && version != "HTTP/1.0" {
		return r, fmt.Errorf("not a status line: %q", line)
	}
	for {
		if line, err = c.line(); err != nil || line == "" {
			return r, err
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return r, fmt.Errorf("not a header field line: %q", line)
		}
		r.fields = append(r.fields, adapter.Field{Name: name, Value: strings.Trim(value, " \t")})
	}
}

// readBody follows RFC 9112, section 6.3.
func (c *connection) readBody(r *reply, method string) (err error) {
	lengths, codings := r.lines("Content-Length"), r.lines("Transfer-Encoding")
	switch {
	case method == "HEAD" || r.status < 200 || r.status == 204 || r.status == 304:
		r.framing = "none"
	case len(codings) > 0:
		r.framing = "chunked"
		if len(lengths) > 0 {
			return errors.New("both Transfer-Encoding and Content-Length")
		}
		r.body, err = c.readChunks()
	case len(lengths) == 1:
		r.framing = "length"
		n, perr := strconv.Atoi(lengths[0])
		if perr != nil {
			return perr
		}
		r.body = make([]byte, n)
		_, err = io.ReadFull(c.r, r.body)
	case len(lengths) > 1:
		return fmt.Errorf("Content-Length %d times", len(lengths))
	default:
		r.framing = "close"
		r.body, err = io.ReadAll(c.r)
	}
	return err
}

func (c *connection) readChunks() ([]byte, error) {
	var body []byte
	for {
		chunk, err := c.chunk()
		body = append(body, chunk...)
		if err != nil || len(chunk) == 0 {
			return body, err
		}
	}
}

// chunk reads one chunk; after the last one, which is empty, also the trailers.
func (c *connection) chunk() ([]byte, error) {
	line, err := c.line()
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(line, 16, 31)
	if err != nil {
		return nil, fmt.Errorf("not a chunk size: %q", line)
	}
	for n == 0 {
		if line, err = c.line(); err != nil || line == "" {
			return nil, err
		}
	}
	b := make([]byte, n)
	if _, err = io.ReadFull(c.r, b); err != nil {
		return nil, err
	}
	if line, err = c.line(); err == nil && line != "" {
		err = fmt.Errorf("a chunk is not %d bytes long", n)
	}
	return b, err
}
