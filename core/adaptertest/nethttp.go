package adaptertest

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"mime"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/sign"
)

// ContextKey is the type of the key under which the application of [NetHTTP] puts the user
// into a request's context, see [App.Login].
type ContextKey string

// NetHTTPAdapter is an adapter that makes net/http middleware of a guard, by the names that its functions have
// in httpidem.
type NetHTTPAdapter struct {
	New func(*core.Guard) func(http.Handler) http.Handler
	// Finish is its Finish middleware. Nil: it has none.
	Finish func(http.Handler) http.Handler
	// Replayed is what it has for Outcome.Replayed.
	Replayed   func(http.ResponseWriter) bool
	Verify     func(*sign.Verifier) func(http.Handler) http.Handler
	IssueToken func(*core.Guard) http.Handler
	NewToken   func(*http.Request, *core.Guard) (string, error)
}

// NetHTTP returns a harness for a, on a mux of the standard library. User is for the adapter to set.
func NetHTTP(name string, a NetHTTPAdapter) Harness {
	return Harness{
		Name:  name,
		Start: func(tb testing.TB, app App) string { return startNetHTTP(tb, app, a) },
		Features: Features{EarlyHints: true, Flush: true, ContextEnds: true, OuterBodyLimit: true, BodyStreams: true,
			Counts: a.Finish != nil, TimeLimit: true, Prefixes: true, HTTP2: true,
			Front: []Front{FormReader, JSONBinder, Peeker, PutterBack, Decompressor, Limiter}},
	}
}

func startNetHTTP(tb testing.TB, app App, a NetHTTPAdapter) string {
	tb.Helper()
	mux := http.NewServeMux()
	var h http.Handler = mux
	for _, r := range app.Routes {
		var handler http.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if err := r.Handler(&netHTTPCall{OnNetHTTP(w, w, func() *http.Request { return req }), req, mux, a}); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		})
		if r.Issues != nil {
			handler = a.IssueToken(r.Issues)
		}
		for _, middleware := range slices.Backward(Stack(r, a.Verify, a.New)) {
			handler = middleware(handler)
		}
		if r.Method == "" {
			h = handler // a mux would clean paths before anything else sees them
			continue
		}
		mux.Handle(r.Method+" "+muxPattern(r.Pattern), handler)
	}
	if app.Guard != nil {
		h = a.New(app.Guard)(h)
	}
	for _, f := range slices.Backward(app.Front) {
		h = fronted(f, h)
	}
	inner := h
	h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { inFront(app, a.Replayed, inner, w, r) })
	if app.Finish {
		h = a.Finish(h)
	}
	return Listen(tb, app.Mounted(h))
}

// Listen serves h, by HTTP/1.1 and HTTP/2, on a free port of 127.0.0.1 and returns the address. When the test ends
// it closes the server and waits for its connections, and for the handlers that still run. It is for the harnesses
// of frameworks that rest on net/http, which have Features.TimeLimit and HTTP2 by it.
func Listen(tb testing.TB, h http.Handler) (addr string) {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	var open sync.WaitGroup // connections and handlers
	counted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		open.Add(1)
		defer open.Done()
		h.ServeHTTP(w, r)
	})
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{
		Protocols: &protocols,
		ErrorLog:  log.New(io.Discard, "", 0),
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				open.Add(1)
			case http.StateClosed, http.StateHijacked:
				open.Done()
			}
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if limit, err := time.ParseDuration(r.Header.Get("X-Time-Limit")); err == nil {
				http.TimeoutHandler(counted, limit, "too late").ServeHTTP(w, r)
				return
			}
			counted(w, r)
		}),
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // always an error: that of Close
	}()
	tb.Cleanup(func() {
		_ = server.Close()
		<-served
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			open.Wait()
		}()
		select {
		case <-ended:
		case <-time.After(patience):
			tb.Errorf("the server is closed, and a handler still runs")
		}
	})
	return listener.Addr().String()
}

// inFront is the middleware in front of the guard.
func inFront(app App, replayed func(http.ResponseWriter) bool, next http.Handler, w http.ResponseWriter, r *http.Request) {
	defer func() {
		if v := recover(); v != nil {
			http.Error(w, "Internal Server Error", http.StatusInternalServerError)
		}
	}()
	if login := r.Header.Get("X-Login"); app.Login && login != "" {
		r = r.WithContext(context.WithValue(r.Context(), ContextKey("user"), login))
	}
	r, end := app.InFront(w, r)
	defer end()
	next.ServeHTTP(w, r)
	if app.After != nil {
		app.After(Outcome{Body: r.Body, Context: r.Context(), Form: r.PostForm.Get, Header: w.Header().Get, Replayed: replayed(w)})
	}
}

