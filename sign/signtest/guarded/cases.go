package guarded

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/sortedparams"
)

// cases is the whole table.
var cases = slices.Concat(behindCases, sortedCases, userCases, outsideCases, runningCases, wireCases)

// behindCases are about a guard behind Verify, where it belongs.
var behindCases = []testCase{
	{
		name: "tried again",
		why:  "a nonce is for one message, an Idempotency-Key for one operation: a client signs each try anew and gets the first answer",
		script: func(s *stage) {
			first := s.runsAs(1, s.send(order))
			s.repeats(first, s.send(order))
			s.repeats(first, s.send(order.inChunks()))
		},
	},
	{
		name: "sent again",
		why:  "the same bytes again are an attack, not a try: the replay of an answer is for who can sign",
		script: func(s *stage) {
			first := s.runsAs(1, s.send(order))
			s.refused(sign.CodeReplayed, s.sendAgain(first.message))
			s.claims(1)
			s.repeats(first, s.send(order))
		},
	},
	{
		name:   "refusals create nothing",
		why:    "a failed signature creates no record, in whatever way it fails: nobody who cannot sign can fill the store, or take a key",
		change: func(w *service) { w.sign.BodyLimit = 1000 },
		script: func(s *stage) {
			for _, tc := range []struct {
				request request
				kind    sign.Kind
			}{
				{order.by(forger), sign.ReasonBadSignature},
				{order.by(nil), sign.CodeMissing},
				{order.before(2 * time.Minute), sign.CodeExpired},
				{order.before(-2 * time.Minute), sign.CodeNotYetValid},
				{order.changed("A-1", "A-2"), sign.ReasonBadSignature},
				{order.changed("Idempotency-Key: k-1", "Idempotency-Key: k-2"), sign.ReasonBadSignature},
				{order.changed("X-Key-Id: demo", "X-Key-Id: bob"), sign.ReasonBadSignature},
				{order.changed("X-Key-Id: demo", "X-Key-Id: eve"), sign.ReasonUnknownKey},
				{order.changed("\r\n\r\n", "\r\nIdempotency-Key: k-1\r\n\r\n"), sign.CodeDuplicateHeader},
				{order.under("").changed("\r\n\r\n", "\r\nIdempotency-Key: k-1\r\n\r\n"), sign.ReasonUncovered},
				{order.changed("X-Timestamp: ", "X-Timestamp: +"), sign.CodeMalformed},
				{order.with(strings.Repeat("x", 1001)), sign.CodeBodyTooLarge},
			} {
				s.refused(tc.kind, s.send(tc.request))
			}
			s.claims(0)
			s.repeats(s.runsAs(1, s.send(order)), s.send(order))
			s.claims(2)
		},
	},
	{
		name: "another body under the same key",
		why:  "422 key_reused, also if it is well signed; the record is unchanged. The guard sees the bytes that were verified",
		script: func(s *stage) {
			first := s.runsAs(1, s.send(order))
			s.stopped(422, core.CodeKeyReused, s.send(order.with(`{"sku":"A-2"}`)))
			s.repeats(first, s.send(order))
		},
	},
	{
		name: "no Idempotency-Key",
		why:  "a required key is missing: 400 of the guard's, nothing recorded; the nonce is used up",
		script: func(s *stage) {
			m := s.send(order.under(""))
			s.stopped(400, core.CodeKeyMissing, m)
			s.refused(sign.CodeReplayed, s.sendAgain(m.message))
			s.claims(0)
		},
	},
	{
		name:   "keys made of parameters",
		why:    "a body of which the verifier leaves nothing would make one operation of all",
		change: func(w *service) { w.policy = &core.Policy{} },
		script: func(s *stage) {
			first := s.runsAs(1, s.send(order.under("")))
			s.repeats(first, s.send(order.under("").inChunks()))
			second := s.runsAs(2, s.send(order.under("").with(`{"sku":"A-2"}`)))
			s.repeats(second, s.send(order.under("").with(`{"sku":"A-2"}`)))
		},
	},
	{
		name: "what the handler sees",
		why:  "behind both of them the whole body is there to be read, and who has signed stands in the context",
		script: func(s *stage) {
			for i, body := range []string{"", "x", order.body, strings.Repeat("0123456789", 7_000), strings.Repeat("0123456789", 100_000)} {
				r := order.with(body)
				s.runsAs(2*i+1, s.send(r.under(fmt.Sprint("length-", i))))
				s.runsAs(2*i+2, s.send(r.under(fmt.Sprint("chunks-", i)).inChunks()))
			}
		},
	},
	{
		name:   "without a guard",
		why:    "the verifier alone tells the handler as much, and leaves it as much",
		change: func(w *service) { w.policy = nil },
		script: func(s *stage) {
			s.runsAs(1, s.send(order))
			s.runsAs(2, s.send(order.by(bob).inChunks()))
			s.refused(sign.ReasonBadSignature, s.send(order.by(forger)))
		},
	},
	{
		name:   "nonces in the engine's store",
		why:    "one store serves both: a nonce is no operation, whatever it is called, and one failed signature asks for nothing",
		change: func(w *service) { w.ownNonces = true },
		script: func(s *stage) {
			s.refused(sign.ReasonBadSignature, s.send(order.by(forger)))
			if claims, nonces := s.store.count(); claims+nonces != 0 {
				s.problem("the store was asked %d times for nonces and %d times for operations", nonces, claims)
			}
			first := s.runsAs(1, s.send(order))
			s.refused(sign.CodeReplayed, s.sendAgain(first.message))
			s.repeats(first, s.send(order))
			s.runsAs(2, s.send(order.under(first.expect.Nonce)))
			if claims, nonces := s.store.count(); claims != 3 || nonces != 4 {
				s.problem("the store was asked %d times for nonces and %d times for operations, not 4 and 3 times", nonces, claims)
			}
		},
	},
	{
		name:   "the one store is down",
		why:    "store failure refuses, 503; the nonce is not used up by that, and nothing is recorded",
		change: func(w *service) { w.ownNonces = true },
		script: func(s *stage) {
			s.store.setDown(true)
			first := s.refused(sign.CodeStoreUnavailable, s.send(order))
			s.refused(sign.ReasonBadSignature, s.send(order.by(forger)))
			s.claims(0)
			s.store.setDown(false)
			s.repeats(s.runsAs(1, s.sendAgain(first.message)), s.send(order))
		},
	},
	{
		name: "the guard's store is down",
		why:  "503 of the guard's; the nonce was used up by then, so that the next try is to be signed anew, which runs",
		script: func(s *stage) {
			s.store.setDown(true)
			first := s.send(order)
			s.stopped(503, core.CodeStoreUnavailable, first)
			s.store.setDown(false)
			s.refused(sign.CodeReplayed, s.sendAgain(first.message))
			s.runsAs(1, s.send(order))
		},
	},
	{
		name:   "Verify twice",
		why:    "two services of one application may both mount it: the inner one reads what the outer one has read",
		change: func(w *service) { w.inner = &sign.Config{Keys: w.sign.Keys} },
		script: func(s *stage) {
			first := s.runsAs(1, s.send(order))
			s.repeats(first, s.send(order.inChunks()))
			s.refused(sign.CodeReplayed, s.sendAgain(first.message))
		},
	},
	{
		name: "Verify twice, the inner one refuses",
		why:  "who is known outside is not yet known inside; and a refusal further in creates no record either",
		change: func(w *service) {
			w.inner = &sign.Config{Keys: sign.MustRing(bob), Observe: w.sign.Observe}
		},
		script: func(s *stage) {
			s.refused(sign.ReasonUnknownKey, s.send(order))
			s.claims(0)
			s.runsAs(1, s.send(order.by(bob)))
		},
	},
	{
		name: "a refusal's own fields",
		why:  "what a middleware in front has set for the answer that it expected is not the refusal's; other fields are left alone",
		change: func(w *service) {
			w.sign.BodyLimit = 1000
			w.fields = []sign.Field{
				{Name: "Content-Type", Value: "text/html"}, {Name: "Content-Length", Value: "3"}, {Name: "Cache-Control", Value: "public"}, {Name: "X-Outer", Value: "1"},
			}
		},
		script: func(s *stage) {
			for _, t := range []try{
				s.refused(sign.ReasonBadSignature, s.send(order.by(forger))),
				s.refused(sign.CodeMissing, s.send(order.by(nil))),
				s.refused(sign.CodeMalformed, s.send(order.changed("X-Timestamp: ", "X-Timestamp: +"))),
				s.refused(sign.CodeBodyTooLarge, s.send(order.with(strings.Repeat("x", 1001)))),
			} {
				if got := t.header.Values("X-Outer"); !slices.Equal(got, []string{"1"}) {
					s.problem("X-Outer is %q", got)
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

func isSorted(w *service) { w.sign.Scheme = sorted }

// sortedOrders are demo's order with its parameters in each place.
func sortedOrders() []request {
	const pairs = "amount=5&latitude=52.5&timestamp=noon"
	plain := request{signer: demo, key: "k-1", scheme: sorted}
	query, form, object, both := plain, plain, plain, plain
	query.query = pairs
	form.kind, form.body = "application/x-www-form-urlencoded", pairs
	object.kind, object.body = "application/json", `{"amount":5,"latitude":52.5,"timestamp":"noon"}`
	both.query, both.kind, both.body = "amount=5", "application/json", `{"latitude":52.5,"timestamp":"noon"}`
	return []request{query, form, object, both}
}

// but has other values in the place of those that are replaced, before it is signed.
func (r request) but(replaced ...string) request {
	values := strings.NewReplacer(replaced...)
	r.query, r.body = values.Replace(r.query), values.Replace(r.body)
	return r
}

var anotherAmount = []string{"amount=5", "amount=6", `"amount":5`, `"amount":6`}

// sortedCases are about signatures that stand among the parameters of which a guard makes keys and fingerprints.
var sortedCases = []testCase{
	{
		name:   "sorted parameters/a client's key",
		why:    "a retry is signed anew: what the verifier has consumed is not the operation's. Everything else is, whatever it is called",
		change: isSorted,
		script: func(s *stage) {
			for i, r := range sortedOrders() {
				r = r.under(fmt.Sprint("k-", i))
				first := s.runsAs(i+1, s.send(r))
				s.repeats(first, s.send(r))
				s.repeats(first, s.send(r.before(10*time.Second)))
				s.stopped(422, core.CodeKeyReused, s.send(r.but(anotherAmount...)))
				s.stopped(422, core.CodeKeyReused, s.send(r.but("52.5", "52.6")))
				s.stopped(422, core.CodeKeyReused, s.send(r.but("noon", "night")))
				s.repeats(first, s.send(r))
			}
		},
	},
	{
		name: "sorted parameters/keys made of parameters",
		why:  "else each retry, which is signed anew, would be another operation",
		change: func(w *service) {
			isSorted(w)
			w.policy = &core.Policy{}
		},
		script: func(s *stage) {
			for i, r := range sortedOrders() {
				r = r.under("")
				first := s.runsAs(2*i+1, s.send(r))
				s.repeats(first, s.send(r.before(10*time.Second)))
				s.runsAs(2*i+2, s.send(r.but(anotherAmount...)))
				s.repeats(first, s.send(r))
			}
		},
	},
}

// attempt is a request under one Idempotency-Key, and what it must come to.
type attempt struct {
	signer *sign.Key
	user   string // X-User
	again  int    // the attempt, from 1, whose answer it gets; 0: it runs
}

// whoIsWho is a case in which each attempt is made under the same Idempotency-Key.
func whoIsWho(name, why string, change func(*service), attempts ...attempt) testCase {
	return testCase{name: "users/" + name, why: why, change: change, script: func(s *stage) {
		runs := 0
		var made []try
		for _, a := range attempts {
			t := s.send(order.by(a.signer).of(a.user))
			if made = append(made, t); a.again > 0 {
				s.repeats(made[a.again-1], t)
				continue
			}
			runs++
			s.runsAs(runs, t)
		}
	}}
}

func userFrom(source core.UserSource) func(*service) {
	return func(w *service) { w.core.User = source }
}

// userCases are about whom a guard behind Verify takes for its user.
var userCases = []testCase{
	whoIsWho("two owners", "idempotency is scoped by the key's owner: two customers do choose the same key, and neither gets the other's receipt",
		nil, attempt{demo, "", 0}, attempt{bob, "", 0}, attempt{demo, "", 1}, attempt{bob, "", 2}),
	whoIsWho("a key is changed", "a retry that is signed with the next key of the same owner is a retry: it must not run again",
		nil, attempt{demo, "", 0}, attempt{renewed, "", 1}, attempt{bob, "", 0}, attempt{demo, "", 1}),
	whoIsWho("an unsigned user", "UserFromCaller is the caller and nothing else: what anybody can add to a request is nobody",
		nil, attempt{demo, "", 0}, attempt{demo, "alice", 1}, attempt{bob, "alice", 0}),
	whoIsWho("users of a caller", "core.Config.User: a user whom it finds as well refines the caller: the users of one caller stay apart, and so do callers",
		userFrom(core.UserFromHeader("X-User")),
		attempt{demo, "", 0}, attempt{demo, "alice", 0}, attempt{demo, "bob", 0}, attempt{bob, "", 0}, attempt{bob, "alice", 0},
		attempt{demo, "", 1}, attempt{demo, "alice", 2}, attempt{demo, "bob", 3}, attempt{bob, "", 4}, attempt{bob, "alice", 5}, attempt{demo, "demo", 0}),
	whoIsWho("by address", "core.Config.User: one customer has many addresses, and one address many customers: it adds nothing to a caller",
		userFrom(core.UserFromRemoteAddr()), attempt{demo, "", 0}, attempt{bob, "", 0}, attempt{demo, "", 1}),
	whoIsWho("shared by all", "core/doc.go: two owners are two customers, also if all callers share",
		userFrom(core.SharedByAllCallers()), attempt{demo, "", 0}, attempt{bob, "", 0}, attempt{demo, "", 1}),
	whoIsWho("named by the policy", "core/doc.go: a policy that names its source itself gets that source and nothing else",
		func(w *service) { w.policy.User = core.UserFromHeader("X-User") },
		attempt{demo, "alice", 0}, attempt{bob, "alice", 1}, attempt{demo, "bob", 0}),
}

// outside puts a guard in front of Verify, the wrong way round.
func outside(w *service) {
	policy := core.ClientKey()
	policy.User = core.SharedByAllCallers() // nobody is verified yet
	w.policy, w.outer = nil, &policy
}

func bothSides(w *service) {
	inner := w.policy
	outside(w)
	w.policy = inner
}

// refusalsAreNotKept is what must hold when there is a guard in front of Verify.
func refusalsAreNotKept(s *stage) {
	s.refused(sign.ReasonBadSignature, s.send(order.by(forger)))
	s.refused(sign.CodeMissing, s.send(order.by(nil)))
	s.refused(sign.CodeExpired, s.send(order.before(2*time.Minute)))
	first := s.runsAs(1, s.send(order))
	s.repeats(first, s.send(order))
}

var outsideCases = []testCase{
	{
		name:   "guard outside/a refusal is not kept",
		why:    "a refusal that is kept for the answer locks out who comes after the forger: the handler was not reached, so the next good try runs",
		change: outside,
		script: refusalsAreNotKept,
	},
	{
		name:   "guard outside/and another inside",
		why:    "a refusal is a failure for every guard around it: none keeps it",
		change: bothSides,
		script: refusalsAreNotKept,
	},
	{
		name:   "guard outside/a large body",
		why:    "Verify reads what the guard has read before it",
		change: outside,
		script: func(s *stage) {
			r := order.with(strings.Repeat("0123456789", 70_000))
			first := s.runsAs(1, s.send(r.inChunks()))
			s.repeats(first, s.send(r))
		},
	},
	{
		name: "guard outside/a limit that only Verify has",
		why:  "a 413 of Verify's is a refusal as well: it is not kept",
		change: func(w *service) {
			outside(w)
			w.sign.BodyLimit = 500
		},
		script: func(s *stage) {
			s.refused(sign.CodeBodyTooLarge, s.send(order.with(strings.Repeat("x", 501))))
			s.runsAs(1, s.send(order.with(strings.Repeat("x", 500))))
		},
	},
}

// runningCases are about what happens while an operation runs.
var runningCases = []testCase{
	{
		name: "running/a wrong signature",
		why:  "who cannot sign learns nothing of what runs, and does not disturb it",
		script: func(s *stage) {
			release := s.hold()
			end := s.begin(order)
			s.refused(sign.ReasonBadSignature, s.send(order.by(forger)))
			s.refused(sign.CodeMissing, s.send(order.by(nil)))
			s.claims(1)
			s.stopped(409, core.CodeInProgress, s.send(order))
			release()
			first := s.runsAs(1, end())
			s.repeats(first, s.send(order))
		},
	},
	{
		name:   "running/duplicates that wait",
		why:    "duplicates wait and get the answer, each with a nonce of its own; who cannot sign does not wait",
		change: func(w *service) { w.policy.Duplicate = core.Wait(patience) },
		script: func(s *stage) {
			const n = 10
			release := s.hold()
			end := s.begin(order)
			s.awaitClaims(1) // that of the run
			var waiting sync.WaitGroup
			answers := make(chan try, n)
			for range n {
				m := order.message()
				waiting.Go(func() { answers <- try{message: m, reply: once(s.addr, m)} })
			}
			s.awaitClaims(n)
			s.refusedIn(sign.ReasonBadSignature, s.send(order.by(forger)))
			release()
			first := s.runsAs(1, end())
			waiting.Wait()
			for range n {
				s.repeats(first, <-answers)
			}
			if runs := s.ran(); runs != 1 {
				s.problem("the handler has run %d times", runs)
			}
		},
	},
	{
		name: "running/a hundred clients at once",
		why:  "memory that is used again turns into another customer's data: what is pooled for one request must not show in another, nor in what a handler keeps",
		script: func(s *stage) {
			const n = 100
			type trial struct{ first, again, replayed try }
			trials := make([]trial, n)
			for i := range trials {
				// Two signers share each Idempotency-Key, and have bodies of different lengths.
				r := order.by([]*sign.Key{demo, bob}[i%2]).under(fmt.Sprint("k-", i/2)).with(strings.Repeat(fmt.Sprint(i, ","), 1+i*40))
				if i%3 == 0 {
					r = r.inChunks()
				}
				trials[i].first.message = r.message()
				trials[i].again.message, trials[i].replayed.message = r.message(), trials[i].first.message
			}
			var clients sync.WaitGroup
			for i := range trials {
				clients.Go(func() {
					c, err := dial(s.addr)
					if err != nil {
						trials[i].first.err = err
						return
					}
					defer c.Close()
					for _, t := range []*try{&trials[i].first, &trials[i].again, &trials[i].replayed} {
						t.reply = c.ask(t.message)
					}
				})
			}
			clients.Wait()
			for i, t := range trials {
				s.at = i + 1
				s.runsAs(0, t.first)
				s.repeats(t.first, t.again)
				s.refusedIn(sign.CodeReplayed, t.replayed)
			}
			if runs := s.ran(); runs != n {
				s.problem("the handler has run %d times for %d operations", runs, n)
			}
		},
	},
}

// limits is a case for the limits of both: up to the limit bodies are let in, by one byte more they are not.
func limits(name, why string, verifier, guard int64) testCase {
	return testCase{
		name: "limits/" + name, why: why,
		change: func(w *service) { w.sign.BodyLimit, w.policy.BodyLimit = verifier, guard },
		script: func(s *stage) {
			verifier, guard := verifier, guard
			if verifier == 0 {
				verifier = 1 << 20
			}
			if guard == 0 {
				guard = core.DefaultBodyLimit
			}
			runs := 0
			for _, chunked := range []bool{false, true} {
				at := func(n int64) try {
					r := order.with(strings.Repeat("x", int(n))).under(fmt.Sprintf("k-%d-%v", n, chunked))
					r.chunked = chunked
					return s.send(r)
				}
				runs++
				first := s.runsAs(runs, at(min(verifier, guard)))
				s.repeats(first, at(min(verifier, guard)))
				if guard < verifier {
					s.stopped(413, core.CodeBodyTooLarge, at(guard+1))
					s.stopped(413, core.CodeBodyTooLarge, at(verifier))
				}
				s.refused(sign.CodeBodyTooLarge, at(verifier+1))
				s.claims(2 * runs)
			}
		},
	}
}

// wireCases are about bodies and connections.
var wireCases = []testCase{
	limits("the same", "1 MiB by default, inclusive, for both", 0, 0),
	limits("the verifier's is smaller", "it is asked first", 20_000, 40_000),
	limits("the guard's is smaller", "what is verified may still be too long for the guard: 413, nothing recorded", 40_000, 20_000),
	{
		name:   "limits/none",
		why:    "a limit that is none must not overflow when one is added to it",
		change: func(w *service) { w.sign.BodyLimit, w.policy.BodyLimit = math.MaxInt64, math.MaxInt64 },
		script: func(s *stage) {
			first := s.runsAs(1, s.send(order.inChunks()))
			s.repeats(first, s.send(order))
		},
	},
	{
		name:       "limits/another's",
		why:        "a body may be a MaxBytesReader: its error is 413, and not a bad signature",
		outerLimit: true,
		change:     func(w *service) { w.bodyLimit = 10 },
		script: func(s *stage) {
			s.refused(sign.CodeBodyTooLarge, s.send(order.with(strings.Repeat("x", 11))))
			s.refused(sign.CodeBodyTooLarge, s.send(order.with(strings.Repeat("x", 11)).inChunks()))
			s.runsAs(1, s.send(order.with(strings.Repeat("x", 10))))
		},
	},
	{
		name:   "one connection",
		why:    "a connection goes on after a refusal, whatever of the body nobody has read; or it is closed. The rest of a body is never taken for a request",
		change: func(w *service) { w.sign.BodyLimit = 15_000 },
		script: func(s *stage) {
			long := order.with(strings.Repeat("x", 20_000))
			first := order.message()
			var done try
			for _, step := range []struct {
				message message
				unread  bool // a part of the body is not read
				check   func(try)
			}{
				{long.by(nil).message(), true, func(t try) { s.refused(sign.CodeMissing, t) }},
				{first, false, func(t try) { done = s.runsAs(1, t) }},
				{long.message(), true, func(t try) { s.refused(sign.CodeBodyTooLarge, t) }},
				{order.by(forger).message(), false, func(t try) { s.refused(sign.ReasonBadSignature, t) }},
				{first, false, func(t try) { s.refused(sign.CodeReplayed, t) }},
				{order.message(), false, func(t try) { s.repeats(done, t) }},
				{order.by(nil).message(), true, func(t try) { s.refused(sign.CodeMissing, t) }},
				{order.with("{}").message(), false, func(t try) { s.stopped(422, core.CodeKeyReused, t) }},
				{long.inChunks().before(2 * time.Minute).message(), true, func(t try) { s.refused(sign.CodeExpired, t) }},
				{order.by(bob).message(), false, func(t try) { s.runsAs(2, t) }},
			} {
				c := s.connection()
				if c == nil {
					return
				}
				t := s.sendBy(c.ask, step.message)
				step.check(t)
				if want := step.unread && s.h.ClosesUnread; t.closes != want {
					s.problem("the answer says that the connection is closed: %v, not %v", t.closes, want)
				}
				if t.closes || t.err != nil {
					if rest := c.rest(); len(rest) > 0 {
						s.problem("behind the answer there is %q", rest)
					}
					s.hangUp()
				}
			}
			s.hangUp()
		},
	},
}
