package memstore

// table finds a shard's records by their keys. It goes by the hash of the key, which every call
// works out once, for the shard as well; a map of strings would hash a key of a hundred bytes
// anew at each step, and once more for each record whenever it grows.
//
// Of keys with the same hash (none, as a rule: it has 64 bits and a secret seed) all but the first
// lie in a map of their own.
type table struct {
	first  map[uint64]*entry
	others map[string]*entry
}

// find returns the record under key, or nil.
func (t *table) find(hash uint64, key string) *entry {
	if e := t.first[hash]; e != nil && e.key == key {
		return e
	}
	return t.others[key]
}

// add adds a record under a key that has none.
func (t *table) add(hash uint64, e *entry) {
	if t.first == nil {
		t.first = make(map[uint64]*entry)
	}
	if t.first[hash] == nil {
		t.first[hash] = e
		return
	}
	if t.others == nil {
		t.others = make(map[string]*entry)
	}
	t.others[e.key] = e
}

// remove takes e out.
func (t *table) remove(hash uint64, e *entry) {
	if t.first[hash] == e {
		delete(t.first, hash)
	} else {
		delete(t.others, e.key)
	}
}

func (t *table) len() int { return len(t.first) + len(t.others) }
