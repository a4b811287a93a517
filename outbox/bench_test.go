package outbox_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/outbox"
)

// BenchmarkOutbox measures the two halves one after the other: transactions that write one message
// each, by four writers at once, and the relay, which sends them all to a broker that confirms at
// once.
func BenchmarkOutbox(b *testing.B) {
	for _, e := range []engine{engines[0], engines[2]} {
		for _, keys := range []int{1, 1000} {
			b.Run(fmt.Sprintf("%s/keys=%d", e.name, keys), func(b *testing.B) {
				f := fresh(b, e.url(b), outbox.Config{})
				body := make([]byte, 200)
				begun := time.Now()
				var writers sync.WaitGroup
				for w := range 4 {
					writers.Go(func() {
						for i := w; i < b.N; i += 4 {
							assert.NoError(b, f.tryWrite(outbox.Message{Key: fmt.Sprint(i % keys), Topic: "bench", Body: body}))
						}
					})
				}
				writers.Wait()
				wrote := time.Since(begun)

				ctx, cancel := context.WithCancel(b.Context())
				ids := make(map[string]bool, b.N)
				relay, err := f.NewRelay(outbox.PublisherFunc(func(_ context.Context, messages []outbox.Message) error {
					for _, m := range messages {
						ids[m.ID] = true
					}
					if len(ids) == b.N {
						cancel()
					}
					return nil
				}), outbox.RelayConfig{})
				require.NoError(b, err)
				b.ResetTimer()
				require.NoError(b, relay.Run(ctx))
				b.StopTimer()

				// The workload: as many messages as rows, and all of them are marked.
				require.Len(b, ids, b.N)
				require.Equal(b, outbox.Stats{}, f.stats())
				var sent int
				require.NoError(b, f.db.QueryRow("SELECT COUNT(*) FROM "+f.table+" WHERE state = 2").Scan(&sent))
				require.Equal(b, b.N, sent)
				b.ReportMetric(float64(b.N)/wrote.Seconds(), "written/s")
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "sent/s")
			})
		}
	}
}
