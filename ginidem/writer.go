package ginidem

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/idem-go/idem/adapterkit"
)

// writer is Gin's response writer on top of a recorder. As in Gin, WriteHeader only notes a status. It
// is noted in the outer writer, where it is still to be found when that one is put back.
type writer struct {
	adapterkit.Recorder
	outer
	ctx context.Context // of the run
}

// outer has the methods that the recorder has not, which come first.
type outer struct{ gin.ResponseWriter }

var (
	_ gin.ResponseWriter = (*writer)(nil)

	errHijackAfterBody = errors.New("ginidem: response body already written")
)

func (w *writer) WriteHeader(status int) {
	if !w.Written() {
		w.outer.WriteHeader(status)
	}
}

func (w *writer) WriteHeaderNow() {
	if !w.Written() {
		w.Recorder.WriteHeader(w.Status())
	}
}

// Hijack is possible until a body is written, as in Gin.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if w.Size() > 0 {
		return nil, nil, errHijackAfterBody
	}
	return w.Recorder.Hijack()
}

// CloseNotify tells when the run's context ends, not when the client leaves: a run that has begun is
// finished.
func (w *writer) CloseNotify() <-chan bool {
	gone := make(chan bool, 1)
	context.AfterFunc(w.ctx, func() { gone <- true })
	return gone
}

// Unwrap returns what is below Gin, as Gin's own writer does.
func (w *writer) Unwrap() http.ResponseWriter {
	if u, ok := w.ResponseWriter.(interface{ Unwrap() http.ResponseWriter }); ok {
		return u.Unwrap()
	}
	return w.ResponseWriter
}
