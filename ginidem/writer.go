package ginidem

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/idem-go/idem/httpidem"
)

// writer is Gin's response writer on top of a recorder. As in Gin, a status is only noted
// until it is written; it is noted in the writer that stood here before, so that nothing is
// lost when that one is put back.
type writer struct {
	httpidem.Recorder
	outer gin.ResponseWriter
	below committer // the recorder's way to outer
	size  int
}

var (
	_ gin.ResponseWriter = (*writer)(nil)

	errHijackAfterBody = errors.New("ginidem: response body already written")
)

func (w *writer) start(outer gin.ResponseWriter, limit int) {
	w.outer, w.size = outer, -1
	w.below.ResponseWriter = outer
	w.Recorder.Start(&w.below, limit)
}

func (w *writer) Status() int { return w.outer.Status() }
func (w *writer) Size() int   { return w.size }

func (w *writer) Written() bool { return w.size >= 0 }

func (w *writer) WriteHeader(status int) {
	if !w.Written() {
		w.outer.WriteHeader(status)
	}
}

func (w *writer) WriteHeaderNow() {
	if !w.Written() {
		w.size = 0
		w.Recorder.WriteHeader(w.outer.Status())
	}
}

func (w *writer) Write(b []byte) (int, error) {
	w.WriteHeaderNow()
	n, err := w.Recorder.Write(b)
	w.size += n
	return n, err
}

func (w *writer) WriteString(s string) (int, error) {
	w.WriteHeaderNow()
	n, err := w.Recorder.WriteString(s)
	w.size += n
	return n, err
}

func (w *writer) ReadFrom(src io.Reader) (int64, error) {
	w.WriteHeaderNow()
	n, err := w.Recorder.ReadFrom(src)
	w.size += int(n)
	return n, err
}

func (w *writer) Flush() { _ = w.FlushError() }

func (w *writer) FlushError() error {
	w.WriteHeaderNow()
	return w.Recorder.FlushError()
}

// Hijack is possible until a body is written, as in Gin.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if w.size > 0 {
		return nil, nil, errHijackAfterBody
	}
	w.size = 0
	return w.Recorder.Hijack()
}

func (w *writer) CloseNotify() <-chan bool { return w.outer.CloseNotify() }

func (w *writer) Pusher() http.Pusher { return w.outer.Pusher() }

// Unwrap returns what is below Gin, as Gin's own writer does.
func (w *writer) Unwrap() http.ResponseWriter { return w.below.Unwrap() }

// committer sends a status at once, where Gin would only note it.
type committer struct{ gin.ResponseWriter }

func (w *committer) WriteHeader(status int) {
	if status != w.Status() {
		w.ResponseWriter.WriteHeader(status)
	}
	w.WriteHeaderNow()
}

func (w *committer) Unwrap() http.ResponseWriter {
	if u, ok := w.ResponseWriter.(interface{ Unwrap() http.ResponseWriter }); ok {
		return u.Unwrap()
	}
	return w.ResponseWriter
}
