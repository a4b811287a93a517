package benchmarks

import (
	"crypto/rand"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/limit"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/internal/backend"
)

// BenchmarkLimiter is what it costs to ask a limiter: in the process beside one bucket of
// golang.org/x/time/rate, and on Redis, from 64 goroutines, beside the bare client calling the same script and
// counting with INCR. The Redis server is one of its own; the commands that it was sent are reported as
// round-trips/op.
func BenchmarkLimiter(b *testing.B) {
	// A bucket that no benchmark empties, and that is not full again before it ends.
	const n, window = 1 << 30, 50 * 365 * 24 * time.Hour
	users := make([]string, 1000)
	for i := range users {
		users[i] = "user-" + strconv.Itoa(i)
	}
	user := func(i int) string { return users[i%len(users)] }
	ask := func(l core.Limiter, key string) (bool, error) {
		wait, err := l.Allow(b.Context(), key)
		return wait == 0, err
	}

	bare, emptied := rate.NewLimiter(rate.Every(window/n), n), rate.NewLimiter(rate.Every(time.Hour), 1)
	require.True(b, emptied.Allow())
	limiterRow{name: "bare/allowed", allowed: true}.run(b, func(int) (bool, error) { return bare.Allow(), nil })
	limiterRow{name: "bare/refused"}.run(b, func(int) (bool, error) { return emptied.Allow(), nil })

	full, empty, brief := limit.New(n, window), limit.New(1, time.Hour), limit.New(2, 2*time.Millisecond)
	_, err := ask(empty, "alice")
	require.NoError(b, err)
	limiterRow{name: "memory/allowed", allowed: true}.run(b, func(int) (bool, error) { return ask(full, "alice") })
	limiterRow{name: "memory/refused"}.run(b, func(int) (bool, error) { return ask(empty, "alice") })
	limiterRow{name: "memory/fresh", allowed: true}.run(b, func(i int) (bool, error) { return ask(brief, "user-"+strconv.Itoa(i)) })
	require.Less(b, brief.Len(), 100_000, "who came once is forgotten")
	limiterRow{name: "memory/parallel", allowed: true, goroutines: callers}.run(b, func(i int) (bool, error) { return ask(full, user(i)) })

	options, err := rueidis.ParseURL(backend.StartRedis(b).URL())
	require.NoError(b, err)
	client, err := rueidis.NewClient(options)
	require.NoError(b, err)
	b.Cleanup(client.Close)
	source := script(b, "limit.lua")
	onRedis := func(n int, window time.Duration, name string) core.Limiter {
		l, err := redisstore.NewLimiter(client, "bench", n, window, name)
		require.NoError(b, err)
		return l
	}
	full2, empty2, brief2 := onRedis(n, window, "full"), onRedis(1, time.Hour, "empty"), onRedis(2, 2*time.Second, "brief")
	_, err = ask(empty2, "alice")
	require.NoError(b, err)
	const scripts = "evalsha eval"
	limiterRow{"incr/allowed", true, callers, client, "incr"}.run(b, func(i int) (bool, error) {
		counted, err := client.Do(b.Context(), client.B().Incr().Key("incr:"+user(i)).Build()).AsInt64()
		return counted > 0, err
	})
	limiterRow{"script/allowed", true, callers, client, scripts}.run(b, func(i int) (bool, error) {
		args := []string{"1000000", "10000000000000", rand.Text()} // one comes back in a second
		wait, err := source.Exec(b.Context(), client, []string{"script:" + user(i)}, args).AsInt64()
		return wait == 0, err
	})
	limiterRow{"redis/allowed", true, callers, client, scripts}.run(b, func(i int) (bool, error) { return ask(full2, user(i)) })
	limiterRow{"redis/refused", false, callers, client, scripts}.run(b, func(int) (bool, error) { return ask(empty2, "alice") })
	limiterRow{"redis/fresh", true, callers, client, scripts}.run(b, func(i int) (bool, error) { return ask(brief2, "user-"+strconv.Itoa(i)) })
}

// limiterRow is one way to ask a limiter.
type limiterRow struct {
	name       string
	allowed    bool           // what each call must be told
	goroutines int            // zero: one call after the other
	client     rueidis.Client // nil: there is no server
	sends      string         // the command that is sent to it, once for each call
}

// run checks that the first calls are answered as they must be, and times more of them. They are numbered, over
// all runs of the row.
func (r limiterRow) run(b *testing.B, ask func(i int) (allowed bool, err error)) {
	var next, odd atomic.Int64
	step := func() {
		if allowed, err := ask(int(next.Add(1))); err != nil || allowed != r.allowed {
			odd.Add(1)
		}
	}
	b.Run(r.name, func(b *testing.B) {
		for range rehearsed {
			step()
		}
		require.Zero(b, odd.Load(), "the limiter was not found as expected")
		sent := 0
		if r.client != nil {
			sent = roundTrips(b, r.client, r.sends)
		}
		b.ReportAllocs()
		b.ResetTimer()
		if r.goroutines == 0 {
			for range b.N {
				step()
			}
		} else {
			procs := runtime.GOMAXPROCS(0)
			b.SetParallelism((r.goroutines + procs - 1) / procs)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					step()
				}
			})
		}
		b.StopTimer()
		require.Zero(b, odd.Load(), "of %d calls, so many were answered otherwise", b.N)
		if r.client != nil {
			sent = roundTrips(b, r.client, r.sends) - sent
			require.Equal(b, b.N, sent, "each call is one command")
			b.ReportMetric(float64(sent)/float64(b.N), "round-trips/op")
		}
	})
}
