package httpidem_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store/memstore"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/sign"
)

var (
	demo   = sign.MustKey(sign.NewHMACKey("demo", []byte("0123456789abcdef0123456789abcdef")))
	other  = sign.MustKey(sign.NewHMACKey("other", []byte("fedcba9876543210fedcba9876543210")))
	forged = sign.MustKey(sign.NewHMACKey("demo", []byte("this is not the secret of demo...")))
)

func verifier(change ...func(*sign.Config)) *sign.Verifier {
	c := sign.Config{Keys: sign.MustRing(demo, other)}
	for _, f := range change {
		f(&c)
	}
	return sign.MustVerifier(c)
}

// signed is a request to s, signed by key. fields are names and values in turn.
func signed(t testing.TB, s *httptest.Server, key *sign.Key, path, body string, fields ...string) *http.Request {
	t.Helper()
	r, err := http.NewRequest("POST", s.URL+path, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	require.NoError(t, sign.Request(r, key, nil))
	return r
}

// wire is what r looks like on the connection.
func wire(t testing.TB, r *http.Request) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, r.Write(&b))
	return b.String()
}

// exchange sends messages over one connection, each when the one before it was answered.
func exchange(t testing.TB, s *httptest.Server, messages ...string) []reply {
	t.Helper()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	in := bufio.NewReader(conn)
	var replies []reply
	for _, message := range messages {
		_, err := io.WriteString(conn, message)
		require.NoError(t, err)
		resp, err := http.ReadResponse(in, &http.Request{Method: "POST"})
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		replies = append(replies, reply{resp.StatusCode, resp.Header, string(body), nil})
	}
	return replies
}

func TestVerifiedRequestsReachTheHandler(t *testing.T) {
	type seen struct {
		verified       sign.Verified
		caller, body   string
		length         int64
		trailer, again string
	}
	var got seen
	var read func(r *http.Request) string
	s := server(t, httpidem.Verify(verifier())(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = seen{length: r.ContentLength, trailer: r.Trailer.Get("X-Trailer")}
		got.verified, _ = sign.From(r.Context())
		got.caller, _ = core.CallerFrom(r.Context())
		got.body = read(r)
		if again, err := r.GetBody(); err == nil {
			b, _ := io.ReadAll(again)
			got.again = string(b)
		}
		w.WriteHeader(201)
	})))
	raw := func(r *http.Request) string {
		b, err := io.ReadAll(r.Body)
		return string(b) + fmt.Sprint(errors.Join(err, r.Body.Close()))
	}
	form := func(r *http.Request) string { return r.PostFormValue("a") + r.PostFormValue("b") }

	var parts bytes.Buffer
	w := multipart.NewWriter(&parts)
	require.NoError(t, w.WriteField("a", "1"))
	file, err := w.CreateFormFile("f", "f.txt")
	require.NoError(t, err)
	_, _ = file.Write([]byte("file"))
	require.NoError(t, w.Close())

	long := strings.Repeat("x", 200_000)
	for name, tc := range map[string]struct {
		contentType, body string
		read              func(*http.Request) string
		want              string
	}{
		"raw":   {"text/plain", "hello", raw, "hello<nil>"},
		"none":  {"text/plain", "", raw, "<nil>"},
		"large": {"text/plain", long, raw, long + "<nil>"},
		"JSON": {"application/json", `{"a":1}`, func(r *http.Request) string {
			var v struct{ A int }
			return fmt.Sprint(json.NewDecoder(r.Body).Decode(&v), v.A)
		}, "<nil> 1"},
		"form": {"application/x-www-form-urlencoded", "a=1&b=2", form, "12"},
		"multipart": {w.FormDataContentType(), parts.String(), func(r *http.Request) string {
			f, _, err := r.FormFile("f")
			if err != nil {
				return err.Error()
			}
			defer f.Close()
			b, _ := io.ReadAll(f)
			return form(r) + string(b)
		}, "1file"},
	} {
		t.Run(name, func(t *testing.T) {
			read = tc.read
			r := signed(t, s, demo, "/a%2Fb?x=1", tc.body, "Content-Type", tc.contentType)
			nonce := r.Header.Get("X-Nonce")
			require.Equal(t, 201, send(t, s, r).status)
			assert.Equal(t, sign.Verified{KeyID: "demo", Scheme: "v1", Algorithm: sign.HMACSHA256, Time: got.verified.Time, Nonce: nonce}, got.verified)
			assert.WithinDuration(t, time.Now(), got.verified.Time, time.Minute)
			assert.Equal(t, "demo", got.caller)
			assert.Equal(t, tc.want, got.body)
			assert.Equal(t, tc.body, got.again)
			assert.EqualValues(t, len(tc.body), got.length)

			r = signed(t, s, demo, "/a%2Fb?x=1", tc.body, "Content-Type", tc.contentType)
			r.ContentLength, r.Trailer = -1, http.Header{"X-Trailer": {"t"}}
			require.Equal(t, 201, send(t, s, r).status, "in chunks")
			assert.Equal(t, tc.want, got.body)
			assert.EqualValues(t, len(tc.body), got.length)
			assert.Equal(t, "t", got.trailer)
		})
	}
}

