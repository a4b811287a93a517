package watermillidem_test

import (
	"crypto/rand"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	natsgo "github.com/nats-io/nats.go"
	amqpgo "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/backend"
)

// link is a broker that a test uses, or skips.
type link interface {
	// topic makes a topic of the test's own, which groups of consumers will read.
	topic(t *testing.T, groups ...string) string
	publisher(t *testing.T) message.Publisher
	// subscriber returns a new consumer of a group.
	subscriber(t *testing.T, group string) message.Subscriber
	// copies is how many consumers of one group get each message, if there are so many consumers.
	copies(consumers int) int
}

var brokers = []struct {
	name string
	open func(*testing.T) link
}{
	{"GoChannel", openChannel},
	{"JetStream", openJetStream},
	{"AMQP", openAMQP},
}

func topicName() string { return "watermillidem-" + rand.Text() }

// channel is Watermill's Go channel. It has no groups: each consumer gets each message.
type channel struct{ *gochannel.GoChannel }

func openChannel(*testing.T) link {
	return channel{gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})}
}

func (channel) topic(*testing.T, ...string) string { return topicName() }

func (c channel) publisher(*testing.T) message.Publisher { return shared{c, c} }

func (c channel) subscriber(*testing.T, string) message.Subscriber { return shared{c, c} }

func (channel) copies(consumers int) int { return consumers }

// shared goes on when the first Router that uses it is closed.
type shared struct {
	message.Publisher
	message.Subscriber
}

func (shared) Close() error { return nil }

// jetStream has a stream for each topic, and a durable consumer for each group of it.
type jetStream struct{ url string }

func openJetStream(t *testing.T) link { return jetStream{backend.NATS(t)} }

func (j jetStream) topic(t *testing.T, _ ...string) string {
	conn, err := natsgo.Connect(j.url)
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	streams, err := conn.JetStream()
	require.NoError(t, err)
	name := topicName()
	_, err = streams.AddStream(&natsgo.StreamConfig{Name: name, Subjects: []string{name}, Storage: natsgo.MemoryStorage})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, streams.DeleteStream(name)) })
	return name
}

func (j jetStream) publisher(t *testing.T) message.Publisher {
	p, err := nats.NewPublisher(nats.PublisherConfig{URL: j.url}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.Close()) })
	return p
}

func (j jetStream) subscriber(t *testing.T, group string) message.Subscriber {
	s, err := nats.NewSubscriber(nats.SubscriberConfig{
		URL: j.url, QueueGroupPrefix: group,
		JetStream: nats.JetStreamConfig{SubscribeOptions: []natsgo.SubOpt{natsgo.ManualAck(), natsgo.DeliverAll()}},
	}, nil)
	require.NoError(t, err)
	return s
}

func (jetStream) copies(int) int { return 1 }

// rabbit has an exchange for each topic, and a queue for each group of it.
type rabbit struct{ config amqp.Config }

func openAMQP(t *testing.T) link {
	return rabbit{amqp.NewDurablePubSubConfig(backend.AMQP(t), nil)}
}

func queueOf(group string) amqp.QueueNameGenerator {
	return amqp.GenerateQueueNameTopicNameWithSuffix("-" + group)
}

func (r rabbit) topic(t *testing.T, groups ...string) string {
	conn, err := amqpgo.Dial(r.config.Connection.AmqpURI)
	require.NoError(t, err)
	name := topicName()
	t.Cleanup(func() {
		defer conn.Close()
		c, err := conn.Channel()
		if !assert.NoError(t, err) {
			return
		}
		for _, group := range groups {
			_, err = c.QueueDelete(queueOf(group)(name), false, false, false)
			assert.NoError(t, err)
		}
		assert.NoError(t, c.ExchangeDelete(name, false, false))
	})
	return name
}

func (r rabbit) publisher(t *testing.T) message.Publisher {
	p, err := amqp.NewPublisher(r.config, watermill.NopLogger{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.Close()) })
	return p
}

func (r rabbit) subscriber(t *testing.T, group string) message.Subscriber {
	c := r.config
	c.Queue.GenerateName = queueOf(group)
	s, err := amqp.NewSubscriber(c, watermill.NopLogger{})
	require.NoError(t, err)
	return s
}

func (rabbit) copies(int) int { return 1 }
