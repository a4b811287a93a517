// Package otelidem tells OpenTelemetry what an engine does:
//
//	telemetry, err := otelidem.New(otelidem.Config{})
//	if err != nil {
//		return err
//	}
//	engine, err := core.New(core.Config{Observe: telemetry.Observe, ObserveStore: telemetry.ObserveStore, Remark: otelidem.Remark})
//
// The metrics are
//
//   - idem.operations, a counter: requests and calls of tasks by idem.policy, http.request.method, http.route and idem.outcome
//     (see [measure.Measurement]).
//   - idem.running, an up-down counter: handlers that run now under a claim, by policy, method and route.
//   - idem.unsettled, an up-down counter: runs that have ended and been answered, and whose records the store has not taken yet
//     ([core.Unsettled]), by policy, method and route. Their results are in this process only.
//   - idem.run.duration, a histogram in seconds: from the claim until the handler has returned, by policy, method and route.
//   - idem.wait.duration, a histogram in seconds: how long duplicates have waited for a run, by policy, method and route.
//   - idem.store.call.duration, a histogram in seconds: by idem.store.call ("acquire", "renew", "complete", "release",
//     "abandon", "checkpoint", "fail"), and error.type ("timeout", "full", "_OTHER") if the call has failed.
//   - idem.records, a gauge, if [Config].Records is set.
//
// Method and route are absent for tasks. They are those of package promidem. No attribute of a metric holds a key or a user.
//
// Each event is also an event of the span that its context has, if that is recorded: the server's span, which outer middleware has
// begun. Its name is the kind's, such as idem.replayed. It has the operation's id, its attempt and the digest of its key, as the log
// does, and the text of [core.Event].Err. With [Remark], a replay, and a duplicate that is refused, is linked to the span of the run
// that it is a duplicate of. The ending event of a run that is settled late ([core.Event].Late) comes when the server's span has ended:
// only the metrics have it.
package otelidem

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/measure"
	"github.com/idem-go/idem/core/store"
)

// Config configures [New]. The zero Config is ready to use.
type Config struct {
	// MeterProvider makes the instruments. Nil: the global one, also if that is set later.
	MeterProvider metric.MeterProvider
	// Records returns how many records the store holds; it is called at each collection. memstore's Len is such a function.
	// Other stores can't tell cheaply. Nil: there is no such gauge.
	Records func() int
}

// Telemetry is what one engine tells, or several together. It is safe for concurrent use.
type Telemetry struct {
	operations            metric.Int64Counter
	running, unsettled    metric.Int64UpDownCounter
	ran, waited, answered metric.Float64Histogram

	mu      sync.RWMutex
	options map[[4]string]*option // by the values of attributes
}

// option is a set of attributes, as the instruments take it.
type option struct {
	add    []metric.AddOption
	record []metric.RecordOption
}

const scope = "github.com/idem-go/idem/otelidem"

// New makes the instruments. The error is the provider's.
func New(c Config) (*Telemetry, error) {
	if c.MeterProvider == nil {
		c.MeterProvider = otel.GetMeterProvider()
	}
	meter := c.MeterProvider.Meter(scope)
	t := &Telemetry{options: map[[4]string]*option{}}
	var errs [7]error
	histogram := func(name, about string) (metric.Float64Histogram, error) {
		return meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(about),
			metric.WithExplicitBucketBoundaries(measure.Buckets...))
	}
	t.operations, errs[0] = meter.Int64Counter("idem.operations", metric.WithUnit("{operation}"),
		metric.WithDescription("Requests and calls of tasks, by how they have ended."))
	t.running, errs[1] = meter.Int64UpDownCounter("idem.running", metric.WithUnit("{run}"),
		metric.WithDescription("Handlers that run now."))
	t.unsettled, errs[2] = meter.Int64UpDownCounter("idem.unsettled", metric.WithUnit("{run}"),
		metric.WithDescription("Runs that have been answered, and whose records the store has not taken yet."))
	t.ran, errs[3] = histogram("idem.run.duration", "Time from the claim until the handler had returned.")
	t.waited, errs[4] = histogram("idem.wait.duration", "Time for which duplicates have waited for a run.")
	t.answered, errs[5] = histogram("idem.store.call.duration", "Time that calls of the store have taken.")
	if c.Records != nil {
		_, errs[6] = meter.Int64ObservableGauge("idem.records", metric.WithUnit("{record}"),
			metric.WithDescription("Records that the store holds."),
			metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
				o.Observe(int64(c.Records()))
				return nil
			}))
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	return t, nil
}

