package adapterkit

import (
	"bufio"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/idem-go/idem/adapterkit/internal/buffer"
	"github.com/idem-go/idem/core/adapter"
)

// Recorder is a response writer that captures what a handler answers. It holds back the
// status and up to a limit of body bytes until the run is settled. When the body grows beyond the
// limit, or the handler flushes, hijacks, switches protocols or declares trailers, it sends what it
// has and passes the rest through; the capture is then incomplete. Which header fields are captured,
// see [Changed].
//
// A Recorder may be written to concurrently: it passes on one call at a time. A handler that
// writes after it has returned gets an error, and reaches no response. A Recorder must therefore not be
// used for a second response, and not be copied. The zero Recorder is what [Framework.Record] returns.
type Recorder struct {
	mu    sync.Mutex
	ctx   context.Context // of the run
	w     http.ResponseWriter
	notes notes // w, if it and the handler's writer only note a status; else nil
	found int   // the status that w had noted before the handler
	limit int
	kept  *kept    // nil when delivered
	lent  lentBody // the request's, for the handler: one allocation for the two

	status      int          // 0: the handler has sent none
	superfluous int          // a second status, which the server will log; 0: there was none
	declared    int64        // Content-Length, or -1
	written     int64        // body bytes, if declared counts
	size        atomic.Int64 // body bytes that were taken, or -1; Size does not wait for a Write
	untyped     bool         // without a Content-Type: the server detects one from the body
	byWrite     bool         // the handler has sent no status, but written or flushed
	state       state
	ended       bool
	ending      adapter.Ending // RunsOn: a timeout has answered; Cut: a part of the stream could not be sent

	response adapter.Response
}

// state is how far a response has come. Each is later than the one before.
type state uint8

const (
	untouched state = iota // the handler has sent no final status
	postponed              // its status has not been sent on
	committed              // its status has, because no body is allowed
	passing                // nothing is held back any more
	streaming              // … and the handler has flushed
)

// notes is a writer that only notes a status, as Gin's does, until it is told to send it.
type notes interface {
	Status() int
	Written() bool // or more than a status
	WriteHeaderNow()
}

// kept holds the memory of a capture. It is pooled; nothing of it reaches the handler.
type kept struct {
	before  []adapter.Field // the header before the handler, the lines of a name together
	fields  []adapter.Field // the header that is captured
	removed []string        // names of fields that the handler has deleted
	body    []byte
	first   int         // bytes of body that the handler has written first
	header  http.Header // the whole header that goes with a postponed status
	values  []string    // memory for header
}

// maxFields is how many header names are kept for another response.
const maxFields = 64

var keptPool = sync.Pool{New: func() any { return new(kept) }}

// errEnded is for a handler that writes after it has returned.
var errEnded = errors.New("idem: the handler has ended")

// start begins to record what is written to w by a handler that gets ctx and above, and holds back at most
// limit bytes.
func (r *Recorder) start(ctx context.Context, w, above http.ResponseWriter, limit int) {
	r.ctx, r.w, r.limit, r.declared = ctx, w, limit, -1
	r.size.Store(-1)
	if _, ok := above.(notes); ok { // else a status of 1xx is not the last one, though w be Gin's
		r.notes, _ = w.(notes)
	}
	if r.notes != nil {
		r.found = r.notes.Status()
	}
	r.kept = keptPool.Get().(*kept)
	for name, values := range w.Header() {
		for _, v := range values {
			r.kept.before = append(r.kept.before, adapter.Field{Name: name, Value: v})
		}
	}
}

// Divert has r send to w from now on, which is what the framework's writers write to: the framework goes past those in between.
// It reports false, and does nothing, while r is sending.
func (r *Recorder) Divert(w http.ResponseWriter) bool {
	if !r.mu.TryLock() {
		return false
	}
	defer r.mu.Unlock()
	r.w, r.notes = w, nil
	return true
}

// Header implements [http.ResponseWriter].
func (r *Recorder) Header() http.Header { return r.w.Header() }

// WriteHeader implements [http.ResponseWriter]. A status of 1xx, except 101, is not the
// final one and passes.
func (r *Recorder) WriteHeader(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writeHeader(status)
}

