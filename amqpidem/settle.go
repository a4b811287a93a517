package amqpidem

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

var errHeadersTooLarge = errors.New("amqpidem: message headers too large to republish in one frame; dropped from this dead letter")

// settle does what was decided about a delivery, and tells the observer. A copy has the limit's time to be confirmed. With an
// error the delivery is not settled, and the decision is that of the next try.
func (h *Handler) settle(ctx, settling context.Context, limit time.Duration, r *run, what decision) (decision, error) {
	what, err := h.act(settling, limit, r.delivery, what)
	e := Event{Stage: Settled, Queue: h.topology.Queue, MessageID: r.delivery.MessageId, AppID: r.delivery.AppId,
		Outcome: what.outcome, Reason: what.reason, Attempt: what.attempt, Delay: what.delay, Err: what.err, Elapsed: time.Since(r.began)}
	if p := (*panicError)(nil); errors.As(what.err, &p) {
		e.Stack = p.stack
	}
	if err != nil {
		e.Stage, e.Err = Unsettled, errors.Join(err, what.err)
	}
	h.observe(ctx, e)
	return what, err
}

// act publishes a copy of the delivery, if there is to be one, and then acknowledges it: after a crash in between, the
// message comes twice.
func (h *Handler) act(ctx context.Context, limit time.Duration, d *amqp.Delivery, what decision) (decision, error) {
	if what.queue != "" {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		err := h.publish(ctx, d, what, d.Headers)
		if refused := (*amqp.Error)(nil); Refused(err) && errors.As(err, &refused) && refused.Code == amqp.FrameError {
			// The copy is too large for a frame: it would never leave the queue, and break a connection each time.
			what = decision{Dead, headersTooLarge, what.attempt, 0, h.topology.DeadLetters(), what.past,
				errors.Join(errHeadersTooLarge, what.err)}
			err = h.publish(ctx, d, what, nil)
		}
		if err != nil {
			return what, err
		}
	}
	if err := d.Ack(false); err != nil {
		return what, fmt.Errorf("amqpidem: the delivery could not be acknowledged: %w", err)
	}
	return what, nil
}

// publish publishes a copy of a delivery, with these headers and its history.
func (h *Handler) publish(ctx context.Context, d *amqp.Delivery, what decision, headers amqp.Table) error {
	m := copyFor(d, what.queue, what.past, headers)
	if what.outcome == Dead {
		m.Publishing.Headers[headerError] = bounded(what.err)
		m.Publishing.Headers[headerReason] = what.reason
	}
	if err := h.config.Publisher.publish(ctx, []Message{m}); err != nil {
		return fmt.Errorf("amqpidem: queue %q: %w", what.queue, err)
	}
	return nil
}

func (h *Handler) observe(ctx context.Context, e Event) {
	if h.config.Observe != nil {
		h.config.Observe(ctx, e)
	}
}
