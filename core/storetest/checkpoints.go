package storetest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/idem-go/idem/core/store"
)

// checkpoints are the cases of store.Capabilities' Checkpoint and Fail, and of Claim.Secret.
var checkpoints = []testCase{
	{
		name: "the next run of an operation gets its steps",
		why: "a step that has finished must not run again: takeovers and retries get all steps, as they were, and from the last " +
			"Checkpoint only; and the operation was begun when it was",
		needs: needCheckpoint,
		run: func(s *env) {
			every := make([]byte, 256<<10-8) // the limit, and bytes of all kinds
			for i := range every {
				every[i] = byte(i * 7)
			}
			for i, told := range []string{"one", "\x00", "", string(every)} {
				steps := numbered(firstNumber+1, told)
				leaving := map[string]func(key string, owner store.Owner){
					"lapses": nil, "Abandon": s.abandon, "Fail": func(key string, owner store.Owner) { s.fail(key, owner, true) },
				}
				if s.can.Inspect != nil {
					leaving["an operator's release"] = func(key string, owner store.Owner) {
						s.abandon(key, owner)
						r := s.lookup(key, store.Abandoned, 1)
						if r.Size != 0 || len(r.Result) > 0 {
							s.Fatalf("steps are told as a result of %d bytes: %.40q", r.Size, r.Result)
						}
						s.change(key, r, store.Change{To: store.Free, Remark: "longer than the one that it had"})
					}
				}
				for name, leave := range leaving {
					key, c := fmt.Sprintf("%d, %s", i, name), telling(lapsing(), "p")
					if g := s.meet(key, c, store.Acquired, 1); len(g.Steps) > 0 {
						s.Fatalf("a first run gets steps: %.40q", g.Steps)
					}
					begun := s.begun(key)
					s.checkpoint(key, c.Owner, numbered(firstNumber, "of an earlier Checkpoint, and longer"))
					mine := bytes.Clone(steps)
					s.checkpoint(key, c.Owner, mine)
					s.checkpoint(key, c.Owner, mine)
					clear(mine)
					s.renew(key, c.Owner, short)
					if leave == nil {
						s.pass(short)
					} else {
						leave(key, c.Owner)
					}
					for attempt := uint64(2); attempt < 4; attempt++ { // and the next one
						next := telling(taking(), "p")
						g := s.acquire(key, next)
						if g.State != store.Acquired || g.Attempt != attempt || g.ID != c.ID || !bytes.Equal(g.Steps, steps) {
							s.Fatalf("%s: attempt %d is %v, attempt %d of %v, with steps of %d bytes; want %v, with %d bytes", name,
								attempt, g.State, g.Attempt, g.ID, len(g.Steps), c.ID, len(steps))
						}
						clear(g.Steps)
						if again := s.begun(key); !again.Equal(begun) {
							s.Fatalf("%s: the operation was begun at %v, and attempt %d is told %v", name, begun, attempt, again)
						}
						s.powerless(key, c.Owner) // a stale run can't write
						s.release(key, next.Owner)
					}
				}
			}
		},
	},
	{
		name: "a checkpoint that comes late changes nothing",
		why: "one that has failed for its caller may be carried out after newer ones: what has finished since must not run again; and " +
			"the run goes on, so that it is no error",
		needs: needCheckpoint,
		run: func(s *env) {
			// All that numbers can be taken for: signed, of 32 or 53 bits, text in some language, ended by a NUL.
			numbers := []uint64{firstNumber, firstNumber + 1, firstNumber + 0x7f, firstNumber + 0x80, firstNumber + 0x100,
				firstNumber + 0x7fff_ffff, firstNumber + 1<<31, firstNumber + 1<<32, 'Z' << 56, 'a' << 56, 1<<63 - 1, 1 << 63, 1<<64 - 1}
			for i, number := range numbers {
				key, c, steps := fmt.Sprintf("%x", number), telling(standing(), "p"), numbered(number, "newer")
				earlier := [][]byte{{1, 1, 'a', 0}} // without a number
				if i > 0 {
					earlier = append(earlier, numbered(numbers[i-1], "of an earlier Checkpoint, and longer"))
				}
				s.begin(key, c)
				for _, steps := range earlier {
					s.checkpoint(key, c.Owner, steps)
				}
				s.checkpoint(key, c.Owner, steps)
				for _, late := range append(earlier, numbered(number, "of the same number")) {
					s.checkpoint(key, c.Owner, late)
				}
				s.renew(key, c.Owner, long)
				s.fail(key, c.Owner, true)
				if g := s.acquire(key, telling(standing(), "p")); !bytes.Equal(g.Steps, steps) {
					s.Fatalf("the checkpoints %.60q, then %q, and late ones: the next run gets %q", earlier, steps, g.Steps)
				}
			}
		},
	},
	{
		name: "steps end with their operation",
		why: "the next operation must run all its steps: after a result, an operator's answer, a run that is forgotten, other " +
			"parameters, and without an id by which to tell operations apart",
		needs: needCheckpoint,
		run: func(s *env) {
			for name, end := range map[string]func(key string, c store.Claim){
				"done": func(key string, c store.Claim) { s.complete(key, c.Owner, []byte("result"), short); s.pass(short) },
				"forgotten": func(key string, c store.Claim) {
					s.complete(key, c.Owner, nil, 0)
				},
				"failed for good": func(key string, c store.Claim) { s.fail(key, c.Owner, false) },
				"released": func(key string, c store.Claim) {
					s.release(key, c.Owner)
				},
				"expired": func(key string, c store.Claim) { s.renew(key, c.Owner, short); s.pass(2 * short) },
			} {
				c := telling(standing(), "p")
				c.Retention = short // after the lease
				s.begin(name, c)
				s.checkpoint(name, c.Owner, numbered(firstNumber, "steps"))
				end(name, c)
				s.beginsAnew(name, telling(standing(), "p"), 1, false)
			}

			// Of a later attempt something is left.
			for name, end := range map[string]func(key string, owner store.Owner){
				"forgotten":       func(key string, owner store.Owner) { s.complete(key, owner, nil, 0) },
				"failed for good": func(key string, owner store.Owner) { s.fail(key, owner, false) },
			} {
				for kept, leave := range map[string]func(key string, owner store.Owner){
					"": s.abandon, "kept, ": func(key string, owner store.Owner) { s.fail(key, owner, true) },
				} {
					key, c := "later, "+kept+name, telling(standing(), "p")
					s.begin(key, c)
					s.checkpoint(key, c.Owner, numbered(firstNumber, "steps"))
					leave(key, c.Owner)
					c = telling(taking(), "p")
					s.acquire(key, c)
					s.checkpoint(key, c.Owner, numbered(firstNumber+1, "more steps"))
					end(key, c.Owner)
					next := telling(standing(), "p")
					s.beginsAnew(key, next, 3, true)
					s.release(key, next.Owner)
					s.beginsAnew(key, telling(standing(), "p"), 4, true)
				}
			}

			for _, goesOn := range []bool{false, true} {
				key, c := fmt.Sprint("other parameters", goesOn), telling(standing(), "p")
				s.begin(key, c)
				s.checkpoint(key, c.Owner, numbered(firstNumber, "steps"))
				s.fail(key, c.Owner, true)
				next := telling(standing(), "p")
				next.Fingerprint = "of another operation"
				s.beginsAnew(key, next, 2, true)
				if goesOn { // it has no steps for the attempt after it
					s.fail(key, next.Owner, true)
				} else { // nothing is kept of it
					s.release(key, next.Owner)
					next.ID = store.NewID()
				}
				next.Owner = store.NewOwner()
				s.beginsAnew(key, next, 3, true)
			}

			c := lapsing() // which has no ID
			s.begin("no id", c)
			s.checkpoint("no id", c.Owner, numbered(firstNumber, "steps"))
			s.pass(short)
			c = telling(taking(), "p")
			s.beginsAnew("no id", c, 2, false)
			s.abandon("no id", c.Owner)
			c.Owner = store.NewOwner()
			s.beginsAnew("no id", c, 3, false)
			if s.can.Inspect != nil {
				c := telling(standing(), "p")
				s.begin("settled", c)
				s.checkpoint("settled", c.Owner, numbered(firstNumber, "steps"))
				s.abandon("settled", c.Owner)
				s.change("settled", s.lookup("settled", store.Abandoned, 1),
					store.Change{To: store.Done, Result: []byte("answer"), Retention: long})
				s.done("settled", 1, []byte("answer"))
			}
		},
	},
	{
		name: "a run that fails keeps its operation for any claim",
		why: "a retry after a 502 must send the same key downstream: the record is free, so that nobody waits for it or is told that it " +
			"is uncertain, and remembered for its claim's retention; attempts go on",
		needs: needCheckpoint,
		run: func(s *env) {
			c := telling(lapsing(), "p")
			c.Retention = long
			s.begin("k", c)
			s.fail("k", c.Owner, true)
			s.powerless("k", c.Owner)
			s.powerless("k", store.Owner{})
			s.pass(short) // the lease that it had
			for attempt := uint64(2); attempt < 5; attempt++ {
				next := telling(standing(), "p") // which takes nothing over
				if g := s.acquire("k", next); g.State != store.Acquired || g.Attempt != attempt || !g.Free || g.ID != c.ID {
					s.Fatalf("the claim of what was kept: %+v; want a free one, attempt %d of %v", g, attempt, c.ID)
				}
				s.look("k", store.Running, attempt)
				if attempt == 3 { // a claim that is given back keeps it as well
					s.release("k", next.Owner)
				} else {
					s.fail("k", next.Owner, true)
				}
			}
			if s.can.Inspect != nil {
				about := c.About
				s.told("k", store.Free, 4, about)
			}

			brief := telling(standing(), "p")
			brief.Retention = 2 * short
			s.begin("brief", brief)
			s.pass(short)
			s.fail("brief", brief.Owner, true)
			s.pass(2 * short)
			s.beginsAnew("brief", telling(standing(), "p"), 1, false)
			never := telling(standing(), "p")
			never.Retention = 0
			s.begin("never", never)
			s.fail("never", never.Owner, true)
			s.beginsAnew("never", telling(standing(), "p"), 1, false)
		},
	},
	{
		name: "a takeover that fails is still one",
		why: "a run before it was never heard of again, and may have taken effect: that is not forgotten " +
			"by a failure after it, but by a result",
		needs: needCheckpoint,
		run: func(s *env) {
			c := telling(standing(), "p")
			s.begin("k", c)
			s.abandon("k", c.Owner)
			for attempt := uint64(2); attempt < 6; attempt++ {
				next := telling(standing(), "p")
				next.Takeover = attempt == 2 // afterwards it is free
				if g := s.acquire("k", next); g.State != store.Acquired || g.Attempt != attempt || g.Free || g.ID != c.ID {
					s.Fatalf("%+v; want attempt %d of %v, no free one", g, attempt, c.ID)
				}
				if attempt == 3 {
					s.release("k", next.Owner)
				} else {
					s.fail("k", next.Owner, true)
				}
			}

			c = telling(standing(), "p")
			s.begin("expired", c)
			s.abandon("expired", c.Owner)
			c = telling(taking(), "p")
			c.Retention = short
			s.acquire("expired", c)
			s.fail("expired", c.Owner, true)
			s.pass(2 * short)
			c = telling(standing(), "p")
			s.beginsAnew("expired", c, 1, false)
			s.fail("expired", c.Owner, true)
			if g := s.acquire("expired", telling(standing(), "p")); !g.Free {
				s.Fatalf("an operation after one that is forgotten: %+v; want a free one", g)
			}
		},
	},
	{
		name: "an operation keeps its first secret",
		why: "a key that was derived before a rotation must be the same after it, for as long as the operation goes on; " +
			"the next operation has the new secret",
		needs: needCheckpoint,
		run: func(s *env) {
			named := func(c store.Claim, secret string) store.Claim {
				c = telling(c, "p")
				c.Secret = secret
				return c
			}
			claim := func(key string, c store.Claim, want string) store.Claim {
				s.Helper()
				if g := s.acquire(key, c); g.State != store.Acquired || g.Secret != want {
					s.Fatalf("%q: the claim that names %q got %v, and %q; want %q", key, c.Secret, g.State, g.Secret, want)
				}
				return c
			}
			for i, first := range []string{"", "s1", "\u00e9 of 64 bytes" + string(bytes.Repeat([]byte{'x'}, 50))} {
				key := fmt.Sprint("k", i)
				c := claim(key, named(standing(), first), first)
				s.abandon(key, c.Owner)
				want := max(first, "s0")
				c = claim(key, named(taking(), "s0"), want)
				s.checkpoint(key, c.Owner, numbered(firstNumber, "steps"))
				s.fail(key, c.Owner, true)
				c = claim(key, named(taking(), "s3"), want)
				s.complete(key, c.Owner, nil, 0)
				claim(key, named(standing(), "s4"), "s4")
			}
			c := claim("a result", named(standing(), "s1"), "s1")
			s.complete("a result", c.Owner, []byte("result"), long)
			if g := s.done("a result", 1, []byte("result")); g.Secret != "" {
				s.Fatalf("a duplicate is told of the secret %q", g.Secret)
			}
		},
	},
	{
		name:  "a run that fails wakes who waits",
		why:   "a waiter sleeps until the run ends",
		needs: needCheckpoint | needWatch,
		run: func(s *env) {
			for _, goesOn := range []bool{true, false} {
				key, c := fmt.Sprint(goesOn), telling(standing(), "p")
				s.begin(key, c)
				changed, _ := s.watch(key)
				s.checkpoint(key, c.Owner, numbered(firstNumber, "steps"))
				s.fail(key, c.Owner, goesOn)
				s.woken(changed, "Fail")
			}
		},
	},
}

