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
	sh := &shard{memory: new(memory)}
	want := map[string]uint32{} // the entry's number
	shared := false
	for step := range 20_000 {
		n := rand.IntN(keys)
		key, hash := strconv.Itoa(n), uint32(n%hashes)
		e := sh.find(hash, key)
		if number, ok := want[key]; ok != (e != nil) || ok && e.number != number {
			t.Fatalf("step %d: %q is %+v, want %d %v", step, key, e, number, ok)
		}
		if e == nil {
			number := sh.memory.entries.take(1)
			e = sh.entry(number)
			*e = entry{number: number, hash: hash, class: none}
			sh.write(e, &texts{key: key})
			sh.index(e)
			want[key] = number
		} else {
			sh.unindex(e)
			sh.erase(e.number, e.class, e.block)
			sh.memory.entries.give(e.number, 1)
			delete(want, key)
		}
		if sh.records.len() != len(want) {
			t.Fatalf("step %d: there are %d records, want %d", step, sh.records.len(), len(want))
		}
		shared = shared || len(sh.records.others) > 0
	}
	if !shared {
		t.Error("no two keys have met in a hash")
	}
}
