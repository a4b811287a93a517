package fiberidem_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store/memstore"
	"github.com/idem-go/idem/fiberidem"
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

// modes are the settings of Fiber that change what it makes of a request.
var modes = map[string]fiber.Config{
	"plain":         {},
	"streams":       {StreamRequestBody: true},
	"names as sent": {DisableHeaderNormalizing: true},
	"immutable":     {Immutable: true},
}

func inEachMode(t *testing.T, test func(t *testing.T, config fiber.Config)) {
	for name, config := range modes {
		t.Run(name, func(t *testing.T) { test(t, config) })
	}
}

// signed is a request to s, signed by key. fields are names and values in turn; they are signed, too.
func (s *service) signed(key *sign.Key, path, body string, fields ...string) *http.Request {
	s.t.Helper()
	r, err := http.NewRequest("POST", "http://"+s.addr+path, strings.NewReader(body))
	require.NoError(s.t, err)
	r.Header.Set("Content-Type", "application/json")
	cover := []string{"Content-Type"}
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
		cover = append(cover, fields[i])
	}
	require.NoError(s.t, sign.Request(r, key, &sign.RequestOptions{Cover: cover}))
	return r
}

// wire is what r looks like on the connection.
func wire(t testing.TB, r *http.Request) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, r.Write(&b))
	return b.String()
}

func (r reply) code() string {
	_, rest, _ := strings.Cut(r.body, `"code":"`)
	code, _, _ := strings.Cut(rest, `"`)
	return code
}

// exchange sends messages over one connection, each when the one before it was answered.
func (s *service) exchange(messages ...string) []reply {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.addr)
	require.NoError(s.t, err)
	defer conn.Close()
	require.NoError(s.t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	in := bufio.NewReader(conn)
	var replies []reply
	for _, message := range messages {
		_, err := io.WriteString(conn, message)
		require.NoError(s.t, err)
		resp, err := http.ReadResponse(in, &http.Request{Method: "POST"})
		require.NoError(s.t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(s.t, err)
		if resp.Close { // net/http has taken it out
			resp.Header.Set("Connection", "close")
		}
		replies = append(replies, reply{resp.StatusCode, resp.Header, string(body), nil})
	}
	return replies
}

func (s *service) do(r *http.Request) reply {
	resp, err := s.client.Do(r)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(body), err}
}

