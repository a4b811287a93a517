package benchmarks

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/otelidem"
	"github.com/idem-go/idem/promidem"
)

// BenchmarkObservers is what it costs to be observed: a first call of a task and its replay, which are five events.
func BenchmarkObservers(b *testing.B) {
	for _, observed := range []struct {
		name string
		by   func(b *testing.B, c *core.Config)
	}{
		{"nobody", func(*testing.B, *core.Config) {}},
		{"nothing", func(_ *testing.B, c *core.Config) {
			c.Observe = func(context.Context, core.Event) {}
			c.ObserveStore = func(context.Context, string, time.Duration, error) {}
		}},
		{"promidem", func(b *testing.B, c *core.Config) {
			m, err := promidem.New(promidem.Config{Registerer: prometheus.NewRegistry()})
			if err != nil {
				b.Fatal(err)
			}
			c.Observe, c.ObserveStore = m.Observe, m.ObserveStore
		}},
		{"otelidem", func(b *testing.B, c *core.Config) {
			t, err := otelidem.New(otelidem.Config{MeterProvider: metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()))})
			if err != nil {
				b.Fatal(err)
			}
			c.Observe, c.ObserveStore = t.Observe, t.ObserveStore
		}},
	} {
		b.Run(observed.name, func(b *testing.B) {
			var c core.Config
			observed.by(b, &c)
			task := core.MustNew(c).MustTask(core.TaskPolicy{Name: "receipt"})
			keys, runs := newClientKeys(b.N), 0
			run := func(context.Context) ([]byte, error) { runs++; return nil, nil }
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				call := core.Call{Key: keys.at(i)}
				for replay := range 2 {
					if r, err := core.Do(b.Context(), task, call, run); err != nil || r.Replayed != (replay == 1) {
						b.Fatalf("%+v, %v", r, err)
					}
				}
			}
			b.StopTimer()
			if runs != b.N {
				b.Fatalf("%d runs of %d operations", runs, b.N)
			}
		})
	}
}
