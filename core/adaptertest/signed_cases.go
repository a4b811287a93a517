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

// guardedGroups are services with a verifier and a guard, each with one case.
var guardedGroups = groupsOf(behindCases, sortedCases, userCases, outsideCases, runningCases, wireCases)

// guardedCase checks one rule about the two together.
type guardedCase struct {
	name, why string
	needs     Features
	// change changes the service. As it is before, a verifier with the ring of the suite stands in front of a guard for client
	// keys, whose user is the caller. Nil: nothing.
	change func(*service)
	check  func(*attackRun)
}

func groupsOf(all ...[]guardedCase) (groups []attackGroup) {
	for _, c := range slices.Concat(all...) {
		groups = append(groups, attackGroup{name: c.name, needs: c.needs, attacks: []attack{{why: c.why, steps: []attackStep{attackFunc(c.check)}}},
			change: func(_ *signedEnv, s *service) {
				policy := core.ClientKey()
				s.pattern, s.policy = "/orders/:id", &policy
				if c.change != nil {
					c.change(s)
				}
			}})
	}
	return groups
}

const purchaseBody = `{"sku":"A-1"}`

var (
	// purchase is demo's, under a client key.
	purchase  = good.with(target("/orders/7?x=2&x=1"), clientKeyed("k-1"), body(purchaseBody))
	keyless   = purchase.with(drop("Idempotency-Key"), cover("content-type"))
	unsigned  = purchase.then(drop("X-Signature", "X-Key-Id", "X-Timestamp", "X-Nonce", "X-Signed-Headers"))
	byForger  = purchase.with(by(&signer{id: demo.id, secret: stranger.secret}))
	secondKey = last("Idempotency-Key", "k-1")
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
	if got := p.e.store.calls("acquire"); got != n {
		p.problem("%d operations were claimed in the store, not %d", got, n)
	}
}

// awaitClaims waits until the store was asked so often.
func (p *attackRun) awaitClaims(n int) {
	p.Helper()
	if !p.e.store.until(func() bool { return p.e.store.count["acquire"] >= n }) {
		p.problem("the store was not asked for %d claims", n)
	}
}

// hold makes the first run stay in the handler until release is called.
func (p *attackRun) hold() (release func()) {
	gate := make(chan struct{})
	p.e.mu.Lock()
	p.e.gate = gate
	p.e.mu.Unlock()
	release = sync.OnceFunc(func() { close(gate) })
	p.Cleanup(release)
	return release
}

// begin sends r and returns when its handler runs, or when it was answered without one. end waits for
// the answer; it may be called once.
func (p *attackRun) begin(r sendable) (end func() sent) {
	p.Helper()
	answered := make(chan sent, 1)
	m := r.message()
	go func() {
		r, err := p.roundTrip(m)
		answered <- sent{m: m, reply: r, err: err}
	}()
	select {
	case <-p.e.entered:
	case s := <-answered:
		p.problem("it is answered before the handler ends: %v %v", s.reply, s.err)
		answered <- s
	case <-time.After(patience):
		p.problem("the handler does not begin")
	}
	return func() sent {
		p.Helper()
		s := <-answered
		if s.err != nil {
			p.problem("%v", s.err)
		}
		p.checkAccepted(s.reply, s.m)
		return s
	}
}

