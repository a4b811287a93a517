package adaptertest

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/sortedparams"
)

// guardedGroups are services with a verifier and a guard, each with one case: what can go wrong only between the two.
var guardedGroups = func() (groups []attackGroup) {
	for _, c := range slices.Concat(behindCases, outsideCases, wireCases) {
		groups = append(groups,
			attackGroup{name: c.name, needs: c.needs, attacks: []attack{{why: c.why, do: c.check}}, change: func(s *service) {
				policy := core.ClientKey()
				s.pattern, s.policy = "/orders/:id", &policy
				if c.change != nil {
					c.change(s)
				}
			}})
	}
	return groups
}()

// guardedCase checks one rule about the two together.
type guardedCase struct {
	name, why string
	needs     Features
	// change changes the service. As it is before, a verifier with the ring of the suite stands in front of a guard for client
	// keys, whose user is the caller. Nil: nothing.
	change func(*service)
	check  func(*attackRun)
}

const purchaseBody = `{"sku":"A-1"}`

var (
	// purchase is demo's, under a client key.
	purchase = good.with(target("/orders/7?x=2&x=1"), clientKeyed("k-1"), body(purchaseBody))
	keyless  = purchase.with(drop("Idempotency-Key"), cover("content-type"))
	unsigned = purchase.then(drop("X-Signature", "X-Key-Id", "X-Timestamp", "X-Nonce", "X-Signed-Headers"))
	byForger = purchase.with(by(forger))
)

func clientKeyed(key string) change { return set("Idempotency-Key", key) }

// sendable is what makes a message to be sent, signed anew each time; or a message, which is sent again byte for byte.
type sendable interface{ message() *message }

// post sends r and checks nothing yet.
func (p *attackRun) post(r sendable) sent {
	p.Helper()
	return p.try(r.message(), p.roundTrip)
}

// runs checks that r is answered by the handler, which has run for it, as the nth run of all.
func (p *attackRun) runs(n int, r sendable) sent {
	p.Helper()
	s := p.post(r)
	p.check(s, accepted)
	if got := p.e.count(); got != n {
		p.problem("the handler has run %d times, not %d", got, n)
	}
	return s
}

// replays checks that r is answered by the answer to first.
func (p *attackRun) replays(first sent, r sendable) {
	p.Helper()
	s := p.post(r)
	if s.runs != 0 {
		p.problem("the handler has run %d times", s.runs)
	}
	p.checkReplay(first, s.reply)
}

func (p *attackRun) checkReplay(first sent, r reply) {
	p.Helper()
	if r.status != first.status || !bytes.Equal(r.body, first.body) || r.get(core.ReplayedHeader) != "true" {
		p.problem("the answer is %v\nand no replay of %v", r, first.reply)
	}
}

// refuses checks that r is refused by the verifier for an error of that kind.
func (p *attackRun) refuses(kind error, r sendable) sent {
	p.Helper()
	return p.send(r.message(), refusedBy(kind))
}

// guardRefuses checks that r is verified and then refused by the guard.
func (p *attackRun) guardRefuses(status int, code codes.Code, r sendable) sent {
	p.Helper()
	s := p.post(r)
	p.checkGuardRefusal(s, status, code)
	return s
}

func (p *attackRun) checkGuardRefusal(s sent, status int, code codes.Code) {
	p.Helper()
	if len(s.events) != 1 || s.events[0].Err != nil {
		p.problem("the observer was told %v; the guard is to refuse what is verified", s.events)
	}
	if s.runs != 0 || s.status != status {
		p.problem("the handler has run %d times, and the status is %d, not the %d of %s", s.runs, s.status, status, code)
	}
	for _, fault := range checkProblem(s.reply, string(code)) {
		p.problem("%s", fault)
	}
}

// claims checks how often the store was asked for the claim of an operation so far.
func (p *attackRun) claims(n int) {
	p.Helper()
	if got := p.e.store.count(0); got != n {
		p.problem("%d operations were claimed in the store, not %d", got, n)
	}
}

