package fiberidem_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"strings"
	"sync"
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

func zip(t *testing.T, s string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := io.WriteString(w, s)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.String()
}

func TestCompressedBodyIsUntouched(t *testing.T) {
	var seen []byte
	var runs atomic.Int32
	app := newApp()
	guard := fibertest.NewEngine(t).MustGuard(core.Policy{Key: core.Func(func(r *adapter.Request) (string, error) {
		seen = bytes.Clone(r.Body)
		return "k", nil
	})})
	app.Post("/", fiberidem.New(guard), func(c *fiber.Ctx) error {
		runs.Add(1)
		return c.Send(c.Body())
	})
	s := serve(t, app)
	sent := zip(t, `{"a":1}`)
	fields := []string{"Content-Encoding", "gzip", "Content-Type", "application/json"}
	require.Equal(t, `{"a":1}`, s.Post("/", sent, fields...).Body, "the handler may decompress")
	require.Equal(t, sent, string(seen))
	require.Equal(t, `{"a":1}`, s.Post("/", sent, fields...).Body)
	require.EqualValues(t, 1, runs.Load())
	require.Equal(t, 422, s.Post("/", zip(t, `{"a":2}`), fields...).Status)
}

func form(t *testing.T, boundary string, order ...string) (contentType, body string) {
	t.Helper()
	var b strings.Builder
	w := multipart.NewWriter(&b)
	require.NoError(t, w.SetBoundary(boundary))
	for _, name := range order {
		part, err := w.CreateFormField(name)
		if name == "file" {
			part, err = w.CreateFormFile(name, "cat.png")
		}
		require.NoError(t, err)
		_, err = io.WriteString(part, "value of "+name)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return w.FormDataContentType(), b.String()
}

func TestMultipart(t *testing.T) {
	for _, config := range []fiber.Config{
		{}, {DisablePreParseMultipartForm: true},
		{StreamRequestBody: true}, {StreamRequestBody: true, DisablePreParseMultipartForm: true},
	} {
		t.Run(fmt.Sprintf("stream %v, raw %v", config.StreamRequestBody, config.DisablePreParseMultipartForm), func(t *testing.T) {
			var runs atomic.Int32
			app := newApp(config)
			var keys []string
			guard := fibertest.NewEngine(t).MustGuard(core.Policy{})
			app.Post("/", fiberidem.New(guard), func(c *fiber.Ctx) error {
				runs.Add(1)
				run := fiberidem.Run(c)
				keys = append(keys, run.Key().Raw())
				f, err := c.MultipartForm()
				if err != nil {
					return err
				}
				file, err := f.File["file"][0].Open()
				if err != nil {
					return err
				}
				defer file.Close()
				content, err := io.ReadAll(file)
				return c.SendString(fmt.Sprint(string(content), ", ", c.FormValue("a"), err))
			})
			s := serve(t, app)
			type1, body1 := form(t, "xxxxxxxx", "a", "b", "file")
			type2, body2 := form(t, "yyyyyyyy", "file", "b", "a")
			type3, body3 := form(t, "yyyyyyyy", "file", "a")
			want := "value of file, value of a<nil>"
			require.Equal(t, want, s.Post("/", body1, "Content-Type", type1).Body)
			require.True(t, s.Post("/", body2, "Content-Type", type2).Replayed(), "boundary and order do not count")
			require.Equal(t, want, s.Post("/", body3, "Content-Type", type3).Body)
			require.EqualValues(t, 2, runs.Load())

			// And the key is the one that the bytes as sent give in any other adapter.
			key, _, err := guard.Key(&adapter.Request{Method: "POST", Route: "/", ContentType: type1, Body: []byte(body1),
				Headers: noHeaders{}})
			require.NoError(t, err)
			require.Equal(t, key.Raw(), keys[0])
		})
	}
}

// Fiber has taken the form apart; put together again it is longer than it was.
func TestMultipartOfExactlyTheLimit(t *testing.T) {
	body := "--b\r\nContent-Disposition:form-data;name=a\r\n\r\n1\r\n--b--\r\n"
	for over, status := range []int{200, 413} {
		app := newApp()
		guard := fibertest.NewEngine(t).MustGuard(core.Policy{BodyLimit: int64(len(body) - over)})
		app.Post("/", fiberidem.New(guard), func(c *fiber.Ctx) error {
			if len(c.Request().Body()) <= len(body) {
				t.Error("the form is no longer than it was")
			}
			return c.SendString(c.FormValue("a"))
		})
		require.Equal(t, status, serve(t, app).Post("/", body, "Content-Type", "multipart/form-data; boundary=b").Status)
	}
}

type noHeaders struct{}

func (noHeaders) Header(string, int) (string, int) { return "", 0 }

func TestBodyLimit(t *testing.T) {
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream %v", stream), func(t *testing.T) {
			var runs atomic.Int32
			app := newApp(fiber.Config{StreamRequestBody: stream})
			guard := fibertest.NewEngine(t).MustGuard(core.Policy{BodyLimit: 10})
			app.Post("/", fiberidem.New(guard), func(c *fiber.Ctx) error {
				runs.Add(1)
				return c.Send(c.Body())
			})
			s := serve(t, app)
			require.Equal(t, "0123456789", s.Post("/", "0123456789").Body)
			require.Equal(t, 413, s.Post("/", "0123456789a").Status)
			chunked := "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
			require.Equal(t, "abcdefghij", s.Exchange(chunked + "5\r\nabcde\r\n5\r\nfghij\r\n0\r\n\r\n")[0].Body)
			over := s.Exchange(chunked + "5\r\nabcde\r\n6\r\nfghijk\r\n0\r\n\r\n")[0]
			require.Equal(t, 413, over.Status)
			require.Contains(t, over.Body, "body_too_large")
			// A form whose length is not announced has no way around the limit either.
			form := "--b\r\nContent-Disposition: form-data; name=a\r\n\r\n" + strings.Repeat("x", 100) + "\r\n--b--\r\n"
			typed := strings.Replace(chunked, "\r\n\r\n", "\r\nContent-Type: multipart/form-data; boundary=b\r\n\r\n", 1)
			over = s.Exchange(typed + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(form), form))[0]
			require.Equal(t, 413, over.Status)
			require.EqualValues(t, 2, runs.Load())
		})
	}
}

