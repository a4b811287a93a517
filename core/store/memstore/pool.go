package memstore

import (
	"math"
	"math/bits"
)

// pool holds blocks of one size: so many T each. The collector marks chunks of them, and scans none, for a T has no pointers. A
// block is known by its number. It moves while its chunk grows, so that an address is good only until the next take.
type pool[T any] struct {
	chunks []chunk[T]
	open   []uint32 // the chunks that have a block to give; takes come from the last
}

// chunk is up to 32 blocks. It grows as they are taken, and its memory goes when all are given back.
type chunk[T any] struct {
	items []T
	used  uint32 // a bit for each block
}

const (
	perChunk  = 32
	growing   = 2 // so many chunks of a pool grow; where there are more, the next one has its size at once
	keptEmpty = 4 // so many blocks an empty chunk may keep
)

func (p *pool[T]) take(size int) (number uint32) {
	if len(p.open) == 0 {
		p.open = append(p.open, uint32(len(p.chunks)))
		p.chunks = append(p.chunks, chunk[T]{})
	}
	i := p.open[len(p.open)-1]
	c := &p.chunks[i]
	block := bits.TrailingZeros32(^c.used)
	if c.used |= 1 << block; c.used == math.MaxUint32 {
		p.open = p.open[:len(p.open)-1]
	}
	if need := (block + 1) * size; len(c.items) < need {
		if need = max(need, 2*len(c.items), 2*size); need > perChunk*size || len(p.chunks) > growing {
			need = perChunk * size
		}
		grown := make([]T, need)
		copy(grown, c.items)
		c.items = grown
	}
	return i*perChunk + uint32(block)
}

// at returns a block.
func (p *pool[T]) at(number uint32, size int) []T {
	first := int(number%perChunk) * size
	return p.chunks[number/perChunk].items[first : first+size]
}

func (p *pool[T]) give(number uint32, size int) {
	c := &p.chunks[number/perChunk]
	if c.used == math.MaxUint32 {
		p.open = append(p.open, number/perChunk)
	}
	if c.used &^= 1 << (number % perChunk); c.used == 0 && (len(p.open) > 1 || len(c.items) > keptEmpty*size) {
		c.items = nil
	}
}
