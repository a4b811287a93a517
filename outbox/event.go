package outbox

import (
	"context"
	"log/slog"
	"time"
)

// Kind says what an [Event] is about.
type Kind uint8

// The kinds of events.
const (
	// LeaseAcquired: this relay sends now.
	LeaseAcquired Kind = iota + 1
	// LeaseLost: another relay has taken over.
	LeaseLost
	// Published: the broker has confirmed Messages.
	Published
	// Failed: the message with ID has failed for the Attempt-th time, with Err, and is tried again
	// after Pause. Later messages of its key wait for it.
	Failed
	// Parked: the message with ID has failed with Err, and is not sent any more.
	Parked
	// BrokerFailed: Messages could not be published because of Err, which is no fault of theirs.
	// The relay gives its lease back and waits for Pause.
	BrokerFailed
	// DatabaseFailed: the database has failed with Err. The relay waits for Pause.
	DatabaseFailed
)

var kindNames = [...]string{"invalid", "lease acquired", "lease lost", "published", "failed", "parked", "broker failed", "database failed"}

// String returns the kind's name in lower case.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return kindNames[0]
}

// Event is one thing that happened to a relay. Fields that its Kind does not mention are zero.
type Event struct {
	Kind Kind
	// Messages is how many messages the event is about.
	Messages int
	// ID and Topic are the message's.
	ID, Topic string
	// Attempt counts the failures of the message, from 1.
	Attempt int
	// Pause is the time until the next try.
	Pause time.Duration
	// Err is the error of the publisher or the database.
	Err error
}

// LogEvents returns an observer for RelayConfig.Observe that logs to logger: failures and a lost
// lease as warnings, a parked message as an error, the rest at the debug level.
func LogEvents(logger *slog.Logger) func(ctx context.Context, e Event) {
	return func(ctx context.Context, e Event) {
		level := slog.LevelWarn
		switch e.Kind {
		case LeaseAcquired, Published:
			level = slog.LevelDebug
		case Parked:
			level = slog.LevelError
		}
		logger.LogAttrs(ctx, level, "outbox: "+e.Kind.String(), slog.Int("messages", e.Messages), slog.String("id", e.ID),
			slog.String("topic", e.Topic), slog.Int("attempt", e.Attempt), slog.Duration("pause", e.Pause), slog.Any("err", e.Err))
	}
}
