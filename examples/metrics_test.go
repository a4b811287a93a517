package examples_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/memstore"
	"github.com/idem-go/idem/otelidem"
	"github.com/idem-go/idem/promidem"
)

// theMetricsAgree compares what a program has told Prometheus with its ledger.
func theMetricsAgree(c *client) {
	resp, err := c.http.Get(c.process.Metrics)
	require.NoError(c.t, err)
	defer resp.Body.Close()
	require.Equal(c.t, http.StatusOK, resp.StatusCode)
	p := expfmt.NewTextParser(model.LegacyValidation)
	families, err := p.TextToMetricFamilies(resp.Body)
	require.NoError(c.t, err)

	counted := map[string]int{}
	for _, m := range families["idem_operations_total"].GetMetric() {
		switch label(m, "idem_outcome") {
		case "completed", "released", "abandoned", "lost", "unfinished", "passed", "unprotected":
			counted[label(m, "idem_policy")] += int(m.GetCounter().GetValue())
		}
	}
	for _, gauge := range []string{"idem_running", "idem_unsettled"} {
		for _, m := range families[gauge].GetMetric() {
			counted[label(m, "idem_policy")] += int(m.GetGauge().GetValue())
		}
	}
	ledger := map[string]int{}
	for route, n := range c.executions() {
		policy, _, _ := strings.Cut(strings.TrimPrefix(route, "POST /"), "/")
		if strings.HasSuffix(route, "/pay") {
			policy = "pay"
		}
		ledger[policy] += n
	}
	require.Equal(c.t, ledger, counted)
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// TestBothExportersTellTheSame gives one engine's events to both, and compares what Prometheus gets of each.
func TestBothExportersTellTheSame(t *testing.T) {
	records, err := memstore.New(memstore.Config{MaxEntries: 3})
	require.NoError(t, err)
	own, theirs := prometheus.NewRegistry(), prometheus.NewRegistry()
	metrics, err := promidem.New(promidem.Config{Registerer: own, Records: records.Len})
	require.NoError(t, err)
	exporter, err := otelprom.New(otelprom.WithRegisterer(theirs), otelprom.WithoutScopeInfo(), otelprom.WithoutTargetInfo())
	require.NoError(t, err)
	meters := metric.NewMeterProvider(metric.WithReader(exporter))
	telemetry, err := otelidem.New(otelidem.Config{MeterProvider: meters, Records: records.Len})
	require.NoError(t, err)
	claims, duplicate := 0, make(chan struct{})
	engine := core.MustNew(core.Config{Store: records, User: core.SharedByAllCallers(),
		Observe: core.Observers(metrics.Observe, telemetry.Observe),
		ObserveStore: func(ctx context.Context, call string, took time.Duration, err error) {
			if call == "acquire" {
				if claims++; claims == 2 { // one after the other
					close(duplicate)
				}
			}
			metrics.ObserveStore(ctx, call, took, err)
			telemetry.ObserveStore(ctx, call, took, err)
		}})
	task := engine.MustTask(core.TaskPolicy{Name: "receipt", Duplicate: core.Wait(5 * time.Second)})
	do := func(key string, run func() error) {
		_, _ = core.Do(t.Context(), task, core.Call{Key: key}, func(context.Context) (int, error) { return 1, run() })
	}
	begun := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() { do("first", func() error { close(begun); <-duplicate; return nil }) })
	<-begun
	done.Go(func() { do("first", nil) })
	done.Wait()
	do("first", nil)
	do("second", func() error { return errors.New("failed") })
	for i := range 4 {
		do(fmt.Sprint(i), func() error { return nil })
	}
	for _, route := range []string{"POST /orders", "FOO /orders"} {
		for _, observe := range []func(context.Context, core.Event){metrics.Observe, telemetry.Observe} {
			for _, e := range []core.Event{
				{Kind: core.Refused, Code: codes.KeyReused, Waited: time.Second},
				{Kind: core.Started}, {Kind: core.Completed, Elapsed: time.Second},
				{Kind: core.Started}, {Kind: core.Unsettled, Elapsed: time.Second},
				{Kind: core.Completed, Elapsed: time.Second, Late: true},
				{Kind: core.Started}, {Kind: core.Unsettled, Elapsed: time.Second},
			} {
				e.Policy, e.Route = "orders", route
				observe(t.Context(), e)
			}
		}
	}

	want, got := text(t, own), text(t, theirs)
	require.Equal(t, want, got)
	for _, line := range []string{
		`idem_operations_total{http_request_method="",http_route="",idem_outcome="completed",idem_policy="receipt"} 3`,
		`idem_operations_total{http_request_method="_OTHER",http_route="/orders",idem_outcome="key_reused",idem_policy="orders"} 1`,
		`idem_running{http_request_method="",http_route="",idem_policy="receipt"} 0`,
		`idem_records 3`,
		`idem_store_call_duration_seconds_count{error_type="full",idem_store_call="acquire"} 2`,
		`idem_wait_duration_seconds_count{http_request_method="",http_route="",idem_policy="receipt"} 1`,
		`idem_operations_total{http_request_method="POST",http_route="/orders",idem_outcome="completed",idem_policy="orders"} 2`,
		`idem_running{http_request_method="POST",http_route="/orders",idem_policy="orders"} 0`,
		`idem_unsettled{http_request_method="POST",http_route="/orders",idem_policy="orders"} 1`,
		`idem_run_duration_seconds_sum{http_request_method="POST",http_route="/orders",idem_policy="orders"} 3`,
		`idem_wait_duration_seconds_sum{http_request_method="POST",http_route="/orders",idem_policy="orders"} 1`,
	} {
		require.Contains(t, want, line)
	}
}

