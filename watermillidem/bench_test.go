package watermillidem_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/watermillidem"
)

// BenchmarkConsumer is a message's way through a Router on the Go channel, at most 64 at once, to a handler
// that does nothing: bare, run once, and a duplicate of what is done. Without a broker in it, the
// difference is at its largest.
func BenchmarkConsumer(b *testing.B) {
	payload := message.Payload(`{"order":"o-1","text":"` + strings.Repeat("x", 175) + `"}`) // 200 bytes
	for _, c := range []struct {
		name      string
		protected bool
		uuid      func(i int) string
		runs      func(n int) int64
	}{
		{"bare", false, strconv.Itoa, func(n int) int64 { return int64(n) }},
		{"first", true, strconv.Itoa, func(n int) int64 { return int64(n) }},
		{"duplicate", true, func(int) string { return "one" }, func(int) int64 { return 1 }},
	} {
		b.Run(c.name, func(b *testing.B) {
			var refused, replayed atomic.Int64
			engine := core.MustNew(core.Config{Observe: func(_ context.Context, e core.Event) {
				switch e.Kind {
				case core.Refused:
					refused.Add(1)
				case core.Replayed:
					replayed.Add(1)
				}
			}})
			broker := gochannel.NewGoChannel(gochannel.Config{}, nil)
			router := message.NewDefaultRouter(nil)
			slots := make(chan struct{}, 64)
			var acknowledged sync.WaitGroup
			var runs atomic.Int64
			handler := router.AddConsumerHandler("charge", "orders", broker, func(*message.Message) error {
				runs.Add(1)
				return nil
			})
			handler.AddMiddleware(func(next message.HandlerFunc) message.HandlerFunc {
				return func(msg *message.Message) ([]*message.Message, error) {
					produced, err := next(msg)
					if err == nil {
						<-slots
						acknowledged.Done()
					}
					return produced, err
				}
			})
			if c.protected {
				handler.AddMiddleware(watermillidem.MustNew(engine, watermillidem.Config{}))
			}
			go func() { _ = router.Run(context.Background()) }()
			<-router.Running()
			publish := func(uuid string) {
				slots <- struct{}{}
				acknowledged.Add(1)
				if err := broker.Publish("orders", message.NewMessage(uuid, payload)); err != nil {
					b.Error(err)
				}
			}
			if c.name == "duplicate" {
				publish("one")
				acknowledged.Wait() // none of them meets with it running
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				publish(c.uuid(i))
			}
			acknowledged.Wait()
			b.StopTimer()
			if err := router.Close(); err != nil {
				b.Fatal(err)
			}
			want := int64(0)
			if c.name == "duplicate" {
				want = int64(b.N)
			}
			if runs.Load() != c.runs(b.N) || replayed.Load() != want || refused.Load() != 0 {
				b.Fatalf("%d messages: %d runs, %d replays, %d refusals", b.N, runs.Load(), replayed.Load(), refused.Load())
			}
		})
	}
}
