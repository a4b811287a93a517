package amqpidem

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/memstore"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/internal/backend"
)

// BenchmarkConsumer sets consumers of distinct messages, whose function does nothing, beside a bare one that
// acknowledges each message. All of them have the same prefetch. The queue is full before a
// consumer begins, and each message must have been counted once, by an id of its own, when it ends.
func BenchmarkConsumer(b *testing.B) {
	const prefetch, concurrency = 256, 64
	url := backend.AMQP(b)
	bare := func(b *testing.B, t Topology, handled func(*amqp.Delivery)) (start func(), stop func()) {
		conn := must(amqp.Dial(url))
		ch := must(conn.Channel())
		require.NoError(b, ch.Qos(prefetch, 0, false))
		return func() {
			deliveries := must(ch.Consume(t.Queue, "", false, false, false, false, nil))
			go func() {
				for d := range deliveries {
					if d.Ack(false) == nil {
						handled(&d)
					}
				}
			}()
		}, func() { _ = conn.Close() }
	}
	with := func(store store.Store) func(*testing.B, Topology, func(*amqp.Delivery)) (func(), func()) {
		return func(b *testing.B, t Topology, handled func(*amqp.Delivery)) (start func(), stop func()) {
			publisher := must(NewPublisher(PublisherConfig{URL: url}))
			engine := core.MustNew(core.Config{Store: store, Service: rand.Text()})
			h := must(NewHandler(Config{
				Task: engine.MustTask(core.TaskPolicy{Name: "bench", Duplicate: core.Reject(""),
					Record: core.Record{Retention: time.Minute}}),
				Topology:  t,
				Publisher: publisher,
			}, func(_ context.Context, d *amqp.Delivery) error {
				handled(d)
				return nil
			}))
			c := must(NewConsumer(h, ConsumerConfig{URL: url, Prefetch: prefetch, Concurrency: concurrency}))
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			return func() { go func() { ended <- c.Run(ctx) }() }, func() {
				cancel()
				require.NoError(b, <-ended)
				require.NoError(b, publisher.Close(context.Background()))
			}
		}
	}
	redis := must(redisstore.NewURL(backend.Redis(b), redisstore.Config{}))
	defer redis.Close()
	memory := must(memstore.New(memstore.Config{}))

	for kind, name := range []string{Quorum: "quorum", Classic: "classic"} {
		for _, bench := range []struct {
			name    string
			prepare func(*testing.B, Topology, func(*amqp.Delivery)) (start, stop func())
		}{
			{"bare", bare},
			{"memory", with(memory)},
			{"redis", with(redis)},
		} {
			b.Run(name+"/"+bench.name, func(b *testing.B) {
				t := Topology{Queue: "idem-bench-" + rand.Text(), Type: QueueType(kind), Satellites: QueueType(kind),
					Delays: []time.Duration{time.Second}}
				conn := must(amqp.Dial(url))
				defer conn.Close()
				require.NoError(b, t.Declare(conn))
				ch := must(conn.Channel())
				defer func() {
					for _, name := range t.Queues() {
						must(ch.QueueDelete(name, false, false, false))
					}
				}()
				publisher := must(NewPublisher(PublisherConfig{URL: url}))
				body := make([]byte, 200)
				messages := make([]Message, b.N)
				for i := range messages {
					messages[i] = Message{Key: t.Queue, Publishing: amqp.Publishing{MessageId: fmt.Sprintf("m-%d", i), Body: body}}
				}
				require.NoError(b, publisher.Publish(context.Background(), messages...))
				require.NoError(b, publisher.Close(context.Background()))

				counts := make([]atomic.Int32, b.N)
				var handled atomic.Int64
				done := make(chan struct{})
				start, stop := bench.prepare(b, t, func(d *amqp.Delivery) {
					var i int
					if _, err := fmt.Sscanf(d.MessageId, "m-%d", &i); err == nil {
						counts[i].Add(1)
					}
					if handled.Add(1) == int64(b.N) {
						close(done)
					}
				})
				b.ResetTimer()
				start()
				<-done
				// … and acknowledged: the broker has nothing left.
				for must(ch.QueueDeclarePassive(t.Queue, true, false, false, false, nil)).Messages > 0 {
				}
				b.StopTimer()
				stop()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
				for i := range counts {
					if n := counts[i].Load(); n != 1 {
						b.Fatalf("message %d was handled %d times", i, n)
					}
				}
			})
		}
	}
}

// BenchmarkPublish sets the ways of sending a message beside one another, with 32 senders for each processor.
func BenchmarkPublish(b *testing.B) {
	p := must(NewPublisher(PublisherConfig{URL: backend.AMQP(b)}))
	defer p.Close(context.Background())
	for how, name := range []string{together: "together", alone: "alone", separated: "separated"} {
		b.Run(name, func(b *testing.B) {
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					m := Message{Key: "idem-bench-nowhere", Publishing: amqp.Publishing{Body: make([]byte, 200)}, Optional: true}
					s := batch{publisher: p, left: []*Message{&m}, refused: map[*Message]error{}, way: way(how)}
					if s.send(b.Context(), must(p.connected(b.Context()))); s.err != nil {
						b.Error(s.err)
					}
				}
			})
		})
	}
}

// BenchmarkUnconfirmed returns messages that can't be published, by the number in a call. The work is linear: ns/message grows with
// what the processor's caches no longer hold; quadratic work would make it grow a hundredfold.
func BenchmarkUnconfirmed(b *testing.B) {
	p := must(NewPublisher(PublisherConfig{URL: "amqp://"}))
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, n := range []int{1_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			messages := slices.Repeat([]Message{{Publishing: amqp.Publishing{MessageId: "1"}}}, n)
			for b.Loop() {
				if e, ok := errors.AsType[*PublishError](p.Publish(ended, messages...)); !ok || len(e.Unconfirmed) != n {
					b.Fatal("not all came back")
				}
			}
			b.ReportMetric(float64(b.Elapsed())/float64(b.N*n), "ns/message")
		})
	}
}
