package ginidem

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core"
)

// writer is Gin's response writer on top of a recorder. As in Gin, WriteHeader only notes a status. It
// is noted in the outer writer, where it is still to be found when that one is put back.
type writer struct {
	adapterkit.Recorder
	ctx   context.Context // of the run
	outer gin.ResponseWriter
	below committer // the recorder's way to outer
	begun bool      // a status has been sent
}

var (
	_ gin.ResponseWriter = (*writer)(nil)

	errHijackAfterBody = errors.New("ginidem: response body already written")
)

func (w *writer) start(ctx context.Context, outer gin.ResponseWriter, limit int) {
	w.ctx, w.outer = ctx, outer
	w.below.ResponseWriter = outer
	w.Recorder.Start(ctx, &w.below, limit)
}

func (w *writer) Status() int   { return w.outer.Status() }
func (w *writer) Written() bool { return w.begun }

func (w *writer) Size() int {
	if !w.begun {
		return -1
	}
	return w.Recorder.Size()
}

func (w *writer) WriteHeader(status int) {
	if !w.begun {
		w.outer.WriteHeader(status)
	}
}

func (w *writer) WriteHeaderNow() {
	if !w.begun {
		w.begun = true
		w.Recorder.WriteHeader(w.outer.Status())
	}
}

func (w *writer) Write(b []byte) (int, error) {
	w.WriteHeaderNow()
	return w.Recorder.Write(b)
}

func (w *writer) WriteString(s string) (int, error) {
	w.WriteHeaderNow()
	return w.Recorder.WriteString(s)
}

func (w *writer) ReadFrom(src io.Reader) (int64, error) {
	w.WriteHeaderNow()
	return w.Recorder.ReadFrom(src)
}

func (w *writer) Flush() { _ = w.FlushError() }

func (w *writer) FlushError() error {
	w.WriteHeaderNow()
	return w.Recorder.FlushError()
}

// Hijack is possible until a body is written, as in Gin.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if w.Size() > 0 {
		return nil, nil, errHijackAfterBody
	}
	w.begun = true
	return w.Recorder.Hijack()
}

// CloseNotify tells when the run's context ends, not when the client leaves: a run that has begun is
// finished.
func (w *writer) CloseNotify() <-chan bool {
	gone := make(chan bool, 1)
	context.AfterFunc(w.ctx, func() { gone <- true })
	return gone
}

// forgetStatus puts the status from before the handler back, if that of the handler was dropped.
func (w *writer) forgetStatus(before int) {
	if w.Written() && !w.outer.Written() {
		w.outer.WriteHeader(before)
	}
}

func (w *writer) Pusher() http.Pusher { return w.outer.Pusher() }

// Unwrap returns what is below Gin, as Gin's own writer does.
func (w *writer) Unwrap() http.ResponseWriter { return w.below.Unwrap() }

// Deliver sends what the recorder holds back. A status without a body is sent, too, so that no
// middleware further out makes another response of it.
func (w *writer) Deliver(fields []core.Field) error {
	err := w.Recorder.Deliver(fields)
	w.below.commit()
	return err
}

// committer notes a status, as Gin does, until the first write: then a writer in between, such as a
// compressing one, decides on the header.
type committer struct {
	gin.ResponseWriter
	noted bool // and not sent
}

func (w *committer) WriteHeader(status int) {
	w.ResponseWriter.WriteHeader(status)
	w.noted = true
	if status < 200 {
		w.commit()
	}
}

func (w *committer) Write(b []byte) (int, error) {
	w.noted = false
	return w.ResponseWriter.Write(b)
}

func (w *committer) WriteString(s string) (int, error) {
	w.noted = false
	return w.ResponseWriter.WriteString(s)
}

func (w *committer) Flush() {
	w.noted = false
	w.ResponseWriter.Flush()
}

// commit sends a status that is still only noted.
func (w *committer) commit() {
	if w.noted {
		w.noted = false
		w.WriteHeaderNow()
	}
}

func (w *committer) Unwrap() http.ResponseWriter {
	if u, ok := w.ResponseWriter.(interface{ Unwrap() http.ResponseWriter }); ok {
		return u.Unwrap()
	}
	return w.ResponseWriter
}
