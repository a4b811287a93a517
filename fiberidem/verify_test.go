package fiberidem_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/fiberidem"
	"github.com/idem-go/idem/internal/fibertest"
	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/signtest"
)

func inEachMode(t *testing.T, test func(t *testing.T, config fiber.Config)) {
	for name, config := range fibertest.Modes {
		t.Run(name, func(t *testing.T) { test(t, configOf(config)) })
	}
}

// wire is what r looks like on the connection.
func wire(t testing.TB, r *http.Request) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, r.Write(&b))
	return b.String()
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
		app.Post("/:how/*", fiberidem.Verify(signtest.NewVerifier()), func(c *fiber.Ctx) error {
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
			r := s.Signed(signtest.Demo, path, tc.body, fields...)
			assert.Equal(t, "true demo demo "+tc.want, s.Do(r).Body, "%s %s", tc.how, tc.contentType)
			r = s.Signed(signtest.Demo, path, tc.body, fields...)
			r.ContentLength = -1
			assert.Equal(t, "true demo demo "+tc.want, s.Do(r).Body, "%s %s, in chunks", tc.how, tc.contentType)
		}
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
		app.Post("/", fiberidem.Verify(signtest.NewVerifier()))
		app.Post("/", func(c *fiber.Ctx) error { return c.SendString(c.Get("User-Agent")) })
		s := serve(t, app)
		fields := []string{"User-Agent", "ours/1", "Cookie", "a=1;b=2;  a=3", "Content-Type", ""}
		message := func() string { return wire(t, s.Signed(signtest.Demo, "/", "{}", fields...)) }
		assert.Equal(t, "ours/1", s.Exchange(message())[0].Body)
		for _, line := range []string{"User-Agent: theirs/1", "Cookie: c=4", "user-agent: ours/1", "content-type: text/plain"} {
			assert.Equal(t, "duplicate_header", s.Exchange(strings.Replace(message(), "\r\n\r\n", "\r\n"+line+"\r\n\r\n", 1))[0].Code(), line)
			assert.Equal(t, "duplicate_header", s.Exchange(strings.Replace(message(), "\r\n", "\r\n"+line+"\r\n", 1))[0].Code(), line)
		}
	})
}

// fasthttp shows both the Host line and the target, and goes by the target: what names two hosts is refused.
func TestHostsThatDiffer(t *testing.T) {
	inEachMode(t, func(t *testing.T, config fiber.Config) {
		app := newApp(config)
		app.Post("/*", fiberidem.Verify(signtest.NewVerifier()), func(c *fiber.Ctx) error { return c.SendString(c.Hostname()) })
		s := serve(t, app)
		for target, want := range map[string]string{
			"/t":                          "a.example.com",
			"http://a.example.com/t":      "a.example.com",
			"http://b.example.com/t":      "malformed",
			"//b.example.com/t":           "a.example.com",
			"//b.example.com/http://c/t":  "malformed",
			"/t?u=http://b.example.com/t": "a.example.com",
		} {
			r := signtest.NewRequest(t, nil, "http://a.example.com/", "{}")
			if path, ok := strings.CutPrefix(target, "//"); ok {
				r.URL.Path = "//" + path // which would get a scheme
			} else {
				r.URL.Opaque = target
			}
			require.NoError(t, sign.Request(r, signtest.Demo, sign.RequestOptions{}))
			message := wire(t, r)
			require.Contains(t, message, "POST "+target+" HTTP/1.1\r\nHost: a.example.com\r\n")
			got := s.Exchange(message)[0]
			if code := got.Code(); code != "" {
				got.Body = code
			}
			assert.Equal(t, want, got.Body, target)
		}
	})
}

// Nobody has signed a trailer: what is in it is no key.
func TestTrailers(t *testing.T) {
	var read atomic.Value
	for stream, want := range map[bool]string{true: "reached  none", false: "invalid"} {
		app := newApp(fiber.Config{StreamRequestBody: stream})
		app.Post("/", fiberidem.Verify(signtest.NewVerifier()), func(c *fiber.Ctx) error {
			read.Store(string(c.Body()))
			return c.SendString("reached " + c.Get("Idempotency-Key") + " " + c.Get("X-Else", "none"))
		})
		s := serve(t, app)
		r := s.Signed(signtest.Demo, "/", "{}")
		r.ContentLength, r.Trailer = -1, http.Header{"Idempotency-Key": {"k"}, "X-Else": {"1"}}
		message := wire(t, r)
		require.Contains(t, message, "\r\nIdempotency-Key: k\r\n")
		got := s.Exchange(message, wire(t, s.Signed(signtest.Demo, "/", "next")))
		if code := got[0].Code(); code != "" {
			got[0].Body = code
		}
		assert.Equal(t, want, got[0].Body)
		assert.Equal(t, "reached  none", got[1].Body, "the connection goes on")
		assert.Equal(t, "next", read.Load())
	}
}

