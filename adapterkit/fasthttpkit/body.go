package fasthttpkit

import (
	"bytes"
	"errors"
	"io"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/adapterkit/internal/buffer"
	"github.com/idem-go/idem/core/adapter"
)

// maxDrain is how long a client may go on sending a body that nobody reads, as in net/http
// (rstAvoidanceDelay). Tests give it longer.
var maxDrain = 500 * time.Millisecond

// readBody returns the body as sent, and leaves it for others to read.
func readBody(req *fasthttp.Request, limit int64) ([]byte, error) {
	length := int64(req.Header.ContentLength()) // negative if it is not known
	if length > limit {
		return nil, adapter.ErrBodyTooLarge
	}
	if !req.IsBodyStream() {
		body := req.Body()
		// A form that was rebuilt may be longer than it was: its own length counts, if it is known.
		formOfKnownLength := length >= 0 && len(req.Header.MultipartFormBoundary()) > 0
		if int64(len(body)) > limit && !formOfKnownLength {
			return nil, adapter.ErrBodyTooLarge
		}
		return body, nil
	}
	if left, ok := req.BodyStream().(*buffered); ok { // by Verify, or by a guard further out
		if int64(len(left.all)) > limit {
			return nil, adapter.ErrBodyTooLarge
		}
		left.Reset(left.all) // a middleware in between may have read some of it
		return left.all, nil
	}
	// The memory is not pooled: a middleware further out may read the body after Serve.
	var body []byte
	var err error
	if isBegun(req.BodyStream()) {
		body, err = parsedForm(req)
	} else {
		body, err = new(buffer.Buffer).ReadAll(req.BodyStream(), length, limit)
		if err == nil && int64(len(body)) < length {
			err = io.ErrUnexpectedEOF // fasthttp reports a plain io.EOF
		}
	}
	if err != nil {
		return nil, err
	}
	b := &buffered{all: body}
	b.Reset(body)
	size := len(body)
	if length < 0 {
		size = -1 // it stays as it was sent: newer versions of fasthttp put fields in another order otherwise
	}
	req.SetBodyStream(b, size)
	return body, nil
}

// hasUnread reports whether a part of the body may still be on the connection.
func hasUnread(req *fasthttp.Request) bool {
	if !req.IsBodyStream() {
		return false
	}
	switch req.BodyStream().(type) {
	case *buffered, *bytes.Reader:
		return false
	}
	return true
}

// buffered is a body stream that has been read, and reads from the start again. Another guard, or Verify,
// finds the whole body in it.
type buffered struct {
	bytes.Reader
	all []byte
}

// drain lets the client finish sending before its connection is closed: a client that is cut off while it
// sends may never read the answer.
func drain(ctx *fasthttp.RequestCtx) {
	if stream := ctx.RequestBodyStream(); isReceived(stream) {
		_ = ctx.Conn().SetReadDeadline(time.Now().Add(maxDrain))
		_, _ = io.Copy(io.Discard, stream)
	}
}

// parsedForm rebuilds a multipart form that an outer middleware has read from the stream. It refuses a
// chunked one: whether the last chunk has been read is unknown, and reading on after it would take bytes
// of the next request.
func parsedForm(req *fasthttp.Request) ([]byte, error) {
	if req.Header.ContentLength() < 0 || len(req.Header.Peek("Content-Encoding")) > 0 {
		return nil, adapter.ErrBodyConsumed
	}
	if _, err := io.Copy(io.Discard, req.BodyStream()); err != nil { // what is after the last part
		return nil, err
	}
	form, err := req.MultipartForm() // which finds nothing now, unless it was parsed before
	if err != nil {
		return nil, errors.Join(adapter.ErrBodyConsumed, err)
	}
	var b bytes.Buffer
	if err := fasthttp.WriteMultipartForm(&b, form, string(req.Header.MultipartFormBoundary())); err != nil {
		return nil, errors.Join(adapter.ErrBodyConsumed, err)
	}
	return b.Bytes(), nil
}
