package fiberidem

import (
	"context"
	"errors"
	"io"
	"reflect"
	"strings"
	"sync"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core"
)

// stream wraps a response's stream, which fasthttp writes after the chain of handlers has returned.
// Only then the run ends: it is done if the stream was written to its end, and abandoned if it was
// closed before.
//
// A stream writer that panics ends the process: fasthttp runs it in a goroutine without recovery.
type stream struct {
	io.Reader
	ctx      context.Context // of the run
	claim    *core.Pending
	captured core.Capture // in its own memory: the stream may outlive the request

	mu    sync.Mutex
	left  int64 // of a stream whose length is known; negative: it is not
	whole bool
}

// watch wraps the stream of the response, if it has one that will be written.
func watch(ctx context.Context, c *fiber.Ctx, captured *core.Capture) *stream {
	resp := c.Response()
	if !resp.IsBodyStream() || resp.SkipBody || !adapterkit.BodyAllowed(resp.StatusCode()) ||
		c.Context().Hijacked() || c.Context().LastTimeoutErrorResponse() != nil {
		return nil
	}
	s := &stream{ctx: ctx, Reader: resp.BodyStream(), captured: *captured, left: int64(resp.Header.ContentLength())}
	r := *captured.Response
	r.Header = make([]core.Field, len(captured.Response.Header))
	for i, f := range captured.Response.Header {
		r.Header[i] = core.Field{Name: strings.Clone(f.Name), Value: strings.Clone(f.Value)}
	}
	s.captured.Response = &r
	if limited, ok := s.Reader.(*io.LimitedReader); ok && s.left < 0 {
		s.left = limited.N // as fasthttp does
	}
	s.whole = s.left == 0
	replaceStream(resp, s, int(s.left))
	return s
}

// replaceStream sets resp's stream without closing the one that is there, for which fasthttp has no
// call: the whole response is moved away, and all but the stream is put back.
func replaceStream(resp *fasthttp.Response, s *stream, size int) {
	var moved fasthttp.Response
	place := reflect.ValueOf(resp).Elem()
	reflect.ValueOf(&moved).Elem().Set(place)
	place.SetZero()
	reflect.ValueOf(&resp.Header).Elem().Set(reflect.ValueOf(&moved.Header).Elem())
	resp.ImmediateHeaderFlush = moved.ImmediateHeaderFlush // SkipBody is not set, see watch
	resp.SetBodyStream(s, size)
}

// Read implements [io.Reader].
func (s *stream) Read(b []byte) (int, error) {
	n, err := s.Reader.Read(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left > 0 {
		s.left = max(s.left-int64(n), 0)
	}
	s.whole = s.whole || s.left == 0 || errors.Is(err, io.EOF) && s.left < 0
	return n, err
}

// Close implements [io.Closer]. fasthttp calls it in any case.
func (s *stream) Close() (err error) {
	if c, ok := s.Reader.(io.Closer); ok {
		err = c.Close()
	}
	s.finish()
	return err
}

func (s *stream) finish() {
	// A hook may panic: the run is finished all the same, and there is no other recovery.
	defer func() { _ = recover() }()
	s.mu.Lock()
	s.captured.Cut = !s.whole || s.ctx.Err() != nil
	s.mu.Unlock()
	_ = s.claim.Finish(&s.captured) // once; and there is nothing left to deliver
}