// behindCases are about a guard behind Verify, where it belongs.
var behindCases = []guardedCase{
	{
		name: "tried again",
		why:  "a nonce is for one message, an Idempotency-Key for one operation: a client signs each try anew and gets the first answer",
		check: func(p *attackRun) {
			first := p.runs(1, purchase)
			p.replays(first, purchase)
			p.replays(first, purchase.then(inChunks()))
		},
	},
	{
		name: "sent again",
		why:  "the same bytes again are an attack, not a try: the replay of an answer is for who can sign",
		check: func(p *attackRun) {
			first := p.runs(1, purchase)
			p.refuses(sign.CodeReplayed, first.m)
			p.claims(1)
			p.replays(first, purchase)
		},
	},
	{
		name:   "refusals create nothing",
		why:    "a failed signature creates no record, in whatever way it fails: nobody who cannot sign can fill the store, or take a key",
		change: func(s *service) { s.sign.BodyLimit = 1000 },
		check: func(p *attackRun) {
			for _, tc := range []struct {
				request signedRequest
				kind    error
			}{
				{byForger, sign.ReasonBadSignature},
				{unsigned, sign.CodeMissing},
				{purchase.with(secondsAhead(-120)), sign.CodeExpired},
				{purchase.with(secondsAhead(120)), sign.CodeNotYetValid},
				{purchase.then(body(`{"sku":"A-2"}`)), sign.ReasonBadSignature},
				{purchase.then(clientKeyed("k-2")), sign.ReasonBadSignature},
				{purchase.then(set("X-Key-Id", "bob")), sign.ReasonBadSignature},
				{purchase.then(set("X-Key-Id", "eve")), sign.ReasonUnknownKey},
				{purchase.then(secondKey), sign.CodeDuplicateHeader},
				{keyless.then(secondKey), sign.ReasonUncovered},
				{purchase.then(set("X-Timestamp", "+1700000000")), sign.CodeMalformed},
				{purchase.with(body(strings.Repeat("x", 1001))), sign.CodeBodyTooLarge},
			} {
				p.refuses(tc.kind, tc.request)
			}
			p.claims(0)
			p.replays(p.runs(1, purchase), purchase)
			p.claims(2)
		},
	},
	{
		name: "another body under the same key",
		why:  "422 key_reused, also if it is well signed; the record is unchanged. The guard sees the bytes that were verified",
		check: func(p *attackRun) {
			first := p.runs(1, purchase)
			p.guardRefuses(422, codes.KeyReused, purchase.with(body(`{"sku":"A-2"}`)))
			p.replays(first, purchase)
		},
	},
	{
		name: "no Idempotency-Key",
		why:  "a required key is missing: 400 of the guard's, nothing recorded; the nonce is used up",
		check: func(p *attackRun) {
			s := p.guardRefuses(400, codes.KeyMissing, keyless)
			p.refuses(sign.CodeReplayed, s.m)
			p.claims(0)
		},
	},
	{
		name:   "keys made of parameters",
		why:    "a body of which the verifier leaves nothing would make one operation of all",
		change: func(s *service) { s.policy = &core.Policy{} },
		check: func(p *attackRun) {
			first := p.runs(1, keyless)
			p.replays(first, keyless.then(inChunks()))
			second := p.runs(2, keyless.with(body(`{"sku":"A-2"}`)))
			p.replays(second, keyless.with(body(`{"sku":"A-2"}`)))
		},
	},
	{
		name: "what the handler sees",
		why:  "behind both of them the whole body is there to be read, and who has signed stands in the context",
		check: func(p *attackRun) {
			for i, text := range []string{"", "x", purchaseBody, strings.Repeat("0123456789", 7_000), strings.Repeat("0123456789", 100_000)} {
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
			for _, r := range []request{{media: "application/json", body: order}, form("sku=A-1&quantity=2"), upload("", "b1", "cat.png", "meow")} {
				s := p.post(purchase.with(set("Content-Type", r.media), body(r.body)))
				if s.status != 201 || string(s.body) != "1: A-1 times 2" {
					p.problem("%s: the handler has answered %v", r.media, s.reply)
				}
			}
		},
	},
	{
		name:   "without a guard",
		why:    "the verifier alone tells the handler as much, and leaves it as much",
		change: func(s *service) { s.policy = nil },
		check: func(p *attackRun) {
			p.runs(1, purchase)
			p.runs(2, purchase.with(by(bob)).then(inChunks()))
			p.refuses(sign.ReasonBadSignature, byForger)
		},
	},
	{
		name:   "nonces in the engine's store",
		why:    "one store serves both: a nonce is no operation, whatever it is called, and one failed signature asks for nothing",
		change: func(s *service) { s.engineNonces = true },
		check: func(p *attackRun) {
			asked := func(nonces, claims int) {
				if got := p.e.store.calls("nonce"); got != nonces {
					p.problem("the store was asked %d times for nonces, not %d times", got, nonces)
				}
				p.claims(claims)
			}
			p.refuses(sign.ReasonBadSignature, byForger)
			asked(0, 0)
			first := p.runs(1, purchase)
			p.refuses(sign.CodeReplayed, first.m)
			p.replays(first, purchase)
			p.runs(2, purchase.with(clientKeyed(first.m.nonce())))
			asked(4, 3)
		},
	},
	{
		name:   "the one store is down",
		why:    "store failure refuses, 503; the nonce is not used up by that, and nothing is recorded",
		change: func(s *service) { s.engineNonces = true },
		check: func(p *attackRun) {
			p.e.store.fail("acquire", "nonce")
			first := p.refuses(sign.CodeStoreUnavailable, purchase)
			p.refuses(sign.ReasonBadSignature, byForger)
			p.claims(0)
			p.e.store.fail()
			p.replays(p.runs(1, first.m), purchase)
		},
	},
	{
		name: "the guard's store is down",
		why:  "503 of the guard's; the nonce was used up by then, so that the next try is to be signed anew, which runs",
		check: func(p *attackRun) {
			p.e.store.fail("acquire")
			first := p.guardRefuses(503, codes.StoreUnavailable, purchase)
			p.e.store.fail()
			p.refuses(sign.CodeReplayed, first.m)
			p.runs(1, purchase)
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
		name: "Verify twice, the inner one refuses",
		why:  "who is known outside is not yet known inside; and a refusal further in creates no record either",
		change: func(s *service) {
			s.inner = &sign.Config{Keys: sign.Must(sign.NewRing(sign.Must(sign.NewHMACKey(sign.KeyOptions{ID: bob.id}, bob.secret)))), Clock: s.sign.Clock, Observe: s.sign.Observe}
		},
		check: func(p *attackRun) {
			s := p.post(purchase)
			p.checkRefusal(s.reply, refusedBy(sign.ReasonUnknownKey), s.m)
			if len(s.events) != 2 || s.events[0].Err != nil || s.runs != 0 {
				p.problem("the handler has run %d times, and the observers were told %v", s.runs, s.events)
			} else {
				p.checkEvent(s.events[1], s.m, refusedBy(sign.ReasonUnknownKey))
			}
			p.claims(0)
			s = p.post(purchase.with(by(bob)))
			p.checkAccepted(s.reply, s.m)
			if s.runs != 1 {
				p.problem("the handler has run %d times", s.runs)
			}
		},
	},
	{
		name: "a refusal's own fields",
		why:  "what a middleware in front has set for the answer that it expected is not the refusal's; other fields are left alone",
		change: func(s *service) {
			s.sign.BodyLimit = 1000
			s.fields = []adapter.Field{
				{Name: "Content-Type", Value: "text/html"}, {Name: "Content-Length", Value: "3"}, {Name: "Cache-Control", Value: "public"}, {Name: "X-Outer", Value: "1"},
			}
		},
		check: func(p *attackRun) {
			for _, s := range []sent{
				p.refuses(sign.ReasonBadSignature, byForger),
				p.refuses(sign.CodeMissing, unsigned),
				p.refuses(sign.CodeMalformed, purchase.then(set("X-Timestamp", "+1700000000"))),
				p.refuses(sign.CodeBodyTooLarge, purchase.with(body(strings.Repeat("x", 1001)))),
			} {
				for _, fault := range checkField(s.reply, "X-Outer", "1") {
					p.problem("%s", fault)
				}
			}
		},
	},
}

// sorted has key id, timestamp, nonce and signature among the parameters, under names that mean nothing to a guard.
var sorted = func() sign.Scheme {
	scheme, err := sortedparams.New(sortedparams.Options{
		InParams: true, KeyID: "mch_id", Timestamp: "sent_at", Nonce: "nonce_str", Sign: "sig",
		Bind: sortedparams.Binding{IdempotencyKey: "idempotency_key"},
	})
	if err != nil {
		panic(err) // the suite's own
	}
	return scheme
}()

// sortedOrder is demo's order by that scheme. Package sign signs it: the suite has a definition of its own of the other schemes only.
type sortedOrder struct {
	key, query, media, body string
	age                     time.Duration
}

// sortedOrders have the same parameters in each place.
func sortedOrders() []sortedOrder {
	const pairs = "amount=5&latitude=52.5&timestamp=noon"
	return []sortedOrder{
		{query: pairs},
		{media: "application/x-www-form-urlencoded", body: pairs},
		{media: "application/json", body: `{"amount":5,"latitude":52.5,"timestamp":"noon"}`},
		{query: "amount=5", media: "application/json", body: `{"latitude":52.5,"timestamp":"noon"}`},
	}
}

// but has other values in the place of those that are replaced, before it is signed.
func (o sortedOrder) but(replaced ...string) sortedOrder {
	values := strings.NewReplacer(replaced...)
	o.query, o.body = values.Replace(o.query), values.Replace(o.body)
	return o
}

func (o sortedOrder) message() *message {
	r, err := http.NewRequest("POST", "http://api.example.com/orders/7?"+o.query, strings.NewReader(o.body))
	if err != nil {
		panic(err) // the suite's own
	}
	for name, value := range map[string]string{"Content-Type": o.media, "Idempotency-Key": o.key} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	clock := func() time.Time { return noon.Add(-o.age) }
	if err := sign.Request(r, sign.Must(sign.NewHMACKey(sign.KeyOptions{ID: demo.id}, demo.secret)), sign.RequestOptions{Scheme: sorted, Clock: clock}); err != nil {
		panic(err)
	}
	signedBody, _ := io.ReadAll(r.Body) // of a buffer
	m := &message{method: r.Method, target: r.URL.RequestURI(), body: signedBody, signer: demo, sorted: true, lines: []line{{"Host", " " + r.Host}}}
	for name, values := range r.Header {
		m.lines = append(m.lines, line{name, " " + values[0]})
	}
	return m
}

var anotherAmount = []string{"amount=5", "amount=6", `"amount":5`, `"amount":6`}

// sortedCases are about signatures that stand among the parameters of which a guard makes keys and fingerprints.
var sortedCases = []guardedCase{
	{
		name:   "sorted parameters/a client's key",
		why:    "a retry is signed anew: what the verifier has consumed is not the operation's. Everything else is, whatever it is called",
		change: func(s *service) { s.sign.Scheme = sorted },
		check: func(p *attackRun) {
			for i, o := range sortedOrders() {
				o.key = fmt.Sprint("k-", i)
				first, late := p.runs(i+1, o), o
				p.replays(first, o)
				late.age = 10 * time.Second
				p.replays(first, late)
				p.guardRefuses(422, codes.KeyReused, o.but(anotherAmount...))
				p.guardRefuses(422, codes.KeyReused, o.but("52.5", "52.6"))
				p.guardRefuses(422, codes.KeyReused, o.but("noon", "night"))
				p.replays(first, o)
			}
		},
	},
	{
		name:   "sorted parameters/keys made of parameters",
		why:    "else each retry, which is signed anew, would be another operation",
		change: func(s *service) { s.sign.Scheme, s.policy = sorted, &core.Policy{} },
		check: func(p *attackRun) {
			for i, o := range sortedOrders() {
				first, late := p.runs(2*i+1, o), o
				late.age = 10 * time.Second
				p.replays(first, late)
				p.runs(2*i+2, o.but(anotherAmount...))
				p.replays(first, o)
			}
		},
	},
}

// attempt is a request under one Idempotency-Key, and what it must come to.
type attempt struct {
	signer *signer
	user   string // X-User
	again  int    // the attempt, from 1, whose answer it gets; 0: it runs
}

// whoIsWho is a case in which each attempt is made under the same Idempotency-Key.
func whoIsWho(name, why string, change func(*service), attempts ...attempt) guardedCase {
	return guardedCase{name: "users/" + name, why: why, change: change, check: func(p *attackRun) {
		runs := 0
		made := make([]sent, len(attempts))
		for i, a := range attempts {
			r := purchase.with(by(a.signer))
			if a.user != "" {
				r = r.then(last("X-User", a.user))
			}
			if a.again > 0 {
				p.replays(made[a.again-1], r)
				continue
			}
			runs++
			made[i] = p.runs(runs, r)
		}
	}}
}

func userFrom(source core.UserSource) func(*service) {
	return func(s *service) { s.core.User = source }
}

// userCases are about whom a guard behind Verify takes for its user.
var userCases = []guardedCase{
	whoIsWho("two owners", "idempotency is scoped by the key's owner: two customers do choose the same key, and neither gets the other's receipt",
		nil, attempt{demo, "", 0}, attempt{bob, "", 0}, attempt{demo, "", 1}, attempt{bob, "", 2}),
	whoIsWho("a key is changed", "a retry that is signed with the next key of the same owner is a retry: it must not run again",
		nil, attempt{demo, "", 0}, attempt{newDemo, "", 1}, attempt{bob, "", 0}, attempt{demo, "", 1}),
	whoIsWho("an unsigned user", "UserFromCaller is the caller and nothing else: what anybody can add to a request is nobody",
		nil, attempt{demo, "", 0}, attempt{demo, "alice", 1}, attempt{bob, "alice", 0}),
	whoIsWho("users of a caller", "core.Config.User: a user whom it finds as well refines the caller: the users of one caller stay apart, and so do callers",
		userFrom(core.UserFromHeader("X-User")),
		attempt{demo, "", 0}, attempt{demo, "alice", 0}, attempt{demo, "bob", 0}, attempt{bob, "", 0}, attempt{bob, "alice", 0},
		attempt{demo, "", 1}, attempt{demo, "alice", 2}, attempt{demo, "bob", 3}, attempt{bob, "", 4}, attempt{bob, "alice", 5}, attempt{demo, "demo", 0}),
	whoIsWho("by address", "core.Config.User: one customer has many addresses, and one address many customers: it adds nothing to a caller",
		userFrom(core.UserFromRemoteAddr()), attempt{demo, "", 0}, attempt{bob, "", 0}, attempt{demo, "", 1}),
	whoIsWho("shared by all", "docs/decisions/surprises.md: two owners are two customers, also if all callers share",
		userFrom(core.SharedByAllCallers()), attempt{demo, "", 0}, attempt{bob, "", 0}, attempt{demo, "", 1}),
	whoIsWho("named by the policy", "docs/decisions/surprises.md: a policy that names its source itself gets that source and nothing else",
		func(s *service) { s.policy.User = core.UserFromHeader("X-User") },
		attempt{demo, "alice", 0}, attempt{bob, "alice", 1}, attempt{demo, "bob", 0}),
}

// outside puts a guard in front of Verify, the wrong way round.
func outside(s *service) {
	policy := core.ClientKey()
	policy.User = core.SharedByAllCallers() // nobody is verified yet
	s.policy, s.outer = nil, &policy
}

func bothSides(s *service) {
	inner := s.policy
	outside(s)
	s.policy = inner
}

// refusalsAreNotKept is what must hold when there is a guard in front of Verify.
func refusalsAreNotKept(p *attackRun) {
	p.refuses(sign.ReasonBadSignature, byForger)
	p.refuses(sign.CodeMissing, unsigned)
	p.refuses(sign.CodeExpired, purchase.with(secondsAhead(-120)))
	first := p.runs(1, purchase)
	p.replays(first, purchase)
}

var outsideCases = []guardedCase{
	{
		name:   "guard outside/a refusal is not kept",
		why:    "a refusal that is kept for the answer locks out who comes after the forger: the handler was not reached, so the next good try runs",
		change: outside,
		check:  refusalsAreNotKept,
	},
	{
		name:   "guard outside/and another inside",
		why:    "a refusal is a failure for every guard around it: none keeps it",
		change: bothSides,
		check:  refusalsAreNotKept,
	},
	{
		name:  "guard outside/an error rendered further out",
		why:   "what a middleware makes of the handler's error passes the verifier, and is what a guard in front of it stores",
		needs: Features{OuterErrors: true},
		change: func(s *service) {
			outside(s)
			s.errors = true
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
	{
		name: "guard outside/a limit that only Verify has",
		why:  "a 413 of Verify's is a refusal as well: it is not kept",
		change: func(s *service) {
			outside(s)
			s.sign.BodyLimit = 500
		},
		check: func(p *attackRun) {
			p.refuses(sign.CodeBodyTooLarge, purchase.with(body(strings.Repeat("x", 501))))
			p.runs(1, purchase.with(body(strings.Repeat("x", 500))))
		},
	},
}

// runningCases are about what happens while an operation runs.
var runningCases = []guardedCase{
	{
		name: "running/a wrong signature",
		why:  "who cannot sign learns nothing of what runs, and does not disturb it",
		check: func(p *attackRun) {
			release := p.hold()
			end := p.begin(purchase)
			p.refuses(sign.ReasonBadSignature, byForger)
			p.refuses(sign.CodeMissing, unsigned)
			p.claims(1)
			p.guardRefuses(409, codes.InProgress, purchase)
			release()
			p.replays(end(), purchase)
		},
	},
	{
		name:   "running/duplicates that wait",
		why:    "duplicates wait and get the answer, each with a nonce of its own; who cannot sign does not wait",
		change: func(s *service) { s.policy.Duplicate = core.Wait(patience) },
		check: func(p *attackRun) {
			const n = 10
			release := p.hold()
			end := p.begin(purchase)
			var waiting sync.WaitGroup
			answers := make([]reply, n)
			errs := make([]error, n)
			for i := range n {
				m := purchase.message()
				waiting.Go(func() { answers[i], errs[i] = p.roundTrip(m) })
			}
			p.awaitClaims(1 + n)
			s := p.post(byForger)
			p.checkRefusal(s.reply, refusedBy(sign.ReasonBadSignature), s.m) // the observer tells of all of them, in any order
			release()
			first := end()
			waiting.Wait()
			for i, r := range answers {
				if errs[i] != nil {
					p.problem("%v", errs[i])
				}
				p.checkReplay(first, r)
			}
			if runs := p.e.count(); runs != 1 {
				p.problem("the handler has run %d times", runs)
			}
		},
	},
	{
		name: "running/a hundred clients at once",
		why:  "memory that is used again turns into another customer's data: what is pooled for one request must not show in another, nor in what a handler keeps",
		check: func(p *attackRun) {
			const n = 100
			trials := make([][3]sent, n) // the first one, another try, and the first one's bytes again
			for i := range trials {
				// Two signers share each Idempotency-Key, and have bodies of different lengths.
				r := purchase.with(by([]*signer{demo, bob}[i%2]), clientKeyed(fmt.Sprint("k-", i/2)), body(strings.Repeat(fmt.Sprint(i, ","), 1+i*40)))
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
					c, err := dial(p.e.addrs[0])
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

// kept keeps the connection open for more.
func kept(m *message) { m.keepAlive = true }

// limits is a case for the limits of both: up to the limit bodies are let in, by one byte more they are not.
func limits(name, why string, verifier, guard int64) guardedCase {
	return guardedCase{
		name: "limits/" + name, why: why,
		change: func(s *service) { s.sign.BodyLimit, s.policy.BodyLimit = verifier, guard },
		check: func(p *attackRun) {
			verifier, guard := verifier, guard
			if verifier == 0 {
				verifier = 1 << 20
			}
			if guard == 0 {
				guard = 1 << 20
			}
			for runs, chunked := range []bool{false, true} {
				of := func(n int64) signedRequest {
					r := purchase.with(body(strings.Repeat("x", int(n))), clientKeyed(fmt.Sprintf("k-%d-%v", n, chunked)))
					if chunked {
						r = r.then(inChunks())
					}
					return r
				}
				first := p.runs(runs+1, of(min(verifier, guard)))
				p.replays(first, of(min(verifier, guard)))
				if guard < verifier {
					p.guardRefuses(413, codes.BodyTooLarge, of(guard+1))
					p.guardRefuses(413, codes.BodyTooLarge, of(verifier))
				}
				p.refuses(sign.CodeBodyTooLarge, of(verifier+1))
				p.claims(2 * (runs + 1))
			}
		},
	}
}

// wireCases are about bodies and connections.
var wireCases = []guardedCase{
	limits("the same", "1 MiB by default, inclusive, for both", 0, 0),
	limits("the verifier's is smaller", "it is asked first", 20_000, 40_000),
	limits("the guard's is smaller", "what is verified may still be too long for the guard: 413, nothing recorded", 40_000, 20_000),
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
		change: func(s *service) { s.bodyLimit = 10 },
		check: func(p *attackRun) {
			p.refuses(sign.CodeBodyTooLarge, purchase.with(body(strings.Repeat("x", 11))))
			p.refuses(sign.CodeBodyTooLarge, purchase.with(body(strings.Repeat("x", 11))).then(inChunks()))
			p.runs(1, purchase.with(body(strings.Repeat("x", 10))))
		},
	},
	{
		name:   "one connection",
		why:    "a connection goes on after a refusal, whatever of the body nobody has read; or it is closed. The rest of a body is never taken for a request",
		change: func(s *service) { s.sign.BodyLimit = 15_000 },
		check: func(p *attackRun) {
			long := body(strings.Repeat("x", 20_000))
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
			for i, step := range []struct {
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
				p.at = i + 1
				s := p.try(step.request.message(), func(m *message) (r reply, err error) {
					if open == nil {
						if open, err = dial(p.e.addrs[0]); err != nil {
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
