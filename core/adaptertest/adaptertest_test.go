package adaptertest

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/internal/leak"
	"github.com/idem-go/idem/internal/rehearsal"
	"github.com/idem-go/idem/sign"
)

// After a body that nobody has read, net/http's server waits for half a second.
func TestMain(m *testing.M) {
	leak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

type middleware = func(http.Handler) http.Handler

// fault is a way in which an adapter can be wrong: what becomes of a sound adapter, what stands in front of its guard, or of its
// Verify, and what stands behind, and the cases that must notice.
type fault struct {
	name     string
	verifies bool // it is Verify's
	change   func(a *NetHTTPAdapter)
	front    func(next http.Handler, w http.ResponseWriter, r *http.Request)
	behind   func(next http.Handler, w http.ResponseWriter, r *http.Request)
	noticed  []string
}

var faults = []fault{
	{
		name: "has keys of its own", // and is right by every measure but the transcript
		front: onRequest(func(r *http.Request) {
			if user := r.Header.Get("X-User"); user != "" {
				r.Header.Set("X-User", strings.ToUpper(user))
			}
		}),
		noticed: []string{"first and again"},
	},
	{name: "does not guard", noticed: []string{"first and again"}},
	{
		name:    "leaves the handler no body",
		behind:  onRequest(func(r *http.Request) { r.Body = http.NoBody }),
		noticed: []string{"the body for the handler", "the framework's binding"},
	},
	{
		name: "leaves its own body with the request",
		front: func(next http.Handler, w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r)
			r.Body = io.NopCloser(strings.NewReader("of another request"))
		},
		noticed: []string{"the body, seen from in front"},
	},
	{
		name: "takes half a body for a whole one",
		front: onRequest(func(r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		}),
		noticed: []string{"a body that ends too early"},
	},
	{
		name: "doubles header fields",
		front: onHeader(func(h http.Header, status int) {
			if h.Get(core.ReplayedHeader) != "" {
				for _, name := range []string{"Link", "Warning", "Location"} {
					h[name] = slices.Concat(h[name], h[name])
				}
			}
		}),
		noticed: []string{"first and again", "repeated fields"},
	},
	{
		name:    "loses a field",
		front:   onHeader(func(h http.Header, status int) { h.Del("Location") }),
		noticed: []string{"first and again"},
	},
	{
		name:    "marks nothing as a replay",
		front:   onHeader(func(h http.Header, status int) { h.Del(core.ReplayedHeader) }),
		noticed: []string{"first and again"},
	},
	{
		name:    "replays the Date",
		front:   onReplays(func(h http.Header) { h.Set("Date", "Mon, 01 Jan 2001 00:00:00 GMT") }),
		noticed: []string{"first and again", "fields of one message"},
	},
	{
		name: "takes the header's values back",
		front: func(next http.Handler, w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r)
			for _, values := range w.Header() {
				clear(values)
			}
		},
		noticed: []string{"the header, seen from in front"},
	},
	{
		name: "does not say how long a replay is",
		front: onHeader(func(h http.Header, status int) {
			h.Del("Content-Length")
			if h.Get(core.ReplayedHeader) != "" {
				h.Set("Transfer-Encoding", "chunked")
			}
		}),
		noticed: []string{"first and again"},
	},
	{
		name: "streams once the handler has returned",
		behind: func(next http.Handler, w http.ResponseWriter, r *http.Request) {
			b := &buffer{header: w.Header()}
			next.ServeHTTP(b, r)
			w.WriteHeader(b.status)
			_, _ = w.Write(b.body.Bytes())
		},
		noticed: []string{"a stream of events"},
	},
	{
		name: "takes hints for the status",
		behind: func(next http.Handler, w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(&hinted{ResponseWriter: w}, r)
		},
		noticed: []string{"early hints"},
	},
	{
		name: "gives up when the client leaves",
		front: func(next http.Handler, w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), incomingKey{}, r.Context())))
		},
		behind: func(next http.Handler, w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(impatient{r.Context()}))
		},
		noticed: []string{"the client leaves"},
	},
	{
		name: "swallows panics",
		behind: func(next http.Handler, w http.ResponseWriter, r *http.Request) {
			defer func() { _ = recover() }()
			next.ServeHTTP(w, r)
		},
		noticed: []string{"a panic"},
	},
	{
		name: "guards safe methods",
		front: func(next http.Handler, w http.ResponseWriter, r *http.Request) {
			_, r = stash(r, r.Method)
			r.Method = http.MethodPost
			next.ServeHTTP(w, r)
		},
		behind:  onRequest(func(r *http.Request) { r.Method = unstash[string](r) }),
		noticed: []string{"safe methods"},
	},
}

