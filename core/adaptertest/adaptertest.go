// Package adaptertest is the suite that defines what an adapter is. Whatever passes it can stand between a web framework and a
// guard or a verifier of signatures. What [adapter.Exchange] says in words is said here in cases, and each case carries the rule
// that it checks.
//
// The suite speaks to a real listener over TCP and writes requests byte by byte, so that
// it can send what a client library would tidy up: a field twice, a broken escape, a blank in a timestamp, a body
// that ends too early.
//
// # Guards
//
// For guards it compares three things:
//
//   - a guarded first response with the response of the same application without a
//     guard: the guard must not be seen;
//   - a replay with the response that it repeats;
//   - the transcript of a case (statuses, header fields, bodies, and the keys that reach
//     the store) with the text in testdata, which is the same for all adapters, so that a
//     service can move from one framework to another behind one store.
//
// Three things are left out of a comparison, because they belong to one message: Date
// (which must be there once), the order of fields with different names, and the framing
// (Content-Length, Transfer-Encoding, Connection), where only this must hold: a length
// that is there without the guard is there with it.
//
// # Signatures
//
// Verifiers are attacked where the adapter mounts them, with what an adapter can get wrong: the target, the lines of the header,
// the framing of the body, trailers and HTTP/2. Signatures are made by a few lines of the suite's own, after the definition of v1,
// so that it finds fault with package sign too. Of each answer the suite checks the status, the code and the fields that belong to
// it; whether the handler has run, and what it has seen; what the observer was told; and that the nonce store was asked for
// messages with a good signature only. Then come services with a verifier and a guard, for what can go wrong only between the two.
// What a verifier makes of keys, times, nonces and signatures is tested in package sign.
//
// Servers answer malformed HTTP by themselves, each in its own way, and they have limits of their own. There, any 4xx is good,
// as long as the handler has not run. A harness should raise limits for the size of a header to 64 KiB, so that the
// verifier's own are met.
//
// # Running the suite
//
// An adapter runs the suite with a [Harness], which builds an application of its framework from
// an [App]. The handlers are the suite's; they act through [Call], which the harness
// implements in the framework's native way:
//
//	func TestConformance(t *testing.T) { adaptertest.Run(t, harness) }
//
// An adapter that makes net/http middleware has its harness ready: [NetHTTP].
package adaptertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/sign"
)

// Harness is a framework, as the suite sees it.
type Harness struct {
	// Name is the framework's name.
	Name string
	// Start builds app, serves it on a port of its own on 127.0.0.1 and returns the
	// address, "127.0.0.1:port". The server, and every goroutine of it, has ended when
	// tb's cleanups have run.
	Start func(tb testing.TB, app App) (addr string)
	// User returns the adapter's native user source for what authentication middleware
	// has left in the framework's context under name.
	User func(name string) core.UserSource
	// Features is what the framework can do.
	Features Features
}

// Features says what a framework can do beyond the common ground. Cases that need more
// than is declared are skipped.
type Features struct {
	// EarlyHints: a handler can send 103 responses before the final one.
	EarlyHints bool
	// Flush: a handler can flush in the middle of writing an ordinary response.
	Flush bool
	// ContextEnds: the request's context ends when the client leaves.
	ContextEnds bool
	// NativeErrors: a handler can return or leave an error for the framework to render.
	NativeErrors bool
	// OuterErrors: the adapter has a Finish middleware for errors that a middleware
	// further out renders.
	OuterErrors bool
	// OuterBodyLimit: a middleware in front can limit the request's body so that reading
	// fails (http.MaxBytesReader).
	OuterBodyLimit bool
	// BodyStreams: the request's body is a stream, so that what a middleware in front has read of it is gone.
	BodyStreams bool
	// Counts: the adapter has a Finish middleware that counts what is read of a body.
	Counts bool
	// Front is what the framework has of what stands in [App.Front].
	Front []Front
	// TimeLimit: around the whole application stands a timeout that lets handlers run on, as the
	// framework's server has it ([http.TimeoutHandler], fasthttp.TimeoutHandler). To requests that
	// have an X-Time-Limit field it answers 503 when that duration has passed.
	TimeLimit bool
	// Prefixes: the application is a handler of net/http, which a mux may serve below a prefix.
	Prefixes bool
	// GroupRoutes and GlobalRoutes: a guard that is mounted on a group, or on the whole
	// application, knows the pattern of the route that the request is for.
	GroupRoutes, GlobalRoutes bool
	// HTTP2: the server speaks HTTP/2 on the same port to clients that begin with it (RFC 9113, section
	// 3.3), as that of [Listen] does.
	HTTP2 bool
	// ServerDate: the server sets Date by its own clock, and the adapter cannot set another one.
	ServerDate bool
	// ClosesUnread: the server closes a connection after a refusal if nobody has read the request's body to its
	// end. Otherwise the connection goes on.
	ClosesUnread bool
}

