package adapterkit

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"

	"github.com/idem-go/idem/adapterkit/internal/buffer"
	"github.com/idem-go/idem/core/adapter"
)

// request is the request side of an [Exchange]. It is made to be reused, from start to end.
type request struct {
	r        *http.Request
	original io.ReadCloser // r.Body, while hooks take its place; nil if there was none
	length   int64         // r.ContentLength then
	replaced bool
	read     bool    // the body has been read
	body     []byte  // what has been read
	pooled   bool    // body is in the memory's Buffer; else it is shared, and must not be changed
	memory   *memory // from a pool; nil until it is needed
}

// memory is what a request needs while its body is looked at.
type memory struct {
	buffer.Buffer
	hooks bodyReader // what hooks read between ReadBody and the handler
}

var memories = sync.Pool{New: func() any { return new(memory) }}

// end gives the request its own body back, and forgets it.
func (q *request) end() {
	q.restore()
	if m := q.memory; m != nil {
		m.hooks = bodyReader{}
		memories.Put(m)
	}
	*q = request{}
}

// borrow returns the memory that goes back to the pool at the end.
func (q *request) borrow() *memory {
	if q.memory == nil {
		q.memory = memories.Get().(*memory)
	}
	return q.memory
}

// Header implements [adapter.Headers].
func (q *request) Header(name string, i int) (value string, lines int) {
	values := q.r.Header[name]
	if name == "Host" { // net/http has taken it out of the header
		if q.r.Host == "" || i > 0 {
			return "", min(len(q.r.Host), 1)
		}
		return strings.ToLower(q.r.Host), 1
	}
	if i >= len(values) {
		return "", len(values)
	}
	return values[i], len(values)
}

// Describe fills in r, all but the route, PathParams and Native.
func (q *request) Describe(r *adapter.Request) {
	r.Method = q.r.Method
	r.RawQuery = q.r.URL.RawQuery
	r.ContentType = first(q.r.Header, "Content-Type")
	if !q.isDecoded() {
		r.ContentEncoding = first(q.r.Header, "Content-Encoding")
	}
	r.Host = strings.ToLower(q.r.Host)
	r.RemoteAddr = q.r.RemoteAddr
}

// ReadBody implements the method of [adapter.Exchange]. The request's Body then reads from
// the start, for hooks.
func (q *request) ReadBody(limit int64) ([]byte, error) {
	err := q.readLeft(limit)
	if q.r.PostForm != nil || q.r.MultipartForm != nil {
		err = q.takeForm(limit, err)
	}
	if err != nil {
		return nil, err
	}
	return q.lend(), nil
}

// TakeBody is ReadBody for a body that an outer middleware has read and kept, when ReadBody has
// returned [adapter.ErrBodyConsumed], or nothing. The body must not be changed.
func (q *request) TakeBody(body []byte, limit int64) ([]byte, error) {
	q.restore()
	read := int64(0)
	if c := countOf(q.r); c != nil {
		read = c.read
	}
	switch n := int64(len(body)); {
	case n < max(q.r.ContentLength, read) && isSent(q.r.Body):
		return nil, adapter.ErrBodyConsumed
	case n > limit:
		return nil, adapter.ErrBodyTooLarge
	}
	q.body, q.pooled = body, false
	return q.lend(), nil
}

// lend gives the request a body that reads what has been read.
func (q *request) lend() []byte {
	r := q.r
	if len(q.body) == 0 && (r.Body == nil || r.Body == http.NoBody) {
		return nil
	}
	q.original, q.length, q.replaced, q.read = r.Body, r.ContentLength, true, true
	hooks := &q.borrow().hooks
	hooks.reset(q.body, q.closer())
	r.Body, r.ContentLength = hooks, int64(len(q.body))
	return hooks.all
}

// closer closes the body that was sent.
func (q *request) closer() io.Closer {
	if q.original == nil {
		return http.NoBody
	}
	return q.original
}

// readLeft reads what is left of the body. The error is, or wraps, ErrBodyConsumed if that is less
// than what was sent.
func (q *request) readLeft(limit int64) error {
	r := q.r
	if r.ContentLength > limit {
		return adapter.ErrBodyTooLarge
	}
	q.body, q.pooled = nil, false
	if left, ok := r.Body.(*lentBody); ok { // by Verify, or by a guard further out
		if int64(len(left.all)) > limit {
			return adapter.ErrBodyTooLarge
		}
		q.body = left.take()
		return nil
	}
	count := countOf(r)
	before := int64(0)
	if count != nil {
		before = count.read
	}
	if r.Body != nil && r.Body != http.NoBody {
		var err error
		q.body, err = q.borrow().ReadAll(r.Body, r.ContentLength, limit)
		q.pooled = cap(q.body) <= buffer.MaxPooled
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return adapter.ErrBodyTooLarge
		}
		if isClosed(err) {
			return adapter.ErrBodyConsumed
		}
		if err != nil {
			return err
		}
	}
	return checkWhole(r, int64(len(q.body)), before, count)
}

// checkWhole checks that the n bytes that were left of the body are all that was sent. before is how many bytes count had counted before
// they were read; count may be nil.
func checkWhole(r *http.Request, n, before int64, count *count) error {
	switch {
	case r.ContentLength == 0 || n > 0 && n == r.ContentLength:
		return nil
	case n == 0 && (r.ContentLength > 0 || count != nil && count.read > 0):
		return adapter.ErrBodyConsumed
	case n == 0 && count == nil && r.Body != nil && r.Body != http.NoBody && r.Header.Get("Content-Type") != "":
		return errNothingCame
	case count != nil && before > 0 && n == count.read-before:
		// The rest came as it was sent, so that what was read before is missing.
		return adapter.ErrBodyConsumed
	case count != nil, first(r.Header, "Content-Encoding") != "" && !isSent(r.Body):
		return nil // decompressed: Content-Length is that of the compressed body
	case n < r.ContentLength && isSent(r.Body):
		return adapter.ErrBodyConsumed
	}
	return nil
}

