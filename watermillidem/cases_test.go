package watermillidem_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/watermillidem"
)

// Every case holds on every broker.
func TestBrokers(t *testing.T) {
	for _, b := range brokers {
		t.Run(b.name, func(t *testing.T) {
			l := b.open(t)
			for _, c := range cases {
				t.Run(c.name, func(t *testing.T) { c.run(t, l) })
			}
		})
	}
}

var cases = []struct {
	name string
	run  func(*testing.T, link)
}{
	{"a duplicate is not run, and produces the same", testDuplicate},
	{"what could not be published is published by the redelivery", testPublishFails},
	{"a UUID with another payload is poisoned", testKeyReused},
	{"a duplicate of a running message is refused until that is done", testRunning},
	{"two consumers of a topic each run", testTwoConsumers},
	{"hundreds of messages each take effect once", testStorm},
}

func testDuplicate(t *testing.T, l link) {
	r := newRig(t, l, "shop")
	r.consume("shop", "charge", r.protect(watermillidem.Config{}), func(msg *message.Message) ([]*message.Message, error) {
		r.effect(msg)
		return []*message.Message{receipt(msg, "\xff\x00 first"), msg}, nil // what comes in may go out
	})
	r.run()
	r.publish(order("1", "5 to bob"))
	r.awaitOuts(2)
	r.publish(order("1", "5 to bob"))
	r.awaitOuts(4)
	r.want(map[string]int{"1": 1}, 2, 0)
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortStableFunc(r.outs, func(a, b *message.Message) int { return strings.Compare(a.UUID, b.UUID) })
	for _, pair := range [][2]int{{0, 1}, {2, 3}} {
		first, again := r.outs[pair[0]], r.outs[pair[1]]
		for _, m := range []*message.Message{first, again} {
			delete(m.Metadata, "_watermill_amqp_redelivered")
		}
		assert.True(t, first.Equals(again), "%v, and then %v", first, again)
	}
	assert.Equal(t, message.Payload("5 to bob"), r.outs[1].Payload)
	assert.Equal(t, message.Metadata{"tenant": "t1"}, r.outs[1].Metadata)
	assert.Equal(t, message.Payload("\xff\x00 first"), r.outs[3].Payload)
	assert.Equal(t, message.Metadata{"order": "1", "quote": `"é" <&>`}, r.outs[3].Metadata)
}

func testPublishFails(t *testing.T, l link) {
	r := newRig(t, l, "shop")
	var tries atomic.Int64
	r.publishes = func() error {
		if tries.Add(1) <= 2 {
			return errors.New("the broker does not answer")
		}
		return nil
	}
	r.consume("shop", "charge", r.protect(watermillidem.Config{}), func(msg *message.Message) ([]*message.Message, error) {
		r.effect(msg)
		return []*message.Message{receipt(msg, "paid")}, nil
	})
	r.run()
	r.publish(order("1", "5"))
	r.awaitOuts(1)
	r.want(map[string]int{"1": 1}, 3, 0)
	assert.EqualValues(t, 3, tries.Load())
	assert.Equal(t, []string{"receipt-of-1"}, r.outUUIDs())
}

func testKeyReused(t *testing.T, l link) {
	r := newRig(t, l, "shop")
	r.consume("shop", "charge", r.protect(watermillidem.Config{Metadata: []string{"tenant"}}),
		func(msg *message.Message) ([]*message.Message, error) {
			r.effect(msg)
			return []*message.Message{receipt(msg, "paid")}, nil
		})
	r.run()
	r.publish(order("1", "5 to bob"))
	r.awaitOuts(1)
	r.publish(order("1", "700 to eve"))
	r.awaitPoison("1", codes.KeyReused)
	r.publish(order("1", "5 to bob"), order("2", "6 to bob"))
	r.awaitOuts(3)
	r.want(map[string]int{"1": 1, "2": 1}, 4, 0)
	assert.ElementsMatch(t, []string{"receipt-of-1", "receipt-of-1", "receipt-of-2"}, r.outUUIDs())
}

