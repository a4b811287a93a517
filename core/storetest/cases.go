package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/core/store"
)

// cases is the whole suite.
var cases = slices.Concat(ofCalls, inspections, checkpoints, outliving)

// ofCalls are the cases of store.Store.
var ofCalls = []testCase{
	{
		name: "it is what it declares",
		why: "the engine relies on what a store declares: a store whose records other processes reach is not in-process, and " +
			"nothing is recalled for another store",
		run: func(s *env) {
			if s.can.InProcess && s.Peer != nil {
				s.Error("the store declares InProcess, and has a peer in another process")
			}
			if s.can.Recall != nil && s.can.RecallFor != s.Store {
				s.Errorf("the store declares a Recall for %T, and is a %T: the engine never calls it", s.can.RecallFor, s.Store)
			}
			if (s.can.Checkpoint == nil) != (s.can.Fail == nil) {
				s.Error("the store declares one of Checkpoint and Fail without the other")
			}
		},
	},

	// Claiming.

	{
		name: "a free key is acquired, and its claim keeps everybody out",
		why: "no record: a running one is created with attempt 1; while its lease stands it is reported and not changed, even if it " +
			"belongs to the caller, and even if the caller may take over",
		run: func(s *env) {
			c := taking()
			s.begin("k", c)
			for range 3 {
				s.meet("k", taking(), store.Running, 1)
				s.meet("k", c, store.Running, 1)
			}
			s.begin("other", standing())
			s.complete("k", c.Owner, []byte("mine"), long)
			s.done("k", 1, []byte("mine"))
		},
	},
	{
		name: "one of many is acquired",
		why:  "a store that looks and then locks, in two steps, lets two callers run in some rounds of 300",
		run: func(s *env) {
			s.oneOfEight(s.spread(), s.rounds(), 1)
		},
	},
	{
		name: "keys are exact",
		why: "keys are exact bytes: a case-insensitive collation, trimmed blanks, a NUL that ends a string, normal forms, hash tags or " +
			"formats merge two keys, and one customer gets another's answer",
		run: func(s *env) {
			claims := map[string]store.Claim{}
			for _, key := range awkwardKeys {
				c := standing()
				if _, twice := claims[key]; twice {
					s.Fatalf("storetest: %q is in the list twice", key)
				}
				claims[key] = c
				s.begin(key, c)
			}
			for key, c := range claims {
				s.complete(key, c.Owner, []byte("of "+key), long)
			}
			for key := range claims {
				s.done(key, 1, []byte("of "+key))
			}
		},
	},
	{
		name: "long keys count to the last byte",
		why:  "keys have any length: a column or an index of 255 bytes cuts them short and merges them",
		run: func(s *env) {
			for _, n := range []int{255, 256, 767, 1024, 2048} {
				stem := strings.Repeat("k", n-1)
				a, b := standing(), standing()
				s.begin(stem+"a", a)
				s.begin(stem+"b", b)
				s.complete(stem+"a", a.Owner, []byte("a"), long)
				s.look(stem+"b", store.Running, 1)
				s.done(stem+"a", 1, []byte("a"))
			}
		},
	},
	{
		name: "the fingerprint comes back",
		why:  "the fingerprint tells a retry from another operation under the same key: it is the record's, not the latest caller's",
		run: func(s *env) {
			every := make([]byte, 64) // the limit, and bytes of all kinds
			for i := range every {
				every[i] = byte(i * 5)
			}
			for i, fp := range []string{"", "f", digest, digest + digest, string(every)} {
				key := fmt.Sprint("k", i)
				c := lapsing()
				c.Fingerprint = fp
				s.begin(key, c)
				s.renew(key, c.Owner, long)
				if g := s.look(key, store.Running, 1); g.Fingerprint != fp {
					s.Fatalf("a running record has the fingerprint %q, want %q", g.Fingerprint, fp)
				}
				s.renew(key, c.Owner, short)
				s.pass(short)
				if g := s.look(key, store.Abandoned, 1); g.Fingerprint != fp {
					s.Fatalf("an abandoned record has the fingerprint %q, want %q", g.Fingerprint, fp)
				}
				s.complete(key, c.Owner, nil, long)
				if g := s.look(key, store.Done, 1); g.Fingerprint != fp {
					s.Fatalf("a finished record has the fingerprint %q, want %q", g.Fingerprint, fp)
				}
			}
		},
	},
	{
		name: "a bad claim changes nothing",
		why:  "a claim without an owner could be completed by any caller; one without a lease never ends or never begins",
		run: func(s *env) {
			for name, spoil := range map[string]func(*store.Claim){
				"no owner":             func(c *store.Claim) { c.Owner = store.Owner{} },
				"no lease":             func(c *store.Claim) { c.Lease = 0 },
				"a negative lease":     func(c *store.Claim) { c.Lease = -time.Second },
				"a negative retention": func(c *store.Claim) { c.Retention = -time.Second },
				"a long fingerprint":   func(c *store.Claim) { c.Fingerprint = strings.Repeat("f", 65) },
			} {
				c := standing()
				spoil(&c)
				if g, err := s.Store.Acquire(s.Context(), name, c); err == nil {
					s.Fatalf("a claim with %s: %v, want an error", name, g.State)
				}
				s.begin(name, standing())
			}
			c := standing()
			s.begin("k", c)
			for _, lease := range []time.Duration{0, -time.Second} {
				err := s.Store.Renew(s.Context(), "k", c.Owner, lease)
				if err == nil || errors.Is(err, store.ErrLost) {
					s.Fatalf("Renew with a lease of %v: %v, want an error that isn't ErrLost", lease, err)
				}
				s.look("k", store.Running, 1)
			}
		},
	},
	{
		name: "an ended context changes nothing",
		why:  "a call whose context has ended changes nothing: its caller must not hold a claim later",
		run: func(s *env) {
			c := standing()
			s.begin("k", c)
			for want, ctx := range ended(s) {
				_, err := s.Store.Acquire(ctx, "free", standing())
				for name, err := range map[string]error{
					"Acquire":                    err,
					"Renew":                      s.Store.Renew(ctx, "k", c.Owner, short),
					"Complete":                   s.Store.Complete(ctx, "k", c.Owner, nil, long),
					"Complete without retention": s.Store.Complete(ctx, "k", c.Owner, nil, 0),
					"Release":                    s.Store.Release(ctx, "k", c.Owner),
					"Abandon":                    s.Store.Abandon(ctx, "k", c.Owner),
				} {
					if !errors.Is(err, want) {
						s.Errorf("%s with an ended context: %v, want %v", name, err, want)
					}
				}
				if s.can.Checkpoint != nil {
					err1, err2 := s.can.Checkpoint(ctx, "k", c.Owner, numbered(firstNumber, "steps")), s.can.Fail(ctx, "k", c.Owner, true)
					if !errors.Is(err1, want) || !errors.Is(err2, want) {
						s.Errorf("Checkpoint and Fail with an ended context: %v, %v, want %v", err1, err2, want)
					}
				}
				if s.can.Outlive != nil {
					if err := s.can.Outlive(ctx, "k", c.Owner, nil, long, long); !errors.Is(err, want) {
						s.Errorf("Outlive with an ended context: %v, want %v", err, want)
					}
				}
				if s.can.Watch != nil {
					if _, _, err := s.can.Watch(ctx, "k"); !errors.Is(err, want) {
						s.Errorf("Watch with an ended context: %v, want %v", err, want)
					}
				}
			}
			s.pass(short)
			s.look("k", store.Running, 1)
			s.begin("free", standing())
		},
	},

	// Owners.

	{
		name: "only its owner changes a record",
		why: "a release that does not compare the owner deletes the next owner's claim; owners are exact bytes: one that is cut, " +
			"trimmed, or compared as text or as a number equals another one; what does not exist must not be created",
		run: func(s *env) {
			for i, owner := range []store.Owner{
				{15: 1},
				{0: 1},
				{0: 'a', 1: ' '},
				{0xff, 0xfe, 0x00, 0x80, '\'', '"', '\\', '\n', '\r', '%', '{', '}', ':', '*', '?', ' '},
			} {
				key := fmt.Sprint("k", i)
				c := standing()
				c.Owner = owner
				s.powerless(key, owner)
				s.begin(key, c)
				for j := range owner {
					near := owner
					near[j] ^= 0x20 // the letter's other case
					s.powerless(key, near)
				}
				s.powerless(key, store.NewOwner())
				s.powerless(key, store.Owner{})
				s.look(key, store.Running, 1)
				s.complete(key, owner, []byte("mine"), long)
				s.done(key, 1, []byte("mine"))
			}
		},
	},
	{
		name: "a stale owner changes nothing after a release",
		why:  "a store that compares the owner and then unlocks, in two steps, deletes the next owner's claim",
		run: func(s *env) {
			first, second := standing(), standing()
			s.begin("k", first)
			s.release("k", first.Owner)
			s.powerless("k", first.Owner)
			s.begin("k", second)
			s.powerless("k", first.Owner)
			s.look("k", store.Running, 1)
			s.complete("k", second.Owner, nil, long)
		},
	},
	{
		name: "a stale owner changes nothing after a takeover, nor after giving up what it took over",
		why: "a slow run must not complete, renew or release another's record; a record that was released after a takeover, or " +
			"abandoned, has no owner: every call of those who had it, and of the zero owner, gets ErrLost",
		run: func(s *env) {
			for name, giveUp := range map[string]func(key string, owner store.Owner){"Release": s.release, "Abandon": s.abandon} {
				for begun, first := range map[string]store.Claim{"lapsed": lapsing(), "abandoned": standing()} {
					key := name + ", " + begun
					second, third := taking(), taking()
					s.begin(key, first)
					if begun == "lapsed" {
						s.pass(short)
					} else {
						s.abandon(key, first.Owner)
						s.powerless(key, first.Owner)
						s.powerless(key, store.Owner{})
					}
					s.meet(key, second, store.Acquired, 2)
					s.powerless(key, first.Owner)
					s.look(key, store.Running, 2)
					giveUp(key, second.Owner)
					stale := func() {
						s.Helper()
						for _, owner := range []store.Owner{first.Owner, second.Owner, {}} {
							s.powerless(key, owner)
						}
					}
					stale()
					s.look(key, store.Abandoned, 2)
					s.meet(key, third, store.Acquired, 3)
					stale()
					s.complete(key, third.Owner, []byte("third"), long)
					stale()
					s.done(key, 3, []byte("third"))
				}
			}
		},
	},
	{
		name: "a finished record is nobody's",
		why:  "the client has got the first result; completing twice, or releasing afterwards, would change it",
		run: func(s *env) {
			c := standing()
			s.begin("k", c)
			s.complete("k", c.Owner, []byte("first"), long)
			s.powerless("k", c.Owner)
			s.done("k", 1, []byte("first"))
			s.meet("k", taking(), store.Done, 1)
			s.done("k", 1, []byte("first"))
		},
	},

	// Leases.

	{
		name: "takeover is for the same parameters only",
		why:  "another operation under the same key must not take over; a fingerprint is compared whole and exactly",
		run: func(s *env) {
			s.begin("k", lapsing())
			s.pass(short)
			for _, other := range []string{"", digest[1:], digest + " ", strings.ToUpper(digest), digest[:31] + "8"} {
				c := taking()
				c.Fingerprint = other
				g := s.meet("k", c, store.Abandoned, 1)
				if g.Fingerprint != digest {
					s.Fatalf("the fingerprint has become %q", g.Fingerprint)
				}
			}
			s.meet("k", taking(), store.Acquired, 2)
		},
	},
	{
		name: "takeover is for the named attempt only",
		why:  "a decision about one run (its outcome was looked up elsewhere) must not take over a later run; no number means any",
		run: func(s *env) {
			named := func(attempt uint64) store.Claim {
				c := taking()
				c.Lease, c.Attempt = short, attempt
				return c
			}
			s.begin("k", lapsing())
			s.pass(short)
			s.meet("k", named(2), store.Abandoned, 1)
			unasked := named(1)
			unasked.Takeover = false
			s.meet("k", unasked, store.Abandoned, 1)
			s.meet("k", named(1), store.Acquired, 2)
			s.pass(short)
			for _, other := range []uint64{1, 3, 1<<64 - 1} {
				s.meet("k", named(other), store.Abandoned, 2)
			}
			s.meet("k", named(2), store.Acquired, 3)
			s.pass(short)
			s.meet("k", named(0), store.Acquired, 4)

			// The number is about takeovers: it keeps nobody from a free key.
			fresh := standing()
			fresh.Takeover, fresh.Attempt = true, 7
			s.begin("free", fresh)
		},
	},
	{
		name: "one of many takes over",
		why:  "of many waiters, exactly one takes over when the owner has failed",
		run: func(s *env) {
			store := s.spread()
			rounds := s.rounds() / 4
			for round := range rounds {
				s.begin(fmt.Sprint("round ", round), lapsing())
			}
			s.pass(short)
			s.oneOfEight(store, rounds, 2)
		},
	},
	{
		name: "the attempt counts takeovers",
		why: "the attempt is a fencing token: it is higher at each takeover, and reported in every state; and a crash blocks for the " +
			"lease only, not for as long as a result is kept (24 h)",
		run: func(s *env) {
			s.begin("k", lapsing())
			last := taking()
			for attempt := uint64(2); attempt <= 4; attempt++ {
				s.pass(short)
				last = taking()
				last.Lease = short
				s.meet("k", last, store.Acquired, attempt)
			}
			s.pass(short)
			s.look("k", store.Abandoned, 4)
			s.renew("k", last.Owner, long)
			s.look("k", store.Running, 4)
			s.complete("k", last.Owner, nil, long)
			s.look("k", store.Done, 4)
		},
	},
	{
		name: "what a run that gives up leaves can be taken over",
		why: "Abandon leaves what a crash leaves, without waiting for the lease; so does a release after a takeover, for starting again " +
			"at 1 would let fencing tokens go back, and forget that the first run's outcome is " +
			"uncertain: the next run is a takeover with the next attempt, and only with Takeover and the same fingerprint",
		run: func(s *env) {
			for key, giveUp := range map[string]func(key string, owner store.Owner){"released": s.release, "abandoned": s.abandon} {
				c := standing()
				s.begin(key, c)
				s.abandon(key, c.Owner)
				for attempt := uint64(1); attempt <= 3; attempt++ {
					for range 2 {
						if g := s.look(key, store.Abandoned, attempt); g.Fingerprint != digest {
							s.Fatalf("what was %s has the fingerprint %q, want %q", key, g.Fingerprint, digest)
						}
					}
					other := taking()
					other.Fingerprint = "another"
					s.meet(key, other, store.Abandoned, attempt)
					c = taking()
					c.Attempt = attempt + 1
					s.meet(key, c, store.Abandoned, attempt)
					c.Attempt = attempt
					s.meet(key, c, store.Acquired, attempt+1)
					s.look(key, store.Running, attempt+1)
					giveUp(key, c.Owner)
				}
			}
		},
	},
	{
		name: "what has no owner is remembered for its retention",
		why: "the retention of the claim that was released, abandoned or completed counts from then: less forgets an uncertain outcome, " +
			"more keeps memory; without a retention the next run is the first",
		run: func(s *env) {
			complete := func(key string, owner store.Owner) { s.complete(key, owner, nil, 0) }
			for _, left := range []struct {
				name    string
				by      func(key string, owner store.Owner)
				attempt uint64
			}{{"released", s.release, 2}, {"abandoned", s.abandon, 1}, {"abandoned later", s.abandon, 2}, {"free", complete, 2}} {
				leave := func(stem string, retention time.Duration) (key string) {
					s.Helper()
					key = stem + left.name
					c := taking()
					c.Retention = retention
					if left.attempt > 1 {
						s.begin(key, lapsing())
						s.pass(short)
					}
					s.meet(key, c, store.Acquired, left.attempt)
					left.by(key, c.Owner)
					return key
				}
				kept := leave("long", 5*long)
				passed := leave("short", short)
				s.pass(short)
				s.begin(passed, standing())
				s.begin(leave("none", 0), standing())
				if left.name == "free" {
					s.meetFree(kept, standing(), 3)
				} else if g := s.look(kept, store.Abandoned, left.attempt); g.Remaining > 5*long || g.Remaining < 4*long+long/2 {
					s.Fatalf("%v remain of a retention of %v", g.Remaining, 5*long)
				}
			}
		},
	},
	{
		name:  "an abandoned run is forgotten when its retention is over",
		why:   "the retention counts exactly from Abandon, whether the lease has passed or not; looking does not extend it",
		needs: needClock,
		run: func(s *env) {
			for _, passed := range []time.Duration{0, 20 * time.Second, 90 * time.Second} {
				key := passed.String()
				c := standing()
				c.Lease, c.Retention = time.Minute, 10*time.Minute
				s.begin(key, c)
				s.renew(key, c.Owner, time.Minute)
				s.pass(passed)
				s.abandon(key, c.Owner)
				s.remaining(key, store.Abandoned, 10*time.Minute)
				s.pass(10*time.Minute - time.Second)
				s.remaining(key, store.Abandoned, time.Second)
				s.pass(time.Second)
				s.begin(key, standing())
			}
		},
	},
	{
		name: "a takeover brings its own lease and retention",
		why:  "a takeover has its own lease and retention: with the first claim's, the second run would be abandoned or forgotten at once",
		run: func(s *env) {
			first := standing()
			first.Lease = short
			s.begin("k", first)
			s.pass(short)
			second := taking()
			s.meet("k", second, store.Acquired, 2)
			s.pass(short)
			s.look("k", store.Running, 2)

			s.begin("brief", lapsing())
			s.pass(short)
			brief := taking()
			brief.Lease, brief.Retention = short, short
			s.meet("brief", brief, store.Acquired, 2)
			s.pass(2 * short)
			s.begin("brief", standing())
		},
	},
	{
		name: "a renewed lease counts from the renewal",
		why:  "without renewal, a handler slower than the lease runs twice; a lease may be renewed to end sooner, whatever was left of it",
		run: func(s *env) {
			later, sooner := lapsing(), standing()
			s.begin("later", later)
			s.begin("sooner", sooner)
			s.renew("later", later.Owner, long)
			s.renew("sooner", sooner.Owner, short)
			s.pass(short)
			s.meet("later", taking(), store.Running, 1)
			s.look("sooner", store.Abandoned, 1)
		},
	},
	{
		name: "a lapsed claim that nobody took is still its owner's",
		why: "a pause of the process longer than the lease must not lose the result if no other run has begun; without Takeover the " +
			"record stays abandoned, however often it is looked at",
		run: func(s *env) {
			type end struct {
				by   func(key string, owner store.Owner)
				then store.State // of the record, as an Inspector has it; zero: it is gone
			}
			ends := map[string]end{
				"completed": {func(key string, owner store.Owner) { s.complete(key, owner, []byte("late"), long) }, store.Done},
				"abandoned": {s.abandon, store.Abandoned},
				"released":  {s.release, 0},
				"forgotten": {func(key string, owner store.Owner) { s.complete(key, owner, nil, 0) }, 0},
			}
			if s.can.Fail != nil {
				ends["failed"] = end{func(key string, owner store.Owner) { s.fail(key, owner, true) }, store.Free}
				ends["failed for good"] = end{func(key string, owner store.Owner) { s.fail(key, owner, false) }, 0}
			}
			if s.can.Outlive != nil {
				ends["completed, and known for longer"] = end{func(key string, owner store.Owner) {
					s.outlive(key, owner, []byte("late"), long, long)
				}, store.Done}
			}
			claims := map[string]store.Claim{}
			for name := range ends {
				for _, renewed := range []bool{false, true} {
					key := fmt.Sprint(name, renewed)
					claims[key] = telling(lapsing(), "p")
					s.begin(key, claims[key])
				}
			}
			s.pass(short)
			for name, end := range ends {
				for _, renewed := range []bool{false, true} {
					key := fmt.Sprint(name, renewed)
					c := claims[key]
					s.look(key, store.Abandoned, 1)
					s.look(key, store.Abandoned, 1)
					if s.can.Checkpoint != nil {
						s.checkpoint(key, c.Owner, numbered(firstNumber, "late"))
					}
					if renewed {
						s.renew(key, c.Owner, long)
						s.meet(key, taking(), store.Running, 1)
					}
					end.by(key, c.Owner)
					s.powerless(key, c.Owner)
					if s.can.Inspect != nil && end.then != 0 {
						if r := s.lookup(key, end.then, 1); r.ID != c.ID {
							s.Fatalf("the record under %q is of %v, and not of %v", key, r.ID, c.ID)
						}
					}
					switch end.then {
					case store.Done:
						s.done(key, 1, []byte("late"))
					case store.Abandoned:
						s.meet(key, taking(), store.Acquired, 2)
					case store.Free:
						s.meetFree(key, standing(), 2)
					default:
						s.begin(key, standing())
					}
				}
			}
		},
	},
	{
		name: "an abandoned record is forgotten after its retention",
		why:  "a record that is never forgotten costs memory for ever, and its attempts would go on from a run that no longer counts",
		run: func(s *env) {
			remembered, forgotten := lapsing(), lapsing()
			remembered.Retention, forgotten.Retention = short, 0
			s.begin("remembered", remembered)
			s.begin("forgotten", forgotten)
			s.pass(2 * short)
			for key, c := range map[string]store.Claim{"remembered": remembered, "forgotten": forgotten} {
				s.powerless(key, c.Owner)
				next := standing()
				next.Fingerprint = "another"
				s.begin(key, next)
				s.powerless(key, c.Owner)
				if g := s.look(key, store.Running, 1); g.Fingerprint != "another" {
					s.Fatalf("the new record has the fingerprint %q", g.Fingerprint)
				}
			}
		},
	},
	{
		name: "spans of any length",
		why: "a lease below the clock's resolution must not become zero, which is an error in Redis and for ever elsewhere; one " +
			"of a century must not overflow 32 bits",
		run: func(s *env) {
			const century = 100 * 365 * 24 * time.Hour
			tiny := standing()
			tiny.Lease, tiny.Retention = 1, 1
			s.begin("tiny", tiny)
			kept := standing()
			s.begin("kept", kept)
			s.complete("kept", kept.Owner, nil, 1)
			s.pass(short)
			s.begin("tiny", standing())
			s.begin("kept", standing())

			huge := standing()
			huge.Lease, huge.Retention = century, century
			s.begin("huge", huge)
			s.pass(short)
			if g := s.look("huge", store.Running, 1); g.Remaining < century-long || g.Remaining > century {
				s.Fatalf("of a century's lease, %v remain", g.Remaining)
			}
			s.renew("huge", huge.Owner, century)
			s.complete("huge", huge.Owner, nil, century)
			s.pass(short)
			if g := s.look("huge", store.Done, 1); g.Remaining < century-long || g.Remaining > century {
				s.Fatalf("of a century's retention, %v remain", g.Remaining)
			}
		},
	},
	{
		name: "what remains is true",
		why:  "Remaining becomes Retry-After and the waiter's timer: it is the lease of a running record, the retention of any other",
		run: func(s *env) {
			within := func(what string, g store.Grant, span time.Duration) {
				s.Helper()
				if g.Remaining > span || g.Remaining < span-span/10 {
					s.Fatalf("%s: %v remain of %v", what, g.Remaining, span)
				}
			}
			c := standing()
			c.Lease, c.Retention = 3*long, 5*long
			s.begin("k", c)
			within("running", s.look("k", store.Running, 1), 3*long)
			s.renew("k", c.Owner, 4*long)
			within("renewed", s.look("k", store.Running, 1), 4*long)
			s.renew("k", c.Owner, short)
			s.pass(short)
			within("abandoned", s.look("k", store.Abandoned, 1), 5*long)
			s.complete("k", c.Owner, nil, 7*long)
			within("done", s.look("k", store.Done, 1), 7*long)
		},
	},
	{
		name:  "a lease ends when it is over",
		why:   "expiry is decided by the store's clock alone, exactly: not a tick early, and not only when records are swept",
		needs: needClock,
		run: func(s *env) {
			c := standing()
			c.Lease, c.Retention = time.Minute, 10*time.Minute
			s.begin("k", c)
			s.pass(59 * time.Second)
			s.remaining("k", store.Running, time.Second)
			s.pass(time.Second)
			s.remaining("k", store.Abandoned, 10*time.Minute)
			s.pass(10*time.Minute - time.Second)
			s.remaining("k", store.Abandoned, time.Second)
			s.pass(time.Second)
			s.begin("k", standing())
		},
	},
	{
		name:  "a renewed lease keeps its retention",
		why:   "a run that is renewed and then crashes is as uncertain as one that was not renewed",
		needs: needClock,
		run: func(s *env) {
			c := standing()
			c.Lease, c.Retention = 10*time.Second, 20*time.Second
			s.begin("k", c)
			s.pass(5 * time.Second)
			s.renew("k", c.Owner, 30*time.Second)
			s.pass(30 * time.Second)
			s.remaining("k", store.Abandoned, 20*time.Second)
			s.renew("k", c.Owner, time.Second) // lapsed, remembered
			s.pass(time.Second)
			s.remaining("k", store.Abandoned, 20*time.Second)
			s.pass(20 * time.Second)
			s.begin("k", standing())
		},
	},
	{
		name:  "looking prolongs nothing",
		why:   "looking at a record must not extend it: a client that keeps trying must not keep itself out",
		needs: needClock,
		run: func(s *env) {
			c := standing()
			c.Lease, c.Retention = time.Minute, time.Minute
			s.begin("k", c)
			s.pass(30 * time.Second)
			s.remaining("k", store.Running, 30*time.Second)
			s.remaining("k", store.Running, 30*time.Second)
			s.pass(60 * time.Second)
			s.remaining("k", store.Abandoned, 30*time.Second)
			s.remaining("k", store.Abandoned, 30*time.Second)
			s.complete("k", c.Owner, nil, time.Minute)
			s.pass(30 * time.Second)
			s.remaining("k", store.Done, 30*time.Second)
			s.remaining("k", store.Done, 30*time.Second)
			s.pass(30 * time.Second)
			s.begin("k", standing())
		},
	},

	// Results.

	{
		name: "a result outlives the lease",
		why:  "lease and retention are apart: seconds and hours",
		run: func(s *env) {
			for lease := short; lease <= patience; lease *= 2 { // a busy machine may need a longer one
				key := lease.String()
				c := standing()
				c.Lease, c.Retention = lease, 0
				s.begin(key, c)
				err := s.Store.Complete(s.Context(), key, c.Owner, []byte("kept"), long)
				if errors.Is(err, store.ErrLost) {
					continue // it is forgotten already: a clock that can be advanced may run as well
				}
				if err != nil {
					s.Fatalf("Complete(%q): %v", key, err)
				}
				s.pass(2 * lease)
				s.done(key, 1, []byte("kept"))
				return
			}
			s.Fatalf("the store took longer than %v to complete a record", patience/2)
		},
	},
	{
		name: "a result is forgotten after its retention",
		why:  "the retention of a result is Complete's, not the claim's; afterwards the operation begins anew",
		run: func(s *env) {
			c := standing()
			s.begin("k", c)
			s.complete("k", c.Owner, []byte("old"), short)
			s.pass(short)
			next := standing()
			next.Fingerprint = "another"
			s.begin("k", next)
			s.powerless("k", c.Owner)
			if g := s.look("k", store.Running, 1); g.Fingerprint != "another" || len(g.Result) != 0 {
				s.Fatalf("something of the old record is left: %+v", g)
			}
			s.complete("k", next.Owner, []byte("new"), long)
			s.done("k", 1, []byte("new"))
		},
	},
	{
		name: "completing without retention keeps the attempt of a takeover, and nothing else",
		why: "it must not mean for ever, nor block without a result: a success has ended the operation; fencing tokens must not go back, " +
			"but the next run is no takeover, nothing is uncertain, and any claim gets the free record",
		run: func(s *env) {
			for i, retention := range []time.Duration{0, -1, -time.Hour} {
				key := fmt.Sprint("k", i)
				first := lapsing()
				s.begin(key, first)
				s.complete(key, first.Owner, []byte("unwanted"), retention)
				s.powerless(key, first.Owner)
				s.begin(key, lapsing())
				s.pass(short)
				c := taking()
				s.meet(key, c, store.Acquired, 2)
				s.complete(key, c.Owner, []byte("unwanted"), retention)
				s.powerless(key, c.Owner)
				other := standing() // which takes nothing over
				other.Fingerprint, other.Attempt = "another", 7
				s.meetFree(key, other, 3)
				if g := s.look(key, store.Running, 3); g.Fingerprint != "another" {
					s.Fatalf("the record has the fingerprint %q, want %q", g.Fingerprint, "another")
				}
			}
		},
	},
	{
		name: "a record that was free is so after a release",
		why: "a claim that is given back changes nothing but the number; whether an earlier run is uncertain is for the record to know, " +
			"because a store may release a claim that nobody has seen",
		run: func(s *env) {
			free := func(key string, lease time.Duration) store.Claim {
				s.Helper()
				s.begin(key, lapsing())
				s.pass(short)
				c := taking()
				s.meet(key, c, store.Acquired, 2)
				s.complete(key, c.Owner, nil, 0)
				c = standing()
				c.Lease = lease
				s.meetFree(key, c, 3)
				return c
			}
			s.release("released", free("released", long).Owner)
			s.meetFree("released", standing(), 4)

			s.abandon("abandoned", free("abandoned", long).Owner)
			s.look("abandoned", store.Abandoned, 3)

			renewed := free("renewed", long)
			s.renew("renewed", renewed.Owner, short)
			s.pass(short)
			s.look("renewed", store.Abandoned, 3)
			c := taking()
			s.meet("renewed", c, store.Acquired, 4)
			s.release("renewed", c.Owner)
			s.look("renewed", store.Abandoned, 4)

			s.complete("done", free("done", long).Owner, []byte("done"), long)
			s.done("done", 3, []byte("done"))
		},
	},
	{
		name: "results come back as they were",
		why:  "a result is bytes: not text, not JSON, not a string that ends at a NUL",
		run: func(s *env) {
			every := make([]byte, 256)
			for i := range every {
				every[i] = byte(i)
			}
			big := make([]byte, 1<<20)
			for i, rng := 0, rand.New(rand.NewPCG(1, 2)); i < len(big); i++ {
				big[i] = byte(rng.Uint32())
			}
			for name, result := range map[string][]byte{
				"nil": nil, "empty": {}, "a zero byte": {0}, "blanks": []byte("  a \r\n\t"), "JSON": []byte("{\"a\": 1.0}"),
				"no UTF-8": {0xff, 0xfe, 0xc3, 0x28}, "a number": []byte("00123"), "every byte": every, "1 MiB": big,
			} {
				c := standing()
				s.begin(name, c)
				s.complete(name, c.Owner, result, long)
				for range 2 {
					s.done(name, 1, result)
				}
			}
		},
	},
	{
		name: "bytes are copied",
		why: "frameworks reuse their buffers: a slice that the store keeps turns into another customer's data, and " +
			"one that it returns may be overwritten",
		run: func(s *env) {
			c := standing()
			s.begin("k", c)
			in := []byte("the first answer")
			s.complete("k", c.Owner, in, long)
			copy(in, "XXXXXXXXXXXXXXXX")
			out := s.done("k", 1, []byte("the first answer")).Result
			copy(out, "YYYYYYYYYYYYYYYY")
			_ = append(out, "ZZZZ"...)
			s.done("k", 1, []byte("the first answer"))
		},
	},

	// Watching.

	{
		name: "a watcher is woken by every end of a run",
		why: "a waiter must neither poll in a loop nor sleep on: the answer is there, or one of the waiters must run; also after a " +
			"takeover, in whose record the run is not the first, and when the lease has passed, for the owner may still end the run",
		needs: needWatch,
		run: func(s *env) {
			ends := map[string]func(key string, c store.Claim) error{
				"Complete": func(key string, c store.Claim) error {
					return s.Store.Complete(s.Context(), key, c.Owner, nil, long)
				},
				"Complete without retention": func(key string, c store.Claim) error {
					return s.Store.Complete(s.Context(), key, c.Owner, nil, 0)
				},
				"Release": func(key string, c store.Claim) error { return s.Store.Release(s.Context(), key, c.Owner) },
				"Abandon": func(key string, c store.Claim) error { return s.Store.Abandon(s.Context(), key, c.Owner) },
			}
			if s.can.Outlive != nil {
				ends["Outlive"] = func(key string, c store.Claim) error {
					return s.can.Outlive(s.Context(), key, c.Owner, nil, long, long)
				}
			}
			for end, call := range ends {
				ended := func(stage string, c store.Claim, changed <-chan struct{}) {
					s.Helper()
					if err := call(end+stage, c); err != nil {
						s.Fatalf("%s%s: %v", end, stage, err)
					}
					s.woken(changed, end+stage)
				}
				first, late, second := standing(), lapsing(), taking()
				s.begin(end+" of a first run", first)
				changed, _ := s.watch(end + " of a first run")
				ended(" of a first run", first, changed)

				s.begin(end+" of a late one", late)
				watched, _ := s.watch(end + " of a late one")
				s.begin(end+" after a takeover", lapsing())
				s.pass(short)
				ended(" of a late one", late, watched)

				s.meet(end+" after a takeover", second, store.Acquired, 2)
				changed, _ = s.watch(end + " after a takeover")
				ended(" after a takeover", second, changed)
			}
			unkept := standing()
			unkept.Retention = 0
			s.begin("unkept", unkept)
			changed, _ := s.watch("unkept")
			s.abandon("unkept", unkept.Owner)
			s.woken(changed, "Abandon without retention")
		},
	},
	{
		name:  "a watcher is woken by a takeover",
		why:   "after a takeover, a waiter waits for another lease",
		needs: needWatch,
		run: func(s *env) {
			s.begin("k", lapsing())
			before, _ := s.watch("k")
			s.pass(short)
			late, _ := s.watch("k") // an abandoned run can be watched
			s.meet("k", taking(), store.Acquired, 2)
			s.woken(before, "a takeover")
			s.woken(late, "a takeover")
		},
	},
	{
		name:  "watching nothing returns at once",
		why:   "the run may have ended between the Acquire and the Watch: then no call would wake the waiter",
		needs: needWatch,
		run: func(s *env) {
			changed, stop := s.watch("never was")
			s.woken(changed, "there being no record")
			stop()

			c := standing()
			s.begin("done", c)
			s.complete("done", c.Owner, nil, long)
			changed, _ = s.watch("done")
			s.woken(changed, "the record being done")

			c = standing()
			s.begin("released", c)
			s.release("released", c.Owner)
			changed, _ = s.watch("released")
			s.woken(changed, "the record being gone")

			c = lapsing()
			c.Retention = 0
			s.begin("forgotten", c)
			s.pass(short)
			changed, _ = s.watch("forgotten")
			s.woken(changed, "the record being forgotten")
		},
	},
	{
		name:  "a watch on a quiet run stays quiet",
		why:   "a channel may close without a reason, but one that always does makes waiters poll in a loop",
		needs: needWatch,
		run: func(s *env) {
			s.begin("k", standing())
			for range 20 {
				changed, stop := s.watch("k")
				quiet := time.NewTimer(slack)
				select {
				case <-quiet.C:
					stop()
					return
				case <-changed:
					quiet.Stop()
					stop()
				}
			}
			s.Fatal("20 watches on a run that nothing happened to were all woken")
		},
	},
	{
		name:  "all watchers are woken",
		why:   "a signal that one waiter consumes leaves the others to their timers",
		needs: needWatch,
		run: func(s *env) {
			c := standing()
			s.begin("k", c)
			var watches []<-chan struct{}
			for range 100 {
				changed, _ := s.watch("k")
				watches = append(watches, changed)
			}
			s.complete("k", c.Owner, nil, long)
			for _, changed := range watches {
				s.woken(changed, "Complete")
			}
		},
	},
	{
		name:  "a watcher may give up",
		why:   "a cancelled waiter must not leak, nor stop the others from being woken",
		needs: needWatch,
		run: func(s *env) {
			c := standing()
			s.begin("k", c)
			stays, _ := s.watch("k")
			before := runtime.NumGoroutine()
			for range 500 {
				_, stop := s.watch("k")
				stop()
				stop()
			}
			// What the store's own connections do in between is not counted, and tests beside this one have
			// goroutines that end.
			for deadline := time.Now().Add(patience); runtime.NumGoroutine() > before+100; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(deadline) {
					s.Fatalf("500 watchers that gave up left %d goroutines", runtime.NumGoroutine()-before)
				}
			}
			s.complete("k", c.Owner, nil, long)
			s.woken(stays, "Complete")
			_, stop := s.watch("k")
			stop()
			stop()
		},
	},
	{
		name:  "no wake-up is lost",
		why:   "after Watch has returned, every end of the run must wake the waiter, however soon it comes",
		needs: needWatch,
		run: func(s *env) {
			store := s.spread()
			for round := range s.rounds() / 4 {
				key := fmt.Sprint("round ", round)
				c := standing()
				s.begin(key, c)
				together(4, func(i int) {
					if i == 0 {
						if err := store(i).Complete(s.Context(), key, c.Owner, nil, long); err != nil {
							s.Errorf("Complete: %v", err)
						}
						return
					}
					if err := s.waitDone(store(i), key); err != nil {
						s.Error(err)
					}
				})
				if s.Failed() {
					return
				}
			}
		},
	},

	// Recalling.

	{
		name:  "what is finished is recalled",
		why:   "a retry with the same bytes gets what Acquire would give it; only a finished record can be given without a claim",
		needs: needRecall,
		run: func(s *env) {
			c := standing()
			c.Raw = 7
			s.recallsNothing("k", "before there is a record")
			s.begin("k", c)
			s.recallsNothing("k", "that runs")
			s.recallsNothing("other", "of another key")
			s.complete("k", c.Owner, []byte("the first answer"), long)
			for range 2 { // what it returns is the caller's
				g, raw, ok := s.recall("k")
				if want := s.done("k", 1, []byte("the first answer")); !ok || raw != 7 || g.State != store.Done || g.Attempt != 1 ||
					g.Fingerprint != want.Fingerprint || !bytes.Equal(g.Result, want.Result) {
					s.Fatalf("Recall: %+v of the claim %d, %v; want %+v of 7", g, raw, ok, want)
				}
				copy(g.Result, "YYYYYYYYYYYYYYYY")
			}
		},
	},
	{
		name:  "what was taken over is recalled as its last run's",
		why:   "Raw is the claim's under which the operation ran",
		needs: needRecall,
		run: func(s *env) {
			first, second := taking(), taking()
			first.Raw, second.Raw = 7, 8
			s.begin("k", first)
			s.abandon("k", first.Owner)
			s.recallsNothing("k", "that was abandoned")
			s.meet("k", second, store.Acquired, 2)
			s.recallsNothing("k", "that was taken over")
			s.complete("k", second.Owner, nil, long)
			if g, raw, ok := s.recall("k"); !ok || raw != 8 || g.State != store.Done || g.Attempt != 2 || len(g.Result) != 0 {
				s.Fatalf("Recall: %+v of the claim %d, %v; want attempt 2 of 8", g, raw, ok)
			}
		},
	},
	{
		name:  "what has passed is not recalled",
		why:   "a result is not kept for longer than its retention, whoever asks",
		needs: needRecall | needClock,
		run: func(s *env) {
			c := standing()
			s.begin("k", c)
			s.complete("k", c.Owner, []byte("the first answer"), time.Minute)
			s.Advance(time.Minute)
			s.recallsNothing("k", "that has passed")
		},
	},

	// Bounds.

	{
		name:  "a full store refuses",
		why:   "dropping a record that has not expired, to make room, makes its operation run twice",
		needs: needBounds,
		run: func(s *env) {
			if s.can.Capacity > bound {
				s.Errorf("the store has room for %d records, and declares a capacity of %d", bound, s.can.Capacity)
			}
			claims := s.fill(standing)
			for i := range 2 * bound {
				if g, err := s.Store.Acquire(s.Context(), fmt.Sprint("more", i), standing()); !errors.Is(err, store.ErrFull) {
					s.Fatalf("Acquire in a full store: %v, %v; want ErrFull", g.State, err)
				}
			}
			for key, c := range claims {
				s.look(key, store.Running, 1)
				s.renew(key, c.Owner, long)
				s.complete(key, c.Owner, []byte("kept"), long)
			}
			if _, err := s.Store.Acquire(s.Context(), "more", standing()); !errors.Is(err, store.ErrFull) {
				s.Fatalf("Acquire in a store full of results: %v, want ErrFull", err)
			}
			for key := range claims {
				s.done(key, 1, []byte("kept"))
			}
		},
	},
	{
		name:  "a full store has room again after a release",
		why:   "a removed record must give its room back, or the store is full for ever",
		needs: needBounds,
		run: func(s *env) {
			for range 3 {
				for key, c := range s.fill(standing) {
					s.release(key, c.Owner)
				}
			}
		},
	},
	{
		name:  "a full store keeps what is abandoned",
		why:   "an abandoned record is kept and takes room; Abandon itself needs none",
		needs: needBounds,
		run: func(s *env) {
			claims := s.fill(standing)
			for key, c := range claims {
				s.abandon(key, c.Owner)
			}
			if g, err := s.Store.Acquire(s.Context(), "more", standing()); !errors.Is(err, store.ErrFull) {
				s.Fatalf("Acquire in a store full of abandoned records: %v, %v; want ErrFull", g.State, err)
			}
			for key := range claims {
				s.meet(key, taking(), store.Acquired, 2)
			}
		},
	},
	{
		name: "a full store reclaims what has passed among what stands",
		why: "deadlines move, and records are removed, in any order: a store that misses expired records " +
			"behind one that stands is full for ever",
		needs: needBounds,
		run: func(s *env) {
			const many = 2000
			s.Instance = s.bounded(s.TB, many)
			passing := func() store.Claim {
				c := standing()
				c.Lease, c.Retention = long+rand.N(long), 0
				return c
			}
			claims := map[string]store.Claim{}
			for i := range many {
				key := fmt.Sprint("k", i)
				claims[key] = passing()
				s.begin(key, claims[key])
			}
			gone := 0
			for key, c := range claims { // in any order
				switch rand.IntN(6) {
				case 0:
					s.renew(key, c.Owner, long+rand.N(long))
				case 1:
					s.complete(key, c.Owner, nil, long+rand.N(long))
				case 2:
					s.release(key, c.Owner)
					s.begin(key, passing())
				case 3:
					s.renew(key, c.Owner, short)
					gone++
				case 4:
					s.complete(key, c.Owner, nil, short)
					gone++
				}
			}
			s.pass(short)
			for i := range gone {
				s.begin(fmt.Sprint("new", i), standing())
			}
			if _, err := s.Store.Acquire(s.Context(), "more", standing()); !errors.Is(err, store.ErrFull) {
				s.Fatalf("Acquire in a store full of what stands: %v, want ErrFull", err)
			}
		},
	},
	{
		name:  "a full store can be taken over in",
		why:   "a takeover adds no record",
		needs: needBounds,
		run: func(s *env) {
			for key := range s.fill(lapsing) {
				defer s.meet(key, taking(), store.Running, 2)
			}
			s.pass(short)
			for i := range bound {
				s.meet(fmt.Sprint("k", i), taking(), store.Acquired, 2)
			}
		},
	},

	// Everything at random.

	{
		name: "histories are linearizable",
		why: "each call is one atomic step: the answers of concurrent clients must be possible for a single client, in some order of the " +
			"calls; a store that looks and writes in two steps fails only when a third caller comes in between",
		run: checkHistories,
	},
	{
		name: "histories are linearizable under faults",
		why: "a failed call may have taken effect, once and completely; a successful one has, and a refused one has not: a store that " +
			"retries by itself must recognise its own first try",
		needs: needFaults,
		run:   checkFaultyHistories,
	},
}

