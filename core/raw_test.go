package core_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/memstore"
)

// unrecalling is an in-process store without a Recall.
type unrecalling struct{ *memstore.Store }

func (s unrecalling) Capabilities() store.Capabilities {
	can := s.Store.Capabilities()
	can.Recall = nil
	return can
}

// Requests are answered alike whether the store can recall or not: the same ones are replayed, refused and run. Each differs
// from the one before in one thing, or in nothing.
func TestRecallChangesNoAnswer(t *testing.T) {
	policies := map[string]core.Policy{}
	for name, change := range map[string]func(*core.Policy){
		"plain":              func(*core.Policy) {},
		"other rules":        func(p *core.Policy) { p.Key = core.Header(core.Required, core.Exclude("a", "ts")) },
		"more headers":       func(p *core.Policy) { p.Key = core.Header(core.Required, core.RequestHeaders("X-Tenant")) },
		"SHA-256":            func(p *core.Policy) { p.Digest = core.SHA256 },
		"without comparison": func(p *core.Policy) { p.Key = core.Header(core.Required, core.IgnoreFingerprint()) },
		"rejecting":          func(p *core.Policy) { p.Duplicate = core.Reject("") },
		"uncertain":          func(p *core.Policy) { p.Abandoned = core.Uncertain(nil) },
		"raw bodies":         func(p *core.Policy) { p.Compare = core.RawBody },
		"in the body":        func(p *core.Policy) { p.Key = core.BodyKey("a") },
		"a function":         func(p *core.Policy) { p.Key = core.Func(func(*core.Request) (string, error) { return "k-1", nil }) },
		"parameters":         func(p *core.Policy) { p.Key = core.Params() },
		"fields":             func(p *core.Policy) { p.Key = core.Params(core.Fields("a", "b")) },
	} {
		p := core.ClientKey()
		change(&p)
		p.Retention, p.Lease = time.Minute, 10*time.Second
		policies[name] = p
	}
	var names []string
	for name := range policies {
		names = append(names, name)
	}
	var recalled, answered atomic.Int64
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(0, 0)
		direct, err := memstore.New(memstore.Config{Now: func() time.Time { return now }})
		require.NoError(t, err)
		indirect, err := memstore.New(memstore.Config{Now: func() time.Time { return now }})
		require.NoError(t, err)
		counting := &recalls{Store: direct, found: &recalled}
		var guards [2]map[string]*core.Guard
		var seen [2]events
		for i, s := range []store.Store{counting, unrecalling{indirect}} {
			engine := core.MustNew(core.Config{User: byUser, Store: s, Observe: seen[i].add})
			guards[i] = map[string]*core.Guard{}
			for name, p := range policies {
				guards[i][name] = engine.MustGuard(p)
			}
		}

		policy := rapid.SampledFrom(names).Draw(t, "policy")
		key, user, body, query, contentType, encoding, tenant := "k-1", "alice", `{"a":1,"b":2}`, "", "application/json", "", ""
		var params []adapter.Pair
		var match, consumed []string
		choose := func(t *rapid.T, to *string, from ...string) { *to = rapid.SampledFrom(from).Draw(t, "to") }
		steps := map[string]func(*rapid.T){
			"policy": func(t *rapid.T) { choose(t, &policy, names...) },
			"key":    func(t *rapid.T) { choose(t, &key, "k-1", `"k-1"`, "k-2") },
			"user":   func(t *rapid.T) { choose(t, &user, "alice", "bob") },
			"body": func(t *rapid.T) {
				choose(t, &body, `{"a":1,"b":2}`, `{"b":2,"a":1}`, `{ "a":1,"b":2}`, `{"a":1,"b":3}`, `{"a":1,"b":2,"ts":3}`,
					`{"a":1`, "a=1", "")
			},
			"query": func(t *rapid.T) { choose(t, &query, "", "a=1", "a=1&ts=2", "ts=2&a=1", "%61=1") },
			"type": func(t *rapid.T) {
				choose(t, &contentType, "application/json", "application/json; charset=utf-8", "text/plain",
					"application/x-www-form-urlencoded", "")
			},
			"encoding": func(t *rapid.T) { choose(t, &encoding, "", "identity", "gzip") },
			"tenant":   func(t *rapid.T) { choose(t, &tenant, "", "one", "two") },
			"match": func(t *rapid.T) {
				match = rapid.SampledFrom([][]string{nil, {"1"}, {"1", "2"}, {"1, 2"}}).Draw(t, "to")
			},
			"consumed": func(t *rapid.T) { consumed = rapid.SampledFrom([][]string{nil, {"ts"}, {"a"}}).Draw(t, "to") },
			"params": func(t *rapid.T) {
				params = rapid.SampledFrom([][]adapter.Pair{
					nil, {{Name: "id", Value: "7"}}, {{Name: "id", Value: "8"}}, {{Name: "i", Value: "d7"}}}).Draw(t, "to")
			},
			"time":    func(t *rapid.T) { now = now.Add(time.Duration(rapid.IntRange(1, 30).Draw(t, "seconds")) * time.Second) },
			"nothing": func(*rapid.T) {},
		}
		runs := 0
		outcome := rapid.SampledFrom([]int{201, 201, 201, 404, 503, 0})
		for name, step := range steps {
			steps[name] = func(t *rapid.T) {
				step(t)
				status := outcome.Draw(t, "outcome")
				var got [2]string
				for i := range got {
					c := post(body, nil)
					c.query, c.contentType, c.encoding, c.params = query, contentType, encoding, params
					c.header = http.Header{"X-User": {user}, "If-Match": match, core.DefaultKeyHeader: {key}}
					if tenant != "" {
						c.header.Set("X-Tenant", tenant)
					}
					c.handler = func(ctx context.Context) adapter.Capture {
						if status == 0 {
							return abandoning(ctx)
						}
						return answer(status, fmt.Sprintf(`{"run":%d}`, runs))
					}
					ctx := context.Background()
					if consumed != nil {
						ctx = core.WithCaller(ctx, "carol", consumed...)
					}
					require.NoError(t, guards[i][policy].Serve(ctx, c))
					last := seen[i].all[len(seen[i].all)-1]
					require.False(t, last.Kind == core.Replayed && last.Key == (core.Key{}), "a replay of no operation")
					got[i] = fmt.Sprintf("ran %d times, %+v; %v %v of attempt %d, %d: %v",
						c.ran, *c.response, last.Kind, last.Key.Raw(), last.Attempt, last.Status, last.Code)
				}
				require.Equal(t, got[1], got[0])
				require.Equal(t, seen[1].kinds(), seen[0].kinds())
				runs++
				answered.Add(1)
			}
		}
		t.Repeat(steps)
	})
	require.Greater(t, recalled.Load(), answered.Load()/20, "hardly anything was recalled")
	require.Less(t, recalled.Load(), answered.Load(), "everything was recalled")
}

