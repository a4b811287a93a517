package benchmarks

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/labstack/echo/v4"
	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store/memstore"
	"github.com/idem-go/idem/echoidem"
	"github.com/idem-go/idem/fiberidem"
	"github.com/idem-go/idem/ginidem"
	"github.com/idem-go/idem/httpidem"
)

// body is the 200-byte JSON body; the digits of its "nonce2" member are overwritten to make
// distinct operations.
var body = func() []byte {
	b := []byte(`{"order":{"sku":"A-1001","qty":3,"price":19.90},"customer":{"id":9007199254740993,"note":"leave at the door"},"nonce2":"0000000000","fill":"`)
	return append(b, strings.Repeat("x", 198-len(b))+`"}`...)
}()

var (
	nonceAt  = bytes.Index(body, []byte("0000000000"))
	answered = []byte(`{"order_id":"ord-0001","status":"created"}`)
)

// workload is one framework with one way to be guarded: send sends one request. A nil key
// sends none; number goes into the body.
type workload struct {
	send     func(key string, number int)
	executed *int
}

// guard says how the route is protected; nil: it is bare.
type guard func(store core.Store) *core.Guard

func clientKey(store core.Store) *core.Guard {
	return engine(store).MustGuard(core.ClientKey())
}

func parameterKey(store core.Store) *core.Guard {
	return engine(store).MustGuard(core.Policy{})
}

func engine(store core.Store) *core.Engine {
	return core.MustNew(core.Config{Store: store, User: core.UserFromHeader("X-User")})
}

var frameworks = []struct {
	name  string
	build func(g *core.Guard) workload
}{
	{"nethttp", func(g *core.Guard) workload {
		executed := 0
		var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			executed++
			drain(r.Body)
			w.Header()["Content-Type"] = contentType
			w.WriteHeader(http.StatusCreated)
			w.Write(answered)
		})
		if g != nil {
			h = httpidem.New(g)(h)
		}
		mux := http.NewServeMux()
		mux.Handle("POST /orders", h)
		return overHTTP(mux, &executed)
	}},
	{"gin", func(g *core.Guard) workload {
		executed := 0
		gin.SetMode(gin.ReleaseMode)
		r := gin.New()
		handlers := []gin.HandlerFunc{func(c *gin.Context) {
			executed++
			drain(c.Request.Body)
			c.Writer.Header()["Content-Type"] = contentType
			c.Writer.WriteHeader(http.StatusCreated)
			c.Writer.Write(answered)
		}}
		if g != nil {
			handlers = append([]gin.HandlerFunc{ginidem.New(g)}, handlers...)
		}
		r.POST("/orders", handlers...)
		return overHTTP(r, &executed)
	}},
	{"echo", func(g *core.Guard) workload {
		executed := 0
		e := echo.New()
		var mw []echo.MiddlewareFunc
		if g != nil {
			mw = append(mw, echoidem.New(g))
		}
		e.POST("/orders", func(c echo.Context) error {
			executed++
			drain(c.Request().Body)
			c.Response().Header()["Content-Type"] = contentType
			c.Response().WriteHeader(http.StatusCreated)
			_, err := c.Response().Write(answered)
			return err
		}, mw...)
		return overHTTP(e, &executed)
	}},
	{"fiber", func(g *core.Guard) workload {
		executed := 0
		app := fiber.New()
		handlers := []fiber.Handler{func(c *fiber.Ctx) error {
			executed++
			c.Set("Content-Type", "application/json")
			return c.Status(http.StatusCreated).Send(answered)
		}}
		if g != nil {
			handlers = append([]fiber.Handler{fiberidem.New(g)}, handlers...)
		}
		app.Post("/orders", handlers...)
		handler := app.Handler()
		var ctx fasthttp.RequestCtx
		payload := bytes.Clone(body)
		return workload{executed: &executed, send: func(key string, number int) {
			ctx.Request.Reset()
			ctx.Response.Reset()
			ctx.ResetUserValues()
			ctx.Request.Header.SetMethod("POST")
			ctx.Request.SetRequestURI("/orders")
			ctx.Request.Header.Set("X-User", "alice")
			ctx.Request.Header.SetContentType("application/json")
			if key != "" {
				ctx.Request.Header.Set("Idempotency-Key", key)
			}
			writeNumber(payload, number)
			ctx.Request.SetBodyRaw(payload)
			handler(&ctx)
			check(ctx.Response.StatusCode())
		}}
	}},
}

var contentType = []string{"application/json"}