// The unread part of a streamed body must not be taken for the next request.
func TestUnreadStreamEndsTheConnection(t *testing.T) {
	smuggled := "POST /admin HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
	padding := strings.Repeat("x", 16<<10) // beyond what fasthttp reads ahead
	for name, request := range map[string]string{
		"over the limit": fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nContent-Length: %d\r\n\r\n%s%s",
			len(padding)+len(smuggled), padding, smuggled),
		"chunked, over the limit": fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s",
			len(smuggled)+1, "x"+smuggled),
		"key missing": fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%s", smuggled),
	} {
		t.Run(name, func(t *testing.T) {
			var admin atomic.Int32
			app := newApp(fiber.Config{StreamRequestBody: true})
			app.Post("/admin", func(*fiber.Ctx) error { admin.Add(1); return nil })
			guard := fibertest.NewEngine(t).MustGuard(core.Policy{BodyLimit: 10, Key: core.Header(core.Required)})
			app.Post("/", fiberidem.New(guard), func(c *fiber.Ctx) error { return nil })
			s := serve(t, app)
			conn, err := net.Dial("tcp", s.Addr)
			require.NoError(t, err)
			defer conn.Close()
			_, err = io.WriteString(conn, request)
			require.NoError(t, err)
			r := bufio.NewReader(conn)
			resp, err := http.ReadResponse(r, nil)
			require.NoError(t, err)
			_, err = io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.True(t, resp.Close)
			rest, _ := io.ReadAll(r) // EOF or a reset
			require.Empty(t, rest)
			require.Zero(t, admin.Load())
		})
	}
}

