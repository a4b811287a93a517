package amqpidem

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
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
	work    chan stream // to the workers

	workers sync.WaitGroup
	settled atomic.Uint64
	context context.Context // of the functions; it has the values of Run's
	cancel  context.CancelCauseFunc
	checked bool // the publisher can publish copies

	// A message may have broken the last connection, and so have used up a delivery of all that were prefetched.
	// unread is how many messages are taken one at a time because of that.
	unread atomic.Int64
	breaks int // connections that broke early, in a row
}

// session is the consumer on one connection.
type session struct {
	conn      *amqp.Connection
	acks      *acks
	running   context.Context // ended: no further message is begun
	cancelled chan struct{}   // closed: no further delivery comes
	settling  context.Context // ends with the channel
	read      atomic.Int64    // how many deliveries were read
	handled   atomic.Int64    // and how many of those are handled
	again     chan struct{}   // holds a value when the queue is to be consumed anew: another number may be prefetched
	declaring sync.Mutex
}

// stream is what a session consumes in one go. Free workers take its deliveries.
type stream struct {
	*session
	deliveries <-chan amqp.Delivery // closed when it is cancelled, or the channel closed
}

func (s *session) consumeAgain() {
	select {
	case s.again <- struct{}{}:
	default: // it will
	}
}

// caution is within which time a connection breaks early, and for how long messages are taken one at a time after the first
// such connection.
var caution = 10 * time.Second

// settleLimit is how long a worker tries to settle a delivery. After that it is held, see Consumer.hold.
var settleLimit = 5 * time.Second

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
	return &Consumer{config: c, handler: h, work: make(chan stream)}, nil
}