// errNothingCame is for a body of unknown length that is empty, or was read outside the guard. Only one without a Content-Type is taken for
// empty: clients of HTTP/2 send such requests whose body is a stream with nothing in it.
var errNothingCame = fmt.Errorf("%w, or it was empty; a Finish further out can tell which", adapter.ErrBodyConsumed)

// forHandler returns the request for the handler: a copy with ctx, and with b as its body if the
// body has been read. b belongs to the handler from then on.
func (q *request) forHandler(ctx context.Context, b *lentBody) *http.Request {
	r := q.r.WithContext(ctx)
	if !q.read {
		return r
	}
	closer := q.closer()
	b.decoded = q.isDecoded()
	q.restore()
	switch n := len(q.body); {
	case !q.pooled:
		b.reset(q.body, closer)
	case n <= len(b.few):
		b.reset(b.few[:copy(b.few[:], q.body)], closer)
	case 2*n < cap(q.body):
		b.reset(bytes.Clone(q.body), closer)
	default: // the handler keeps the buffer: one copy of the body is enough
		b.reset(q.body, closer)
		q.memory.GiveAway()
		q.pooled = false
	}
	r.Body = b
	r.ContentLength = int64(len(b.all))
	r.GetBody = b.again
	return r
}

// rewound returns the request for a handler that is not recorded: the request itself if it has ctx and nobody has read its body, else
// a copy with ctx, whose body reads from the start.
func (q *request) rewound(ctx context.Context) *http.Request {
	if !q.read && sameContext(ctx, q.r.Context()) {
		return q.r
	}
	return q.forHandler(ctx, new(lentBody))
}

// sameContext reports whether a and b are one context. It compares pointers, and structs without fields (context.Background): one of
// somebody else's may hold what can't be compared.
func sameContext(a, b context.Context) bool {
	t := reflect.TypeOf(a)
	return (t.Kind() == reflect.Pointer || t.Size() == 0 && t.Comparable()) && a == b
}

// Adopt gives the original what handlers have left in their request: the values of its context, see [ContextAfter], its forms,
// whose files net/http removes, and the pattern. lent, which had ctx, took the original's place. handled is the request in the
// end: lent itself, of which all is taken but the body, or what handlers have put in its place.
func Adopt(original, lent, handled *http.Request, ctx context.Context) {
	if lent == original && handled == original {
		return
	}
	form, outer := original.MultipartForm, original.Context()
	if handled == lent && lent.Pattern != original.Pattern { // an inner mux has its values in there, too
		body, length, again := original.Body, original.ContentLength, original.GetBody
		*original = *lent.WithContext(ContextAfter(outer, ctx, lent.Context()))
		original.Body, original.ContentLength, original.GetBody = body, length, again
	} else if !sameContext(handled.Context(), ctx) {
		*original = *original.WithContext(ContextAfter(outer, ctx, handled.Context()))
	}
	if handled == lent {
		put(&original.Method, lent.Method)
		put(&original.URL, lent.URL)
		putMap(&original.Header, lent.Header)
		put(&original.Host, lent.Host)
		put(&original.RemoteAddr, lent.RemoteAddr)
		put(&original.RequestURI, lent.RequestURI)
		putMap(&original.Trailer, lent.Trailer)
	}
	putMap(&original.Form, handled.Form)
	putMap(&original.PostForm, handled.PostForm)
	put(&original.Pattern, cmp.Or(handled.Pattern, original.Pattern))
	put(&original.MultipartForm, cmp.Or(form, handled.MultipartForm))
}

// put sets what has changed, and writes nothing else: an outer timeout that has answered may be reading the request.
func put[T comparable](to *T, v T) {
	if *to != v {
		*to = v
	}
}

// putMap is put for maps.
func putMap[M ~map[string][]string](to *M, v M) {
	if reflect.ValueOf(*to).Pointer() != reflect.ValueOf(v).Pointer() {
		*to = v
	}
}

// ContextAfter returns the context of a request after its handlers: outer, with the values that they have left in left, but without
// those of ctx, which they were given: a run has ended, and nobody has signed any more.
func ContextAfter(outer, ctx, left context.Context) context.Context {
	if sameContext(left, ctx) {
		return outer
	}
	return &contextAfter{outer, ctx, left}
}

type contextAfter struct {
	context.Context
	given, left context.Context
}

// Value implements [context.Context].
func (c *contextAfter) Value(key any) any {
	v, given := c.left.Value(key), c.given.Value(key)
	if v == nil || given != nil && reflect.ValueOf(v).Comparable() && v == given {
		return c.Context.Value(key)
	}
	return v
}

func (q *request) restore() {
	if q.replaced {
		q.r.Body, q.r.ContentLength = q.original, q.length
		q.original, q.replaced = nil, false
	}
}

// lentBody is a request body that has been read, for the handler to read again. One that a handler has
// seen is never used for another request.
type lentBody struct {
	bodyReader
	few     [512]byte // room for a small body: one allocation for the two
	decoded bool      // it is not in the coding that the header names
}

// again is for [http.Request.GetBody].
func (b *lentBody) again() (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(b.all)), nil
}

// take returns all of the body, even if some of it has been read, and leaves nothing to read. The
// bytes are shared, and must not be changed.
func (b *lentBody) take() []byte {
	b.rest = nil
	return b.all
}

// untouched reports whether none of the body has been read.
func (b *lentBody) untouched() bool { return len(b.rest) == len(b.all) }

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
