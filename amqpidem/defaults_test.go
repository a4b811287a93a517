package amqpidem

import (
	"context"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
)

func TestDefaults(t *testing.T) {
	p, err := NewPublisher(PublisherConfig{URL: "amqp://"})
	require.NoError(t, err)
	assert.Equal(t, 256, cap(p.slots))
	h, err := NewHandler(Config{
		Task: core.MustNew(core.Config{}).MustTask(core.TaskPolicy{Name: "billing"}), Topology: Topology{Queue: "orders"}, Publisher: p,
	}, func(context.Context, *amqp.Delivery) error { return nil })
	require.NoError(t, err)
	assert.Equal(t, 6, h.config.Attempts, "one more than there are delays")
	c, err := NewConsumer(h, ConsumerConfig{URL: "amqp://"})
	require.NoError(t, err)
	assert.Equal(t, []int{16, 64}, []int{c.config.Concurrency, c.config.Prefetch})
	assert.Equal(t, 30*time.Second, c.config.DrainTimeout)
}