// behindCases are about a guard behind Verify, where it belongs.
var behindCases = []guardedCase{
	{
		name: "tried again, and sent again",
		why: "a nonce is for one message, an Idempotency-Key for one operation: a client signs each try anew and gets the first " +
			"answer; the same bytes again are an attack",
		check: func(p *attackRun) {
			first := p.runs(1, purchase)
			p.replays(first, purchase)
			p.refuses(sign.CodeReplayed, first.m)
			p.claims(2)
			p.replays(first, purchase.then(inChunks()))
		},
	},
	{
		name:   "refusals create nothing",
		why:    "a failed signature creates no record, in whatever way it fails: nobody who cannot sign can fill the store, or take a key",
		change: func(s *service) { s.sign.BodyLimit = 1000 },
		check: func(p *attackRun) {
			p.refuses(sign.ReasonBadSignature, byForger)
			p.refuses(sign.CodeMissing, unsigned)
			p.refuses(sign.CodeExpired, purchase.with(secondsAhead(-120)))
			p.refuses(sign.ReasonUncovered, keyless.then(last("Idempotency-Key", "k-1")))
			p.refuses(sign.CodeBodyTooLarge, purchase.with(bodyOf(1001)))
			p.claims(0)
			p.replays(p.runs(1, purchase), purchase)
			p.claims(2)
		},
	},
	{
		name: "refused by the guard",
		why: "422 key_reused, also if it is well signed: the guard sees the bytes that were verified; a required key " +
			"that is missing is 400 of the guard's",
		check: func(p *attackRun) {
			first := p.runs(1, purchase)
			p.guardRefuses(422, codes.KeyReused, purchase.with(body(`{"sku":"A-2"}`)))
			p.guardRefuses(400, codes.KeyMissing, keyless)
			p.replays(first, purchase)
		},
	},
	{
		name: "what the handler sees",
		why:  "behind both of them the whole body is there to be read, and who has signed stands in the context",
		check: func(p *attackRun) {
			for i, text := range []string{"", "x", purchaseBody, strings.Repeat("0123456789", 7_000),
				strings.Repeat("0123456789", 100_000)} {
				r := purchase.with(body(text))
				p.runs(2*i+1, r.with(clientKeyed(fmt.Sprint("length-", i))))
				p.runs(2*i+2, r.with(clientKeyed(fmt.Sprint("chunks-", i))).then(inChunks()))
			}
		},
	},
	{
		name: "bound by the framework",
		why:  "behind the verifier the handler can read the body in any way that the framework offers: JSON and forms bound to a struct",
		change: func(s *service) {
			s.policy = nil
			s.handler = func(c Call) error { return echoForm(nil, c, 1) }
		},
		check: func(p *attackRun) {
			p.refuses(sign.ReasonBadSignature, byForger)
			for _, r := range []request{{media: "application/json", body: order}, form("sku=A-1&quantity=2"),
				upload("", "b1", "cat.png", "meow")} {
				s := p.post(purchase.with(set("Content-Type", r.media), body(r.body)))
				if s.status != 201 || string(s.body) != "1: A-1 times 2" {
					p.problem("%s: the handler has answered %v", r.media, s.reply)
				}
			}
		},
	},
	{
		name:   "Verify twice",
		why:    "two services of one application may both mount it: the inner one reads what the outer one has read",
		change: func(s *service) { s.inner = &sign.Config{Keys: s.sign.Keys, Clock: s.sign.Clock} },
		check: func(p *attackRun) {
			first := p.runs(1, purchase)
			p.replays(first, purchase.then(inChunks()))
			p.refuses(sign.CodeReplayed, first.m)
		},
	},
	{
		name: "a refusal's own fields",
		why:  "what a middleware in front has set for the answer that it expected is not the refusal's; other fields are left alone",
		change: func(s *service) {
			s.sign.BodyLimit = 1000
			s.app.Outer = []adapter.Field{
				{Name: "Content-Type", Value: "text/html"}, {Name: "Content-Length", Value: "3"},
				{Name: "Cache-Control", Value: "public"}, {Name: "X-Outer", Value: "1"},
			}
		},
		check: func(p *attackRun) {
			for _, s := range []sent{
				p.refuses(sign.ReasonBadSignature, byForger),
				p.refuses(sign.CodeMissing, unsigned),
				p.refuses(sign.CodeBodyTooLarge, purchase.with(bodyOf(1001))),
			} {
				for _, fault := range checkField(s.reply, "X-Outer", "1") {
					p.problem("%s", fault)
				}
			}
		},
	},
	{
		name: "two owners, and a key that is changed",
		why: "idempotency is scoped by the key's owner: two customers do choose the same key, and neither gets the other's receipt; " +
			"a retry that is signed with the next key of the same owner is a retry",
		check: func(p *attackRun) {
			first := p.runs(1, purchase)
			other := p.runs(2, purchase.with(by(bob)))
			p.replays(first, purchase.with(by(newDemo)))
			p.replays(other, purchase.with(by(bob)))
		},
	},
	{
		name:   "signatures among the parameters",
		why:    "a retry is signed anew: what the verifier has consumed is no part of the key. Everything else is, whatever it is called",
		change: func(s *service) { s.sign.Scheme, s.policy = sorted, &core.Policy{} },
		check: func(p *attackRun) {
			const query = "amount=5&latitude=52.5&timestamp=noon"
			first := p.runs(1, sortedOrder{query, 0})
			p.replays(first, sortedOrder{query, 10 * time.Second})
			p.runs(2, sortedOrder{strings.Replace(query, "5", "6", 1), 0})
		},
	},
	{
		name: "a hundred clients at once",
		why: "memory that is used again turns into another customer's data: what is pooled for one request must not show " +
			"in another, nor in what a handler keeps",
		check: func(p *attackRun) {
			const n = 100
			trials := make([][3]sent, n) // the first one, another try, and the first one's bytes again
			for i := range trials {
				// Two signers share each Idempotency-Key, and have bodies of different lengths.
				r := purchase.with(by([]*signer{demo, bob}[i%2]), clientKeyed(fmt.Sprint("k-", i/2)),
					body(strings.Repeat(fmt.Sprint(i, ","), 1+i*40)))
				if i%3 == 0 {
					r = r.then(inChunks())
				}
				r = r.then(kept)
				first := r.message()
				for j, m := range []*message{first, r.message(), first} {
					trials[i][j].m = m
				}
			}
			var clients sync.WaitGroup
			for i := range trials {
				clients.Go(func() {
					c, err := dial(p.e.addr)
					if err != nil {
						trials[i][0].err = err
						return
					}
					defer c.Close()
					for j := range trials[i] {
						s := &trials[i][j]
						c.write(s.m)
						s.reply, s.err = c.receive(s.m.method)
					}
				})
			}
			clients.Wait()
			for _, t := range trials {
				for _, s := range t {
					if s.err != nil {
						p.problem("%v", s.err)
					}
				}
				p.checkAccepted(t[0].reply, t[0].m)
				p.checkReplay(t[0], t[1].reply)
				p.checkRefusal(t[2].reply, refusedBy(sign.CodeReplayed), t[2].m)
			}
			if runs := p.e.count(); runs != n {
				p.problem("the handler has run %d times for %d operations", runs, n)
			}
		},
	},
}

