package httpidem_test

import (
	"bytes"
	"context"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/sign/signtest"
)

// inFront is a middleware that does something to a request.
func inFront(do func(*http.Request)) middleware {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			do(r)
			next.ServeHTTP(w, r)
		})
	}
}

// parts is a multipart form of fields and a file with a header of its own.
func parts(t testing.TB) (contentType, body string) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	require.NoError(t, w.SetBoundary("b"))
	file, err := w.CreatePart(textproto.MIMEHeader{
		"Content-Disposition": {`form-data; name="f"; filename="a \"b\".txt"`}, "Content-Type": {"text/x-own"}, "X-Own": {"1"}})
	require.NoError(t, err)
	_, _ = file.Write([]byte("content"))
	for _, value := range []string{"z", "y"} {
		require.NoError(t, w.WriteField("n", value))
	}
	require.NoError(t, w.WriteField("a", "1"))
	require.NoError(t, w.Close())
	return w.FormDataContentType(), b.String()
}

// Hooks see a form that was put together again, and the handler finds what was parsed where it was, and the body
// again.
func TestAFormIsPutTogetherAgain(t *testing.T) {
	media, body := parts(t)
	together := "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n" +
		"--b\r\nContent-Disposition: form-data; name=\"n\"\r\n\r\nz\r\n--b\r\nContent-Disposition: form-data; name=\"n\"\r\n\r\ny\r\n" +
		"--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a \\\"b\\\".txt\"\r\nContent-Type: " +
		"text/x-own\r\nX-Own: 1\r\n\r\ncontent\r\n--b--\r\n"
	for _, tc := range []struct {
		name, media, body, want string
		parse                   func(*http.Request)
	}{
		{"urlencoded", "application/x-www-form-urlencoded", "n=z&a=%31&&n=y", "a=1&n=z&n=y", func(r *http.Request) { _ = r.ParseForm() }},
		{"multipart", media, body, together, func(r *http.Request) { _ = r.ParseMultipartForm(1 << 20) }},
		{"multipart on disk", media, body, together, func(r *http.Request) { _ = r.ParseMultipartForm(0) }},
		{"multipart, of which more comes", media, body + "\r\n\r\n" + strings.Repeat("epilogue", 1000), together,
			func(r *http.Request) { _ = r.ParseMultipartForm(1 << 20) }},
		{"put back", "application/x-www-form-urlencoded", "n=z&a=%31&&n=y", "n=z&a=%31&&n=y",
			func(r *http.Request) { putBack(r, r.ParseForm) }},
		{"multipart, put back", media, body, body, func(r *http.Request) {
			putBack(r, func() error { return r.ParseMultipartForm(1 << 20) })
		}},
		{"decrypted", "application/x-www-form-urlencoded", "secret", "a=1&n=z&n=y", func(r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader("n=z&a=%31&&n=y")), -1
			_ = r.ParseForm()
		}},
		{"decompressed, with the length that was sent", "application/x-www-form-urlencoded", "secret",
			"a=1&n=z&n=y", func(r *http.Request) {
				r.Body = io.NopCloser(strings.NewReader("n=z&a=%31&&n=y"))
				r.Header.Set("Content-Encoding", "gzip")
				_ = r.ParseForm()
			}},
		{"decompressed, without the fields that say so", "application/x-www-form-urlencoded",
			"secret", "a=1&n=z&n=y", func(r *http.Request) {
				r.Body = io.NopCloser(strings.NewReader("n=z&a=%31&&n=y")) // gin-contrib/gzip
				r.Header.Del("Content-Encoding")
				r.Header.Del("Content-Length")
				_ = r.ParseForm()
			}},
		{"parsed and closed", "application/x-www-form-urlencoded", "n=z&a=%31&&n=y", "a=1&n=z&n=y", func(r *http.Request) {
			_ = r.ParseForm()
			_ = r.Body.Close()
		}},
	} {
		for i, chunked := range []bool{false, true, true} {
			t.Run(tc.name, func(t *testing.T) {
				policy := core.Policy{Key: core.Func(func(r *adapter.Request) (string, error) {
					assert.Equal(t, tc.want, string(r.Body))
					native := r.Native.(*http.Request)
					assert.EqualValues(t, len(tc.want), native.ContentLength)
					again, err := io.ReadAll(native.Body)
					assert.NoError(t, err)
					assert.Equal(t, tc.want, string(again))
					return "k", nil
				})}
				var sent *http.Request
				h := through(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					assert.Equal(t, url.Values{"a": {"1"}, "n": {"z", "y"}}, r.PostForm)
					assert.Same(t, sent.MultipartForm, r.MultipartForm)
					if r.MultipartForm != nil {
						_, file, err := r.FormFile("f")
						assert.NoError(t, err)
						assert.Equal(t, `a "b".txt`, file.Filename)
					}
					assert.EqualValues(t, len(tc.want), r.ContentLength)
					got, err := io.ReadAll(r.Body)
					assert.NoError(t, err)
					assert.Equal(t, tc.want, string(got))
					w.WriteHeader(201)
				}), inFront(func(r *http.Request) { tc.parse(r); sent = r }), httpidem.New(guard(policy)))
				if i == 2 {
					h = httpidem.Finish()(h)
				}
				s := server(t, h)
				r := newRequest(t, s, tc.media, tc.body, chunked)
				require.Equal(t, 201, send(t, s, r).status)
			})
		}
	}
}

