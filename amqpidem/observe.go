package amqpidem

import (
	"context"
	"log/slog"
	"time"

	"github.com/idem-go/idem/core"
)

// Kind says what an [Event] is about.
type Kind uint8

// The kinds of events.
const (
	// Connected: a consumer is connected, its topology stands, and deliveries may come.
	Connected Kind = iota + 1
	// Disconnected: a consumer could not connect, or has lost its connection or its queue, with Err.
	// It tries again.
	Disconnected
	// Delivered: a consumer begins with a delivery.
	Delivered
	// Settled: a delivery was settled, by Outcome. Delivered comes before it, from a [Consumer].
	Settled
	// Unsettled: a delivery should have been settled by Outcome, and could not be. The broker
	// delivers it again.
	Unsettled
)

var kindNames = [...]string{"invalid", "connected", "disconnected", "delivered", "settled", "unsettled"}

// String returns the kind's name in lower case.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return kindNames[0]
}

// Outcome is how the delivery of a message has ended.
type Outcome string

// The outcomes.
const (
	Done      Outcome = "done"      // the function has succeeded: acknowledged
	Duplicate Outcome = "duplicate" // it had before: acknowledged
	Failed    Outcome = "failed"    // it has failed: back after Delay
	Deferred  Outcome = "deferred"  // no attempt was made, or counted, for Reason: back after Delay
	Dead      Outcome = "dead"      // published to the dead letters, for Reason
)

// Reason is why a message was deferred, or is a dead letter: one of these, or a core.Code
// ("in_progress", "store_unavailable", "key_reused", "uncertain").
type Reason string

// The reasons beside those that are a core.Code.
const (
	ReasonFailed    Reason = "failed"        // the last attempt has failed
	ReasonPanicked  Reason = "panicked"      // the last attempt has panicked
	ReasonExhausted Reason = "exhausted"     // the last attempts were begun, and never came back
	ReasonPermanent Reason = "permanent"     // the function has said so, see [Permanent]
	ReasonNoID      Reason = "no_message_id" // the message has no id
	// ReasonHeadersTooLarge: the message's headers leave no room in a frame for those of a copy. The dead letter is
	// without them.
	ReasonHeadersTooLarge Reason = "headers_too_large"
	ReasonInterrupted     Reason = "interrupted" // the run was ended from outside: a shutdown, a lost claim
)

// Event is one thing that happened to a consumer or to a delivery.
type Event struct {
	Kind Kind
	// Queue is the queue that is consumed from.
	Queue string
	// MessageID and AppID are the message's. They are what its publisher has chosen.
	MessageID, AppID string
	// Outcome, and Reason for it, are of Settled and Unsettled.
	Outcome Outcome
	Reason  Reason
	// Attempt is which attempt at the message has been made; 0 if none was, or none counted.
	Attempt int
	// Delay is how long the message stays away.
	Delay time.Duration
	// Elapsed is the time since the delivery was begun with.
	Elapsed time.Duration
	// Err is the error behind the event, if any: the function's, as it is, or the connection's.
	Err error
}

// LogEvents returns an observer for [Config].Observe that logs to logger: dead letters as errors; a
// lost connection, failed attempts, what could not be settled, and what was deferred for another reason
// than that it runs elsewhere as warnings; the rest at the debug level.
func LogEvents(logger *slog.Logger) func(ctx context.Context, e Event) {
	return func(ctx context.Context, e Event) {
		level := slog.LevelDebug
		switch {
		case e.Outcome == Dead:
			level = slog.LevelError
		case e.Kind == Disconnected, e.Kind == Unsettled, e.Outcome == Failed, e.Outcome == Deferred && e.Reason != Reason(core.CodeInProgress):
			level = slog.LevelWarn
		}
		logger.LogAttrs(ctx, level, "amqpidem: "+e.Kind.String(), slog.String("queue", e.Queue), slog.String("id", e.MessageID),
			slog.String("app", e.AppID), slog.String("outcome", string(e.Outcome)), slog.String("reason", string(e.Reason)),
			slog.Int("attempt", e.Attempt), slog.Duration("delay", e.Delay), slog.Duration("elapsed", e.Elapsed), slog.Any("err", e.Err))
	}
}