// text is what Prometheus gets. To it, a label that is empty is one that is not there.
func text(t *testing.T, registry *prometheus.Registry) string {
	families, err := registry.Gather()
	require.NoError(t, err)
	var b strings.Builder
	for _, f := range families {
		names := []string{"http_request_method", "http_route", "idem_policy"}
		switch f.GetName() {
		case "idem_operations_total":
			names = append(names, "idem_outcome")
		case "idem_store_call_duration_seconds":
			names = []string{"error_type", "idem_store_call"}
		case "idem_records":
			names = nil
		}
		for _, m := range f.GetMetric() {
			for _, name := range names {
				if !slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool { return l.GetName() == name }) {
					m.Label = append(m.Label, &dto.LabelPair{Name: &name, Value: new(string)})
				}
			}
			slices.SortFunc(m.Label, func(a, b *dto.LabelPair) int { return cmp.Compare(a.GetName(), b.GetName()) })
		}
		slices.SortFunc(f.Metric, func(a, b *dto.Metric) int { return cmp.Compare(fmt.Sprint(a.Label), fmt.Sprint(b.Label)) })
		_, err := expfmt.MetricFamilyToText(&b, f)
		require.NoError(t, err)
	}
	return b.String()
}

// tape is what Prometheus has scraped.
type tape map[series]*reel

type series struct {
	instance string
	metric   model.Fingerprint
}

type reel struct {
	labels  labels.Labels
	samples []chunks.Sample
}

type sample struct {
	t int64
	f float64
}

// monitored is a service in traffic, and what Prometheus has scraped of it so far.
type monitored struct {
	*promidem.Metrics
	registry *prometheus.Registry
	tape     tape
	instance string
	now      time.Time
	away     bool // nothing is scraped
}

const scrapes = 15 * time.Second

// minute lets a minute pass, with ordinary traffic and what fault adds in each scrape.
func (s *monitored) minute(t *testing.T, fault func(*monitored)) {
	for range time.Minute / scrapes {
		for i := range 100 {
			s.handled(core.Completed, "", time.Duration(i)*time.Millisecond)
			s.called("acquire", 2*time.Millisecond, nil)
			s.called("complete", 2*time.Millisecond, nil)
		}
		for range 10 {
			s.handled(core.Replayed, "", 0)
			s.called("acquire", time.Millisecond, nil)
		}
		s.handled(core.Released, "", time.Millisecond)
		s.handled(core.Refused, codes.InProgress, 0)
		s.handled(core.Refused, codes.KeyReused, 0)
		s.Observe(t.Context(), core.Event{Kind: core.Replayed, Policy: "orders", Route: "POST /orders", Waited: time.Second})
		if fault != nil {
			fault(s)
		}
		s.now = s.now.Add(scrapes)
		s.scrape(t)
	}
}

