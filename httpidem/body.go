package httpidem

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net/http"

	"github.com/idem-go/idem/core"
)

// Request is the request side of an exchange, for adapters of frameworks on net/http. It
// is made to be reused, from [Request.Start] to [Request.End]; it must not be used
// concurrently. The zero Request is ready for Start.
type Request struct {
	r        *http.Request
	original io.ReadCloser // r.Body, while it is replaced
	length   int64         // r.ContentLength then
	read     bool          // the body has been read
	body     []byte        // what has been read
	pooled   bool          // it is in buffer; else in memory that handlers may share
	buffer   []byte        // used again, unless a handler gets it
	hooks    bodyReader    // what hooks read between ReadBody and the handler
	extra    [1]byte
}

const (
	// maxPooled is the largest buffer that is kept for another request.
	maxPooled = 64 << 10
	// maxTrusted is how much memory a Content-Length gets before the bytes are there: no more than
	// what is pooled anyway. From there on the buffer grows with what has come.
	maxTrusted = maxPooled
	// trustedGrowth is how many times the bytes that have come a Content-Length gets after that. So
	// nobody buys more memory than sixteen times what he sends; and of a body of the usual limit,
	// 1 MiB, no more than the first sixteenth is copied on the way.
	trustedGrowth = 16
	// firstBuffer is the size of the buffer for a body of unknown length.
	firstBuffer = 512
)

// Start begins with another request.
func (q *Request) Start(r *http.Request) { q.r = r }

// End lets go of the request, which gets back the body it had.
func (q *Request) End() {
	q.restore()
	*q = Request{buffer: q.buffer[:0]}
}

// Header implements [core.Headers].
func (q *Request) Header(name string) (first string, lines int) {
	values := q.r.Header[name]
	if len(values) == 0 {
		return "", 0
	}
	return values[0], len(values)
}

// Describe fills in r, all but Route, PathParams and Native.
func (q *Request) Describe(r *core.Request) {
	r.Method = q.r.Method
	r.RawQuery = q.r.URL.RawQuery
	r.ContentType = q.r.Header.Get("Content-Type")
	r.ContentEncoding = q.r.Header.Get("Content-Encoding")
	r.RemoteAddr = q.r.RemoteAddr
}

// ReadBody implements the method of [core.Exchange]. The request's Body then reads from
// the start, for hooks.
func (q *Request) ReadBody(limit int64) ([]byte, error) {
	r := q.r
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	limit = min(limit, math.MaxInt64-1) // one more byte can be counted
	if r.ContentLength > limit {
		return nil, core.ErrBodyTooLarge
	}
	if err := q.readFrom(r.Body, limit); err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return nil, core.ErrBodyTooLarge
		}
		return nil, err
	}
	q.read = true
	q.original, q.length = r.Body, r.ContentLength
	q.hooks.reset(q.body, q.original)
	r.Body, r.ContentLength = &q.hooks, int64(len(q.body))
	return q.hooks.all, nil
}

// readFrom reads what is left of body, or takes it if it has been read into memory already.
func (q *Request) readFrom(body io.Reader, limit int64) (err error) {
	if b, ok := body.(*Body); ok { // left by Verify, or by a guard further out
		q.body, err = b.take(limit)
		return err
	}
	q.body, err = q.fill(body, limit)
	if q.pooled = cap(q.body) <= maxPooled; q.pooled {
		q.buffer = q.body
	}
	return err
}

// fill reads body into the buffer, as long as it fits, and no more than one byte over the limit.
func (q *Request) fill(body io.Reader, limit int64) ([]byte, error) {
	length, b := q.r.ContentLength, q.buffer[:0]
	want := min(length, maxTrusted)
	if want <= 0 {
		want = firstBuffer
	}
	if int64(cap(b)) < want {
		b = make([]byte, 0, want)
	}
	for {
		if have := int64(len(b)); len(b) == cap(b) && have < length {
			b = q.grow(b, min(trustedGrowth*have, length))
		}
		free := b[len(b):cap(b)]
		full := len(free) == 0
		if full {
			// It may well be the whole body: growing waits for one more byte to turn up.
			free = q.extra[:]
		}
		if left := limit + 1 - int64(len(b)); int64(len(free)) > left {
			free = free[:left]
		}
		n, err := body.Read(free)
		if int64(len(b)+n) > limit {
			return b, core.ErrBodyTooLarge
		}
		if full && n > 0 {
			b = q.grow(b, min(2*int64(len(b)), limit))
			copy(b[len(b):cap(b)], free[:n])
		}
		b = b[:len(b)+n]
		switch {
		case err == io.EOF:
			return b, nil
		case err != nil:
			return b, err
		}
	}
}

