package httpidem_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/internal/allocs"
	"github.com/idem-go/idem/internal/race"
	"github.com/idem-go/idem/sign/signtest"
)

type middleware = func(http.Handler) http.Handler

// through puts handlers behind each other, the outermost first.
func through(h http.Handler, mw ...middleware) http.Handler {
	for i := len(mw) - 1; i >= 0; i-- {
		h = mw[i](h)
	}
	return h
}

// allocated returns how many bytes f allocates, whether they are freed or not.
func allocated(f func()) int64 {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which empties pools
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// However many on the way need the whole body, it is in memory once, and nothing is left behind
// on the way there.
func TestAllocationsOfTheBody(t *testing.T) {
	race.Skip(t, "sync.Pool drops what it is given at random under the race detector")
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // else a pool is empty where the goroutine goes on after a pause
	const requests = 20
	for name, mw := range map[string][]middleware{
		"guard":            {httpidem.New(guard(core.Policy{}))},
		"Verify":           {httpidem.Verify(signtest.NewVerifier())},
		"Verify and guard": {httpidem.Verify(signtest.NewVerifier()), httpidem.New(guard(core.Policy{}))},
		"two guards":       {httpidem.New(guard(core.Policy{})), httpidem.New(guard(core.Policy{}))},
	} {
		for _, size := range []int{32 << 10, 64 << 10, 100_000, 1 << 20} {
			t.Run(fmt.Sprint(name, size), func(t *testing.T) {
				chunk := make([]byte, 4096)
				read := 0
				h := through(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					for {
						n, err := r.Body.Read(chunk)
						read += n
						if err != nil {
							return
						}
					}
				}), mw...)
				serve := func(h http.Handler) int64 {
					var all []*http.Request
					for range requests + 1 {
						r := signtest.NewRequest(t, signtest.Demo, "http://shop.test/",
							rand.Text()+strings.Repeat("x", size-26), "X-User", "alice")
						all = append(all, r)
					}
					w := allocs.Writer{}
					h.ServeHTTP(w, all[0]) // fills the pools
					read = 0
					n := allocated(func() {
						for _, r := range all[1:] {
							h.ServeHTTP(w, r)
						}
					})
					require.Equal(t, requests*size, read)
					return n / requests
				}
				bare := serve(through(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					n, _ := io.CopyBuffer(io.Discard, struct{ io.Reader }{r.Body}, chunk)
					read += int(n)
				})))
				const page, rest = 8 << 10, 12_000 // what is large is allocated in pages
				assert.LessOrEqual(t, serve(h)-bare, int64((size+page-1)/page*page+rest))
			})
		}
	}
}

// A client pays with bytes for the memory that its Content-Length gets.
func TestAContentLengthBuysNoMemory(t *testing.T) {
	for _, sent := range []int{0, 1, 1000, 64 << 10, 64<<10 + 1, 1 << 20} {
		least := int64(math.MaxInt64) // of a few: other goroutines allocate, too
		for range 3 {
			var q adapterkit.Exchange
			r := httptest.NewRequest("POST", "/", nil)
			gone := errors.New("the client has gone")
			r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(make([]byte, sent)), errorReader{gone}))
			r.ContentLength = 1 << 40
			q.Start(nil, r)
			least = min(least, allocated(func() {
				_, err := q.ReadBody(1 << 50)
				require.ErrorIs(t, err, gone)
			}))
		}
		assert.LessOrEqual(t, least, int64(68<<10+18*sent), "for %d bytes", sent)
	}
}

