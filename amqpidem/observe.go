package amqpidem

import (
	"context"
	"log/slog"
	"time"

	"github.com/idem-go/idem/core/codes"
)

// Kind says what an [Event] is about.
type Kind uint8

// The kinds of events.
const (
	// Connected: a consumer has connected and declared its topology; deliveries may come.
	Connected Kind = iota + 1
	// Disconnected: a consumer could not connect, or has lost its connection or its queue, with Err.
	// It tries again.
	Disconnected
	// Delivered: a consumer begins to handle a delivery.
	Delivered
	// Settled: a delivery was settled with Outcome. In a [Consumer], Delivered comes before it.
	Settled
	// Unsettled: a delivery could not be settled with Outcome, because of Err. A consumer whose connection stands
	// tries again; else the broker delivers the message again.
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

// Outcome is how a delivery was settled.
type Outcome string

// The outcomes.
const (
	Done      Outcome = "done"      // the function has succeeded: acknowledged
	Duplicate Outcome = "duplicate" // the function had succeeded before: acknowledged
	Failed    Outcome = "failed"    // the function has failed: back after Delay
	Deferred  Outcome = "deferred"  // no attempt was made, or it does not count, for Reason: back after Delay
	Dead      Outcome = "dead"      // dead-lettered, for Reason
)

// Reason is why a message was deferred or dead-lettered: one of the constants here, or a codes.Code
// ("in_progress", "store_unavailable", "key_reused", "uncertain").
type Reason string

// The reasons besides each codes.Code.
const (
	ReasonFailed    Reason = "failed"        // the last attempt has failed
	ReasonPanicked  Reason = "panicked"      // the last attempt has panicked
	ReasonExhausted Reason = "exhausted"     // the last attempts began, and never came back
	ReasonPermanent Reason = "permanent"     // the function has returned a [Permanent] error
	ReasonNoID      Reason = "no_message_id" // the message has no id
	// ReasonHeadersTooLarge: a copy with the message's headers does not fit into a frame. The dead letter has only those
	// of this package.
	ReasonHeadersTooLarge Reason = "headers_too_large"
	ReasonInterrupted     Reason = "interrupted" // a shutdown or a lost claim has ended the run
)

// Event is one thing that happened to a consumer or to a delivery. Fields that do not apply are zero.
type Event struct {
	Kind Kind
	// Queue is the queue of the consumer.
	Queue string
	// MessageID and AppID are the message's, as its publisher has chosen them.
	MessageID, AppID string
	// Outcome, and the Reason for it, are set for Settled and Unsettled.
	Outcome Outcome
	Reason  Reason
	// Attempt is the number of the attempt; 0 if there was none, or it does not count.
	Attempt int
	// Delay is how long the message waits in a delay queue.
	Delay time.Duration
	// Elapsed is the time since the handler got the delivery.
	Elapsed time.Duration
	// Err is the function's error or the connection's, if there is one.
	Err error
}

// LogEvents returns an observer for [Config].Observe that logs to logger. Dead letters are errors. Lost
// connections, failed attempts, unsettled deliveries and deferrals are warnings, except deferrals because
// the message is running elsewhere. The rest has the debug level.
func LogEvents(logger *slog.Logger) func(ctx context.Context, e Event) {
	return func(ctx context.Context, e Event) {
		level := slog.LevelDebug
		switch {
		case e.Outcome == Dead:
			level = slog.LevelError
		case e.Kind == Disconnected, e.Kind == Unsettled, e.Outcome == Failed, e.Outcome == Deferred && e.Reason != Reason(codes.InProgress):
			level = slog.LevelWarn
		}
		logger.LogAttrs(ctx, level, "amqpidem: "+e.Kind.String(), slog.String("queue", e.Queue), slog.String("id", e.MessageID),
			slog.String("app", e.AppID), slog.String("outcome", string(e.Outcome)), slog.String("reason", string(e.Reason)),
			slog.Int("attempt", e.Attempt), slog.Duration("delay", e.Delay), slog.Duration("elapsed", e.Elapsed), slog.Any("err", e.Err))
	}
}
