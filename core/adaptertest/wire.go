package adaptertest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idem/core"
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
	fields []core.Field
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

// head returns the header section without the final empty line.
func (r request) head() string {
	var b strings.Builder
	switch r.host {
	case "-":
		fmt.Fprintf(&b, "%s %s HTTP/1.0\r\n", r.method, r.target)
	case "":
		fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: shop.test\r\n", r.method, r.target)
	default:
		fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", r.method, r.target, r.host)
	}
	if r.user != "-" {
		fmt.Fprintf(&b, "X-User: %s\r\n", r.user)
	}
	for _, k := range r.keys {
		fmt.Fprintf(&b, "%s: %s\r\n", core.DefaultKeyHeader, k)
	}
	if r.media != "" && r.media != "-" {
		fmt.Fprintf(&b, "Content-Type: %s\r\n", r.media)
	}
	for _, f := range r.fields {
		fmt.Fprintf(&b, "%s: %s\r\n", f.Name, f.Value)
	}
	if r.expect {
		b.WriteString("Expect: 100-continue\r\n")
	}
	switch {
	case r.chunked:
		b.WriteString("Transfer-Encoding: chunked\r\n")
	case r.body != "" || r.method != "GET" && r.method != "HEAD":
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(r.body))
	}
	return b.String()
}

func (r request) bytes() []byte {
	b := append([]byte(r.head()), "\r\n"...)
	body := r.body
	if r.cut > 0 {
		body = body[:r.cut]
	}
	if !r.chunked {
		return append(b, body...)
	}
	for body != "" {
		n := min(len(body), max(7, len(body)/3))
		b = fmt.Appendf(b, "%x\r\n%s\r\n", n, body[:n])
		body = body[n:]
	}
	return append(b, "0\r\n\r\n"...)
}

// reply is what was read from the connection.
type reply struct {
	status int
	fields []core.Field
	body   []byte
	hints  []reply // 1xx responses that came before, except 100
	// framing is how the end of the body was marked: "length", "chunked", "close" or
	// "none" for a response that has no body by its status or method.
	framing string
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

// send writes r. A service that answers early may close its side while a large body is
// still on the way, so that an error of writing is none; there is an answer or there is not.
func (c *connection) send(r request) {
	_, _ = c.Write(r.bytes())
	if r.cut > 0 {
		_ = c.Conn.(*net.TCPConn).CloseWrite()
	}
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
		r.fields = append(r.fields, core.Field{Name: name, Value: strings.Trim(value, " \t")})
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