func TestStreamedBodyIsWholeForTheHandler(t *testing.T) {
	body := strings.Repeat("0123456789", 5000)
	readers := map[string]fiber.Handler{
		"Body":    func(c *fiber.Ctx) error { return c.Send(c.Body()) },
		"BodyRaw": func(c *fiber.Ctx) error { return c.Send(c.BodyRaw()) },
		"RequestBodyStream": func(c *fiber.Ctx) error {
			b, err := io.ReadAll(c.Context().RequestBodyStream())
			if err != nil {
				return err
			}
			return c.Send(b)
		},
		"BodyParser": func(c *fiber.Ctx) error {
			var v struct {
				S string `json:"s" form:"s"`
			}
			if err := c.BodyParser(&v); err != nil {
				return err
			}
			return c.SendString(v.S)
		},
	}
	app := newApp(fiber.Config{StreamRequestBody: true})
	for name, handler := range readers {
		app.Post("/"+name, fiberidem.New(fibertest.NewEngine(t).MustGuard(core.Policy{})), handler)
	}
	s := serve(t, app)
	for name := range readers {
		sent, contentType := body, "application/octet-stream"
		if name == "BodyParser" {
			sent, contentType = `{"s":"`+body+`"}`, "application/json"
		}
		for range 2 {
			r := s.Post("/"+name, sent, "Content-Type", contentType)
			require.Equal(t, 200, r.Status, name)
			require.Equal(t, body, r.Body, name)
		}
	}
	require.Equal(t, body, s.Post("/BodyParser", "s="+body, "Content-Type", "application/x-www-form-urlencoded").Body)
}

