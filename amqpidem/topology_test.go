package amqpidem

import (
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
)

func TestArgumentsOfTheQueues(t *testing.T) {
	type args = map[string]amqp.Table
	arguments := func(topology Topology) args {
		topology, _ = topology.check()
		all := args{}
		for _, d := range topology.declarations(3) {
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
		"orders":            {"x-queue-type": "classic", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders.dead"},
		"orders.delay.1000": {"x-queue-type": "classic", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders", "x-message-ttl": int64(1000)},
		"orders.dead":       {"x-queue-type": "classic"},
	}, all)
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
