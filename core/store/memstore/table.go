package memstore

// table finds a shard's records by their keys. It is indexed by the hash of the key, which every
// call computes once, to find the shard. A map of strings would hash the key again at each step,
// and every key once more whenever the map grows.
//
// Of keys with equal hashes (64 bits and a secret seed make them very rare) all but the first lie in
// a map of their own.
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
