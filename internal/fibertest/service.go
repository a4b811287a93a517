// Package fibertest has what the tests of the adapters for all versions of Fiber need of fasthttp.
package fibertest

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
	"go.uber.org/goleak"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/internal/leak"
	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/signtest"
)

// Main runs the tests of a package, and looks for goroutines that they have left.
func Main(m *testing.M) {
	leak.VerifyTestMain(m,
		// One per process, started by the first response, for the Date field; it has no end.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		// Sleeps for up to 10 s before it looks whether its server has stopped.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
	)
}

// NewEngine returns an engine with a store of its own and one user.
func NewEngine(t testing.TB, observe ...func(core.Event)) *core.Engine {
	t.Helper()
	c := core.Config{User: core.SharedByAllCallers()}
	if len(observe) > 0 {
		c.Observe = func(_ context.Context, e core.Event) { observe[0](e) }
	}
	return core.MustNew(c)
}

// Service is an app behind a listener of its own.
type Service struct {
	T      testing.TB
	Addr   string
	Client *http.Client
}

// Serve serves as [Listen] does.
func Serve(t testing.TB, serve func(net.Listener) error, shutdown func() error) *Service {
	t.Helper()
	addr := Listen(t, serve, shutdown)
	transport := &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &Service{t, addr, &http.Client{
		Transport:     transport,
		Timeout:       30 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Reply is an answer that has been read, or why there is none.
type Reply struct {
	Status int
	Header http.Header
	Body   string
	Err    error
}

// Replayed reports whether r is a replay.
func (r Reply) Replayed() bool { return r.Header.Get(core.ReplayedHeader) == "true" }

// Code returns the code of the problem that r is, or "".
func (r Reply) Code() string {
	_, rest, _ := strings.Cut(r.Body, `"code":"`)
	code, _, _ := strings.Cut(rest, `"`)
	return code
}

// Send may be called in any goroutine. fields are names and values in turn.
func (s *Service) Send(method, path, body string, fields ...string) Reply {
	req, err := http.NewRequest(method, "http://"+s.Addr+path, strings.NewReader(body))
	if err != nil {
		return Reply{Err: err}
	}
	for i := 0; i < len(fields); i += 2 {
		req.Header.Add(fields[i], fields[i+1])
	}
	return s.Do(req)
}

// Do sends r.
func (s *Service) Do(r *http.Request) Reply {
	resp, err := s.Client.Do(r)
	if err != nil {
		return Reply{Err: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return Reply{resp.StatusCode, resp.Header, string(b), err}
}

// Signed is a request that is signed by key. fields are names and values in turn; they are signed, too.
func (s *Service) Signed(key *sign.Key, path, body string, fields ...string) *http.Request {
	s.T.Helper()
	return signtest.NewRequest(s.T, key, "http://"+s.Addr+path, body, fields...)
}

// Exchange sends messages over one connection, each when the one before it was answered.
func (s *Service) Exchange(messages ...string) []Reply {
	s.T.Helper()
	conn, err := net.Dial("tcp", s.Addr)
	require.NoError(s.T, err)
	defer conn.Close()
	require.NoError(s.T, conn.SetDeadline(time.Now().Add(30*time.Second)))
	in := bufio.NewReader(conn)
	var replies []Reply
	for _, message := range messages {
		_, err := io.WriteString(conn, message)
		require.NoError(s.T, err)
		replies = append(replies, ReadReply(s.T, in))
	}
	return replies
}

// Post expects an answer.
func (s *Service) Post(path, body string, fields ...string) Reply {
	s.T.Helper()
	r := s.Send(http.MethodPost, path, body, fields...)
	require.NoError(s.T, r.Err)
	return r
}

// PostTwice expects the same answer to both requests, the second time as a replay or not.
func (s *Service) PostTwice(path string, status int, body string, replayed bool) {
	s.T.Helper()
	first, again := s.Post(path, ""), s.Post(path, "")
	require.Equal(s.T, status, first.Status)
	require.Equal(s.T, body, first.Body)
	require.Equal(s.T, status, again.Status)
	require.Equal(s.T, body, again.Body)
	require.Equal(s.T, WithoutDate(first.Header), WithoutDate(again.Header))
	require.Equal(s.T, replayed, again.Replayed())
}

// WithoutDate drops what belongs to one message only.
func WithoutDate(h http.Header) http.Header {
	h = h.Clone()
	h.Del("Date")
	h.Del(core.ReplayedHeader)
	return h
}

// ReadReply reads one answer.
func ReadReply(t testing.TB, from *bufio.Reader) Reply {
	t.Helper()
	resp, err := http.ReadResponse(from, nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	if resp.Close { // net/http has taken it out
		resp.Header.Set("Connection", "close")
	}
	return Reply{resp.StatusCode, resp.Header, string(b), nil}
}

// NewRequestCtx returns a request for a handler, without a server.
func NewRequestCtx(method, uri, body string) *fasthttp.RequestCtx {
	ctx := new(fasthttp.RequestCtx)
	ctx.Init(&ctx.Request, nil, nil)
	ctx.Request.Header.SetMethod(method)
	ctx.Request.SetRequestURI(uri)
	ctx.Request.SetBodyString(body)
	return ctx
}