// App is an application to build. The order of the middleware, from the outside: the
// framework's own recovery from panics; Finish; Errors; BodyLimit, Outer, AllowOrigin, Login, Consumed and After, in any order;
// Front, in its order; Guard; the guard of the route.
type App struct {
	Routes []Route
	// Guard is mounted in front of all routes: on the application, or on the group if
	// Group is set. Nil: there is none.
	Guard *core.Guard
	// Group is a prefix ("/api") that all routes share; they belong to one group of
	// the framework. Empty: no group.
	Group string
	// Errors puts a middleware in front that renders the framework's errors by
	// [RenderError], and the adapter's Finish middleware in front of that. Without it
	// the framework renders errors in its own default way.
	Errors bool
	// WithoutFinish leaves the adapter's Finish middleware out.
	WithoutFinish bool
	// Finish puts the adapter's Finish middleware in front also without Errors.
	Finish bool
	// Front reads the request's body in front of the guard. It lets a request alone that has a
	// field [UnreadHeader].
	Front []Front
	// BodyLimit, unless 0, limits request bodies in front of the guard, so that reading
	// beyond it fails.
	BodyLimit int64
	// Outer is set (not added) as response header fields by a middleware in front.
	Outer []adapter.Field
	// AllowOrigin: a middleware in front sets Access-Control-Allow-Origin to the request's
	// Origin, if it has one.
	AllowOrigin bool
	// Login puts the value of the request's X-Login field, unless it is empty, into the
	// framework's context under "user", as authentication middleware does.
	Login bool
	// Consumed are names of parameters of which a middleware in front says, by core.WithCaller, that it
	// has consumed them. The caller is what the request has in its X-Caller field, or "". Nil: it says nothing.
	Consumed []string
	// Deadline, unless 0, is how long a middleware in front lets the request's context stand. It lets
	// a request alone that has a field [UnlimitedHeader].
	Deadline time.Duration
	// Incoming, unless nil, is called by a middleware in front with the request's context.
	Incoming func(context.Context)
	// IgnoreContextErrors: the framework's error handler makes nothing of an error that is the end of a
	// context. (A framework that has none leaves such an error to the handler, see Call.Report.)
	IgnoreContextErrors bool
	// After, unless nil, is called by a middleware in front once everything behind it has returned.
	After func(Outcome)

	prefixes []string // those below which a mux serves the application
}

// Mounted returns what serves h, the application: h itself, or a mux that serves it below prefixes, which it
// strips. Harnesses with [Features].Prefixes serve what it returns.
func (a App) Mounted(h http.Handler) http.Handler {
	if len(a.prefixes) == 0 {
		return h
	}
	mux := http.NewServeMux()
	for _, prefix := range a.prefixes {
		mux.Handle(prefix+"/", http.StripPrefix(prefix, h))
	}
	return mux
}

// Front is a middleware in front of a guard that has to do with the request's body. Where a framework has
// one of its own, the harness mounts that; else it does what users of the framework write.
type Front string

// What stands in front.
const (
	FormReader     Front = "form reader"     // looks at the field "sku" of a form
	CSRF           Front = "CSRF"            // compares the field "csrf" of a form with the cookie "_csrf"
	KeyAuth        Front = "key auth"        // wants the field "api-key" of a form to be "secret"
	MethodOverride Front = "method override" // takes the method from the field "_method" of a form; it stands in front of the router
	JSONBinder     Front = "JSON binder"     // binds the body as JSON, and leaves nothing of it
	Peeker         Front = "peeker"          // reads the first four bytes of the body
	PutterBack     Front = "putter back"     // reads the body and puts it back
	Keeper         Front = "keeper"          // reads the body and keeps it, where the framework looks for it
	Decompressor   Front = "decompressor"    // decompresses bodies with Content-Encoding: gzip
	Limiter        Front = "limiter"         // limits bodies to 1000 bytes
)