func (s *monitored) handled(kind core.Kind, code codes.Code, took time.Duration) {
	e := core.Event{Kind: kind, Policy: "orders", Route: "POST /orders", Code: code, Elapsed: took}
	if took > 0 {
		s.Observe(context.Background(), core.Event{Kind: core.Started, Policy: e.Policy, Route: e.Route})
	}
	s.Observe(context.Background(), e)
}

func (s *monitored) called(call string, took time.Duration, err error) {
	s.ObserveStore(context.Background(), call, took, err)
}

func (s *monitored) scrape(t *testing.T) {
	if s.away {
		return
	}
	families, err := s.registry.Gather()
	require.NoError(t, err)
	vector, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{Timestamp: model.TimeFromUnixNano(s.now.UnixNano())}, families...)
	require.NoError(t, err)
	for _, v := range vector {
		id := series{s.instance, v.Metric.FastFingerprint()}
		r := s.tape[id]
		if r == nil {
			v.Metric["job"], v.Metric["instance"] = "shop", model.LabelValue(s.instance)
			b := labels.NewScratchBuilder(8)
			for name, value := range v.Metric {
				b.Add(string(name), string(value))
			}
			b.Sort()
			r = &reel{labels: b.Labels()}
			s.tape[id] = r
		}
		r.samples = append(r.samples, sample{int64(v.Timestamp), float64(v.Value)})
	}
}

// TestAlerts lets one thing go wrong in ordinary traffic, and sees which alerts fire.
func TestAlerts(t *testing.T) {
	rules := alertRules(t)
	alerts := map[string]bool{}
	once := func(do func(*monitored)) func(*monitored) {
		var done sync.Once
		return func(s *monitored) { done.Do(func() { do(s) }) }
	}
	ends := func(kind core.Kind, code codes.Code) func(*monitored) {
		return func(s *monitored) { s.handled(kind, code, 0) }
	}
	calls := func(n int, call string, took time.Duration, err error) func(*monitored) {
		return func(s *monitored) {
			for range n {
				s.called(call, took, err)
			}
		}
	}
	refusals := func(code codes.Code) func(*monitored) {
		return func(s *monitored) {
			for range 50 {
				s.handled(core.Refused, code, 0)
			}
		}
	}
	scraped := 0
	for name, tc := range map[string]struct {
		fault func(*monitored)
		fire  []string
	}{
		"nothing":             {},
		"refusals of clients": {ends(core.Refused, codes.KeyMissing), nil},
		"lost leases":         {calls(10, "renew", 0, store.ErrLost), nil},
		"the store times out": {calls(5, "renew", 0, context.DeadlineExceeded), []string{"IdemStoreFails"}},
		"the store is gone":   {calls(5, "acquire", 0, errors.New("refused")), []string{"IdemStoreFails"}},
		"one is unsettled":    {once(ends(core.Unsettled, "")), []string{"IdemUnsettled"}},
		"one is settled late": {func(s *monitored) {
			switch scraped++; scraped {
			case 1:
				s.handled(core.Unsettled, "", time.Second)
			case 6: // in the next minute
				s.Observe(t.Context(), core.Event{Kind: core.Completed, Policy: "orders", Route: "POST /orders", Late: true})
			}
		}, nil},
		"the store is full, once":  {once(calls(1, "acquire", 0, store.ErrFull)), []string{"IdemStoreIsFull"}},
		"the store is slow":        {calls(5, "complete", time.Second, nil), []string{"IdemStoreIsSlow"}},
		"one without protection":   {once(ends(core.Unprotected, "")), []string{"IdemUnprotected"}},
		"one abandoned":            {once(ends(core.RunAbandoned, "")), []string{"IdemOutcomeUnknown"}},
		"one lost":                 {once(ends(core.RunLost, "")), []string{"IdemOutcomeUnknown"}},
		"one unfinished":           {once(ends(core.RunUnfinished, "")), []string{"IdemOutcomeUnknown"}},
		"one meets an uncertain":   {once(ends(core.Refused, codes.Uncertain)), []string{"IdemOutcomeUnknown"}},
		"one without its result":   {once(ends(core.Refused, codes.ResultUnavailable)), []string{"IdemResultUnavailable"}},
		"a middleware reads ahead": {once(ends(core.Refused, codes.BodyConsumed)), []string{"IdemServiceIsWrong"}},
		"guards in each other":     {once(ends(core.Refused, codes.GuardConflict)), []string{"IdemServiceIsWrong"}},
		"preforked":                {once(ends(core.Refused, codes.StoreNotShared)), []string{"IdemServiceIsWrong"}},
		"handlers hang":            {refusals(codes.InProgress), []string{"IdemDuplicatesMeetARun"}},
		"keys are reused":          {refusals(codes.KeyReused), []string{"IdemKeysAreReused"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newMonitored(t)
			since := map[string]int{} // when the expression began to hold
			fired := map[string]bool{}
			minutes := 55
			if tc.fault == nil {
				minutes = 75
			}
			for minute := range minutes {
				if minute < 20 { // just deployed
					s.minute(t, nil)
					continue
				}
				s.minute(t, tc.fault)
				for _, rule := range rules {
					found := s.query(t, rule.Expr)
					if len(found) == 0 {
						delete(since, rule.Alert)
						continue
					}
					require.Equal(t, "shop", found[0].Metric.Get("job"), "%s does not tell services apart", rule.Alert)
					if _, holds := since[rule.Alert]; !holds {
						since[rule.Alert] = minute
					}
					if time.Duration(minute-since[rule.Alert])*time.Minute >= time.Duration(rule.For) {
						fired[rule.Alert] = true
					}
				}
			}
			want := map[string]bool{}
			for _, alert := range tc.fire {
				want[alert], alerts[alert] = true, true
			}
			assert.Equal(t, want, fired)
		})
	}
	for _, rule := range rules {
		assert.True(t, alerts[rule.Alert], "%s was never seen to fire", rule.Alert)
		assert.NotEmpty(t, rule.Annotations["reason"], rule.Alert)
		assert.Contains(t, []string{"page", "ticket"}, rule.Labels["severity"], rule.Alert)
	}
}

