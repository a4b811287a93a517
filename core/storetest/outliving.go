package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/core/store"
)

// outliving are the cases of store.Capabilities' Outlive.
var outliving = []testCase{
	{
		name: "a key outlives its result",
		why: "a client that comes back after the retention must neither run again nor get what is no longer kept: the key is known " +
			"without its result, by whatever claim it is asked for, and until an operator forgets it",
		needs: needOutlive,
		run: func(s *env) {
			for i, result := range [][]byte{[]byte("result"), nil, bytes.Repeat([]byte{0, 'x'}, 40<<10)} {
				for name, claim := range map[string]func(key string) (c store.Claim, attempt uint64){
					"of a first run": func(key string) (store.Claim, uint64) {
						c := telling(standing(), "p")
						s.begin(key, c)
						return c, 1
					},
					"of one that tells nothing": func(key string) (store.Claim, uint64) {
						c := standing()
						s.begin(key, c)
						return c, 1
					},
					"of a free record": func(key string) (store.Claim, uint64) {
						first, c := telling(taking(), "p"), telling(taking(), "p")
						s.begin(key, first)
						s.abandon(key, first.Owner)
						s.acquire(key, c)
						s.complete(key, c.Owner, nil, 0)
						c = telling(standing(), "p")
						s.meetFree(key, c, 3)
						return c, 3
					},
				} {
					key := fmt.Sprint(i, " ", name)
					c, attempt := claim(key)
					if s.can.Checkpoint != nil {
						s.checkpoint(key, c.Owner, numbered(firstNumber, "steps"))
					}
					s.outlive(key, c.Owner, result, 2*short, long)
					s.powerless(key, c.Owner)
					if s.Advance != nil { // else it may have passed by now
						if g := s.done(key, attempt, result); g.Expired || g.Remaining > 2*short {
							s.Fatalf("%q, before the retention is over: %+v", key, g)
						}
						if s.can.Inspect != nil {
							r := s.lookup(key, store.Done, attempt)
							s.told(key, store.Done, attempt, r.About)
							if r.Expired || r.Remaining > 2*short || !s.isSize(r.Size, len(result)) || !bytes.Equal(r.Result, result) {
								s.Fatalf("the record under %q, before the retention is over: %+v", key, r)
							}
						}
					}
					s.pass(2 * short)
					if s.can.Inspect != nil { // a look of another kind, before any claim
						r := s.lookup(key, store.Done, attempt)
						s.told(key, store.Done, attempt, r.About)
						s.expired(key, r)
					}
					other := telling(taking(), "p")
					other.Fingerprint = "of other parameters"
					for _, next := range []store.Claim{standing(), taking(), other, c} {
						g := s.meet(key, next, store.Done, attempt)
						if !g.Expired || len(g.Result) > 0 || g.Remaining <= long/2 || g.Remaining > long ||
							g.Fingerprint != digest || g.ID != c.ID {
							s.Fatalf("%q, after the retention: %+v", key, g)
						}
						if s.can.Recall != nil {
							if g, _, ok := s.recall(key); ok && (!g.Expired || len(g.Result) > 0) {
								s.Fatalf("%q is recalled: %+v", key, g)
							}
						}
					}
					s.powerless(key, c.Owner)
					if s.can.Inspect != nil {
						r := s.lookup(key, store.Done, attempt)
						s.told(key, store.Done, attempt, r.About)
						s.expired(key, r)
						s.change(key, r, store.Change{})
						s.begin(key, standing())
					}
				}
			}
		},
	},
	{
		name: "a key that outlives its result is known for as long as it was said",
		why: "keys would pile up for ever, or be forgotten with their results; and nothing of a record may " +
			"be left to the next one under its key",
		needs: needOutlive,
		run: func(s *env) {
			if s.Advance != nil { // what remains is counted from the end of the result, whenever that is removed
				c := telling(standing(), "p")
				s.begin("counted", c)
				s.outlive("counted", c.Owner, []byte("result"), time.Minute, time.Hour)
				s.Advance(31 * time.Minute)
				for range 2 {
					g := s.look("counted", store.Done, 1)
					if off := g.Remaining - 30*time.Minute; !g.Expired || off.Abs() > tolerance {
						s.Fatalf("%v after the end of a result whose key is known for %v: %+v", 30*time.Minute, time.Hour, g)
					}
				}
				s.Advance(30*time.Minute + tolerance)
				s.beginsAnew("counted", telling(standing(), "p"), 1, false)
			}
			forgotten := store.Record{State: store.Done, Attempt: 1}
			for name, spans := range map[string][2]time.Duration{"soon": {short, short}, "later": {short, long}, "not yet": {long, short},
				"not yet, and then for long": {long, long}} {
				c := telling(standing(), "p")
				s.begin(name, c)
				s.outlive(name, c.Owner, []byte(name), spans[0], spans[1])
				if name == "soon" {
					forgotten.About = c.About
				}
			}
			s.pass(2 * short)
			if s.can.Inspect != nil { // before any claim
				s.forgotten("soon", forgotten)
			}
			if g := s.look("later", store.Done, 1); !g.Expired {
				s.Fatalf("%+v; want one that has expired", g)
			}
			for _, name := range []string{"not yet", "not yet, and then for long"} {
				if g := s.done(name, 1, []byte(name)); g.Expired || g.Remaining <= long/2 || g.Remaining > long {
					s.Fatalf("%+v; want one that is kept for %v", g, long)
				}
			}
			for _, end := range []func(owner store.Owner){
				func(owner store.Owner) { s.complete("soon", owner, []byte("the next"), long) },
				func(owner store.Owner) { s.outlive("soon", owner, []byte("the next"), long, long) },
			} {
				c := telling(standing(), "p")
				s.beginsAnew("soon", c, 1, false)
				end(c.Owner)
				s.pass(2 * short)
				if g := s.done("soon", 1, []byte("the next")); g.Expired || g.Remaining <= long/2 || g.Remaining > long {
					s.Fatalf("the record after one that had expired: %+v", g)
				}
				if s.can.Inspect == nil {
					return
				}
				s.change("soon", s.lookup("soon", store.Done, 1), store.Change{})
			}
			c := telling(standing(), "p") // a lease that would be long
			s.begin("settled", c)
			s.abandon("settled", c.Owner)
			s.change("settled", s.lookup("settled", store.Abandoned, 1),
				store.Change{To: store.Done, Result: []byte("answer"), Retention: short})
			s.pass(short)
			s.beginsAnew("settled", telling(standing(), "p"), 1, false)
		},
	},
}