// Run consumes until ctx ends. Then it takes no more messages, gives back those that it has not
// begun, and waits for the others until the drain timeout. After that their contexts end, with
// core.ErrShutdown. Run returns nil, or [ErrDrain] if any is left 5 s later.
//
// When the connection or the queue is lost, Run connects again, with pauses from 0.1 to 10 s.
// Functions that are running go on; their messages are acknowledged when they are delivered again.
// Run returns a [*TopologyError] if the topology is found to be wrong on the first connection, or if
// the [Config].Publisher may not publish copies; later it tries again.
//
// If a connection breaks within 10 s, the broker sends one message at a time on the next one, for 10 s. If that breaks, too,
// or if amqp091-go can't read what comes, it goes on so until as many were read as may be prefetched: a message
// that breaks each connection does not use up the delivery limit of those behind it. [Disconnected] names the queue whose
// next message may be why.
//
// If a copy can't be published, for 5 s or because it is refused, its delivery stays unacknowledged, and takes one place of the
// prefetch. The consumer publishes it again, with pauses from 0.1 to 10 s, and declares the topology anew if a queue is missing.
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
	if !c.checked {
		if err := c.handler.config.Publisher.check(ctx, t); err != nil {
			return false, err
		}
		c.checked = true
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

	own := &session{conn: conn, acks: newAcks(ch), running: ctx, cancelled: make(chan struct{}), settling: settling, again: make(chan struct{}, 1)}
	tag, tags := "", 0
	var offers []stream // the last one is open; what is left in those before it is taken first
	consume := func() error {
		prefetch := c.config.Prefetch
		if c.unread.Load() > 0 {
			prefetch = 1
		}
		// RabbitMQ 3.10 closes the connection if a quorum queue is consumed again by a tag that has unsettled deliveries.
		tags++
		tag = "idem-" + strconv.Itoa(tags)
		err := ch.Qos(prefetch, 0, false)
		if err == nil {
			var deliveries <-chan amqp.Delivery
			if deliveries, err = ch.Consume(t.Queue, tag, false, false, false, false, nil); err == nil {
				offers = append(offers, stream{own, deliveries})
			}
		}
		if err != nil && ch.IsClosed() { // a message may be why: the broker sends the first at once
			<-settling.Done()
			err = context.Cause(settling)
		}
		return err
	}
	cancel := func() {
		limit := time.AfterFunc(closeLimit, func() { _ = conn.CloseDeadline(time.Now()) }) // a broker that does not answer
		_ = ch.Cancel(tag, false)
		limit.Stop()
	}
	began, ready, busy := time.Now(), 0, false // busy: no worker was free for what may have come
	broken := func(err error) error {
		var e *amqp.Error
		if errors.As(err, &e) && e.Server {
			return err // it is the broker that has closed it, and says why
		}
		wary := c.unread.Load() > 0
		switch {
		case unreadable(err):
			c.breaks = 2
		case wary || time.Since(began) < caution:
			c.breaks++
		default:
			c.breaks = 0
		}
		if c.breaks > 0 && !wary {
			c.unread.Store(int64(c.config.Prefetch))
		}
		if read := own.read.Load(); wary && !busy && own.handled.Load() == read && (unreadable(err) || int64(ready) > read) {
			err = fmt.Errorf("amqpidem: the connection broke again before the next message of queue %q was read, which may be why: %w", t.Queue, err)
		}
		return err
	}
	cancelled := ch.NotifyCancel(make(chan string, 1))
	if c.unread.Load() > 0 {
		q, err := ch.QueueDeclarePassive(t.Queue, true, false, false, false, nil)
		if err != nil {
			return false, err
		}
		ready = q.Messages
		if c.breaks == 1 { // it may have been anything
			defer time.AfterFunc(caution, func() { c.unread.Store(0); own.consumeAgain() }).Stop()
		}
	}
	if err := consume(); err != nil {
		return false, broken(err)
	}
	busy = true
	go own.acks.run(settling.Done())
	c.handler.observe(ctx, Event{Kind: Connected, Queue: t.Queue})
	for ctx.Err() == nil {
		select {
		case c.work <- offers[0]: // one more worker is free
			busy = false
			if len(offers) > 1 {
				offers = offers[1:]
			}
		case <-ctx.Done():
		case _, ok := <-cancelled:
			if ok { // else the channel was closed
				lose(errCancelled)
			}
			<-settling.Done()
		case <-own.again:
			cancel()
			began = time.Now()
			if err := consume(); err != nil {
				return true, broken(err)
			}
		case <-settling.Done():
			return true, broken(context.Cause(settling))
		}
	}
	// The end. Nothing new comes, and what was not begun with goes back.
	cancel()
	close(own.cancelled)
	for _, o := range offers {
		for d := range o.deliveries {
			own.giveBack(&d)
		}
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
			s.read.Add(1)
			if c.unread.Load() > 0 && c.unread.Add(-1) == 0 {
				s.consumeAgain()
			}
			select {
			case <-s.running.Done():
				s.giveBack(&d)
			default:
				d.Acknowledger = s.acks
				c.handle(s.session, &d)
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
		s.handled.Add(1)
		return // the channel was closed: the broker has given it to somebody else
	}
	h := c.handler
	h.observe(c.context, Event{Kind: Delivered, Queue: h.topology.Queue, MessageID: d.MessageId, AppID: d.AppId})
	var v verdict
	var err error
	defer func() {
		s.handled.Add(1)
		if err == nil {
			c.settled.Add(1)
		} else if s.settling.Err() == nil {
			held, v := *d, v
			c.workers.Go(func() { c.hold(s, &held, &v, err) })
		}
	}()
	h.handle(c.context, s.settling, settleLimit, d, &v, &err)
}

// hold settles a delivery whose copy could not be published: it tries again until the channel is closed, or Run ends.
// No worker waits for it, and no other delivery.
func (c *Consumer) hold(s *session, d *amqp.Delivery, v *verdict, err error) {
	ctx, cancel := context.WithCancel(s.settling)
	defer cancel()
	defer context.AfterFunc(s.running, cancel)()
	if c.unread.Load() > 0 {
		s.consumeAgain() // it has the only place
	}
	for tries := 1; err != nil && backoff(ctx, tries); tries++ {
		if errors.Is(err, ErrUnroutable) && s.declaring.TryLock() { // a queue is missing
			_ = c.handler.topology.establish(s.conn, c.config.CheckOnly) // the next try says whether it is there now
			s.declaring.Unlock()
		}
		err = c.handler.finish(c.context, ctx, settleLimit, d, v)
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
