package storetest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/core/store"
)

// inspections are the cases of store.Inspector.
var inspections = []testCase{
	{
		name: "a record tells of its operation",
		why: "at night somebody has a key and asks: since when, by whom, under which policy, as what " +
			"operation, in which state, and for how long",
		needs: needInspect,
		run: func(s *env) {
			if _, err := s.can.Inspect.Lookup(s.Context(), "k"); !errors.Is(err, store.ErrNoRecord) {
				s.Fatalf("Lookup of nothing: %v, want ErrNoRecord", err)
			}
			c := telling(lapsing(), "first")
			before := time.Now()
			if g := s.meet("k", c, store.Acquired, 1); g.ID != c.ID {
				s.Fatalf("the claim of %v is told that its operation is %v", c.ID, g.ID)
			}
			s.renew("k", c.Owner, long)
			begun := s.told("k", store.Running, 1, c.About).Begun
			if d := begun.Sub(before); s.Advance == nil && (d < -time.Minute || d > time.Minute) { // the clock is another machine's
				s.Fatalf("the operation was begun at %v, by a clock that shows %v", begun, before)
			}
			s.renew("k", c.Owner, short)
			s.pass(short)
			s.told("k", store.Abandoned, 1, c.About)

			// A takeover goes on with the operation.
			again := telling(taking(), "second")
			if g := s.meet("k", again, store.Acquired, 2); g.ID != c.ID {
				s.Fatalf("a takeover of %v goes on with %v", c.ID, g.ID)
			}
			again.ID = c.ID
			if r := s.told("k", store.Running, 2, again.About); !r.Begun.Equal(begun) {
				s.Fatalf("a takeover has moved the begin of the operation from %v to %v", begun, r.Begun)
			}
			s.complete("k", again.Owner, []byte("result"), long)
			if g := s.done("k", 2, []byte("result")); g.ID != c.ID {
				s.Fatalf("a duplicate of %v is told of %v", c.ID, g.ID)
			}
			r := s.told("k", store.Done, 2, again.About)
			if string(r.Result) != "result" || !s.isSize(r.Size, len("result")) || !r.Begun.Equal(begun) || r.Fingerprint != digest {
				s.Fatalf("the finished record is told as %+v", r)
			}
		},
	},
	{
		name:  "what has ended begins as a new operation",
		why:   "an operation id is the same over takeovers and new for the next operation under the same key",
		needs: needInspect,
		run: func(s *env) {
			c := telling(lapsing(), "abandoned")
			s.begin("k", c)
			s.pass(short)
			first := s.lookup("k", store.Abandoned, 1)
			again := telling(taking(), "takes over")
			s.meet("k", again, store.Acquired, 2)
			s.complete("k", again.Owner, nil, 0)
			if r := s.lookup("k", store.Free, 2); r.ID != (store.ID{}) {
				s.Fatalf("a free record is still the operation %v", r.ID)
			}
			next := telling(standing(), "next")
			if g := s.acquire("k", next); !g.Free || g.ID != next.ID {
				s.Fatalf("the claim of a free record: %+v; want the operation %v", g, next.ID)
			}
			if r := s.told("k", store.Running, 3, next.About); s.Advance == nil && !r.Begun.After(first.Begun) {
				s.Fatalf("the operation before was begun at %v, and this one at %v", first.Begun, r.Begun)
			}
		},
	},
	{
		name:  "notes are text of any kind",
		why:   "a column in another encoding cuts or refuses what people write, and a claim fails for it",
		needs: needInspect,
		run: func(s *env) {
			for i, note := range []string{"", "a;b\n'\"\\", "caf\u00e9 \U0001F600",
				strings.Repeat("x", 255), strings.Repeat("\u20ac", 85)} {
				c, key := standing(), fmt.Sprint("k", i)
				// a store may know who it is
				c.About = store.About{ID: store.NewID(), Policy: note, Creator: cmp.Or(note, "somebody"), Remark: note}
				s.begin(key, c)
				g := s.meet(key, telling(standing(), "duplicate"), store.Running, 1)
				if s.Encrypts && len(g.Remark) >= min(len(note), 100) && strings.HasPrefix(note, g.Remark) {
					c.Remark = g.Remark
				}
				if g.Remark != c.Remark {
					s.Fatalf("a duplicate of the running record with the remark %q is told of %q", note, g.Remark)
				}
				s.complete(key, c.Owner, []byte(note), long)
				if g := s.done(key, 1, []byte(note)); g.Remark != c.Remark {
					s.Fatalf("a duplicate of the finished record with the remark %q is told of %q", note, g.Remark)
				}
				if r := s.told(key, store.Done, 1, c.About); string(r.Result) != note {
					s.Fatalf("beside the note %q the result is %q", note, r.Result)
				}
			}
			for _, note := range []string{strings.Repeat("x", 256), "\xff", "a\x00b"} {
				c := standing()
				c.Remark = note
				if _, err := s.Store.Acquire(s.Context(), "bad", c); err == nil {
					s.Fatalf("a claim with the remark %q was made", note)
				}
			}
		},
	},
	{
		name:  "a list has each record",
		why:   "what is not in the list is not found at night; a page at a time, by state, policy, prefix, id and key",
		needs: needInspect,
		run: func(s *env) {
			const n = 60
			ids, want := map[store.State]store.ID{}, map[store.State][]string{}
			for i := range n {
				state := []store.State{store.Running, store.Abandoned, store.Done, store.Free}[i%4]
				c := telling(standing(), fmt.Sprint("p", i%2))
				key := fmt.Sprintf("%d/%02d", i%3, i)
				s.begin(key, c)
				switch state {
				case store.Done:
					s.complete(key, c.Owner, []byte("result"), long)
				case store.Abandoned:
					s.abandon(key, c.Owner)
				case store.Free:
					s.abandon(key, c.Owner)
					s.change(key, s.lookup(key, store.Abandoned, 1), store.Change{To: store.Free})
				}
				ids[state], want[state] = c.ID, append(want[state], key)
			}
			gone := standing()
			s.begin("gone", gone)
			s.release("gone", gone.Owner)

			everything := slices.Concat(want[store.Running], want[store.Abandoned], want[store.Done], want[store.Free])
			s.lists(store.Query{}, everything)
			for state, keys := range want {
				s.lists(store.Query{States: []store.State{state}, Brief: true}, keys)
			}
			for _, r := range s.list(store.Query{Brief: true}) {
				if !slices.Contains(want[r.State], r.Key) {
					s.Fatalf("a brief List has %q, as %v", r.Key, r.State)
				}
			}
			for _, limit := range []int{1, 7, n, 2000} {
				s.lists(store.Query{Limit: limit}, everything)
				s.lists(store.Query{Limit: limit, States: []store.State{store.Abandoned, store.Running}},
					slices.Concat(want[store.Running], want[store.Abandoned]))
			}
			for state, keys := range want {
				s.lists(store.Query{States: []store.State{state}, Limit: 4}, keys)
				s.lists(store.Query{ID: ids[state]}, keys[len(keys)-1:])
			}
			matching := func(ok func(key string) bool) []string {
				return slices.DeleteFunc(slices.Clone(everything), func(key string) bool { return !ok(key) })
			}
			for _, prefix := range []string{"1/", "1/0", "_", "%", "*"} {
				s.lists(store.Query{Prefix: prefix}, matching(func(key string) bool { return strings.HasPrefix(key, prefix) }))
			}
			odd := func(key string) bool { return strings.HasSuffix(key, "1") }
			s.lists(store.Query{Match: odd, Limit: 2}, matching(odd))
			s.lists(store.Query{Policy: "p1"}, matching(func(key string) bool { return (key[len(key)-1]-'0')%2 == 1 }))
			s.lists(store.Query{Policy: "p"}, nil)
		},
	},
	{
		name: "what is no cursor is an error of its own",
		why: "a cursor comes back from outside: a list that begins elsewhere, or an error like that of a " +
			"store that is away, misleads the operator",
		needs: needInspect,
		run: func(s *env) {
			s.begin("k", standing())
			for _, states := range [][]store.State{nil, {store.Running}} {
				page, next, err := s.can.Inspect.List(s.Context(), store.Query{States: states}, "no cursor")
				if !errors.Is(err, store.ErrCursor) || len(page) > 0 || next != "" {
					s.Fatalf("List: %d records, %q, %v; want ErrCursor", len(page), next, err)
				}
			}
		},
	},
	{
		name:  "a list has what stands while others come and go",
		why:   "a store does not stand still for an operator: a record for which the list asks throughout is in it",
		needs: needInspect,
		run: func(s *env) {
			var stands []string
			claims := map[string]store.Claim{}
			for i := range 40 {
				key := fmt.Sprintf("stands %02d", i)
				claims[key] = telling(standing(), "p")
				s.begin(key, claims[key])
				stands = append(stands, key)
			}
			q := store.Query{Limit: 3}
			for round := range 2 {
				seen, cursor := map[string]int{}, ""
				for i := 0; ; i++ {
					page, next, err := s.can.Inspect.List(s.Context(), q, cursor)
					if err != nil {
						s.Fatalf("List: %v", err)
					}
					for _, r := range page {
						seen[r.Key]++
					}
					if cursor = next; cursor == "" {
						break
					}
					// Renewals, and others that begin and end, among those that are listed and those that are not yet.
					s.renew(stands[i%len(stands)], claims[stands[i%len(stands)]].Owner, 2*long)
					c := telling(standing(), "p")
					key := fmt.Sprintf("stands %02d beside, %d, %d", i%40, round, i)
					s.begin(key, c)
					if i%2 == 0 {
						s.release(key, c.Owner)
					}
					if i > 1000 {
						s.Fatal("the list does not end")
					}
				}
				for _, key := range stands {
					if seen[key] == 0 {
						s.Fatalf("%q stands, and is not in the list of %d", key, len(seen))
					}
				}
				q.States = []store.State{store.Running}
			}
		},
	},
	{
		name: "an operator's release frees for anybody",
		why: "a stuck operation must run again when somebody says so, as a takeover: the run before may " +
			"have taken effect; attempts never go back",
		needs: needInspect,
		run: func(s *env) {
			c := telling(standing(), "p")
			s.begin("k", c)
			s.abandon("k", c.Owner)
			r := s.lookup("k", store.Abandoned, 1)
			s.change("k", r, store.Change{To: store.Free, Result: []byte("of none"), Remark: "released"})
			about := c.About
			about.Remark = "released"
			if r := s.told("k", store.Free, 1, about); r.Size != 0 {
				s.Fatalf("a free record has a result of %d bytes", r.Size)
			}
			s.powerless("k", c.Owner)

			again := telling(standing(), "p") // which takes nothing over
			if g := s.acquire("k", again); g.State != store.Acquired || g.Attempt != 2 || g.Free || g.ID != c.ID {
				s.Fatalf("the next claim: %+v; want attempt 2 of %v, no free one", g, c.ID)
			}
			s.release("k", again.Owner)
			again = telling(standing(), "p")
			if g := s.acquire("k", again); g.State != store.Acquired || g.Attempt != 3 || g.Free || g.ID != c.ID {
				s.Fatalf("the claim after its release: %+v; want attempt 3 of %v, no free one", g, c.ID)
			}
			s.complete("k", again.Owner, nil, 0) // nothing is uncertain any more
			again = telling(standing(), "p")
			if g := s.acquire("k", again); g.State != store.Acquired || g.Attempt != 4 || !g.Free || g.ID != again.ID {
				s.Fatalf("the claim after a run that is forgotten: %+v; want attempt 4 of %v, a free one", g, again.ID)
			}

			other := telling(lapsing(), "p")
			s.begin("other", other)
			s.pass(4 * short)
			r = s.lookup("other", store.Abandoned, 1)
			since := time.Now()
			s.change("other", r, store.Change{To: store.Free})
			left := s.lookup("other", store.Free, 1).Remaining
			if began := left + time.Since(since); began <= r.Remaining+2*short { // it had lost 3*short
				s.Fatalf("it was remembered for %v, and is for at most %v since it was freed", r.Remaining, began)
			}
			next := telling(standing(), "p")
			next.Fingerprint = "of another operation"
			if g := s.acquire("other", next); g.State != store.Acquired || g.Attempt != 2 || g.ID != next.ID {
				s.Fatalf("a claim with other parameters: %+v; want attempt 2 of %v", g, next.ID)
			}
			if begun := s.lookup("other", store.Running, 2).Begun; s.Advance == nil && !begun.After(r.Begun) {
				s.Fatalf("the operation before was begun at %v, and this one at %v", r.Begun, begun)
			}
		},
	},
	{
		name:  "an operator's answer is what a duplicate gets",
		why:   "a settled operation is done: it is replayed, kept for its retention, and never runs",
		needs: needInspect,
		run: func(s *env) {
			for i, free := range []bool{false, true} {
				key, c := fmt.Sprint("k", i), telling(standing(), "p")
				s.begin(key, c)
				s.abandon(key, c.Owner)
				r := s.lookup(key, store.Abandoned, 1)
				if free {
					s.change(key, r, store.Change{To: store.Free})
					r.State = store.Free
				}
				s.change(key, r, store.Change{To: store.Done, Result: []byte("settled"), Retention: long})
				if g := s.done(key, 1, []byte("settled")); g.ID != c.ID {
					s.Fatalf("the settled record is told as %v, want %v", g.ID, c.ID)
				}
				s.change(key, s.told(key, store.Done, 1, c.About), store.Change{})
				s.begin(key, standing())
			}
			c := standing()
			s.begin("brief", c)
			s.abandon("brief", c.Owner)
			s.change("brief", s.lookup("brief", store.Abandoned, 1), store.Change{To: store.Done, Retention: short})
			s.pass(short)
			s.begin("brief", standing())
		},
	},
	{
		name: "a change that comes too late does nothing",
		why: "the operator has looked at a run that has moved on meanwhile: releasing or forgetting " +
			"the one after it would let it run twice",
		needs: needInspect,
		run: func(s *env) {
			late := func(key string, expected store.Record, want error) {
				s.Helper()
				for _, c := range []store.Change{{}, {To: store.Free}, {To: store.Done, Result: []byte("late"), Retention: long}} {
					if c.Validate(expected.State) != nil {
						continue
					}
					if err := s.can.Inspect.Change(s.Context(), key, expected, c); !errors.Is(err, want) {
						s.Fatalf("a change to %v of what has moved on: %v, want %v", c.To, err, want)
					}
				}
			}
			late("nothing", store.Record{State: store.Abandoned, Attempt: 1}, store.ErrNoRecord)
			c := telling(lapsing(), "p")
			s.begin("k", c)
			s.pass(short)
			seen := s.lookup("k", store.Abandoned, 1)
			s.renew("k", c.Owner, long)
			late("k", seen, store.ErrMovedOn) // it runs again
			s.renew("k", c.Owner, short)
			s.pass(short)
			again := telling(taking(), "p")
			again.Lease = short
			s.meet("k", again, store.Acquired, 2)
			s.pass(short)
			late("k", seen, store.ErrMovedOn) // it is the next run's
			seen = s.lookup("k", store.Abandoned, 2)
			s.complete("k", again.Owner, []byte("mine"), long)
			late("k", seen, store.ErrMovedOn) // it is done
			done := s.lookup("k", store.Done, 2)
			s.change("k", done, store.Change{})
			next := telling(standing(), "p")
			s.begin("k", next)
			done.State, done.Attempt = store.Running, 1
			late("k", done, store.ErrMovedOn) // it is another operation
			s.told("k", store.Running, 1, next.About)
		},
	},
	{
		name:  "a change that makes no sense changes nothing",
		why:   "what runs is not settled or freed under its owner, and nothing is settled for no time",
		needs: needInspect,
		run: func(s *env) {
			c := telling(standing(), "p")
			s.begin("k", c)
			r := s.lookup("k", store.Running, 1)
			for _, bad := range []store.Change{{To: store.Free}, {To: store.Done, Retention: long}, {To: store.Running},
				{To: store.Abandoned}, {Remark: "\xff"}} {
				if err := s.can.Inspect.Change(s.Context(), "k", r, bad); err == nil || errors.Is(err, store.ErrMovedOn) {
					s.Fatalf("a change of what runs to %+v: %v", bad, err)
				}
			}
			s.abandon("k", c.Owner)
			r = s.lookup("k", store.Abandoned, 1)
			if err := s.can.Inspect.Change(s.Context(), "k", r, store.Change{To: store.Done}); err == nil {
				s.Fatal("it is settled without a retention")
			}
			for want, ctx := range ended(s) {
				_, err1 := s.can.Inspect.Lookup(ctx, "k")
				_, _, err2 := s.can.Inspect.List(ctx, store.Query{}, "")
				err3 := s.can.Inspect.Change(ctx, "k", r, store.Change{})
				if !errors.Is(err1, want) || !errors.Is(err2, want) || !errors.Is(err3, want) {
					s.Fatalf("with a context that has ended: %v, %v, %v; want %v", err1, err2, err3, want)
				}
			}
			s.told("k", store.Abandoned, 1, c.About)
		},
	},
	{
		name:  "one of two operators changes it",
		why:   "two operators, or one who clicks twice, do it once",
		needs: needInspect,
		run: func(s *env) {
			storeOf := s.spread()
			for round := range s.rounds() / 4 {
				key := fmt.Sprint("round ", round)
				c := telling(standing(), "p")
				s.begin(key, c)
				s.abandon(key, c.Owner)
				r := s.lookup(key, store.Abandoned, 1)
				errs := make([]error, 4)
				together(len(errs), func(i int) {
					errs[i] = storeOf(i).Capabilities().Inspect.Change(s.Context(), key, r,
						store.Change{To: store.Done, Result: []byte{byte(i)}, Retention: long})
				})
				first := slices.Index(errs, nil)
				for i, err := range errs {
					if first < 0 || i != first && !errors.Is(err, store.ErrMovedOn) {
						s.Fatalf("four operators at once: %v; want one nil, and ErrMovedOn", errs)
					}
				}
				s.done(key, 1, []byte{byte(first)})
			}
		},
	},
	{
		name:  "an operator's change wakes who waits",
		why:   "a waiter sleeps until the run ends: it must hear of a record that is freed, settled or forgotten",
		needs: needInspect | needWatch,
		run: func(s *env) {
			c := standing()
			s.begin("k", c)
			changed, _ := s.watch("k")
			s.change("k", s.lookup("k", store.Running, 1), store.Change{})
			s.woken(changed, "a record that was forgotten")
			for i, to := range []store.Change{{To: store.Free}, {To: store.Done, Retention: long}} {
				key, c := fmt.Sprint("k", i), lapsing()
				s.begin(key, c)
				changed, _ := s.watch(key)
				s.pass(short)
				s.change(key, s.lookup(key, store.Abandoned, 1), to)
				s.woken(changed, fmt.Sprintf("a change to %v", to.To))
			}
		},
	},
}