func testRunning(t *testing.T, l link) {
	r := newRig(t, l, "shop")
	protect := r.protect(watermillidem.Config{Policy: core.TaskPolicy{Name: "charge"}})
	release := make(chan struct{})
	for i := range 2 {
		r.consume("shop", fmt.Sprint("worker ", i), protect, func(msg *message.Message) ([]*message.Message, error) {
			<-release
			r.effect(msg)
			return nil, nil
		})
	}
	r.run()
	published := 0
	for deadline := time.Now().Add(time.Minute); r.failures() < 3; {
		// JetStream may push a duplicate to the worker that is busy, where it lies behind the first.
		r.publish(order("1", "5"))
		published++
		require.True(t, time.Now().Before(deadline))
		time.Sleep(pause)
	}
	close(release)
	acks := published * l.copies(2)
	r.awaitAcks(acks)
	r.want(map[string]int{"1": 1}, acks, len(r.errs))
	for _, err := range r.errs {
		assert.ErrorIs(t, err, codes.InProgress)
		assert.True(t, watermillidem.Temporary(err))
	}
	assert.Empty(t, r.poisons)
}

// One middleware for all handlers, as on a Router.
func testTwoConsumers(t *testing.T, l link) {
	r := newRig(t, l, "bank", "post")
	protect := r.protect(watermillidem.Config{})
	var charged, mailed atomic.Int64
	r.consume("bank", "charge", protect, func(*message.Message) ([]*message.Message, error) { charged.Add(1); return nil, nil })
	r.consume("post", "mail", protect, func(*message.Message) ([]*message.Message, error) { mailed.Add(1); return nil, nil })
	r.run()
	r.publish(order("1", "5"), order("1", "5"))
	r.awaitAcks(4)
	assert.EqualValues(t, 1, charged.Load())
	assert.EqualValues(t, 1, mailed.Load())
	r.engine.WantRuns("DO charge", 1)
	r.engine.WantReplays("DO charge", 1)
	r.engine.WantRuns("DO mail", 1)
}

// Competing consumers that fail and panic, copies of messages, acknowledgements that are lost: the redelivery of a failed message
// runs, and no other.
func testStorm(t *testing.T, l link) {
	const messages, workers = 300, 3
	r := newRig(t, l, "shop")
	protect := r.protect(watermillidem.Config{Policy: core.TaskPolicy{Name: "charge"}})
	errLost := errors.New("the acknowledgement is lost")
	lossy := func(next message.HandlerFunc) message.HandlerFunc {
		protected := protect(next)
		return func(msg *message.Message) ([]*message.Message, error) {
			produced, err := protected(msg)
			if err == nil && rand.IntN(5) == 0 {
				return nil, errLost
			}
			return produced, err
		}
	}
	for i := range workers {
		r.consume("shop", fmt.Sprint("worker ", i), lossy, func(msg *message.Message) ([]*message.Message, error) {
			switch rand.IntN(10) {
			case 0, 1:
				return nil, errCard
			case 2:
				panic("a bug")
			case 3:
				time.Sleep(time.Millisecond)
			}
			r.effect(msg)
			return []*message.Message{receipt(msg, "paid "+string(msg.Payload))}, nil
		})
	}
	r.run()
	ledger, published := map[string]int{}, 0
	for i := range messages {
		uuid := fmt.Sprint(i)
		ledger[uuid] = 1
		for range 1 + rand.IntN(2) {
			r.publish(order(uuid, uuid+" euros"))
			published++
		}
	}
	acks := published * l.copies(workers)
	r.awaitAcks(acks)
	r.awaitOuts(acks)
	r.want(ledger, acks, len(r.errs))
	assert.Len(t, r.outs, acks, "each acknowledged delivery has produced")
	for _, m := range r.outs {
		assert.Equal(t, "paid "+m.Metadata.Get("order")+" euros", string(m.Payload))
	}
	assert.Empty(t, r.poisons)
}
