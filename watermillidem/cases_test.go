package watermillidem_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/idemtest"
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
	{"a duplicate produces nothing under Reject", testReject},
	{"what could not be published is published by the redelivery", testPublishFails},
	{"the redelivery of a failed message runs, where the Deduplicator loses it", testFailure},
	{"the redelivery after a panic runs", testPanic},
	{"an abandoned run is taken over", testTakeover},
	{"an uncertain message is poisoned", testUncertain},
	{"a UUID with another payload is poisoned", testKeyReused},
	{"a message without a UUID is poisoned", testNoUUID},
	{"a duplicate is poisoned when what was produced could not be kept", testUnavailable},
	{"a duplicate of a running message is refused until that is done", testRunning},
	{"a message comes again until the store can be reached", testStoreDown},
	{"two consumers of a topic each run", testTwoConsumers},
	{"a thousand messages each take effect once", testStorm},
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

func testReject(t *testing.T, l link) {
	r := newRig(t, l, "shop")
	r.consume("shop", "charge", r.protect(watermillidem.Config{Policy: core.TaskPolicy{Duplicate: core.Reject("")}}),
		func(msg *message.Message) ([]*message.Message, error) {
			r.effect(msg)
			return []*message.Message{receipt(msg, "paid")}, nil
		})
	r.run()
	r.publish(order("1", "5"))
	r.awaitOuts(1)
	r.publish(order("1", "5"))
	r.awaitAcks(2)
	r.publish(order("2", "5"))
	r.awaitOuts(2)
	r.want(map[string]int{"1": 1, "2": 1}, 3, 0)
	assert.Equal(t, []string{"receipt-of-1", "receipt-of-2"}, r.outUUIDs())
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

// The same handler and the same message, once behind each of the two.
func testFailure(t *testing.T, l link) {
	for _, c := range []struct {
		name    string
		protect func(*rig) message.HandlerMiddleware
		runs    int64
		ledger  map[string]int
	}{
		{"idem", func(r *rig) message.HandlerMiddleware { return r.protect(watermillidem.Config{}) }, 3, map[string]int{"1": 1}},
		// It has marked the message before the first run: the redelivery is acknowledged, and nobody has charged.
		{"Deduplicator", func(*rig) message.HandlerMiddleware { return new(middleware.Deduplicator).Middleware }, 1, map[string]int{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, l, "shop")
			var runs atomic.Int64
			r.consume("shop", "charge", c.protect(r), func(msg *message.Message) ([]*message.Message, error) {
				if runs.Add(1) <= 2 {
					return nil, errCard
				}
				r.effect(msg)
				return nil, nil
			})
			r.run()
			r.publish(order("1", "5"))
			r.awaitAcks(1)
			assert.Equal(t, c.runs, runs.Load())
			r.want(c.ledger, 1, min(2, int(c.runs)))
			for _, err := range r.errs {
				assert.Equal(t, errCard, err, "it is the handler's own")
			}
			assert.Empty(t, r.poisons)
		})
	}
}

func testPanic(t *testing.T, l link) {
	r := newRig(t, l, "shop")
	var runs atomic.Int64
	r.consume("shop", "charge", r.protect(watermillidem.Config{}), func(msg *message.Message) ([]*message.Message, error) {
		if runs.Add(1) == 1 {
			panic("a nil map")
		}
		r.effect(msg)
		return nil, nil
	})
	r.run()
	r.publish(order("1", "5"))
	r.awaitAcks(1)
	r.want(map[string]int{"1": 1}, 1, 1)
	assert.ErrorContains(t, r.errs[0], "a nil map")
}

func testTakeover(t *testing.T, l link) {
	r := newRig(t, l, "shop")
	var attempts []uint64 // one delivery after the other
	r.consume("shop", "charge", r.protect(watermillidem.Config{Policy: core.TaskPolicy{Record: core.Record{OnFailure: core.Abandon}}}),
		func(msg *message.Message) ([]*message.Message, error) {
			attempts = append(attempts, core.RunFrom(msg.Context()).Attempt())
			if len(attempts) < 3 {
				return nil, errCard
			}
			r.effect(msg)
			return nil, nil
		})
	r.run()
	r.publish(order("1", "5"))
	r.awaitAcks(1)
	r.want(map[string]int{"1": 1}, 1, 2)
	assert.Equal(t, []uint64{1, 2, 3}, attempts)
}

func testUncertain(t *testing.T, l link) {
	r := newRig(t, l, "shop")
	r.consume("shop", "charge", r.protect(watermillidem.Config{Policy: core.TaskPolicy{Record: core.Record{Abandoned: core.Uncertain(nil)}}}),
		func(msg *message.Message) ([]*message.Message, error) {
			r.effect(msg)
			if msg.UUID == "1" {
				core.RunFrom(msg.Context()).Abandon() // the bank has not answered
				return nil, errCard
			}
			return nil, nil
		})
	r.run()
	r.publish(order("1", "5"), order("2", "6"))
	r.awaitPoison("1", core.CodeUncertain)
	r.awaitAcks(2)
	r.want(map[string]int{"1": 1, "2": 1}, 2, 1)
}

func testKeyReused(t *testing.T, l link) {
	r := newRig(t, l, "shop")
	r.consume("shop", "charge", r.protect(watermillidem.Config{Metadata: []string{"tenant"}}), func(msg *message.Message) ([]*message.Message, error) {
		r.effect(msg)
		return []*message.Message{receipt(msg, "paid")}, nil
	})
	r.run()
	r.publish(order("1", "5 to bob"))
	r.awaitOuts(1)
	r.publish(order("1", "700 to eve"))
	r.awaitPoison("1", core.CodeKeyReused)
	r.publish(order("1", "5 to bob"), order("2", "6 to bob"))
	r.awaitOuts(3)
	r.want(map[string]int{"1": 1, "2": 1}, 4, 0)
	assert.ElementsMatch(t, []string{"receipt-of-1", "receipt-of-1", "receipt-of-2"}, r.outUUIDs())
}

