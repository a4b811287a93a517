package benchmarks

import (
	"cmp"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/goredisidem"
	"github.com/idem-go/idem/internal/backend"
	"github.com/idem-go/idem/valkeyidem"
)

// BenchmarkRedisClients sets the store on each client beside the client alone, from 64 goroutines, on a server that compares by itself:
// rueidis with plain commands (SET NX and SET; GET), and go-redis with the commands that the store sends. A first request is Acquire and
// Complete; a replay is one that the process has replayed before. The clients have their defaults. What each way sends is counted before
// it is timed.
func BenchmarkRedisClients(b *testing.B) {
	server := backend.StartValkey(b)
	const lease, retention, wait = 120 * time.Second, time.Second, 10 * time.Second
	rueidisClient, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}})
	require.NoError(b, err)
	b.Cleanup(rueidisClient.Close)
	valkeyClient, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{server.Addr()}})
	require.NoError(b, err)
	b.Cleanup(valkeyClient.Close)
	goRedis := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: callers})
	b.Cleanup(func() { _ = goRedis.Close() })

	ctx, fingerprint, result := b.Context(), "c2a36fed15128e9e878583caaafefde9", make([]byte, 300)
	var next atomic.Int64
	fresh := func() string { return "fresh:" + strconv.FormatInt(next.Add(1), 10) }
	newClaim := func() store.Claim {
		return store.Claim{Owner: store.NewOwner(), Fingerprint: fingerprint, Lease: time.Minute, Retention: time.Minute}
	}
	newRecord := func() string { owner := store.NewOwner(); return "R1;60000;32;" + string(owner[:]) + fingerprint }
	finished := "D1;1000;32;" + fingerprint + string(result)
	claims := func(key, record string) (claim, left *redis.Cmd) {
		pipe := goRedis.Pipeline()
		claim = pipe.Do(ctx, "SET", key, record, "NX", "GET", "PX", lease.Milliseconds())
		left = pipe.Do(ctx, "PTTL", key)
		_, _ = pipe.Exec(ctx)
		return claim, left
	}
	steps := map[string]func() bool{
		"first/rueidis-bare": func() bool {
			key, record := fresh(), newRecord()
			b := rueidisClient.B()
			err1 := rueidisClient.Do(ctx, b.Set().Key(key).Value(record).Nx().PxMilliseconds(lease.Milliseconds()).Build()).Error()
			err2 := rueidisClient.Do(ctx, b.Set().Key(key).Value(finished).PxMilliseconds(retention.Milliseconds()).Build()).Error()
			return err1 == nil && err2 == nil
		},
		"first/go-redis-bare": func() bool {
			key, record := fresh(), newRecord()
			claim, left := claims(key, record)
			set := goRedis.Do(ctx, "SET", key, finished, "IFEQ", record, "PX", retention.Milliseconds())
			return claim.Err() == redis.Nil && left.Err() == nil && set.Val() == "OK"
		},
		"replay/rueidis-bare": func() bool {
			v, err := rueidisClient.Do(ctx, rueidisClient.B().Get().Key("done").Build()).ToString()
			return err == nil && len(v) > len(result)
		},
		"replay/go-redis-bare": func() bool {
			v, err := goRedis.Get(ctx, "done").Result()
			return err == nil && len(v) > len(result)
		},
	}
	onGoRedis, err := goredisidem.New(goRedis, redisstore.Config{})
	require.NoError(b, err)
	for name, s := range map[string]*redisstore.Store{"rueidis": redisstore.New(rueidisClient, redisstore.Config{}), "go-redis": onGoRedis,
		"valkey-go": valkeyidem.New(valkeyClient, redisstore.Config{})} {
		b.Cleanup(s.Close)
		steps["first/"+name] = func() bool {
			key, c := fresh(), newClaim()
			g, err1 := s.Acquire(ctx, key, c)
			err2 := s.Complete(ctx, key, c.Owner, result, retention)
			return err1 == nil && err2 == nil && g.State == store.Acquired
		}
		steps["replay/"+name] = func() bool {
			g, err := s.Acquire(ctx, "done", newClaim())
			return err == nil && g.State == store.Done && len(g.Result) == len(result)
		}
		require.Eventually(b, func() bool { // it has found out that the server compares
			before := roundTrips(b, rueidisClient, "evalsha eval")
			return steps["first/"+name]() && roundTrips(b, rueidisClient, "evalsha eval") == before
		}, wait, time.Millisecond)
	}
	done := newClaim()
	_, err = onGoRedis.Acquire(ctx, "done", done)
	require.NoError(b, err)
	require.NoError(b, onGoRedis.Complete(ctx, "done", done.Owner, result, time.Hour))
	for _, name := range []string{"rueidis", "valkey-go", "go-redis"} {
		require.True(b, steps["replay/"+name]()) // the first one is a claim
	}

	for _, name := range []string{"first/rueidis-bare", "first/rueidis", "first/valkey-go", "first/go-redis-bare", "first/go-redis",
		"replay/rueidis-bare", "replay/rueidis", "replay/valkey-go", "replay/go-redis-bare", "replay/go-redis"} {
		b.Run(name, func(b *testing.B) {
			step := steps[name]
			before := roundTrips(b, rueidisClient, "set get pttl evalsha eval")
			if !step() {
				b.Fatal("the server was not found as expected")
			}
			commands := map[string]int{"first/rueidis-bare": 2, "replay/rueidis-bare": 1, "replay/rueidis": 1, "replay/valkey-go": 1,
				"replay/go-redis-bare": 1, "replay/go-redis": 1}
			require.Equal(b, cmp.Or(commands[name], 3), roundTrips(b, rueidisClient, "set get pttl evalsha eval")-before)
			procs := runtime.GOMAXPROCS(0)
			b.SetParallelism((callers + procs - 1) / procs)
			var failed atomic.Int64
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if !step() {
						failed.Add(1)
					}
				}
			})
			b.StopTimer()
			require.Zero(b, failed.Load())
		})
	}
}
