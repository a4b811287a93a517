package httpidem

import (
	"bufio"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/idem-go/idem/core"
)

// Recorder is a response writer that captures what a handler answers. It holds back up to
// a limit of body bytes until Deliver; the status goes through at once, unless the content
// type is still to be found in the body. When the body
// grows beyond the limit, or the handler flushes, hijacks, switches protocols or declares
// trailers, it hands on what it has and becomes a mere passage, and the capture is
// incomplete.
//
// A Recorder is as safe for concurrent use as the writer under it, with one addition: a
// handler that writes after it has ended gets an error, and reaches nobody's response. A
// Recorder must therefore not be used for a second response. It must not be copied.
type Recorder struct {
	mu    sync.Mutex
	w     http.ResponseWriter
	limit int
	kept  *kept // nil when delivered

	status    int   // 0: the handler has sent none
	declared  int64 // Content-Length, or -1
	written   int64 // body bytes, if declared counts
	untyped   bool  // without a Content-Type: the server will look at the body
	postponed http.Header
	passing   bool
	ended     bool

	response core.Response
}

// kept holds the memory of a capture. It is pooled; nothing of it reaches the handler.
type kept struct {
	fields []core.Field
	body   []byte
}

var keptPool = sync.Pool{New: func() any { return new(kept) }}

// errEnded is what a handler gets that writes after its end.
var errEnded = errors.New("httpidem: the handler has ended")

// Start begins to record what is written to w, and holds back at most limit bytes.
func (r *Recorder) Start(w http.ResponseWriter, limit int) {
	r.w, r.limit, r.declared = w, limit, -1
	r.kept = keptPool.Get().(*kept)
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
	case r.status != 0 || r.passing:
		r.commit()
		r.w.WriteHeader(status) // superfluous, as the server will log
		return
	case status != http.StatusSwitchingProtocols && (status < 200 || status > 999):
		r.w.WriteHeader(status) // informational, or invalid, which panics
		return
	}

	h := r.w.Header()
	r.snapshot(h)
	r.status = status
	if bodyAllowed(status) {
		if length := h.Get("Content-Length"); length != "" {
			if n, err := strconv.ParseInt(length, 10, 64); err == nil && n >= 0 {
				r.declared = n
			}
		}
		_, typed := h["Content-Type"]
		r.untyped = !typed && h.Get("Content-Encoding") == "" && h.Get("Transfer-Encoding") == ""
	}
	switch {
	case status == http.StatusSwitchingProtocols || hasTrailers(h):
		r.passing = true
	case r.untyped:
		// Whoever stands between here and the server may look at the first write only, or
		// not at all once the header is out. So that the client gets the type that is
		// stored, the header waits for the body.
		r.postponed = h.Clone()
		return
	}
	r.w.WriteHeader(status)
}

// snapshot takes the header fields down, with names in order so that equal responses make
// equal records.
func (r *Recorder) snapshot(h http.Header) {
	fields := r.kept.fields[:0]
	for name, values := range h {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			continue
		}
		for _, v := range values {
			fields = append(fields, core.Field{Name: name, Value: v})
		}
	}
	slices.SortStableFunc(fields, byName)
	r.kept.fields = fields
}

func byName(a, b core.Field) int { return strings.Compare(a.Name, b.Name) }

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

// settleType fixes the content type that the server would find in the body, with the same
// function and on the same bytes.
func (r *Recorder) settleType() {
	if !r.untyped || len(r.kept.body) == 0 {
		return
	}
	r.untyped = false
	found := http.DetectContentType(r.kept.body)
	r.kept.fields = append(r.kept.fields, core.Field{Name: "Content-Type", Value: found})
	slices.SortStableFunc(r.kept.fields, byName)
	if r.postponed != nil {
		r.postponed["Content-Type"] = []string{found}
	}
}

// commit sends a postponed status, with the header as it was when the handler sent it.
func (r *Recorder) commit() {
	if r.postponed == nil {
		return
	}
	r.settleType()
	h := r.w.Header()
	maps.DeleteFunc(h, func(name string, _ []string) bool { return !strings.HasPrefix(name, http.TrailerPrefix) })
	maps.Copy(h, r.postponed)
	r.postponed = nil
	r.w.WriteHeader(r.status)
}