// grow returns a copy of b with that capacity. b itself is kept for another request, unless it
// is too large.
func (q *Request) grow(b []byte, capacity int64) []byte {
	if cap(b) <= maxPooled {
		q.buffer = b
	}
	return append(make([]byte, 0, capacity), b...)
}

// For returns the request for the handler: a copy with ctx, and with b as its body if the
// body has been read. b belongs to the handler from then on.
func (q *Request) For(ctx context.Context, b *Body) *http.Request {
	r := q.r.WithContext(ctx)
	if !q.read {
		return r
	}
	closer := q.original
	q.restore()
	switch n := len(q.body); {
	case !q.pooled:
		b.reset(q.body, closer)
	case n <= len(b.few):
		b.reset(b.few[:copy(b.few[:], q.body)], closer)
	case 2*n < cap(q.buffer):
		b.reset(bytes.Clone(q.body), closer)
	default: // one copy of the body is enough: the handler gets it for good
		b.reset(q.body, closer)
		q.buffer, q.pooled = nil, false
	}
	r.Body = b
	r.ContentLength = int64(len(b.all))
	r.GetBody = b.again
	return r
}

// Rewound returns the request for a handler that is not recorded: the request itself, or,
// if its body has been read, a copy whose body reads from the start.
func (q *Request) Rewound() *http.Request {
	if !q.read {
		return q.r
	}
	return q.For(q.r.Context(), new(Body))
}

// Adopt is [Adopt] for the request that was started with.
func (q *Request) Adopt(r *http.Request) { Adopt(q.r, r) }

// Adopt takes over from the handler's copy of a request what is looked for in the original
// after the handler: net/http removes the files of a MultipartForm, and middleware in front
// of a router reports the Pattern.
func Adopt(original, handled *http.Request) {
	if handled == original {
		return
	}
	if original.MultipartForm == nil {
		original.MultipartForm = handled.MultipartForm
	}
	if original.Pattern == "" {
		original.Pattern = handled.Pattern
	}
}

func (q *Request) restore() {
	if q.original != nil {
		q.r.Body, q.r.ContentLength = q.original, q.length
		q.original = nil
	}
}

// Body is a request body that has been read, for the handler to read again. Like any
// request body it must not be used concurrently. A Body that a handler has seen is never
// used for another request.
type Body struct {
	bodyReader
	few [512]byte // room for a small body: one allocation for the two
}

// again is for [http.Request.GetBody].
func (b *Body) again() (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(b.all)), nil
}

// take returns what is left to read, and leaves nothing. It is shared: nobody changes it.
func (b *Body) take(limit int64) ([]byte, error) {
	switch {
	case b.closed:
		return nil, http.ErrBodyReadAfterClose
	case int64(len(b.rest)) > limit:
		return nil, core.ErrBodyTooLarge
	}
	rest := b.rest
	b.rest = nil
	return rest, nil
}

type bodyReader struct {
	all    []byte
	rest   []byte
	closer io.Closer
	closed bool
}

func (b *bodyReader) reset(all []byte, closer io.Closer) {
	b.all = all[:len(all):len(all)]
	b.rest, b.closer, b.closed = b.all, closer, false
}

// Read implements [io.Reader]. After Close it returns [http.ErrBodyReadAfterClose], as
// the body of a server's request does.
func (b *bodyReader) Read(p []byte) (int, error) {
	if b.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	if len(b.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// Close closes the body that was sent.
func (b *bodyReader) Close() error {
	b.closed = true
	return b.closer.Close()
}
