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
)

// Func does what a message asks for. It does not settle the delivery: that is done by what it returns.
// An error, or a panic, is a failed attempt. [Permanent] marks an error that no further
// attempt can mend.
//
// What core.RunFrom says of ctx holds here, too, and [AttemptFrom] tells which attempt it is. ctx ends
// when the claim is lost, and when the consumer does not wait any longer at its end. A run that fails
// must not be kept (core.Run.Keep): its message would be taken for done when it comes back. Nor must
// the bytes of d.Body and the table d.Headers be changed: they go on with the message.
type Func func(ctx context.Context, d *amqp.Delivery) error

// Config is what a [Handler] is built from.
type Config struct {
	// Task is what runs the messages, and its policy's Name the consumer's: an operation is the
	// consumer's name, the message's app id (AppId) and its message id (MessageId); its
	// fingerprint is a digest of the body. Two consumers that are to act on one message each need two
	// names. It is required.
	//
	// A policy with Duplicate: core.Reject is the cheapest: nothing of a message's result is
	// stored. Its Retention must be longer than a message can come again: its delays, and as
	// long as an outbox or a publisher tries. OnFailure: core.Keep is refused: what has failed would
	// count as done when it comes back.
	Task *core.Task

	// Topology says to which queue the messages belong. It is required.
	Topology Topology

	// Publisher publishes to the queues for delays and dead letters. It is required, and stays the
	// caller's to close, after the last message.
	Publisher *Publisher

	// Attempts is how many attempts a message gets before it is a dead letter. A run that
	// never came back (its process was killed) is one of them, if the store has seen it. Zero: one
	// more than the topology has delays.
	Attempts int

	// WithoutID says what becomes of a message without a message id. Zero: [DeadLetter].
	WithoutID WithoutID

	// Observe is told what happens. It is called synchronously and concurrently, and must return
	// quickly. Nil: nobody is told.
	Observe func(ctx context.Context, e Event)
}

// WithoutID says what becomes of a message without a message id.
type WithoutID uint8

const (
	// DeadLetter makes it a dead letter. It is the zero value.
	DeadLetter WithoutID = iota
	// Digest takes a SHA-256 digest of the body for an id. Two messages with the same body are then
	// one operation, for as long as its result stands.
	Digest
	// Pass runs it unprotected, each time it is delivered.
	Pass
)

// Handler runs the messages of a queue once each, and settles their deliveries:
//
//	the function has succeeded              acknowledged
//	it had, at an earlier delivery          acknowledged; the function does not run
//	it runs elsewhere                       back after a delay; no attempt is counted
//	the store can't be reached              the same
//	it has failed, or panicked              back after a delay that grows; after the last attempt a dead letter
//	nobody knows whether it took effect     a dead letter (a policy with Abandoned: core.Uncertain)
//	the id was used with another body       a dead letter
//	it has no id                            a dead letter, or as [Config].WithoutID says
//
// What comes back, and a dead letter, has been published anew and confirmed before the delivery is
// acknowledged. A crash in between makes two of one message; the key makes them one operation. It is
// safe for concurrent use.
type Handler struct {
	config   Config
	topology Topology // with defaults filled in
	fn       Func
}

