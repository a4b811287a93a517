package canon

import (
	"hash"
	"reflect"
	"runtime"
)

// Work returns how much work this package has done. It is nil but where instrumented is compiled in.
var Work func() int

// FreshBytes returns how many bytes a derivation allocates that finds no memory in the pool.
func FreshBytes(r *Rules, in *Input) uint64 {
	var before, after runtime.MemStats
	s := new(scratch)
	runtime.ReadMemStats(&before)
	s.canonical(r, in)
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// PoisonPool overwrites all memory that lies in the pool, or at least a piece of it: it is
// nobody's.
func PoisonPool() {
	s := scratches.Get().(*scratch)
	for _, b := range [][]byte{s.out, s.spare, s.raw, s.names, s.chunk, s.sum[:]} {
		b = b[:cap(b)]
		for i := range b {
			b[i] = 0xA5
		}
	}
	fill(s.pairs, pair{1 << 40, 1 << 41, 1 << 42, 1 << 43}) // whoever reads these panics
	fill(s.order, 1<<40)
	fill(s.json.members, member{1 << 40, 1 << 41, 1 << 42, 1 << 43})
	fill(s.json.states, 1<<30)
	for _, h := range []hash.Hash{s.md5, s.sha256} {
		if h != nil {
			h.Write([]byte("poison"))
		}
	}
	s.selected, s.unsorted, s.json.selected, s.json.copied = 1<<40, true, 1<<40, 1<<40
	s.prefix, s.common, s.consumed, s.json.consumed = "poison", 1<<40, []string{"a", "b"}, []string{"a", "b"}
	scratches.Put(s)
}

func fill[T any](list []T, with T) {
	list = list[:cap(list)]
	for i := range list {
		list[i] = with
	}
}

// Fresh derives in memory that nothing was derived in before.
func Fresh(r *Rules, in *Input) (text, digest string, info Info) {
	s := new(scratch)
	cut, rest, info := s.canonical(r, in)
	all := append(append(append([]byte(nil), s.out[:cut]...), rest...), s.out[cut:]...)
	return string(all), string(r.Algorithm.appendSum(nil, all)), info
}

// LiveStates returns how many states of p are followed side by side within each of names, which lie
// within each other, and how many states there are.
func LiveStates(p *Paths, names ...string) (live []int, all int) {
	states, at := p.begin(nil)
	for _, name := range names {
		states, at, _ = p.step(states, at, []byte(name), -1)
		live = append(live, at.to-at.from)
	}
	return live, len(p.segments)
}

// Kept returns how many bytes the largest buffer has that a derivation leaves for the next one, and the names of the fields in
// which it leaves something of its request.
func Kept(r *Rules, in *Input) (largest int, requests []string) {
	s := new(scratch)
	s.canonical(r, in)
	s.free()
	for _, list := range []any{s, &s.json} {
		for _, field := range reflect.ValueOf(list).Elem().Fields() {
			if field.Kind() == reflect.Slice {
				largest = max(largest, field.Cap()*int(field.Type().Elem().Size()))
			}
		}
	}
	for name, kept := range map[string]bool{
		"consumed": s.consumed != nil, "json.consumed": s.json.consumed != nil, "json.rules": s.json.rules != nil,
		"json.src": s.json.src != nil, "json.out": s.json.out != nil, "json.spare": s.json.spare != nil,
	} {
		if kept {
			requests = append(requests, name)
		}
	}
	return largest, requests
}
