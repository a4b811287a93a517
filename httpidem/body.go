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
	buffer   []byte        // of the body; never handed to a handler while it is pooled
	hooks    bodyReader    // what hooks read between ReadBody and the handler
	extra    [1]byte
}

const (
	// maxPooled is the largest buffer that is kept for another request.
	maxPooled = 64 << 10
	// maxTrusted is how much memory a Content-Length gets before the bytes are there: no more than
	// what is pooled anyway. From there on the buffer grows with what has come.
	maxTrusted = maxPooled
	// firstBuffer is the size of the buffer for a body of unknown length.
	firstBuffer = 512
)

// Start begins with another request.
func (q *Request) Start(r *http.Request) { q.r = r }

// End lets go of the request, which gets back the body it had.
func (q *Request) End() {
	q.restore()
	if cap(q.buffer) > maxPooled {
		q.buffer = nil
	}
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
	want := min(r.ContentLength, maxTrusted)
	if want <= 0 {
		want = firstBuffer
	}
	if int64(cap(q.buffer)) < want {
		q.buffer = make([]byte, 0, want)
	}
	if err := q.fill(limit); err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return nil, core.ErrBodyTooLarge
		}
		return nil, err
	}
	q.read = true
	q.original, q.length = r.Body, r.ContentLength
	q.hooks.reset(q.buffer, q.original)
	r.Body, r.ContentLength = &q.hooks, int64(len(q.buffer))
	return q.hooks.all, nil
}

// fill reads the body into the buffer, and no more than one byte over the limit.
func (q *Request) fill(limit int64) error {
	b := q.buffer[:0]
	defer func() { q.buffer = b }()
	for {
		// Where a full buffer may well be the whole body, growing it must wait for one more
		// byte to turn up.
		if length := q.r.ContentLength; len(b) == cap(b) && len(b) >= maxTrusted && int64(len(b)) < length {
			b = append(make([]byte, 0, min(2*int64(len(b)), length)), b...)
		}
		free := b[len(b):cap(b)]
		full := len(free) == 0
		if full {
			free = q.extra[:]
		}
		if left := limit + 1 - int64(len(b)); int64(len(free)) > left {
			free = free[:left]
		}
		n, err := q.r.Body.Read(free)
		if full {
			b = append(b, free[:n]...)
		} else {
			b = b[:len(b)+n]
		}
		switch {
		case int64(len(b)) > limit:
			return core.ErrBodyTooLarge
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
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
	switch n := len(q.buffer); {
	case n <= len(b.few):
		b.reset(b.few[:copy(b.few[:], q.buffer)], closer)
	case cap(q.buffer) <= maxPooled:
		b.reset(bytes.Clone(q.buffer), closer)
	default: // too large to be pooled: the handler may have it
		b.reset(q.buffer, closer)
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
