package idemclient_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/idemclient"
	"github.com/idem-go/idem/idemtest"
)

// serve serves h in memory, and returns what leads to it.
func serve(t *testing.T, h http.Handler, http2 bool) http.RoundTripper {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	pipes := &pipes{make(chan net.Conn), make(chan struct{})}
	server := &http.Server{Handler: h, Protocols: protocols}
	served := make(chan error)
	go func() { served <- server.Serve(pipes) }()
	client := &http.Transport{DialContext: pipes.dial, Protocols: protocols}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	})
	return client
}

// pipes is a listener and the network that leads to it.
type pipes struct {
	connected chan net.Conn
	closed    chan struct{}
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.connected <- server:
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.connected:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Net: "pipe"} }

// A connection that was kept alive breaks. What net/http would send again by itself, behind the back of limits and budgets,
// is a try of the transport; and if there is no body, it is at least counted.
func TestNetHTTPResendsNothingUnseen(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		for _, body := range []string{"", "bytes", strings.Repeat("x", 100<<10)} {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var arrived []string
				var lengths []int64
				base := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					read, err := io.ReadAll(r.Body)
					mu.Lock()
					arrived, lengths = append(arrived, r.Header.Get("Idempotency-Key")+string(read)), append(lengths, r.ContentLength)
					n := len(arrived)
					mu.Unlock()
					if err != nil || n == 2 || n == 3 { // the second on the connection of the first
						panic(http.ErrAbortHandler)
					}
				}), http2)
				var resent []int
				transport := &idemclient.Transport{Hosts: hosts, Base: base,
					Observe: func(try idemclient.Try) { resent = append(resent, try.ResendCount) }}
				for n := range 2 {
					r := request(t.Context(), t, "POST", "http://api.test/a", body)
					r.Header.Set("Idempotency-Key", strconv.Itoa(n))
					r.Header.Set("Content-Type", "application/json")
					resp, err := transport.RoundTrip(r)
					require.NoError(t, err)
					resp.Body.Close()
				}
				require.Equal(t, []string{"0" + body, "1" + body, "1" + body, "1" + body}, arrived)
				for _, length := range lengths {
					require.EqualValues(t, len(body), length)
				}
				require.Equal(t, 0, resent[0])
				require.Equal(t, 2, resent[len(resent)-1])
				if body != "" {
					require.Equal(t, []int{0, 0, 1, 2}, resent)
				}
			})
		}
	}
}

// Two hundred callers at a service that loses requests and answers, is slow, and is restarted: each operation happens once,
// and each caller gets the answer to his own.
func TestEachOperationHappensOnce(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			e := idemtest.New(t, core.Config{User: core.SharedByAllCallers()})
			var mu sync.Mutex
			ran := make(map[string]int)
			guarded := httpidem.New(e.MustGuard(core.ClientKey()))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				order, err := io.ReadAll(r.Body)
				assert.NoError(t, err)
				time.Sleep(rand.N(5 * time.Second))
				mu.Lock()
				defer mu.Unlock()
				ran[string(order)]++
				w.WriteHeader(201)
				_, err = io.WriteString(w, "made "+string(order))
				assert.NoError(t, err)
			}))
			began := time.Now()
			base := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				up := time.Since(began) > 2*time.Second
				switch n := rand.IntN(10); {
				case !up || n == 0:
					panic(http.ErrAbortHandler) // before it has read anything
				case n == 1:
					_, _ = io.Copy(io.Discard, r.Body)
					panic(http.ErrAbortHandler) // the request is lost
				case n < 4:
					guarded.ServeHTTP(lost{w}, r)
					panic(http.ErrAbortHandler) // the answer is lost
				case n == 4:
					w.WriteHeader(503) // and does not come to an end
					for range 100 {
						if _, err := io.WriteString(w, "busy"); err != nil || http.NewResponseController(w).Flush() != nil {
							return
						}
						time.Sleep(10 * time.Millisecond)
					}
				default:
					guarded.ServeHTTP(w, r)
				}
			}), http2)
			transport := &idemclient.Transport{Hosts: hosts, Base: base, MaxTries: 100, Budget: 200}
			client := &http.Client{Transport: transport}
			const callers = 200
			var failed atomic.Int64
			var wait sync.WaitGroup
			for n := range callers {
				order := "order " + strconv.Itoa(n)
				wait.Go(func() {
					resp, err := client.Post("http://api.test/orders", "text/plain", strings.NewReader(order))
					if err != nil {
						failed.Add(1)
						t.Log(err)
						return
					}
					body, err := io.ReadAll(resp.Body)
					resp.Body.Close()
					assert.NoError(t, err)
					assert.Equal(t, "made "+order, string(body))
				})
			}
			wait.Wait()
			require.Zero(t, failed.Load())
			require.Len(t, ran, callers)
			for order, n := range ran {
				require.Equal(t, 1, n, order)
			}
		})
	}
}