// sorted has key id, timestamp, nonce and signature among the parameters, under names that mean nothing to a guard.
var sorted = sign.Must(
	sortedparams.New(sortedparams.Config{InParams: true, KeyID: "mch_id", Timestamp: "sent_at", Nonce: "nonce_str", Sign: "sig"}))

// sortedOrder is demo's order by that scheme. Package sign signs it: the suite has a definition of its own of the other schemes only.
type sortedOrder struct {
	query string
	age   time.Duration
}

func (o sortedOrder) message() *message {
	r, err := http.NewRequest("POST", "http://api.example.com/orders/7?"+o.query, nil)
	if err != nil {
		panic(err) // the suite's own
	}
	clock := func() time.Time { return noon.Add(-o.age) }
	if err := sign.Request(r, sign.Must(sign.NewHMACKey(sign.KeyConfig{ID: demo.id}, demo.secret)),
		sign.RequestOptions{Scheme: sorted, Clock: clock}); err != nil {
		panic(err)
	}
	m := &message{method: r.Method, target: r.URL.RequestURI(), signer: demo, sorted: true, lines: []line{{"Host", " " + r.Host}}}
	for name, values := range r.Header {
		m.lines = append(m.lines, line{name, " " + values[0]})
	}
	return m
}

// outside puts a guard in front of Verify, the wrong way round.
func outside(s *service) {
	policy := core.ClientKey()
	policy.User = core.SharedByAllCallers() // nobody is verified yet
	s.policy, s.outer = nil, &policy
}

var outsideCases = []guardedCase{
	{
		name: "guard outside/a refusal is not kept",
		why: "a refusal that is kept for the answer locks out who comes after the forger: the handler was " +
			"not reached, so the next good try runs",
		change: func(s *service) {
			inner := s.policy
			outside(s)
			s.policy, s.sign.BodyLimit = inner, 500
		},
		check: func(p *attackRun) {
			p.refuses(sign.ReasonBadSignature, byForger)
			p.refuses(sign.CodeMissing, unsigned)
			p.refuses(sign.CodeBodyTooLarge, purchase.with(bodyOf(501)))
			first := p.runs(1, purchase)
			p.replays(first, purchase)
		},
	},
	{
		name:  "guard outside/an error rendered further out",
		why:   "what a middleware makes of the handler's error passes the verifier, and is what a guard in front of it stores",
		needs: Features{OuterErrors: true},
		change: func(s *service) {
			outside(s)
			s.app.Errors = true
			s.handler = func(c Call) error { return c.Fail(422, "no stock") }
		},
		check: func(p *attackRun) {
			first := p.post(purchase)
			if first.status != 422 || string(first.body) != `{"error":"no stock"}` {
				p.problem("the answer is %v", first.reply)
			}
			p.replays(first, purchase)
		},
	},
	{
		name:   "guard outside/a large body",
		why:    "Verify reads what the guard has read before it",
		change: outside,
		check: func(p *attackRun) {
			r := purchase.with(body(strings.Repeat("0123456789", 70_000)))
			first := p.runs(1, r.then(inChunks()))
			p.replays(first, r)
		},
	},
}

