package adapter

import (
	"errors"
	"io"
	"strings"
	"sync"
)

// Stream is a response body that the framework reads after [Exchange.Run] has returned, so that the
// exchange is a [Deferrer]. The run ends with the stream: it is done if that was read to its end, and
// abandoned if it was closed before. It is safe for concurrent use.
type Stream struct {
	body     io.Reader
	captured Capture
	run      Pending

	mu    sync.Mutex
	left  int64 // negative: it is not known
	whole bool
}

// NewStream returns a stream that reads body, which has length bytes; a negative length is not known. captured is what
// Run has seen: status and header, and that the body is Incomplete. Its header is copied, for the stream may outlive the
// request.
func NewStream(body io.Reader, length int64, captured Capture) *Stream {
	r := *captured.Response
	r.Header = make([]Field, len(captured.Response.Header))
	for i, f := range captured.Response.Header {
		r.Header[i] = Field{strings.Clone(f.Name), strings.Clone(f.Value)}
	}
	captured.Response = &r
	return &Stream{body: body, captured: captured, left: length, whole: length == 0}
}

// Defer takes over the pending run. The exchange's Defer calls it, before the first Read.
func (s *Stream) Defer(run Pending) { s.run = run }

// Read implements [io.Reader].
func (s *Stream) Read(b []byte) (int, error) {
	n, err := s.body.Read(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left > 0 {
		s.left = max(s.left-int64(n), 0)
	}
	s.whole = s.whole || s.left == 0 || errors.Is(err, io.EOF) && s.left < 0
	return n, err
}

// Close closes the body, if it is an [io.Closer], and settles the run.
func (s *Stream) Close() (err error) {
	if c, ok := s.body.(io.Closer); ok {
		err = c.Close()
	}
	// A hook may panic: the run is settled all the same, and there is no other recovery.
	defer func() { _ = recover() }()
	s.mu.Lock()
	captured := s.captured
	if !s.whole || s.run.Err() != nil {
		captured.Ending = max(captured.Ending, Cut)
	}
	s.mu.Unlock()
	_ = s.run.Finish(&captured) // once; and there is nothing left to deliver
	return err
}
