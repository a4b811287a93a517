package amqpidem

import (
	"errors"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
)

func TestHeadersOfACopy(t *testing.T) {
	d := &amqp.Delivery{Exchange: "shop", RoutingKey: "order.created", UserId: "guest", Expiration: "60000",
		Headers: amqp.Table{"tenant": "acme"}}
	for _, name := range []string{"CC", "BCC", "x-death", "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason",
		"x-last-death-exchange", "x-last-death-queue", "x-last-death-reason", "x-delivery-count", "x-acquired-count",
		headerError, headerReason, headerAttempts} {
		d.Headers[name] = "of one stay in one queue"
	}
	before := maps.Clone(d.Headers)
	seen := time.Date(2026, 11, 21, 10, 1, 8, 0, time.FixedZone("CET", 3600))
	m := copyFor(d, "orders.dead", history{attempts: 2, deferrals: 3, lost: 4, run: math.MaxUint64, firstSeen: seen}, d.Headers)
	assert.Equal(t, amqp.Table{
		"tenant": "acme", headerAttempts: int64(2), headerDeferrals: int64(3), headerLost: int64(4), headerRun: int64(math.MaxInt64),
		headerFirstSeen: "2026-11-21T09:01:08Z", headerExchange: "shop", headerRoutingKey: "order.created", headerUserID: "guest",
	}, m.Publishing.Headers)
	assert.Equal(t, before, d.Headers)
	assert.Empty(t, m.Publishing.UserId, "the broker would refuse it")
	assert.Empty(t, m.Publishing.Expiration, "a dead letter stays")
	assert.EqualValues(t, amqp.Persistent, m.Publishing.DeliveryMode)
}

// The history counts in what comes back from a delay, and in nothing else.
func TestHistory(t *testing.T) {
	h := &Handler{topology: Topology{Queue: "orders"}}
	death := func(queue string) amqp.Table { return amqp.Table{"queue": queue} }
	for name, c := range map[string]struct {
		deaths any
		counts bool
	}{
		"first delivery":     {nil, false},
		"not the broker's":   {"x", false},
		"from a delay":       {[]any{death("orders.delay.1000"), death("orders")}, true},
		"dead since":         {[]any{death("orders"), death("orders.delay.1000")}, false},
		"another's delay":    {[]any{death("bills.delay.1000")}, false},
		"no name of a queue": {[]any{amqp.Table{}}, false},
	} {
		past := h.historyOf(&amqp.Delivery{Headers: amqp.Table{"x-death": c.deaths, headerAttempts: int32(2), headerDeferrals: int64(3),
			headerLost: int64(4), headerRun: int64(7), headerFirstSeen: "2026-11-21T09:01:08Z"}})
		assert.EqualValues(t, 7, past.run, "it is the store's, and goes on: %s", name)
		if c.counts {
			assert.Equal(t, []int{2, 3, 4}, []int{past.attempts, past.deferrals, past.lost}, name)
			assert.Equal(t, 2026, past.firstSeen.Year())
		} else {
			assert.Equal(t, []int{0, 0, 0}, []int{past.attempts, past.deferrals, past.lost}, name)
			assert.WithinDuration(t, time.Now(), past.firstSeen, time.Hour, name)
		}
	}
}

func TestNumber(t *testing.T) {
	for _, v := range []any{int8(7), byte(7), int16(7), uint16(7), int32(7), uint32(7), int64(7), uint64(7), int(7)} {
		assert.EqualValues(t, 7, number(v), "%T", v)
	}
	for _, v := range []any{nil, "7", 7.0, int8(-7), int64(-7)} {
		assert.Zero(t, number(v), "%T", v)
	}
	assert.EqualValues(t, math.MaxInt64, number(uint64(math.MaxUint64)))
}

func TestDeliveries(t *testing.T) {
	for want, d := range map[int]amqp.Delivery{
		1: {},
		2: {Redelivered: true},
		4: {Redelivered: true, Headers: amqp.Table{"x-delivery-count": int64(3)}},
		6: {Redelivered: true, Headers: amqp.Table{"x-delivery-count": int64(3), "x-acquired-count": int64(5)}}, // RabbitMQ 4.3
	} {
		assert.Equal(t, want, deliveries(&d))
	}
	// A classic queue does not count: once it has delivered a message again, all runs may be of this publishing.
	h := &Handler{topology: Topology{Type: Classic}}
	assert.Equal(t, 1, h.attemptNumber(history{}, &amqp.Delivery{}, 4))
	assert.Equal(t, 4, h.attemptNumber(history{}, &amqp.Delivery{Redelivered: true}, 4))
	assert.Equal(t, 3, h.attemptNumber(history{lost: 2}, &amqp.Delivery{}, 4))
}

// What a message says of its first publishing counts if it says both, and comes by the queue's own name: who may publish
// to one exchange can't pass for a publisher to another.
func TestRestore(t *testing.T) {
	both := amqp.Table{headerExchange: "shop", headerRoutingKey: "order.created"}
	for _, c := range []struct {
		exchange, key string
		headers       amqp.Table
		want          string
	}{
		{"", "orders", both, "shop order.created"},
		{"", "orders", amqp.Table{headerExchange: "shop"}, " orders"},
		{"", "orders", amqp.Table{headerRoutingKey: "order.created"}, " orders"},
		{"", "orders", amqp.Table{headerExchange: 1, headerRoutingKey: 2}, " orders"},
		{"amq.topic", "public", both, "amq.topic public"},
		{"amq.topic", "orders", both, "amq.topic orders"},
	} {
		d := amqp.Delivery{Exchange: c.exchange, RoutingKey: c.key, Headers: c.headers}
		(&Handler{topology: Topology{Queue: "orders"}}).restore(&d)
		assert.Equal(t, c.want, d.Exchange+" "+d.RoutingKey)
	}
}

func TestBounded(t *testing.T) {
	longest := strings.Repeat("x", maxError)
	assert.Equal(t, longest, bounded(errors.New(longest)))
	assert.Equal(t, longest[:maxError-3]+"…", bounded(errors.New(longest+"x")))
	assert.Equal(t, "caf\uFFFD", bounded(errors.New("caf\xe9")))
}
