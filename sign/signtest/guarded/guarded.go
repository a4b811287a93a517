// Package guarded is the suite for services that mount both a verifier and a guard: signatures against who
// must not get in, idempotency against what must not happen twice. Each has a suite of its own (packages
// signtest and core/adaptertest); what can go wrong only between the two is here: a refusal that leaves a
// record or is kept for an answer, two key holders who are taken for one user, a body of which the second
// reader gets nothing, a connection that is of no use after a refusal.
//
// The suite speaks to a real listener over TCP. Each of its cases has the reason for which it exists. An
// adapter enrols with a [Harness], which builds an application of its framework from an [App]; the
// middleware comes ready and in order from [Stack]:
//
//	var harness = guarded.OnNetHTTP("mine", func(app guarded.App) http.Handler {
//		router := mine.New()
//		stack := guarded.Stack(app, mineidem.Verify, mineidem.New)
//		router.POST(app.Pattern, append(stack, func(c *mine.Context) {
//			body, err := io.ReadAll(c.Request.Body)
//			c.Write(app.Handle(signtest.Seen{
//				Context: c.Request.Context(), Method: c.Request.Method, Header: c.Request.Header.Get, Body: body, Err: err,
//			}))
//		})...)
//		return router
//	})
//
//	func TestSignedAndGuarded(t *testing.T) { guarded.Run(t, harness) }
//
//	func BenchmarkVerify(b *testing.B) { guarded.Bench(b, harness) }
//
// The same builder serves package signtest, by [Harness.Signatures], if it knows applications without a
// pattern as well.
package guarded

import (
	"testing"
	"time"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/signtest"
)

// Harness is a framework, as the suite sees it.
type Harness struct {
	// Name is the framework's name.
	Name string
	// Start builds app, serves it on a port of its own on 127.0.0.1 and returns the address,
	// "127.0.0.1:port". The server, and every goroutine of it, has ended when tb's cleanups have
	// run. It may be called several times in one test.
	Start func(tb testing.TB, app App) (addr string)
	// Direct builds app and returns a function that gives it a request, which message is as it stands on the
	// wire, without a connection in between; the response is thrown away. It is for [Bench] alone.
	Direct func(tb testing.TB, app App, message []byte) (serve func())
	// OuterLimit: Start obeys App.BodyLimit. Without it the case for that is skipped.
	OuterLimit bool
	// ClosesUnread: the server closes a connection after a refusal if nobody has read the request's body to its
	// end. Otherwise the connection goes on.
	ClosesUnread bool
	// HTTP2 is that of the harness for package signtest.
	HTTP2 bool
}

// App is an application to build: that of package signtest, with a guard. The order of the middleware, from the
// outside: what obeys Fields and BodyLimit; then that of [Stack].
//
// In this package's own cases and benchmark Pattern is always set, and Handle may keep what
// Seen.Context is, and nothing else.
type App struct {
	signtest.App // Verifier may be nil: then there is none
	// Inner is another verifier, behind Verifier. Nil: there is none.
	Inner *sign.Verifier
	// Outer is a guard in front of Verifier, and Guard one behind it. Nil: there is none.
	Outer, Guard *core.Guard
	// Fields are response header fields that a middleware in front of everything sets (not adds).
	Fields []sign.Field
	// BodyLimit, unless 0, limits request bodies in front of everything, so that reading beyond it fails with
	// *http.MaxBytesError. It is set only if Harness.OuterLimit is.
	BodyLimit int64
}

// Stack returns the middleware of app, the outermost first. M is what the framework calls a middleware; verify
// and guard are the adapter's functions that make one.
func Stack[M any](app App, verify func(*sign.Verifier) M, guard func(*core.Guard) M) []M {
	var stack []M
	if app.Outer != nil {
		stack = append(stack, guard(app.Outer))
	}
	for _, v := range []*sign.Verifier{app.Verifier, app.Inner} {
		if v != nil {
			stack = append(stack, verify(v))
		}
	}
	if app.Guard != nil {
		stack = append(stack, guard(app.Guard))
	}
	return stack
}

// Signatures returns the harness for package signtest. nonces is its Nonces, and may be nil.
func (h Harness) Signatures(nonces func(tb testing.TB, n int) []sign.NonceStore) signtest.Harness {
	return signtest.Harness{Name: h.Name, Nonces: nonces, HTTP2: h.HTTP2, Start: func(tb testing.TB, app signtest.App) string {
		tb.Helper()
		return h.Start(tb, App{App: app})
	}}
}

// Run checks an adapter, in a subtest for each case.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.outerLimit && !h.OuterLimit {
				t.Skipf("%s has no limit of its own to be obeyed", h.Name)
			}
			problems := play(t, h, c, patience)
			for _, problem := range problems {
				t.Error(problem)
			}
			if len(problems) > 0 {
				t.Logf("the reason for this case: %s", c.why)
			}
		})
	}
}

// testCase checks one rule.
type testCase struct {
	name string
	why  string // the rule, or what has gone wrong without it
	// outerLimit: it needs Harness.OuterLimit.
	outerLimit bool
	// change changes the service; nil: nothing.
	change func(*service)
	script func(*stage)
}

// service is what a case is played on. As it is before a case changes it, a verifier with the ring of
// the suite stands in front of a guard for client keys, whose user is the caller.
type service struct {
	sign   sign.Config
	inner  *sign.Config // App.Inner, if it is set
	core   core.Config
	policy *core.Policy // App.Guard, unless it is nil
	outer  *core.Policy // App.Outer, if it is set
	// ownNonces: the verifier's nonces are those of the engine.
	ownNonces bool
	fields    []sign.Field
	bodyLimit int64
}

// play plays a case and returns what was wrong.
func play(tb testing.TB, h Harness, c testCase, patience time.Duration) (problems []string) {
	tb.Helper()
	policy := core.ClientKey()
	s := &stage{h: h, patience: patience, store: newStore(tb), entered: make(chan struct{}, 1), gate: make(chan struct{})}
	close(s.gate) // nothing is held
	what := &service{
		sign: sign.Config{Keys: sign.MustRing(demo, bob, renewed), Observe: s.observe}, policy: &policy,
		core: core.Config{Store: s.store, User: core.UserFromCaller()},
	}
	if c.change != nil {
		c.change(what)
	}
	engine := core.MustNew(what.core)
	if what.ownNonces {
		what.sign.Nonces = engine.Nonces()
	}
	app := App{
		App:    signtest.App{Verifier: sign.MustVerifier(what.sign), Pattern: "/orders/:id", Handle: s.handle},
		Fields: what.fields, BodyLimit: what.bodyLimit,
	}
	if what.inner != nil {
		app.Inner = sign.MustVerifier(*what.inner)
	}
	if what.policy != nil {
		app.Guard = engine.MustGuard(*what.policy)
	}
	if what.outer != nil {
		app.Outer = engine.MustGuard(*what.outer)
	}
	s.guarded = what.policy != nil || what.outer != nil
	s.addr = h.Start(tb, app)
	c.script(s)
	s.checkKept()
	return s.problems
}
