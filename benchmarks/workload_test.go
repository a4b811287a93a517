package benchmarks

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	fiber3 "github.com/gofiber/fiber/v3"
	"github.com/labstack/echo/v4"
	echo5 "github.com/labstack/echo/v5"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/echo5idem"
	"github.com/idem-go/idem/echoidem"
	"github.com/idem-go/idem/fiber3idem"
	"github.com/idem-go/idem/fiberidem"
	"github.com/idem-go/idem/ginidem"
	"github.com/idem-go/idem/httpidem"
)

// body is the 200-byte JSON body; the digits of its "nonce2" member are overwritten to make
// distinct operations.
var body = func() []byte {
	b := []byte(`{"order":{"sku":"A-1001","qty":3,"price":19.90},"customer":{"id":9007199254740993,"note":"leave at the door"},` +
		`"nonce2":"0000000000","fill":"`)
	return append(b, strings.Repeat("x", 198-len(b))+`"}`...)
}()

var (
	nonceAt     = bytes.Index(body, []byte("0000000000"))
	created     = []byte(`{"order_id":"ord-0001","status":"created"}`)
	contentType = []string{"application/json"}
)

// cargo is what a client sends for a body. The ten digits at numberAt are overwritten to make
// distinct operations.
type cargo struct {
	contentType string
	body        []byte
	numberAt    int
	framing     framing
}

// framing is how a body is sent.
type framing uint8

const (
	whole    framing = iota // with a Content-Length; Fiber has read it
	chunked                 // without; Fiber hands it on as a stream
	streamed                // with a Content-Length; Fiber hands it on as a stream
)

var order = cargo{"application/json", body, nonceAt, whole}

// operation is what every framework's handler does.
type operation interface {
	// create reads the body of a request, and returns the JSON that it is answered with, with 201.
	create(body io.Reader) []byte
	// createOf is create where the framework has read the body.
	createOf(request interface{ Body() []byte }) []byte
}

// handler is the operation for a client that sends one request after the other: it counts, reads the body, and
// creates an order.
type handler struct {
	executed int
	during   func() // is called by the next run, before it answers
	keeps    bool   // it reads the body into memory of its own; else piece by piece
	received int    // how many bytes it has read last, if it keeps them
}

func (h *handler) create(body io.Reader) []byte {
	h.run()
	if !h.keeps {
		drain(body)
		return created
	}
	b, err := io.ReadAll(body)
	if err != nil {
		panic(err)
	}
	h.received = len(b)
	return created
}

func (h *handler) createOf(request interface{ Body() []byte }) []byte {
	h.run()
	if h.keeps {
		h.received = len(request.Body()) // kept by the framework
	}
	return created
}

func (h *handler) run() {
	h.executed++
	if during := h.during; during != nil {
		h.during = nil
		during()
	}
}

// client sends requests to a framework, one at a time, that cost next to nothing to make.
// The framework's handlers are called without a network.
type client interface {
	// send sends a request and returns the status of the answer. An empty key sends none;
	// number goes into the body.
	send(key string, number int) (status int)
	// ask is send, for the whole answer.
	ask(key string, number int) answer
	// carry changes what is sent: until then, order.
	carry(c cargo)
}

// answer is what matters of an answer.
type answer struct {
	status   int
	replayed bool   // it says so
	body     string // of a problem: its code
}

// answerOf makes an answer. The body of a problem gives its code, if it is the one expected.
func answerOf(status int, replayed string, contentType string, body []byte) answer {
	a := answer{status, replayed == "true", string(body)}
	if strings.HasPrefix(contentType, "application/problem+json") {
		if _, rest, found := strings.Cut(a.body, `"code":"`); found {
			a.body, _, _ = strings.Cut(rest, `"`)
		}
	}
	return a
}

