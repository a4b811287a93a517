package adapterkit

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/sign"
)

// Verify verifies r with v. It returns a copy of r for the handler, with the signer in its context, with a
// body that reads from the start, and without trailers, which nobody has signed. If v refuses the request,
// it returns the answer instead.
func Verify(v *sign.Verifier, r *http.Request) (verified *http.Request, refusal *adapter.Response) {
	m := messages.Get().(*message)
	m.start(r)
	signed, err := v.Verify(r.Context(), &m.sign)
	if err == nil {
		verified = m.forHandler(WithSigner(r.Context(), signed), new(lentBody))
		verified.Trailer = nil // no scheme signs it
	} else {
		refusal = ResponseOf(v.Answer(r.Context(), err))
	}
	m.end() // after a panic it stays out of the pool: somebody may still hold it
	messages.Put(m)
	return verified, refusal
}

// WithSigner returns ctx with v, who has signed the request. Handlers get it by [sign.From]; a guard takes the key's
// owner for its user.
func WithSigner(ctx context.Context, v sign.Verified) context.Context {
	return core.WithCallerEvent(sign.NewContext(ctx, v), v.Owner, v.EventID, v.Consumed...)
}

// ResponseOf returns a as a response, for [adapter.Exchange].Answer. The header is sorted.
func ResponseOf(a *sign.Answer) *adapter.Response {
	resp := &adapter.Response{Status: a.Status, Body: a.Body}
	for _, name := range slices.Sorted(maps.Keys(a.Header)) {
		for _, value := range a.Header[name] {
			resp.Header = append(resp.Header, adapter.Field{Name: name, Value: value})
		}
	}
	return resp
}

// message is a request as its signature covers it. Messages are pooled; the handler gets nothing of
// one.
type message struct {
	request
	sign sign.Message
}

var messages = sync.Pool{New: func() any { return new(message) }}

func (m *message) start(r *http.Request) {
	m.r = r
	target := r.RequestURI
	if target == "" { // it does not come from a server
		target = r.URL.RequestURI()
	}
	m.sign = sign.Message{Method: r.Method, Target: target, Host: r.Host, TLS: r.TLS != nil, Source: m}
}

func (m *message) end() {
	m.request.end()
	m.sign = sign.Message{}
}

// Values implements [sign.Source].
func (m *message) Values(name string) []string { return m.r.Header[name] }

// HeaderSize implements [sign.Source]. net/http has taken Host out of the header.
func (m *message) HeaderSize() (lines, bytes int) {
	if m.r.Host != "" {
		lines, bytes = 1, len("Host")+len(m.r.Host)
	}
	for name, values := range m.r.Header {
		lines += len(values)
		for _, value := range values {
			bytes += len(name) + len(value)
		}
	}
	return lines, bytes
}

// RemoteAddr implements [sign.Source].
func (m *message) RemoteAddr() string { return m.r.RemoteAddr }

// ReadBody implements [sign.Source]. It returns bytes as they were sent, never a body that was rebuilt
// from a form.
func (m *message) ReadBody(limit int64) ([]byte, error) {
	if b, ok := m.r.Body.(*lentBody); ok && !b.untouched() {
		return nil, errBodyIsGone
	}
	err := m.readLeft(limit)
	switch {
	case errors.Is(err, adapter.ErrBodyTooLarge):
		return nil, sign.CodeBodyTooLarge
	case errors.Is(err, errNothingCame):
		// It was sent in chunks: the signature tells whether there was anything in them.
	case errors.Is(err, adapter.ErrBodyConsumed):
		return nil, errBodyIsGone
	case err != nil:
		return nil, err
	}
	if len(m.r.PostForm) > 0 || m.r.MultipartForm != nil || m.r.ContentLength > int64(len(m.body)) {
		return nil, errBodyIsGone
	}
	return m.lend(), nil
}

// errBodyIsGone refuses a body that the handler could see, in whole or as a form, and the verifier
// can't check.
var errBodyIsGone = sign.Errorf(sign.CodeMalformed, "outer middleware has read the body, or parsed a form from it")