func newMonitored(t *testing.T) *monitored {
	s := &monitored{tape: tape{}, instance: "shop:9090", now: time.Unix(1_700_000_000, 0)}
	s.restart(t)
	return s
}

// restart begins to count anew.
func (s *monitored) restart(t *testing.T) {
	s.registry = prometheus.NewRegistry()
	var err error
	s.Metrics, err = promidem.New(promidem.Config{Registerer: s.registry, Records: func() int { return 7 }})
	require.NoError(t, err)
}

// TestAlertsFireForWhatIsNew: once for each fault, and neither because Prometheus was away nor because of a deployment.
// Each alert is known by the first of its minutes.
func TestAlertsFireForWhatIsNew(t *testing.T) {
	s := newMonitored(t)
	fault := func(s *monitored) {
		for _, code := range []codes.Code{codes.Uncertain, codes.ResultUnavailable, codes.BodyConsumed} {
			s.handled(core.Refused, code, 0)
		}
		s.handled(core.Unprotected, "", 0)
		s.called("acquire", 0, store.ErrFull)
	}
	began, rules := map[string][]int{}, alertRules(t)
	for minute := range 200 {
		switch minute {
		case 20, 70, 165, 190:
			fault(s)
		case 125: // as many as there were before the restart
			fault(s)
			fault(s)
		case 45, 65:
			s.away = true
		case 56, 76:
			s.away = false
		case 100: // on the same machine
			s.restart(t)
		case 145: // in another place
			s.restart(t)
			s.instance = "shop:9091"
		}
		s.minute(t, nil)
		for _, rule := range rules {
			b := began[rule.Alert]
			if minute >= 20 && len(s.query(t, rule.Expr)) > 0 && (b == nil || minute >= b[len(b)-1]+15) {
				began[rule.Alert] = append(b, minute)
			}
		}
	}
	want := map[string][]int{}
	for _, alert := range []string{
		"IdemUnprotected", "IdemOutcomeUnknown", "IdemResultUnavailable", "IdemServiceIsWrong", "IdemStoreIsFull",
	} {
		want[alert] = []int{20, 76, 125, 165, 190}
	}
	assert.Equal(t, want, began)
}

