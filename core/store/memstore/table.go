package memstore

import "strings"

// table finds a shard's records by their keys. It is indexed by a part of the hash of the key, which every
// call computes once, to find the shard. A map of strings would hash the key again at each step,
// and every key once more whenever the map grows.
//
// Of keys with equal parts all but the first lie in a map of their own. There are few: one or two among five million records.
type table struct {
	first  map[uint32]uint32 // the number of the entry
	others map[string]uint32
}

// find returns the record under key, or nil.
func (sh *shard) find(hash uint32, key string) *entry {
	if number, ok := sh.records.first[hash]; ok {
		if e := sh.entry(number); sh.key(e) == key {
			return e
		}
	}
	if number, ok := sh.records.others[key]; ok {
		return sh.entry(number)
	}
	return nil
}

// index adds a record under a key that has none.
func (sh *shard) index(e *entry) {
	t := &sh.records
	if t.first == nil {
		t.first = map[uint32]uint32{}
	}
	if _, taken := t.first[e.hash]; !taken {
		t.first[e.hash] = e.number
		return
	}
	if t.others == nil {
		t.others = map[string]uint32{}
	}
	t.others[strings.Clone(sh.key(e))] = e.number
}

// unindex takes e out.
func (sh *shard) unindex(e *entry) {
	if number, ok := sh.records.first[e.hash]; ok && number == e.number {
		delete(sh.records.first, e.hash)
	} else {
		delete(sh.records.others, sh.key(e))
	}
}

func (t *table) len() int { return len(t.first) + len(t.others) }
