package amqpidem

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
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
	// Dial connects to URL, with TLS or another heartbeat, say, see [DialConfig]. Nil means [Dial].
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

	// wary is for how long the broker sends one message at a time. A message may have broken the last connection,
	// and so have used up a delivery of all that were prefetched. It ends when as many were read as may have been.
	wary time.Duration
}

// session is the consumer on one connection. Free workers take its deliveries.
type session struct {
	conn       *amqp.Connection
	deliveries <-chan amqp.Delivery // closed when the consumer is cancelled, or the channel closed
	acks       *acks
	running    context.Context // ended: no further message is begun
	cancelled  chan struct{}   // closed: no further delivery comes
	settling   context.Context // ends with the channel
	read       atomic.Int64    // how many deliveries were read
	calm       chan struct{}   // gets a value when the broker may send more than one message at a time; else nil
	declaring  sync.Mutex
}

// relax says that the broker may send more than one message at a time.
func (s *session) relax() {
	select {
	case s.calm <- struct{}{}:
	default: // it may already
	}
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
// Run returns a [*TopologyError] if the topology is found to be wrong on the first connection, or if
// the [Config].Publisher can't publish copies; later it tries again.
//
// If a connection breaks within 10 s, or because amqp091-go can't read what it delivers, the broker sends
// one message at a time on the next ones: a message that breaks each connection does not use up the delivery
// limit of those behind it. [Disconnected] names the queue whose next message does that.
//
// If a copy is refused, its delivery stays unacknowledged, and takes one place of the prefetch. The consumer
// publishes it again, with pauses from 0.1 to 10 s, and declares the topology anew if a queue is missing.
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
	defer disconnect(context.Background(), conn)
	if err := t.establish(conn, c.config.CheckOnly); err != nil {
		return false, err
	}
	if err := c.handler.config.Publisher.check(ctx, t); err != nil {
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

	const tag = "idem"
	consume := func(prefetch int) (deliveries <-chan amqp.Delivery, err error) {
		if err = ch.Qos(prefetch, 0, false); err == nil {
			deliveries, err = ch.Consume(t.Queue, tag, false, false, false, false, nil)
		}
		if err != nil && ch.IsClosed() { // a message may be why: the broker sends the first at once
			<-settling.Done()
			err = context.Cause(settling)
		}
		return deliveries, err
	}
	cancel := func() {
		limit := time.AfterFunc(closeLimit, func() { _ = conn.CloseDeadline(time.Now()) }) // a broker that does not answer
		_ = ch.Cancel(tag, false)
		limit.Stop()
	}
	cancelled := ch.NotifyCancel(make(chan string, 1))
	own := &session{conn: conn, running: ctx, cancelled: make(chan struct{}), settling: settling}
	prefetch, ready, began := c.config.Prefetch, 0, time.Now()
	broken := func(err error) error {
		switch {
		case unreadable(err):
			c.wary = math.MaxInt64
		case time.Since(began) < lastPause:
			c.wary = max(c.wary, lastPause)
		}
		if ready > 0 && own.read.Load() == 0 {
			err = fmt.Errorf("amqpidem: the connection broke again before the next message of queue %q was read, which may be why: %w", t.Queue, err)
		}
		return err
	}
	if c.wary > 0 {
		q, err := ch.QueueDeclarePassive(t.Queue, true, false, false, false, nil)
		if err != nil {
			return false, err
		}
		prefetch, ready = 1, q.Messages
		own.calm = make(chan struct{}, 1)
		defer time.AfterFunc(c.wary, own.relax).Stop()
	}
	if own.deliveries, err = consume(prefetch); err != nil {
		return false, broken(err)
	}
	own.acks = newAcks(ch)
	go own.acks.run(settling.Done())
	c.handler.observe(ctx, Event{Kind: Connected, Queue: t.Queue})
	for ctx.Err() == nil {
		select {
		case c.work <- own: // one more worker is free
		case <-ctx.Done():
		case _, ok := <-cancelled:
			if ok { // else the channel was closed
				lose(errCancelled)
			}
			<-settling.Done()
		case <-own.calm:
			c.wary, ready, began = 0, 0, time.Now()
			cancel()
			own = &session{conn: conn, acks: own.acks, running: ctx, cancelled: own.cancelled, settling: settling}
			if own.deliveries, err = consume(c.config.Prefetch); err != nil {
				return true, broken(err)
			}
		case <-settling.Done():
			return true, broken(context.Cause(settling))
		}
	}
	// The end. Nothing new comes, and what was not begun with goes back.
	cancel()
	close(own.cancelled)
	for d := range own.deliveries {
		own.giveBack(&d)
	}
	err = drain()
	own.acks.flush(true)
	return true, err
}

var errCancelled = errors.New("amqpidem: the broker has cancelled the consumer: was the queue deleted?")

// unreadable reports whether the client has closed the connection because it could not read a message.
func unreadable(err error) bool {
	var e *amqp.Error
	return errors.As(err, &e) && !e.Server && e.Reason == amqp.ErrSyntax.Error()
}

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
			if s.read.Add(1) == int64(c.config.Prefetch) {
				s.relax()
			}
			select {
			case <-s.running.Done():
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
	var v verdict
	var err error
	defer func() {
		if err == nil {
			c.settled.Add(1)
		} else if s.settling.Err() == nil {
			held, v := *d, v
			c.workers.Go(func() { c.hold(s, &held, &v, err) })
		}
	}()
	h.handle(c.context, s.settling, d, &v, &err)
}

// hold settles a delivery whose copy was refused: it tries again until the channel is closed, or Run ends. No
// worker waits for it.
func (c *Consumer) hold(s *session, d *amqp.Delivery, v *verdict, err error) {
	ctx, cancel := context.WithCancel(s.settling)
	defer cancel()
	defer context.AfterFunc(s.running, cancel)()
	for tries := 1; err != nil && backoff(ctx, tries); tries++ {
		if errors.Is(err, ErrUnroutable) && s.declaring.TryLock() { // a queue is missing
			_ = c.handler.topology.establish(s.conn, c.config.CheckOnly) // the next try says whether it is there now
			s.declaring.Unlock()
		}
		err = c.handler.finish(c.context, ctx, d, v)
	}
	if err == nil {
		c.settled.Add(1)
	}
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