// What Verify has left is used as it is, whoever has read of it in between; what somebody has put
// in its place counts.
func TestTheBodyBetweenVerifyAndGuard(t *testing.T) {
	const limit = 100_000
	type outcome struct {
		status            int
		key, body, gotten string
		length            int64
	}
	const reversed = "desrever"
	whole := func(sent string) outcome { return outcome{200, sent, sent, sent, int64(len(sent))} }
	for _, between := range []struct {
		name string
		do   func(r *http.Request)
		want func(sent string) outcome
	}{
		{"nothing", func(*http.Request) {}, whole},
		{"another body", func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(reversed)), int64(len(reversed))
		}, func(string) outcome { return outcome{200, reversed, reversed, reversed, int64(len(reversed))} }},
		{"another body, of no known length", func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(reversed)), -1
		}, func(string) outcome { return outcome{200, reversed, reversed, reversed, int64(len(reversed))} }},
		{"another body, and the old length", func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(reversed)) },
			func(string) outcome { return outcome{200, reversed, reversed, reversed, int64(len(reversed))} }},
		{"no body", func(r *http.Request) { r.Body, r.ContentLength = http.NoBody, 0 },
			func(string) outcome { return outcome{status: 200} }},
		{"the body again", func(r *http.Request) { r.Body, _ = r.GetBody() }, whole},
		{"a limit that fits", func(r *http.Request) { r.Body = http.MaxBytesReader(nil, r.Body, limit) }, whole},
		{"a limit that does not", func(r *http.Request) { r.Body = http.MaxBytesReader(nil, r.Body, 5) },
			func(string) outcome { return outcome{status: 413} }},
		{"a peek", func(r *http.Request) { _, _ = io.ReadFull(r.Body, make([]byte, 4)) }, whole},
		{"a reader of all of it", func(r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }, whole},
		{"a reader behind a limit", func(r *http.Request) {
			r.Body = http.MaxBytesReader(nil, r.Body, limit)
			_, _ = io.Copy(io.Discard, r.Body)
		}, func(string) outcome { return outcome{status: 500} }},
		{"a peek behind a limit", func(r *http.Request) {
			r.Body = http.MaxBytesReader(nil, r.Body, limit)
			_, _ = io.ReadFull(r.Body, make([]byte, 4))
		}, func(string) outcome { return outcome{status: 500} }},
		{"somebody who closes it", func(r *http.Request) { r.Body.Close() }, whole},
	} {
		for _, size := range []int{10, 1000, 60_000, limit} {
			for _, chunked := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%d/%t", between.name, size, chunked), func(t *testing.T) {
					var got outcome
					policy := core.Policy{BodyLimit: limit, Key: core.Func(func(r *adapter.Request) (string, error) {
						got.key = string(r.Body)
						hook, err := io.ReadAll(r.Native.(*http.Request).Body)
						assert.NoError(t, err)
						assert.Equal(t, got.key, string(hook))
						return "k", nil
					})}
					h := through(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
						got.length = r.ContentLength
						b, err := io.ReadAll(r.Body)
						assert.NoError(t, err)
						got.body = string(b)
						if r.GetBody != nil {
							again, _ := r.GetBody()
							b, _ = io.ReadAll(again)
							got.gotten = string(b)
						}
					}), httpidem.Verify(signtest.NewVerifier()), func(next http.Handler) http.Handler {
						return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
							between.do(r)
							left := r.Body
							next.ServeHTTP(w, r)
							assert.True(t, left == r.Body, "it gets its body back")
							n, _ := left.Read(make([]byte, 1))
							assert.Zero(t, n, "which has been read")
						})
					}, httpidem.New(guard(policy)))
					s := server(t, h)
					sent := rand.Text()[:8] + strings.Repeat("x", size-8)
					r := signed(t, s, signtest.Demo, "/", sent, "X-User", "alice")
					if chunked {
						r.ContentLength = -1
					}
					got.status = send(t, s, r).status
					want := between.want(sent)
					if want.status == 200 && want.body == "" {
						got.gotten, want.gotten = "", ""
					}
					assert.Equal(t, want, got)
				})
			}
		}
	}
}

func TestABodyOverTheGuardsLimitButNotVerifys(t *testing.T) {
	ran := false
	h := through(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran = true }),
		httpidem.Verify(signtest.NewVerifier()), func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.ContentLength = -1 // only the bytes tell
				next.ServeHTTP(w, r)
			})
		}, httpidem.New(guard(core.Policy{BodyLimit: 10})))
	s := server(t, h)
	r := send(t, s, signed(t, s, signtest.Demo, "/", "12345678901", "X-User", "alice"))
	require.Equal(t, 413, r.status)
	require.Equal(t, "body_too_large", r.code())
	require.False(t, ran)
}