func TestRefusals(t *testing.T) {
	var reached atomic.Int64
	verify := httpidem.Verify(verifier(func(c *sign.Config) { c.BodyLimit = 100 }))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reached.Add(1)
		_, _ = io.WriteString(w, "ok.")
	}))
	s := server(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/html")
		h.Set("Cache-Control", "public")
		h.Set("Content-Length", "3")
		h.Set("X-Outer", "1")
		if r.URL.Path == "/bounded" {
			r.Body = http.MaxBytesReader(w, r.Body, 10)
		}
		verify.ServeHTTP(w, r)
	}))
	good := func() string { return wire(t, signed(t, s, demo, "/", "{}")) }
	nonce := func(message string) string {
		_, rest, _ := strings.Cut(message, "X-Nonce: ")
		nonce, _, _ := strings.Cut(rest, "\r\n")
		return "X-Nonce: " + nonce + "\r\n"
	}
	twice := good()
	require.Equal(t, 200, exchange(t, s, twice)[0].status)
	reached.Store(0)

	front := func(message, line string) string { return strings.Replace(message, "\r\n", "\r\n"+line, 1) }
	back := func(message, line string) string { return strings.Replace(message, "\r\n\r\n", "\r\n"+line+"\r\n", 1) }
	m := good()
	for name, tc := range map[string]struct {
		message string
		status  int
		code    string
	}{
		"not signed":                 {strings.Replace(good(), "X-Signature", "X-Else", 1), 401, "missing"},
		"signed by somebody else":    {wire(t, signed(t, s, forged, "/", "{}")), 401, "invalid"},
		"another body":               {strings.Replace(good(), "{}", "[]", 1), 401, "invalid"},
		"another path":               {strings.Replace(good(), "POST / ", "POST /%2F ", 1), 401, "invalid"},
		"sent before":                {twice, 401, "replayed"},
		"a nonce in front":           {front(m, nonce(m)), 400, "duplicate_header"},
		"a nonce behind":             {back(m, "x-NONCE: 0123456789abcdef\r\n"), 400, "duplicate_header"},
		"a type in front":            {front(m, "Content-Type: text/plain\r\n"), 400, "duplicate_header"},
		"a type behind":              {back(m, "content-type: application/json\r\n"), 400, "duplicate_header"},
		"a host twice":               {back(m, "Host: example.com\r\n"), 400, ""}, // net/http itself
		"a key that is not signed":   {back(m, "Idempotency-Key: k\r\n"), 401, "invalid"},
		"a body over the limit":      {wire(t, signed(t, s, demo, "/", strings.Repeat("x", 101))), 413, "body_too_large"},
		"a body over another's":      {wire(t, signed(t, s, demo, "/bounded", strings.Repeat("x", 11))), 413, "body_too_large"},
		"too many lines":             {back(m, strings.Repeat("X-A: 1\r\n", 101)), 400, "malformed"},
		"an absolute target's host":  {strings.Replace(m, "POST / ", "POST http://else.example/ ", 1), 401, "invalid"},
		"a query that is not signed": {strings.Replace(m, "POST / ", "POST /?a=1 ", 1), 401, "invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			r := exchange(t, s, tc.message)[0]
			assert.Equal(t, tc.status, r.status)
			assert.Equal(t, tc.code, r.code())
			if tc.code == "" {
				return
			}
			assert.Equal(t, []string{"application/problem+json"}, r.header["Content-Type"])
			assert.Equal(t, []string{"no-store"}, r.header["Cache-Control"])
			assert.Equal(t, []string{strconv.Itoa(len(r.body))}, r.header["Content-Length"])
			assert.Equal(t, []string{"1"}, r.header["X-Outer"], "other fields are left alone")
			assert.Len(t, r.header["Date"], 1)
			if tc.status == 401 {
				assert.Equal(t, []string{`Signature scheme="v1"`}, r.header["Www-Authenticate"])
			}
		})
	}
	assert.Zero(t, reached.Load())
}

