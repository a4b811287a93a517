// Package promidem exports what an engine does as metrics for Prometheus:
//
//	metrics, err := promidem.New(promidem.Config{})
//	if err != nil {
//		return err
//	}
//	engine, err := core.New(core.Config{Observe: metrics.Observe, ObserveStore: metrics.ObserveStore})
//
// The metrics are
//
//   - idem_operations_total, a counter: requests and calls of tasks by idem_policy, http_request_method, http_route and
//     idem_outcome (see [measure.Measurement]).
//   - idem_running, a gauge: handlers that run now under a claim, by policy, method and route.
//   - idem_unsettled, a gauge: runs that have ended and been answered, and whose records the store has not taken yet
//     ([core.Unsettled]), by policy, method and route. Their results are in this process only.
//   - idem_run_duration_seconds, a histogram: from the claim until the handler has returned, by policy, method and route.
//   - idem_wait_duration_seconds, a histogram: how long duplicates have waited for a run, by policy, method and route.
//   - idem_store_call_duration_seconds, a histogram: by idem_store_call ("acquire", "renew", "complete", "release",
//     "abandon", "checkpoint", "fail"), and error_type ("timeout", "full", "_OTHER") if the call has failed.
//   - idem_records, a gauge, if [Config].Records is set.
//
// They are those of package otelidem, named as OpenTelemetry names its metrics for Prometheus. No label holds a key or a user.
// The files dashboard.json (Grafana) and alerts.yaml (Prometheus) are in this folder.
package promidem

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/measure"
)

// Config configures [New]. The zero Config is ready to use.
type Config struct {
	// Registerer is where the metrics are registered. Nil: [prometheus.DefaultRegisterer].
	Registerer prometheus.Registerer
	// Records returns how many records the store holds; it is called at each scrape. memstore's Len is such a function. Other
	// stores can't tell cheaply. Nil: there is no such gauge.
	Records func() int
}

// Metrics are the metrics of one engine, or of several together. They are safe for concurrent use.
type Metrics struct {
	operations            *prometheus.CounterVec
	running, unsettled    *prometheus.GaugeVec
	ran, waited, answered *prometheus.HistogramVec
}

// New registers the metrics. The error says which can't be: they are there already, say. Engines in one process may share
// Metrics, or have each a Registerer with a label of its own ([prometheus.WrapRegistererWith]).
func New(c Config) (*Metrics, error) {
	labels := []string{"idem_policy", "http_request_method", "http_route"}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: measure.Buckets}, labels)
	}
	m := &Metrics{
		operations: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "idem_operations_total",
			Help: "Requests and calls of tasks, by how they have ended."}, append(labels, "idem_outcome")),
		running: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "idem_running", Help: "Handlers that run now."}, labels),
		unsettled: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "idem_unsettled",
			Help: "Runs that have been answered, and whose records the store has not taken yet."}, labels),
		ran:    histogram("idem_run_duration_seconds", "Time from the claim until the handler had returned.", labels...),
		waited: histogram("idem_wait_duration_seconds", "Time for which duplicates have waited for a run.", labels...),
		answered: histogram("idem_store_call_duration_seconds", "Time that calls of the store have taken.",
			"idem_store_call", "error_type"),
	}
	all := []prometheus.Collector{m.operations, m.running, m.unsettled, m.ran, m.waited, m.answered}
	if c.Records != nil {
		all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "idem_records", Help: "Records that the store holds."},
			func() float64 { return float64(c.Records()) }))
	}
	to := cmp.Or(c.Registerer, prometheus.DefaultRegisterer)
	for i, collector := range all {
		if err := to.Register(collector); err != nil {
			for _, registered := range all[:i] {
				to.Unregister(registered)
			}
			return nil, fmt.Errorf("promidem: %w", err)
		}
	}
	return m, nil
}

// Observe is for [core.Config].Observe.
func (m *Metrics) Observe(_ context.Context, e core.Event) {
	v := measure.Of(e)
	policy, method, route := v.Labels.Policy, v.Labels.Method, v.Labels.Route
	if v.Running != 0 {
		m.running.WithLabelValues(policy, method, route).Add(float64(v.Running))
	}
	if v.Unsettled != 0 {
		m.unsettled.WithLabelValues(policy, method, route).Add(float64(v.Unsettled))
	}
	if v.Running < 0 {
		m.ran.WithLabelValues(policy, method, route).Observe(v.Ran.Seconds())
	}
	if v.Waited > 0 {
		m.waited.WithLabelValues(policy, method, route).Observe(v.Waited.Seconds())
	}
	if v.Outcome != "" {
		m.operations.WithLabelValues(policy, method, route, v.Outcome).Inc()
	}
}

// ObserveStore is for [core.Config].ObserveStore.
func (m *Metrics) ObserveStore(_ context.Context, call string, took time.Duration, err error) {
	m.answered.WithLabelValues(call, measure.ErrorType(err)).Observe(took.Seconds())
}