// lost is an answer that does not arrive.
type lost struct{ http.ResponseWriter }

func (lost) WriteHeader(int)             {}
func (lost) Write(p []byte) (int, error) { return len(p), nil }

func TestBodies(t *testing.T) {
	mib := strings.Repeat("x", 1<<20)
	for _, c := range []struct {
		name    string
		body    string
		length  int64                         // ContentLength; 0: unknown
		getBody func() (io.ReadCloser, error) // nil: there is none
		change  func(*http.Request, *watched)
		sent    int
		fault   string
	}{
		{name: "kept", body: "bytes", sent: 2},
		{name: "kept, of known length", body: "bytes", length: 5, sent: 2},
		{name: "kept, empty", body: "", sent: 2},
		{name: "1 MiB", body: mib, sent: 2},
		{name: "longer", body: mib + "x", sent: 1, fault: "the body can't be read again; sent once: connection reset"},
		{name: "longer, of known length", body: mib + "x", length: 1<<20 + 1, sent: 1, fault: "the body can't be read again"},
		{name: "longer, from GetBody", body: mib + "x", length: 1<<20 + 1,
			getBody: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(mib + "x")), nil }, sent: 2},
		{name: "GetBody fails", body: "bytes", getBody: func() (io.ReadCloser, error) { return nil, errors.New("the file is gone") },
			sent: 1, fault: "the body can't be read again; sent once: connection reset: reading the body again: the file is gone"},
		{name: "too short", body: "bytes", length: 6, fault: "5 bytes, but ContentLength is 6"},
		{name: "too long", body: "bytes", length: 4, fault: "5 bytes, but ContentLength is 4"},
		{name: "unreadable", change: func(_ *http.Request, w *watched) { w.Reader = io.MultiReader(strings.NewReader("by"), broken{}) },
			fault: "reading the body: a bad disk"},
		{name: "that can't be closed", change: func(_ *http.Request, w *watched) {
			w.Reader = struct {
				io.Reader
				io.Closer
			}{strings.NewReader("bytes"), broken{}}
		}, fault: "the body: a bad disk"},
		{name: "an old key", body: "bytes", change: func(r *http.Request, _ *watched) {
			*r = *r.WithContext(idemclient.WithKey(r.Context(), "order-1", time.Now().Add(-48*time.Hour)))
		}, fault: "outcome unknown"},
	} {
		t.Run(c.name, func(t *testing.T) {
			base := &script{answers: []any{errReset, answer(201)}}
			body := &watched{Reader: strings.NewReader(c.body)}
			r := request(t.Context(), t, "POST", "https://api.test/a", "")
			r.Body, r.GetBody, r.ContentLength = body, c.getBody, c.length
			if c.change != nil {
				c.change(r, body)
			}
			before := *r
			_, err := (&idemclient.Transport{Hosts: hosts, Base: base, MaxWait: time.Millisecond}).RoundTrip(r)
			if c.fault == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.fault)
			}
			require.Len(t, base.sent, c.sent)
			for _, s := range base.sent {
				require.Equal(t, c.body, s.body)
				require.False(t, s.hasGetBody)
				require.Equal(t, c.body == "", s.noBody)
				require.True(t, c.fault != "" || s.length == int64(len(c.body)), s.length)
			}
			require.Equal(t, 1, body.closed)
			require.Same(t, body, r.Body)
			require.Equal(t, before.ContentLength, r.ContentLength)
			require.Equal(t, before.Header, r.Header)
		})
	}

	// A body that nobody writes does not outlive its context.
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		read, write := io.Pipe()
		r := request(ctx, t, "POST", "https://api.test/a", "")
		r.Body, r.GetBody = read, nil
		_, err := (&idemclient.Transport{Hosts: hosts}).RoundTrip(r)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = write.Write([]byte("bytes"))
		require.ErrorIs(t, err, io.ErrClosedPipe)
	})

	// Trailers stay.
	synctest.Test(t, func(t *testing.T) {
		var got []string
		base := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if got = append(got, r.Trailer.Get("X-Sum")); len(got) == 1 {
				w.WriteHeader(503)
			}
		}), false)
		r := request(t.Context(), t, "POST", "http://api.test/a", "")
		r.Body, r.GetBody, r.ContentLength = io.NopCloser(strings.NewReader("bytes")), nil, -1
		r.Trailer = http.Header{"X-Sum": {"5"}}
		resp, err := (&idemclient.Transport{Hosts: hosts, Base: base}).RoundTrip(r)
		require.NoError(t, err)
		resp.Body.Close()
		require.Equal(t, []string{"5", "5"}, got)
	})
}

