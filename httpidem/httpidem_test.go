package httpidem_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/idemtest"
	"github.com/idem-go/idem/internal/allocs"
	"github.com/idem-go/idem/internal/leak"
	"github.com/idem-go/idem/internal/race"
)

func TestMain(m *testing.M) {
	// A server that has refused a body waits before it closes the connection.
	leak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

func guard(p core.Policy) *core.Guard {
	return core.MustNew(core.Config{User: core.UserFromHeader("X-User")}).MustGuard(p)
}

// server serves h on a real listener.
func server(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Start()
	t.Cleanup(func() {
		s.Client().CloseIdleConnections()
		s.Close()
	})
	return s
}

type reply struct {
	status int
	header http.Header
	body   string

	trailer http.Header
}

func (r reply) code() string {
	_, rest, _ := strings.Cut(r.body, `"code":"`)
	code, _, _ := strings.Cut(rest, `"`)
	return code
}

// post sends body to s as alice.
func post(t *testing.T, s *httptest.Server, path, body string) reply {
	t.Helper()
	req, err := http.NewRequest("POST", s.URL+path, strings.NewReader(body))
	require.NoError(t, err)
	return send(t, s, req)
}

func send(t *testing.T, s *httptest.Server, req *http.Request) reply {
	t.Helper()
	req.Header.Set("X-User", "alice")
	resp, err := s.Client().Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body) // of a response shorter than its length, what there is
	resp.Header.Del("Date")
	return reply{resp.StatusCode, resp.Header, string(body), resp.Trailer}
}

// What a client gets, over TCP and from a test's recorder, is what it gets without a guard;
// and a replay says the same.
func TestResponsesAreThoseOfTheBareHandler(t *testing.T) {
	write := func(parts ...string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			for _, p := range parts {
				io.WriteString(w, p)
			}
		}
	}
	long := strings.Repeat("<p>x", 3000)
	for name, respond := range map[string]func(w http.ResponseWriter){
		"nothing at all":         func(http.ResponseWriter) {},
		"header without status":  func(w http.ResponseWriter) { w.Header().Set("X-A", "1") },
		"implicit 200, sniffed":  write("hello"),
		"sniffed over two parts": write("<ht", "ml><body>hi</body>"),
		"sniffed, long":          write(long),
		"sniffed after a status": func(w http.ResponseWriter) { w.WriteHeader(201); w.Write([]byte("\x89PNG\x0D\x0A\x1A\x0A")) },
		"an empty write":         func(w http.ResponseWriter) { w.Write(nil) },
		"status alone":           func(w http.ResponseWriter) { w.WriteHeader(202) },
		"zero bytes":             func(w http.ResponseWriter) { w.WriteHeader(202); w.Write(nil) },
		"no type on purpose": func(w http.ResponseWriter) {
			w.Header()["Content-Type"] = nil
			io.WriteString(w, "hello")
		},
		"encoded, so not sniffed": func(w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "x-rot13")
			io.WriteString(w, "uryyb")
		},
		"changed too late": func(w http.ResponseWriter) {
			w.Header().Set("X-A", "1")
			w.WriteHeader(201)
			w.Header().Set("X-A", "2")
			w.Header().Set("X-B", "2")
			w.Header().Set("Content-Type", "text/late")
			io.WriteString(w, "{}")
		},
		"superfluous status": func(w http.ResponseWriter) {
			io.WriteString(w, "fine")
			w.WriteHeader(500)
			io.WriteString(w, " still")
		},
		"304 with type": func(w http.ResponseWriter) { w.Header().Set("ETag", `"1"`); w.WriteHeader(304) },
		"own length":    func(w http.ResponseWriter) { w.Header().Set("Content-Length", "2"); io.WriteString(w, "ok") },
		"more than own length": func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "2")
			io.WriteString(w, "ok")
			io.WriteString(w, "no")
		},
		"copied":     func(w http.ResponseWriter) { io.Copy(w, strings.NewReader(long)) },
		"2048 bytes": write(strings.Repeat("x", 1024), strings.Repeat("y", 1024)),
		"2049 bytes": write(strings.Repeat("x", 1024), strings.Repeat("y", 1025)),
	} {
		t.Run(name, func(t *testing.T) {
			var ran atomic.Int64
			bare := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { ran.Add(1); respond(w) })
			overTCP := func(h http.Handler) func() reply {
				s := server(t, h)
				return func() reply { return post(t, s, "/orders", "x") }
			}
			inMemory := func(h http.Handler) func() reply {
				return func() reply {
					w := httptest.NewRecorder()
					r := httptest.NewRequest("POST", "/orders", strings.NewReader("x"))
					r.Header.Set("X-User", "alice")
					h.ServeHTTP(w, r)
					res := w.Result()
					body, _ := io.ReadAll(res.Body)
					return reply{status: res.StatusCode, header: res.Header, body: string(body)}
				}
			}

			want := overTCP(bare)()
			guarded := overTCP(httpidem.New(guard(core.Policy{Failed: core.FailedByStatus}))(bare))
			require.Equal(t, want, guarded(), "first")
			again := guarded()
			require.Equal(t, "true", again.header.Get(core.ReplayedHeader))
			requireReplay(t, want, again)
			require.EqualValues(t, 2, ran.Load())

			for _, kind := range []string{"sniffs", "goes by the type"} {
				in := func(h http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(newEncoder(kind, w), r) })
				}
				want := overTCP(in(bare))()
				guarded := overTCP(in(httpidem.New(guard(core.Policy{Failed: core.FailedByStatus}))(bare)))
				require.Equal(t, want, guarded(), kind)
				if kind == "sniffs" && strings.HasPrefix(name, "sniffed") {
					requireReplay(t, want, guarded())
				}
			}

			guarded = inMemory(httpidem.New(guard(core.Policy{Failed: core.FailedByStatus}))(bare))
			first := guarded()
			if name != "more than own length" { // which a test's recorder does not mind
				require.Equal(t, inMemory(bare)(), first)
			}
			first.header["Content-Type"] = want.header["Content-Type"] // a test's recorder sniffs less
			requireReplay(t, first, guarded())
		})
	}
}