const (
	// UnreadHeader is the field of a request that a Front must not read.
	UnreadHeader = "X-Unread"
	// UnlimitedHeader is the field of a request that has no [App.Deadline].
	UnlimitedHeader = "X-Unlimited"

	csrfToken = "csrf-token-0123456789abcdefghijkl" // in field and cookie
)

// Outcome is what a middleware in front can look at when a request has been answered.
type Outcome struct {
	// Body is the request's body, as the framework then has it.
	Body io.ReadCloser
	// Context is the request's context, and Form the first value of that name in its form, as they then are.
	Context context.Context
	Form    func(name string) string
	// Header returns the first value of that name in the response's header, or "".
	Header func(name string) string
	// Err is the error that has come out, or that was reported, in the framework's own way.
	Err error
	// Replayed is what the adapter's function of that name says.
	Replayed bool
}

// Route is a route of an [App]. What is mounted on it, from the outside: Outer, Verifiers, Guard; see [Stack].
type Route struct {
	// Method is the request method. Empty, with an empty Pattern: it is the only route of the application, and answers to every
	// method (the framework's odd ones too, such as PROPFIND) and every path, as it was sent.
	Method string
	// Pattern is the pattern in the spelling of adapter.Request.Route: ":id" is one
	// segment, a trailing "*" the rest. It begins with App.Group.
	Pattern string
	// Guard is mounted right in front of the handler. Nil: none.
	Guard *core.Guard
	// Verifiers are mounted in front of Guard, the outermost first. They verify the bytes of a body: a framework that reads
	// forms before anybody sees them must be told not to.
	Verifiers []*sign.Verifier
	// Outer is a guard in front of the verifiers, the wrong way round. Nil: none.
	Outer *core.Guard
	// Issues, unless nil, is the guard whose tokens the route issues: its handler is the adapter's
	// IssueToken.
	Issues *core.Guard
	// Handler is what the handler does, unless Issues is set.
	Handler Handler
}

// Stack returns the middleware on r, the outermost first. M is what the framework calls a middleware; verify
// and guard are the adapter's functions that make one.
func Stack[M any](r Route, verify func(*sign.Verifier) M, guard func(*core.Guard) M) (stack []M) {
	if r.Outer != nil {
		stack = append(stack, guard(r.Outer))
	}
	for _, v := range r.Verifiers {
		stack = append(stack, verify(v))
	}
	if r.Guard != nil {
		stack = append(stack, guard(r.Guard))
	}
	return stack
}

// Handler is a handler without a framework. Its error is the one that a method of the
// Call returned: the framework's own, to be returned from the handler as it is.
type Handler func(Call) error

