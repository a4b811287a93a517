package memstore

import (
	"context"
	"math/bits"
	"strconv"
	"testing"
	"time"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/internal/race"
)

// TestCostIsIndependentOfRecords holds that a request costs as much among a million records as
// among a thousand: as many allocations, no record looked at beyond those that are reclaimed,
// and in the queue of deadlines no more moves than it has levels; none at all for a deadline
// that is the latest, which with one retention all are.
func TestCostIsIndependentOfRecords(t *testing.T) {
	many := 1_000_000
	if race.Enabled || testing.Short() {
		many = 100_000
	}
	type cost struct{ first, replay, renew, release float64 }
	costs := map[int]cost{}
	for _, n := range []int{1000, many} {
		s, err := New(Options{})
		if err != nil {
			t.Fatal(err)
		}
		ctx := context.Background()
		owner := store.Owner{1}
		claim := store.Claim{Owner: owner, Lease: time.Hour, Retention: time.Hour}
		result := make([]byte, 16)
		must := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		begin := func(key string) {
			if g, err := s.Acquire(ctx, key, claim); err != nil || g.State != store.Acquired {
				t.Fatal(g.State, err)
			}
		}
		for i := range n {
			key := strconv.Itoa(i)
			begin(key)
			must(s.Complete(ctx, key, owner, result, 2*time.Hour))
		}

		// moves returns how many records in the shard of key change their places.
		moves := func(key string, do func()) (moved int, size int) {
			sh, _ := s.locate(key)
			before := make(map[*entry]int32, len(sh.queue))
			for _, slot := range sh.queue {
				before[slot.entry] = slot.entry.place
			}
			do()
			for e, place := range before {
				if e.place != place {
					moved++
				}
			}
			return moved, len(sh.queue)
		}
		check := func(what string, most int, key string, do func()) {
			moved, size := moves(key, do)
			if levels := bits.Len(uint(size)); most < 0 && moved > levels || most >= 0 && moved > most {
				t.Errorf("%s moves %d of %d records", what, moved, size)
			}
		}
		begun := map[*shard]bool{}
		for i := range 50 {
			key := "fresh" + strconv.Itoa(i)
			sh, _ := s.locate(key)
			if begun[sh] {
				continue // a deadline of nine hours stands there already, and may lie below
			}
			begun[sh] = true
			check("a claim", -1, key, func() { begin(key) })
			check("a renewal", -1, key, func() { must(s.Renew(ctx, key, owner, 2*time.Hour)) })
			check("a completion, with the latest deadline", 0, key, func() { must(s.Complete(ctx, key, owner, result, 9*time.Hour)) })
			check("a replay", 0, key, func() { _, _ = s.Acquire(ctx, key, claim) })
			key += "x"
			check("a claim", -1, key, func() { begin(key) })
			check("a release", -1, key, func() { must(s.Release(ctx, key, owner)) })
			key += "y"
			check("a claim", -1, key, func() { begin(key) })
			check("an abandoning", -1, key, func() { must(s.Abandon(ctx, key, owner)) })
		}

		// A shard's map and queue grow now and then, whatever their size; what is counted here is
		// the rest. AllocsPerRun rounds down.
		keys := make([]string, 0, 300)
		for i := range cap(keys) {
			keys = append(keys, "counted"+strconv.Itoa(i))
		}
		var c cost
		next := 0
		c.first = testing.AllocsPerRun(len(keys)-1, func() {
			begin(keys[next])
			must(s.Complete(ctx, keys[next], owner, result, 3*time.Hour))
			next++
		})
		c.replay = testing.AllocsPerRun(100, func() {
			if g, err := s.Acquire(ctx, keys[0], claim); err != nil || g.State != store.Done {
				t.Fatal(g.State, err)
			}
		})
		begin("running")
		c.renew = testing.AllocsPerRun(100, func() { must(s.Renew(ctx, "running", owner, time.Hour)) })
		c.release = testing.AllocsPerRun(100, func() {
			begin("short")
			must(s.Release(ctx, "short", owner))
		})
		costs[n] = c
		t.Logf("%d records: allocations %+v", n, c)
	}
	if costs[1000] != costs[many] {
		t.Errorf("the cost depends on the number of records: %+v", costs)
	}
}