// hold holds back as much of b as there is room for, and says how much that was. Unless it
// was all, the recorder has become a mere passage, and the caller hands on the rest.
func hold[T []byte | string](r *Recorder, b T) (held int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return 0, errEnded
	}
	if r.status == 0 && !r.passing {
		r.writeHeader(http.StatusOK)
	}
	if r.passing || !bodyAllowed(r.status) {
		return 0, nil
	}
	if r.written += int64(len(b)); r.declared >= 0 && r.written > r.declared {
		return 0, http.ErrContentLength // as the server would say it
	}
	held = min(len(b), r.limit-len(r.kept.body))
	r.kept.body = append(r.kept.body, b[:held]...)
	if held < len(b) {
		err = r.pass()
	}
	return held, err
}

// pass hands on what is held back, and holds back no more.
func (r *Recorder) pass() error {
	r.passing = true
	r.commit()
	if len(r.kept.body) == 0 {
		return nil
	}
	_, err := r.w.Write(r.kept.body)
	return err
}

// Write implements [http.ResponseWriter].
func (r *Recorder) Write(b []byte) (int, error) {
	held, err := hold(r, b)
	if err != nil || held == len(b) {
		return held, err
	}
	n, err := r.w.Write(b[held:])
	return held + n, err
}

// WriteString implements [io.StringWriter].
func (r *Recorder) WriteString(s string) (int, error) {
	held, err := hold(r, s)
	if err != nil || held == len(s) {
		return held, err
	}
	n, err := io.WriteString(r.w, s[held:])
	return held + n, err
}

// ReadFrom implements [io.ReaderFrom]. Once the recorder is a mere passage, the writer under
// it may use what the system has for copying files.
func (r *Recorder) ReadFrom(src io.Reader) (n int64, err error) {
	chunk := chunks.Get().(*[32 << 10]byte)
	defer chunks.Put(chunk)
	for !r.Passing() {
		got, readErr := src.Read(chunk[:])
		if got > 0 {
			wrote, err := r.Write(chunk[:got])
			n += int64(wrote)
			if err != nil {
				return n, err
			}
		}
		if readErr == io.EOF {
			return n, nil
		}
		if readErr != nil {
			return n, readErr
		}
	}
	more, err := io.Copy(r.w, src)
	return n + more, err
}

var chunks = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// Written reports whether the handler has sent anything, if only a status.
func (r *Recorder) Written() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status != 0 || r.passing
}

// Passing reports whether the recorder has become a mere passage: something has gone out
// that will not be captured.
func (r *Recorder) Passing() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.passing
}

// Flush implements [http.Flusher].
func (r *Recorder) Flush() { _ = r.FlushError() }

// FlushError is [http.ResponseController.Flush]: it hands on what is held back, after a
// status of 200 if there was none.
func (r *Recorder) FlushError() error {
	if err := r.beginFlush(); err != nil {
		return err
	}
	return http.NewResponseController(r.w).Flush()
}

func (r *Recorder) beginFlush() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.ended:
		return errEnded
	case r.passing:
		return nil
	case r.status == 0:
		r.writeHeader(http.StatusOK)
	}
	return r.pass()
}

// Hijack implements [http.Hijacker].
func (r *Recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return nil, nil, errEnded
	}
	if r.status != 0 && !r.passing {
		if err := r.pass(); err != nil {
			return nil, nil, err
		}
	}
	conn, rw, err := http.NewResponseController(r.w).Hijack()
	if err == nil {
		r.passing = true
	}
	return conn, rw, err
}

// Unwrap is for [http.ResponseController].
func (r *Recorder) Unwrap() http.ResponseWriter { return r.w }

// Capture ends the recording and returns what was recorded, to be read until Deliver.
// implicit is the status that will be sent if the handler has sent none.
func (r *Recorder) Capture(implicit int) core.Capture {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	if r.status == 0 {
		r.snapshot(r.w.Header())
	}
	r.settleType()
	r.response = core.Response{Status: implicit, Header: r.kept.fields, Body: r.kept.body}
	if r.status >= 200 {
		r.response.Status = r.status
	}
	short := r.declared >= 0 && int64(len(r.kept.body)) != r.declared
	return core.Capture{Response: &r.response, Incomplete: r.passing || short || hasTrailers(r.w.Header())}
}

// Deliver ends the recording, and hands on what is held back. Calls after the first do
// nothing.
func (r *Recorder) Deliver() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	k := r.kept
	if k == nil {
		return nil
	}
	var err error
	if !r.passing {
		r.commit()
		if len(k.body) > 0 {
			_, err = r.w.Write(k.body)
		}
	}
	r.kept, r.response = nil, core.Response{}
	if cap(k.body) > maxPooled {
		k.body = nil
	}
	clear(k.fields)
	k.fields, k.body = k.fields[:0], k.body[:0]
	keptPool.Put(k)
	return err
}