// Observe is for [core.Config].Observe.
func (t *Telemetry) Observe(ctx context.Context, e core.Event) {
	v := measure.Of(e)
	if v.Outcome != "" {
		t.operations.Add(ctx, 1, t.of(v.Labels, v.Outcome).add...)
	}
	if v.Running != 0 || v.Unsettled != 0 || v.Waited > 0 {
		of := t.of(v.Labels, "")
		if v.Running != 0 {
			t.running.Add(ctx, int64(v.Running), of.add...)
		}
		if v.Unsettled != 0 {
			t.unsettled.Add(ctx, int64(v.Unsettled), of.add...)
		}
		if v.Running < 0 {
			t.ran.Record(ctx, v.Ran.Seconds(), of.record...)
		}
		if v.Waited > 0 {
			t.waited.Record(ctx, v.Waited.Seconds(), of.record...)
		}
	}
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		tell(span, &e)
	}
}

// ObserveStore is for [core.Config].ObserveStore.
func (t *Telemetry) ObserveStore(ctx context.Context, call string, took time.Duration, err error) {
	t.answered.Record(ctx, took.Seconds(), t.option([4]string{call, measure.ErrorType(err)}, "idem.store.call", "error.type").record...)
}

func (t *Telemetry) of(l measure.Labels, outcome string) *option {
	return t.option([4]string{l.Policy, l.Method, l.Route, outcome}, "idem.policy", "http.request.method", "http.route", "idem.outcome")
}

// option returns the attributes that are not empty. There are few, and to make them takes longer than the measurement.
func (t *Telemetry) option(values [4]string, names ...string) *option {
	t.mu.RLock()
	o := t.options[values]
	t.mu.RUnlock()
	if o != nil {
		return o
	}
	var attributes []attribute.KeyValue
	for i, name := range names {
		if values[i] != "" {
			attributes = append(attributes, attribute.String(name, values[i]))
		}
	}
	set := metric.WithAttributeSet(attribute.NewSet(attributes...))
	o = &option{[]metric.AddOption{set}, []metric.RecordOption{set}}
	t.mu.Lock()
	t.options[values] = o
	t.mu.Unlock()
	return o
}

// tell makes e an event of span.
func tell(span trace.Span, e *core.Event) {
	attributes := make([]attribute.KeyValue, 0, 10)
	add := func(name, value string) {
		if value != "" {
			attributes = append(attributes, attribute.String(name, value))
		}
	}
	add("idem.policy", e.Policy)
	if e.Key != (core.Key{}) {
		add("idem.key", e.Key.String())
	}
	if e.ID != (store.ID{}) {
		add("idem.operation", e.ID.String())
	}
	if e.Attempt > 0 {
		attributes = append(attributes, attribute.Int64("idem.attempt", int64(e.Attempt)))
	}
	if e.Takeover {
		attributes = append(attributes, attribute.Bool("idem.takeover", true))
	}
	if e.Waited > 0 {
		attributes = append(attributes, attribute.Float64("idem.waited", e.Waited.Seconds()))
	}
	add("idem.code", string(e.Code))
	add("idem.action", e.Action)
	if e.Err != nil {
		add("exception.message", e.Err.Error())
	}
	span.AddEvent("idem."+strings.ReplaceAll(e.Kind.String(), " ", "_"), trace.WithAttributes(attributes...))
	if run := parse(e.Remark); run.IsValid() {
		span.AddLink(trace.Link{SpanContext: run})
	}
}

// Remark is for [core.Config].Remark: the ids of the trace and the span that ctx has, in hexadecimal digits with a '-' between
// them. It is empty if there is none.
func Remark(ctx context.Context) string {
	span := trace.SpanContextFromContext(ctx)
	if !span.IsValid() {
		return ""
	}
	return span.TraceID().String() + "-" + span.SpanID().String()
}

// parse reads what Remark has made. The zero context is no valid one.
func parse(remark string) (c trace.SpanContext) {
	traced, spanned, _ := strings.Cut(remark, "-")
	id, err1 := trace.TraceIDFromHex(traced)
	span, err2 := trace.SpanIDFromHex(spanned)
	if err1 != nil || err2 != nil {
		return c
	}
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: span, Remote: true})
}