// framework is a row of the matrix. mount puts the operation, with the guard in front unless it is
// nil, on POST /orders. own puts the framework's own idempotency middleware in front, if it has one; its records are in
// the process until they are closed.
type framework struct {
	name  string
	mount func(o operation, g *core.Guard) service
	own   func(o operation) (_ service, records io.Closer)
}

// service is a framework with a route.
type service interface {
	client() client           // calls it without a network
	serve(net.Listener) error // over TCP
}

var frameworks = []framework{
	{"gin", func(o operation, g *core.Guard) service {
		gin.SetMode(gin.ReleaseMode)
		r := gin.New()
		r.POST("/orders", append(guarding(g, ginidem.New), func(c *gin.Context) {
			answer := o.create(c.Request.Body)
			c.Writer.Header()["Content-Type"] = contentType
			c.Writer.WriteHeader(http.StatusCreated)
			c.Writer.Write(answer)
		})...)
		return onHTTP{r}
	}, nil},
	{"echo", func(o operation, g *core.Guard) service {
		e := echo.New()
		e.POST("/orders", func(c echo.Context) error {
			answer := o.create(c.Request().Body)
			c.Response().Header()["Content-Type"] = contentType
			c.Response().WriteHeader(http.StatusCreated)
			_, err := c.Response().Write(answer)
			return err
		}, guarding(g, echoidem.New)...)
		return onHTTP{e}
	}, nil},
	{"echo5", func(o operation, g *core.Guard) service {
		e := echo5.New()
		e.POST("/orders", func(c *echo5.Context) error {
			answer := o.create(c.Request().Body)
			c.Response().Header()["Content-Type"] = contentType
			c.Response().WriteHeader(http.StatusCreated)
			_, err := c.Response().Write(answer)
			return err
		}, guarding(g, echo5idem.New)...)
		return onHTTP{e}
	}, nil},
	{"fiber", func(o operation, g *core.Guard) service { return mountFiber(o, guarding(g, fiberidem.New)...) }, ownFiber},
	{"fiber3", func(o operation, g *core.Guard) service { return mountFiber3(o, guarding(g, fiber3idem.New)...) }, ownFiber3},
	{"nethttp", func(o operation, g *core.Guard) service {
		var next http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answer := o.create(r.Body)
			w.Header()["Content-Type"] = contentType
			w.WriteHeader(http.StatusCreated)
			w.Write(answer)
		})
		if g != nil {
			next = httpidem.New(g)(next)
		}
		mux := http.NewServeMux()
		mux.Handle("POST /orders", next)
		return onHTTP{mux}
	}, nil},
}

func frameworkNamed(tb testing.TB, name string) framework {
	tb.Helper()
	i := slices.IndexFunc(frameworks, func(fw framework) bool { return fw.name == name })
	require.GreaterOrEqual(tb, i, 0, "there is no framework %s", name)
	return frameworks[i]
}

// guarding is the middleware of an adapter for a guard, or none for nil.
func guarding[M any](g *core.Guard, adapter func(*core.Guard) M) []M {
	if g == nil {
		return nil
	}
	return []M{adapter(g)}
}

func mountFiber(o operation, mw ...fiber.Handler) service {
	app := fiber.New()
	app.Post("/orders", append(mw, func(c *fiber.Ctx) error {
		answer := o.createOf(c)
		c.Set("Content-Type", "application/json")
		return c.Status(http.StatusCreated).Send(answer)
	})...)
	return onFastHTTP(app.Handler())
}

func mountFiber3(o operation, mw ...fiber3.Handler) service {
	app := fiber3.New()
	var handlers []any
	for _, m := range mw {
		handlers = append(handlers, m)
	}
	handlers = append(handlers, func(c fiber3.Ctx) error {
		answer := o.createOf(c)
		c.Set("Content-Type", "application/json")
		return c.Status(http.StatusCreated).Send(answer)
	})
	app.Post("/orders", handlers[0], handlers[1:]...)
	return onFastHTTP(app.Handler())
}

// onHTTP is a service on net/http.
type onHTTP struct{ handler http.Handler }