// InFront does, on net/http, what the middleware in front of the guard does before it calls the next handler, except for Login. It
// returns the request for that handler, and end, which is to be called when the handler has returned.
func (a App) InFront(w http.ResponseWriter, r *http.Request) (in *http.Request, end context.CancelFunc) {
	if a.BodyLimit > 0 {
		r.Body = http.MaxBytesReader(w, r.Body, a.BodyLimit)
	}
	for _, f := range a.Outer {
		w.Header().Set(f.Name, f.Value)
	}
	if origin := r.Header.Get("Origin"); a.AllowOrigin && origin != "" {
		w.Header().Set("Access-Control-Allow-Origin", origin)
	}
	if a.Consumed != nil {
		r = r.WithContext(core.WithCaller(r.Context(), r.Header.Get("X-Caller"), a.Consumed...))
	}
	if a.Incoming != nil {
		a.Incoming(r.Context())
	}
	if a.Deadline == 0 || r.Header.Get(UnlimitedHeader) != "" {
		return r, func() {}
	}
	ctx, cancel := context.WithTimeout(r.Context(), a.Deadline)
	return r.WithContext(ctx), cancel
}

// fronted is h behind f.
func fronted(f Front, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(UnreadHeader) == "" {
			if err := ReadInFront(f, w, r); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
		}
		h.ServeHTTP(w, r)
	})
}

// ReadInFront does to r what users of net/http write for f. It is for the harnesses of frameworks that rest
// on net/http and have nothing of their own.
func ReadInFront(f Front, w http.ResponseWriter, r *http.Request) error {
	switch f {
	case FormReader:
		_ = r.FormValue("sku")
	case JSONBinder:
		var v any
		return json.NewDecoder(r.Body).Decode(&v)
	case Peeker:
		_, err := io.ReadFull(r.Body, make([]byte, 4))
		return err
	case PutterBack:
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	case Decompressor:
		if r.Header.Get("Content-Encoding") != "gzip" {
			return nil
		}
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			return err
		}
		r.Body = z
	case Limiter:
		r.Body = http.MaxBytesReader(w, r.Body, 1000)
	default:
		return fmt.Errorf("there is no %s", f)
	}
	return nil
}

// muxPattern spells a pattern as a mux does.
func muxPattern(pattern string) string {
	segments := strings.Split(pattern, "/")
	for i, s := range segments {
		switch {
		case strings.HasPrefix(s, ":"):
			segments[i] = "{" + s[1:] + "}"
		case s == "*":
			segments[i] = "{rest...}"
		}
	}
	return strings.Join(segments, "/")
}

// NetHTTPCall is the part of a [Call] that is the same for all frameworks on net/http. Their types embed it. [OnNetHTTP] makes one.
type NetHTTPCall struct {
	w, beneath http.ResponseWriter
	request    func() *http.Request
}

// OnNetHTTP returns that part for a handler that writes to w. Beneath is the writer below the framework's own, which would take the
// status of early hints for the final one. Request returns the request as the handler then has it.
func OnNetHTTP(w, beneath http.ResponseWriter, request func() *http.Request) NetHTTPCall {
	return NetHTTPCall{w, beneath, request}
}

func (c NetHTTPCall) Context() context.Context { return c.request().Context() }

func (c NetHTTPCall) Method() string { return c.request().Method }

func (c NetHTTPCall) Header(name string) string { return c.request().Header.Get(name) }

func (c NetHTTPCall) Trailer(name string) string { return c.request().Trailer.Get(name) }

func (c NetHTTPCall) Body() ([]byte, error) { return io.ReadAll(c.request().Body) }

func (c NetHTTPCall) SetHeader(name, value string) { c.w.Header().Set(name, value) }

func (c NetHTTPCall) AddHeader(name, value string) { c.w.Header().Add(name, value) }

func (c NetHTTPCall) DelHeader(name string) { c.w.Header().Del(name) }