// awkwardKeys are all different, if only just.
var awkwardKeys = []string{
	"key", "Key", "KEY", "key ", " key", "key  ", "key\t", "key\n", "key\r\n", "key\x00", "key\x00\x00", "\x00key", "",
	" ", "\x00",
	"caf\u00e9", "cafe\u0301", "CAF\u00c9", "cafe", // composed, decomposed, capital, plain
	"stra\u00dfe", "strasse", "\u0130", "i", "I", "\u0131", // ß and ss, the Turkish i
	"\uff4b\uff45\uff59", "\u212a", "k", "K", // full width; the Kelvin sign
	"\U0001F600", "\U0001F601", "\xff", "\xfe", "\xc3\x28", "\ufffd", // beyond 16 bits; no UTF-8
	"{key}", "{key", "key}", "{}key", "{a}{b}", "{b}{a}", // hash tags of a Redis cluster
	"a:b", "a::b", "a:", ":a", "a%3Ab", "a%3ab", "a%b", "%s", "%d", "%",
	"a_b", "a-b", "a*b", "a?b", "[ab]", "a'b", "a\"b", "a\\b", "a\\\\b", "a`b", "a;b", "a--b", "a/b", "a//b", "a/../b", "a$1b",
	"1", "01", "1.0", "1e0", "0x1", "true", "null", "NULL", "nil",
}

