package amqpidem

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/internal/backend"
)

// patience is how long a test waits for what is sure to come.
const patience = 30 * time.Second

// kit is a queue of a test's own, with everything that belongs to it.
type kit struct {
	t         *testing.T
	url       string
	conn      *amqp.Connection
	ch        *amqp.Channel // of the test
	topology  Topology
	engine    *core.Engine
	policy    core.TaskPolicy
	config    Config
	consumer  ConsumerConfig
	publisher *Publisher

	stop   func() // ends the consumer that was started last
	mu     sync.Mutex
	events []Event
	ran    []ran
}

// ran is one run of the function.
type ran struct {
	id      string
	attempt Attempt
	number  uint64
	at      time.Time
}

// newKit prepares a queue on the shared broker, and removes it in the end.
func newKit(t *testing.T, change ...func(*kit)) *kit {
	url := backend.AMQP(t)
	k := newKitAt(t, url, change...)
	t.Cleanup(func() { remove(t, url, k.topology.Queues()...) })
	return k
}

// newKitAt prepares a queue on the broker at url: one of the test's own, which goes with its queues.
func newKitAt(t *testing.T, url string, change ...func(*kit)) *kit {
	k := &kit{t: t, url: url, stop: func() {}}
	k.topology = Topology{
		Queue:  "idem-test-" + rand.Text(),
		Delays: []time.Duration{20 * time.Millisecond, 60 * time.Millisecond, 120 * time.Millisecond},
	}
	k.policy = core.TaskPolicy{Name: k.topology.Queue, Duplicate: core.Reject("")}
	k.config.Observe = func(_ context.Context, e Event) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.events = append(k.events, e)
	}
	k.consumer.URL = url
	for _, c := range change {
		c(k)
	}
	if k.engine == nil {
		k.engine = core.MustNew(core.Config{})
	}
	k.config.Topology = k.topology
	k.config.Task = k.engine.MustTask(k.policy)
	k.publisher = k.newPublisher(PublisherConfig{URL: url})
	k.config.Publisher = k.publisher

	var err error
	k.conn, err = amqp.Dial(url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = k.conn.Close() })
	k.ch = k.channel()
	return k
}

// remove deletes queues, on a connection of its own: that of the test may be broken.
func remove(t *testing.T, url string, names ...string) {
	conn, err := amqp.Dial(url)
	require.NoError(t, err)
	defer conn.Close()
	ch, err := conn.Channel()
	require.NoError(t, err)
	for _, name := range names {
		_, err := ch.QueueDelete(name, false, false, false)
		require.NoError(t, err)
	}
}

// newDeclaredKit is newKit with queues.
func newDeclaredKit(t *testing.T, change ...func(*kit)) *kit {
	k := newKit(t, change...)
	require.NoError(t, k.topology.Declare(k.conn))
	return k
}

func (k *kit) newPublisher(c PublisherConfig) *Publisher {
	p, err := NewPublisher(c)
	require.NoError(k.t, err)
	k.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = p.Close(ctx) // tests that care close it themselves
	})
	return p
}

// handler makes a handler that notes each run of fn.
func (k *kit) handler(fn Func) *Handler {
	h, err := NewHandler(k.config, func(ctx context.Context, d *amqp.Delivery) error {
		k.mu.Lock()
		k.ran = append(k.ran, ran{d.MessageId, AttemptFrom(ctx), core.RunFrom(ctx).Attempt(), time.Now()})
		k.mu.Unlock()
		return fn(ctx, d)
	})
	require.NoError(k.t, err)
	return h
}

// newConsumer makes a consumer whose runs are noted.
func (k *kit) newConsumer(fn Func) *Consumer {
	c, err := NewConsumer(k.handler(fn), k.consumer)
	require.NoError(k.t, err)
	return c
}

// start runs a consumer until the end of the test, or until stop is called.
func (k *kit) start(fn Func) (stop func()) {
	end := k.run(context.Background(), fn)
	stop = sync.OnceFunc(func() { require.NoError(k.t, end()) })
	k.t.Cleanup(stop)
	k.stop = stop
	return stop
}