// encoder is what a compressor in front does to the header: that of gorilla (handlers.CompressHandler) says at once that it
// encodes, and sniffs in Write; that of chi encodes by the type that is there at the status.
type encoder struct {
	http.ResponseWriter
	sniffs, status bool
}

func newEncoder(kind string, w http.ResponseWriter) *encoder {
	if kind == "sniffs" {
		w.Header().Set("Content-Encoding", "x-none")
	}
	return &encoder{w, kind == "sniffs", false}
}

func (w *encoder) WriteHeader(status int) {
	if w.status = true; !w.sniffs && w.Header().Get("Content-Type") != "" {
		w.Header().Set("Content-Encoding", "x-none")
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *encoder) Write(b []byte) (int, error) {
	switch {
	case w.sniffs && w.Header().Get("Content-Type") == "":
		w.Header().Set("Content-Type", http.DetectContentType(b))
	case !w.sniffs && !w.status:
		w.WriteHeader(200)
	}
	return w.ResponseWriter.Write(b)
}

// requireReplay compares all but the framing, which belongs to one message.
func requireReplay(t *testing.T, first, again reply) {
	t.Helper()
	a, b := first.header.Clone(), again.header.Clone()
	b.Del(core.ReplayedHeader)
	for _, h := range []http.Header{a, b} {
		h.Del("Content-Length")
		delete(h, "Content-Length")
	}
	require.Equal(t, first.status, again.status)
	require.Equal(t, first.body, again.body)
	for _, h := range []http.Header{a, b} { // a nil line is none
		for name, lines := range h {
			if len(lines) == 0 {
				delete(h, name)
			}
		}
	}
	require.Equal(t, a, b)
}

// What can't be captured is delivered whole, and not run again.
func TestWhatIsNotCapturedIsDelivered(t *testing.T) {
	for name, c := range map[string]struct {
		respond func(w http.ResponseWriter)
		status  int
		body    string
	}{
		"flushed first": {func(w http.ResponseWriter) {
			w.(http.Flusher).Flush()
			w.WriteHeader(500) // too late
			io.WriteString(w, "data: 1\n\n")
		}, 200, "data: 1\n\n"},
		"declared trailer": {func(w http.ResponseWriter) {
			w.Header().Set("Trailer", "X-Sum")
			io.WriteString(w, "a")
			w.Header().Set("X-Sum", "1")
		}, 200, "a"},
		"undeclared trailer": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/plain")
			io.WriteString(w, "a")
			w.Header().Set(http.TrailerPrefix+"X-Sum", "1")
		}, 200, "a"},
		"shorter than its length": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "10")
			io.WriteString(w, "short")
		}, 200, "short"},
	} {
		t.Run(name, func(t *testing.T) {
			ran := 0
			s := server(t,
				httpidem.New(guard(core.Policy{ResponseLimit: 100}))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					ran++
					c.respond(w)
				})))
			first := post(t, s, "/", "x")
			require.Equal(t, strings.Contains(name, "trailer"), first.trailer.Get("X-Sum") == "1")
			require.Equal(t, c.status, first.status)
			require.Equal(t, c.body, first.body)
			again := post(t, s, "/", "x")
			require.Equal(t, 409, again.status)
			require.Equal(t, "result_unavailable", again.code())
			require.Equal(t, 1, ran)
		})
	}
}

