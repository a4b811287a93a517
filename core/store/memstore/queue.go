package memstore

import "time"

// queue is a binary heap of a shard's records, the one that expires first at its head.
// Records know their index in it, so that a renewed or finished one can be moved. A new
// deadline is mostly the latest one; then push and move take one comparison.
//
// container/heap would cost an interface call per step and an allocation per push.
type queue []slot

// slot is a record, by its number, and its deadline, in the store's time.
type slot struct {
	at     time.Duration
	number uint32
}

func (sh *shard) enqueue(e *entry, at time.Duration) {
	sh.queue = append(sh.queue, slot{at, e.number})
	e.place = int32(len(sh.queue) - 1)
	sh.up(len(sh.queue) - 1)
}

func (sh *shard) dequeue(e *entry) {
	i, last := int(e.place), len(sh.queue)-1
	if i != last {
		sh.put(i, sh.queue[last])
	}
	sh.queue = sh.queue[:last]
	if i != last {
		sh.fix(i)
	}
}

// move gives e another deadline.
func (sh *shard) move(e *entry, at time.Duration) {
	sh.queue[e.place].at = at
	sh.fix(int(e.place))
}

func (sh *shard) fix(i int) {
	if !sh.down(i) {
		sh.up(i)
	}
}

func (sh *shard) up(i int) {
	q := sh.queue
	moving := q[i]
	for i > 0 {
		parent := (i - 1) / 2
		if q[parent].at <= moving.at {
			break
		}
		sh.put(i, q[parent])
		i = parent
	}
	sh.put(i, moving)
}

// down reports whether it moved anything.
func (sh *shard) down(i int) bool {
	q := sh.queue
	from, moving := i, q[i]
	for {
		child := 2*i + 1
		if child >= len(q) {
			break
		}
		if child+1 < len(q) && q[child+1].at < q[child].at {
			child++
		}
		if q[child].at >= moving.at {
			break
		}
		sh.put(i, q[child])
		i = child
	}
	sh.put(i, moving)
	return i != from
}

func (sh *shard) put(i int, s slot) {
	sh.queue[i] = s
	sh.entry(s.number).place = int32(i)
}