// overHTTP sends requests to h that cost nothing to make.
func overHTTP(h http.Handler, executed *int) workload {
	payload := bytes.Clone(body)
	reader := bytes.NewReader(nil)
	w := &nullWriter{header: make(http.Header, 8)}
	keys := []string{""}
	header := http.Header{"X-User": {"alice"}, "Content-Type": contentType}
	target := &url.URL{Path: "/orders"}
	var req http.Request
	blank := http.Request{Method: "POST", URL: target, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Host: "shop.example", RemoteAddr: "192.0.2.1:1234", RequestURI: "/orders", ContentLength: int64(len(payload))}
	closer := io.NopCloser(reader)
	return workload{executed: executed, send: func(key string, number int) {
		writeNumber(payload, number)
		reader.Reset(payload)
		req = blank
		req.Body = closer
		if key != "" {
			keys[0] = key
			header["Idempotency-Key"] = keys
		}
		clear(w.header)
		h.ServeHTTP(w, &req)
		check(w.status)
	}}
}

func check(status int) {
	if status != http.StatusCreated {
		panic("answered with " + strconv.Itoa(status))
	}
}

func writeNumber(payload []byte, number int) {
	for i := nonceAt + 9; i >= nonceAt; i-- {
		payload[i] = byte('0' + number%10)
		number /= 10
	}
}

// nullWriter keeps the status and drops the rest.
type nullWriter struct {
	header http.Header
	status int
}

func (w *nullWriter) Header() http.Header         { return w.header }
func (w *nullWriter) WriteHeader(status int)      { w.status = status }
func (w *nullWriter) Write(b []byte) (int, error) { return len(b), nil }

// drain reads a body without an allocation of its own. The benchmarks run one at a time.
func drain(r io.Reader) {
	for {
		if _, err := r.Read(drained[:]); err != nil {
			return
		}
	}
}

var drained [512]byte

func BenchmarkFrameworks(b *testing.B) {
	if len(body) != 200 {
		b.Fatalf("the body has %d bytes", len(body))
	}
	for _, fw := range frameworks {
		b.Run(fw.name+"/bare", func(b *testing.B) {
			w := fw.build(nil)
			run(b, w, func(int) string { return "" }, 0, everyTime)
		})
		for _, way := range []struct {
			name  string
			guard guard
			key   func(int) string
		}{
			{"client-key", clientKey, strconv.Itoa},
			{"parameter-key", parameterKey, func(int) string { return "" }},
		} {
			b.Run(fw.name+"/"+way.name+"/first", func(b *testing.B) {
				store := newStore(b, b.N+1)
				run(b, fw.build(way.guard(store)), way.key, 1, everyTime)
				if store.Len() != b.N {
					b.Fatalf("%d records for %d operations", store.Len(), b.N)
				}
			})
			b.Run(fw.name+"/"+way.name+"/replay", func(b *testing.B) {
				store := newStore(b, 2)
				run(b, fw.build(way.guard(store)), way.key, 0, once)
				if store.Len() != 1 {
					b.Fatalf("%d records for one operation", store.Len())
				}
			})
		}
	}
}

func newStore(b *testing.B, entries int) *memstore.Store {
	b.Helper()
	store, err := memstore.New(memstore.Options{MaxEntries: entries, MaxBytes: 1 << 40})
	if err != nil {
		b.Fatal(err)
	}
	return store
}

func everyTime(n int) int { return n }
func once(int) int        { return 1 }

// run sends b.N requests, with numbers step apart, and asserts how many were executed.
func run(b *testing.B, w workload, key func(int) string, step int, want func(n int) int) {
	b.Helper()
	keys := make([]string, b.N)
	for i := range keys {
		keys[i] = key(i * step)
	}
	if want(2) == 1 {
		w.send(keys[0], 0) // the one that is replayed
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		w.send(keys[i], i*step)
	}
	b.StopTimer()
	if got := *w.executed; got != want(b.N) {
		b.Fatalf("the handler ran %d times in %d requests, want %d", got, b.N, want(b.N))
	}
}

// BenchmarkDo measures an operation that is not HTTP.
func BenchmarkDo(b *testing.B) {
	e := engine(newStore(b, b.N+1))
	p := core.Policy{Name: "task", Lease: time.Minute}
	keys := make([]string, b.N)
	for i := range keys {
		keys[i] = strconv.Itoa(i)
	}
	ran := 0
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		if _, err := e.Do(context.Background(), keys[i], p, func(context.Context) ([]byte, error) { ran++; return nil, nil }); err != nil {
			b.Fatal(err)
		}
	}
	if ran != b.N {
		b.Fatalf("ran %d times in %d", ran, b.N)
	}
}