// NewHandler returns a handler that runs fn. It reports every fault of c at once, each as a
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
	fault(c.Task != nil && c.Task.Policy().OnFailure == core.Keep, "Task",
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

// Attempt is what a [Func] can learn about its message's deliveries.
type Attempt struct {
	// Number is which attempt at the message this is, from 1. Unlike that of core.Run it also
	// counts attempts that have failed.
	Number int
	// Of is how many there are: in the last one Number is Of.
	Of int
	// Deliveries is how often the broker has handed out the message since it was last published or
	// came back from a delay: 1, or more after a lost connection. A quorum queue counts them; a
	// classic one only tells 1 from 2 and more.
	Deliveries int
	// FirstSeen is when a handler was first given the message, to the second.
	FirstSeen time.Time
}

// AttemptFrom returns the attempt to which ctx, the context of a [Func], belongs; else the zero
// Attempt.
func AttemptFrom(ctx context.Context) Attempt {
	a, _ := ctx.Value(attemptKey{}).(Attempt)
	return a
}

type attemptKey struct{}

// Permanent marks an error of a [Func] that no further attempt can mend: a body that can't be read. The
// message is a dead letter at once. It returns nil for nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

// PanicError is what a panic of a [Func] is made of. Its text, in the headers of a dead letter, is
// the value's, without the stack.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

var (
	errNoID      = errors.New("amqpidem: the message has no id")
	errExhausted = errors.New("amqpidem: no attempt is left: earlier ones were begun, and never came back")

	errHeadersTooLarge = errors.New("amqpidem: the message's headers, left out here, leave no room in a frame for those of a copy")
)

// Handle runs the function for a delivery, and settles it. Nothing is left to do for the caller
// unless there is an error: the delivery could not be settled. If its channel is closed, the
// broker delivers it again by itself. If not, close the channel: what is not acknowledged then goes
// back to the queue.
//
// When ctx ends, so does the function's context. The delivery is settled all the same, for up to 30 s.
func (h *Handler) Handle(ctx context.Context, d amqp.Delivery) (err error) {
	settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	h.handle(ctx, settling, d, &err)
	return err
}

// handle is Handle with a context for each of the two: when that of settling ends, the delivery is
// nobody's any more. It has set *failure also if the function ends its goroutine (runtime.Goexit).
func (h *Handler) handle(ctx, settling context.Context, d amqp.Delivery, failure *error) {
	started := time.Now()
	v := verdict{past: h.historyOf(&d)}
	h.restore(&d)
	defer func() {
		*failure = h.settle(settling, &d, &v)
		ev := Event{Kind: Settled, Queue: h.topology.Queue, MessageID: d.MessageId, AppID: d.AppId,
			Outcome: v.outcome, Reason: v.reason, Attempt: v.attempt, Delay: v.delay, Err: v.err, Elapsed: time.Since(started)}
		if *failure != nil {
			ev.Kind, ev.Err = Unsettled, errors.Join(*failure, v.err)
		}
		h.observe(ctx, ev)
	}()
	h.run(ctx, &d, &v)
}

func (h *Handler) observe(ctx context.Context, e Event) {
	if h.config.Observe != nil {
		h.config.Observe(ctx, e)
	}
}

// verdict is what is to become of a delivery.
type verdict struct {
	outcome Outcome
	reason  Reason
	attempt int // 0: the function did not run
	delay   time.Duration
	past    history // as it goes on with the message
	err     error
}

// run carries out a message, and decides about its delivery. It settles nothing.
func (h *Handler) run(ctx context.Context, d *amqp.Delivery, v *verdict) {
	var ended error // why the run's context has ended, if it had when the function returned
	once := func(ctx context.Context) ([]byte, error) {
		run := core.RunFrom(ctx)
		v.attempt, v.past.run = attemptNumber(v.past, run.Attempt()), run.Attempt()
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

// judged decides about a delivery by what has become of its run.
func (h *Handler) judged(v verdict, replayed bool, ended error) verdict {
	ran := v.attempt > 0
	var refusal *core.Refusal
	var permanent *permanentError
	isPermanent := errors.As(v.err, &permanent)
	is := func(codes ...core.Code) bool {
		for _, c := range codes {
			if errors.Is(v.err, c) {
				v.reason = Reason(c)
				return true
			}
		}
		return false
	}
	switch {
	case v.err == nil && replayed, !ran && is(core.CodeDuplicate, core.CodeResultUnavailable):
		v.outcome, v.reason, v.err = Duplicate, "", nil
		return v
	case v.err == nil:
		v.outcome = Done
		return v
	case !isPermanent && (is(core.CodeInProgress, core.CodeStoreUnavailable, core.CodeShuttingDown) || ran && is(core.CodeUnfinished)):
		// Also of an operation within the function (sqlstore's RunTx): it has not failed of itself.
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

// attemptNumber returns which attempt at a message the run with the given number is. The store's
// numbers also grow with runs that never came back, of which the message knows nothing; but they
// begin anew with 1 when a failed run was the first.
func attemptNumber(past history, run uint64) int {
	if run > past.run {
		run -= past.run
	}
	return past.attempts + int(min(run, 1<<30))
}

// call says which operation a message is for. Its Key is empty if the message runs unprotected.
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

// guarded calls f, and makes an error of its panic, or of the end of its goroutine, which goes on.
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

// settle does with a delivery what was decided.
func (h *Handler) settle(ctx context.Context, d *amqp.Delivery, v *verdict) error {
	if v.outcome != Done && v.outcome != Duplicate {
		// Confirmed first, then acknowledged. What is lost in between comes twice.
		err := h.publish(ctx, d, v, d.Headers)
		if refused := (*amqp.Error)(nil); Refused(err) && errors.As(err, &refused) && refused.Code == amqp.FrameError {
			// It would never leave the queue, and break a connection each time.
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

// publish publishes a copy of a delivery with these headers, and those that tell its history, to where it
// is to go.
func (h *Handler) publish(ctx context.Context, d *amqp.Delivery, v *verdict, headers amqp.Table) error {
	queue := h.topology.DeadLetters()
	if v.outcome != Dead {
		queue = h.topology.DelayQueue(v.delay)
	}
	m := again(d, queue, v.past, headers)
	if v.outcome == Dead {
		m.Publishing.Headers[HeaderError] = bounded(v.err)
		m.Publishing.Headers[HeaderReason] = string(v.reason)
	}
	if err := h.config.Publisher.publish(ctx, []Message{m}); err != nil {
		return fmt.Errorf("amqpidem: queue %q: %w", queue, err)
	}
	return nil
}
