package fiberidem_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/fiberidem"
	"github.com/idem-go/idem/internal/fibertest"
)

// Fiber has taken the form apart; put together again it is longer than it was.
func TestMultipartOfExactlyTheLimit(t *testing.T) {
	body := "--b\r\nContent-Disposition:form-data;name=a\r\n\r\n1\r\n--b--\r\n"
	for over, status := range []int{200, 413} {
		app := newApp()
		app.Post("/", mounted(t, core.Policy{BodyLimit: int64(len(body) - over)}), func(c *fiber.Ctx) error {
			if len(c.Request().Body()) <= len(body) {
				t.Error("the form is no longer than it was")
			}
			return c.SendString(c.FormValue("a"))
		})
		require.Equal(t, status, serve(t, app).Post("/", body, "Content-Type", "multipart/form-data; boundary=b").Status)
	}
}

// The unread part of a streamed body must not be taken for the next request.
func TestUnreadStreamEndsTheConnection(t *testing.T) {
	smuggled := "POST /admin HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
	padding := strings.Repeat("x", 16<<10) // beyond what fasthttp reads ahead
	for name, request := range map[string]string{
		"over the limit": fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nContent-Length: %d\r\n\r\n%s%s",
			len(padding)+len(smuggled), padding, smuggled),
		"chunked, over the limit": fmt.Sprintf(
			"POST / HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s",
			len(smuggled)+1, "x"+smuggled),
		"key missing": fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%s", smuggled),
	} {
		t.Run(name, func(t *testing.T) {
			var admin atomic.Int32
			app := newApp(fiber.Config{StreamRequestBody: true})
			app.Post("/admin", func(*fiber.Ctx) error { admin.Add(1); return nil })
			app.Post("/", mounted(t, core.Policy{BodyLimit: 10, Key: core.Header(core.Required)}), func(c *fiber.Ctx) error { return nil })
			conn, err := net.Dial("tcp", serve(t, app).Addr)
			require.NoError(t, err)
			defer conn.Close()
			_, err = io.WriteString(conn, request)
			require.NoError(t, err)
			r := bufio.NewReader(conn)
			require.Equal(t, "close", fibertest.ReadReply(t, r).Header.Get("Connection"))
			rest, _ := io.ReadAll(r) // EOF or a reset
			require.Empty(t, rest)
			require.Zero(t, admin.Load())
		})
	}
}

// With ReduceMemoryUsage, fasthttp before 1.56 lent a connection's buffer to others while a body was still to be read from it.
func TestChunksOfSeveralConnections(t *testing.T) {
	app := newApp(fiber.Config{StreamRequestBody: true, ReduceMemoryUsage: true})
	app.Post("/", mounted(t, core.Policy{}), func(c *fiber.Ctx) error { return c.Send(c.Body()) })
	s := serve(t, app)
	var conns [20]net.Conn
	for i := range conns {
		conn, err := net.Dial("tcp", s.Addr)
		require.NoError(t, err)
		defer conn.Close()
		require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
		_, err = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
		require.NoError(t, err)
		conns[i] = conn
	}
	for i, conn := range conns {
		_, err := fmt.Fprintf(conn, "2\r\n%02d\r\n0\r\n\r\n", i)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("%02d", i), fibertest.ReadReply(t, bufio.NewReader(conn)).Body)
	}
}

// What Failed is shown is the response that is sent, also if fasthttp swaps it, and no stream for it.
func TestTimeoutResponse(t *testing.T) {
	for name, late := range map[string]fiber.Handler{
		"text":   func(c *fiber.Ctx) error { return c.SendString("too late") },
		"stream": func(c *fiber.Ctx) error { return c.SendStream(strings.NewReader("too late")) },
	} {
		var status atomic.Int32
		app := newApp()
		guard := fibertest.NewEngine(t).MustGuard(core.Policy{Failed: func(r *adapter.Response) bool {
			status.Store(int32(r.Status))
			return core.FailedByStatus(r)
		}})
		app.Post("/", fiberidem.New(guard), func(c *fiber.Ctx) error {
			c.Context().TimeoutErrorWithCode("slow", 503)
			return late(c)
		})
		s := serve(t, app)
		require.Equal(t, 503, s.Post("/", "").Status, name)
		require.EqualValues(t, 503, status.Load(), name)
	}
}

// A body that fasthttp was told to skip is not sent, and is nobody's to see on a replay.
func TestASkippedBodyIsNotRecorded(t *testing.T) {
	captured := make(chan string, 1)
	app := newApp()
	guard := fibertest.NewEngine(t).MustGuard(core.Policy{Failed: func(r *adapter.Response) bool {
		captured <- string(r.Body)
		return false
	}})
	app.Post("/", fiberidem.New(guard), func(c *fiber.Ctx) error {
		c.Response().SkipBody = true
		return c.SendString("not for you")
	})
	s := serve(t, app)
	for _, again := range []bool{false, true} {
		conn, err := net.Dial("tcp", s.Addr)
		require.NoError(t, err)
		_, err = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		require.NoError(t, err)
		text, err := io.ReadAll(conn)
		require.NoError(t, err)
		require.NoError(t, conn.Close())
		header, body, _ := strings.Cut(string(text), "\r\n\r\n")
		require.Contains(t, header, "HTTP/1.1 200 OK")
		require.Equal(t, again, strings.Contains(header, core.ReplayedHeader+": true"))
		require.Empty(t, body)
	}
	require.Empty(t, <-captured)
	require.Empty(t, captured, "it has run once")
}