// fasthttp sets Date, and lets nobody else set it.
func TestDates(t *testing.T) {
	app := newApp()
	app.Post("/", fiberidem.Verify(signtest.NewVerifier(func(c *sign.Config) {
		c.Clock = func() time.Time { return time.Now().Add(-time.Hour) }
	})))
	s := serve(t, app)
	r := s.Do(s.Signed(signtest.Demo, "/", "{}"))
	assert.Equal(t, "not_yet_valid", r.Code())
	require.Len(t, r.Header["Date"], 1)
	date, err := http.ParseTime(r.Header.Get("Date"))
	require.NoError(t, err)
	assert.WithinDuration(t, time.Now(), date, time.Minute)
}

// Signed are values without the white space around them: either fasthttp takes it away, or a handler would get what was not signed.
func TestTabsAroundSignedFields(t *testing.T) {
	inEachMode(t, func(t *testing.T, config fiber.Config) {
		app := newApp(config)
		app.Post("/", fiberidem.Verify(signtest.NewVerifier()), func(c *fiber.Ctx) error {
			return c.SendString(fmt.Sprintf("%q %q %q", c.Get("X-User"), c.Get("Content-Type"), c.Get("Cookie")))
		})
		s := serve(t, app)
		const reached = `"bob" "application/json" "s=bob"`
		for name, value := range map[string]string{"X-User": "bob", "Content-Type": "application/json", "Cookie": "s=bob"} {
			message := wire(t, s.Signed(signtest.Demo, "/", "{}", "X-User", "bob", "Cookie", "s=bob"))
			require.Equal(t, reached, s.Exchange(message)[0].Body)
			message = wire(t, s.Signed(signtest.Demo, "/", "{}", "X-User", "bob", "Cookie", "s=bob"))
			message = strings.Replace(message, name+": "+value+"\r\n", name+": \t"+value+"\r\n", 1)
			require.Contains(t, message, "\t")
			if got := s.Exchange(message)[0]; keepsTabs() {
				require.Equal(t, "malformed", got.Code(), name)
			} else {
				require.Equal(t, reached, got.Body, name)
			}
		}
	})
}

// keepsTabs reports whether this version of fasthttp leaves tabs around values.
func keepsTabs() bool {
	var h fasthttp.RequestHeader
	_ = h.Read(bufio.NewReader(strings.NewReader("GET / HTTP/1.1\r\nHost: a\r\nX-A: \tx\r\n\r\n")))
	return string(h.Peek("X-A")) == "\tx"
}

// What others in front have taken out of the header stays what it was.
func TestVerifyLeavesTheHeaderAlone(t *testing.T) {
	inEachMode(t, func(t *testing.T, config fiber.Config) {
		app := newApp(config)
		var before, after []string
		app.Use(func(c *fiber.Ctx) error {
			look := func() (seen []string) {
				c.Request().Header.VisitAll(func(name, value []byte) { seen = append(seen, string(name)+":"+string(value)) })
				return seen
			}
			tenant := c.Get("X-Tenant")
			before = append(look(), strings.Clone(tenant))
			err := c.Next()
			after = append(look(), strings.Clone(tenant))
			return err
		})
		app.Post("/", fiberidem.Verify(signtest.NewVerifier()), func(c *fiber.Ctx) error { return c.SendString("reached") })
		s := serve(t, app)
		for _, chunked := range []bool{false, true} {
			r := s.Signed(signtest.Demo, "/", "{}", "X-User", "bob")
			if chunked {
				r.ContentLength = -1
			}
			message := strings.Replace(wire(t, r), "\r\n", "\r\nA: \tx\r\nX-Tenant: alice\r\nX-Other: mallo\r\nX-Tenant: \tmallo\r\n", 1)
			require.Equal(t, "reached", s.Exchange(message)[0].Body)
			// The length of a body in chunks is known when it has been read.
			ignore := func(field string) bool {
				return strings.HasPrefix(field, "Content-Length:") || strings.HasPrefix(field, "Transfer-Encoding:")
			}
			require.Equal(t, slices.DeleteFunc(before, ignore), slices.DeleteFunc(after, ignore))
		}
	})
}

// Without StreamRequestBody, fasthttp makes a part of the header of a trailer before anybody sees it.
func TestATrailerAddsNothingToASignedCookie(t *testing.T) {
	for stream, want := range map[bool]string{true: "s=bob", false: "duplicate_header"} {
		app := newApp(fiber.Config{StreamRequestBody: stream})
		app.Post("/", fiberidem.Verify(signtest.NewVerifier()), func(c *fiber.Ctx) error { return c.SendString("s=" + c.Cookies("s") + c.Cookies("admin")) })
		s := serve(t, app)
		r := s.Signed(signtest.Demo, "/", "{}", "Cookie", "s=bob")
		r.ContentLength, r.Trailer = -1, http.Header{"Cookie": {"admin=1"}}
		got := s.Exchange(wire(t, r))[0]
		if code := got.Code(); code != "" {
			got.Body = code
		} else if got.Status == 400 && strings.Contains(got.Body, "forbidden trailer") {
			continue // newer versions of fasthttp refuse it
		}
		require.Equal(t, want, got.Body)
	}
}