// run runs a consumer, and waits until it is connected. end ends its context, and returns what Run returns.
func (k *kit) run(ctx context.Context, fn Func) (end func() error) {
	c := k.newConsumer(fn)
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	k.eventually("connected", func() bool { return k.count(Connected, "") > 0 })
	return func() error {
		cancel()
		return <-ended
	}
}

// channel opens one more channel of the test.
func (k *kit) channel() *amqp.Channel {
	k.t.Helper()
	ch, err := k.conn.Channel()
	require.NoError(k.t, err)
	return ch
}

// publish puts a message into the queue.
func (k *kit) publish(id, body string, change ...func(*amqp.Publishing)) {
	k.t.Helper()
	m := amqp.Publishing{MessageId: id, Body: []byte(body)}
	for _, c := range change {
		c(&m)
	}
	k.put(m)
}

// put publishes m as it is.
func (k *kit) put(m amqp.Publishing) {
	k.t.Helper()
	ch := k.channel()
	defer ch.Close()
	require.NoError(k.t, ch.Confirm(false))
	dc, err := ch.PublishWithDeferredConfirm("", k.topology.Queue, true, false, m)
	require.NoError(k.t, err)
	require.True(k.t, dc.Wait())
}

func (k *kit) eventually(what string, ok func() bool) {
	k.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.t.Fatalf("it has not come to this: %s; events %+v; runs %+v", what, k.events, k.ran)
		}
	}
}

// count returns how many events there were of a kind and an outcome (any, if it is empty).
func (k *kit) count(kind Stage, outcome Outcome) (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range k.events {
		if e.Stage == kind && (outcome == "" || e.Outcome == outcome) {
			n++
		}
	}
	return n
}

// settled waits until n deliveries have ended with outcome, and returns the last of their events.
func (k *kit) settled(outcome Outcome, n int) (last Event) {
	k.t.Helper()
	k.eventually(fmt.Sprintf("%d %s", n, outcome), func() bool { return k.count(Settled, outcome) >= n })
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range k.events {
		if e.Stage == Settled && e.Outcome == outcome {
			last = e
		}
	}
	return last
}

// runs returns the runs of the function.
func (k *kit) runs() []ran {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]ran(nil), k.ran...)
}

// get waits for a delivery of the kit's queue on ch.
func (k *kit) get(ch *amqp.Channel) (d amqp.Delivery) {
	k.t.Helper()
	k.eventually("a delivery", func() (ok bool) {
		var err error
		d, ok, err = ch.Get(k.topology.Queue, false)
		require.NoError(k.t, err)
		return ok
	})
	return d
}

// take waits for a message in a queue, and takes it out.
func (k *kit) take(queue string) amqp.Delivery {
	k.t.Helper()
	var d amqp.Delivery
	k.eventually("a message in "+queue, func() bool {
		got, ok, err := k.ch.Get(queue, true)
		require.NoError(k.t, err)
		d = got
		return ok
	})
	return d
}

// empty ends the consumer, and reports that nothing is in any queue of the topology, and that nothing is unacknowledged.
func (k *kit) empty() {
	k.t.Helper()
	k.stop()
	for _, name := range k.topology.Queues() {
		q, err := k.ch.QueueDeclarePassive(name, true, false, false, false, nil)
		require.NoError(k.t, err)
		require.Zero(k.t, q.Messages, name)
	}
}

var errBroken = errors.New("the card was declined")

func succeed(context.Context, *amqp.Delivery) error { return nil }
func fail(context.Context, *amqp.Delivery) error    { return errBroken }

// connected returns a publisher that has published the message 0.
func (k *kit) connected(c PublisherConfig) *Publisher {
	k.t.Helper()
	p := k.newPublisher(c)
	require.NoError(k.t, p.Publish(k.t.Context(), k.message("0")))
	return p
}

// within returns a context that ends after d.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// set sets a limit, and returns what sets it back.
func set(limit *time.Duration, d time.Duration) (back func()) {
	before := *limit
	*limit = d
	return func() { *limit = before }
}