// Call is a request and its response in a framework's own handler. Every method does what
// somebody who writes a handler for that framework would do.
type Call interface {
	// Context is the request's context, as handlers of the framework get it.
	Context() context.Context
	// Run is the run, as the adapter shows it to handlers of the framework.
	Run() *core.Run

	// Verified is what the adapter's function of that name returns, or sign.From.
	Verified() (sign.Verified, bool)

	// Method is the request's method.
	Method() string
	// Header, Param and Query return the first value of that name, or "". Param is
	// whatever the framework makes of it.
	Header(name string) string
	Param(name string) string
	Query(name string) string
	// Trailer returns the first value of that name that has come behind the body, where the framework keeps such fields apart,
	// or "".
	Trailer(name string) string
	// Body reads the whole body as it was sent.
	Body() ([]byte, error)
	// Bind binds the body to v, which has json and form tags, by its Content-Type.
	Bind(v any) error
	// FormFile returns a file of a multipart form.
	FormFile(field string) (*multipart.FileHeader, error)

	// SetContext gives the request another context, so that the framework's middleware finds it there.
	SetContext(ctx context.Context)

	// SetHeader and AddHeader set a response header field and add a line to it.
	SetHeader(name, value string)
	AddHeader(name, value string)
	// DelHeader deletes a response header field.
	DelHeader(name string)
	// JSON renders v by the framework's JSON renderer.
	JSON(status int, v any) error
	// Blob answers with a body and its Content-Type.
	Blob(status int, contentType string, body []byte) error
	// NoContent answers with a status and no body.
	NoContent(status int) error
	// Write writes an ordinary response piece by piece, without saying how long it is,
	// flushing after each piece if flush is set and the framework can.
	Write(status int, contentType string, flush bool, pieces ...string) error
	// Stream writes a response in the framework's way to stream: what is written and
	// flushed reaches the client at once.
	Stream(status int, contentType string, write func(w io.Writer, flush func()) error) error
	// EarlyHints sends a 103 response with a Link field.
	EarlyHints(link string) error
	// Upgrade answers 101 with this Upgrade field and hands the connection to talk,
	// which ends with it. It returns when the framework's way to do so returns.
	Upgrade(protocol string, talk func(net.Conn)) error
	// Proxy hands the request on to the service at this address by httputil.ReverseProxy, in the
	// framework's way to mount a handler of net/http. A backend that can't be had is 502, but
	// nothing if it is the context that has ended.
	Proxy(addr string) error
	// Fail reports an error by the framework's own error value. A framework without
	// such values renders it in the handler.
	Fail(status int, message string) error
	// Report reports err as it is: to the framework if handlers return or leave errors there. Without
	// such a way a refusal is answered in the handler, by what the adapter has for that, and
	// any other error is reported to nobody.
	Report(err error) error
	// NewToken issues a token of g, by the adapter's function of that name.
	NewToken(g *core.Guard) (string, error)
	// Within has the application serve another request within this one, in process and with this
	// request's context: a POST of the same user's to target, with that Idempotency-Key unless it
	// is empty.
	Within(target, key string) (*adapter.Response, error)
}

// NewProxy is what Call.Proxy mounts.
func NewProxy(addr string) http.Handler {
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: addr})
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
		if !ContextEnded(err) {
			w.WriteHeader(http.StatusBadGateway)
		}
	}
	return proxy
}

// ContextEnded says which errors the error handler of an [App] with IgnoreContextErrors ignores.
func ContextEnded(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// RenderError is how an [App] with Errors renders an error.
func RenderError(message string) (contentType string, body []byte) {
	text, _ := json.Marshal(message) // a string: cannot fail
	return "application/json", fmt.Appendf(nil, `{"error":%s}`, text)
}

// Run checks an adapter, in a subtest for each case.
func Run(t *testing.T, h Harness) {
	t.Helper()
	if path := os.Getenv("ADAPTERTEST_TRANSCRIPTS"); path != "" {
		addTranscripts(t, h, path)
		return
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { run(t, h, c, transcripts()) })
	}
	t.Run("keys", func(t *testing.T) { runKeys(t, h) })
	for part, groups := range signedParts {
		t.Run(part, func(t *testing.T) {
			for _, g := range groups {
				t.Run(g.name, func(t *testing.T) { runGroup(t, h, g) })
			}
		})
	}
}

var signedParts = map[string][]attackGroup{"signatures": attackGroups, "signed and guarded": guardedGroups}

func runGroup(t *testing.T, h Harness, g attackGroup) {
	h.Features.require(t, h.Name, g.needs)
	e := newSignedEnv(t, h, g)
	for _, a := range g.attacks {
		if a.name == "" { // the only one
			e.run(t, a)
			continue
		}
		t.Run(a.name, func(t *testing.T) { e.run(t, a) })
	}
}

// run runs one case and returns its transcript.
func run(tb testing.TB, h Harness, c testCase, golden map[string]string) string {
	tb.Helper()
	h.Features.require(tb, h.Name, c.needs)
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("the rule: %s", c.why)
		}
	})
	s := start(tb, h, c)
	for i, step := range c.steps {
		s.at.Store(int64(i + 1))
		step.do(s)
	}
	text := s.finish()
	if golden != nil && !c.loose {
		compare(tb, c.name, golden[c.name], text)
	}
	return text
}