func TestClocks(t *testing.T) {
	clock := time.Unix(1700000000, 0)
	s := server(t, httpidem.Verify(verifier(func(c *sign.Config) { c.Clock = func() time.Time { return clock } }))(http.NotFoundHandler()))
	r := exchange(t, s, wire(t, signed(t, s, demo, "/", "{}")))[0]
	assert.Equal(t, "not_yet_valid", r.code())
	assert.Equal(t, []string{"Tue, 14 Nov 2023 22:13:20 GMT"}, r.header["Date"])
}

// What is signed is the target as sent, also in absolute form, and after a prefix was taken away.
func TestTargets(t *testing.T) {
	mux := http.NewServeMux()
	ok := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.Path) })
	mux.Handle("/v1/", http.StripPrefix("/v1", httpidem.Verify(verifier())(ok)))
	s := server(t, mux)

	r := signed(t, s, demo, "/v1/a%2Fb?x=%41;y", "{}")
	assert.Equal(t, "/a/b", send(t, s, r).body)

	r = signed(t, s, demo, "/v1/a", "{}")
	absolute := strings.Replace(wire(t, r), "POST /v1/a ", "POST "+s.URL+"/v1/a ", 1)
	assert.Equal(t, "/a", exchange(t, s, strings.Replace(absolute, "Host: "+r.URL.Host, "Host: else.example", 1))[0].body)
}

func TestHTTP2(t *testing.T) {
	var got atomic.Value
	s := httptest.NewUnstartedServer(httpidem.Verify(verifier())(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got.Store(r.Proto + " " + string(body))
	})))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(func() {
		s.Client().CloseIdleConnections()
		s.Close()
	})
	require.Equal(t, 200, send(t, s, signed(t, s, demo, "/?a=b", "{}")).status)
	assert.Equal(t, "HTTP/2.0 {}", got.Load())
	require.Equal(t, 401, send(t, s, signed(t, s, forged, "/?a=b", "{}")).status)
}

// A connection goes on after a refusal, whatever of the body nobody has read.
func TestConnectionsGoOn(t *testing.T) {
	s := server(t, httpidem.Verify(verifier(func(c *sign.Config) { c.BodyLimit = 100 }))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	})))
	unread := strings.Replace(wire(t, signed(t, s, demo, "/", strings.Repeat("x", 5000))), "X-Signature", "X-Else", 1)
	replies := exchange(t, s,
		unread,
		wire(t, signed(t, s, demo, "/", "first")),
		wire(t, signed(t, s, demo, "/", strings.Repeat("x", 5000))),
		wire(t, signed(t, s, forged, "/", "bad")),
		wire(t, signed(t, s, demo, "/", "second")))
	assert.Equal(t, "missing", replies[0].code())
	assert.Equal(t, "first", replies[1].body)
	assert.Equal(t, "body_too_large", replies[2].code())
	assert.Equal(t, "invalid", replies[3].code())
	assert.Equal(t, "second", replies[4].body)
}

// counting is a store that counts claims.
type counting struct {
	core.Store
	claims atomic.Int64
}