// With ReduceMemoryUsage, fasthttp before 1.56 lent a connection's buffer to others while a body was still to be read from it.
func TestChunksOfSeveralConnections(t *testing.T) {
	app := newApp(fiber.Config{StreamRequestBody: true, ReduceMemoryUsage: true})
	guard := fibertest.NewEngine(t).MustGuard(core.Policy{})
	app.Post("/", fiberidem.New(guard), func(c *fiber.Ctx) error { return c.Send(c.Body()) })
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

func TestTruncatedStreamIsRefused(t *testing.T) {
	var runs atomic.Int32
	app := newApp(fiber.Config{StreamRequestBody: true})
	guard := fibertest.NewEngine(t).MustGuard(core.Policy{})
	app.Post("/", fiberidem.New(guard), func(c *fiber.Ctx) error { runs.Add(1); return nil })
	s := serve(t, app)
	conn, err := net.Dial("tcp", s.Addr)
	require.NoError(t, err)
	defer conn.Close()
	// More than fasthttp reads before it calls the handler, less than the whole.
	_, err = fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\n%s", strings.Repeat("x", 15000))
	require.NoError(t, err)
	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	r := fibertest.ReadReply(t, bufio.NewReader(conn))
	require.Equal(t, 400, r.Status)
	require.Contains(t, r.Body, "body_unreadable")
	require.Zero(t, runs.Load())
}

func TestUnrecordableResponses(t *testing.T) {
	large := strings.Repeat("x", 101)
	cases := map[string]fiber.Handler{
		"over the limit": func(c *fiber.Ctx) error { return c.SendString(large) },
		"stream":         func(c *fiber.Ctx) error { return c.SendStream(strings.NewReader(large)) },
		"sized stream":   func(c *fiber.Ctx) error { return c.SendStream(strings.NewReader(large), len(large)) },
		"server-sent events": func(c *fiber.Ctx) error {
			c.Set("Content-Type", "text/event-stream")
			c.Context().SetBodyStreamWriter(func(w *bufio.Writer) {
				for i := range len(large) {
					_, _ = w.WriteString(large[i : i+1])
					_ = w.Flush()
				}
			})
			return nil
		},
		"hijack": func(c *fiber.Ctx) error {
			c.Context().HijackSetNoResponse(true)
			c.Context().Hijack(func(conn net.Conn) {
				_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n%s", large)
			})
			return nil
		},
	}
	for name, handler := range cases {
		t.Run(name, func(t *testing.T) {
			var runs atomic.Int32
			app := newApp()
			guard := fibertest.NewEngine(t).MustGuard(core.Policy{ResponseLimit: 100})
			app.Post("/", fiberidem.New(guard), func(c *fiber.Ctx) error {
				runs.Add(1)
				return handler(c)
			})
			s := serve(t, app)
			first := s.Post("/", "")
			require.Equal(t, 200, first.Status)
			require.Equal(t, large, first.Body, "delivered whole")
			again := s.Post("/", "")
			require.Equal(t, 409, again.Status)
			require.Contains(t, again.Body, "result_unavailable")
			require.EqualValues(t, 1, runs.Load())
		})
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

func TestStreamIsNotReadByTheGuard(t *testing.T) {
	release := make(chan struct{})
	app := newApp()
	app.Post("/", fiberidem.New(fibertest.NewEngine(t).MustGuard(core.Policy{})), func(c *fiber.Ctx) error {
		c.Context().SetBodyStreamWriter(func(w *bufio.Writer) {
			_, _ = w.WriteString("first;")
			_ = w.Flush()
			<-release
			_, _ = w.WriteString("last")
		})
		return nil
	})
	s := serve(t, app)
	resp, err := s.Client.Post("http://"+s.Addr+"/", "text/plain", nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	first := make([]byte, 6)
	_, err = io.ReadFull(resp.Body, first)
	require.NoError(t, err)
	require.Equal(t, "first;", string(first))
	require.Equal(t, 409, s.Post("/", "", "Content-Type", "text/plain").Status, "in progress while the stream goes on")
	close(release)
	rest, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "last", string(rest))
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
			ended := make(chan core.Kind, 9)
			app := newApp()
			app.Post("/", fiberidem.New(fibertest.NewEngine(t, func(e core.Event) {
				if e.Kind != core.StoreIsLocal && e.Kind != core.Started {
					ended <- e.Kind
				}
			}).MustGuard(core.Policy{})), func(c *fiber.Ctx) error { answer(c); return nil })
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
	ended := make(chan core.Kind, 9)
	bodies := []io.Reader{strings.NewReader("half"), io.LimitReader(strings.NewReader("half"), 4)}
	app := newApp()
	app.Post("/", fiberidem.New(fibertest.NewEngine(t, func(e core.Event) {
		if e.Kind != core.StoreIsLocal && e.Kind != core.Started {
			ended <- e.Kind
		}
	}).MustGuard(core.Policy{})), func(c *fiber.Ctx) error {
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
	release := make(chan struct{})
	let := sync.OnceFunc(func() { close(release) })
	defer let() // the server would not stop
	app := newApp()
	app.Post("/", fiberidem.New(fibertest.NewEngine(t).MustGuard(core.Policy{})), func(c *fiber.Ctx) error {
		c.Response().ImmediateHeaderFlush = true
		c.Context().SetBodyStream(held{release}, -1)
		return nil
	})
	s := serve(t, app)
	resp, err := s.Client.Post("http://"+s.Addr+"/", "text/plain", nil)
	require.NoError(t, err)
	let()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Empty(t, b)
}

// held ends when it is let go.
type held struct{ release chan struct{} }

func (h held) Read([]byte) (int, error) {
	<-h.release
	return 0, io.EOF
}

// A stream ends when its request's context is another request's: nothing of the stream's own answer may get there.
func TestAStreamsEndIsNobodyElses(t *testing.T) {
	release, entered := make(chan struct{}), make(chan struct{})
	ended := make(chan struct{}, 9)
	guard := fibertest.NewEngine(t, func(e core.Event) {
		if e.Kind == core.Completed {
			ended <- struct{}{}
		}
	}).MustGuard(core.Policy{Key: core.Header(core.Required, core.EchoKey())})
	app := newApp()
	app.Post("/", fiberidem.New(guard), func(c *fiber.Ctx) error {
		c.Context().SetBodyStream(held{release}, -1)
		entered <- struct{}{}
		return nil
	})
	leave := make(chan struct{})
	app.Post("/plain", func(c *fiber.Ctx) error {
		entered <- struct{}{}
		<-leave
		return nil
	})
	s := serve(t, app)
	var all sync.WaitGroup
	r, err := http.NewRequest("POST", "http://"+s.Addr+"/", nil)
	require.NoError(t, err)
	r.Header.Set("Idempotency-Key", "k-1")
	all.Go(func() { s.Do(r) })
	<-entered
	const others = 8
	keys := make(chan string, others)
	for range others {
		all.Go(func() { keys <- s.Post("/plain", "").Header.Get("Idempotency-Key") })
		<-entered
	}
	close(release)
	<-ended
	close(leave)
	all.Wait()
	for range others {
		require.Empty(t, <-keys)
	}
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
