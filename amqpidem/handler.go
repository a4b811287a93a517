package amqpidem

import (
	"context"
	"errors"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/idem-go/idem/core"
)

// Func processes a message. It must not acknowledge the delivery: the handler settles it, depending on
// what Func returns. An error or a panic is a failed attempt. Wrap an error that no further attempt can
// fix in [Permanent].
//
// ctx belongs to the run, see core.RunFrom; [AttemptFrom] returns the number of the attempt. ctx ends
// when the claim is lost, and when the consumer stops waiting at its end. Do not keep a failed run
// (core.Run.Keep): its message would count as done when it comes back. Do not change the bytes of
// d.Body or the table d.Headers: the message may be published again with them.
type Func func(ctx context.Context, d *amqp.Delivery) error

// Config configures a [Handler].
type Config struct {
	// Task runs the messages. Its policy's Name is the consumer's name: an operation is the
	// consumer's name, the message's AppId and its MessageId; its fingerprint is a digest of the
	// body. Two consumers that both process a message need two names. It is required.
	//
	// A policy with Duplicate: core.Reject("") is the cheapest: it stores no result. The Retention must
	// be longer than a message can come back: longer than the sum of its delays, and than a publisher
	// or an outbox retries. OnFailure: core.Keep is a fault: a failed message would count as done
	// when it comes back.
	Task *core.Task

	// Topology is the queue from which the messages come. It is required.
	Topology Topology

	// Publisher publishes to the delay and dead-letter queues. It is required. The caller still owns
	// it: close it after the last message.
	Publisher *Publisher

	// Attempts is how many attempts a message gets before it is dead-lettered. A run that never
	// finished (its process was killed) counts if the store has seen it begin since the message was
	// published. Zero means one more than the topology has delays.
	Attempts int

	// WithoutID says what happens to a message without a message id. Zero means [DeadLetter].
	WithoutID WithoutID

	// Observe is called for each event, synchronously and concurrently; it must return quickly. It
	// may be nil.
	Observe func(ctx context.Context, e Event)
}

// WithoutID says what happens to a message without a message id.
type WithoutID uint8

const (
	// DeadLetter dead-letters the message. It is the zero value.
	DeadLetter WithoutID = iota
	// Digest uses a digest of the body as the id ([core.Task.Digest]). Messages with equal bodies are then one
	// operation, for as long as its result is kept.
	Digest
	// Pass runs the message unprotected, each time it is delivered.
	Pass
)

// Handler runs each message of a queue once, and settles its deliveries:
//
//	the function succeeds                       acknowledged
//	an earlier delivery has succeeded           acknowledged; the function does not run
//	the message is running elsewhere            comes back after a delay; the attempt does not count
//	the store can't be reached                  the same
//	the function fails or panics                comes back after a growing delay; dead-lettered after the last attempt
//	an earlier run may have taken effect        dead-lettered (a policy with Abandoned: core.Uncertain(…))
//	the id was used with another body           dead-lettered
//	the message has no id                       dead-lettered, or as [Config].WithoutID says
//
// To delay or dead-letter a message, the handler publishes a copy, and acknowledges the delivery when the broker has
// confirmed the copy. If the broker refuses it, a [Consumer] keeps the delivery unacknowledged, and tries again. A
// crash in between leaves two copies of the message. They have one key, and are one operation. A Handler is
// safe for concurrent use. Make one with [NewHandler].
type Handler struct {
	config   Config
	topology Topology // with defaults filled in
	fn       Func
}

// NewHandler returns a handler that runs fn. The error joins every fault of c, each a
// *core.ConfigError.
func NewHandler(c Config, fn Func) (*Handler, error) {
	topology, err := c.Topology.check()
	f := faults{"Config", []error{err}}
	f.addIf(c.Task == nil, "Task", "is nil")
	f.addIf(c.Task != nil && c.Task.Record().OnFailure == core.Keep, "Task",
		"keeps failures (OnFailure): a failed message would be acknowledged when it comes back, and lost")
	f.addIf(c.Publisher == nil, "Publisher", "is nil")
	f.addIf(c.Attempts < 0, "Attempts", "is negative: %d", c.Attempts)
	f.addIf(c.WithoutID > Pass, "WithoutID", "is unknown: %d", c.WithoutID)
	if fn == nil {
		f.errs = append(f.errs, errors.New("amqpidem: NewHandler: the function is nil"))
	}
	if err := errors.Join(f.errs...); err != nil {
		return nil, err
	}
	if c.Attempts == 0 {
		c.Attempts = len(topology.Delays) + 1
	}
	return &Handler{config: c, topology: topology, fn: fn}, nil
}

// Attempt describes one attempt at a message.
type Attempt struct {
	// Number counts the attempts at the message, from 1. Unlike core.Run.Attempt it also counts
	// failed ones.
	Number int
	// Of is the greatest Number: see [Config].Attempts.
	Of int
	// Deliveries is how often the broker has delivered the message since it was last published or
	// came back from a delay: 1, or more after a lost connection. It is exact on a quorum queue; on
	// a classic queue it is 1 or 2.
	Deliveries int
	// FirstSeen is when a handler first got the message, to the second.
	FirstSeen time.Time
}

// AttemptFrom returns the attempt to which ctx, the context of a [Func], belongs. It returns the
// zero Attempt for any other context.
func AttemptFrom(ctx context.Context) Attempt {
	a, _ := ctx.Value(attemptKey{}).(Attempt)
	return a
}

type attemptKey struct{}

// Permanent wraps an error of a [Func] that no further attempt can fix, such as a body that can't be
// parsed: the message is dead-lettered at once. It returns nil for nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

// Handle runs the function for a delivery, and settles the delivery, whether the function succeeds
// or not. It returns an error only if the delivery could not be settled. Then close its channel, if
// it is still open: the broker delivers unacknowledged messages again.
//
// When ctx ends, so does the function's context. Settling then goes on for up to 30 s.
func (h *Handler) Handle(ctx context.Context, d amqp.Delivery) (err error) {
	settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	h.handle(ctx, &d, func(r *run, what decision) { _, err = h.settle(ctx, settling, 30*time.Second, r, what) })
	return err
}

// handle is the way of a delivery: read, run, decide, settle. settle is called also if the function ends its
// goroutine (runtime.Goexit): so it is a function, and not what follows a call of handle.
func (h *Handler) handle(ctx context.Context, d *amqp.Delivery, settle func(*run, decision)) {
	r := h.read(d)
	defer func() { settle(r, r.decide()) }()
	r.do(ctx)
}