func (c *counting) Acquire(ctx context.Context, key string, claim core.Claim) (core.Grant, error) {
	c.claims.Add(1)
	return c.Store.Acquire(ctx, key, claim)
}

func newCounting(t testing.TB) *counting {
	t.Helper()
	store, err := memstore.New(memstore.Options{})
	require.NoError(t, err)
	return &counting{Store: store}
}

func TestGuardBehindVerify(t *testing.T) {
	store := newCounting(t)
	engine := core.MustNew(core.Config{Store: store, User: core.UserFromCaller()})
	var runs atomic.Int64
	g := httpidem.New(engine.MustGuard(core.ClientKey()))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, _ := sign.From(r.Context())
		body, _ := io.ReadAll(r.Body)
		fmt.Fprint(w, v.KeyID, " ", string(body), " ", runs.Add(1))
	}))
	s := server(t, httpidem.Verify(verifier())(g))
	ask := func(key *sign.Key) reply { return send(t, s, signed(t, s, key, "/", "{}", "Idempotency-Key", "k-1")) }

	assert.Equal(t, "invalid", ask(forged).code())
	assert.Zero(t, store.claims.Load(), "a failed signature creates no record")

	assert.Equal(t, "demo {} 1", ask(demo).body)
	again := ask(demo)
	assert.Equal(t, "demo {} 1", again.body)
	assert.Equal(t, "true", again.header.Get(core.ReplayedHeader))
	assert.Equal(t, "other {} 2", ask(other).body, "another key id is another operation")

	unsigned, err := http.NewRequest("POST", s.URL, strings.NewReader("{}"))
	require.NoError(t, err)
	unsigned.Header.Set("Idempotency-Key", "k-1")
	assert.Equal(t, "missing", send(t, s, unsigned).code())
	assert.EqualValues(t, 3, store.claims.Load())
}

func TestNoncesOfTheEngine(t *testing.T) {
	engine := core.MustNew(core.Config{User: core.UserFromCaller()})
	v := verifier(func(c *sign.Config) { c.Nonces = engine.Nonces() })
	s := server(t, httpidem.Verify(v)(httpidem.New(engine.MustGuard(core.ClientKey()))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))))
	message := wire(t, signed(t, s, demo, "/", "{}", "Idempotency-Key", "k"))
	replies := exchange(t, s, message, message)
	assert.Equal(t, 200, replies[0].status)
	assert.Equal(t, "replayed", replies[1].code())
}

// The wrong way round, a refusal is not kept in place of the handler's answer.
func TestGuardOutsideOfVerify(t *testing.T) {
	var runs atomic.Int64
	s := server(t, httpidem.New(guard(core.ClientKey()))(httpidem.Verify(verifier())(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprint(w, string(body), runs.Add(1))
	}))))
	ask := func(key *sign.Key) reply {
		return send(t, s, signed(t, s, key, "/", "{}", "Idempotency-Key", "k-1"))
	}
	assert.Equal(t, "invalid", ask(forged).code())
	assert.Equal(t, "{}1", ask(demo).body)
	assert.Equal(t, "{}1", ask(demo).body)
	assert.EqualValues(t, 1, runs.Load())
}

// A limit that is none must not overflow.
func TestLargestBodyLimit(t *testing.T) {
	verify := httpidem.Verify(verifier(func(c *sign.Config) { c.BodyLimit = math.MaxInt64 }))
	s := server(t, verify(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })))
	r := signed(t, s, demo, "/", "{}")
	r.ContentLength = -1
	assert.Equal(t, "{}", send(t, s, r).body)
}

func TestVerifyTwice(t *testing.T) {
	outer, inner := httpidem.Verify(verifier()), httpidem.Verify(verifier())
	s := server(t, outer(inner(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))))
	assert.Equal(t, "{}", send(t, s, signed(t, s, demo, "/", "{}")).body)
}

