package amqpidem

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFailedComesBackAfterGrowingDelays(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	k.start(failing(3))
	k.publish("1", "body")
	e := k.settled(Done, 1)
	assert.Equal(t, 4, e.Attempt)
	runs := k.runs()
	require.Len(t, runs, 4)
	for i, r := range runs {
		assert.Equal(t, i+1, r.attempt.Number)
		assert.Equal(t, 4, r.attempt.Of)
		assert.Equal(t, 1, r.attempt.Deliveries)
		assert.Equal(t, runs[0].attempt.FirstSeen.Unix(), r.attempt.FirstSeen.Unix(), "it stays that of the first")
		if i > 0 {
			assert.GreaterOrEqual(t, r.at.Sub(runs[i-1].at), k.topology.Delays[i-1])
		}
	}
	k.publish("1", "body")
	k.settled(Duplicate, 1)
	k.empty()
}

// The end of its context ends the function, which is no attempt, and does not keep the delivery from being settled.
func TestHandleSettlesAfterTheEndOfItsContext(t *testing.T) {
	t.Parallel()
	k := newDeclaredKit(t)
	k.publish("1", "body")
	k.publish("2", "body")
	ch := k.channel()
	first, second := k.get(ch), k.get(ch)
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, k.handler(func(ctx context.Context, _ *amqp.Delivery) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}).Handle(ctx, second))
	assert.Equal(t, "interrupted", k.settled(Deferred, 1).Reason)
	assert.Equal(t, "2", k.take(k.topology.Queue).MessageId)
	require.NoError(t, ch.Close())
	assert.Equal(t, first.MessageId, k.take(k.topology.Queue).MessageId, "it alone was settled")
	k.empty()
}

func TestFunctionSeesTheMessageAsItWasPublished(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	require.NoError(t, k.ch.ExchangeDeclare(k.topology.Queue, "topic", false, true, false, false, nil))
	k.topology.Bindings = []Binding{{Exchange: k.topology.Queue, Key: "order.*"}}
	k.config.Topology = k.topology
	seen := make(chan amqp.Delivery, 2)
	k.start(func(ctx context.Context, d *amqp.Delivery) error {
		seen <- *d
		if len(seen) == 1 {
			return errBroken
		}
		return nil
	})
	sent := amqp.Publishing{
		Headers:     amqp.Table{"tenant": "acme", "shard": uint16(7), "size": uint32(8), "CC": []any{k.topology.DeadLetters()}},
		ContentType: "application/json", ContentEncoding: "identity", Priority: 3, CorrelationId: "c", ReplyTo: "r", Expiration: "60000",
		MessageId: "1", Timestamp: time.Unix(1e9, 0), Type: "t", UserId: "guest", AppId: "shop", Body: []byte("{}"),
	}
	require.NoError(t, k.publisher.Publish(t.Context(), Message{Exchange: k.topology.Queue, Key: "order.created", Publishing: sent}))
	k.settled(Done, 1)
	first, second := <-seen, <-seen
	for _, d := range []amqp.Delivery{first, second} {
		assert.Equal(t, k.topology.Queue, d.Exchange)
		assert.Equal(t, "order.created", d.RoutingKey)
		assert.Equal(t, []any{"acme", uint16(7), uint32(8)}, []any{d.Headers["tenant"], d.Headers["shard"], d.Headers["size"]})
		assert.Equal(t, []any{"application/json", "identity", uint8(3), "c", "r", "1", int64(1e9), "t", "shop", "{}"},
			[]any{d.ContentType, d.ContentEncoding, d.Priority, d.CorrelationId, d.ReplyTo, d.MessageId,
				d.Timestamp.Unix(), d.Type, d.AppId, string(d.Body)})
		assert.Error(t, d.Ack(false), "it is not the function's to settle")
	}
	assert.Equal(t, "guest", second.Headers["x-idem-user-id"])
	assert.Empty(t, second.Expiration, "it was for the first delivery")
	k.empty() // and the dead letters, to which CC would have taken the copy
}

// A crash between the copy in the delay queue and the acknowledgement makes two of one message: none is
// lost, and the key makes them one operation.
func TestCrashBeforeTheAcknowledgement(t *testing.T) {
	t.Parallel()
	k := newDeclaredKit(t)
	fn := failing(1)
	ch := k.channel()
	k.publish("1", "body")
	d := k.get(ch)
	d.Acknowledger = severed{ch}
	require.Error(t, k.handler(fn).Handle(t.Context(), d))
	assert.Equal(t, 1, k.count(Unsettled, Failed))
	assert.ErrorIs(t, k.events[0].Err, amqp.ErrClosed)
	assert.ErrorIs(t, k.events[0].Err, errBroken)

	k.start(fn)
	k.settled(Done, 1)
	k.settled(Duplicate, 1)
	k.empty()
}

// severed is a channel that is lost when something is to be acknowledged.
type severed struct{ ch *amqp.Channel }

func (s severed) Ack(uint64, bool) error        { return errors.Join(s.ch.Close(), amqp.ErrClosed) }
func (s severed) Nack(uint64, bool, bool) error { panic("nothing is given back") }
func (s severed) Reject(uint64, bool) error     { panic("nothing is rejected") }

// In a consumer a copy that is refused holds its own delivery, and nothing else, until it is taken.
func TestRefusedCopy(t *testing.T) {
	t.Parallel()
	for _, checkOnly := range []bool{false, true} {
		k := newDeclaredKit(t, func(k *kit) { k.consumer.CheckOnly, k.consumer.Concurrency = checkOnly, 1 })
		stop := k.start(func(ctx context.Context, d *amqp.Delivery) error {
			if strings.HasPrefix(d.MessageId, "held") && AttemptFrom(ctx).Number == 1 {
				return errBroken
			}
			return nil
		})
		hold := func(id string) {
			k.drop(k.topology.Queues()[1])
			before := k.count(Unsettled, Failed)
			k.publish(id, "body")
			k.eventually("it is held", func() bool { return k.count(Unsettled, Failed) > before })
		}
		hold("held")
		require.NoError(t, k.publisher.Publish(t.Context(), k.messages(100)...))
		k.settled(Done, 100)
		if checkOnly {
			k.eventually("it is tried again", func() bool { return k.count(Unsettled, Failed) > 1 })
			require.NoError(t, k.topology.Declare(k.conn))
		}
		k.settled(Failed, 1)
		k.settled(Done, 101)
		hold("held, too")
		if !checkOnly {
			k.settled(Done, 102)
		} else { // the end does not wait for it
			defer func() { assert.Equal(t, "held, too", k.take(k.topology.Queue).MessageId) }()
		}
		stop()
		assert.Zero(t, k.count(Disconnected, ""))
	}
}

// A message whose headers all but fill a frame can be delivered, but no copy of it can be published.
// It must not stay, and break everybody's connections.
func TestHeadersThatLeaveNoRoom(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	k.start(fail)
	k.publish("1", "body", func(m *amqp.Publishing) { m.Headers = amqp.Table{"h": strings.Repeat("x", 130860)} })
	e := k.settled(Dead, 1)
	assert.Equal(t, "headers_too_large", e.Reason)
	assert.ErrorIs(t, e.Err, errBroken)
	assert.Equal(t, 1, e.Attempt)
	d := k.take(k.topology.DeadLetters())
	assert.Equal(t, "headers_too_large", d.Headers["x-idem-reason"])
	assert.Equal(t, "body", string(d.Body))
	assert.NotContains(t, d.Headers, "h")
	assert.Zero(t, k.count(Disconnected, ""))
	k.empty()
}