// What a guard lends to the next one is still in the coding that it was sent in, or that of whoever has replaced it.
func TestACompressedBodyBehindTwoGuards(t *testing.T) {
	for coding, replace := range map[string]func(*http.Request){
		"gzip": func(*http.Request) {},
		"":     func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader("{}")) },
	} {
		var found []string
		policy := core.Policy{Key: core.Func(func(r *adapter.Request) (string, error) {
			found = append(found, r.ContentEncoding)
			return "k", nil
		})}
		s := server(t, through(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), inFront(replace),
			httpidem.New(guard(policy)), httpidem.New(guard(policy))))
		r := newRequest(t, s, "application/json", "{", false)
		r.Header.Set("Content-Encoding", "gzip")
		require.Equal(t, 200, send(t, s, r).status)
		require.Equal(t, []string{coding, coding}, found)
	}
}

// putBack puts the body back that parse reads.
func putBack(r *http.Request, parse func() error) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	_ = parse()
	r.Body = io.NopCloser(bytes.NewReader(body))
}

// A form that a middleware has parsed is whole, however few or many bytes its client has spent on it.
func TestFormsOfAllSpellingsAreWhole(t *testing.T) {
	for _, body := range []string{"a", "a&b", "=", "=1", "a=", "a=1=2", "a=%26%3D%3B+b", "%61=%C3%A9", "é=é", "a=%2B&&", "a=b/c?d"} {
		for _, finish := range []bool{false, true} {
			h := through(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201) }),
				inFront(func(r *http.Request) { _ = r.ParseForm() }), httpidem.New(guard(core.Policy{})))
			if finish {
				h = httpidem.Finish()(h)
			}
			s := server(t, h)
			assert.Equal(t, 201, send(t, s, newRequest(t, s, "application/x-www-form-urlencoded", body, finish)).status, body)
		}
	}
}

// Middleware that serves a request again, after a handler that has parsed its form, finds the form where the first try has left it.
func TestAFormServedAgain(t *testing.T) {
	media, body := parts(t)
	statuses := []int{503, 201}
	s := server(t, through(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.NoError(t, r.ParseMultipartForm(1<<20))
		assert.Equal(t, []string{"z", "y"}, r.MultipartForm.Value["n"])
		w.WriteHeader(statuses[0])
		statuses = statuses[1:]
	}), func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(httptest.NewRecorder(), r)
			next.ServeHTTP(w, r)
		})
	}, httpidem.New(guard(core.Policy{}))))
	require.Equal(t, 201, send(t, s, newRequest(t, s, media, body, false)).status)
}

// What a handler puts in the place of its request does not take the form from the one that the server cleans up after.
func TestAdoptKeepsAForm(t *testing.T) {
	original, form := httptest.NewRequest("POST", "/", nil), new(multipart.Form)
	original.MultipartForm = form
	lent := httptest.NewRequest("PUT", "/rewritten", nil)
	adapterkit.Adopt(original, lent, lent, lent.Context())
	require.Same(t, form, original.MultipartForm)
	require.Equal(t, "PUT /rewritten", original.Method+" "+original.URL.Path)
}

// A mux may be behind a handler that has put another request in the place of its own.
func TestAdoptTakesThePattern(t *testing.T) {
	original := httptest.NewRequest("POST", "/orders", nil)
	lent := original.WithContext(t.Context())
	handled := lent.WithContext(t.Context())
	handled.Pattern = "POST /orders"
	adapterkit.Adopt(original, lent, handled, lent.Context())
	require.Equal(t, "POST /orders", original.Pattern)
}