func alertRules(t *testing.T) []rulefmt.Rule {
	p := parser.NewParser(parser.Options{})
	groups, errs := rulefmt.ParseFile("../promidem/alerts.yaml", false, model.LegacyValidation, p, promslog.NewNopLogger())
	require.Empty(t, errs)
	return groups.Groups[0].Rules
}

// TestDashboard asks what the dashboard asks, for a service of which everything has gone wrong.
func TestDashboard(t *testing.T) {
	file, err := os.ReadFile("../promidem/dashboard.json")
	require.NoError(t, err)
	var dashboard struct {
		Panels []struct {
			Title, Description string
			Targets            []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(file, &dashboard))
	s := newMonitored(t)
	fault := func(s *monitored) {
		s.handled(core.RunAbandoned, "", time.Second)
		s.called("renew", time.Second, context.DeadlineExceeded)
	}
	for range 10 {
		s.minute(t, fault)
	}
	s.handled(core.Unsettled, "", time.Second)
	s.handled(core.RunUnfinished, "", time.Second) // the first one
	s.minute(t, fault)
	values := map[string]float64{}
	require.NotEmpty(t, dashboard.Panels)
	for _, panel := range dashboard.Panels {
		assert.NotEmpty(t, panel.Description, panel.Title)
		for _, target := range panel.Targets {
			expr := strings.NewReplacer("$__rate_interval", "1m", "$policy", "orders", "$job", "shop").Replace(target.Expr)
			for _, v := range s.query(t, expr) {
				values[panel.Title+" "+v.Metric.Get("idem_outcome")+v.Metric.Get("error_type")] = v.F
				assert.False(t, v.F != v.F, "%s: %s is not a number", panel.Title, v.Metric)
			}
			assert.NotEmpty(t, s.query(t, expr), panel.Title)
		}
	}
	assert.Equal(t, 1.0, values["Needs somebody unfinished"])
	assert.Equal(t, 1.0, values["Unsettled runs "])
	assert.Contains(t, values, "Failures of store calls timeout")
}

var prometheusEngine = promql.NewEngine(promql.EngineOpts{MaxSamples: 1e7, Timeout: time.Minute,
	Parser: parser.NewParser(parser.Options{})})

func (s *monitored) query(t *testing.T, expr string) promql.Vector {
	q, err := prometheusEngine.NewInstantQuery(t.Context(), s.tape, nil, expr, s.now)
	require.NoError(t, err)
	defer q.Close()
	result := q.Exec(t.Context())
	require.NoError(t, result.Err, expr)
	vector, err := result.Vector()
	require.NoError(t, err)
	return slices.Clone(vector)
}

func (s sample) ST() int64                   { return 0 }
func (s sample) T() int64                    { return s.t }
func (s sample) F() float64                  { return s.f }
func (sample) H() *histogram.Histogram       { return nil }
func (sample) FH() *histogram.FloatHistogram { return nil }
func (sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample         { return s }

// Querier implements storage.Queryable.
func (s tape) Querier(int64, int64) (storage.Querier, error) { return querier{tape: s}, nil }

type querier struct {
	storage.LabelQuerier
	tape tape
}

func (querier) Close() error { return nil }

func (q querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	set := &found{}
	for _, r := range q.tape {
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(r.labels.Get(m.Name)) }) {
			set.series = append(set.series, storage.NewListSeries(r.labels, r.samples))
		}
	}
	return set
}

type found struct {
	series []storage.Series
	next   int
}

func (f *found) Next() bool                      { f.next++; return f.next <= len(f.series) }
func (f *found) At() storage.Series              { return f.series[f.next-1] }
func (*found) Err() error                        { return nil }
func (*found) Warnings() annotations.Annotations { return nil }
