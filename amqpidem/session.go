package amqpidem

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// session is the consumer on one connection. [Consumer.session] has its steps: connect, declare, check, consume, work, end.
type session struct {
	consumer *Consumer
	running  context.Context // of Run: when it ends, no further message is begun
	conn     *amqp.Connection
	ch       *amqp.Channel
	acks     *acks
	settling context.Context // ends with the channel: what could not be settled on it is delivered again
	lose     context.CancelCauseFunc

	tag       string // of the consumer on the channel
	tags      int
	offers    []offer       // the last one is open; what is left in those before it is taken first
	deleted   <-chan string // holds a value when the broker has cancelled the consumer
	cancelled chan struct{} // closed: no further delivery comes
	declaring sync.Mutex

	// See broken.
	began   time.Time     // when the queue was last consumed
	ready   int           // how many messages were in it, if the consumer is careful
	busy    bool          // no worker was free for what may have come
	read    atomic.Int64  // how many deliveries were read
	handled atomic.Int64  // and how many of those are handled
	again   chan struct{} // holds a value when the queue is to be consumed anew: another number may be prefetched
	calm    *time.Timer   // after which the consumer is no longer careful
}

// offer is what a session consumes in one go. Free workers take its deliveries.
type offer struct {
	*session
	deliveries <-chan amqp.Delivery // closed when it is cancelled, or the channel closed
}

// caution is within which time a connection breaks early, and for how long messages are taken one at a time after the first
// such connection.
var caution = 10 * time.Second

// settleLimit is how long a worker tries to settle a delivery. After that it is held, see Consumer.hold.
var settleLimit = 5 * time.Second

// session consumes on one connection until that is lost, or ctx ends; then it drains before it
// disconnects.
func (c *Consumer) session(ctx context.Context, drain func() error) (connected bool, err error) {
	s := &session{consumer: c, running: ctx, cancelled: make(chan struct{}), again: make(chan struct{}, 1)}
	defer s.close()
	for _, step := range []func() error{s.connect, s.declare, s.check, s.consume} {
		if err := step(); err != nil {
			return false, err
		}
	}
	c.handler.observe(ctx, Event{Stage: Connected, Queue: c.handler.topology.Queue})
	if err := s.work(); err != nil {
		return true, err
	}
	return true, s.end(drain)
}

func (s *session) connect() (err error) {
	s.conn, err = s.consumer.config.Dial(s.running, s.consumer.config.URL)
	return err
}

func (s *session) close() {
	if s.calm != nil {
		s.calm.Stop()
	}
	if s.lose != nil {
		s.lose(nil)
	}
	if s.conn != nil {
		disconnect(context.Background(), s.conn)
	}
}

// declare declares the topology, or finds out whether it is there. Workers call it, too.
func (s *session) declare() error {
	return s.consumer.handler.topology.establish(s.conn, s.consumer.config.CheckOnly)
}

// check finds out whether copies can be published, once for a consumer.
func (s *session) check() error {
	c := s.consumer
	if c.checked {
		return nil
	}
	err := c.handler.config.Publisher.check(s.running, c.handler.topology)
	c.checked = err == nil
	return err
}

// consume opens a channel, and begins to take messages.
func (s *session) consume() (err error) {
	c := s.consumer
	if s.ch, err = s.conn.Channel(); err != nil {
		return err
	}
	s.acks = newAcks(s.ch)
	s.settling, s.lose = context.WithCancelCause(context.WithoutCancel(c.running))
	go func(closed <-chan *amqp.Error) {
		if e := <-closed; e != nil {
			s.lose(e)
		}
		s.lose(amqp.ErrClosed)
	}(s.ch.NotifyClose(make(chan *amqp.Error, 1)))
	s.deleted = s.ch.NotifyCancel(make(chan string, 1))
	if s.began = time.Now(); c.unread.Load() > 0 {
		q, err := s.ch.QueueDeclarePassive(c.handler.topology.Queue, true, false, false, false, nil)
		if err != nil {
			return err
		}
		if s.ready = q.Messages; c.breaks == 1 { // it may have been anything
			s.calm = time.AfterFunc(caution, func() { c.unread.Store(0); s.takeAgain() })
		}
	}
	return s.take()
}

// take begins to take messages: one at a time, or as many as may be prefetched.
func (s *session) take() error {
	prefetch := s.consumer.config.Prefetch
	if s.consumer.unread.Load() > 0 {
		prefetch = 1
	}
	// RabbitMQ 3.10 closes the connection if a quorum queue is consumed again by a tag that has unsettled deliveries.
	s.tags++
	s.tag = "idem-" + strconv.Itoa(s.tags)
	err := s.ch.Qos(prefetch, 0, false)
	if err == nil {
		var deliveries <-chan amqp.Delivery
		if deliveries, err = s.ch.Consume(s.consumer.handler.topology.Queue, s.tag, false, false, false, false, nil); err == nil {
			s.offers = append(s.offers, offer{s, deliveries})
			return nil
		}
	}
	if s.ch.IsClosed() { // a message may be why: the broker sends the first at once
		<-s.settling.Done()
		err = context.Cause(s.settling)
	}
	return s.broken(err)
}