func (r *Recorder) writeHeader(status int) {
	switch {
	case r.ended:
		return
	case r.state == postponed:
		r.superfluous = status
		return
	case r.state != untouched:
		r.w.WriteHeader(status) // superfluous, as the server will log
		return
	case status != http.StatusSwitchingProtocols && (status < 200 || status > 999):
		r.w.WriteHeader(status) // informational, or invalid, which panics
		if r.notes != nil {
			r.begin() // Gin takes it for the answer
			r.notes.WriteHeaderNow()
		}
		return
	}

	h := r.w.Header()
	trailers := r.snapshot(h)
	r.begin()
	r.status = status
	if status == http.StatusServiceUnavailable && isByTimeoutHandler() {
		r.ending = adapter.RunsOn
	}
	if BodyAllowed(status) {
		if length := first(h, "Content-Length"); length != "" {
			if n, err := strconv.ParseInt(length, 10, 64); err == nil && n >= 0 {
				r.declared = n
			}
		}
		_, typed := h["Content-Type"]
		coding := first(h, "Content-Encoding")
		if r.byWrite && r.notes == nil { // an outer compressor has set its own, and detects the type at the first write
			coding = (&adapter.Response{Header: r.kept.fields}).Get("Content-Encoding")
		}
		r.untyped = !typed && coding == "" && first(h, "Transfer-Encoding") == ""
	}
	if status == http.StatusSwitchingProtocols || trailers {
		r.passes(false)
		if !r.byWrite {
			r.w.WriteHeader(status)
		}
		if r.notes != nil && status == http.StatusSwitchingProtocols {
			r.notes.WriteHeaderNow() // before a Hijack
		}
		return
	}
	// A writer in between may decide on the header at the first write, or ignore it once it is sent. So
	// the header waits for the body.
	r.state = postponed
}

// begin notes that there is an answer, though it may have no body.
func (r *Recorder) begin() { r.size.CompareAndSwap(-1, 0) }

// needStatus takes the status that is noted, or 200, for that of the handler if it has sent no final one. The writer below
// does the same.
func (r *Recorder) needStatus() {
	r.byWrite = r.byWrite || r.state == untouched
	if r.notes != nil && !r.Written() {
		r.writeHeader(r.notes.Status())
	}
	if r.state == untouched {
		r.writeHeader(http.StatusOK)
	}
}

// implicit is the status that is captured if the handler sends none; none of 1xx is final.
func (r *Recorder) implicit() int {
	if r.notes != nil {
		return max(r.notes.Status(), http.StatusOK)
	}
	return http.StatusOK
}

// snapshot captures the header, with names in order, so that equal responses make equal records. It remembers the whole as it is, for
// sendHead, and reports whether there will be trailers.
func (r *Recorder) snapshot(h http.Header) (trailers bool) {
	k := r.kept
	if k.header == nil {
		k.header = make(http.Header, len(h))
	}
	fields := k.fields[:0]
	for name, values := range h {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			trailers = true
			continue
		}
		start := len(k.values)
		k.values = append(k.values, values...)
		k.header[name] = k.values[start:len(k.values):len(k.values)]
		for _, v := range values {
			fields = append(fields, adapter.Field{Name: name, Value: v})
		}
	}
	slices.SortStableFunc(fields, byName)
	k.removed = Removed(fields, k.before)
	k.fields = Changed(fields, k.before)
	return trailers || len(h["Trailer"]) > 0
}