func TestVerifiedRequestsAreRead(t *testing.T) {
	type order struct {
		SKU string `json:"sku" form:"sku"`
	}
	readers := map[string]func(c *fiber.Ctx) string{
		"raw":    func(c *fiber.Ctx) string { return string(c.BodyRaw()) },
		"body":   func(c *fiber.Ctx) string { return string(c.Body()) + string(c.Body()) },
		"parsed": func(c *fiber.Ctx) string { var o order; err := c.BodyParser(&o); return fmt.Sprint(o.SKU, err) },
		"form":   func(c *fiber.Ctx) string { return c.FormValue("sku") },
		"file": func(c *fiber.Ctx) string {
			f, err := c.FormFile("f")
			if err != nil {
				return err.Error()
			}
			return c.FormValue("sku") + " " + strconv.FormatInt(f.Size, 10)
		},
		"stream": func(c *fiber.Ctx) string {
			if s := c.Context().RequestBodyStream(); s != nil {
				b, err := io.ReadAll(s)
				return fmt.Sprint(string(b), err)
			}
			return string(c.BodyRaw()) + "<nil>"
		},
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write([]byte(`{"sku":"A-1"}`))
	require.NoError(t, z.Close())
	const form = "--b\r\nContent-Disposition: form-data; name=\"sku\"\r\n\r\nA-1\r\n" +
		"--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"n\"\r\n\r\ncontent\r\n--b--\r\n"
	long := strings.Repeat("x", 200_000)

	inEachMode(t, func(t *testing.T, config fiber.Config) {
		config.DisablePreParseMultipartForm = true
		app := newApp(config)
		app.Post("/:how/*", fiberidem.Verify(verifier()), func(c *fiber.Ctx) error {
			v, ok := fiberidem.Verified(c)
			caller, _ := core.CallerFrom(c.UserContext())
			return c.SendString(fmt.Sprintf("%v %s %s %s", ok, v.KeyID, caller, readers[c.Params("how")](c)))
		})
		s := serve(t, app)
		for _, tc := range []struct{ how, contentType, encoding, body, want string }{
			{"raw", "text/plain", "", "", ""},
			{"raw", "text/plain", "", long, long},
			{"body", "text/plain", "", "hello", "hellohello"},
			{"body", "application/json", "gzip", zipped.String(), `{"sku":"A-1"}{"sku":"A-1"}`},
			{"raw", "application/json", "gzip", zipped.String(), zipped.String()},
			{"parsed", "application/json", "", `{"sku":"A-1"}`, "A-1<nil>"},
			{"form", "application/x-www-form-urlencoded", "", "sku=A-1", "A-1"},
			{"file", "multipart/form-data; boundary=b", "", form, "A-1 7"},
			{"stream", "text/plain", "", long, long + "<nil>"},
		} {
			path := "/" + tc.how + "/a%2Fb?x=%41&&x"
			fields := []string{"Content-Type", tc.contentType}
			if tc.encoding != "" {
				fields = append(fields, "Content-Encoding", tc.encoding)
			}
			r := s.signed(demo, path, tc.body, fields...)
			assert.Equal(t, "true demo demo "+tc.want, s.do(r).body, "%s %s", tc.how, tc.contentType)
			r = s.signed(demo, path, tc.body, fields...)
			r.ContentLength = -1
			assert.Equal(t, "true demo demo "+tc.want, s.do(r).body, "%s %s, in chunks", tc.how, tc.contentType)
		}
	})
}

func TestRefusedMessages(t *testing.T) {
	inEachMode(t, func(t *testing.T, config fiber.Config) {
		var reached atomic.Int64
		app := newApp(config)
		app.Use(func(c *fiber.Ctx) error {
			c.Set("Content-Type", "text/html")
			c.Set("Cache-Control", "public")
			c.Set("X-Outer", "1")
			return c.Next()
		})
		app.Post("/*", fiberidem.Verify(verifier(func(c *sign.Config) { c.BodyLimit = 100 })), func(c *fiber.Ctx) error {
			reached.Add(1)
			return nil
		})
		s := serve(t, app)
		good := func() string { return wire(t, s.signed(demo, "/", "{}")) }
		front := func(message, line string) string { return strings.Replace(message, "\r\n", "\r\n"+line, 1) }
		back := func(message, line string) string {
			return strings.Replace(message, "\r\n\r\n", "\r\n"+line+"\r\n", 1)
		}
		first := good()
		require.Equal(t, 200, s.exchange(first)[0].status)
		odd := strings.NewReplacer("X-Key-Id", "x-KEY-iD", "X-Nonce", "x-nonce", "X-Signature", "X-SIGNATURE", "Content-Type", "content-TYPE")
		require.Equal(t, 200, s.exchange(odd.Replace(good()))[0].status, "names have no case")
		require.Equal(t, 200, s.exchange(strings.Replace(good(), "X-Nonce: ", "X-Nonce:\t ", 1))[0].status, "white space does not count")
		reached.Store(0)

		m := good()
		for name, tc := range map[string]struct {
			message string
			status  int
			code    string
		}{
			"not signed":               {strings.Replace(good(), "X-Signature", "X-Else", 1), 401, "missing"},
			"signed by somebody else":  {wire(t, s.signed(forged, "/", "{}")), 401, "invalid"},
			"another body":             {strings.Replace(good(), "{}", "[]", 1), 401, "invalid"},
			"another path":             {strings.Replace(good(), "POST / ", "POST /%2F ", 1), 401, "invalid"},
			"a path that means this":   {strings.Replace(good(), "POST / ", "POST /. ", 1), 401, "invalid"},
			"sent before":              {first, 401, "replayed"},
			"a nonce in front":         {front(m, "x-nonce: 0123456789abcdef\r\n"), 400, "duplicate_header"},
			"a nonce behind":           {back(m, "X-Nonce: 0123456789abcdef\r\n"), 400, "duplicate_header"},
			"a type in front":          {front(m, "content-type: text/plain\r\n"), 400, "duplicate_header"},
			"a type behind":            {back(m, "Content-Type: application/json\r\n"), 400, "duplicate_header"},
			"an empty type behind":     {back(m, "Content-Type:\r\n"), 400, "duplicate_header"},
			"a host in front":          {front(m, "host: example.com\r\n"), 400, "duplicate_header"},
			"a host behind":            {back(m, "Host: "+s.addr+"\r\n"), 400, "duplicate_header"},
			"no host":                  {strings.Replace(m, "Host: "+s.addr+"\r\n", "", 1), 400, "malformed"},
			"a key that is not signed": {back(m, "idempotency-KEY: k\r\n"), 401, "invalid"},
			"an absolute target":       {strings.Replace(m, "POST / ", "POST http://else.example/ ", 1), 401, "invalid"},
			"too many lines":           {back(m, strings.Repeat("X-A: 1\r\n", 101)), 400, "malformed"},
			"a body over the limit":    {wire(t, s.signed(demo, "/", strings.Repeat("x", 101))), 413, "body_too_large"},
		} {
			r := s.exchange(tc.message)[0]
			assert.Equal(t, tc.status, r.status, name)
			assert.Equal(t, tc.code, r.code(), name)
			assert.Equal(t, []string{"application/problem+json"}, r.header["Content-Type"], name)
			assert.Equal(t, []string{"no-store"}, r.header["Cache-Control"], name)
			assert.Equal(t, []string{strconv.Itoa(len(r.body))}, r.header["Content-Length"], name)
			assert.Equal(t, []string{"1"}, r.header["X-Outer"], name)
			assert.Len(t, r.header["Date"], 1, name)
			if tc.status == 401 {
				assert.Equal(t, []string{`Signature scheme="v1"`}, r.header["Www-Authenticate"], name)
			}
		}
		assert.Zero(t, reached.Load())
	})
}

// Fields of which fasthttp shows one line, or puts together what was sent, count as sent.
func TestFieldsThatFasthttpKeepsApart(t *testing.T) {
	inEachMode(t, func(t *testing.T, config fiber.Config) {
		app := newApp(config)
		app.Use(func(c *fiber.Ctx) error {
			c.Cookies("a") // collects them all
			return c.Next()
		})
		app.Post("/", fiberidem.Verify(verifier()))
		app.Post("/", func(c *fiber.Ctx) error { return c.SendString(c.Get("User-Agent")) })
		s := serve(t, app)
		fields := []string{"User-Agent", "ours/1", "Cookie", "a=1;b=2;  a=3", "Content-Type", ""}
		message := func() string { return wire(t, s.signed(demo, "/", "{}", fields...)) }
		assert.Equal(t, "ours/1", s.exchange(message())[0].body)
		for _, line := range []string{"User-Agent: theirs/1", "Cookie: c=4", "user-agent: ours/1", "content-type: text/plain"} {
			assert.Equal(t, "duplicate_header", s.exchange(strings.Replace(message(), "\r\n\r\n", "\r\n"+line+"\r\n\r\n", 1))[0].code(), line)
			assert.Equal(t, "duplicate_header", s.exchange(strings.Replace(message(), "\r\n", "\r\n"+line+"\r\n", 1))[0].code(), line)
		}
	})
}

// A field that a middleware in front has changed is not the one that was signed.
func TestChangedFieldsAreRefused(t *testing.T) {
	app := newApp()
	app.Use(func(c *fiber.Ctx) error {
		c.Request().Header.Set(c.Query("set"), "text/plain")
		c.Method(c.Query("method", "POST"))
		return c.Next()
	})
	app.All("/", fiberidem.Verify(verifier()), func(c *fiber.Ctx) error { return c.SendString("reached") })
	s := serve(t, app)
	assert.Equal(t, "reached", s.do(s.signed(demo, "/?set=x-else", "{}")).body)
	assert.Equal(t, "invalid", s.do(s.signed(demo, "/?set=content-type", "{}")).code())
	assert.Equal(t, "invalid", s.do(s.signed(demo, "/?set=x-else&method=DELETE", "{}")).code(), "nobody has signed that it is to be a DELETE")
}

func TestTargets(t *testing.T) {
	app := newApp()
	app.Post("/*", fiberidem.Verify(verifier()), func(c *fiber.Ctx) error { return c.SendString("reached") })
	s := serve(t, app)
	r := s.signed(demo, "/a//b/../%2F?x=+;y", "{}")
	absolute := strings.Replace(wire(t, r), "POST /a", "POST http://"+s.addr+"/a", 1)
	assert.Equal(t, "reached", s.exchange(strings.Replace(absolute, "Host: "+s.addr, "Host: else.example", 1))[0].body)
}

// Nobody has signed a trailer: what is in it is no key.
func TestTrailers(t *testing.T) {
	var read atomic.Value
	for stream, want := range map[bool]string{true: "reached  none", false: "invalid"} {
		app := newApp(fiber.Config{StreamRequestBody: stream})
		app.Post("/", fiberidem.Verify(verifier()), func(c *fiber.Ctx) error {
			read.Store(string(c.Body()))
			return c.SendString("reached " + c.Get("Idempotency-Key") + " " + c.Get("X-Else", "none"))
		})
		s := serve(t, app)
		r := s.signed(demo, "/", "{}")
		r.ContentLength, r.Trailer = -1, http.Header{"Idempotency-Key": {"k"}, "X-Else": {"1"}}
		message := wire(t, r)
		require.Contains(t, message, "\r\nIdempotency-Key: k\r\n")
		got := s.exchange(message, wire(t, s.signed(demo, "/", "next")))
		if code := got[0].code(); code != "" {
			got[0].body = code
		}
		assert.Equal(t, want, got[0].body)
		assert.Equal(t, "reached  none", got[1].body, "the connection goes on")
		assert.Equal(t, "next", read.Load())
	}
}

func TestFormsThatAreGone(t *testing.T) {
	const form = "--b\r\nContent-Disposition: form-data; name=\"sku\"\r\n\r\nA-1\r\n--b--\r\n"
	for _, stream := range []bool{false, true} {
		var why error
		app := newApp(fiber.Config{StreamRequestBody: stream})
		app.Post("/", fiberidem.Verify(verifier(func(c *sign.Config) {
			c.Observe = func(_ context.Context, e sign.Event) { why = e.Err }
		})), func(c *fiber.Ctx) error { return c.SendString("reached") })
		s := serve(t, app)
		r := s.do(s.signed(demo, "/", form, "Content-Type", "multipart/form-data; boundary=b"))
		assert.Equal(t, "malformed", r.code())
		assert.ErrorContains(t, why, "DisablePreParseMultipartForm")
		assert.NotContains(t, r.body, "PreParse")

		chunks := s.signed(demo, "/", form, "Content-Type", "multipart/form-data; boundary=b")
		chunks.ContentLength = -1 // such a form is left alone
		assert.Equal(t, "reached", s.do(chunks).body)
	}
}

// fasthttp sets Date, and lets nobody else set it.
func TestDates(t *testing.T) {
	app := newApp()
	app.Post("/", fiberidem.Verify(verifier(func(c *sign.Config) {
		c.Clock = func() time.Time { return time.Now().Add(-time.Hour) }
	})))
	s := serve(t, app)
	r := s.do(s.signed(demo, "/", "{}"))
	assert.Equal(t, "not_yet_valid", r.code())
	require.Len(t, r.header["Date"], 1)
	date, err := http.ParseTime(r.header.Get("Date"))
	require.NoError(t, err)
	assert.WithinDuration(t, time.Now(), date, time.Minute)
}

// A connection goes on after a refusal, or is closed if somebody would take the rest of a body for
// a request.
func TestConnectionsAfterRefusals(t *testing.T) {
	for _, stream := range []bool{false, true} {
		app := newApp(fiber.Config{StreamRequestBody: stream})
		app.Post("/", fiberidem.Verify(verifier(func(c *sign.Config) { c.BodyLimit = 100 })), func(c *fiber.Ctx) error { return c.Send(c.Body()) })
		s := serve(t, app)
		replies := s.exchange(
			wire(t, s.signed(demo, "/", "first")),
			wire(t, s.signed(forged, "/", "bad")),
			wire(t, s.signed(demo, "/", "second")),
			wire(t, s.signed(demo, "/", strings.Repeat("x", 20_000))))
		assert.Equal(t, "first", replies[0].body)
		assert.Equal(t, "invalid", replies[1].code())
		assert.Equal(t, "second", replies[2].body)
		assert.Equal(t, "body_too_large", replies[3].code())
		assert.Equal(t, stream, replies[3].header.Get("Connection") == "close")

		unread := strings.Replace(wire(t, s.signed(demo, "/", strings.Repeat("x", 20_000))), "X-Signature", "X-Else", 1)
		refused := s.exchange(unread)[0]
		assert.Equal(t, "missing", refused.code())
		assert.Equal(t, stream, refused.header.Get("Connection") == "close")
	}
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

func TestGuardBehindVerify(t *testing.T) {
	inEachMode(t, func(t *testing.T, config fiber.Config) {
		store, err := memstore.New(memstore.Options{})
		require.NoError(t, err)
		claims := &counting{Store: store}
		engine := core.MustNew(core.Config{Store: claims, User: core.UserFromCaller()})
		var runs atomic.Int64
		app := newApp(config)
		app.Post("/:id", fiberidem.Verify(verifier()), fiberidem.New(engine.MustGuard(core.ClientKey())), func(c *fiber.Ctx) error {
			v, _ := fiberidem.Verified(c)
			return c.SendString(fmt.Sprint(v.KeyID, " ", string(c.Body()), runs.Add(1)))
		})
		s := serve(t, app)
		ask := func(key *sign.Key) reply { return s.do(s.signed(key, "/7", "{}", "Idempotency-Key", "k-1")) }
		assert.Equal(t, "invalid", ask(forged).code())
		assert.Equal(t, "missing", s.post("/7", "{}", withKey("k-1")...).code())
		assert.Zero(t, claims.claims.Load(), "a failed signature creates no record")
		assert.Equal(t, "demo {}1", ask(demo).body)
		again := ask(demo)
		assert.Equal(t, "demo {}1", again.body)
		assert.True(t, again.replayed())
		assert.Equal(t, "other {}2", ask(other).body, "another key id is another operation")
	})
}

// The wrong way round, a refusal is not kept.
func TestGuardOutsideOfVerify(t *testing.T) {
	inEachMode(t, func(t *testing.T, config fiber.Config) {
		var runs atomic.Int64
		app := newApp(config)
		app.Post("/", fiberidem.New(newEngine(t).MustGuard(core.ClientKey())), fiberidem.Verify(verifier()), func(c *fiber.Ctx) error {
			return c.SendString(fmt.Sprint(string(c.Body()), runs.Add(1)))
		})
		s := serve(t, app)
		ask := func(key *sign.Key) reply { return s.do(s.signed(key, "/", "{}", "Idempotency-Key", "k-1")) }
		assert.Equal(t, "invalid", ask(forged).code())
		assert.Equal(t, "{}1", ask(demo).body)
		assert.Equal(t, "{}1", ask(demo).body)
		assert.EqualValues(t, 1, runs.Load())
	})
}

// A limit that is none must not overflow; and Verify may be mounted twice, by two services of one app.
func TestLargestBodyLimit(t *testing.T) {
	inEachMode(t, func(t *testing.T, config fiber.Config) {
		none := func(c *sign.Config) { c.BodyLimit = math.MaxInt64 }
		app := newApp(config)
		app.Use(fiberidem.Verify(verifier(none)))
		app.Post("/", fiberidem.Verify(verifier(none)), func(c *fiber.Ctx) error { return c.Send(c.Body()) })
		s := serve(t, app)
		r := s.signed(demo, "/", "{}")
		r.ContentLength = -1
		assert.Equal(t, "{}", s.do(r).body)
	})
}

// Errors go to the ErrorHandler as they are, and the user context is given back, also after
// a panic.
func TestContextIsRestored(t *testing.T) {
	type mark struct{}
	app := newApp(fiber.Config{ErrorHandler: func(c *fiber.Ctx, err error) error { return c.Status(418).SendString(err.Error()) }})
	app.Use(func(c *fiber.Ctx) (err error) {
		outer := context.WithValue(context.Background(), mark{}, 1)
		c.SetUserContext(outer)
		defer func() {
			if v := recover(); v != nil {
				err = errors.New("recovered")
			}
			assert.Equal(t, outer, c.UserContext())
			_, ok := fiberidem.Verified(c)
			assert.False(t, ok)
		}()
		return c.Next()
	})
	app.Post("/", fiberidem.Verify(verifier()), func(c *fiber.Ctx) error {
		assert.Equal(t, 1, c.UserContext().Value(mark{}))
		if c.Query("panic") != "" {
			panic("boom")
		}
		return errors.New("ours")
	})
	s := serve(t, app)
	assert.Equal(t, "ours", s.do(s.signed(demo, "/", "{}")).body)
	assert.Equal(t, "recovered", s.do(s.signed(demo, "/?panic=1", "{}")).body)
}

// What goes into a context is kept by handlers: it must not point into memory that fasthttp uses
// for the next request.
func TestWhatIsVerifiedMayBeKept(t *testing.T) {
	var mu sync.Mutex
	kept := map[string]context.Context{}
	app := newApp()
	app.Post("/", fiberidem.Verify(verifier()), func(c *fiber.Ctx) error {
		mu.Lock()
		defer mu.Unlock()
		kept[strings.Clone(c.Get("X-Nonce"))] = c.UserContext()
		return nil
	})
	s := serve(t, app)
	keys := map[string]string{}
	var wg sync.WaitGroup
	for i := range 64 {
		key := demo
		if i%2 == 1 {
			key = other
		}
		r := s.signed(key, "/", strings.Repeat("x", i*10))
		keys[r.Header.Get("X-Nonce")] = key.ID()
		wg.Go(func() {
			got := s.do(r)
			assert.NoError(t, got.err)
			assert.Equal(t, 200, got.status)
		})
	}
	wg.Wait()
	assert.Len(t, kept, 64)
	for nonce, ctx := range kept {
		v, _ := sign.From(ctx)
		caller, _ := core.CallerFrom(ctx)
		assert.Equal(t, []string{nonce, keys[nonce], keys[nonce]}, []string{v.Nonce, v.KeyID, caller})
	}
}

// BenchmarkVerify is Fiber with Verify, with 200 bytes of body.
func BenchmarkVerify(b *testing.B) {
	body := `{"note":"` + strings.Repeat("n", 189) + `"}`
	v := verifier(func(c *sign.Config) { c.Nonces = everNew{} })
	reached := 0
	app := newApp()
	app.Post("/transfers", fiberidem.Verify(v), func(*fiber.Ctx) error { reached++; return nil })
	r, err := http.NewRequest("POST", "http://example.com/transfers?x=2", strings.NewReader(body))
	require.NoError(b, err)
	r.Header.Set("Content-Type", "application/json")
	require.NoError(b, sign.Request(r, demo, nil))
	var c fasthttp.RequestCtx
	require.NoError(b, c.Request.Read(bufio.NewReader(strings.NewReader(wire(b, r)))))
	handler := app.Handler()
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		handler(&c)
	}
	require.Equal(b, n, reached)
}

// everNew has seen no nonce yet.
type everNew struct{}

func (everNew) Use(context.Context, string, string, time.Duration) (bool, error) { return true, nil }