// What a handler replaces is seen after it, what it was given is not; neither a value nor a context need be comparable.
func TestContextAfter(t *testing.T) {
	type key string
	type plain struct {
		context.Context
		_ []int
	}
	with := context.WithValue
	outer := plain{Context: with(with(t.Context(), key("user"), "nobody"), key("list"), []int{1})}
	ctx := plain{Context: with(with(outer, key("run"), 1), key("list"), []int{2})}
	after := adapterkit.ContextAfter(outer, ctx, with(with(ctx, key("user"), "alice"), key("list"), []int{3}))
	assert.Equal(t, []any{"alice", []int{3}, nil}, []any{after.Value(key("user")), after.Value(key("list")), after.Value(key("run"))})
	assert.NotPanics(t, func() { adapterkit.ContextAfter(outer, ctx, ctx) })
}

// A timeout in front that has answered may read the request while the handler ends. Only the race detector can tell.
func TestAdoptWritesOnlyWhatHasChanged(t *testing.T) {
	original, read := httptest.NewRequest("POST", "/", nil), make(chan http.Request)
	go func() { read <- *original }()
	lent := original.WithContext(t.Context())
	adapterkit.Adopt(original, lent, lent, lent.Context())
	require.Equal(t, "POST", (<-read).Method)
}

func newRequest(t testing.TB, s *httptest.Server, media, body string, chunked bool) *http.Request {
	r, err := http.NewRequest("POST", s.URL+"/", strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", media)
	r.Header.Set("X-User", "alice")
	if chunked {
		r.ContentLength = -1
	}
	return r
}

// What was read is refused, through all servers that net/http has, and whatever has been put around the body.
func TestABodyThatWasReadIsRefused(t *testing.T) {
	media, form := parts(t)
	const data = `{"a":1,"b":2}`
	peek := func(r *http.Request) { _, _ = io.ReadFull(r.Body, make([]byte, 4)) }
	all := func(r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }
	limited := func(do func(*http.Request)) func(*http.Request) {
		return func(r *http.Request) {
			r.Body = http.MaxBytesReader(nil, r.Body, 1000)
			do(r)
		}
	}
	for _, tc := range []struct {
		name, media, body string
		do                func(*http.Request)
		chunked           bool // it can be told of a body in chunks, too
		counted           bool // it takes Finish to tell
	}{
		{"a peek", "application/json", data, peek, false, false},
		{"a peek behind a limit", "application/json", data, limited(peek), false, false},
		{"a peek, counted", "application/json", data, peek, true, true},
		{"a peek behind a limit, counted", "application/json", data, limited(peek), true, true},
		{"a peek behind a wrapper, counted", "application/json", data, func(r *http.Request) {
			r.Body = struct{ io.ReadCloser }{r.Body}
			peek(r)
		}, true, true},
		{"all", "application/json", data, all, true, false},
		{"all, behind a limit", "application/json", data, limited(all), true, false},
		{"all, behind a wrapper", "application/json", data, func(r *http.Request) {
			r.Body = struct{ io.ReadCloser }{r.Body}
			all(r)
		}, true, false},
		{"all, put back", "application/json", data, func(r *http.Request) { putBack(r, func() error { return nil }); all(r) }, true, false},
		{"closed", "application/json", data, func(r *http.Request) { _ = r.Body.Close() }, true, false},
		{"thrown away", "application/json", data, func(r *http.Request) { r.Body = http.NoBody }, false, false},
		{"a form read by its parts", media, form, func(r *http.Request) {
			parts, _ := r.MultipartReader()
			for part, err := parts.NextPart(); err == nil; part, err = parts.NextPart() {
				_, _ = io.Copy(io.Discard, part)
			}
		}, true, false},
		{"a form whose files are gone", media, form, func(r *http.Request) {
			_ = r.ParseMultipartForm(0)
			_ = r.MultipartForm.RemoveAll()
		}, true, false},
		{"a form of which a part was dropped", "application/x-www-form-urlencoded", "a=1&b=%zz%zz%zz",
			func(r *http.Request) { _ = r.ParseForm() }, false, false},
		{"a form to which something was added", "application/x-www-form-urlencoded", "a=1", func(r *http.Request) {
			_ = r.ParseForm()
			r.PostForm.Set("b", "another value than the client's")
		}, false, false},
		{"a form too large for net/http", "application/x-www-form-urlencoded", "a=" + strings.Repeat("1", 10<<20),
			func(r *http.Request) { _ = r.ParseForm() }, false, false},
	} {
		for name, change := range map[string]func(*http.Request){
			"length":   func(*http.Request) {},
			"chunked":  func(r *http.Request) { r.ContentLength = -1 },
			"continue": func(r *http.Request) { r.Header.Set("Expect", "100-continue") },
			"HTTP/2":   func(*http.Request) {},
			"encoded":  func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }, // and nobody has decoded it
		} {
			if name == "chunked" && !tc.chunked {
				continue
			}
			t.Run(tc.name+"/"+name, func(t *testing.T) {
				mw := []middleware{inFront(tc.do), httpidem.New(guard(core.Policy{BodyLimit: 20 << 20}))}
				if tc.counted {
					mw = []middleware{httpidem.Finish(), mw[0], httpidem.Finish(), mw[1]} // the outermost tells
				}
				s := httptest.NewUnstartedServer(through(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					t.Error("the handler was reached")
				}), mw...))
				s.EnableHTTP2 = name == "HTTP/2"
				s.StartTLS()
				t.Cleanup(func() {
					s.Client().CloseIdleConnections()
					s.Close()
				})
				r := newRequest(t, s, tc.media, tc.body, false)
				change(r)
				got := send(t, s, r)
				assert.Equal(t, 500, got.status)
				assert.Equal(t, "body_consumed", got.code())
			})
		}
	}
}