// first returns the first value of a field, whose name is in canonical form. [http.Header.Get] would bring it into that each time.
func first(h http.Header, name string) string {
	if values := h[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

func byName(a, b adapter.Field) int { return strings.Compare(a.Name, b.Name) }

func hasTrailers(h http.Header) bool {
	if len(h["Trailer"]) > 0 {
		return true
	}
	for name := range h {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			return true
		}
	}
	return false
}

// detectType captures the content type that the server will detect, with the same function and from the
// same bytes. It is not sent, for a writer in between may go by it, and would do without us what it does without one.
func (r *Recorder) detectType() {
	if !r.untyped || len(r.kept.body) == 0 {
		return
	}
	r.untyped = false
	body := r.kept.body
	if r.w.Header().Get("Content-Encoding") != "" {
		body = body[:min(r.kept.first, len(body))]
	}
	found := http.DetectContentType(body)
	r.kept.fields = append(r.kept.fields, adapter.Field{Name: "Content-Type", Value: found})
	slices.SortStableFunc(r.kept.fields, byName)
}

// commit sends a postponed status on.
func (r *Recorder) commit() {
	if r.state == postponed {
		r.state = committed
		r.sendHead()
	}
}

// sendHead sends the status, with the header as it was when the handler sent it.
func (r *Recorder) sendHead() {
	h, then := r.w.Header(), r.kept.header
	for name, values := range then {
		if now, ok := h[name]; !ok || !slices.Equal(now, values) {
			h[name] = slices.Clone(values)
		}
	}
	if len(h) > len(then) {
		maps.DeleteFunc(h, func(name string, _ []string) bool {
			_, ok := then[name]
			return !ok && !strings.HasPrefix(name, http.TrailerPrefix)
		})
	}
	if !r.byWrite {
		r.w.WriteHeader(r.status)
	}
}

// hold holds back as much of b as there is room for, and returns how much that was. Unless it
// was all, the recorder passes everything through from now on, and the caller sends the rest under the
// same lock: else the handler could end in between, and the rest reach another response.
func hold[T []byte | string](r *Recorder, b T) (held int, err error) {
	if r.ended {
		return 0, errEnded
	}
	r.needStatus()
	if r.state >= passing || !BodyAllowed(r.status) {
		r.commit()
		return 0, nil
	}
	if r.written += int64(len(b)); r.declared >= 0 && r.written > r.declared {
		return 0, http.ErrContentLength // as the server would say it
	}
	if r.kept.first == 0 {
		r.kept.first = len(b)
	}
	held = min(len(b), r.limit-len(r.kept.body))
	r.kept.body = append(r.kept.body, b[:held]...)
	if held < len(b) {
		err = r.pass(false)
	}
	return held, err
}

// pass sends what is held back, and holds back no more.
func (r *Recorder) pass(flushed bool) error {
	held := r.state == postponed
	r.passes(flushed)
	if held {
		r.sendHead()
	}
	if len(r.kept.body) == 0 {
		return nil
	}
	return r.noted(r.sendBody())
}

// sendBody sends the body that is held back. By what is written first, a writer in between may detect its type.
func (r *Recorder) sendBody() error {
	body := r.kept.body
	if r.kept.first < len(body) && r.w.Header().Get("Content-Type") == "" {
		if _, err := r.w.Write(body[:r.kept.first]); err != nil {
			return err
		}
		body = body[r.kept.first:]
	}
	_, err := r.w.Write(body)
	return err
}

func (r *Recorder) passes(flushed bool) {
	r.begin()
	r.state = max(r.state, passing)
	if flushed {
		r.state = streaming
	}
	adapter.PartSent(r.ctx, flushed)
}

// noted remembers that a part of a stream could not be sent. What the server refuses to send does not
// belong to the response, which may be whole all the same. If the response is merely large, the handler
// does not learn that the client has gone while its run goes on: it might break off, as reverse
// proxies do, and what it has done would be done again.
func (r *Recorder) noted(err error) error {
	switch {
	case err == nil, errors.Is(err, http.ErrContentLength), errors.Is(err, http.ErrBodyNotAllowed), errors.Is(err, http.ErrHijacked):
		return err
	case r.state == streaming:
		r.ending = max(r.ending, adapter.Cut)
		return err
	case r.ctx.Err() != nil:
		return err
	}
	return nil
}

// Write implements [http.ResponseWriter].
func (r *Recorder) Write(b []byte) (int, error) {
	return write(r, b, http.ResponseWriter.Write)
}

// WriteString implements [io.StringWriter].
func (r *Recorder) WriteString(s string) (int, error) {
	return write(r, s, func(w http.ResponseWriter, s string) (int, error) { return io.WriteString(w, s) })
}

// write holds b back, or sends with send what can't be held back.
func write[T []byte | string](r *Recorder, b T, send func(http.ResponseWriter, T) (int, error)) (n int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, err = hold(r, b)
	if err == nil && n < len(b) {
		var sent int
		sent, err = send(r.w, b[n:])
		if err = r.noted(err); err == nil {
			n = len(b)
		} else {
			n += sent
		}
	}
	r.size.Add(int64(n))
	return n, err
}

// ReadFrom implements [io.ReaderFrom]. It does not use the ReadFrom of the writer below (sendfile),
// which could go on after the handler has returned.
func (r *Recorder) ReadFrom(src io.Reader) (int64, error) {
	chunk := chunks.Get().(*[32 << 10]byte)
	defer chunks.Put(chunk)
	return io.CopyBuffer(struct{ io.Writer }{r}, struct{ io.Reader }{src}, chunk[:])
}

var chunks = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// Written reports whether the handler has sent anything, if only a status.
func (r *Recorder) Written() bool { return r.size.Load() >= 0 }

// Size returns the number of body bytes that the handler has written, or -1 if it has sent nothing, not even a status.
// It never waits: also the writer below may call it, within a Write.
func (r *Recorder) Size() int { return int(r.size.Load()) }

// sending reports whether a part of the response has been sent, so that the capture is incomplete.
func (r *Recorder) sending() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state >= passing
}

