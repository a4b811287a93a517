package amqpidem

import (
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Arguments returns the arguments of the topology's own queue on a broker of that major version.
func (t Topology) Arguments(major int) amqp.Table {
	t, _ = t.check()
	for _, d := range t.declarations(major) {
		if d.name == t.Queue {
			return d.args
		}
	}
	return nil
}

// Unconfirmed returns how many messages have been sent, or are about to be, and are not confirmed.
func (p *Publisher) Unconfirmed() int { return len(p.slots) }

// Unreadable is unreadable: it depends on the client's words.
var Unreadable = unreadable

// SetCloseLimit sets how long something may take at the end, and returns what sets it back.
func SetCloseLimit(d time.Duration) (back func()) {
	before := closeLimit
	closeLimit = d
	return func() { closeLimit = before }
}

// SetCaution sets within which time a connection breaks early, and returns what sets it back.
func SetCaution(d time.Duration) (back func()) {
	before := caution
	caution = d
	return func() { caution = before }
}

// SetAckPause sets how long a settled delivery waits for those before it, and returns what sets it back.
func SetAckPause(d time.Duration) (back func()) {
	before := ackPause
	ackPause = d
	return func() { ackPause = before }
}
