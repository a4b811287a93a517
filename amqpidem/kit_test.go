package amqpidem

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/internal/backend"
	"github.com/idem-go/idem/internal/leak"
)

func TestMain(m *testing.M) {
	if os.Getenv("IDEM_AMQP_WORKER") != "" {
		work()
		return
	}
	leak.VerifyTestMain(m)
}

// patience is how long a test waits for what is sure to come.
const patience = 30 * time.Second

// kit is a queue of a test's own, with everything that belongs to it.
type kit struct {
	t         *testing.T
	url       string
	conn      *amqp.Connection
	ch        *amqp.Channel // of the test
	topology  Topology
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
	k.config.Task = core.MustNew(core.Config{}).MustTask(core.TaskPolicy{Name: "billing", Duplicate: core.Reject("")})
	k.config.Observe = func(_ context.Context, e Event) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.events = append(k.events, e)
	}
	k.consumer.URL = url
	for _, c := range change {
		c(k)
	}
	k.config.Topology = k.topology
	k.publisher = k.newPublisher(PublisherConfig{URL: url})
	k.config.Publisher = k.publisher

	k.conn = must(amqp.Dial(url))
	t.Cleanup(func() { _ = k.conn.Close() })
	k.ch = k.channel()
	return k
}

// remove deletes queues, on a connection of its own: that of the test may be broken.
func remove(t *testing.T, url string, names ...string) {
	conn := must(amqp.Dial(url))
	defer conn.Close()
	ch := must(conn.Channel())
	for _, name := range names {
		must(ch.QueueDelete(name, false, false, false))
	}
}

// newDeclaredKit is newKit with queues.
func newDeclaredKit(t *testing.T, change ...func(*kit)) *kit {
	k := newKit(t, change...)
	require.NoError(t, k.topology.Declare(k.conn))
	return k
}

func (k *kit) newPublisher(c PublisherConfig) *Publisher {
	p := must(NewPublisher(c))
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
		k.ran = append(k.ran, ran{d.MessageId, AttemptFrom(ctx), time.Now()})
		k.mu.Unlock()
		return fn(ctx, d)
	})
	require.NoError(k.t, err)
	return h
}

// newConsumer makes a consumer whose runs are noted.
func (k *kit) newConsumer(fn Func) *Consumer {
	return must(NewConsumer(k.handler(fn), k.consumer))
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
	return must(k.conn.Channel())
}

// publish puts a message into the queue, as it is.
func (k *kit) publish(id, body string, change ...func(*amqp.Publishing)) {
	k.t.Helper()
	m := amqp.Publishing{MessageId: id, Body: []byte(body)}
	for _, c := range change {
		c(&m)
	}
	ch := k.channel()
	defer ch.Close()
	require.NoError(k.t, ch.Confirm(false))
	require.True(k.t, must(ch.PublishWithDeferredConfirm("", k.topology.Queue, true, false, m)).Wait())
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

// seen returns the events of a stage and an outcome (any, if it is empty).
func (k *kit) seen(stage Stage, outcome Outcome) (all []Event) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range k.events {
		if e.Stage == stage && (outcome == "" || e.Outcome == outcome) {
			all = append(all, e)
		}
	}
	return all
}

func (k *kit) count(stage Stage, outcome Outcome) int { return len(k.seen(stage, outcome)) }

// disconnected returns why the consumer was disconnected for the i-th time.
func (k *kit) disconnected(i int) error { return k.seen(Disconnected, "")[i].Err }

// settled waits until n deliveries have ended with outcome, and returns the last of their events.
func (k *kit) settled(outcome Outcome, n int) Event {
	k.t.Helper()
	k.eventually(fmt.Sprintf("%d %s", n, outcome), func() bool { return k.count(Settled, outcome) >= n })
	all := k.seen(Settled, outcome)
	return all[len(all)-1]
}

// runs returns the runs of the function.
func (k *kit) runs() []ran {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]ran(nil), k.ran...)
}

// get waits for a delivery of the kit's queue on ch.
func (k *kit) get(ch *amqp.Channel) amqp.Delivery { return k.from(ch, k.topology.Queue, false) }

// take waits for a message in a queue, and takes it out.
func (k *kit) take(queue string) amqp.Delivery { return k.from(k.ch, queue, true) }

func (k *kit) from(ch *amqp.Channel, queue string, takeOut bool) (d amqp.Delivery) {
	k.eventually("a message in "+queue, func() (ok bool) {
		var err error
		d, ok, err = ch.Get(queue, takeOut)
		require.NoError(k.t, err)
		return ok
	})
	return d
}

// empty ends the consumer, and reports that nothing is in any queue of the topology, and that nothing is unacknowledged.
func (k *kit) empty() {
	k.t.Helper()
	k.stop()
	for _, name := range k.topology.Queues() {
		q := must(k.ch.QueueDeclarePassive(name, true, false, false, false, nil))
		require.Zero(k.t, q.Messages, name)
	}
}

var errBroken = errors.New("the card was declined")

func succeed(context.Context, *amqp.Delivery) error { return nil }
func fail(context.Context, *amqp.Delivery) error    { return errBroken }

// failing fails n times.
func failing(n int64) Func {
	var tries atomic.Int64
	return func(context.Context, *amqp.Delivery) error {
		if tries.Add(1) > n {
			return nil
		}
		return errBroken
	}
}

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

// drop deletes a queue.
func (k *kit) drop(name string) {
	k.t.Helper()
	must(k.ch.QueueDelete(name, false, false, false))
}

// declare declares a queue of one's own.
func (k *kit) declare(name string, args amqp.Table) {
	k.t.Helper()
	must(k.ch.QueueDeclare(name, true, false, false, false, args))
}

// messages returns n messages, with their numbers as ids.
func (k *kit) messages(n int) (all []Message) {
	for i := range n {
		all = append(all, k.message(fmt.Sprint(i)))
	}
	return all
}

// oversized returns a message whose headers don't fit into a frame.
func (k *kit) oversized(id string) Message {
	m := k.message(id)
	m.Publishing.Headers = amqp.Table{"h": strings.Repeat("x", 200<<10)}
	return m
}

// wrapping returns a Dial whose connections are wrapped.
func wrapping(wrap func(net.Conn) net.Conn) func(context.Context, string) (*amqp.Connection, error) {
	return func(ctx context.Context, url string) (*amqp.Connection, error) {
		return Dial(ctx, url, amqp.Config{Dial: func(network, addr string) (net.Conn, error) {
			conn, err := net.Dial(network, addr)
			return wrap(conn), err
		}})
	}
}

// later calls f, and returns where its error will be.
func later(f func() error) <-chan error {
	result := make(chan error, 1)
	go func() { result <- f() }()
	return result
}

// unconfirmed returns err as the error of n messages.
func unconfirmed(t *testing.T, n int, err error) *PublishError {
	t.Helper()
	var e *PublishError
	require.ErrorAs(t, err, &e)
	require.Len(t, e.Unconfirmed, n)
	require.Len(t, e.Refusals, n)
	return e
}

// set sets a limit, and returns what sets it back.
func set(limit *time.Duration, d time.Duration) (back func()) {
	before := *limit
	*limit = d
	return func() { *limit = before }
}