// Flush implements [http.Flusher].
func (r *Recorder) Flush() { _ = r.FlushError() }

// FlushError is [http.ResponseController.Flush]: it sends what is held back, after a status of 200 if
// there was none. It sends nothing to a client that has left.
func (r *Recorder) FlushError() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return errEnded
	}
	r.needStatus()
	if !adapter.MayStream(r.ctx) {
		return nil
	}
	if r.state < passing {
		if err := r.pass(true); err != nil {
			return err
		}
	} else {
		r.passes(true)
	}
	err := http.NewResponseController(r.w).Flush()
	if errors.Is(err, http.ErrNotSupported) {
		return err // an outer writer can't flush
	}
	return r.noted(err)
}

// Hijack implements [http.Hijacker].
func (r *Recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return nil, nil, errEnded
	}
	if r.state == postponed || r.state == committed {
		if err := r.pass(true); err != nil {
			return nil, nil, err
		}
		if r.notes != nil {
			r.notes.WriteHeaderNow() // what is only noted would be lost
		}
	}
	conn, rw, err := http.NewResponseController(r.w).Hijack()
	if err == nil {
		r.passes(true)
	}
	return conn, rw, err
}

// Unwrap is for [http.ResponseController].
func (r *Recorder) Unwrap() http.ResponseWriter { return r.w }

// capture ends the recording and returns what was recorded, which is good until deliver.
func (r *Recorder) capture() adapter.Capture {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	if r.status == 0 {
		r.snapshot(r.w.Header())
	}
	r.detectType()
	r.response = adapter.Response{Status: r.implicit(), Header: r.kept.fields, Removed: r.kept.removed, Body: r.kept.body}
	if r.status >= 200 {
		r.response.Status = r.status
	}
	short := r.declared >= 0 && int64(len(r.kept.body)) != r.declared
	if !r.Written() && !r.hasNoted() {
		r.ending = adapter.Empty
	}
	return adapter.Capture{Response: &r.response, Ending: r.ending, Incomplete: r.state >= passing || short || hasTrailers(r.w.Header())}
}

// hasNoted reports whether the handler has noted a status, which is an answer even if it is not sent.
func (r *Recorder) hasNoted() bool { return r.notes != nil && r.notes.Status() != r.found }

// deliver ends the recording and sends what is held back, with fields in place of those of the same
// name. Calls after the first do nothing.
func (r *Recorder) deliver(fields []adapter.Field) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	k := r.kept
	if k == nil {
		return nil
	}
	var err error
	if r.state < passing {
		for _, f := range fields {
			if r.state == postponed {
				k.header[f.Name] = []string{f.Value}
			} else {
				r.w.Header()[f.Name] = []string{f.Value}
			}
		}
		r.commit()
		if len(k.body) > 0 || r.byWrite {
			err = r.sendBody()
		}
	}
	if r.superfluous != 0 {
		r.w.WriteHeader(r.superfluous)
	}
	if r.notes != nil && r.Size() == 0 {
		r.notes.WriteHeaderNow() // else a middleware further out may make another response of it
	}
	r.free()
	return err
}

// drop ends the recording and drops what is held back, after a panic, or for an answer in the handler's place (undo). The
// header becomes what it was before, for fields of the dropped answer must not describe the other one; after a panic
// only if the handler had sent a status.
func (r *Recorder) drop(undo bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	if r.kept == nil {
		return
	}
	if undo && r.state < passing || r.state == postponed {
		h := r.w.Header()
		for name, values := range h {
			if len(values) > 0 { // an empty list keeps the server from setting the field
				delete(h, name)
			}
		}
		for _, f := range r.kept.before {
			h[f.Name] = append(h[f.Name], f.Value)
		}
	}
	if r.notes != nil && r.Written() && !r.notes.Written() {
		r.w.WriteHeader(r.found)
	}
	r.free()
}

func (r *Recorder) free() {
	k := r.kept
	r.kept, r.response = nil, adapter.Response{}
	if cap(k.body) > buffer.MaxPooled {
		k.body = nil
	}
	if len(k.header) > maxFields {
		k.header = nil
	}
	clear(k.before)
	clear(k.fields)
	clear(k.header)
	clear(k.values)
	k.before, k.fields, k.body, k.values = k.before[:0], k.fields[:0], k.body[:0], k.values[:0]
	k.removed, k.first = nil, 0
	keptPool.Put(k)
}