// telling returns c with something to tell.
func telling(c store.Claim, policy string) store.Claim {
	c.About = store.About{ID: store.NewID(), Policy: policy, Creator: "host, 7", Remark: "of " + policy}
	return c
}

// lookup expects a record in the state under key.
func (s *env) lookup(key string, state store.State, attempt uint64) store.Record {
	s.Helper()
	r, err := s.can.Inspect.Lookup(s.Context(), key)
	if err != nil {
		s.Fatalf("Lookup(%q): %v", key, err)
	}
	if r.Key != key || r.State != state || r.Attempt != attempt {
		s.Fatalf("Lookup(%q) tells of %q, %v, attempt %d; want %v, attempt %d", key, r.Key, r.State, r.Attempt, state, attempt)
	}
	if r.Remaining <= 0 || r.Remaining > 2*long+tolerance {
		s.Fatalf("Lookup(%q): %v remain", key, r.Remaining)
	}
	return r
}

// told expects that Lookup and List tell the same about the record under key.
func (s *env) told(key string, state store.State, attempt uint64, about store.About) store.Record {
	s.Helper()
	r := s.lookup(key, state, attempt)
	if r.About != about {
		s.Fatalf("the record under %q tells %+v, want %+v", key, r.About, about)
	}
	list := s.list(store.Query{Prefix: key, Limit: 1000})
	i := slices.IndexFunc(list, func(r store.Record) bool { return r.Key == key })
	if i < 0 {
		s.Fatalf("the record under %q is not in the list", key)
	}
	listed := list[i]
	if listed.About != about || listed.State != state || listed.Expired != r.Expired || listed.Attempt != attempt ||
		!listed.Begun.Equal(r.Begun) || listed.Size != r.Size ||
		listed.Fingerprint != r.Fingerprint || len(listed.Result) > 0 || listed.Remaining <= 0 || listed.Remaining > r.Remaining+tolerance {
		s.Fatalf("the list tells %+v, and Lookup %+v", listed, r)
	}
	return r
}

// list returns all pages of a list.
func (s *env) list(q store.Query) (list []store.Record) {
	s.Helper()
	for cursor := ""; ; {
		page, next, err := s.can.Inspect.List(s.Context(), q, cursor)
		if err != nil {
			s.Fatalf("List(%+v): %v", q, err)
		}
		if len(page) > 10*q.Size() && !s.WholeLists {
			s.Fatalf("List(%+v): a page of %d", q, len(page))
		}
		list = append(list, page...)
		if cursor = next; cursor == "" {
			return list
		}
	}
}

func (s *env) change(key string, expected store.Record, c store.Change) {
	s.Helper()
	if err := s.can.Inspect.Change(s.Context(), key, expected, c); err != nil {
		s.Fatalf("Change(%q) to %v: %v", key, c.To, err)
	}
}

// lists expects exactly the records under keys, each once.
func (s *env) lists(q store.Query, keys []string) {
	s.Helper()
	found := []string{}
	for _, r := range s.list(q) {
		found = append(found, r.Key)
	}
	slices.Sort(found)
	if want := slices.Sorted(slices.Values(keys)); !slices.Equal(slices.Compact(found), want) {
		s.Fatalf("List(%+v) has %q, want %q", q, found, want)
	}
}
