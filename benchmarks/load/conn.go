package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"net"
	"strconv"
)

// bodySize is how many bytes a request's body has.
const bodySize = 200

// maxAnswer is how many bytes of an answer's body are read at most. The answers have about 60,
// the refusals about 250.
const maxAnswer = 64 << 10

// answer is what came back for a request.
type answer struct {
	status     int
	replayed   bool   // Idempotent-Replayed: true
	retryAfter bool   // Retry-After is there
	body       uint64 // hash of the body's bytes
}

// conn is a connection that sends one request after the other. It speaks as little HTTP/1.1 as
// it needs, so that a generator on the same machine takes little from the service.
type conn struct {
	net       net.Conn
	in        *bufio.Reader
	head      []byte // of a request, up to the key
	out, body []byte // the buffers for a request and for the body of an answer
	seed      maphash.Seed
}

// dial connects to addr. Keys begin with prefix. The connection is closed when ctx ends, and
// what is under way on it fails then.
func dial(ctx context.Context, addr, prefix string, seed maphash.Seed) (*conn, error) {
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	head := "POST /operations HTTP/1.1\r\nHost: " + addr + "\r\nX-User: ann\r\nContent-Type: application/json\r\n" +
		"Content-Length: " + strconv.Itoa(bodySize) + "\r\nIdempotency-Key: " + prefix
	return &conn{net: nc, in: bufio.NewReader(nc), head: []byte(head), seed: seed}, nil
}

// send asks for an operation and reads the answer.
func (c *conn) send(operation uint64) (answer, error) {
	b := append(c.out[:0], c.head...)
	b = strconv.AppendUint(b, operation, 10)
	b = append(b, "\r\n\r\n"...)
	b = appendBody(b, operation)
	c.out = b
	if _, err := c.net.Write(b); err != nil {
		return answer{}, err
	}
	return c.read()
}

// appendBody appends a JSON body of bodySize bytes that names the operation.
func appendBody(b []byte, operation uint64) []byte {
	from := len(b)
	b = append(b, `{"operation":`...)
	b = strconv.AppendUint(b, operation, 10)
	b = append(b, `,"sku":"A-1001","qty":3,"price":19.90,"customer":{"id":9007199254740993},"note":"`...)
	for len(b) < from+bodySize-2 {
		b = append(b, 'x')
	}
	return append(b, `"}`...)
}

func (c *conn) read() (answer, error) {
	var a answer
	line, err := c.line()
	if err != nil {
		return a, err
	}
	version, rest, _ := bytes.Cut(line, []byte(" "))
	code, _, _ := bytes.Cut(rest, []byte(" "))
	if a.status, err = strconv.Atoi(string(code)); err != nil || string(version) != "HTTP/1.1" {
		return a, fmt.Errorf("not a status line: %q", line)
	}
	length := -1
	for {
		if line, err = c.line(); err != nil {
			return a, err
		}
		if len(line) == 0 {
			break
		}
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			return a, fmt.Errorf("not a header field: %q", line)
		}
		value = bytes.TrimSpace(value)
		switch {
		case is(name, "Content-Length"):
			if length, err = strconv.Atoi(string(value)); err != nil || length < 0 || length > maxAnswer {
				return a, fmt.Errorf("a body of %q bytes is not expected", value)
			}
		case is(name, "Idempotent-Replayed"):
			a.replayed = string(value) == "true"
		case is(name, "Retry-After"):
			a.retryAfter = true
		}
	}
	if length < 0 {
		return a, errors.New("the answer has no Content-Length")
	}
	if cap(c.body) < length {
		c.body = make([]byte, length)
	}
	body := c.body[:length]
	if _, err := io.ReadFull(c.in, body); err != nil {
		return a, err
	}
	a.body = maphash.Bytes(c.seed, body)
	return a, nil
}

// line returns the next line, without its end, until the next read.
func (c *conn) line() ([]byte, error) {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(line[:len(line)-1], []byte("\r")), nil
}

func is(name []byte, want string) bool { return bytes.EqualFold(name, []byte(want)) }
