package amqpidem

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/internal/backend"
)

func TestConsumerSurvivesALostConnection(t *testing.T) {
	t.Parallel()
	k, proxy := newProxied(t, func(k *kit) { k.consumer.Concurrency = 1 })
	proxy.Cut() // the broker is not there yet
	restored := later(func() error {
		k.eventually("tries", func() bool { return k.count(Disconnected, "") >= 2 })
		proxy.Restore()
		return nil
	})
	release := make(chan struct{})
	k.start(func(_ context.Context, d *amqp.Delivery) error {
		if d.MessageId == "1" {
			<-release
		}
		return nil
	})
	<-restored
	before := k.count(Disconnected, "")
	k.publish("1", "body")
	k.eventually("running", func() bool { return len(k.runs()) == 1 })
	k.publish("2", "body") // waits behind it
	k.eventually("both are handed out", func() bool { return k.ready() == 0 })
	proxy.Cut()
	k.eventually("lost", func() bool { return k.count(Disconnected, "") > before })
	assert.NotErrorIs(t, k.disconnected(before), amqp.ErrClosed, "it says more than that")
	close(release) // what was begun ends, and could not be acknowledged
	k.eventually("unsettled", func() bool { return k.count(Unsettled, Done) == 1 })
	proxy.Restore()
	k.settled(Duplicate, 1)
	k.settled(Done, 1)
	assert.Len(t, k.runs(), 2)
	k.empty()
}

// What is being handled is waited for, also if there is no connection.
func TestDrainWithoutAConnection(t *testing.T) {
	t.Parallel()
	k, proxy := newProxied(t)
	release := make(chan struct{})
	var ended atomic.Bool
	stop := k.start(func(context.Context, *amqp.Delivery) error {
		<-release
		ended.Store(true)
		return nil
	})
	k.publish("1", "body")
	k.eventually("running", func() bool { return len(k.runs()) == 1 })
	proxy.Cut()
	k.eventually("lost", func() bool { return k.count(Disconnected, "") > 0 })
	time.AfterFunc(20*time.Millisecond, func() { close(release) })
	stop()
	assert.True(t, ended.Load())
	proxy.Restore()
}

func TestConsumerSurvivesAConnectionThatIsClosedInGoodOrder(t *testing.T) {
	defer set(&caution, 500*time.Millisecond)()
	var conn atomic.Pointer[amqp.Connection]
	k := newKit(t, func(k *kit) {
		k.consumer.Dial = func(ctx context.Context, url string) (*amqp.Connection, error) {
			c, err := Dial(ctx, url, amqp.Config{})
			conn.Store(c)
			return c, err
		}
	})
	var both sync.WaitGroup
	both.Add(2)
	k.start(func(context.Context, *amqp.Delivery) error {
		both.Done()
		both.Wait() // it is careful for a moment, and then takes as many at once as before
		return nil
	})
	require.NoError(t, conn.Load().Close())
	k.eventually("connected again", func() bool { return k.count(Connected, "") == 2 })
	k.publish("1", "body")
	k.publish("2", "body")
	k.settled(Done, 2)
	k.empty()
}

// blocking takes no message that is published, and nothing after it.
type blocking struct {
	net.Conn
	blocks bool
}