// What net/http and routers look for in the request that they have made is there.
func TestRequestsAreGivenBack(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseMultipartForm(1)
	})
	handler := httpidem.Verify(verifier())(mux)
	var parts bytes.Buffer
	form := multipart.NewWriter(&parts)
	require.NoError(t, form.WriteField("a", "1"))
	require.NoError(t, form.Close())
	r := httptest.NewRequest("POST", "http://example.com/orders/7", &parts)
	r.Header.Set("Content-Type", form.FormDataContentType())
	require.NoError(t, sign.Request(r, demo, nil))
	closed := new(closer)
	closed.Reader, r.Body = r.Body, closed
	handler.ServeHTTP(httptest.NewRecorder(), r)
	assert.Equal(t, "POST /orders/{id}", r.Pattern)
	assert.Equal(t, url.Values{"a": {"1"}}, url.Values(r.MultipartForm.Value))
	assert.Same(t, closed, r.Body)
	_, ok := sign.From(r.Context())
	assert.False(t, ok, "the original is as it was")
}

type closer struct {
	io.Reader
	closed bool
}

func (c *closer) Close() error { c.closed = true; return nil }

func TestCloseIsHandedOn(t *testing.T) {
	body := &closer{Reader: strings.NewReader("{}")}
	r := httptest.NewRequest("POST", "http://example.com/", strings.NewReader("{}"))
	require.NoError(t, sign.Request(r, demo, nil))
	r.Body = body
	httpidem.Verify(verifier())(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		assert.False(t, body.closed)
		require.NoError(t, r.Body.Close())
		assert.True(t, body.closed)
		_, err := r.Body.Read(make([]byte, 1))
		assert.ErrorIs(t, err, http.ErrBodyReadAfterClose)
	})).ServeHTTP(httptest.NewRecorder(), r)
}

// Requests at once, of two signers, with bodies that a handler keeps: none sees another's.
func TestNothingOfOneRequestIsInAnother(t *testing.T) {
	var kept sync.Map
	s := server(t, httpidem.Verify(verifier())(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, _ := sign.From(r.Context())
		again, _ := r.GetBody()
		kept.Store(r.Header.Get("X-Number"), []any{v.KeyID, v.Nonce, again})
	})))
	var wg sync.WaitGroup
	nonces := make([]string, 64)
	body := func(i int) string { return strings.Repeat(strconv.Itoa(i)+",", 1+i*20) }
	for i := range nonces {
		key := demo
		if i%2 == 1 {
			key = other
		}
		r := signed(t, s, key, "/", body(i), "X-Number", strconv.Itoa(i))
		nonces[i] = r.Header.Get("X-Nonce")
		wg.Go(func() {
			resp, err := s.Client().Do(r)
			if assert.NoError(t, err) {
				assert.Equal(t, 200, resp.StatusCode)
				resp.Body.Close()
			}
		})
	}
	wg.Wait()
	for i, nonce := range nonces {
		v, ok := kept.Load(strconv.Itoa(i))
		require.True(t, ok)
		got := v.([]any)
		b, err := io.ReadAll(got[2].(io.Reader))
		require.NoError(t, err)
		assert.Equal(t, body(i), string(b))
		assert.Equal(t, []any{[]string{"demo", "other"}[i%2], nonce}, got[:2])
	}
}

// BenchmarkVerify is what Verify adds to a handler, with 200 bytes of body.
func BenchmarkVerify(b *testing.B) {
	body := `{"note":"` + strings.Repeat("n", 189) + `"}`
	v := verifier(func(c *sign.Config) { c.Nonces = everNew{} })
	reached := 0
	h := httpidem.Verify(v)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached++ }))
	r := httptest.NewRequest("POST", "http://example.com/transfers?x=2", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	require.NoError(b, sign.Request(r, demo, nil))
	r.RequestURI = "/transfers?x=2"
	reader := strings.NewReader(body)
	r.Body = io.NopCloser(reader)
	w := httptest.NewRecorder()
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		reader.Reset(body)
		h.ServeHTTP(w, r)
	}
	require.Equal(b, n, reached)
}

// everNew has seen no nonce yet.
type everNew struct{}

func (everNew) Use(context.Context, string, string, time.Duration) (bool, error) { return true, nil }
