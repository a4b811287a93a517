package benchmarks

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/memstore"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/internal/backend"
)

// BenchmarkWait is the end of a run for which duplicates wait: from the moment at which the
// handler returns until all of them are answered, with a result of 4 KiB. The calls of
// Acquire in that time are reported as acquires/op; those of Watch before it as watches/op. On Redis, a server
// of its own, there are also its round-trips/op (one is the run's) and sent-B/op.
func BenchmarkWait(b *testing.B) {
	for _, waiters := range []int{1, 100, 10_000} {
		b.Run("memory/"+strconv.Itoa(waiters), func(b *testing.B) {
			benchmarkWait(b, waiters, &counted{Store: newMemstore(b, memstore.Config{})}, nil)
		})
	}
	url := backend.StartRedis(b).URL()
	options, err := rueidis.ParseURL(url)
	require.NoError(b, err)
	client, err := rueidis.NewClient(options)
	require.NoError(b, err)
	b.Cleanup(client.Close)
	store := redisstore.New(client, redisstore.Config{})
	b.Cleanup(store.Close)
	for _, waiters := range []int{1, 100, 10_000} {
		b.Run("redis/"+strconv.Itoa(waiters), func(b *testing.B) {
			benchmarkWait(b, waiters, &counted{Store: store}, client)
		})
	}
}

// counted counts how often a store is looked at and asked to watch.
type counted struct {
	store.Store
	acquires, watches atomic.Int64
}

func (s *counted) Acquire(ctx context.Context, key string, claim store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, key, claim)
	s.acquires.Add(1)
	return g, err
}

func (s *counted) Capabilities() store.Capabilities {
	can := s.Store.Capabilities()
	watch := can.Watch
	can.Watch = func(ctx context.Context, key string) (<-chan struct{}, func(), error) {
		changed, stop, err := watch(ctx, key)
		s.watches.Add(1)
		return changed, stop, err
	}
	return can
}

// duplicate is an exchange that costs nothing itself; the first one is one, too.
type duplicate struct {
	key    string
	run    func() *core.Response
	status int
	body   int
}

func (d *duplicate) Header(name string, _ int) (string, int) {
	switch name {
	case "X-User":
		return "alice", 1
	case core.DefaultKeyHeader:
		return d.key, 1
	}
	return "", 0
}

func (d *duplicate) Describe(r *core.Request)       { r.Method, r.Route = "POST", "/orders" }
func (d *duplicate) ReadBody(int64) ([]byte, error) { return nil, nil }
func (d *duplicate) Pass(context.Context) error     { return nil }
func (d *duplicate) Deliver([]core.Field) error     { return nil }
func (d *duplicate) Answer(r *core.Response) error {
	d.status, d.body = r.Status, len(r.Body)
	return nil
}

func (d *duplicate) Run(context.Context, int) (adapter.Capture, error) {
	return adapter.Capture{Response: d.run()}, nil
}

func benchmarkWait(b *testing.B, waiters int, store *counted, redis rueidis.Client) {
	p := core.ClientKey()
	p.Duplicate, p.Retention = core.Wait(time.Minute), 10*time.Second
	service := rand.Text() // the Redis outlives the keys of one round
	g := core.MustNew(core.Config{Store: store, Service: service, User: core.UserFromHeader("X-User"),
		StoreTimeout: time.Minute}).MustGuard(p)
	keys := newClientKeys(b.N)
	response := &core.Response{Status: 201, Body: bytes.Repeat([]byte("x"), 4<<10)}
	var acquires, watches int64
	sent, commands := 0, 0
	var took time.Duration
	var before, after runtime.MemStats
	var objects, size uint64
	for i := range b.N {
		began, ended := make(chan struct{}), make(chan struct{})
		first := &duplicate{key: keys.at(i), run: func() *core.Response { close(began); <-ended; return response }}
		var all sync.WaitGroup
		all.Go(func() { _ = g.Serve(context.Background(), first) })
		<-began
		store.acquires.Store(0)
		store.watches.Store(0)
		duplicates := make([]duplicate, waiters)
		for j := range duplicates {
			d := &duplicates[j]
			d.key, d.run = keys.at(i), func() *core.Response { b.Error("a duplicate ran"); return response }
			all.Go(func() { _ = g.Serve(context.Background(), d) })
		}
		for store.acquires.Load() < int64(waiters) || store.watches.Load() < 1 {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(20*time.Millisecond + time.Duration(waiters)*10*time.Microsecond) // until all are asleep
		watches += store.watches.Load()
		store.acquires.Store(0)
		sentBefore, commandsBefore := traffic(b, redis)
		runtime.ReadMemStats(&before)
		answering := time.Now()
		close(ended)
		all.Wait()
		took += time.Since(answering)
		runtime.ReadMemStats(&after)
		objects += after.Mallocs - before.Mallocs
		size += after.TotalAlloc - before.TotalAlloc
		acquires += store.acquires.Load()
		sentAfter, commandsAfter := traffic(b, redis)
		sent += sentAfter - sentBefore
		commands += commandsAfter - commandsBefore
		for _, d := range duplicates {
			if d.status != 201 || d.body != len(response.Body) {
				b.Fatalf("answered %d with %d bytes", d.status, d.body)
			}
		}
	}
	// Most of the time goes by before the run ends: if it were not counted for b.N, a benchmark
	// of a tenth of a second would take a minute.
	b.ReportMetric(float64(took)/float64(b.N), "ns/op")
	b.ReportMetric(float64(size)/float64(b.N), "B/op")
	b.ReportMetric(float64(objects)/float64(b.N), "allocs/op")
	b.ReportMetric(float64(acquires)/float64(b.N), "acquires/op")
	b.ReportMetric(float64(watches)/float64(b.N), "watches/op")
	if redis != nil {
		b.ReportMetric(float64(sent)/float64(b.N), "sent-B/op")
		b.ReportMetric(float64(commands)/float64(b.N), "round-trips/op")
	}
}

// traffic is how many bytes the server has sent so far, and how many claims and scripts it was asked for.
func traffic(b *testing.B, client rueidis.Client) (sent, commands int) {
	b.Helper()
	if client == nil {
		return 0, 0
	}
	info, err := client.Do(context.Background(), client.B().Info().Section("stats").Build()).ToString()
	require.NoError(b, err)
	_, rest, _ := strings.Cut(info, "total_net_output_bytes:")
	_, err = fmt.Sscan(rest, &sent)
	require.NoError(b, err)
	return sent, roundTrips(b, client, "pttl evalsha eval")
}
