package amqpidem

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
)

func TestDefaults(t *testing.T) {
	p := must(NewPublisher(PublisherConfig{URL: "amqp://"}))
	assert.Equal(t, 256, cap(p.slots))
	h, err := NewHandler(Config{
		Task: core.MustNew(core.Config{}).MustTask(core.TaskPolicy{Name: "billing"}), Topology: Topology{Queue: "orders"}, Publisher: p,
	}, succeed)
	require.NoError(t, err)
	assert.Equal(t, 6, h.config.Attempts, "one more than there are delays")
	must(NewConsumer(h, ConsumerConfig{URL: "amqp://", Concurrency: 8, Prefetch: 8})) // not less than the concurrency
	c := must(NewConsumer(h, ConsumerConfig{URL: "amqp://"}))
	assert.Equal(t, []int{16, 64}, []int{c.config.Concurrency, c.config.Prefetch})
	assert.Equal(t, 30*time.Second, c.config.DrainTimeout)
}

// All faults are reported at once, each with its package and field.
func TestFaults(t *testing.T) {
	of := func(_ any, err error) error { return err }
	keeps := core.MustNew(core.Config{}).MustTask(core.TaskPolicy{Name: "billing", Record: core.Record{OnFailure: core.Keep}})
	for _, c := range []struct {
		err  error
		says string
	}{
		{of(NewHandler(Config{Attempts: -1, WithoutID: 9, Topology: Topology{
			Type: 7, Satellites: Foreign, DeliveryLimit: 3, Delays: []time.Duration{time.Second, time.Microsecond},
		}}, nil)), "Config.Task Config.Publisher Config.Attempts Config.WithoutID " +
			"Topology.Queue Topology.Type Topology.Satellites Topology.DeliveryLimit Topology.Delays NewHandler"},
		{of(NewHandler(Config{Task: keeps, Topology: Topology{Queue: "q"}}, succeed)), "Config.Task Config.Publisher"},
		{of(NewConsumer(nil, ConsumerConfig{URL: "redis://", Concurrency: -1, Prefetch: 70000, DrainTimeout: -1})),
			"ConsumerConfig.URL ConsumerConfig.Concurrency ConsumerConfig.Prefetch ConsumerConfig.DrainTimeout NewConsumer"},
		{of(NewConsumer(nil, ConsumerConfig{URL: "amqp://", Concurrency: 8, Prefetch: 4})), "ConsumerConfig.Prefetch"},
		{of(NewPublisher(PublisherConfig{URL: "amqp://guest:hidden@host:port/", MaxUnconfirmed: -1})),
			"PublisherConfig.URL PublisherConfig.MaxUnconfirmed"},
	} {
		for _, field := range strings.Fields(c.says) {
			assert.Regexp(t, `amqpidem[:.] ?`+field+":", c.err)
		}
		assert.NotContains(t, c.err.Error(), "hidden")
		assert.ErrorAs(t, c.err, new(*core.ConfigError))
	}
}