// A body that is empty from the start has not been read, and nobody needs Finish to tell where the length is known, or a
// verifier stands in front.
func TestAnEmptyBodyWasNotRead(t *testing.T) {
	for name, tc := range map[string]struct {
		mw      []middleware
		chunked bool
	}{
		"no length":           {nil, false},
		"length 0 by another": {[]middleware{inFront(func(r *http.Request) { r.ContentLength = 0 })}, true},
		"no body by another":  {[]middleware{inFront(func(r *http.Request) { r.Body = http.NoBody })}, true},
		"counted, in chunks":  {[]middleware{httpidem.Finish()}, true},
		"counted twice":       {[]middleware{httpidem.Finish(), httpidem.Finish()}, true},
		"verified, in chunks": {[]middleware{httpidem.Verify(signtest.NewVerifier())}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := server(t, through(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(201) }),
				append(tc.mw, httpidem.New(guard(core.Policy{})))...))
			r := signed(t, s, signtest.Demo, "/", "", "X-User", "alice")
			r.Body = nil
			if tc.chunked {
				r.Body, r.ContentLength = io.NopCloser(strings.NewReader("")), -1
				r.TransferEncoding = []string{"chunked"}
			}
			require.Equal(t, 201, send(t, s, r).status)
		})
	}
}

// A verifier behind Finish sees that the beginning of a body was read, and does not take the rest for what was
// signed.
func TestAVerifierKnowsWhatWasRead(t *testing.T) {
	s := server(t, through(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was reached") }),
		httpidem.Finish(), inFront(func(r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }), httpidem.Verify(signtest.NewVerifier())))
	// Signed without a body, and then sent with one.
	r := signed(t, s, signtest.Demo, "/", "")
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader("to=mallory")), -1
	got := send(t, s, r)
	assert.Equal(t, 400, got.status)
	assert.Equal(t, "malformed", got.code())
}

// Contexts that are derived from a counted request's end with it, and net/http finds the files of its form.
func TestFinishHandsOn(t *testing.T) {
	r := httptest.NewRequest("POST", "/", strings.NewReader("body"))
	ctx, cancel := context.WithCancel(r.Context())
	r = r.WithContext(ctx)
	closed := &closer{Reader: r.Body}
	r.Body = closed
	httpidem.Finish()(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		inner, stop := context.WithCancel(r.Context())
		defer stop()
		cancel()
		<-inner.Done()
		r.MultipartForm = new(multipart.Form)
		b, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		assert.Equal(t, "body", string(b))
		assert.NoError(t, r.Body.Close())
	})).ServeHTTP(httptest.NewRecorder(), r)
	httpidem.Finish()(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		assert.True(t, r.Body == http.NoBody, "what has no body still says so")
	})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", http.NoBody))
	assert.True(t, closed.closed)
	assert.NotNil(t, r.MultipartForm)
	assert.Same(t, closed, r.Body)
}
