package amqpidem

import (
	"errors"
	"slices"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// acks acknowledges the deliveries of one channel, which has one consumer. One frame acknowledges
// all settled deliveries up to the first unsettled one, which is less work for the broker, too.
// Those settled beyond it wait for a moment, and are then acknowledged one by one: a slow function
// does not hold them up.
type acks struct {
	send   func(tag uint64, multiple bool) error
	closed func() bool
	wake   chan struct{}
	pause  time.Duration // how long a settled delivery waits for those before it

	flushing sync.Mutex // one at a time: the broker takes no tag that has been acknowledged

	mu     sync.Mutex
	first  uint64     // the lowest tag that is not acknowledged; the tags of a channel follow one another
	states []ackState // of that one, and of those behind it
	look   uint64     // all tags below are unsettled or acknowledged: it saves scanning them at each flush
	gaps   []uint64   // unsettled tags below first: while there are any, those behind are acknowledged one by one
	late   []uint64   // settled since, of these
}

// maxBehind is how many states are kept behind an unsettled delivery. One may be held for days.
const maxBehind = 1 << 16

type ackState uint8

const (
	unsettled ackState = iota
	settled
	acknowledged
)

var ackPause = 5 * time.Millisecond

func newAcks(ch *amqp.Channel) *acks {
	return &acks{send: ch.Ack, closed: ch.IsClosed, wake: make(chan struct{}, 1), pause: ackPause, first: 1}
}

// Ack implements amqp.Acknowledger. The frame is sent a little later. Until then the broker may
// deliver the message again, as it would if the frame were lost.
func (a *acks) Ack(tag uint64, _ bool) error {
	if a.closed() {
		return amqp.ErrClosed
	}
	a.mu.Lock()
	if tag < a.first {
		a.late = append(a.late, tag)
	} else {
		for uint64(len(a.states)) <= tag-a.first {
			a.states = append(a.states, unsettled)
		}
		a.states[tag-a.first] = settled
		a.look = min(a.look, tag)
	}
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
	return nil
}

// run sends acknowledgements until done is closed.
func (a *acks) run(done <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	armed := true
	for {
		select {
		case <-a.wake:
			if left := a.flush(false); left && !armed {
				timer.Reset(a.pause)
				armed = true
			}
		case <-timer.C:
			armed = false
			a.flush(true)
		case <-done:
			return
		}
	}
}

// flush acknowledges the settled deliveries before the first unsettled one; with all, also those
// after it. It reports whether any of these are left.
func (a *acks) flush(all bool) (left bool) {
	a.flushing.Lock()
	defer a.flushing.Unlock()
	a.mu.Lock()
	var upTo uint64 // the broker knows no tag that it has been told before
	single := a.late
	a.gaps = slices.DeleteFunc(a.gaps, func(tag uint64) bool { return slices.Contains(single, tag) })
	a.late = nil
	n := 0
	for n < len(a.states) && (a.states[n] != unsettled || len(a.states)-n > maxBehind) {
		switch tag := a.first + uint64(n); {
		case a.states[n] == unsettled:
			a.gaps = append(a.gaps, tag)
		case a.states[n] == settled && len(a.gaps) > 0:
			single = append(single, tag)
		case a.states[n] == settled:
			upTo = tag
		}
		n++
	}
	if n > 0 {
		a.first += uint64(n)
		a.states = a.states[:copy(a.states, a.states[n:])]
	}
	for a.look = max(a.look, a.first); a.look < a.first+uint64(len(a.states)); a.look++ {
		if i := a.look - a.first; a.states[i] == settled {
			if left = !all; left {
				break
			}
			a.states[i] = acknowledged
			single = append(single, a.look)
		}
	}
	a.mu.Unlock()
	for _, tag := range single {
		_ = a.send(tag, false) // an error is that of a channel which is closed
	}
	if upTo > 0 { // after those: it may be higher than one that is late
		_ = a.send(upTo, true)
	}
	return left
}

// Nack and Reject implement amqp.Acknowledger; a [Handler] settles by Ack alone.
func (a *acks) Nack(uint64, bool, bool) error { return errors.ErrUnsupported }

// Reject is like Nack.
func (a *acks) Reject(uint64, bool) error { return errors.ErrUnsupported }