// firstNumber is the number of a checkpoint as an engine makes it.
const firstNumber = 7<<56 + 1

// numbered returns the steps of a checkpoint.
func numbered(number uint64, steps string) []byte {
	return append(binary.BigEndian.AppendUint64(nil, number), steps...)
}

func (s *env) checkpoint(key string, owner store.Owner, steps []byte) {
	s.Helper()
	if err := s.can.Checkpoint(s.Context(), key, owner, steps); err != nil {
		s.Fatalf("Checkpoint(%q): %v", key, err)
	}
}

func (s *env) fail(key string, owner store.Owner, goesOn bool) {
	s.Helper()
	if err := s.can.Fail(s.Context(), key, owner, goesOn); err != nil {
		s.Fatalf("Fail(%q): %v", key, err)
	}
}

// beginsAnew expects that the claim begins an operation of its own, under a record that is free, or under none.
func (s *env) beginsAnew(key string, c store.Claim, attempt uint64, free bool) {
	s.Helper()
	if g := s.acquire(key, c); g.State != store.Acquired || g.Attempt != attempt || g.Free != free || g.ID != c.ID || len(g.Steps) > 0 {
		s.Fatalf("the claim of %q got %+v; want attempt %d of %v, free %t, without steps", key, g, attempt, c.ID, free)
	}
}

// begun returns when the operation under key was begun; zero in a store that can't be looked into.
func (s *env) begun(key string) time.Time {
	s.Helper()
	if s.can.Inspect == nil {
		return time.Time{}
	}
	r, err := s.can.Inspect.Lookup(s.Context(), key)
	if err != nil {
		s.Fatalf("Lookup(%q): %v", key, err)
	}
	return r.Begun
}
