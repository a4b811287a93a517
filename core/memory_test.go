package core_test

import (
	"context"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/store/memstore"
	"github.com/idem-go/idem/internal/race"
)

// null is an exchange that costs nothing itself.
type null struct {
	key  string
	body []byte
	resp core.Response
	ran  int
}

func (n *null) Header(name string, _ int) (string, int) {
	switch name {
	case "X-User":
		return "alice", 1
	case core.DefaultKeyHeader:
		return n.key, 1
	}
	return "", 0
}

func (n *null) Describe(r *core.Request) {
	r.Method, r.Route, r.ContentType = http.MethodPost, "/orders", "application/json"
}

func (n *null) ReadBody(int64) ([]byte, error) { return n.body, nil }

func (n *null) Answer(r *core.Response) error { return nil }

func (n *null) Pass(context.Context) error { return nil }

func (n *null) Deliver([]core.Field) error { return nil }

func (n *null) Run(context.Context, int) (adapter.Capture, error) {
	n.ran++
	return adapter.Capture{Response: &n.resp}, nil
}

// What an adapter's own allocations come on top of. The targets for whole requests are in
// the benchmarks.
func TestAllocations(t *testing.T) {
	race.Skip(t, "sync.Pool drops what it is given at random under the race detector")
	const runs = 1000
	for name, policy := range map[string]core.Policy{"client key": core.ClientKey(), "parameters": {}} {
		g := core.MustNew(core.Config{User: byUser}).MustGuard(policy)
		keys := make([]string, runs+2)
		for i := range keys {
			keys[i] = strconv.Itoa(i)
		}
		x := &null{resp: core.Response{Status: 201, Body: []byte(`{"id":1}`),
			Header: []core.Field{{Name: "Content-Type", Value: "application/json"}}}}
		i := 0
		first := testing.AllocsPerRun(runs, func() {
			x.key, x.body = keys[i], append(append(append(x.body[:0], `{"n":`...), keys[i]...), '}')
			i++
			_ = g.Serve(context.Background(), x)
		})
		assert.Equal(t, i, x.ran, name)
		runtime.GC() // twice: what the pools hold is gone, and replays fill them again
		runtime.GC()
		replay := testing.AllocsPerRun(runs, func() { _ = g.Serve(context.Background(), x) })
		assert.Equal(t, i, x.ran, name)
		t.Logf("%s: first %v, replay %v", name, first, replay)
		assert.LessOrEqual(t, first, 6.0, name)
		assert.LessOrEqual(t, replay, 2.0, name)
	}
}

// The key of a request allocates itself and nothing else, and leaves the request as it was.
func TestAllocationsOfKeys(t *testing.T) {
	race.Skip(t, "sync.Pool drops what it is given at random under the race detector")
	params := []adapter.Pair{{Name: "id", Value: "7"}}
	r := core.Request{
		Method: http.MethodPost, Route: "/orders/:id/pay", PathParams: params, ContentType: "application/json",
		Headers: &null{key: "k-1"}, Body: []byte(`{"amount":5,"to":"bob","at":[1,2]}`),
	}
	for name, policy := range map[string]core.Policy{"client key": core.ClientKey(), "parameters": {}} {
		g := core.MustNew(core.Config{User: byUser}).MustGuard(policy)
		want, _, err := g.Key(&r)
		assert.NoError(t, err, name)
		got := testing.AllocsPerRun(1000, func() {
			if key, _, err := g.Key(&r); key != want || err != nil {
				t.Fatal(key, err)
			}
		})
		assert.LessOrEqual(t, got, 1.0, name)
		assert.Equal(t, []adapter.Pair{{Name: "id", Value: "7"}}, params, name)
	}
}

// Tokens that are issued and never used fill no store and no memory.
func TestGrowthOfTokens(t *testing.T) {
	race.Skip(t, "the race detector keeps memory of its own")
	n := 1_000_000
	if testing.Short() {
		n /= 20
	}
	store, err := memstore.New(memstore.Config{})
	require.NoError(t, err)
	remote := &spy{Store: store}
	policy := checkout(tokensFor(tokenSecret))
	guards := []*core.Guard{
		core.MustNew(core.Config{User: byUser, Store: remote}).MustGuard(policy),
		core.MustNew(core.Config{User: byUser, Store: store}).MustGuard(policy),
	}
	tokenFor(t, guards[0], "alice") // what is made once is there
	before := heap()
	var all sync.WaitGroup
	for _, g := range guards {
		all.Go(func() {
			r := core.Request{Headers: &call{header: map[string][]string{"X-User": {"alice"}}}}
			for range n / len(guards) {
				if _, err := g.NewToken(t.Context(), &r); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	assert.Zero(t, remote.acquires.Load()+remote.renews.Load()+remote.completes.Load()+remote.releases.Load()+remote.abandons.Load())
	assert.Zero(t, store.Len())
	assert.Zero(t, store.Bytes())
	assert.Less(t, heap(), before+1<<20, "a byte for each")
}

// heap is how many bytes are in use.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what pools have kept for one more round
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
