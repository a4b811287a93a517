package otelidem_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/otelidem"
)

// TestSpansOfDuplicatesAreLinked: somebody who looks at the trace of a replay gets to that of the run.
func TestSpansOfDuplicatesAreLinked(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	tracer := trace.NewTracerProvider(trace.WithSpanProcessor(spans)).Tracer("test")
	telemetry, err := otelidem.New(otelidem.Config{})
	require.NoError(t, err)
	engine := core.MustNew(core.Config{Observe: telemetry.Observe, Remark: otelidem.Remark})
	charges := engine.MustTask(core.TaskPolicy{Name: "charge",
		Record: core.Record{OnFailure: core.Abandon, Abandoned: core.Uncertain(nil)}})
	var key, operation string
	charge := func(name, id string, fault error) {
		ctx, span := tracer.Start(t.Context(), name)
		defer span.End()
		_, _ = core.Do(ctx, charges, core.Call{Key: id}, func(ctx context.Context) (string, error) {
			key, operation = core.RunFrom(ctx).Key().String(), core.RunFrom(ctx).ID().String()
			return "ch_1", fault
		})
	}
	charge("run", "1", nil)
	charge("replay", "1", nil)
	charge("failure", "2", errors.New("no answer"))
	charge("refusal", "2", nil)

	ended := spans.Ended()
	require.Len(t, ended, 4)
	run, replay, failure, refusal := ended[0], ended[1], ended[2], ended[3]
	assert.Equal(t, []string{"idem.started", "idem.completed"}, names(run))
	assert.Equal(t, []string{"idem.replayed"}, names(replay))
	assert.Equal(t, []string{"idem.started", "idem.abandoned"}, names(failure))
	assert.Equal(t, []string{"idem.refused"}, names(refusal))

	assert.Contains(t, attributes(run.Events()[0]), "idem.attempt=1")
	assert.Empty(t, run.Links())
	for of, links := range map[trace.ReadOnlySpan][]trace.Link{run: replay.Links(), failure: refusal.Links()} {
		require.Len(t, links, 1)
		assert.Equal(t, of.SpanContext().TraceID(), links[0].SpanContext.TraceID())
		assert.Equal(t, of.SpanContext().SpanID(), links[0].SpanContext.SpanID())
		assert.True(t, links[0].SpanContext.IsRemote())
	}
	told := map[string]string{}
	for _, a := range refusal.Events()[0].Attributes {
		told[string(a.Key)] = a.Value.String()
	}
	assert.Equal(t, map[string]string{"idem.policy": "charge", "idem.key": key,
		"idem.operation": operation, "idem.code": "uncertain"}, told)
	last := failure.Events()[1].Attributes
	assert.Equal(t, "no answer", last[len(last)-1].Value.AsString())
}

func names(span trace.ReadOnlySpan) (names []string) {
	for _, e := range span.Events() {
		names = append(names, e.Name)
	}
	return names
}

// A remark may be a trace id alone, or anybody's own.
func TestRemarksOfOthersAreNoLinks(t *testing.T) {
	assert.Empty(t, otelidem.Remark(t.Context()))
	spans := tracetest.NewSpanRecorder()
	ctx, span := trace.NewTracerProvider(trace.WithSpanProcessor(spans)).Tracer("test").Start(t.Context(), "replay")
	telemetry, err := otelidem.New(otelidem.Config{})
	require.NoError(t, err)
	for _, remark := range []string{"", "order 7", "4bf92f3577b34da6a3ce929d0e0e4736", "4bf92f3577b34da6a3ce929d0e0e4736-",
		"00000000000000000000000000000000-00f067aa0ba902b7", "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"} {
		telemetry.Observe(ctx, core.Event{Kind: core.Replayed, Remark: remark})
	}
	telemetry.Observe(ctx, core.Event{Kind: core.LeaseLost, ID: store.ID{1}, Attempt: 2, Takeover: true, Waited: time.Second,
		Code: codes.InProgress, Action: "release"})
	span.End()
	assert.Empty(t, spans.Ended()[0].Links())
	assert.Equal(t, "idem.lease_lost", spans.Ended()[0].Events()[6].Name)
	assert.Equal(t, `[idem.operation=01000000000000000000000000000000 idem.attempt=2 idem.takeover=true `+
		`idem.waited=1 idem.code=in_progress idem.action=release]`,
		fmt.Sprint(attributes(spans.Ended()[0].Events()[6])))
}

func attributes(e trace.Event) (all []string) {
	for _, a := range e.Attributes {
		all = append(all, string(a.Key)+"="+a.Value.String())
	}
	return all
}

// The global provider may be set after the instruments were made.
func TestGlobalProvider(t *testing.T) {
	telemetry, err := otelidem.New(otelidem.Config{Records: func() int { return 7 }})
	require.NoError(t, err)
	reader := metric.NewManualReader()
	otel.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(reader)))
	telemetry.ObserveStore(t.Context(), "acquire", time.Second, context.DeadlineExceeded)
	var got metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &got))
	require.Len(t, got.ScopeMetrics, 1)
	assert.Equal(t, "github.com/idem-go/idem/otelidem", got.ScopeMetrics[0].Scope.Name)
	metrics := got.ScopeMetrics[0].Metrics // in any order
	slices.SortFunc(metrics, func(a, b metricdata.Metrics) int { return strings.Compare(a.Name, b.Name) })
	calls := metrics[1]
	assert.Equal(t, []string{"idem.store.call.duration", "s"}, []string{calls.Name, calls.Unit})
	set := calls.Data.(metricdata.Histogram[float64]).DataPoints[0].Attributes
	assert.Equal(t, `[{"Key":"error.type","Value":{"Type":"STRING","Value":"timeout"}},`+
		`{"Key":"idem.store.call","Value":{"Type":"STRING","Value":"acquire"}}]`, mustJSON(set.MarshalJSON()))
	assert.Equal(t, "idem.records", metrics[0].Name)
}

func mustJSON(text []byte, err error) string {
	if err != nil {
		return err.Error()
	}
	return string(text)
}
