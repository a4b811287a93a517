package amqpidem

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/idem-go/idem/core"
)

// ConsumerConfig configures a [Consumer].
type ConsumerConfig struct {
	// URL is the broker's: amqp://user:password@host:5672/vhost. It is required.
	URL string
	// Dial connects to URL, with TLS or another heartbeat, say. Nil means [Dial].
	Dial func(ctx context.Context, url string) (*amqp.Connection, error)

	// Concurrency is how many messages are handled at once. Zero means 16.
	Concurrency int
	// Prefetch is how many unacknowledged deliveries the broker sends at most, from Concurrency to
	// 65535. Zero means four times the concurrency, so that no worker waits for the broker.
	Prefetch int

	// DrainTimeout is how long the messages that are being handled may take when Run's context has
	// ended. Zero means 30 s.
	DrainTimeout time.Duration

	// CheckOnly makes the consumer check the topology without declaring it ([Topology.Check]).
	CheckOnly bool
}

// Consumer takes messages from the queue of a [Handler]. It reconnects when the connection is lost.
// Make one with [NewConsumer]; the zero Consumer is not usable.
type Consumer struct {
	config  ConsumerConfig
	handler *Handler
	work    chan *session // to the workers

	workers sync.WaitGroup
	settled atomic.Uint64
	context context.Context // of the functions; it has the values of Run's
	cancel  context.CancelCauseFunc
}

// session is the consumer on one connection. Free workers take its deliveries.
type session struct {
	deliveries <-chan amqp.Delivery // closed when the consumer is cancelled, or the channel closed
	acks       *acks
	ended      <-chan struct{} // closed: no further message is begun
	cancelled  chan struct{}   // closed: no further delivery comes
	settling   context.Context // ends with the channel, which lose closes
	lose       context.CancelCauseFunc
}

// closeLimit is how long each step of the end may take: functions whose context has ended, and the
// closing of a connection.
var closeLimit = 5 * time.Second

// ErrDrain is returned by [Consumer.Run] when messages were still being handled at the end of the
// drain timeout. The broker delivers them again.
var ErrDrain = errors.New("amqpidem: messages were still being handled when the consumer ended")

