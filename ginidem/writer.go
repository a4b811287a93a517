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
)

// writer is Gin's response writer on top of a recorder. As in Gin, WriteHeader only notes a status. It
// is noted in the outer writer, where it is still to be found when that one is put back.
type writer struct {
	adapterkit.Recorder
	outer
	ctx    context.Context // of the run
	ground ground
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

// Pusher returns that of the server, which the ground hides.
func (w *writer) Pusher() http.Pusher {
	pusher, _ := w.ground.server().(http.Pusher)
	return pusher
}

// Unwrap returns what is below Gin, as Gin's own writer does.
func (w *writer) Unwrap() http.ResponseWriter {
	u, ok := w.ResponseWriter.(interface{ Unwrap() http.ResponseWriter })
	if !ok {
		return w.ResponseWriter
	}
	below := u.Unwrap()
	if g, ok := below.(*ground); ok {
		return g.server()
	}
	return below
}

// ground is below Gin's own writer while a handler runs. [gin.Engine.HandleContext] gives the context that writer back, past
// all others; what is written to it from then on, the recorder gets.
type ground struct {
	http.ResponseWriter
	c        *gin.Context
	w        *writer
	diverted bool
}

// lay puts g below the own writer of c.
func (g *ground) lay(c *gin.Context, w *writer) {
	g.c, g.w = c, w
	if below := belowGin(c); below != nil {
		g.ResponseWriter, *below = *below, g
	}
}

// lift takes it away, unless the context has been given to another request meanwhile: an outer timeout has not waited for its handler.
func (g *ground) lift() {
	if below := belowGin(g.c); below != nil && *below == http.ResponseWriter(g) {
		*below = g.ResponseWriter
	}
}

// server returns what is below Gin without a guard.
func (g *ground) server() http.ResponseWriter {
	for {
		further, ok := g.ResponseWriter.(*ground) // of a guard further out
		if !ok {
			return g.ResponseWriter
		}
		g = further
	}
}

// target returns the recorder if the context has Gin's own writer, and what is below else: the recorder itself is sending, or
// somebody writes past it.
func (g *ground) target() http.ResponseWriter {
	if g.diverted || g.c.Writer == ginsOwn(g.c).Interface() && g.w.Divert(g.ResponseWriter) {
		g.diverted = true
		return &g.w.Recorder
	}
	return g.ResponseWriter
}

func (g *ground) WriteHeader(status int)            { g.target().WriteHeader(status) }
func (g *ground) Write(b []byte) (int, error)       { return g.target().Write(b) }
func (g *ground) WriteString(s string) (int, error) { return io.WriteString(g.target(), s) }
func (g *ground) FlushError() error                 { return http.NewResponseController(g.target()).Flush() }
func (g *ground) Flush()                            { _ = g.FlushError() }
func (g *ground) CloseNotify() <-chan bool          { return g.w.CloseNotify() }
func (g *ground) Unwrap() http.ResponseWriter       { return g.ResponseWriter }

func (g *ground) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(g.target()).Hijack()
}

// unwritten has a writer that nothing has been written to.
var unwritten = gin.CreateTestContextOnly(nil, new(gin.Engine))

// forget makes Gin's own writer one that nothing has been written to, if the recorder has taken what was.
func (g *ground) forget(noted int) {
	if g.diverted {
		w := ginsOwn(g.c)
		w.Elem().Set(ginsOwn(unwritten).Elem())
		*belowGin(g.c) = g.ResponseWriter
		w.Interface().(gin.ResponseWriter).WriteHeader(noted)
	}
}
