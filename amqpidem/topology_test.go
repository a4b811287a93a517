package amqpidem

import (
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestArgumentsOfTheQueues(t *testing.T) {
	type args = map[string]amqp.Table
	arguments := func(topology Topology, major ...int) args {
		topology, _ = topology.check()
		all := args{}
		for _, d := range topology.declarations(append(major, 3)[0]) {
			all[d.name] = d.args
		}
		return all
	}
	all := arguments(Topology{Queue: "orders", Delays: []time.Duration{time.Second}})
	assert.Equal(t, args{
		"orders": {"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders.dead",
			"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish", "x-delivery-limit": int64(20)},
		"orders.delay.1000": {"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders",
			"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish", "x-message-ttl": int64(1000)},
		"orders.dead": {"x-queue-type": "quorum"},
	}, all)
	all = arguments(Topology{Queue: "orders", Type: Classic, Satellites: Classic, Delays: []time.Duration{time.Second}})
	assert.Equal(t, args{
		"orders": {"x-queue-type": "classic", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders.dead"},
		"orders.delay.1000": {"x-queue-type": "classic", "x-message-ttl": int64(1000),
			"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders"},
		"orders.dead": {"x-queue-type": "classic"},
	}, all)
	// What stands for no limit is another thing in RabbitMQ 4, which has one by default, than in RabbitMQ 3.
	none := Topology{Queue: "orders", DeliveryLimit: -1}
	assert.EqualValues(t, -1, arguments(none, 4)["orders"]["x-delivery-limit"])
	assert.NotContains(t, arguments(none)["orders"], "x-delivery-limit")
	assert.Equal(t, []string{"orders", "orders.delay.1000", "orders.delay.5000", "orders.delay.30000", "orders.delay.120000",
		"orders.delay.600000", "orders.dead"}, Topology{Queue: "orders"}.Queues())
}

func TestTopologyFaults(t *testing.T) {
	fits := strings.Repeat("q", 255-len(".delay.600000"))
	_, err := Topology{Queue: fits}.check()
	assert.NoError(t, err)
	delays := []time.Duration{time.Second}
	checked, err := Topology{Queue: "orders", Delays: delays}.check()
	assert.NoError(t, err)
	delays[0] = time.Hour
	assert.Equal(t, time.Second, checked.Delays[0], "the caller may change his own")
	for field, bad := range map[string][]Topology{
		"Topology.Queue": {{}, {Queue: fits + "q"}},
		"Topology.Delays": {{Queue: "q", Delays: []time.Duration{0}}, {Queue: "q", Delays: []time.Duration{time.Millisecond + 1}},
			{Queue: "q", Delays: []time.Duration{time.Second, time.Second}}},
		"Topology.Type":          {{Queue: "q", Type: Foreign + 1}},
		"Topology.Satellites":    {{Queue: "q", Satellites: Foreign}},
		"Topology.DeliveryLimit": {{Queue: "q", Type: Classic, DeliveryLimit: 1}, {Queue: "q", Type: Foreign, DeliveryLimit: -1}},
	} {
		for _, topology := range bad {
			_, err := topology.check()
			assert.ErrorContains(t, err, field)
		}
	}
}

func TestMajorVersion(t *testing.T) {
	for version, want := range map[any]int{"3.10.8": 3, "4.0.0-rc.1": 4, "10": 10, "": 4, nil: 4} {
		assert.Equal(t, want, majorVersion(&amqp.Connection{Properties: amqp.Table{"version": version}}))
	}
}

// What stands for no limit is another thing in RabbitMQ 4, which has one by default, than in RabbitMQ 3.
func TestNoDeliveryLimit(t *testing.T) {
	t.Parallel()
	k := newDeclaredKit(t, func(k *kit) { k.topology.DeliveryLimit = -1 })
	k.publish("1", "body")
	for range 25 {
		d := k.get(k.ch)
		require.NoError(t, d.Reject(true))
	}
	assert.Equal(t, "1", k.take(k.topology.Queue).MessageId)
}

func TestTopologyIsDeclaredAgain(t *testing.T) {
	t.Parallel()
	for _, change := range []func(*Topology){
		func(*Topology) {},
		func(t *Topology) { t.DeliveryLimit = -1 },
		func(t *Topology) { t.Type = Classic },
		func(t *Topology) { t.Satellites = Classic },
	} {
		k := newKit(t, func(k *kit) { change(&k.topology) })
		var missing *TopologyError
		require.ErrorAs(t, k.topology.Check(k.conn), &missing)
		assert.Equal(t, k.topology.DeadLetters(), missing.Queue)
		assert.ErrorContains(t, missing, "no queue '"+k.topology.DeadLetters()+"'")
		_ = k.channel() // the connection has not suffered
		require.Error(t, k.topology.Check(k.conn), "nothing was made")

		require.NoError(t, k.topology.Declare(k.conn))
		require.NoError(t, k.topology.Declare(k.conn))
		require.NoError(t, k.topology.Check(k.conn))
		k.empty()
	}
}

func TestTopologyThatDiffers(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	name := k.topology.Queues()[2]
	k.declare(name, amqp.Table{"x-queue-type": "quorum", "x-message-ttl": 50, "x-overflow": "reject-publish", "x-dead-letter-exchange": "",
		"x-dead-letter-routing-key": k.topology.Queue, "x-dead-letter-strategy": "at-least-once"})
	differs := func(err error) {
		t.Helper()
		var e *TopologyError
		require.ErrorAs(t, err, &e)
		assert.Equal(t, name, e.Queue)
		assert.ErrorContains(t, err, "amqpidem: queue "+fmt.Sprintf("%q", name))
		assert.ErrorContains(t, err, "inequivalent arg 'x-message-ttl'")
		assert.ErrorContains(t, err, "received '60' but current is '50'")
		var refused *amqp.Error
		require.ErrorAs(t, err, &refused)
	}
	differs(k.topology.Declare(k.conn))

	// A consumer says so, and does not begin.
	differs(k.newConsumer(succeed).Run(t.Context()))
	k.consumer.CheckOnly = true
	k.declare(k.topology.Queues()[3], amqp.Table{"x-queue-type": "quorum"})
	differs(k.newConsumer(succeed).Run(t.Context()))
}

func TestForeignQueue(t *testing.T) {
	t.Parallel()
	k := newKit(t, func(k *kit) { k.topology.Type = Foreign })
	require.Error(t, k.topology.Declare(k.conn), "somebody else has to declare it")
	k.declare(k.topology.Queue, amqp.Table{"x-max-priority": 3})
	k.start(fail)
	k.publish("1", "body")
	k.settled(Dead, 1)
	k.take(k.topology.DeadLetters())
	k.empty()
}

func TestMissingExchangeOfABinding(t *testing.T) {
	t.Parallel()
	k := newKit(t, func(k *kit) { k.topology.Bindings = []Binding{{Exchange: "idem-test-nowhere"}} })
	err := k.topology.Declare(k.conn)
	require.ErrorContains(t, err, k.topology.Queue)
	require.ErrorContains(t, err, "no exchange 'idem-test-nowhere'")
	require.NoError(t, k.topology.Check(k.conn), "it has no question for bindings, and makes none")
}