func TestWritesOfAGoroutineThatOutlivesItsHandler(t *testing.T) {
	var late sync.WaitGroup
	s := server(t, httpidem.New(guard(core.Policy{}))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/plain")
		w.Write(body)
		late.Go(func() {
			for range 100 {
				if _, err := w.Write([]byte("!")); err != nil {
					return
				}
			}
		})
	})))
	for i := range 20 {
		text := strings.Repeat(string(rune('a'+i)), 50)
		require.Equal(t, text, strings.TrimRight(post(t, s, "/", text).body, "!"))
	}
	late.Wait()
}

// countingBody knows how much of it was read, and whether it was closed.
type countingBody struct {
	io.Reader
	read, closed int
}

func (b *countingBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.read += n
	return n, err
}

func (b *countingBody) Close() error { b.closed++; return nil }

func TestReadBodyReadsNoMoreThanItNeeds(t *testing.T) {
	read := func(body io.ReadCloser, length, limit int64) ([]byte, *http.Request, error) {
		r := httptest.NewRequest("POST", "/", nil)
		r.Body, r.ContentLength = body, length
		var q adapterkit.Exchange
		q.Start(nil, r)
		got, err := q.ReadBody(limit)
		return got, r, err
	}

	b := &countingBody{Reader: strings.NewReader(strings.Repeat("x", 100))}
	_, _, err := read(b, 100, 99)
	require.ErrorIs(t, err, adapter.ErrBodyTooLarge)
	require.Zero(t, b.read)

	b = &countingBody{Reader: strings.NewReader(strings.Repeat("x", 100))}
	_, _, err = read(b, -1, 10)
	require.ErrorIs(t, err, adapter.ErrBodyTooLarge)
	require.LessOrEqual(t, b.read, 11)

	b = &countingBody{Reader: strings.NewReader("four")}
	got, _, err := read(b, 1<<40, 1<<50) // a length that is a lie allocates little
	require.NoError(t, err)
	require.Equal(t, "four", string(got))

	got, r, err := read(http.NoBody, 0, 10)
	require.NoError(t, err)
	require.Nil(t, got)
	require.Equal(t, http.NoBody, r.Body)

	got, _, err = read(nil, 0, 10)
	require.NoError(t, err)
	require.Nil(t, got)

	boom := errors.New("boom")
	_, _, err = read(io.NopCloser(io.MultiReader(strings.NewReader("x"), errorReader{boom})), -1, 10)
	require.ErrorIs(t, err, boom)

	w := httptest.NewRecorder()
	_, _, err = read(http.MaxBytesReader(w, io.NopCloser(strings.NewReader("0123456789")), 5), -1, 100)
	require.ErrorIs(t, err, adapter.ErrBodyTooLarge)
}

type errorReader struct{ err error }

func (r errorReader) Read([]byte) (int, error) { return 0, r.err }

func TestTheRequestGetsItsBodyBack(t *testing.T) {
	body := &countingBody{Reader: strings.NewReader("x")}
	r := httptest.NewRequest("POST", "/", nil)
	r.Header.Set("X-User", "alice")
	r.Body, r.ContentLength = body, -1
	p := core.Policy{Key: core.Func(func(r *adapter.Request) (string, error) {
		b, err := io.ReadAll(r.Native.(*http.Request).Body) // a hook may read it as well
		return string(b) + "!", err
	})}
	httpidem.New(guard(p))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if string(b) != "x" || r.ContentLength != 1 {
			panic("not the body")
		}
		r.Body.Close()
		r.ParseMultipartForm(1)
	})).ServeHTTP(httptest.NewRecorder(), r)
	require.Same(t, body, r.Body)
	require.EqualValues(t, -1, r.ContentLength)
	require.Equal(t, 1, body.closed)
}

// What a mux behind the guard has found is seen in front, and the request has its own body and context back.
func TestTheRouteOfAMuxBehind(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{id}", func(http.ResponseWriter, *http.Request) {})
	r := httptest.NewRequest("POST", "/orders/7", strings.NewReader("{}"))
	r.Header.Set("X-User", "alice")
	body, ctx := r.Body, r.Context()
	httpidem.New(guard(core.Policy{}))(mux).ServeHTTP(httptest.NewRecorder(), r)
	require.Equal(t, "POST /orders/{id} 7", r.Pattern+" "+r.PathValue("id"))
	require.Equal(t, body, r.Body)
	require.Equal(t, ctx, r.Context())
}

// Also if a hook has read it.
func TestAnUnprotectedHandlerReadsTheWholeBody(t *testing.T) {
	e := idemtest.New(t, core.Config{User: core.UserFromHeader("X-User")})
	e.Fail(idemtest.Acquire)
	var got string
	read := core.Func(func(r *adapter.Request) (string, error) {
		b, err := io.ReadAll(r.Native.(*http.Request).Body)
		return string(b), err
	})
	h := httpidem.New(e.MustGuard(core.Policy{Key: read, FailOpen: true}))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got = string(b)
	}))
	s := server(t, h)
	require.Equal(t, 200, post(t, s, "/", "all of it").status)
	require.Equal(t, "all of it", got)
}

