package memstore

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestClasses: each length has the smallest class that it fits in, and classes are in order.
func TestClasses(t *testing.T) {
	for n := 1; n <= largest; n++ {
		class := classOf(n)
		size := classSize(class)
		if int(class) >= classes || size < n || class > 0 && classSize(class-1) >= n || size > 64 && size*8 > n*9+8 {
			t.Fatalf("%d bytes are in class %d, of %d", n, class, size)
		}
	}
}

// TestBlocksKeepWhatIsInThem: none is given twice, and memory that nobody has goes.
func TestBlocksKeepWhatIsInThem(t *testing.T) {
	const size = 3
	var p pool[byte]
	held := map[uint32]byte{}
	check := func() {
		t.Helper()
		for number, b := range held {
			if got := p.at(number, size); !bytes.Equal(got, bytes.Repeat([]byte{b}, size)) {
				t.Fatalf("block %d is %v, not %d", number, got, b)
			}
		}
	}
	for step := range 4000 {
		if rand.IntN(1000) < 300+step/10 { // many first, and fewer and fewer then
			for number := range held {
				p.give(number, size)
				delete(held, number)
				break
			}
			continue
		}
		number, b := p.take(size), byte(step)
		if _, twice := held[number]; twice {
			t.Fatalf("step %d: block %d is given twice", step, number)
		}
		held[number] = b
		copy(p.at(number, size), bytes.Repeat([]byte{b}, size))
		if step%100 == 0 {
			check()
		}
	}
	check()
	for number := range held {
		p.give(number, size)
	}
	room := 0
	for _, c := range p.chunks {
		room += len(c.items)
	}
	if room > keptEmpty*size {
		t.Errorf("%d bytes are kept for none", room)
	}
}

// TestTextsOfEachLength: they are what was written, and those of a record are not those of another one, however they grow and shrink.
func TestTextsOfEachLength(t *testing.T) {
	sh := &shard{memory: new(memory)}
	var want [60]texts
	text := func(most int) string { return strings.Repeat(string(rune('a'+rand.IntN(26))), rand.IntN(most)) }
	for range want {
		number := sh.memory.entries.take(1)
		*sh.entry(number) = entry{number: number, class: none}
	}
	for range 20_000 {
		i := uint32(rand.IntN(len(want)))
		e := sh.entry(i)
		most := []int{1, 50, 300, largeResult, 2 * largest}[rand.IntN(5)]
		want[i] = texts{text(most), text(64), text(255), text(20), text(255), text(most)}
		sh.write(e, &want[i])
		if got := sh.texts(e); got != want[i] || sh.key(e) != want[i].key {
			t.Fatalf("%+v were written, and %+v are read", want[i], got)
		}
		if other := uint32(rand.IntN(len(want))); sh.entry(other).class != none && sh.texts(sh.entry(other)) != want[other] {
			t.Fatalf("record %d has changed with another one", other)
		}
	}
	for i := range want {
		e := sh.entry(uint32(i))
		sh.erase(e.number, e.class, e.block)
	}
	if len(sh.memory.large) != 0 {
		t.Errorf("%d large records are left", len(sh.memory.large))
	}
}