// require skips tb if what is needed is not among has.
func (has Features) require(tb testing.TB, name string, needs Features) {
	tb.Helper()
	needed, is := reflect.ValueOf(needs), reflect.ValueOf(has)
	for i := range needed.NumField() {
		if f := needed.Field(i); f.Kind() == reflect.Bool && f.Bool() && !is.Field(i).Bool() {
			tb.Skipf("%s has no %s", name, needed.Type().Field(i).Name)
		}
	}
	for _, front := range needs.Front {
		if !slices.Contains(has.Front, front) {
			tb.Skipf("%s has no %s", name, front)
		}
	}
}

// testCase checks one rule.
type testCase struct {
	name string
	why  string // the rule, or what has gone wrong without it
	// needs are the features without which the case makes no sense.
	needs Features

	config func(*core.Config) // changes the configuration; nil: nothing
	policy core.Policy        // of the route, unless routes is set
	app    App                // all but Routes, Guard and After
	global bool               // the policy's guard is mounted on the application or group
	native bool               // Harness.User("user") is the policy's user source
	routes []route            // nil: POST /orders with policy and handler
	// handler is what the handler does at its nth execution. Nil: receipt.
	handler func(h *probe, c Call, n int) error
	// incoming makes App.Incoming tell the case when the client has left: "the client has left".
	incoming bool
	// backend, unless nil, is a service of its own, whose address is probe.backend.
	backend func(h *probe, w http.ResponseWriter, r *http.Request)
	// after is App.After of the guarded application.
	after func(h *probe, a Outcome)
	// ownText leaves Content-Type and body of what handlers answer out of the
	// transcript: they are the framework's own.
	ownText bool
	// loose leaves out the transcript, where a rule lets frameworks differ.
	loose bool
	// noBare leaves out the comparison with the unguarded application, for handlers
	// that ask about their run.
	noBare bool
	steps  []step
}

// route is a route with a policy.
type route struct {
	method, pattern string // "": POST
	policy          *core.Policy
	unguarded       bool
	issues          *core.Policy // it issues tokens for this policy, and has no guard
	verifier        *sign.Verifier
}

// receipt is the default handler: it answers with the number of its execution.
func receipt(_ *probe, c Call, n int) error {
	c.SetHeader("Location", fmt.Sprintf("/orders/%d", n))
	return c.Blob(201, "application/json", fmt.Appendf(nil, `{"order":%d}`, n))
}

// probe is what handlers share with the case.
type probe struct {
	s       *env // nil in the unguarded application, where nothing is held
	runs    atomic.Int64
	entered chan struct{}
	gate    chan struct{}
	done    <-chan struct{}
	said    chan string // what handlers have to say to the case
	backend string      // address
	guard   *core.Guard // of all routes, or of the first one
}

func newProbe(s *env, done <-chan struct{}) *probe {
	return &probe{s: s, done: done, entered: make(chan struct{}, 1000), gate: make(chan struct{}, 1000), said: make(chan string, 1000)}
}

func (h *probe) count() int { return int(h.runs.Load()) }

func (h *probe) next() int { return int(h.runs.Add(1)) }

// hold tells the case that the handler is there, and waits until the case lets it go.
func (h *probe) hold() {
	if h.s == nil {
		return
	}
	h.entered <- struct{}{}
	select {
	case <-h.gate:
	case <-h.done:
	}
}

// held is receipt behind a gate.
func held(h *probe, c Call, n int) error {
	h.hold()
	return receipt(h, c, n)
}

// sameMessage compares two responses of an application, with and without a guard or
// first and again.
func sameMessage(tb testing.TB, what string, want, got reply, dropped ...string) {
	tb.Helper()
	if want.status != got.status {
		tb.Errorf("%s: status %d, not %d", what, got.status, want.status)
	}
	if !bytes.Equal(want.body, got.body) {
		tb.Errorf("%s: the body is %s, not %s", what, abridged(got.body), abridged(want.body))
	}
	w, g := comparable(want, dropped), comparable(got, dropped)
	if !slices.Equal(w, g) {
		tb.Errorf("%s: the header fields are\n\t%q, not\n\t%q", what, g, w)
	}
}