// mounted returns a harness for a sound adapter with f around it.
func mounted(f fault) Harness {
	a := sound
	inside := func(make func(http.Handler) http.Handler) middleware {
		if f.front == nil && f.behind == nil && f.change == nil {
			return func(next http.Handler) http.Handler { return next }
		}
		return func(next http.Handler) http.Handler { return around(f.front, make(around(f.behind, next))) }
	}
	if f.verifies {
		a.Verify = func(v *sign.Verifier) func(http.Handler) http.Handler { return inside(httpidem.Verify(v)) }
	} else {
		a.New = func(g *core.Guard) func(http.Handler) http.Handler { return inside(httpidem.New(g)) }
		a.IssueToken = func(g *core.Guard) http.Handler { return around(f.front, httpidem.IssueToken(g)) }
	}
	if f.change != nil {
		f.change(&a)
	}
	h := NetHTTP("net/http that "+f.name, a)
	h.User = userFromContext
	return h
}

// sound is an adapter without a fault.
var sound = NetHTTPAdapter{
	New:    func(g *core.Guard) middleware { return httpidem.New(g) },
	Finish: httpidem.Finish(), Replayed: httpidem.Replayed, Verify: httpidem.Verify,
	IssueToken: httpidem.IssueToken, NewToken: httpidem.NewToken,
}

func userFromContext(name string) core.UserSource {
	return httpidem.UserFromContext(ContextKey(name))
}

func around(f func(http.Handler, http.ResponseWriter, *http.Request), next http.Handler) http.Handler {
	if f == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f(next, w, r) })
}

// A suite that cannot fail is no suite: each fault is noticed by the cases that exist because of it.
func TestFaultsAreNoticed(t *testing.T) {
	hurry(t)
	for _, f := range slices.Concat(faults, verifierFaults) {
		t.Run(f.name, func(t *testing.T) {
			for _, name := range f.noticed {
				rehearsed := rehearsal.Run(t, func(tb testing.TB) { caseNamed(t, name)(tb, mounted(f)) })
				if !rehearsed.Failed() {
					t.Errorf("%q does not notice an adapter that %s", name, f.name)
				}
				t.Logf("%s: %s", name, rehearsed.Said())
			}
		})
	}
}

// hurry takes the suite's patience with faulty adapters, some of which hang. A case that is cut short has found something.
func hurry(t *testing.T) {
	was := patience
	t.Cleanup(func() { patience = was })
	patience = 500 * time.Millisecond
}

// What has no fault passes, also with what the faults stand in.
func TestASoundOnePasses(t *testing.T) {
	through := func(next http.Handler, w http.ResponseWriter, r *http.Request) { next.ServeHTTP(w, r) }
	for _, groups := range signedParts {
		for _, g := range groups {
			t.Run(g.name, func(t *testing.T) { runGroup(t, mounted(fault{verifies: true, front: through, behind: through}), g) })
		}
	}
}

// Each attack is noticed by a service without a verifier, unless a server may answer all of it by itself, or the service has no
// verifier to begin with.
func TestEveryAttackCanFail(t *testing.T) {
	hurry(t)
	for part, groups := range signedParts {
		for _, g := range groups {
			for _, a := range g.attacks {
				rehearsed := rehearsal.Run(t, func(tb testing.TB) { newSignedEnv(tb, mounted(fault{verifies: true}), g).run(tb, a) })
				if !rehearsed.Failed() && !a.front {
					t.Errorf("%s/%s/%s cannot fail", part, g.name, a.name)
				}
			}
		}
	}
}

func TestEveryCaseIsWellFormed(t *testing.T) {
	seen := map[string]bool{}
	well := func(name, why string) {
		if why == "" || seen[name] {
			t.Errorf("%q: the rule is missing, or the name is taken", name)
		}
		seen[name] = true
	}
	golden := transcripts()
	for _, c := range cases {
		well(c.name, c.why)
		if (golden[c.name] == "") != c.loose {
			t.Errorf("%q has no transcript, or should have none", c.name)
		}
		delete(golden, c.name)
	}
	for name := range golden {
		t.Errorf("there is a transcript of %q and no such case", name)
	}
	for _, g := range slices.Concat(attackGroups, guardedGroups) {
		for _, a := range g.attacks {
			well(g.name+"/"+a.name, a.why)
		}
	}
}