func (c NetHTTPCall) Write(status int, contentType string, flush bool, pieces ...string) error {
	c.SetHeader("Content-Type", contentType)
	c.w.WriteHeader(status)
	for _, piece := range pieces {
		// By way of io.ReaderFrom, if the writer has it.
		if _, err := io.Copy(c.w, struct{ io.Reader }{strings.NewReader(piece)}); err != nil {
			return err
		}
		if flush {
			if err := http.NewResponseController(c.w).Flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c NetHTTPCall) Stream(status int, contentType string, write func(io.Writer, func()) error) error {
	c.SetHeader("Content-Type", contentType)
	c.w.WriteHeader(status)
	var flushed error
	err := write(c.w, func() { flushed = errors.Join(flushed, http.NewResponseController(c.w).Flush()) })
	return errors.Join(err, flushed)
}

func (c NetHTTPCall) EarlyHints(link string) error {
	c.beneath.Header().Set("Link", link)
	c.beneath.WriteHeader(http.StatusEarlyHints)
	c.beneath.Header().Del("Link")
	return nil
}

func (c NetHTTPCall) Upgrade(protocol string, talk func(net.Conn)) error {
	conn, _, err := http.NewResponseController(c.w).Hijack()
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nDate: %s\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n",
		"Sat, 29 Feb 2020 23:59:59 GMT", protocol); err != nil {
		return err
	}
	talk(conn)
	return nil
}

// netHTTPCall does what handlers for net/http do.
type netHTTPCall struct {
	NetHTTPCall
	r   *http.Request
	app http.Handler
	a   NetHTTPAdapter
}

func (c *netHTTPCall) Run() *core.Run { return core.RunFrom(c.r.Context()) }

func (c *netHTTPCall) Verified() (sign.Verified, bool) { return sign.From(c.r.Context()) }

func (c *netHTTPCall) Param(name string) string {
	if name == "*" {
		name = "rest"
	}
	return c.r.PathValue(name)
}

func (c *netHTTPCall) Query(name string) string { return c.r.URL.Query().Get(name) }

func (c *netHTTPCall) Bind(v any) error {
	switch media, _, _ := mime.ParseMediaType(c.r.Header.Get("Content-Type")); media {
	case "application/json":
		return json.NewDecoder(c.r.Body).Decode(v)
	case "multipart/form-data":
		if err := c.r.ParseMultipartForm(1 << 20); err != nil {
			return err
		}
	default:
		if err := c.r.ParseForm(); err != nil {
			return err
		}
	}
	values := map[string]any{}
	for name, texts := range c.r.PostForm {
		values[name] = texts[0]
		if n, err := strconv.Atoi(texts[0]); err == nil {
			values[name] = n
		}
	}
	text, _ := json.Marshal(values) // strings and numbers: cannot fail
	return json.Unmarshal(text, v)
}

func (c *netHTTPCall) FormFile(field string) (*multipart.FileHeader, error) {
	file, header, err := c.r.FormFile(field)
	if err != nil {
		return nil, err
	}
	return header, file.Close()
}

func (c *netHTTPCall) SetContext(ctx context.Context) { *c.r = *c.r.WithContext(ctx) }

func (c *netHTTPCall) JSON(status int, v any) error {
	c.SetHeader("Content-Type", "application/json")
	c.w.WriteHeader(status)
	return json.NewEncoder(c.w).Encode(v)
}

func (c *netHTTPCall) Blob(status int, contentType string, body []byte) error {
	c.SetHeader("Content-Type", contentType)
	c.w.WriteHeader(status)
	_, err := c.w.Write(body)
	return err
}

func (c *netHTTPCall) NoContent(status int) error {
	c.w.WriteHeader(status)
	return nil
}

func (c *netHTTPCall) Report(err error) error {
	if a := core.RefusalResponse(c.r.Context(), err, nil); a != nil {
		for _, f := range a.Header {
			c.w.Header().Set(f.Name, f.Value)
		}
		c.w.WriteHeader(a.Status)
		_, err := c.w.Write(a.Body)
		return err
	}
	return nil
}

func (c *netHTTPCall) Proxy(addr string) error {
	NewProxy(addr).ServeHTTP(c.w, c.r)
	return nil
}

func (c *netHTTPCall) Within(target, key string) (*adapter.Response, error) {
	return Within(c.app, c.r, target, key), nil
}

// Within is the method of [Call] for frameworks on net/http: app serves another request within r.
func Within(app http.Handler, r *http.Request, target, key string) *adapter.Response {
	inner := httptest.NewRequestWithContext(r.Context(), http.MethodPost, target, nil)
	inner.Header.Set("X-User", r.Header.Get("X-User"))
	if key != "" {
		inner.Header.Set(core.DefaultKeyHeader, key)
	}
	w := httptest.NewRecorder()
	app.ServeHTTP(w, inner)
	answer := &adapter.Response{Status: w.Code, Body: w.Body.Bytes()}
	for name, values := range w.Header() {
		for _, v := range values {
			answer.Header = append(answer.Header, adapter.Field{Name: name, Value: v})
		}
	}
	return answer
}

func (c *netHTTPCall) NewToken(g *core.Guard) (string, error) { return c.a.NewToken(c.r, g) }

func (c *netHTTPCall) Fail(status int, message string) error {
	http.Error(c.w, message, status)
	return nil
}