func (c *blocking) Write(b []byte) (int, error) {
	if c.blocks = c.blocks || bytes.Contains(b, []byte("idem-check-")); c.blocks {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// What needs no copy is handled while the publisher's broker is not there, or blocks; but not if it refuses the publisher.
func TestConsumerWhosePublisherDoesNotConnect(t *testing.T) {
	defer set(&closeLimit, 10*time.Millisecond)()
	for _, fault := range []error{amqp.ErrCredentials, amqp.ErrVhost, errBroken, nil} {
		k := newKit(t)
		dial := wrapping(func(c net.Conn) net.Conn { return &blocking{Conn: c} })
		if fault != nil {
			dial = func(context.Context, string) (*amqp.Connection, error) { return nil, fault }
		}
		k.config.Publisher = k.newPublisher(PublisherConfig{URL: k.url, Dial: dial})
		if errors.As(fault, new(*amqp.Error)) {
			err := k.newConsumer(succeed).Run(t.Context())
			require.ErrorIs(t, err, fault)
			require.ErrorContains(t, err, "Config.Publisher can't connect")
			require.ErrorAs(t, err, new(*TopologyError))
			continue
		}
		stop := k.start(succeed)
		k.publish("1", "body")
		k.settled(Done, 1)
		stop()
	}
}

func TestConsumerSurvivesTheLossOfItsQueue(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	stop := k.start(succeed)
	// Before it has its queue again, another one is not as it ought to be for a while.
	for _, name := range []string{k.topology.DeadLetters(), k.topology.Queue} {
		k.drop(name)
		k.declare(k.topology.DeadLetters(), amqp.Table{"x-queue-type": "classic"})
	}
	k.eventually("tries", func() bool { return k.count(Disconnected, "") >= 2 })
	assert.ErrorContains(t, k.disconnected(0), "was the queue deleted?")
	var differs *TopologyError
	assert.ErrorAs(t, k.disconnected(1), &differs)
	k.drop(k.topology.DeadLetters())
	k.eventually("connected again", func() bool { return k.count(Connected, "") == 2 })
	k.publish("1", "body")
	k.settled(Done, 1)
	stop()
}

func TestConcurrencyAndPrefetch(t *testing.T) {
	t.Parallel()
	k := newKit(t, func(k *kit) { k.consumer.Concurrency, k.consumer.Prefetch = 3, 5 })
	release := make(chan struct{})
	var now atomic.Int64
	k.start(func(context.Context, *amqp.Delivery) error {
		assert.LessOrEqual(t, now.Add(1), int64(3))
		<-release
		now.Add(-1)
		return nil
	})
	require.NoError(t, k.publisher.Publish(t.Context(), k.messages(20)...))
	k.eventually("as many as may", func() bool { return now.Load() == 3 && k.ready() == 15 })
	close(release)
	k.settled(Done, 20)
	assert.Equal(t, 20, k.count(Delivered, ""))
	k.empty()
}

func TestDrain(t *testing.T) {
	t.Parallel()
	k := newKit(t, func(k *kit) { k.consumer.Concurrency = 2 })
	release := make(chan struct{})
	stop := k.start(func(ctx context.Context, _ *amqp.Delivery) error {
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	require.NoError(t, k.publisher.Publish(t.Context(), k.messages(8)...))
	k.eventually("all are handed out", func() bool { return len(k.runs()) == 2 && k.ready() == 0 })
	var stopped sync.WaitGroup
	stopped.Go(stop)
	k.eventually("the rest is given back", func() bool { return k.ready() == 6 })
	close(release) // nobody has ended their contexts
	stopped.Wait()
	assert.Equal(t, 2, k.count(Settled, Done))
	assert.Equal(t, 2, k.count(Settled, ""))
	assert.True(t, k.take(k.topology.Queue).Redelivered)
}

// TestTheLastMessageBeforeTheEnd: a worker that is free again begins with nothing more, and what it gives
// back does not come to it once more.
func TestTheLastMessageBeforeTheEnd(t *testing.T) {
	t.Parallel()
	k := newKit(t, func(k *kit) { k.topology.Type, k.consumer.Concurrency, k.consumer.Prefetch = Quorum, 1, 30 })
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, k.topology.Declare(k.conn))
	require.NoError(t, k.publisher.Publish(ctx, k.messages(30)...))
	require.NoError(t, k.newConsumer(func(context.Context, *amqp.Delivery) error { cancel(); return nil }).Run(ctx))
	assert.Len(t, k.runs(), 1)
	k.eventually("the rest is back", func() bool { return k.ready() == 29 })
	for range 29 {
		d := k.take(k.topology.Queue)
		assert.Contains(t, []any{nil, int64(1)}, d.Headers["x-delivery-count"])
	}
}

// TestFunctionThatEndsItsGoroutine: it takes nobody's place for ever.
func TestFunctionThatEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	k := newKit(t, func(k *kit) { k.consumer.Concurrency, k.consumer.Prefetch = 2, 8 })
	k.start(func(_ context.Context, d *amqp.Delivery) error {
		if d.MessageId != "3" {
			runtime.Goexit()
		}
		return nil
	})
	require.NoError(t, k.publisher.Publish(t.Context(), k.messages(4)...))
	k.settled(Done, 1)
	e := k.settled(Dead, 3)
	assert.Equal(t, "panicked", e.Reason)
	assert.Contains(t, string(e.Stack), "TestFunctionThatEndsItsGoroutine")
	for range 3 {
		k.take(k.topology.DeadLetters())
	}
	k.empty()
}

// After the drain timeout contexts end, which makes no attempt. A function that goes on all the same is left behind. What is done is
// acknowledged, also if it has waited for what was before it.
func TestDrainTimeout(t *testing.T) {
	defer set(&ackPause, time.Hour)()
	k := newKit(t, func(k *kit) { k.consumer.DrainTimeout = 10 * time.Millisecond })
	release := make(chan struct{})
	type tenant struct{}
	end := k.run(context.WithValue(t.Context(), tenant{}, "acme"), func(ctx context.Context, d *amqp.Delivery) error {
		assert.Equal(t, "acme", ctx.Value(tenant{}), "the values are those of Run")
		switch d.MessageId {
		case "goes on":
			<-release
		case "ends":
			<-ctx.Done()
			assert.ErrorIs(t, context.Cause(ctx), core.ErrShutdown)
			return context.Cause(ctx)
		}
		return nil
	})
	k.publish("goes on", "body")
	k.publish("ends", "body")
	k.publish("done", "body")
	k.settled(Done, 1)
	k.eventually("all have begun", func() bool { return len(k.runs()) == 3 })
	require.ErrorIs(t, end(), ErrDrain)
	assert.Equal(t, "interrupted", k.settled(Deferred, 1).Reason)
	assert.ElementsMatch(t, []string{"goes on", "ends"}, []string{k.take(k.topology.Queue).MessageId, k.take(k.topology.Queue).MessageId})
	close(release)
	k.eventually("ended", func() bool { return k.count(Unsettled, Done) == 1 })
	k.empty()
}

func TestFrozenBrokerDoesNotHoldTheEndUp(t *testing.T) {
	defer set(&closeLimit, 10*time.Millisecond)()
	k, proxy := newProxied(t, func(k *kit) {
		k.consumer.Dial = func(_ context.Context, url string) (*amqp.Connection, error) {
			return amqp.DialConfig(url, amqp.Config{Heartbeat: time.Hour}) // which would find out some time
		}
	})
	stop := k.start(succeed)
	k.publish("1", "body")
	k.settled(Done, 1)
	proxy.Stall()
	defer proxy.Resume()
	stop()
}

// A message that always fails becomes a dead letter after its last attempt, and holds up nobody.
func TestPoison(t *testing.T) {
	t.Parallel()
	for _, kind := range []QueueType{Quorum, Classic} {
		k := newKit(t, func(k *kit) { k.topology.Type, k.topology.Satellites = kind, kind })
		before := time.Now().Truncate(time.Second)
		k.start(func(_ context.Context, d *amqp.Delivery) error {
			if d.MessageId == "500" {
				return errBroken
			}
			return nil
		})
		all := k.messages(1000)
		all[500].Publishing.Headers = amqp.Table{"tenant": "acme"}
		require.NoError(t, k.publisher.Publish(t.Context(), all...))
		k.settled(Done, 999)
		assert.Equal(t, 4, k.settled(Dead, 1).Attempt)
		assert.Len(t, k.runs(), 1003, "four of one, and one of each other")
		d := k.take(k.topology.DeadLetters())
		assert.Equal(t, []any{"500", "body 500", "acme", int64(4), "failed", "the card was declined"},
			[]any{d.MessageId, string(d.Body), d.Headers["tenant"], d.Headers["x-idem-attempts"],
				d.Headers["x-idem-reason"], d.Headers["x-idem-error"]})
		assert.WithinRange(t, must(time.Parse(time.RFC3339, d.Headers["x-idem-first-seen"].(string))), before, time.Now())
		k.empty()
	}
}

// What brings down its consumer each time is stopped by the broker, at the delivery limit of a quorum queue.
// What fails is not: it may have more attempts than the limit.
func TestDeliveryLimitIsForCrashes(t *testing.T) {
	t.Parallel()
	k := newDeclaredKit(t, func(k *kit) { k.topology.DeliveryLimit = 2 })
	k.publish("1", "body")
	for i := range 3 {
		ch := k.channel()
		if d := k.get(ch); i > 0 { // RabbitMQ 4 leaves a zero away
			assert.EqualValues(t, i, d.Headers["x-delivery-count"])
		}
		require.NoError(t, ch.Close())
	}
	d := k.take(k.topology.DeadLetters())
	assert.Equal(t, "delivery_limit", d.Headers["x-death"].([]any)[0].(amqp.Table)["reason"])

	k.publish("2", "body")
	ch := k.channel()
	k.get(ch)
	require.NoError(t, ch.Close())
	k.start(fail)
	k.settled(Dead, 1)
	runs := k.runs()
	require.Len(t, runs, 4)
	assert.Equal(t, 2, runs[0].attempt.Deliveries)
	assert.Equal(t, 1, runs[0].attempt.Number, "no run was begun")
	assert.Equal(t, 1, runs[3].attempt.Deliveries, "a message that comes back is a new one to the broker")
	k.take(k.topology.DeadLetters())

	// What the broker has dead-lettered begins anew, too.
	k.publish("1", "body", func(m *amqp.Publishing) { m.Headers = d.Headers })
	k.settled(Dead, 2)
	assert.Len(t, k.runs(), 8)
	k.take(k.topology.DeadLetters())
	k.empty()
}

// poisoned breaks when it has read a message with this word.
type poisoned struct {
	net.Conn
	with error
	tail []byte
}

func (c *poisoned) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.tail = append(c.tail, b[:n]...)
	if bytes.Contains(c.tail, []byte("poison")) {
		return 0, c.with
	}
	c.tail = c.tail[max(0, len(c.tail)-len("poison")):]
	return n, err
}

// A message that breaks each connection uses up its own deliveries, not those of the messages behind it.
func TestMessageThatBreaksConnections(t *testing.T) {
	t.Parallel()
	for _, with := range []error{amqp.ErrSyntax, io.ErrUnexpectedEOF} { // what the client can't read, and something on the way
		k := newKit(t, func(k *kit) {
			k.consumer.CheckOnly, k.topology.DeliveryLimit, k.consumer.Concurrency, k.consumer.Prefetch = true, 4, 2, 20
			k.consumer.Dial = wrapping(func(c net.Conn) net.Conn { return &poisoned{Conn: c, with: with} })
		})
		require.NoError(t, k.topology.Declare(k.conn))
		all := k.messages(40)
		all[5].Publishing.MessageId = "poison"
		require.NoError(t, k.publisher.Publish(t.Context(), all...))
		var last sync.WaitGroup
		last.Add(2)
		k.start(func(_ context.Context, d *amqp.Delivery) error {
			switch d.MessageId {
			case "slow":
				time.Sleep(20 * time.Millisecond) // so that one is unsettled when the queue is consumed again
			case "held":
				return errBroken
			case "0": // the second connection begins with it
				k.eventually("broken", func() bool { return k.count(Disconnected, "") > 0 })
			case "last":
				last.Done()
				last.Wait()
			}
			return nil
		})
		assert.Equal(t, "poison", k.take(k.topology.DeadLetters()).MessageId)
		k.settled(Done, 39)
		for _, r := range k.runs() {
			assert.LessOrEqual(t, r.attempt.Deliveries, 2, r.id)
		}
		broken := k.count(Disconnected, "")
		assert.Equal(t, with == amqp.ErrSyntax, unreadable(k.disconnected(broken-1)))
		named := 0 // not each time: the broker may not say that there is another message
		for i := range broken {
			err := k.disconnected(i).Error()
			assert.Contains(t, err, strings.Trim(strconv.Quote(with.Error()), `"`))
			if strings.Contains(err, fmt.Sprintf("the next message of queue %q", k.topology.Queue)) {
				named++
			}
		}
		assert.NotZero(t, named)

		// When as many as may be prefetched were read, it takes as many at once as before.
		// One whose copy is refused does not take the only place meanwhile.
		k.drop(k.topology.Queues()[1])
		k.publish("held", "body")
		k.eventually("it is held", func() bool { return k.count(Unsettled, Failed) > 0 })
		for i := range 22 {
			k.publish([]string{"slow", "last"}[i/20], "body", func(m *amqp.Publishing) { m.AppId = fmt.Sprint(i) })
		}
		k.settled(Done, 61)
		require.NoError(t, k.topology.Declare(k.conn))
		k.settled(Dead, 1)
		k.take(k.topology.DeadLetters())
		assert.Equal(t, broken, k.count(Disconnected, ""))
		k.empty()
	}
}

// settle makes sure that the queues there are survive if the broker is killed at once. RabbitMQ 3.10 keeps the
// name of a quorum queue in memory for up to a second: if it is killed in that time, the queue that was
// declared last has no leader any more. So another one is the last.
func (k *kit) settle() { k.declare("idem-test-"+rand.Text(), amqp.Table{"x-queue-type": "quorum"}) }

// On a broker of the test's own: what it takes to kill it, and users of one's own.
func TestBrokerRestart(t *testing.T) {
	t.Parallel()
	const definitions = `{
		"vhosts": [{"name": "/"}, {"name": "other"}],
		"users": [{"name": "guest", "password": "guest", "tags": "administrator"}, {"name": "worker", "password": "worker", "tags": ""}, {"name": "reader", "password": "reader", "tags": ""}],
		"permissions": [
			{"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"},
			{"user": "guest", "vhost": "other", "configure": ".*", "write": ".*", "read": ".*"},
			{"user": "worker", "vhost": "/", "configure": "", "write": ".*", "read": ".*"},
			{"user": "reader", "vhost": "/", "configure": ".*", "write": "orders", "read": ".*"}]}`
	file := filepath.Join(os.TempDir(), fmt.Sprintf("idem-definitions-%d.json", os.Getpid())) // where the broker's user may read
	require.NoError(t, os.WriteFile(file, []byte(definitions), 0o644))
	t.Cleanup(func() { _ = os.Remove(file) })
	broker := backend.StartRabbitMQ(t, "load_definitions = "+file)

	kinds := []QueueType{Quorum, Classic}
	if testing.Short() {
		kinds = kinds[:1]
	}
	for _, kind := range kinds {
		k := newKitAt(t, broker.URL(), func(k *kit) {
			k.topology.Type, k.topology.Satellites = kind, kind
			k.topology.Delays = []time.Duration{2 * time.Second}
		})
		stop := k.start(func(ctx context.Context, d *amqp.Delivery) error {
			if d.MessageId == "1" && AttemptFrom(ctx).Number == 1 { // also when it comes again, unacknowledged
				return errBroken
			}
			return nil
		})
		k.publish("1", "body", func(m *amqp.Publishing) { m.DeliveryMode = amqp.Transient })
		k.settled(Failed, 1)
		k.settle()
		broker.Kill() // the message is on its way
		broker.Start()
		assert.Equal(t, 2, k.settled(Done, 1).Attempt, "it was kept, with its attempts")
		require.NoError(t, k.publisher.Publish(t.Context(), k.message("2")))
		k.settled(Done, 2)
		stop()
	}

	// A consumer without the permission to configure checks what it may.
	k := newKitAt(t, broker.URL())
	require.NoError(t, k.topology.Declare(k.conn))
	as := func(user string) string {
		u := must(url.Parse(broker.URL()))
		u.User = url.UserPassword(user, user)
		return u.String()
	}
	k.consumer.URL, k.consumer.CheckOnly = as("worker"), true
	stop := k.start(succeed)
	k.publish("1", "body")
	k.settled(Done, 1)
	stop()
	k.consumer.CheckOnly = false
	var refused *TopologyError
	require.ErrorAs(t, k.newConsumer(succeed).Run(t.Context()), &refused)
	require.ErrorContains(t, refused, "access to queue")

	// It finds out whether its publisher can publish copies.
	k.consumer.URL = broker.URL()
	for url, says := range map[string]string{
		as("reader"):           "the right to write is missing: access to exchange 'amq.default' in vhost '/' refused for user 'reader'",
		broker.URL() + "other": "Config.Publisher finds no queue for copies",
	} {
		for _, k.consumer.CheckOnly = range []bool{false, true} {
			k.config.Publisher = k.newPublisher(PublisherConfig{URL: url})
			err := k.newConsumer(succeed).Run(t.Context())
			require.ErrorAs(t, err, &refused)
			require.ErrorContains(t, err, says)
		}
	}
	conn := must(amqp.Dial(as("reader")))
	defer conn.Close()
	require.ErrorAs(t, k.topology.Check(conn), &refused)
	require.ErrorContains(t, refused, "the right to write is missing")
	require.Equal(t, k.topology.DeadLetters(), refused.Queue)
}
