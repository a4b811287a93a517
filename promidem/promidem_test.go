package promidem_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store/memstore"
	"github.com/idem-go/idem/promidem"
)

func Example() {
	records, err := memstore.New(memstore.Config{})
	if err != nil {
		panic(err)
	}
	registry := prometheus.NewRegistry()
	metrics, err := promidem.New(promidem.Config{Registerer: registry, Records: records.Len})
	if err != nil {
		panic(err)
	}
	engine := core.MustNew(core.Config{Store: records, Observe: metrics.Observe, ObserveStore: metrics.ObserveStore})
	receipts := engine.MustTask(core.TaskPolicy{Name: "receipt"})
	for range 3 {
		_, _ = core.Do(context.Background(), receipts, core.Call{Key: "o-1"}, func(context.Context) (string, error) { return "sent", nil })
	}

	families, err := registry.Gather()
	if err != nil {
		panic(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if c := m.GetCounter(); c != nil {
				fmt.Println(f.GetName(), m.GetLabel()[2].GetValue(), c.GetValue())
			}
		}
	}
	// Output:
	// idem_operations_total completed 1
	// idem_operations_total replayed 2
}

// What is registered in part is of no use, and in the way of the next try.
func TestMetricsAreRegisteredOnce(t *testing.T) {
	registry := prometheus.NewRegistry()
	taken := prometheus.NewGauge(prometheus.GaugeOpts{Name: "idem_records", Help: "Records that the store holds."})
	require.NoError(t, registry.Register(taken))
	_, err := promidem.New(promidem.Config{Registerer: registry, Records: func() int { return 1 }})
	require.ErrorAs(t, err, new(prometheus.AlreadyRegisteredError))

	registry.Unregister(taken)
	_, err = promidem.New(promidem.Config{Registerer: registry, Records: func() int { return 1 }})
	require.NoError(t, err)
	_, err = promidem.New(promidem.Config{Registerer: registry})
	require.ErrorAs(t, err, new(prometheus.AlreadyRegisteredError))

	defer func(r prometheus.Registerer) { prometheus.DefaultRegisterer = r }(prometheus.DefaultRegisterer)
	prometheus.DefaultRegisterer = prometheus.NewRegistry()
	_, err = promidem.New(promidem.Config{})
	require.NoError(t, err)
	_, err = promidem.New(promidem.Config{})
	require.ErrorAs(t, err, new(prometheus.AlreadyRegisteredError), "the default registerer has them")
}