func (s *session) takeAgain() {
	select {
	case s.again <- struct{}{}:
	default: // it will
	}
}

// stop ends what take began.
func (s *session) stop() {
	limit := time.AfterFunc(closeLimit, func() { _ = s.conn.CloseDeadline(time.Now()) }) // a broker that does not answer
	_ = s.ch.Cancel(s.tag, false)
	limit.Stop()
}

// work has workers handle what comes, until the connection is lost, or Run ends: then it returns nil.
func (s *session) work() error {
	s.busy = true
	go s.acks.run(s.settling.Done())
	for s.running.Err() == nil {
		select {
		case s.consumer.work <- s.offers[0]: // one more worker is free
			s.busy = false
			if len(s.offers) > 1 {
				s.offers = s.offers[1:]
			}
		case <-s.running.Done():
		case _, ok := <-s.deleted:
			if ok { // else the channel was closed
				s.lose(errDeleted)
			}
			<-s.settling.Done()
		case <-s.again:
			s.stop()
			s.began = time.Now()
			if err := s.take(); err != nil {
				return err
			}
		case <-s.settling.Done():
			return s.broken(context.Cause(s.settling))
		}
	}
	return nil
}

var errDeleted = errors.New("amqpidem: the broker cancelled the consumer: was the queue deleted?")

// end lets what has begun come to its end. Nothing new comes, and what was not begun with goes back.
func (s *session) end(drain func() error) error {
	s.stop()
	close(s.cancelled)
	for _, o := range s.offers {
		for d := range o.deliveries {
			s.giveBack(&d)
		}
	}
	err := drain()
	s.acks.flush(true)
	return err
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

// broken makes the consumer careful if err has broken the connection early, and names the queue if its next message
// may be why.
func (s *session) broken(err error) error {
	c := s.consumer
	var e *amqp.Error
	if errors.As(err, &e) && e.Server {
		return err // it is the broker that has closed it, and says why
	}
	wary := c.unread.Load() > 0
	switch {
	case unreadable(err):
		c.breaks = 2
	case wary || time.Since(s.began) < caution:
		c.breaks++
	default:
		c.breaks = 0
	}
	if c.breaks > 0 && !wary {
		c.unread.Store(int64(c.config.Prefetch))
	}
	if read := s.read.Load(); wary && !s.busy && s.handled.Load() == read && (unreadable(err) || int64(s.ready) > read) {
		err = fmt.Errorf("amqpidem: the connection broke again before the next message of queue %q was read; "+
			"that message may be the cause: %w", c.handler.topology.Queue, err)
	}
	return err
}

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
	for o := range c.work {
		for d := range o.deliveries {
			o.read.Add(1)
			if c.unread.Load() > 0 && c.unread.Add(-1) == 0 {
				o.takeAgain()
			}
			if o.running.Err() != nil {
				o.giveBack(&d)
				continue
			}
			d.Acknowledger = o.acks
			o.handle(&d)
		}
	}
	ended = true
}

// handle handles one delivery.
func (s *session) handle(d *amqp.Delivery) {
	if s.settling.Err() != nil {
		s.handled.Add(1)
		return // the channel was closed: the broker has given it to somebody else
	}
	c, h := s.consumer, s.consumer.handler
	h.observe(c.running, Event{Stage: Delivered, Queue: h.topology.Queue, MessageID: d.MessageId, AppID: d.AppId})
	h.handle(c.running, d, func(r *run, what decision) {
		what, err := h.settle(c.running, s.settling, settleLimit, r, what)
		s.handled.Add(1)
		switch {
		case err == nil:
			c.settled.Add(1)
		case s.settling.Err() == nil:
			c.workers.Go(func() { s.hold(r, what, err) })
		}
	})
}

// hold settles a delivery whose copy could not be published: it tries again until the channel is closed, or Run ends.
// No worker waits for it, and no other delivery.
func (s *session) hold(r *run, what decision, err error) {
	c := s.consumer
	ctx, cancel := context.WithCancel(s.settling)
	defer cancel()
	defer context.AfterFunc(s.running, cancel)()
	if c.unread.Load() > 0 {
		s.takeAgain() // it has the only place
	}
	for tries := 1; err != nil && backoff(ctx, tries); tries++ {
		if errors.Is(err, ErrUnroutable) && s.declaring.TryLock() { // a queue is missing
			_ = s.declare() // the next try says whether it is there now
			s.declaring.Unlock()
		}
		what, err = c.handler.settle(c.running, ctx, settleLimit, r, what)
	}
	if err == nil {
		c.settled.Add(1)
	}
}