// The suite's own reading of responses: what is wrong on the wire is an error.
func TestMalformedResponsesAreNoticed(t *testing.T) {
	for name, text := range map[string]string{
		"no status line":              "hello\r\n\r\n",
		"bare line feeds":             "HTTP/1.1 200 OK\nContent-Length: 0\n\n",
		"two lengths":                 "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
		"length and coding":           "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
		"a body that is too short":    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nx",
		"a chunk that is too long":    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n0\r\n\r\n",
		"no last chunk":               "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n",
		"a line that is no field":     "HTTP/1.1 200 OK\r\nhello\r\n\r\n",
		"a connection that just ends": "",
	} {
		c, err := dial(answering(t, text))
		if err != nil {
			t.Fatal(err)
		}
		c.send(request{})
		if got, err := c.receive("POST"); err == nil {
			t.Errorf("%s: no error, but %v", name, got)
		}
		_ = c.Close()
	}
}

// caseNamed returns the case with a name, which Run has in front of its subtests.
func caseNamed(t *testing.T, name string) func(testing.TB, Harness) {
	t.Helper()
	for _, c := range cases {
		if c.name == name {
			return func(tb testing.TB, h Harness) { run(tb, h, c, transcripts()) }
		}
	}
	for part, groups := range signedParts {
		for _, g := range groups {
			for _, a := range g.attacks {
				if full := part + "/" + g.name; full+"/"+a.name == name || full == name && a.name == "" {
					return func(tb testing.TB, h Harness) { newSignedEnv(tb, h, g).run(tb, a) }
				}
			}
		}
	}
	t.Fatalf("there is no case %q", name)
	return nil
}

type stashKey struct{}

// stash hands v on to what stands behind the guard.
func stash[T any](r *http.Request, v T) (T, *http.Request) {
	return v, r.WithContext(context.WithValue(r.Context(), stashKey{}, v))
}

func unstash[T any](r *http.Request) T { return r.Context().Value(stashKey{}).(T) }

// broke is a reader that fails; with nil, it is empty.
type broke struct{ err error }

func (b broke) Read([]byte) (int, error) { return 0, cmp.Or(b.err, io.EOF) }

// buffer is a response that is kept.
type buffer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (b *buffer) Header() http.Header            { return b.header }
func (b *buffer) WriteHeader(status int)         { b.status = status }
func (b *buffer) Write(text []byte) (int, error) { return b.body.Write(text) }
func (b *buffer) Flush()                         {}

// onRequest changes the request.
func onRequest(change func(r *http.Request)) func(http.Handler, http.ResponseWriter, *http.Request) {
	return func(next http.Handler, w http.ResponseWriter, r *http.Request) {
		change(r)
		next.ServeHTTP(w, r)
	}
}

// onReplays changes the header of replays.
func onReplays(change func(h http.Header)) func(next http.Handler, w http.ResponseWriter, r *http.Request) {
	return onHeader(func(h http.Header, _ int) {
		if h.Get(core.ReplayedHeader) != "" {
			change(h)
		}
	})
}

// onHeader changes header fields when they are about to be sent.
func onHeader(change func(h http.Header, status int)) func(http.Handler, http.ResponseWriter, *http.Request) {
	return func(next http.Handler, w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&changing{w, change}, r)
	}
}

type changing struct {
	http.ResponseWriter
	change func(h http.Header, status int)
}

func (w *changing) WriteHeader(status int) {
	w.change(w.Header(), status)
	w.ResponseWriter.WriteHeader(status)
}

func (w *changing) Unwrap() http.ResponseWriter { return w.ResponseWriter }

type hinted struct {
	http.ResponseWriter
	done bool
}

func (w *hinted) WriteHeader(status int) {
	if status < 200 {
		status = 200
	}
	if !w.done {
		w.done = true
		w.ResponseWriter.WriteHeader(status)
	}
}

// impatient is a run's context that has ended as soon as the client has left.
type impatient struct{ context.Context }

type incomingKey struct{}

func (c impatient) Err() error { return c.Value(incomingKey{}).(context.Context).Err() }

// roundTrip reads a connection to its end: it tells a second answer, and a connection that is closed without one.
func TestRoundTripReadsToTheEnd(t *testing.T) {
	for text, want := range map[string]reply{
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\nmore": {status: 204, more: []byte("more")},
		"": {},
	} {
		got, err := roundTrip(answering(t, text), request{}.message())
		if err != nil || got.status != want.status || string(got.more) != string(want.more) || string(got.raw) != text {
			t.Errorf("%q: status %d, raw %q, more %q, %v", text, got.status, got.raw, got.more, err)
		}
	}
}

// answering returns the address of a server that reads one request without a body, writes text and closes the connection.
func answering(t *testing.T, text string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var server sync.WaitGroup
	server.Go(func() {
		if c, err := listener.Accept(); err == nil {
			// Bytes left unread would turn the close into a reset.
			_, _ = http.ReadRequest(bufio.NewReader(c))
			_, _ = io.WriteString(c, text)
			_ = c.Close()
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		server.Wait()
	})
	return listener.Addr().String()
}