func (s onHTTP) client() client             { return newHTTPClient(s.handler) }
func (s onHTTP) serve(l net.Listener) error { return http.Serve(l, s.handler) }

// onFastHTTP is a service on fasthttp.
type onFastHTTP fasthttp.RequestHandler

func (s onFastHTTP) client() client {
	c := &fastClient{serve: fasthttp.RequestHandler(s)}
	c.carry(order)
	return c
}

func (s onFastHTTP) serve(l net.Listener) error {
	server := fasthttp.Server{Handler: fasthttp.RequestHandler(s), NoDefaultServerHeader: true} // as Fiber has it
	return server.Serve(l)
}

// httpClient is the client of frameworks on net/http.
type httpClient struct {
	handler http.Handler
	w       nullWriter
	reader  bytes.Reader
	cargo   cargo
	keys    []string
	header  http.Header
	blank   http.Request
	req     http.Request
}

func newHTTPClient(h http.Handler) *httpClient {
	c := &httpClient{
		handler: h,
		w:       nullWriter{header: make(http.Header, 8)},
		keys:    []string{""},
		header:  http.Header{"X-User": {"alice"}},
	}
	c.blank = http.Request{
		Method: "POST", URL: &url.URL{Path: "/orders"}, RequestURI: "/orders", Host: "shop.example",
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, RemoteAddr: "192.0.2.1:1234",
		Header: c.header, Body: io.NopCloser(&c.reader),
	}
	c.carry(order)
	return c
}

func (c *httpClient) carry(of cargo) {
	of.body = bytes.Clone(of.body)
	c.cargo = of
	c.header.Set("Content-Type", of.contentType)
	c.blank.ContentLength = int64(len(of.body))
	if of.framing == chunked {
		c.blank.ContentLength = -1
	}
}

func (c *httpClient) send(key string, number int) int {
	c.cargo.write(number)
	c.reader.Reset(c.cargo.body)
	c.req = c.blank
	if key != "" {
		c.keys[0] = key
		c.header[core.DefaultKeyHeader] = c.keys
	}
	clear(c.w.header)
	c.handler.ServeHTTP(&c.w, &c.req)
	return c.w.status
}

func (c *httpClient) ask(key string, number int) answer {
	c.w.kept = new(bytes.Buffer)
	defer func() { c.w.kept = nil }()
	status := c.send(key, number)
	return answerOf(status, c.w.header.Get(core.ReplayedHeader), c.w.header.Get("Content-Type"), c.w.kept.Bytes())
}

// nullWriter keeps the status and drops the rest, unless somebody wants the body.
type nullWriter struct {
	header http.Header
	status int
	kept   *bytes.Buffer // nil: nobody
}

func (w *nullWriter) Header() http.Header    { return w.header }
func (w *nullWriter) WriteHeader(status int) { w.status = status }

func (w *nullWriter) Write(b []byte) (int, error) {
	if w.kept != nil {
		w.kept.Write(b)
	}
	return len(b), nil
}

// fastClient is the client of frameworks on fasthttp.
type fastClient struct {
	serve  fasthttp.RequestHandler
	cargo  cargo
	reader bytes.Reader
	stream struct{ io.Reader } // reads from reader
	ctx    fasthttp.RequestCtx
}

func (c *fastClient) carry(of cargo) {
	of.body = bytes.Clone(of.body)
	c.cargo = of
	c.stream.Reader = &c.reader
}