// What net/http can't send is not sent again, and costs no budget.
func TestNeverSent(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*http.Request)
		fault  string
		begun  bool // net/http finds it out when it sends
	}{
		"a method": {func(r *http.Request) { r.Method = "PO ST" }, `"PO ST" is no method`, false},
		"a field's name": {func(r *http.Request) { r.Header["X Y"] = []string{"1"} },
			`"X Y" is no name of a header field`, false},
		"an empty name": {func(r *http.Request) { r.Header[""] = []string{"1"} }, `"" is no name of a header field`, false},
		"a field's value": {func(r *http.Request) { r.Header.Set("X-A", "1\nX-B: 2") },
			"the value of X-A has a control character", false},
		"a trailer's value": {func(r *http.Request) { r.Trailer = http.Header{"X-A": {"\x7f"}} },
			"the value of X-A has a control character", false},
		"the URL": {func(r *http.Request) { r.URL.Opaque = "//api.test/a\x01" },
			"the URL has a control character", false},
		"the query": {func(r *http.Request) { r.URL.RawQuery = "a=\n" }, "the URL has a control character", false},
		"no body of some length": {func(r *http.Request) { r.Body, r.GetBody = nil, nil },
			"there is no body, but ContentLength is 5", false},
		"a body that is shorter": {func(r *http.Request) { r.ContentLength = 6 },
			"the body has 5 bytes, but ContentLength is 6", true},
		"a body that is longer": {func(r *http.Request) { r.ContentLength = 4 },
			"the body has more bytes than ContentLength, which is 4", true},
		"a long body that is shorter": {func(r *http.Request) { long(r, 100<<10-1); r.ContentLength++ },
			"the body has 102399 bytes, but ContentLength is 102400", true},
	} {
		for _, http2 := range []bool{false, true} {
			t.Run(name+", HTTP/2: "+strconv.FormatBool(http2), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					base := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						_, err := io.Copy(io.Discard, r.Body)
						assert.True(t, err != nil || strings.Contains(name, "longer"))
						panic(http.ErrAbortHandler)
					}), http2)
					var tries int
					transport := &idemclient.Transport{Hosts: hosts, Base: base,
						Observe: func(try idemclient.Try) { tries++; assert.Zero(t, try.Pause) }}
					r := request(t.Context(), t, "POST", "http://api.test/a", "bytes")
					c.change(r)
					began := time.Now()
					_, err := transport.RoundTrip(r)
					require.ErrorContains(t, err, c.fault)
					require.Zero(t, time.Since(began))
					if e, ok := errors.AsType[*idemclient.Error](err); c.begun {
						require.Equal(t, 1, e.Tries)
						require.Equal(t, 1, tries)
					} else {
						require.False(t, ok)
						require.Zero(t, tries)
					}
				})
			})
		}
	}
}

// long gives r a body of n bytes.
func long(r *http.Request, n int) {
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(strings.Repeat("x", n))), nil }
	r.Body, _ = r.GetBody()
	r.ContentLength = int64(n)
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("a bad disk") }
func (broken) Close() error             { return errors.New("a bad disk") }

// An answer that breaks off is none; a stream is the caller's.
func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		name, contentType string
		length            int // Content-Length; 0: none
		sent              int // of three tries, the last of which is whole
	}{
		{name: "of known length", length: 1000, sent: 3},
		{name: "of 64 KiB", length: 64 << 10, sent: 3},
		{name: "JSON", contentType: "Application/JSON ; charset=utf-8", sent: 3},
		{name: "problem", contentType: "application/problem+json", sent: 3},
		{name: "a stream", contentType: "text/event-stream", sent: 1},
		{name: "a long one", length: 1 << 20, sent: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				whole := strings.Repeat("x", cmp.Or(c.length, 100<<10))
				n := 0
				base := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					n++
					w.Header().Set("Content-Type", c.contentType)
					if c.length > 0 {
						w.Header().Set("Content-Length", strconv.Itoa(c.length))
					}
					sent := whole
					if n < 3 {
						sent = whole[:100]
					}
					_, err := io.WriteString(w, sent)
					assert.NoError(t, err)
					if n < 3 {
						assert.NoError(t, http.NewResponseController(w).Flush())
						panic(http.ErrAbortHandler)
					}
				}), false)
				resp, err := (&idemclient.Transport{Hosts: hosts, Base: base}).RoundTrip(
					request(t.Context(), t, "POST", "http://api.test/a", "bytes"))
				require.NoError(t, err)
				require.Equal(t, c.sent, n)
				read, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if c.sent == 3 {
					require.NoError(t, err)
					require.Equal(t, whole, string(read))
				} else {
					require.ErrorIs(t, err, io.ErrUnexpectedEOF)
					require.NotEmpty(t, resp.Request.Header.Get("Idempotency-Key"), "with which the caller may go on")
				}
			})
		})
	}
}
