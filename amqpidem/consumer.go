package amqpidem

import (
	"cmp"
	"context"
	"errors"
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
	// Dial connects to URL, for example with TLS or another heartbeat, see [Dial]. Nil means Dial with a zero amqp.Config.
	Dial func(ctx context.Context, url string) (*amqp.Connection, error)

	// Concurrency is how many messages are handled at once. Zero means 16.
	Concurrency int
	// Prefetch is how many unacknowledged deliveries the broker sends at most, from Concurrency to
	// 65535. Zero means four times the concurrency, so that no worker waits for the broker.
	Prefetch int

	// DrainTimeout is how long messages in progress may take after Run's context has ended. Zero means
	// 30 s.
	DrainTimeout time.Duration

	// CheckOnly makes the consumer check the topology without declaring it ([Topology.Check]).
	CheckOnly bool
}

// Consumer takes messages from the queue of a [Handler]. It reconnects when the connection is lost.
// Make one with [NewConsumer]; the zero Consumer is not usable.
type Consumer struct {
	config  ConsumerConfig
	handler *Handler
	work    chan offer // to the workers

	workers sync.WaitGroup
	settled atomic.Uint64
	running context.Context // of the functions; it has the values of Run's
	cancel  context.CancelCauseFunc
	checked bool // the publisher can publish copies

	// A message may have broken the last connection, and so have used up a delivery of all that were prefetched.
	// unread is how many messages are taken one at a time because of that.
	unread atomic.Int64
	breaks int // connections that broke early, in a row
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
	f := faults{"ConsumerConfig", nil}
	f.url(c.URL)
	f.addIf(c.Concurrency < 0, "Concurrency", "is negative: %d", c.Concurrency)
	f.addIf(c.Prefetch < 0 || c.Prefetch > 65535, "Prefetch", "is %d; at most 65535 are allowed", c.Prefetch)
	f.addIf(c.DrainTimeout < 0, "DrainTimeout", "is negative: %v", c.DrainTimeout)
	c.Concurrency = cmp.Or(c.Concurrency, 16)
	f.addIf(c.Prefetch > 0 && c.Prefetch < c.Concurrency, "Prefetch", "is %d, less than Concurrency, which is then never reached: %d",
		c.Prefetch, c.Concurrency)
	if h == nil {
		f.errs = append(f.errs, errors.New("amqpidem: NewConsumer: the handler is nil"))
	}
	if err := errors.Join(f.errs...); err != nil {
		return nil, err
	}
	c.Prefetch = cmp.Or(c.Prefetch, min(4*c.Concurrency, 65535))
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 30*time.Second)
	c.Dial = dialer(c.Dial)
	return &Consumer{config: c, handler: h, work: make(chan offer)}, nil
}

// Run consumes until ctx ends. Then it takes no more messages, gives back those that it has not
// begun, and waits for the others until the drain timeout. After that their contexts end, with
// core.ErrShutdown. Run returns nil, or [ErrDrain] if any is left 5 s later.
//
// When the connection or the queue is lost, Run connects again, with pauses from 0.1 to 10 s.
// Functions that are running go on; their messages are acknowledged when they are delivered again.
// Run returns a [*TopologyError] if the topology is found to be wrong on the first connection, or if
// the [Config].Publisher may not publish copies. On later connections it retries instead.
//
// If a connection breaks within 10 s, the broker sends one message at a time on the next one, for 10 s. If that one breaks too,
// or if amqp091-go can't read a frame, the broker keeps doing so until the consumer has read as many messages as Prefetch. A
// message that breaks each connection then does not use up the delivery limit of the messages after it. [Disconnected] names the
// queue whose next message may be the cause.
//
// If the broker refuses a copy, or does not confirm it for 5 s, its delivery stays unacknowledged, and occupies one place of the
// prefetch. The consumer publishes it again, with pauses from 0.1 to 10 s, and declares the topology again if a queue is missing.
//
// Call Run once for each Consumer.
func (c *Consumer) Run(ctx context.Context) error {
	c.running, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	defer c.cancel(nil)
	drain := sync.OnceValue(c.drain)
	for range c.config.Concurrency {
		c.workers.Go(c.worker)
	}
	worked := false // there was a connection with the right topology
	for tries := 1; ; tries++ {
		began, before := time.Now(), c.settled.Load()
		connected, err := c.session(ctx, drain)
		worked = worked || connected
		if ctx.Err() != nil {
			return drain()
		}
		c.handler.observe(ctx, Event{Stage: Disconnected, Queue: c.handler.topology.Queue, Err: err})
		if t := (*TopologyError)(nil); !worked && errors.As(err, &t) {
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