// watched returns the handler of a new guard, and how its runs end.
func watched(t *testing.T) (guard fiber.Handler, ended <-chan core.Kind) {
	t.Helper()
	kinds := make(chan core.Kind, 9)
	return fiberidem.New(fibertest.NewEngine(t, func(e core.Event) {
		if e.Kind != core.StoreIsLocal && e.Kind != core.Started {
			kinds <- e.Kind
		}
	}).MustGuard(core.Policy{})), kinds
}

// A stream of which nothing is to be sent is not waited for, and one that has gone out to its end was not cut short, whatever says where
// that is.
func TestStreamsThatEnd(t *testing.T) {
	for name, answer := range map[string]func(c *fiber.Ctx){
		"skipped": func(c *fiber.Ctx) {
			c.Response().SkipBody = true
			c.Context().SetBodyStream(strings.NewReader("none"), -1)
		},
		"204":      func(c *fiber.Ctx) { c.Status(204).Context().SetBodyStream(strings.NewReader("none"), -1) },
		"304":      func(c *fiber.Ctx) { c.Context().SetBodyStream(strings.NewReader("none"), 4); c.Status(304) },
		"length 0": func(c *fiber.Ctx) { c.Context().SetBodyStream(strings.NewReader(""), 0) },
		"length":   func(c *fiber.Ctx) { c.Context().SetBodyStream(strings.NewReader("all"), 3) },
		"limited": func(c *fiber.Ctx) {
			c.Context().SetBodyStream(io.LimitReader(strings.NewReader("all, and more"), 3), -1)
		},
		"to its end": func(c *fiber.Ctx) { c.Context().SetBodyStream(strings.NewReader("all"), -1) },
		"by a writer": func(c *fiber.Ctx) {
			c.Context().SetBodyStreamWriter(func(w *bufio.Writer) { _, _ = w.WriteString("all") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			guard, ended := watched(t)
			app := newApp()
			app.Post("/", guard, func(c *fiber.Ctx) error { answer(c); return nil })
			s := serve(t, app)
			resp, err := s.Client.Post("http://"+s.Addr+"/", "application/json", strings.NewReader(""))
			require.NoError(t, err)
			b, _ := io.ReadAll(resp.Body) // not even an end is sent of one that is skipped
			require.NotContains(t, string(b), "none")
			if strings.HasPrefix(name, "l") {
				require.EqualValues(t, len(b), resp.ContentLength)
			}
			resp.Body.Close()
			require.Equal(t, core.Completed, <-ended)
			require.Equal(t, "result_unavailable", s.Post("/", "").Header.Get(core.RefusedHeader))
		})
	}
}

// A stream that ends before its length was cut short.
func TestAStreamShorterThanItsLength(t *testing.T) {
	guard, ended := watched(t)
	bodies := []io.Reader{strings.NewReader("half"), io.LimitReader(strings.NewReader("half"), 4)}
	app := newApp()
	app.Post("/", guard, func(c *fiber.Ctx) error {
		c.Context().SetBodyStream(bodies[len(c.Query("limited"))], 8)
		return nil
	})
	s := serve(t, app)
	for _, target := range []string{"/", "/?limited=1"} {
		resp, err := s.Client.Post("http://"+s.Addr+target, "text/plain", nil)
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		require.Error(t, err)
		require.Equal(t, core.RunAbandoned, <-ended)
	}
}

// A header that is to go out before its body does so, with a stream that nobody has read of yet.
func TestAHeaderThatIsFlushed(t *testing.T) {
	body, end := io.Pipe()
	defer end.Close() // the server would not stop
	app := newApp()
	app.Post("/", mounted(t, core.Policy{}), func(c *fiber.Ctx) error {
		c.Response().ImmediateHeaderFlush = true
		c.Context().SetBodyStream(body, -1)
		return nil
	})
	s := serve(t, app)
	resp, err := s.Client.Post("http://"+s.Addr+"/", "text/plain", nil)
	require.NoError(t, err)
	require.NoError(t, end.Close())
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Empty(t, b)
}

// The stream's own end is reached, and a hook that panics there, where nobody else would recover, ends neither the process nor the claim
// in another way.
func TestAHookPanicsAtTheEndOfAStream(t *testing.T) {
	closed := make(chan struct{}, 9)
	guard := fibertest.NewEngine(t, func(e core.Event) {
		if e.Kind == core.Completed {
			panic("the observer panics")
		}
	}).MustGuard(core.Policy{Failed: func(*adapter.Response) bool { panic("the hook panics") }})
	app := newApp()
	app.Post("/", fiberidem.New(guard), func(c *fiber.Ctx) error {
		c.Context().SetBodyStream(closing{strings.NewReader("all"), closed}, -1)
		return nil
	})
	s := serve(t, app)
	require.Equal(t, "all", s.Post("/", "").Body)
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Fatal("the stream was not closed")
	}
	require.Equal(t, 409, s.Post("/", "").Status)
}

type closing struct {
	io.Reader
	closed chan struct{}
}

func (c closing) Close() error {
	c.closed <- struct{}{}
	return nil
}
