package sortedparams

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/idem-go/idem/sign"
)

// designSecret is the secret of the documented examples.
const designSecret = "0123456789abcdef0123456789abcdef"

// now is the time of the tests' verifiers.
var now = time.Unix(1700000000, 0)

func fixedClock() time.Time { return now }

// incoming is header and body of a message, as an adapter for net/http sees them.
type incoming struct {
	header http.Header
	body   []byte
	err    error // of reading the body
	reads  int
}

func (in *incoming) Values(name string) []string { return in.header[name] }

func (in *incoming) HeaderSize() (lines, bytes int) {
	for name, values := range in.header {
		lines += len(values)
		for _, v := range values {
			bytes += len(name) + len(v)
		}
	}
	return lines, bytes
}

func (in *incoming) ReadBody(limit int64) ([]byte, error) {
	in.reads++
	if int64(len(in.body)) > limit {
		return nil, sign.CodeBodyTooLarge
	}
	return in.body, in.err
}

// messageOf is what a server makes of a request that a client sends.
func messageOf(r *http.Request) *sign.Message {
	host := r.Host
	if host == "" {
		host = r.URL.Host
	}
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	return &sign.Message{Method: r.Method, Target: r.URL.RequestURI(), Host: host, Source: &incoming{header: r.Header.Clone(), body: body}}
}

// anyNonce is a nonce store that costs nothing.
type anyNonce struct{}

func (anyNonce) Use(context.Context, string, string, time.Duration) (bool, error) { return true, nil }

func (anyNonce) Bounded() {}

func replaceBody(body string) func(*http.Request) {
	return func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(body)) }
}

func setHeader(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func addHeader(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Add(name, value) }
}
