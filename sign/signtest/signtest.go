// Package signtest is the suite that attacks a verifier where it stands: mounted by an adapter, in a
// web framework, behind a real listener. Whatever passes it hands the verifier each request as it was
// sent, refuses what the verifier refuses, and leaves the handler what the verifier has seen.
//
// The suite speaks to the listener over TCP and writes requests byte by byte, so that it can send
// what a client library would tidy up: a field twice, a blank in a timestamp, a path that a router
// would clean, a body that ends too early. The attacks are rows of tables, each with the reason for
// which it exists. Signatures are made by a few lines of the suite's own, after the definition of the
// scheme, so that it finds fault with package sign too.
//
// Of each answer it checks the status, the code and the fields that belong to it; whether the
// handler has run; what the observer was told, down to the reason that does not go out; that the
// nonce store was asked for messages with a good signature only; and that neither the answer nor
// what is told for logs holds a secret, the signature that would have been right, or the body.
//
// # Enrolling an adapter
//
// An adapter enrols with a [Harness], which builds an application of its framework from an [App]:
// the verifier in front, and one handler for everything behind it. The handler reads the request in
// the framework's native way and hands what it sees to the app:
//
//	func TestSignatures(t *testing.T) {
//		signtest.Run(t, signtest.Harness{Name: "mine", Start: func(tb testing.TB, app signtest.App) string {
//			router := mine.New()
//			router.Use(mineidem.Verify(app.Verifier))
//			router.HandleAll(func(c *mine.Context) {
//				body, err := io.ReadAll(c.Request.Body)
//				c.Write(app.Handle(signtest.Seen{
//					Context: c.Request.Context(), Method: c.Request.Method, Header: c.Request.Header.Get, Body: body, Err: err,
//				}))
//			})
//			return signtest.Listen(tb, router)
//		}})
//	}
//
// An adapter that makes net/http middleware has that ready: [NetHTTP].
//
// Servers answer malformed HTTP by themselves, each in its own way, and they have limits of their own.
// Rows with such requests say so; there, any 4xx is good, as long as the handler has not run. A
// harness should raise limits for the size of a header to 64 KiB, so that the verifier's own are met.
package signtest

import (
	"context"
	"testing"

	"github.com/idem-go/idem/sign"
)

// Harness is a framework, as the suite sees it.
type Harness struct {
	// Name is the framework's name.
	Name string
	// Start builds app, serves it on a port of its own on 127.0.0.1 and returns the address,
	// "127.0.0.1:port". The server, and every goroutine of it, has ended when tb's cleanups have
	// run. It may be called several times in one test.
	Start func(tb testing.TB, app App) (addr string)
	// Nonces, if it is set, opens n nonce stores, each as another process would, that share what
	// they hold: the service's real store. It may skip the test if that is not there. Nil:
	// the rows for several servers are run on one store in memory alone.
	Nonces func(tb testing.TB, n int) []sign.NonceStore
	// OwnDate: the server sets Date by its own clock, and the adapter cannot set another one.
	OwnDate bool
	// HTTP2: the server speaks HTTP/2 on the same port to clients that begin with it (RFC 9113, section
	// 3.3), as that of [Listen] does.
	HTTP2 bool
}

// App is an application to build.
type App struct {
	// Verifier is mounted as the adapter mounts one: in front of everything, or on the one route.
	Verifier *sign.Verifier
	// Pattern is the one route that the application has, for POST: "/accounts/:id", where ":id" is one segment,
	// in whatever way the framework spells that. Empty: the application answers to every method
	// (the framework's odd ones too, such as PROPFIND) and every path.
	Pattern string
	// Handle is what the handler does: it is given what the handler sees and returns the answer, to be sent
	// with status 200. It may be called concurrently, and keeps nothing of what it is given.
	Handle func(Seen) (body []byte)

	config sign.Config // that of Verifier, for verifiers that are wrong on purpose
}

// Seen is what a handler sees of a request behind the verifier.
type Seen struct {
	// Context is the request's context, as handlers of the framework get it.
	Context context.Context
	// Verified is the adapter's own function for handlers: ginidem.Verified, say. Nil: it has none.
	Verified func() (sign.Verified, bool)
	// Method is the request's method.
	Method string
	// Header returns the first value of a field, or "".
	Header func(name string) string
	// Body is the whole body as it was sent, read in the handler, and Err the error of reading it.
	Body []byte
	Err  error
}

// Run attacks an adapter, in a subtest for each row.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			b := newBench(t, h, g)
			for _, r := range g.rows {
				t.Run(r.name, func(t *testing.T) {
					p := b.play(t, r)
					if len(p.problems) == 0 {
						return
					}
					for _, problem := range p.problems {
						t.Error(problem)
					}
					t.Logf("the reason for this row: %s", r.why)
				})
			}
		})
	}
}

// group are rows that need the same configuration. They share a server.
type group struct {
	name string
	// config changes the verifier's configuration. Nil: nothing.
	config func(b *bench, c *sign.Config)
	// pattern is App.Pattern.
	pattern string
	// servers is how many servers there are, each with a verifier of its own. 0: one.
	servers int
	// shared puts the servers on Harness.Nonces.
	shared bool
	// http2: the rows are for Harness.HTTP2.
	http2 bool
	rows  []row
}

// row is one attack, or what must work beside it.
type row struct {
	name string
	why  string // the rule, or what has gone wrong without it
	// steps are carried out one after the other; each row begins with the clock at noon.
	steps []step
}

// step is a part of a row.
type step interface{ do(p *play) }

// do is a step that is a function.
type do func(p *play)

func (f do) do(p *play) { f(p) }
