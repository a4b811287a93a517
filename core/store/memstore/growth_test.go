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

// TestGrowthOfCost holds that a request costs as much among a million records as
// among a thousand: in the queue of deadlines there are no more moves than it has levels, and none at all for a deadline
// that is the latest, which with one retention all are. (TestAllocations counts the allocations among 20,000.)
func TestGrowthOfCost(t *testing.T) {
	many := 1_000_000
	if race.Enabled || testing.Short() {
		many = 100_000
	}
	for _, n := range []int{1000, many} {
		s, err := New(Config{})
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
			before := make(map[uint32]int32, len(sh.queue))
			for place, slot := range sh.queue {
				before[slot.number] = int32(place)
			}
			do()
			for place, slot := range sh.queue {
				if was, there := before[slot.number]; there && was != int32(place) {
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
	}
}