func testNoUUID(t *testing.T, l link) {
	r := newRig(t, l, "shop")
	r.consume("shop", "charge", r.protect(watermillidem.Config{}), func(msg *message.Message) ([]*message.Message, error) {
		r.effect(msg)
		return nil, nil
	})
	r.run()
	r.publish(order("", "5"))
	r.awaitPoison("", core.CodeKeyMissing)
	r.awaitAcks(1) // the poison is there before its delivery is acknowledged
	r.want(map[string]int{}, 1, 0)
}

func testUnavailable(t *testing.T, l link) {
	r := newRig(t, l, "shop")
	r.consume("shop", "charge", r.protect(watermillidem.Config{Policy: core.TaskPolicy{ResultLimit: 300}}),
		func(msg *message.Message) ([]*message.Message, error) {
			r.effect(msg)
			return []*message.Message{receipt(msg, string(msg.Payload))}, nil
		})
	r.run()
	small, large := order("1", strings.Repeat("s", 30)), order("2", strings.Repeat("l", 300))
	r.publish(small, large)
	r.awaitOuts(2)
	r.publish(small, large)
	r.awaitPoison("2", core.CodeResultUnavailable)
	r.awaitOuts(3)
	r.awaitAcks(4)
	r.want(map[string]int{"1": 1, "2": 1}, 4, 0)
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
		assert.ErrorIs(t, err, core.CodeInProgress)
		assert.True(t, watermillidem.Temporary(err))
	}
	assert.Empty(t, r.poisons)
}

func testStoreDown(t *testing.T, l link) {
	r := newRig(t, l, "shop")
	r.consume("shop", "charge", r.protect(watermillidem.Config{}), func(msg *message.Message) ([]*message.Message, error) {
		r.effect(msg)
		return []*message.Message{receipt(msg, "paid")}, nil
	})
	r.engine.Fail(idemtest.Acquire)
	r.run()
	r.publish(order("1", "5"), order("2", "6"))
	r.await("refusals", func() bool { return len(r.errs) >= 3 })
	r.engine.Fail()
	r.awaitOuts(2)
	r.want(map[string]int{"1": 1, "2": 1}, 2, len(r.errs))
	for _, err := range r.errs {
		assert.ErrorIs(t, err, core.CodeStoreUnavailable)
		assert.ErrorIs(t, err, idemtest.ErrFailing)
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

// Competing consumers that fail and panic, copies of messages, acknowledgements that are lost.
func testStorm(t *testing.T, l link) {
	const messages, workers = 1000, 3
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var mu sync.Mutex
	chance := func(p float64) bool {
		mu.Lock()
		defer mu.Unlock()
		return random.Float64() < p
	}

	r := newRig(t, l, "shop")
	errLost := errors.New("the acknowledgement is lost")
	protect := r.protect(watermillidem.Config{Policy: core.TaskPolicy{Name: "charge"}})
	lossy := func(next message.HandlerFunc) message.HandlerFunc {
		protected := protect(next)
		return func(msg *message.Message) ([]*message.Message, error) {
			produced, err := protected(msg)
			if err == nil && chance(0.2) {
				return nil, errLost
			}
			return produced, err
		}
	}
	for i := range workers {
		r.consume("shop", fmt.Sprint("worker ", i), lossy, func(msg *message.Message) ([]*message.Message, error) {
			if chance(0.3) {
				time.Sleep(time.Millisecond)
			}
			switch {
			case chance(0.2):
				return nil, errCard
			case chance(0.05):
				panic("a bug")
			}
			r.effect(msg)
			return []*message.Message{receipt(msg, "paid "+string(msg.Payload))}, nil
		})
	}
	r.run()
	published := 0
	for i := range messages {
		m := order(fmt.Sprint(i), fmt.Sprint(i, " euros"))
		copies := 1
		for chance(0.2) {
			copies++
		}
		for range copies {
			r.publish(m)
		}
		published += copies
	}
	acks := published * l.copies(workers)
	r.awaitAcks(acks)
	r.awaitOuts(acks)

	r.mu.Lock()
	defer r.mu.Unlock()
	assert.Equal(t, acks, r.acks)
	require.Len(t, r.ledger, messages)
	for uuid, n := range r.ledger {
		assert.Equal(t, 1, n, uuid)
	}
	outs := make(map[string]int)
	for _, m := range r.outs {
		outs[m.UUID]++
		assert.Equal(t, "paid "+m.Metadata.Get("order")+" euros", string(m.Payload))
	}
	assert.Len(t, outs, messages)
	assert.Len(t, r.outs, acks, "each acknowledged delivery has produced")
	assert.Empty(t, r.poisons)

	var lost, failed, running int
	for _, err := range r.errs {
		switch {
		case errors.Is(err, errLost):
			lost++
		case errors.Is(err, core.CodeInProgress):
			running++
		default:
			failed++
		}
	}
	assert.Greater(t, lost, 100)
	assert.Greater(t, failed, 100)
	t.Logf("%d published, %d deliveries: %d acknowledged, %d acknowledgements lost, %d failed, %d refused as running",
		published, acks+len(r.errs), acks, lost, failed, running)
}
