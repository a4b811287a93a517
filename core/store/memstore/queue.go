package memstore

import "time"

// queue is a binary heap of a shard's records, the one that expires first at its head.
// Records know their index in it, so that a renewed or finished one can be moved. A new
// deadline is mostly the latest one; then push and move take one comparison.
//
// container/heap would cost an interface call per step and an allocation per push.
type queue []slot

// slot is a record and its deadline, in the store's time.
type slot struct {
	at    time.Duration
	entry *entry
}

func (q *queue) push(e *entry, at time.Duration) {
	*q = append(*q, slot{at, e})
	e.place = int32(len(*q) - 1)
	q.up(len(*q) - 1)
}

func (q *queue) remove(e *entry) {
	i, last := int(e.place), len(*q)-1
	if i != last {
		q.put(i, (*q)[last])
	}
	(*q)[last] = slot{} // lets go of the record
	*q = (*q)[:last]
	if i != last {
		q.fix(i)
	}
}

// move gives e another deadline.
func (q queue) move(e *entry, at time.Duration) {
	q[e.place].at = at
	q.fix(int(e.place))
}

func (q queue) fix(i int) {
	if !q.down(i) {
		q.up(i)
	}
}

func (q queue) up(i int) {
	moving := q[i]
	for i > 0 {
		parent := (i - 1) / 2
		if q[parent].at <= moving.at {
			break
		}
		q.put(i, q[parent])
		i = parent
	}
	q.put(i, moving)
}

// down reports whether it moved anything.
func (q queue) down(i int) bool {
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
		q.put(i, q[child])
		i = child
	}
	q.put(i, moving)
	return i != from
}

func (q queue) put(i int, s slot) {
	q[i] = s
	s.entry.place = int32(i)
}