// forgotten expects that nothing is known of a record that was seen under key.
func (s *env) forgotten(key string, seen store.Record) {
	s.Helper()
	if r, err := s.can.Inspect.Lookup(s.Context(), key); !errors.Is(err, store.ErrNoRecord) {
		s.Fatalf("Lookup(%q), which is forgotten: %+v, %v; want ErrNoRecord", key, r, err)
	}
	s.lists(store.Query{Prefix: key}, nil)
	if err := s.can.Inspect.Change(s.Context(), key, seen, store.Change{}); !errors.Is(err, store.ErrNoRecord) {
		s.Fatalf("Change(%q), which is forgotten: %v; want ErrNoRecord", key, err)
	}
}

func (s *env) outlive(key string, owner store.Owner, result []byte, retention, known time.Duration) {
	s.Helper()
	if err := s.can.Outlive(s.Context(), key, owner, result, retention, known); err != nil {
		s.Fatalf("Outlive(%q): %v", key, err)
	}
}

// expired expects a record that has lost its result.
func (s *env) expired(key string, r store.Record) {
	s.Helper()
	if !r.Expired || r.Size != 0 || len(r.Result) > 0 || r.Remaining <= long/2 || r.Remaining > long {
		s.Fatalf("the record under %q, after the retention: %+v", key, r)
	}
}
