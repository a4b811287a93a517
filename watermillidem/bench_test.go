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

// BenchmarkConsumer is a message's way through a Router on the Go channel, at most 64 at once, to a handler that does
// nothing: bare, run once, and a duplicate of what is done. Without a broker in it, the difference is at its largest.
func BenchmarkConsumer(b *testing.B) {
	payload := message.Payload(`{"order":"o-1","text":"` + strings.Repeat("x", 175) + `"}`) // 200 bytes
	for _, kind := range []string{"bare", "first", "duplicate"} {
		b.Run(kind, func(b *testing.B) {
			var runs, replays atomic.Int64
			engine := core.MustNew(core.Config{Observe: func(_ context.Context, e core.Event) {
				if e.Kind == core.Replayed {
					replays.Add(1)
				}
			}})
			broker, router := gochannel.NewGoChannel(gochannel.Config{}, nil), message.NewDefaultRouter(nil)
			slots := make(chan struct{}, 64)
			var acknowledged sync.WaitGroup
			handler := router.AddConsumerHandler("charge", "orders", broker, func(*message.Message) error { runs.Add(1); return nil })
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
			if kind != "bare" {
				handler.AddMiddleware(watermillidem.MustNew(engine, watermillidem.Config{}))
			}
			go func() { _ = router.Run(context.Background()) }()
			<-router.Running()
			publish := func(i int) {
				slots <- struct{}{}
				acknowledged.Add(1)
				if err := broker.Publish("orders", message.NewMessage(strconv.Itoa(i), payload)); err != nil {
					b.Error(err)
				}
			}
			want := [2]int64{int64(b.N), 0} // runs, replays
			if kind == "duplicate" {
				want = [2]int64{1, int64(b.N)}
				publish(0)
				acknowledged.Wait() // none of them meets with it running
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				if kind == "duplicate" {
					i = 0
				}
				publish(i)
			}
			acknowledged.Wait()
			b.StopTimer()
			if err := router.Close(); err != nil {
				b.Fatal(err)
			}
			if got := [2]int64{runs.Load(), replays.Load()}; got != want {
				b.Fatalf("%d messages: %d runs and replays, not %d", b.N, got, want)
			}
		})
	}
}
