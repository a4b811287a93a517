package memstore

import (
	"math/rand/v2"
	"strconv"
	"testing"
)

// TestTableTellsKeysWithOneHashApart compares a table with a plain map, with so few hashes that
// most keys share theirs, and some of those that share one are removed before the others.
func TestTableTellsKeysWithOneHashApart(t *testing.T) {
	const hashes, keys = 3, 12
	var tab table
	want := map[string]*entry{}
	shared := false
	for step := range 20_000 {
		n := rand.IntN(keys)
		key, hash := strconv.Itoa(n), uint64(n%hashes)
		got := tab.find(hash, key)
		if got != want[key] {
			t.Fatalf("step %d: %q is %p, want %p", step, key, got, want[key])
		}
		if got == nil {
			e := &entry{key: key}
			tab.add(hash, e)
			want[key] = e
		} else {
			tab.remove(hash, got)
			delete(want, key)
		}
		if tab.len() != len(want) {
			t.Fatalf("step %d: there are %d records, want %d", step, tab.len(), len(want))
		}
		shared = shared || len(tab.others) > 0
	}
	if !shared {
		t.Error("no two keys have met in a hash")
	}
}