// uncomparable is a context that == panics at.
type uncomparable struct {
	context.Context
	value any
}

func TestSafeMethodsPass(t *testing.T) {
	ran := 0
	guarded := httpidem.New(guard(core.Policy{}))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		ran++
		if _, ok := w.(*adapterkit.Recorder); ok {
			panic("recorded")
		}
	}))
	s := server(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		guarded.ServeHTTP(w, r.WithContext(uncomparable{r.Context(), []string{"trace"}}))
	}))
	for range 2 {
		req, err := http.NewRequest("GET", s.URL, nil)
		require.NoError(t, err)
		require.Equal(t, 200, send(t, s, req).status)
	}
	require.Equal(t, 2, ran)
}

func TestWithRoute(t *testing.T) {
	var keys []string
	p := core.Policy{Key: core.Func(func(r *adapter.Request) (string, error) {
		keys = append(keys, fmt.Sprint(r.Route, r.PathParams))
		return "k", nil
	})}
	h := httpidem.New(guard(p), httpidem.WithRoute(func(r *http.Request) (string, []adapter.Pair) {
		if r.URL.Path == "/unknown%" {
			return "", nil
		}
		if rest, ok := strings.CutPrefix(r.URL.Path, "/files/"); ok {
			return "/files/{path...}", []adapter.Pair{{Name: "path", Value: rest}}
		}
		if id, ok := strings.CutPrefix(r.URL.Path, "/orders/by/"); ok {
			return "/orders/by/{id}", []adapter.Pair{{Name: "id", Value: id}}
		}
		if r.URL.Path == "/static" {
			return "/*", nil
		}
		return "/orders/{id:[0-9]+}/", []adapter.Pair{{Name: "id", Value: "7"}}
	}))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, target := range []string{"/orders/7/", "/unknown%25", "/files/a%2fb%61", "/orders/by/a%2Fb", "/static"} {
		r := httptest.NewRequest("POST", target, nil)
		r.Header.Set("X-User", "alice")
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	require.Equal(t, []string{"/orders/:id/[{id 7}]", "/unknown%25[]", "/files/*[{path a%2Fba}]", "/orders/by/:id[{id a/b}]", "/*[]"}, keys)
}

// Who has no tokens to issue learns it when the routes are made, and not by the first request.
func TestIssueTokenWithoutTokens(t *testing.T) {
	require.PanicsWithValue(t, `idem: the key of the policy "orders" is no Token: there is nothing to issue`, func() {
		httpidem.IssueToken(guard(core.Policy{Name: "orders"}))
	})
}

func TestControllerReachesTheServer(t *testing.T) {
	s := server(t, httpidem.New(guard(core.Policy{}))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		rc := http.NewResponseController(w)
		if err := errors.Join(rc.SetWriteDeadline(time.Now().Add(time.Minute)), rc.EnableFullDuplex()); err != nil {
			http.Error(w, err.Error(), 500)
		}
	})))
	require.Equal(t, 200, post(t, s, "/", "").status)
}

func TestAllocations(t *testing.T) {
	race.Skip(t, "sync.Pool drops what it is given at random under the race detector")
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = jsonType
		w.WriteHeader(201)
		w.Write(jsonBody)
	})
	w := allocs.Writer{}
	bare := allocs.PerRequest(w, h, true)
	require.LessOrEqual(t, allocs.PerRequest(w, httpidem.New(guard(core.Policy{}))(h), true)-bare, 10.0, "first")
	require.LessOrEqual(t, allocs.PerRequest(w, httpidem.New(guard(core.Policy{}))(h), false)-bare, 5.0, "replay")
	require.Equal(t, []string{"true"}, w.Header()[core.ReplayedHeader])
}

var (
	jsonType = []string{"application/json"}
	jsonBody = []byte(`{"order_id":"ord-0001"}`)
)

// A handler has the whole body, and net/http finds the files that it has to clean up after, also where nothing is recorded.
func TestFilesOfAMultipartFormAreLeftToTheServer(t *testing.T) {
	for _, passes := range []bool{false, true} {
		engine := idemtest.New(t, core.Config{User: core.SharedByAllCallers()})
		if passes {
			engine.Fail(idemtest.Acquire)
		}
		media, body := parts(t)
		r := httptest.NewRequest("POST", "/", strings.NewReader(body))
		r.Header.Set("Content-Type", media)
		httpidem.New(engine.MustGuard(core.Policy{FailOpen: true}))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			require.NoError(t, r.ParseMultipartForm(1))
		})).ServeHTTP(httptest.NewRecorder(), r)
		require.NotNil(t, r.MultipartForm)
		require.NoError(t, r.MultipartForm.RemoveAll())
	}
}
