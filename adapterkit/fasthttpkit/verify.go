package fasthttpkit

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/sign"
)

// Verify verifies the request of ctx with v, as one of that method, and returns outer with the signer in it. If v refuses the
// request, it is answered, and ok is false. preParsed says that the server takes multipart forms apart
// (fasthttp.Server.DisablePreParseMultipartForm is not set).
//
// What a trailer has brought is no longer in the header of a request that has passed (RFC 9110, section 6.5.1).
func Verify(outer context.Context, v *sign.Verifier, ctx *fasthttp.RequestCtx, method string,
	preParsed bool) (verified context.Context, ok bool) {
	m := messages.Get().(*message)
	m.start(ctx, method, preParsed)
	signed, err := v.Verify(outer, &m.sign)
	if err == nil {
		err = m.trailer // if the scheme has not asked for the body
	}
	if err == nil {
		for _, name := range m.brought {
			m.header.Del(name)
		}
		verified = adapterkit.WithSigner(outer, signed)
	} else {
		answer(ctx, adapterkit.ResponseOf(v.Answer(outer, err)))
	}
	m.reset() // after a panic it stays out of the pool: somebody may still hold it
	messages.Put(m)
	return verified, err == nil
}

// message is a request as its signature covers it. Its strings share fasthttp's memory, which is
// reused after the handler: none outlives the verification. Messages are pooled.
type message struct {
	ctx       *fasthttp.RequestCtx
	req       *fasthttp.Request
	preParsed bool
	sign      sign.Message
	// header is the request's own; or early, a copy from before fasthttp adds the trailer to it.
	header  *fasthttp.RequestHeader
	early   *fasthttp.RequestHeader
	sent    []adapter.Field // the header's lines, as received
	brought []string        // the names that a trailer has brought into header
	trailer error           // what it has brought, or what was sent, can't be told
	values  []string        // returned by Values
}

func isTransferEncoding(f adapter.Field) bool {
	return strings.EqualFold(f.Name, fasthttp.HeaderTransferEncoding)
}

var messages = sync.Pool{New: func() any { return new(message) }}

func (m *message) start(ctx *fasthttp.RequestCtx, method string, preParsed bool) {
	m.ctx, m.req, m.preParsed = ctx, &ctx.Request, preParsed
	m.header = &m.req.Header
	if hasUnread(m.req) && m.req.Header.ContentLength() == -1 { // in chunks, a trailer may follow (RFC 9112, section 7.1.2)
		if m.early == nil {
			m.early = new(fasthttp.RequestHeader)
		}
		m.header.CopyTo(m.early)
		m.header = m.early
	}
	line := func(name, value []byte) {
		m.sent = append(m.sent, adapter.Field{Name: text(name), Value: text(value)})
	}
	m.header.VisitAllInOrder(line)
	if len(m.sent) == 0 && len(m.header.RawHeaders()) > 0 {
		m.trailer = errLines
	}
	if m.header != m.early && slices.ContainsFunc(m.sent, isTransferEncoding) { // it was in chunks, and has been read
		m.trailer = m.findTrailer()
	}
	if len(m.sent) == 0 { // the request was made within the program
		m.header.VisitAll(line)
	}
	m.sign = sign.Message{
		Method: method, // one that overrides what was sent makes it another request
		Target: text(m.header.RequestURI()),
		Host:   text(ctx.URI().Host()), // by which the framework goes; Values has the line that was sent
		TLS:    ctx.IsTLS(),
		Source: m,
	}
}

// findTrailer finds the fields that a trailer has brought into the header: those of names that were not sent there. A field that a
// outer middleware has added can't be told from them. Of a name that was sent, and has more lines now, nobody knows which are the
// sender's: versions differ in the order.
func (m *message) findTrailer() error {
	m.header.Del(fasthttp.HeaderTrailer) // newer versions keep the fields that it names, and those that have come, apart until then
	sent := map[string]int{}
	var cookies fasthttp.RequestHeader
	for _, f := range m.sent {
		sent[strings.ToLower(f.Name)]++
		if strings.EqualFold(f.Name, fasthttp.HeaderCookie) {
			cookies.Add(fasthttp.HeaderCookie, f.Value)
		}
	}
	if n := len(cookiesOf(&cookies)); n > 0 && len(cookiesOf(m.header)) > n {
		return errTrailer
	}
	lines, ambiguous := map[string]int{}, false
	m.header.VisitAll(func(k, _ []byte) {
		name := strings.ToLower(text(k))
		switch lines[name]++; {
		case name == "host", name == "content-length", name == "connection":
			// fasthttp lists its own, and takes none from a trailer.
		case sent[name] == 0:
			m.brought = append(m.brought, string(k))
		case lines[name] > sent[name]:
			ambiguous = true
		}
	})
	if ambiguous {
		return errTrailer
	}
	return nil
}

