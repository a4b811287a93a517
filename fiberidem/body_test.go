package fiberidem_test

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	"mime/multipart"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/fiberidem"
	"github.com/idem-go/idem/internal/fibertest"
	"github.com/idem-go/idem/internal/race"
	"github.com/idem-go/idem/sign/signtest"
)

// allocated returns how many bytes f allocates, whether they are freed or not.
func allocated(f func()) int64 {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which empties pools
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// streamed is a request whose body fasthttp hands on as a stream.
func streamed(body io.Reader, length int) *fasthttp.RequestCtx {
	ctx := fibertest.NewRequestCtx("POST", "/", "")
	ctx.Request.SetBodyStream(struct{ io.Reader }{body}, length)
	return ctx
}

// However many on the way need the whole body of a stream, it is in memory once, beside the
// 64 KiB that its first bytes were read into.
func TestAllocationsOfTheBody(t *testing.T) {
	race.Skip(t, "the race detector makes allocations of its own")
	const requests, first = 20, 64 << 10
	for name, guards := range map[string]int{"guard": 1, "two guards": 2} {
		for _, size := range []int{32 << 10, 64 << 10, 100_000, 1 << 20} {
			t.Run(fmt.Sprint(name, size), func(t *testing.T) {
				app := newApp()
				for range guards {
					app.Use(mounted(t, core.Policy{}))
				}
				read := 0
				chunk := make([]byte, 4096)
				app.Post("/", func(c *fiber.Ctx) error {
					for {
						n, err := c.Context().RequestBodyStream().Read(chunk)
						read += n
						if err != nil {
							return nil
						}
					}
				})
				serve := app.Handler()
				var all []*fasthttp.RequestCtx
				for range requests + 1 {
					all = append(all, streamed(strings.NewReader(rand.Text()+strings.Repeat("x", size-26)), size))
				}
				serve(all[0]) // fills the pools
				read = 0
				n := allocated(func() {
					for _, ctx := range all[1:] {
						serve(ctx)
					}
				}) / requests
				require.Equal(t, requests*size, read)
				const page, rest = 8 << 10, 12_000 // what is large is allocated in pages
				want := (size + page - 1) / page * page
				if size > first {
					want += first
				}
				assert.LessOrEqual(t, n, int64(want+rest))
			})
		}
	}
}

// A client pays with bytes for the memory that its Content-Length gets.
func TestAContentLengthBuysNoMemory(t *testing.T) {
	for _, sent := range []int{0, 1, 1000, 64 << 10, 64<<10 + 1, 1 << 20} {
		app := newApp()
		app.Post("/", mounted(t, core.Policy{BodyLimit: 1 << 50}), func(*fiber.Ctx) error {
			panic("there is no whole body")
		})
		serve := app.Handler()
		for _, end := range []error{errors.New("the client has gone"), io.EOF} {
			least := int64(math.MaxInt64) // of a few: other goroutines allocate, too
			for range 3 {
				ctx := streamed(io.MultiReader(bytes.NewReader(make([]byte, sent)), iotest.ErrReader(end)), 1<<40)
				least = min(least, allocated(func() { serve(ctx) }))
				assert.Equal(t, 400, ctx.Response.StatusCode())
			}
			assert.LessOrEqual(t, least, int64(80<<10+18*sent), "for %d bytes", sent)
		}
	}
}

func compressed(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	return b.String()
}

// What Verify has left of a stream is used as it is, whoever has read of it in between; what somebody
// has put in its place counts.
func TestTheBodyBetweenVerifyAndGuard(t *testing.T) {
	const limit = 100_000
	const reversed = "desrever"
	type outcome struct {
		status    int
		key, body string
	}
	whole := func(sent string) outcome { return outcome{200, sent, sent} }
	other := func(string) outcome { return outcome{200, reversed, reversed} }
	for _, between := range []struct {
		name string
		do   func(r *fasthttp.Request)
		want func(sent string) outcome
	}{
		{"nothing", func(*fasthttp.Request) {}, whole},
		{"somebody who reads it as a whole", func(r *fasthttp.Request) { _ = r.Body() }, whole},
		{"another body", func(r *fasthttp.Request) { r.SetBodyString(reversed) }, other},
		{"another stream", func(r *fasthttp.Request) {
			r.SetBodyStream(strings.NewReader(reversed), len(reversed))
		}, other},
		{"another stream, of no known length", func(r *fasthttp.Request) {
			r.SetBodyStream(strings.NewReader(reversed), -1)
		}, other},
		{"a longer stream than it says", func(r *fasthttp.Request) {
			r.SetBodyStream(strings.NewReader(reversed), 3)
		}, other},
		{"a stream over the limit", func(r *fasthttp.Request) {
			r.SetBodyStream(strings.NewReader(strings.Repeat("x", limit+1)), 3)
		}, func(string) outcome { return outcome{status: 413} }},
		{"a peek", func(r *fasthttp.Request) { _, _ = r.BodyStream().Read(make([]byte, 4)) }, whole},
		{"a reader of all of it", func(r *fasthttp.Request) { _, _ = io.Copy(io.Discard, r.BodyStream()) }, whole},
	} {
		for _, size := range []int{10, 1000, 60_000, limit} {
			for _, chunked := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%d/%t", between.name, size, chunked), func(t *testing.T) {
					var got outcome
					policy := core.Policy{BodyLimit: limit, Key: core.Func(func(r *adapter.Request) (string, error) {
						got.key = string(r.Body)
						return "k", nil
					})}
					app := newApp(fiber.Config{StreamRequestBody: true})
					app.Post("/", fiberidem.Verify(signtest.NewVerifier()), func(c *fiber.Ctx) error {
						between.do(c.Request())
						return c.Next()
					}, mounted(t, policy), func(c *fiber.Ctx) error {
						got.body = string(c.BodyRaw())
						return nil
					})
					s := serve(t, app)
					sent := rand.Text()[:8] + strings.Repeat("x", size-8)
					r := s.Signed(signtest.Demo, "/", sent)
					if chunked {
						r.ContentLength = -1
					}
					got.status = s.Do(r).Status
					assert.Equal(t, between.want(sent), got)
				})
			}
		}
	}
}

