package fiberidem

import (
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/utils"
	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/sign"
)

// message is a request as its signature covers it. Its strings share fasthttp's memory, which is
// reused after the handler: none outlives the verification. Messages are pooled.
type message struct {
	c    *fiber.Ctx
	req  *fasthttp.Request
	sign sign.Message
	// header is the request's own; or early, a copy from before fasthttp adds the trailer to it.
	header *fasthttp.RequestHeader
	early  *fasthttp.RequestHeader
	sent   []core.Field // the header's lines, as received
	values []string     // returned by Values
}

var messages = sync.Pool{New: func() any { return new(message) }}

func (m *message) start(c *fiber.Ctx) {
	m.c, m.req = c, c.Request()
	m.header = &m.req.Header
	if hasUnread(m.req) && m.req.Header.ContentLength() == -1 { // in chunks, a trailer may follow (RFC 9112, section 7.1.2)
		if m.early == nil {
			m.early = new(fasthttp.RequestHeader)
		}
		m.header.CopyTo(m.early)
		m.header = m.early
	}
	line := func(name, value []byte) {
		m.sent = append(m.sent, core.Field{Name: utils.UnsafeString(name), Value: utils.UnsafeString(value)})
	}
	if m.header.VisitAllInOrder(line); len(m.sent) == 0 { // the request was made within the program
		m.header.VisitAll(line)
	}
	m.sign = sign.Message{
		Method: c.Method(), // an overridden method makes it another request
		Target: utils.UnsafeString(m.header.RequestURI()),
		Host:   utils.UnsafeString(c.Context().URI().Host()), // by which Fiber goes; Values has the line that was sent
		TLS:    c.Context().IsTLS(),
		Source: m,
	}
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

// RemoteAddr implements [sign.PeerSource].
func (m *message) RemoteAddr() string { return m.c.Context().RemoteAddr().String() }

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
		case len(m.values) == 1 && name == fiber.HeaderCookie:
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
			m.values = append(m.values, utils.UnsafeString(value))
		}
		return m.values
	}
	m.header.VisitAll(func(k, value []byte) {
		if strings.EqualFold(utils.UnsafeString(k), name) {
			m.values = append(m.values, utils.UnsafeString(value))
		}
	})
	return m.values
}

// isSpecial reports whether fasthttp keeps a field apart: of several lines it then shows one.
func isSpecial(name string) bool {
	switch name {
	case fiber.HeaderHost, fiber.HeaderContentType, fiber.HeaderContentLength, fiber.HeaderUserAgent, fiber.HeaderCookie,
		fiber.HeaderConnection, fiber.HeaderTransferEncoding, fiber.HeaderTrailer:
		return true
	}
	return false
}

// hasCookies reports whether the header's cookies are those of one line, and no others.
func (m *message) hasCookies(line string) bool {
	var sent fasthttp.RequestHeader
	sent.Set(fiber.HeaderCookie, line)
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
	if m.req.IsBodyStream() {
		left, ours := m.req.BodyStream().(*buffered)
		if ours && left.Len() < len(left.all) || isBegun(m.req.BodyStream()) {
			return nil, errBodyIsGone
		}
	}
	body, err := readBody(m.req, limit)
	switch {
	case errors.Is(err, core.ErrBodyTooLarge):
		return nil, sign.CodeBodyTooLarge
	case err == nil && m.header == m.early:
		// The trailer is not signed, and must not become a part of the header (RFC 9110,
		// section 6.5.1).
		m.early.CopyTo(&m.req.Header)
		m.req.Header.SetContentLength(len(body))
	}
	return body, err
}

// formIsGone reports whether the server has taken a multipart form apart, so that the bytes that were
// sent are lost.
func (m *message) formIsGone() bool {
	return !m.c.App().Server().DisablePreParseMultipartForm && !m.req.IsBodyStream() && m.header.ContentLength() > 0 &&
		len(m.header.MultipartFormBoundary()) > 0 && len(m.header.Peek(fiber.HeaderContentEncoding)) == 0
}

var errFormIsGone = sign.Errorf(sign.CodeMalformed, "the multipart form was taken apart before it could be verified: set DisablePreParseMultipartForm in fiber.Config")

var errBodyIsGone = sign.Errorf(sign.CodeMalformed, "a middleware in front has read the body")