// NewConsumer returns a consumer for h. It does not connect yet. The error joins every fault of c,
// each a *core.ConfigError.
func NewConsumer(h *Handler, c ConsumerConfig) (*Consumer, error) {
	errs := []error{checkURL("ConsumerConfig", c.URL)}
	fault := func(bad bool, field, format string, args ...any) {
		if bad {
			errs = append(errs, &core.ConfigError{Field: "ConsumerConfig." + field, Problem: fmt.Sprintf(format, args...)})
		}
	}
	fault(c.Concurrency < 0, "Concurrency", "is negative: %d", c.Concurrency)
	fault(c.Prefetch < 0 || c.Prefetch > 65535, "Prefetch", "is %d; at most 65535 are allowed", c.Prefetch)
	fault(c.DrainTimeout < 0, "DrainTimeout", "is negative: %v", c.DrainTimeout)
	c.Concurrency = cmp.Or(c.Concurrency, 16)
	fault(c.Prefetch > 0 && c.Prefetch < c.Concurrency, "Prefetch", "is less than the concurrency, which then is never reached: %d, %d", c.Prefetch, c.Concurrency)
	if h == nil {
		errs = append(errs, errors.New("amqpidem: the handler is nil"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	c.Prefetch = cmp.Or(c.Prefetch, min(4*c.Concurrency, 65535))
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 30*time.Second)
	if c.Dial == nil {
		c.Dial = Dial
	}
	return &Consumer{config: c, handler: h, work: make(chan *session)}, nil
}

// Run consumes until ctx ends. Then it takes no more messages, gives back those that it has not
// begun, and waits for the others until the drain timeout. After that their contexts end, with
// core.ErrShutdown. Run returns nil, or [ErrDrain] if any is left 5 s later.
//
// When the connection or the queue is lost, Run connects again, with pauses from 0.1 to 10 s.
// Functions that are running go on; their messages are acknowledged when they are delivered again.
// Run returns a [*TopologyError] if the topology is found to be wrong on the first connection; later
// it tries again.
//
// Call Run once for each Consumer.
func (c *Consumer) Run(ctx context.Context) error {
	c.context, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	defer c.cancel(nil)
	drain := sync.OnceValue(c.drain)
	for range c.config.Concurrency {
		c.workers.Go(c.worker)
	}
	stood := false // there was a connection with the right topology
	for tries := 1; ; tries++ {
		began, before := time.Now(), c.settled.Load()
		connected, err := c.session(ctx, drain)
		stood = stood || connected
		if ctx.Err() != nil {
			return drain()
		}
		c.handler.observe(ctx, Event{Kind: Disconnected, Queue: c.handler.topology.Queue, Err: err})
		if t := (*TopologyError)(nil); !stood && errors.As(err, &t) {
			_ = drain() // nothing runs
			return err
		}
		if connected && (time.Since(began) > lastPause || c.settled.Load() > before) {
			tries = 1 // the connection was useful: begin with short pauses again
		}
		if !backoff(ctx, tries) {
			return drain()
		}
	}
}

// session consumes on one connection until that is lost, or ctx ends; then it drains before it
// disconnects.
func (c *Consumer) session(ctx context.Context, drain func() error) (connected bool, err error) {
	t := c.handler.topology
	conn, err := c.config.Dial(ctx, c.config.URL)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.CloseDeadline(time.Now().Add(closeLimit)) }()
	if err := t.establish(conn, c.config.CheckOnly); err != nil {
		return false, err
	}
	ch, err := conn.Channel()
	if err != nil {
		return false, err
	}
	// Settling ends with the channel: what could not be settled on it is delivered again.
	settling, lose := context.WithCancelCause(context.WithoutCancel(c.context))
	defer lose(nil)
	go func(closed <-chan *amqp.Error) {
		if e := <-closed; e != nil {
			lose(e)
		}
		lose(amqp.ErrClosed)
	}(ch.NotifyClose(make(chan *amqp.Error, 1)))

	if err := ch.Qos(c.config.Prefetch, 0, false); err != nil {
		return false, err
	}
	const tag = "idem"
	cancelled := ch.NotifyCancel(make(chan string, 1))
	deliveries, err := ch.Consume(t.Queue, tag, false, false, false, false, nil)
	if err != nil {
		return false, err
	}
	acks := newAcks(ch)
	go acks.run(settling.Done())
	c.handler.observe(ctx, Event{Kind: Connected, Queue: t.Queue})
	own := &session{deliveries, acks, ctx.Done(), make(chan struct{}), settling, lose}
	for ctx.Err() == nil {
		select {
		case c.work <- own: // one more worker is free
		case <-ctx.Done():
		case _, ok := <-cancelled:
			if ok { // else the channel was closed
				lose(errCancelled)
			}
			<-settling.Done()
		case <-settling.Done():
			return true, context.Cause(settling)
		}
	}
	// The end. Nothing new comes, and what was not begun with goes back.
	limit := time.AfterFunc(closeLimit, func() { _ = conn.CloseDeadline(time.Now()) }) // a broker that does not answer
	_ = ch.Cancel(tag, false)
	limit.Stop()
	close(own.cancelled)
	for d := range deliveries {
		own.giveBack(&d)
	}
	err = drain()
	acks.flush(true)
	return true, err
}

var errCancelled = errors.New("amqpidem: the broker has cancelled the consumer: was the queue deleted?")

// worker is a goroutine that handles one delivery after the other. (In one of its own for each, the
// stack would have to grow for each.)
func (c *Consumer) worker() {
	ended := false
	defer func() {
		if !ended {
			c.workers.Go(c.worker) // the function has called runtime.Goexit
		}
	}()
	for s := range c.work {
		for d := range s.deliveries {
			select {
			case <-s.ended:
				s.giveBack(&d)
			default:
				d.Acknowledger = s.acks
				c.handle(s, &d)
			}
		}
	}
	ended = true
}

// giveBack gives back a delivery that was not begun with; but only when it can't come here again. (By nack,
// not reject: since RabbitMQ 4.3 that does not count against the delivery limit.)
func (s *session) giveBack(d *amqp.Delivery) {
	select {
	case <-s.cancelled:
		_ = d.Nack(false, true)
	case <-s.settling.Done():
	}
}

// handle handles one delivery of a channel.
func (c *Consumer) handle(s *session, d *amqp.Delivery) {
	if s.settling.Err() != nil {
		return // the channel was closed: the broker has given it to somebody else
	}
	h := c.handler
	h.observe(c.context, Event{Kind: Delivered, Queue: h.topology.Queue, MessageID: d.MessageId, AppID: d.AppId})
	var err error
	defer func() {
		if err != nil {
			// A queue of the topology is missing, or full. Let it be declared anew, and the messages go back.
			s.lose(err)
			return
		}
		c.settled.Add(1)
	}()
	h.handle(c.context, s.settling, *d, &err)
}

// drain waits for the messages that are being handled. None is begun any more.
func (c *Consumer) drain() error {
	close(c.work)
	done := make(chan struct{})
	go func() {
		c.workers.Wait()
		close(done)
	}()
	for _, limit := range []time.Duration{c.config.DrainTimeout, closeLimit} {
		timer := time.NewTimer(limit)
		select {
		case <-done:
			timer.Stop()
			return nil
		case <-timer.C:
			c.cancel(core.ErrShutdown)
		}
	}
	return ErrDrain
}