func (m *message) reset() {
	early, sent, values := m.early, m.sent, m.values
	if early != nil {
		early.Reset()
	}
	clear(sent[:cap(sent)])
	clear(values[:cap(values)])
	*m = message{early: early, sent: sent[:0], values: values[:0]}
}

// RemoteAddr implements [sign.Source].
func (m *message) RemoteAddr() string { return m.ctx.RemoteAddr().String() }

// Values implements [sign.Source].
func (m *message) Values(name string) []string {
	m.values = m.values[:0]
	if isSpecial(name) {
		for _, f := range m.sent {
			if strings.EqualFold(f.Name, name) {
				m.values = append(m.values, f.Value)
			}
		}
		switch {
		case name == fasthttp.HeaderTrailer:
			return m.values
		case len(m.values) == 1 && name == fasthttp.HeaderCookie:
			// fasthttp rebuilds what the handler gets. What a trailer may have added is another line.
			if !m.hasCookies(m.values[0]) {
				m.values = append(m.values, "")
			}
			return m.values
		case len(m.values) > 1 || len(m.values) == 1 && m.values[0] == "":
			return m.values
		}
		// For a single line, what the handler gets counts.
		m.values = m.values[:0]
		if value := m.header.Peek(name); len(value) > 0 {
			m.values = append(m.values, text(value))
		}
		return m.values
	}
	m.header.VisitAll(func(k, value []byte) {
		if strings.EqualFold(text(k), name) {
			m.values = append(m.values, text(value))
		}
	})
	return m.values
}

// isSpecial reports whether fasthttp keeps a field apart: of several lines it then shows one.
func isSpecial(name string) bool {
	switch name {
	case fasthttp.HeaderHost, fasthttp.HeaderContentType, fasthttp.HeaderContentLength, fasthttp.HeaderUserAgent, fasthttp.HeaderCookie,
		fasthttp.HeaderConnection, fasthttp.HeaderTransferEncoding, fasthttp.HeaderTrailer:
		return true
	}
	return false
}

// hasCookies reports whether the header's cookies are those of one line, and no others.
func (m *message) hasCookies(line string) bool {
	var sent fasthttp.RequestHeader
	sent.Set(fasthttp.HeaderCookie, line)
	return slices.Equal(cookiesOf(&sent), cookiesOf(m.header))
}

// cookiesOf returns names and values in turn.
func cookiesOf(h *fasthttp.RequestHeader) (cookies []string) {
	h.VisitAllCookie(func(name, value []byte) { cookies = append(cookies, string(name), string(value)) })
	return cookies
}

// HeaderSize implements [sign.Source].
func (m *message) HeaderSize() (lines, bytes int) {
	for _, f := range m.sent {
		bytes += len(f.Name) + len(f.Value)
	}
	return len(m.sent), bytes
}

// ReadBody implements [sign.Source].
func (m *message) ReadBody(limit int64) ([]byte, error) {
	if m.formIsGone() {
		return nil, errFormIsGone
	}
	if m.trailer != nil {
		return nil, m.trailer
	}
	if m.req.IsBodyStream() {
		left, ours := m.req.BodyStream().(*buffered)
		if ours && left.Len() < len(left.all) || isBegun(m.req.BodyStream()) {
			return nil, errBodyIsGone
		}
	}
	body, err := readBody(m.req, limit)
	switch {
	case errors.Is(err, adapter.ErrBodyTooLarge):
		return nil, sign.CodeBodyTooLarge
	case err == nil && m.header == m.early:
		// The trailer is not signed, and must not become a part of the header (RFC 9110,
		// section 6.5.1).
		m.early.CopyTo(&m.req.Header)
	}
	return body, err
}

// formIsGone reports whether the server has taken a multipart form apart, so that the bytes that were
// sent are lost.
func (m *message) formIsGone() bool {
	return m.preParsed && !m.req.IsBodyStream() && m.header.ContentLength() > 0 &&
		len(m.header.MultipartFormBoundary()) > 0 && len(m.header.Peek(fasthttp.HeaderContentEncoding)) == 0
}

var errFormIsGone = sign.Errorf(sign.CodeMalformed,
	"the multipart form was parsed before it could be verified: set DisablePreParseMultipartForm")

var errBodyIsGone = sign.Errorf(sign.CodeMalformed, "outer middleware has read the body")

// A bare line feed comes before the empty line: fasthttp 1.69 reads such a header, but does not tell its lines again.
var errLines = sign.Errorf(sign.CodeMalformed, "the lines of the header are ambiguous: each must end with CRLF")

var errTrailer = sign.Errorf(sign.CodeMalformed,
	"the header has more lines of a name than were sent in it: they come from a trailer or from outer middleware")