// wireCases are about bodies and connections.
var wireCases = []guardedCase{
	{
		name:   "limits/the guard's is smaller",
		why:    "what is verified may still be too long for the guard: 413, nothing recorded",
		change: func(s *service) { s.sign.BodyLimit, s.policy.BodyLimit = 40_000, 20_000 },
		check: func(p *attackRun) {
			first := p.runs(1, purchase.with(bodyOf(20_000)))
			p.replays(first, purchase.with(bodyOf(20_000)).then(inChunks()))
			p.guardRefuses(413, codes.BodyTooLarge, purchase.with(bodyOf(40_000)))
			p.guardRefuses(413, codes.BodyTooLarge, purchase.with(bodyOf(20_001)).then(inChunks()))
			p.refuses(sign.CodeBodyTooLarge, purchase.with(bodyOf(40_001)))
			p.claims(2)
		},
	},
	{
		name:   "limits/none",
		why:    "a limit that is none must not overflow when one is added to it",
		change: func(s *service) { s.sign.BodyLimit, s.policy.BodyLimit = math.MaxInt64, math.MaxInt64 },
		check: func(p *attackRun) {
			first := p.runs(1, purchase.then(inChunks()))
			p.replays(first, purchase)
		},
	},
	{
		name:   "limits/another's",
		why:    "a body may be a MaxBytesReader: its error is 413, and not a bad signature",
		needs:  Features{OuterBodyLimit: true},
		change: func(s *service) { s.app.BodyLimit = 10 },
		check: func(p *attackRun) {
			p.refuses(sign.CodeBodyTooLarge, purchase.with(bodyOf(11)))
			p.refuses(sign.CodeBodyTooLarge, purchase.with(bodyOf(11)).then(inChunks()))
			p.runs(1, purchase.with(bodyOf(10)))
		},
	},
	{
		name: "one connection",
		why: "a connection goes on after a refusal, whatever of the body nobody has read; or it is closed. The rest " +
			"of a body is never taken for a request",
		change: func(s *service) { s.sign.BodyLimit = 15_000 },
		check: func(p *attackRun) {
			long := bodyOf(20_000)
			first := purchase.then(kept).message()
			refused := func(kind error) func(sent) { return func(s sent) { p.check(s, refusedBy(kind)) } }
			var done sent
			var open *connection
			hangUp := func() {
				if open != nil {
					_ = open.Close() // it has served
					open = nil
				}
			}
			defer hangUp()
			for _, step := range []struct {
				request sendable
				unread  bool // a part of the body is not read
				check   func(sent)
			}{
				{unsigned.with(long).then(kept), true, refused(sign.CodeMissing)},
				{first, false, func(s sent) { done = s; p.check(s, accepted) }},
				{purchase.with(long).then(kept), true, refused(sign.CodeBodyTooLarge)},
				{byForger.then(kept), false, refused(sign.ReasonBadSignature)},
				{first, false, refused(sign.CodeReplayed)},
				{purchase.then(kept), false, func(s sent) { p.checkReplay(done, s.reply) }},
				{unsigned.then(kept), true, refused(sign.CodeMissing)},
				{purchase.with(body("{}")).then(kept), false, func(s sent) { p.checkGuardRefusal(s, 422, codes.KeyReused) }},
				{purchase.with(long, secondsAhead(-120)).then(inChunks(), kept), true, refused(sign.CodeExpired)},
				{purchase.with(by(bob)).then(kept), false, func(s sent) { p.check(s, accepted) }},
			} {
				s := p.try(step.request.message(), func(m *message) (r reply, err error) {
					if open == nil {
						if open, err = dial(p.e.addr); err != nil {
							return r, err
						}
					}
					open.write(m)
					return open.receive(m.method)
				})
				step.check(s)
				closes := strings.EqualFold(s.get("Connection"), "close")
				if want := step.unread && p.e.h.Features.ClosesUnread; closes != want {
					p.problem("the answer says that the connection is closed: %v, not %v", closes, want)
				}
				if open != nil && (closes || s.err != nil) {
					if rest, _ := io.ReadAll(open.r); len(rest) > 0 {
						p.problem("behind the answer there is %q", rest)
					}
					hangUp()
				}
			}
			if runs := p.e.count(); runs != 2 {
				p.problem("the handler has run %d times", runs)
			}
		},
	},
}