func (c *fastClient) send(key string, number int) int {
	c.ctx.Request.Reset()
	c.ctx.Response.Reset()
	c.ctx.ResetUserValues()
	c.ctx.Request.Header.SetMethod("POST")
	c.ctx.Request.SetRequestURI("/orders")
	c.ctx.Request.Header.Set("X-User", "alice")
	c.ctx.Request.Header.SetContentType(c.cargo.contentType)
	if key != "" {
		c.ctx.Request.Header.Set(core.DefaultKeyHeader, key)
	}
	c.cargo.write(number)
	c.reader.Reset(c.cargo.body)
	switch c.cargo.framing {
	case whole:
		c.ctx.Request.SetBodyRaw(c.cargo.body)
	case chunked:
		c.ctx.Request.SetBodyStream(&c.stream, -1)
	case streamed:
		c.ctx.Request.SetBodyStream(&c.stream, len(c.cargo.body))
	}
	c.serve(&c.ctx)
	return c.ctx.Response.StatusCode()
}

func (c *fastClient) ask(key string, number int) answer {
	status := c.send(key, number)
	h := &c.ctx.Response.Header
	return answerOf(status, string(h.Peek(core.ReplayedHeader)), string(h.ContentType()), c.ctx.Response.Body())
}

// write makes the operation with this number of the body.
func (c *cargo) write(number int) {
	for i := c.numberAt + 9; i >= c.numberAt; i-- {
		c.body[i] = byte('0' + number%10)
		number /= 10
	}
}

// drain reads a body without an allocation of its own. The benchmarks run one at a time.
func drain(r io.Reader) {
	for {
		if _, err := r.Read(drained[:]); err != nil {
			return
		}
	}
}

var drained [512]byte

// clientKeys are distinct keys in the form of UUIDs, in a single string: so the garbage
// collector has nothing to look at, and to take one allocates nothing.
type clientKeys string

const keyLength = 36

func newClientKeys(n int) clientKeys {
	var b strings.Builder
	b.Grow(n * keyLength)
	for i := range n {
		fmt.Fprintf(&b, "f81d4fae-7dec-41d0-8765-%012d", i)
	}
	return clientKeys(b.String())
}

func (k clientKeys) at(i int) string { return string(k[i*keyLength : (i+1)*keyLength]) }

// workload is what is sent, and what must come back.
type workload struct {
	keyed    bool   // with a client key
	distinct bool   // each request is another operation; else all are the same
	executed bool   // each runs the handler; else none does
	want     answer // to each
	number   int    // of the first request
}

// rehearsed is how many requests a workload sends, and checks in full, before it is timed.
const rehearsed = 3

// measure checks that the workload is what it claims to be, and times it.
func (w workload) measure(b *testing.B, h *handler, c client) {
	b.Helper()
	if len(body) != 200 {
		b.Fatalf("the body has %d bytes", len(body))
	}
	n := rehearsed + b.N
	var keys clientKeys
	switch {
	case w.keyed && w.distinct:
		keys = newClientKeys(n)
	case w.keyed:
		keys = newClientKeys(1)
	}
	// Of an operation that is always the same, the key and the number are, too.
	step, width := 0, len(keys)
	if w.distinct {
		step, width = 1, min(len(keys), keyLength)
	}
	key := func(i int) string { return string(keys[i*step*width:][:width]) }

	before := h.executed
	for i := range rehearsed {
		if got := c.ask(key(i), w.number+i*step); got != w.want {
			b.Fatalf("was answered with %+v, want %+v", got, w.want)
		}
	}
	w.count(b, h.executed-before, rehearsed)

	before = h.executed
	b.ReportAllocs()
	b.ResetTimer()
	for i := rehearsed; i < n; i++ {
		if status := c.send(key(i), w.number+i*step); status != w.want.status {
			b.Fatalf("was answered with %d, want %d", status, w.want.status)
		}
	}
	b.StopTimer()
	w.count(b, h.executed-before, b.N)
}

func (w workload) count(b *testing.B, executed, sent int) {
	b.Helper()
	want := 0
	if w.executed {
		want = sent
	}
	if executed != want {
		b.Fatalf("the handler ran %d times in %d requests, want %d", executed, sent, want)
	}
}

// records is how many records a workload of n requests leaves behind, beside those that were
// rehearsed.
func (w workload) records(n int) int {
	if w.distinct {
		return rehearsed + n
	}
	return 1
}