// remaining expects a record in state want, attempt 1, with so much remaining.
func (s *env) remaining(key string, want store.State, span time.Duration) {
	s.Helper()
	g := s.look(key, want, 1)
	if d := g.Remaining - span; d < -tolerance || d > tolerance {
		s.Fatalf("%v: %v remain, want %v", want, g.Remaining, span)
	}
}

// fill begins as many runs as the store has room for.
func (s *env) fill(claim func() store.Claim, prefix ...string) map[string]store.Claim {
	s.Helper()
	claims := map[string]store.Claim{}
	for i := range bound {
		c := claim()
		key := fmt.Sprint(strings.Join(prefix, ""), "k", i)
		s.begin(key, c)
		claims[key] = c
	}
	return claims
}

// waitDone waits as the engine does until the record under key is done. It may be
// called from any goroutine.
func (s *env) waitDone(records store.Store, key string) error {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		changed, stop, err := records.Capabilities().Watch(s.Context(), key)
		if err != nil {
			return fmt.Errorf("Watch: %w", err)
		}
		g, err := records.Acquire(s.Context(), key, standing())
		if err != nil || g.State == store.Done {
			stop()
			return err
		}
		select {
		case <-changed:
			stop()
		case <-timeout.C:
			stop()
			return errors.New("the run has ended and a watcher sleeps on")
		}
	}
}
