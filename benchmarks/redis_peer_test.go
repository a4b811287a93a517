package benchmarks

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/internal/backend"
)

// callers is how many goroutines use Redis at once.
const callers = 64

// BenchmarkRedisPeer sets an operation (Acquire and Complete) and a replay beside the bare
// client, from 64 goroutines: sending the same commands and scripts, and doing as many plain commands
// (SET NX and SET; GET), which compare no owner. The server is one of its own, whose count of
// commands must be as many as were to be sent: it is reported as round-trips/op.
func BenchmarkRedisPeer(b *testing.B) {
	url := backend.StartRedis(b).URL()
	options, err := rueidis.ParseURL(url)
	require.NoError(b, err)
	client, err := rueidis.NewClient(options)
	require.NoError(b, err)
	b.Cleanup(client.Close)
	records := redisstore.New(client, redisstore.Config{})
	b.Cleanup(records.Close)
	cached := redisstore.New(client, redisstore.Config{ClientSideCache: time.Minute})
	b.Cleanup(cached.Close)
	complete := script(b, "complete.lua")

	const fingerprint = "c2a36fed15128e9e878583caaafefde9"
	const retention = time.Second // of what is fresh, so that the server does not fill up
	result := make([]byte, 300)
	claim := func() store.Claim {
		return store.Claim{Owner: store.NewOwner(), Fingerprint: fingerprint, Lease: time.Minute, Retention: time.Minute}
	}
	record := func(c store.Claim) string { return "R1;60000;32;" + string(c.Owner[:]) + fingerprint }
	done := claim()
	_, err = records.Acquire(b.Context(), "done", done)
	require.NoError(b, err)
	require.NoError(b, records.Complete(b.Context(), "done", done.Owner, result, time.Hour))

	ctx := b.Context()
	claims := func(key, record string) (string, error) {
		results := client.DoMulti(ctx,
			client.B().Set().Key(key).Value(record).Nx().Get().PxMilliseconds(120000).Build(),
			client.B().Arbitrary("PTTL").Keys(key).Build())
		if err := results[1].Error(); err != nil {
			return "", err
		}
		return results[0].ToString()
	}
	var next atomic.Int64
	fresh := func() string { return "fresh:" + strconv.FormatInt(next.Add(1), 10) }
	replay := func(s *redisstore.Store) bool {
		g, err := s.Acquire(ctx, "done", claim())
		return err == nil && g.State == store.Done && len(g.Result) == len(result)
	}
	for _, bench := range []struct {
		name  string
		sends string // the commands that count
		trips int
		step  func() bool // reports whether Redis answered as it should
	}{
		{"operation/commands", "set", 2, func() bool {
			key, c := fresh(), claim()
			err1 := client.Do(ctx, client.B().Set().Key(key).Value(record(c)).Nx().PxMilliseconds(120000).Build()).Error()
			err2 := client.Do(ctx,
				client.B().Set().Key(key).Value(fingerprint+string(result)).PxMilliseconds(retention.Milliseconds()).Build()).Error()
			return err1 == nil && err2 == nil
		}},
		{"operation/scripts", "pttl evalsha eval", 2, func() bool {
			key, c := fresh(), claim()
			_, err1 := claims(key, record(c))
			head := "D1;1000;32;" + fingerprint
			args := []string{string(c.Owner[:]), "1000", head + string(result), "1000", record(c), strconv.Itoa(len(head) + 1)}
			held, err2 := complete.Exec(ctx, client, []string{key}, args).AsInt64()
			return rueidis.IsRedisNil(err1) && err2 == nil && held == 1
		}},
		{"operation/store", "pttl evalsha eval", 2, func() bool {
			key, c := fresh(), claim()
			g, err1 := records.Acquire(ctx, key, c)
			err2 := records.Complete(ctx, key, c.Owner, result, retention)
			return err1 == nil && err2 == nil && g.State == store.Acquired
		}},
		{"replay/commands", "get", 1, func() bool {
			v, err := client.Do(ctx, client.B().Get().Key("done").Build()).ToString()
			return err == nil && len(v) > len(result)
		}},
		{"replay/scripts", "pttl evalsha eval", 1, func() bool {
			v, err := claims("done", record(claim()))
			return err == nil && len(v) > len(result)
		}},
		{"replay/store", "get", 1, func() bool { return replay(records) }},
		{"replay/cached", "pttl evalsha eval get", 0, func() bool { return replay(cached) }},
	} {
		b.Run(bench.name, func(b *testing.B) {
			for range rehearsed {
				if !bench.step() {
					b.Fatal("Redis was not found as expected")
				}
			}
			procs := runtime.GOMAXPROCS(0)
			b.SetParallelism((callers + procs - 1) / procs)
			before := roundTrips(b, client, bench.sends)
			var failed atomic.Int64
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if !bench.step() {
						failed.Add(1)
					}
				}
			})
			b.StopTimer()
			if n := failed.Load(); n > 0 {
				b.Fatalf("%d of %d failed", n, b.N)
			}
			trips := roundTrips(b, client, bench.sends) - before
			if trips != bench.trips*b.N {
				b.Fatalf("%d round trips for %d operations, want %d each", trips, b.N, bench.trips)
			}
			b.ReportMetric(float64(trips)/float64(b.N), "round-trips/op")
		})
	}
}

