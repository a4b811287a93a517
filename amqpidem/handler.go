package amqpidem

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
)

// Func processes a message. It must not acknowledge the delivery: the handler does, by what Func
// returns. An error or a panic is a failed attempt. Wrap an error that no further attempt can mend
// in [Permanent].
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
	// be longer than a message can come again: the sum of its delays, and as long as a publisher
	// or an outbox tries. OnFailure: core.Keep is refused: a failed message would count as done
	// when it comes back.
	Task *core.Task

	// Topology is the queue from which the messages come. It is required.
	Topology Topology

	// Publisher publishes to the queues for delays and dead letters. It is required. It remains the
	// caller's: close it after the last message.
	Publisher *Publisher

	// Attempts is how many attempts a message gets before it is dead-lettered. A run that never
	// came back (its process was killed) counts, if the store has seen it begin since the message was
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
	// Digest uses a SHA-256 digest of the body as the id. Messages with equal bodies are then one
	// operation, for as long as its result stands.
	Digest
	// Pass runs the message unprotected, each time it is delivered.
	Pass
)

// Handler runs each message of a queue once, and settles its deliveries:
//
//	the function succeeds                       acknowledged
//	an earlier delivery has succeeded           acknowledged; the function does not run
//	the message is running elsewhere            back after a delay; the attempt does not count
//	the store can't be reached                  the same
//	the function fails or panics                back after a growing delay; dead-lettered after the last attempt
//	an earlier run may have taken effect        dead-lettered (a policy with Abandoned: core.Uncertain(…))
//	the id was used with another body           dead-lettered
//	the message has no id                       dead-lettered, or as [Config].WithoutID says
//
// A message that comes back or is dead-lettered is published anew, and the delivery is acknowledged when
// that is confirmed. If the copy is refused, a [Consumer] keeps the delivery unacknowledged, and tries again. A
// crash in between leaves two copies of the message; they have one key, and are one operation. A Handler is
// safe for concurrent use. Make one with [NewHandler].
type Handler struct {
	config   Config
	topology Topology // with defaults filled in
	fn       Func
}