// A type that embeds a store and has an Acquire of its own, which may decrypt results, is asked for everything, although it
// has the store's Recall, too.
func TestAnEmbeddedStoreRecallsNothing(t *testing.T) {
	inner, err := memstore.New(memstore.Config{})
	require.NoError(t, err)
	records := &sealing{Store: inner}
	g := core.MustNew(core.Config{User: byUser, Store: records}).MustGuard(core.ClientKey())
	for range 2 {
		serve(t, g, post(`{"a":1}`, nil).withKey("k-1"))
	}
	require.Equal(t, 2, records.acquired)
}

// sealing is a store with an Acquire of its own.
type sealing struct {
	*memstore.Store
	acquired int
}

func (s *sealing) Acquire(ctx context.Context, key string, c store.Claim) (store.Grant, error) {
	s.acquired++
	return s.Store.Acquire(ctx, key, c)
}

// recalls counts what its store has recalled.
type recalls struct {
	*memstore.Store
	found *atomic.Int64
}

func (r *recalls) Capabilities() store.Capabilities {
	can := r.Store.Capabilities()
	recall := can.Recall
	can.RecallFor, can.Recall = r, func(key []byte) (store.Grant, uint64, bool) {
		g, raw, ok := recall(key)
		if ok {
			r.found.Add(1)
		}
		return g, raw, ok
	}
	return can
}
