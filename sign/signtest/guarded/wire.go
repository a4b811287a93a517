package guarded

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/signtest"
)

// patience is how long the suite waits for an answer before it calls a server stuck. It decides
// nothing but when that is reported.
const patience = 20 * time.Second

// The key holders, and somebody who has not the secret.
var demo, bob, forger = signtest.Demo, signtest.Bob, signtest.Forger

// renewed is the key that takes demo's place.
var renewed = sign.MustKey(sign.NewHMACKey("demo-2", []byte("fedcba9876543210fedcba9876543210"), sign.OwnedBy(demo.ID())))

// request is how a message is made. Requests are values: each method returns another one.
type request struct {
	signer  *sign.Key // nil: nobody has signed it
	key     string    // Idempotency-Key; "": none
	body    string
	user    string        // X-User; "": none
	query   string        // without the question mark
	kind    string        // Content-Type; "": none
	scheme  sign.Scheme   // nil: v1
	chunked bool          // without a Content-Length
	ago     time.Duration // how long ago it was signed
	edit    [2]string     // in the signed message, the first is replaced by the second
}

// order is demo's order.
var order = request{signer: demo, key: "k-1", query: "x=2&x=1", kind: "application/json", body: `{"sku":"A-1"}`}

func (r request) by(k *sign.Key) request           { r.signer = k; return r }
func (r request) under(key string) request         { r.key = key; return r }
func (r request) with(body string) request         { r.body = body; return r }
func (r request) of(user string) request           { r.user = user; return r }
func (r request) inChunks() request                { r.chunked = true; return r }
func (r request) before(ago time.Duration) request { r.ago = ago; return r }
func (r request) changed(from, to string) request  { r.edit = [2]string{from, to}; return r }

// message is a request as it stands on the wire, and what a handler has to see of it.
type message struct {
	text   []byte
	expect answer
}

// nonceParam finds the nonce of scheme sorted.
var nonceParam = regexp.MustCompile(`nonce_str"?[=:]"?([0-9a-f]+)`)

// message signs the request anew.
func (r request) message() message {
	req, err := http.NewRequest("POST", "http://shop.test/orders/7?"+r.query, strings.NewReader(r.body))
	if err != nil {
		panic(err) // the suite's own
	}
	for name, value := range map[string]string{"Content-Type": r.kind, "Idempotency-Key": r.key, "X-User": r.user} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	m := message{expect: answer{Key: r.key}}
	if r.signer != nil {
		clock := func() time.Time { return time.Now().Add(-r.ago) }
		if err := sign.Request(req, r.signer, &sign.RequestOptions{Scheme: r.scheme, Clock: clock}); err != nil {
			panic(err)
		}
		m.expect.KeyID, m.expect.Caller, m.expect.Nonce = r.signer.ID(), r.signer.Owner(), req.Header.Get("X-Nonce")
	}
	body, _ := io.ReadAll(req.Body) // of a buffer
	req.Body = io.NopCloser(bytes.NewReader(body))
	m.expect.Body = digest(body)
	if found := nonceParam.FindStringSubmatch(req.URL.RawQuery + string(body)); found != nil {
		m.expect.Nonce = found[1]
	}
	if r.chunked {
		req.ContentLength = -1
	}
	var b bytes.Buffer
	if err := req.Write(&b); err != nil {
		panic(err)
	}
	m.text = bytes.Replace(b.Bytes(), []byte(r.edit[0]), []byte(r.edit[1]), 1)
	return m
}

// reply is what came back.
type reply struct {
	status int
	header http.Header
	body   []byte
	closes bool // the server has said that it closes the connection
	err    error
}

// conn is a client's connection.
type conn struct {
	net.Conn
	in *bufio.Reader
}

func dial(addr string) (*conn, error) {
	c, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return nil, err
	}
	return &conn{c, bufio.NewReader(c)}, nil
}

// ask sends m and reads the answer.
func (c *conn) ask(m message) (r reply) {
	r.err = c.SetDeadline(time.Now().Add(patience))
	// A server that answers early may close its side while the rest is still on the way, so
	// that an error of writing is none: there is an answer, or there is not.
	_, _ = c.Write(m.text)
	resp, err := http.ReadResponse(c.in, &http.Request{Method: "POST"})
	if err != nil {
		r.err = fmt.Errorf("there is no answer: %w", err)
		return r
	}
	r.status, r.header, r.closes = resp.StatusCode, resp.Header, resp.Close
	if r.body, err = io.ReadAll(resp.Body); err != nil {
		r.err = fmt.Errorf("the answer is incomplete: %w", err)
	}
	return r
}

// rest is what comes until the server closes the connection.
func (c *conn) rest() []byte {
	rest, _ := io.ReadAll(c.in) // a reset is an end, too
	return rest
}

// once sends m on a connection of its own.
func once(addr string, m message) reply {
	c, err := dial(addr)
	if err != nil {
		return reply{err: err}
	}
	defer c.Close()
	return c.ask(m)
}