// NewHandler returns a handler that runs fn. The error joins every fault of c, each a
// *core.ConfigError.
func NewHandler(c Config, fn Func) (*Handler, error) {
	var errs []error
	fault := func(bad bool, field, problem string) {
		if bad {
			errs = append(errs, &core.ConfigError{Field: "Config." + field, Problem: problem})
		}
	}
	topology, err := c.Topology.check()
	errs = append(errs, err)
	fault(c.Task == nil, "Task", "is nil")
	fault(c.Task != nil && c.Task.Record().OnFailure == core.Keep, "Task",
		"keeps failures (OnFailure): a message that has failed would be acknowledged when it comes back, and lost")
	fault(c.Publisher == nil, "Publisher", "is nil")
	fault(c.Attempts < 0, "Attempts", fmt.Sprintf("is negative: %d", c.Attempts))
	fault(c.WithoutID > Pass, "WithoutID", fmt.Sprintf("is unknown: %d", c.WithoutID))
	if fn == nil {
		errs = append(errs, errors.New("amqpidem: the handler's function is nil"))
	}
	if err := errors.Join(errs...); err != nil {
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
	// came back from a delay: 1, or more after a lost connection. A quorum queue counts them; with
	// a classic one it is 1 or 2.
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

// Permanent wraps an error of a [Func] that no further attempt can mend, such as a body that can't be
// parsed: the message is dead-lettered at once. It returns nil for nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

// PanicError is the error of an attempt whose [Func] has panicked.
type PanicError struct {
	Value any    // of the panic
	Stack []byte // of its goroutine
}

// Error returns the panic's value as text, without the stack. A dead letter has it in its headers.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

var (
	errNoID      = errors.New("amqpidem: the message has no id")
	errExhausted = errors.New("amqpidem: no attempt is left: earlier ones were begun, and never came back")

	errHeadersTooLarge = errors.New("amqpidem: the message's headers, left out here, leave no room in a frame for those of a copy")
)

// Handle runs the function for a delivery, and settles the delivery, whether the function succeeds
// or not. It returns an error only if the delivery could not be settled. Then close its channel, if
// it is still open: the broker delivers unacknowledged messages again.
//
// When ctx ends, so does the function's context. Settling then goes on for up to 30 s.
func (h *Handler) Handle(ctx context.Context, d amqp.Delivery) (err error) {
	settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	var v verdict
	h.handle(ctx, settling, 30*time.Second, &d, &v, &err)
	return err
}

// handle is Handle with a context of its own for settling, and a limit for publishing a copy. It sets *v and *failure also if the function
// ends its goroutine (runtime.Goexit).
func (h *Handler) handle(ctx, settling context.Context, limit time.Duration, d *amqp.Delivery, v *verdict, failure *error) {
	*v = verdict{started: time.Now(), past: h.historyOf(d)}
	h.restore(d)
	defer func() { *failure = h.finish(ctx, settling, limit, d, v) }()
	h.run(ctx, d, v)
}

// finish settles a delivery as v says, and tells the observer.
func (h *Handler) finish(ctx, settling context.Context, limit time.Duration, d *amqp.Delivery, v *verdict) error {
	err := h.settle(settling, limit, d, v)
	e := Event{Kind: Settled, Queue: h.topology.Queue, MessageID: d.MessageId, AppID: d.AppId,
		Outcome: v.outcome, Reason: v.reason, Attempt: v.attempt, Delay: v.delay, Err: v.err, Elapsed: time.Since(v.started)}
	if err != nil {
		e.Kind, e.Err = Unsettled, errors.Join(err, v.err)
	}
	h.observe(ctx, e)
	return err
}

func (h *Handler) observe(ctx context.Context, e Event) {
	if h.config.Observe != nil {
		h.config.Observe(ctx, e)
	}
}

// verdict is the decision about a delivery.
type verdict struct {
	started time.Time
	outcome Outcome
	reason  Reason
	attempt int // 0: the function did not run
	delay   time.Duration
	past    history // for the headers of a copy
	err     error
}

// run runs the function for a message, and decides about its delivery. It settles nothing.
func (h *Handler) run(ctx context.Context, d *amqp.Delivery, v *verdict) {
	var ended error // why the run's context has ended, if it had when the function returned
	once := func(ctx context.Context) ([]byte, error) {
		run := core.RunFrom(ctx)
		v.attempt = h.attemptNumber(v.past, d, run.Attempt())
		v.past.run, v.past.lost = run.Attempt(), 0
		if v.attempt > h.config.Attempts {
			return nil, errExhausted
		}
		own := *d
		own.Acknowledger = nil // not the function's to settle
		err := h.fn(context.WithValue(ctx, attemptKey{}, Attempt{v.attempt, h.config.Attempts, deliveries(d), v.past.firstSeen}), &own)
		ended = context.Cause(ctx)
		return nil, err
	}
	call, err := h.call(d)
	if err != nil {
		*v = h.dead(*v, ReasonNoID, err)
		return
	}
	replayed := false
	defer func() { *v = h.judged(*v, replayed, ended) }()
	guarded(&v.err, func() error {
		if call.Key == "" {
			_, err := once(ctx)
			return err
		}
		r, err := core.Do(ctx, h.config.Task, call, once)
		replayed = r.Replayed
		return err
	})
}

// judged decides about a delivery by the outcome of its run.
func (h *Handler) judged(v verdict, replayed bool, ended error) verdict {
	ran := v.attempt > 0
	var refusal *core.Refusal
	var permanent *permanentError
	isPermanent := errors.As(v.err, &permanent)
	is := func(codes ...codes.Code) bool {
		for _, c := range codes {
			if errors.Is(v.err, c) {
				v.reason = Reason(c)
				return true
			}
		}
		return false
	}
	switch {
	case v.err == nil && replayed, !ran && is(codes.Duplicate, codes.ResultUnavailable):
		v.outcome, v.reason, v.err = Duplicate, "", nil
		return v
	case v.err == nil:
		v.outcome = Done
		return v
	case !isPermanent && (is(codes.InProgress, codes.StoreUnavailable, codes.ShuttingDown) || ran && is(codes.Unfinished)):
		// Also from an operation within the function (sqlstore's RunTx): that is no failure of its own.
		return h.deferred(v)
	case ran && (errors.Is(ended, core.ErrLeaseLost) || errors.Is(ended, core.ErrShutdown) || errors.Is(ended, context.Canceled)):
		v.reason = ReasonInterrupted
		return h.deferred(v)
	case !ran && errors.As(v.err, &refusal):
		return h.dead(v, Reason(refusal.Code), v.err)
	}

	if !ran { // a hook of the engine has panicked
		v.attempt = v.past.attempts + 1
	}
	v.past.attempts, v.past.deferrals = v.attempt, 0
	var panicked *PanicError
	switch {
	case errors.Is(v.err, errExhausted):
		v.past.attempts = h.config.Attempts // the last of which has not come back
		return h.dead(v, ReasonExhausted, v.err)
	case isPermanent:
		return h.dead(v, ReasonPermanent, v.err)
	case v.attempt >= h.config.Attempts && errors.As(v.err, &panicked):
		return h.dead(v, ReasonPanicked, v.err)
	case v.attempt >= h.config.Attempts:
		return h.dead(v, ReasonFailed, v.err)
	}
	v.outcome, v.delay = Failed, h.delay(v.attempt-1)
	return v
}

// attemptNumber returns the number of the attempt whose run has the number run in the store. That
// number also counts runs that never came back, which the headers do not; but it begins again at 1
// after a failed first run. It may also count runs of earlier publishings, which the headers of this one
// need not tell: so at most one run is counted for each delivery that was lost, where their number is known.
func (h *Handler) attemptNumber(past history, d *amqp.Delivery, run uint64) int {
	if run > past.run {
		run -= past.run
	}
	if !d.Redelivered || h.topology.Type == Quorum {
		run = min(run, uint64(past.lost)+1)
	}
	return past.attempts + int(min(run, 1<<30))
}

// call returns the operation of a message. Its Key is empty if the message runs unprotected.
func (h *Handler) call(d *amqp.Delivery) (core.Call, error) {
	if d.MessageId == "" && h.config.WithoutID == DeadLetter {
		return core.Call{}, errNoID
	}
	if d.MessageId == "" && h.config.WithoutID == Pass {
		return core.Call{}, nil
	}
	sum := sha256.Sum256(d.Body)
	call := core.Call{User: d.AppId, Key: d.MessageId, Fingerprint: hex.EncodeToString(sum[:])}
	switch {
	case d.MessageId == "":
		call.Key = "#" + call.Fingerprint
	case strings.HasPrefix(d.MessageId, "#"): // no id can read as a digest
		call.Key = "#" + d.MessageId
	}
	return call, nil
}

// guarded calls f, and turns a panic of f, or runtime.Goexit, into an error. Goexit still ends the
// goroutine.
func guarded(failure *error, f func() error) {
	returned := false
	defer func() {
		p := recover()
		if p == nil && !returned {
			p = "runtime.Goexit"
		}
		if p != nil {
			*failure = &PanicError{p, debug.Stack()}
		}
	}()
	*failure = f()
	returned = true
}

func (h *Handler) deferred(v verdict) verdict {
	v.outcome, v.attempt, v.delay = Deferred, 0, h.delay(v.past.deferrals)
	v.past.deferrals++
	return v
}

func (h *Handler) dead(v verdict, why Reason, err error) verdict {
	v.outcome, v.reason, v.err = Dead, why, err
	return v
}

func (h *Handler) delay(i int) time.Duration {
	return h.topology.Delays[min(max(i, 0), len(h.topology.Delays)-1)]
}

// settle carries out the decision about a delivery.
func (h *Handler) settle(ctx context.Context, limit time.Duration, d *amqp.Delivery, v *verdict) error {
	if v.outcome != Done && v.outcome != Duplicate {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		// Confirmed first, then acknowledged: after a crash in between, the message comes twice.
		err := h.publish(ctx, d, v, d.Headers)
		if refused := (*amqp.Error)(nil); Refused(err) && errors.As(err, &refused) && refused.Code == amqp.FrameError {
			// The copy is too large for a frame: it would never leave the queue, and break a connection each time.
			*v = h.dead(*v, ReasonHeadersTooLarge, errors.Join(errHeadersTooLarge, v.err))
			err = h.publish(ctx, d, v, nil)
		}
		if err != nil {
			return err
		}
	}
	if err := d.Ack(false); err != nil {
		return fmt.Errorf("amqpidem: the delivery could not be acknowledged: %w", err)
	}
	return nil
}

// publish publishes a copy of a delivery, with headers and its history, to a delay queue or the dead
// letters.
func (h *Handler) publish(ctx context.Context, d *amqp.Delivery, v *verdict, headers amqp.Table) error {
	queue := h.topology.DeadLetters()
	if v.outcome != Dead {
		queue = h.topology.DelayQueue(v.delay)
	}
	m := copyFor(d, queue, v.past, headers)
	if v.outcome == Dead {
		m.Publishing.Headers[HeaderError] = bounded(v.err)
		m.Publishing.Headers[HeaderReason] = string(v.reason)
	}
	if err := h.config.Publisher.publish(ctx, []Message{m}); err != nil {
		return fmt.Errorf("amqpidem: queue %q: %w", queue, err)
	}
	return nil
}
