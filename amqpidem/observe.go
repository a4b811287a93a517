package amqpidem

import (
	"context"
	"log/slog"
	"time"

	"github.com/idem-go/idem/core/codes"
)

// Stage says what an [Event] is about: how far a consumer or a delivery has come.
type Stage string

// The stages.
const (
	// Connected: a consumer has connected and declared its topology; deliveries may come.
	Connected Stage = "connected"
	// Disconnected: a consumer could not connect, or has lost its connection or its queue, with Err.
	// It tries again.
	Disconnected Stage = "disconnected"
	// Delivered: a consumer begins to handle a delivery.
	Delivered Stage = "delivered"
	// Settled: a delivery was settled with Outcome. In a [Consumer], Delivered comes before it.
	Settled Stage = "settled"
	// Unsettled: a delivery could not be settled with Outcome, because of Err. A consumer that is still connected
	// tries again; otherwise the broker redelivers the message.
	Unsettled Stage = "unsettled"
)

// Outcome is how a delivery was settled.
type Outcome string

// The outcomes.
const (
	Done      Outcome = "done"      // the function has succeeded: acknowledged
	Duplicate Outcome = "duplicate" // the function had succeeded before: acknowledged
	Failed    Outcome = "failed"    // the function has failed: the message comes back after Delay
	Deferred  Outcome = "deferred"  // no attempt was made, or it does not count, for Reason: the message comes back after Delay
	Dead      Outcome = "dead"      // dead-lettered, for Reason
)

// Event is one thing that happened to a consumer or to a delivery. Fields that do not apply are zero.
type Event struct {
	Stage Stage
	// Queue is the queue of the consumer.
	Queue string
	// MessageID and AppID are the message's, as its publisher has chosen them.
	MessageID, AppID string
	// Outcome is set for Settled and Unsettled.
	Outcome Outcome
	// Reason is why a message was deferred or dead-lettered: a codes.Code ("in_progress", "store_unavailable", "key_reused",
	// "uncertain"), or
	//
	//	failed             the last attempt has failed
	//	panicked           the last attempt has panicked
	//	exhausted          the last attempts began and never finished
	//	permanent          the function has returned a [Permanent] error
	//	no_message_id      the message has no id
	//	headers_too_large  a copy with the message's headers does not fit into a frame: the dead letter has none of them
	//	interrupted        a shutdown or a lost claim has ended the run
	Reason string
	// Attempt is the number of the attempt; 0 if there was none, or it does not count.
	Attempt int
	// Delay is how long the message waits in a delay queue.
	Delay time.Duration
	// Elapsed is the time since the handler got the delivery.
	Elapsed time.Duration
	// Err is the function's error or the connection's, if there is one.
	Err error
	// Stack is that of the goroutine, if the function has panicked.
	Stack []byte
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
		case e.Stage == Disconnected, e.Stage == Unsettled, e.Outcome == Failed,
			e.Outcome == Deferred && e.Reason != string(codes.InProgress):
			level = slog.LevelWarn
		}
		logger.LogAttrs(ctx, level, "amqpidem: "+string(e.Stage), slog.String("queue", e.Queue), slog.String("id", e.MessageID),
			slog.String("app", e.AppID), slog.String("outcome", string(e.Outcome)), slog.String("reason", e.Reason),
			slog.Int("attempt", e.Attempt), slog.Duration("delay", e.Delay), slog.Duration("elapsed", e.Elapsed), slog.Any("err", e.Err))
	}
}
