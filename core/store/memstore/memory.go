package memstore

import (
	"math/bits"
	"strings"
	"unsafe"

	"github.com/idem-go/idem/core/store"
)

// memory is where the records of a shard are. A million records are some ten thousand objects for the collector, instead of four million.
type memory struct {
	entries pool[entry]
	blocks  [classes]*pool[byte] // of texts, by their class
	large   map[uint32]texts     // those that are in no block, by the number of their entry
	usual   int                  // the length of the last result: the block of a run has room for one like it
}

// texts are the texts of a record. Those that [shard.texts] returns are good while the shard is locked; those of a large record for ever.
type texts struct {
	key, fingerprint, policy, creator, remark string
	result                                    string // until it is done: the secret's name, and behind a NUL the steps, if there are any
}

const (
	// largest is the length of all texts of a record up to which they are in a block. Copying them takes a tenth of a microsecond.
	largest = 2048
	// largeResult is the length of a result that is a string by itself: its copy is made before the lock is taken.
	largeResult = 1024

	// classes is how many sizes blocks have, from 64 to largest: eight between each power of two and the next one.
	classes = 41
	inLarge = classes // the class of a record that has no block
)

func classOf(length int) uint8 {
	if length <= 64 {
		return 0
	}
	length--
	shift := bits.Len(uint(length)) - 4
	return uint8((shift-3)*8 + length>>shift - 7)
}

func classSize(class uint8) int { return int(8+class%8) << (3 + class/8) }

func (t *texts) len() int {
	return len(t.key) + len(t.fingerprint) + len(t.policy) + len(t.creator) + len(t.remark) + len(t.result)
}

// entry returns the entry with a number. It moves when another one is added.
func (sh *shard) entry(number uint32) *entry { return &sh.memory.entries.at(number, 1)[0] }

// text returns what is in the block of e.
func (sh *shard) text(e *entry) string {
	return unsafe.String(unsafe.SliceData(sh.memory.blocks[e.class].at(e.block, classSize(e.class))),
		int(e.key)+int(e.fingerprint)+int(e.policy)+int(e.creator)+int(e.remark)+e.result)
}

// key returns the key of e, see [texts].
func (sh *shard) key(e *entry) string {
	if e.class == inLarge {
		return sh.memory.large[e.number].key
	}
	return sh.text(e)[:e.key]
}

func (sh *shard) texts(e *entry) (t texts) {
	if e.class == inLarge {
		return sh.memory.large[e.number]
	}
	all := sh.text(e)
	t.key, all = all[:e.key], all[e.key:]
	t.fingerprint, all = all[:e.fingerprint], all[e.fingerprint:]
	t.policy, all = all[:e.policy], all[e.policy:]
	t.creator, all = all[:e.creator], all[e.creator:]
	t.remark, t.result = all[:e.remark], all[e.remark:]
	return t
}

// write makes t the texts of e. It copies them, but for a large result. Behind those of a run is room for a result. (A nonce,
// which has no ID, never gets one.)
func (sh *shard) write(e *entry, t *texts) {
	before, block := e.class, e.block
	if n := t.len(); n > largest || len(t.result) >= largeResult {
		e.class = inLarge
		if sh.memory.large == nil {
			sh.memory.large = map[uint32]texts{}
		}
		own := texts{strings.Clone(t.key), strings.Clone(t.fingerprint), strings.Clone(t.policy), strings.Clone(t.creator),
			strings.Clone(t.remark), t.result}
		if len(t.result) < largeResult {
			own.result = strings.Clone(t.result)
		}
		sh.memory.large[e.number] = own
	} else {
		if !e.done && !e.owner.IsZero() && e.id != (store.ID{}) && n+sh.memory.usual <= largest {
			n += sh.memory.usual
		}
		e.class = classOf(n)
		p := sh.memory.blocks[e.class]
		if p == nil {
			p = new(pool[byte])
			sh.memory.blocks[e.class] = p
		}
		size := classSize(e.class)
		e.block = p.take(size)
		b := append(p.at(e.block, size)[:0], t.key...)
		b = append(append(append(append(b, t.fingerprint...), t.policy...), t.creator...), t.remark...)
		_ = append(b, t.result...)
	}
	e.key, e.result = uint32(len(t.key)), len(t.result)
	e.fingerprint, e.policy = uint8(len(t.fingerprint)), uint8(len(t.policy))
	e.creator, e.remark = uint8(len(t.creator)), uint8(len(t.remark))
	if e.class != inLarge || before != inLarge {
		sh.erase(e.number, before, block)
	}
}

// finish makes t, which has a new result, the texts of a run that has ended. The others stay where they are if their block has the size.
func (sh *shard) finish(e *entry, t *texts) {
	e.done = true
	result := len(t.result)
	if n := t.len(); n <= largest && e.class == classOf(n) && result < largeResult {
		copy(sh.memory.blocks[e.class].at(e.block, classSize(e.class))[n-result:], t.result)
		e.result = result
	} else {
		sh.write(e, t)
	}
	if result < largeResult {
		sh.memory.usual = result
	}
}

// none is the class of a record that has no texts yet.
const none = inLarge + 1

// erase gives the room of texts back.
func (sh *shard) erase(number uint32, class uint8, block uint32) {
	switch class {
	case none:
	case inLarge:
		delete(sh.memory.large, number)
	default:
		sh.memory.blocks[class].give(block, classSize(class))
	}
}