// A form that was read from the stream in front counts as it was parsed, as if nobody had read it; any other body is refused.
// The connection serves the next request, or ends.
func TestAStreamThatWasReadInFront(t *testing.T) {
	form := func(n int) (media, body string) {
		var b bytes.Buffer
		w := multipart.NewWriter(&b)
		_ = w.SetBoundary("b")
		file, _ := w.CreateFormFile("f", "a.txt")
		_, _ = io.WriteString(file, strings.Repeat("x", n))
		_ = w.WriteField("a", "1")
		_ = w.Close()
		return w.FormDataContentType(), b.String() + "\r\n" + strings.Repeat("epilogue", n/8)
	}
	value := func(c *fiber.Ctx) { _ = c.FormValue("a") }
	peek := func(c *fiber.Ctx) { _, _ = io.ReadFull(c.Request().BodyStream(), make([]byte, 4)) }
	for _, size := range []int{1, 10_000, 200_000} {
		multi, parts := form(size)
		long := "a=" + strings.Repeat("x", size)
		for _, tc := range []struct {
			name, media, body string
			do                func(*fiber.Ctx)
			status, chunked   int
			encoding          string
		}{
			{"a form", "application/x-www-form-urlencoded", long, value, 200, 200, ""},
			{"a form in parts", multi, parts, value, 200, 500, ""},
			{"a compressed form in parts", multi, compressed(parts), value, 500, 500, "gzip"},
			{"a body", "text/plain", long, func(c *fiber.Ctx) { _ = c.Body() }, 200, 200, ""},
			{"a peek", "text/plain", long + "y", peek, 500, 500, ""},
			{"a peek at a form", multi, parts, peek, 500, 500, ""},
			{"all of it", "text/plain", long, func(c *fiber.Ctx) { _, _ = io.Copy(io.Discard, c.Request().BodyStream()) }, 500, 500, ""},
			{"all of a form", multi, parts, func(c *fiber.Ctx) { _, _ = io.Copy(io.Discard, c.Request().BodyStream()) }, 500, 500, ""},
		} {
			for _, chunked := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%d/%t", tc.name, size, chunked), func(t *testing.T) {
					app := newApp(fiber.Config{StreamRequestBody: true, DisablePreParseMultipartForm: true})
					runs := 0
					app.Post("/", func(c *fiber.Ctx) error {
						if c.Get("X-Unread") == "" {
							tc.do(c)
						}
						return c.Next()
					}, mounted(t, core.Policy{}), func(c *fiber.Ctx) error {
						runs++
						return c.SendString(fmt.Sprint(runs, len(c.FormValue("a"))))
					})
					s := serve(t, app)
					post := func(unread string) fibertest.Reply {
						r, err := http.NewRequest("POST", "http://"+s.Addr+"/", strings.NewReader(tc.body))
						require.NoError(t, err)
						for name, value := range map[string]string{"Content-Type": tc.media,
							"Content-Encoding": tc.encoding, "X-Unread": unread} {
							if value != "" {
								r.Header.Set(name, value)
							}
						}
						if chunked {
							r.ContentLength = -1
						}
						return s.Do(r)
					}
					want := tc.status
					if chunked {
						want = tc.chunked
					}
					first := post("")
					require.Equal(t, want, first.Status, first.Body)
					if want != 200 {
						assert.Contains(t, first.Body, `"code":"body_consumed"`)
						assert.Zero(t, runs)
						return
					}
					again := post("1")
					assert.Equal(t, first.Body, again.Body)
					assert.Equal(t, 1, runs)
				})
			}
		}
	}
}