// BenchmarkRedisServerTime sets the server's time for a whole operation (Acquire and Complete of a claim that tells of its operation)
// beside that of the plain commands, SET NX GET and PTTL, and SET, which compare no owner. A round makes 256 operations of each kind, one
// after the other; the least of all rounds counts, for others use the machine as well.
func BenchmarkRedisServerTime(b *testing.B) {
	b.Run("redis", func(b *testing.B) { serverTime(b, backend.StartRedis(b)) })
	b.Run("valkey", func(b *testing.B) { serverTime(b, backend.StartValkey(b)) })
}

func serverTime(b *testing.B, server *backend.Server) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}})
	require.NoError(b, err)
	b.Cleanup(client.Close)
	records := redisstore.New(client, redisstore.Config{})
	b.Cleanup(records.Close)
	const batch = 256
	ctx, result := b.Context(), strings.Repeat("r", 300)
	// spent is what the server takes for a batch of one step. What scripts call is in their time.
	spent := func(step func(i int) error) float64 {
		require.NoError(b, client.Do(ctx, client.B().Arbitrary("CONFIG", "RESETSTAT").Build()).Error())
		for i := range batch {
			if err := step(i); err != nil && !rueidis.IsRedisNil(err) {
				b.Fatal(err)
			}
		}
		info, err := client.Do(ctx, client.B().Info().Section("commandstats").Build()).ToString()
		require.NoError(b, err)
		if scripts := commandTime(b, info, "evalsha") + commandTime(b, info, "eval"); scripts > 0 {
			return scripts / batch
		}
		return (commandTime(b, info, "set") + commandTime(b, info, "pttl")) / batch
	}
	names := [4]string{"plain-claim", "plain-result", "claim", "result"}
	var least [4]float64
	for round := 0; b.Loop(); round++ {
		var keys [batch]string
		var all [batch]store.Claim
		for i := range all {
			keys[i] = "idem:shop:" + strconv.Itoa(round) + ":" + strconv.Itoa(i)
			all[i] = store.Claim{Owner: store.NewOwner(), Fingerprint: "c2a36fed15128e9e878583caaafefde9", Lease: time.Minute,
				Retention: time.Minute, About: store.About{ID: store.NewID(), Policy: "orders", Creator: "shop-1"}}
		}
		for n, step := range [4]func(i int) error{
			func(i int) error {
				record := "R01;60000;32;" + string(all[i].Owner[:]) + all[i].Fingerprint + strings.Repeat("a", 41)
				results := client.DoMulti(ctx,
					client.B().Set().Key("plain"+keys[i]).Value(record).Nx().Get().PxMilliseconds(120000).Build(),
					client.B().Arbitrary("PTTL").Keys("plain"+keys[i]).Build())
				return results[0].Error()
			},
			func(i int) error {
				value := all[i].Fingerprint + strings.Repeat("a", 54) + result
				return client.Do(ctx, client.B().Set().Key("plain"+keys[i]).Value(value).PxMilliseconds(60000).Build()).Error()
			},
			func(i int) error {
				_, err := records.Acquire(ctx, keys[i], all[i])
				return err
			},
			func(i int) error { return records.Complete(ctx, keys[i], all[i].Owner, []byte(result), time.Minute) },
		} {
			if took := spent(step); least[n] == 0 || took < least[n] {
				least[n] = took
			}
		}
		require.NoError(b, client.Do(ctx, client.B().Flushall().Build()).Error())
	}
	for n, name := range names {
		b.ReportMetric(least[n], name+"-µs")
	}
	b.ReportMetric((least[2]+least[3])/(least[0]+least[1]), "server-time-ratio")
}

// commandTime is how many µs the server has spent on a command, as commandstats has it.
func commandTime(b *testing.B, info, command string) float64 {
	_, rest, found := strings.Cut(info, "cmdstat_"+command+":calls=")
	if !found {
		return 0
	}
	_, rest, _ = strings.Cut(rest, "usec=")
	digits, _, _ := strings.Cut(rest, ",")
	us, err := strconv.ParseFloat(digits, 64)
	require.NoError(b, err)
	return us
}

// script is one of the store's own.
func script(b *testing.B, name string) *rueidis.Lua {
	b.Helper()
	source, err := os.ReadFile(filepath.Join("..", "core", "store", "redisstore", name))
	require.NoError(b, err)
	return rueidis.NewLuaScript(string(source))
}

// roundTrips is how often the server has been sent one of the commands so far. It also counts
// what scripts call: so it is asked for commands that the scripts under way do not use.
func roundTrips(b *testing.B, client rueidis.Client, commands string) (sent int) {
	b.Helper()
	info, err := client.Do(context.Background(), client.B().Info().Section("commandstats").Build()).ToString()
	require.NoError(b, err)
	for command := range strings.FieldsSeq(commands) {
		_, rest, found := strings.Cut(info, "cmdstat_"+command+":calls=")
		if !found {
			continue
		}
		digits, _, _ := strings.Cut(rest, ",")
		n, err := strconv.Atoi(digits)
		require.NoError(b, err)
		sent += n
	}
	return sent
}
