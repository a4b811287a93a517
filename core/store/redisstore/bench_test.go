package redisstore_test

import (
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/core/storetest"
	"github.com/idem-go/idem/internal/backend"
)

func BenchmarkStandalone(b *testing.B) { storetest.Bench(b, instances(b, backend.Redis(b))) }

// BenchmarkAgainstRaw compares an operation (Acquire and Complete) and a replay, from 64
// goroutines, with the bare client: calling the same scripts, and doing as many plain
// commands (SET NX and SET; GET), which compare no owner.
func BenchmarkAgainstRaw(b *testing.B) {
	const parallel = 64
	server := backend.StartRedis(b)
	options, err := rueidis.ParseURL(server.URL())
	require.NoError(b, err)
	client, err := rueidis.NewClient(options)
	require.NoError(b, err)
	b.Cleanup(client.Close)
	store := redisstore.New(client)
	b.Cleanup(store.Close)
	cached := redisstore.New(client, redisstore.ClientSideCache(time.Minute))
	b.Cleanup(cached.Close)

	fingerprint := "c2a36fed15128e9e878583caaafefde9"
	result := make([]byte, 300)
	claim := func() core.Claim {
		return core.Claim{Owner: core.NewOwner(), Fingerprint: fingerprint, Lease: time.Minute, Retention: time.Minute}
	}
	done := claim()
	_, err = store.Acquire(b.Context(), "done", done)
	require.NoError(b, err)
	require.NoError(b, store.Complete(b.Context(), "done", done.Owner, result, time.Hour))

	value := "R1;60000;32;" + string(make([]byte, 16)) + fingerprint
	script := func(file string) *rueidis.Lua {
		source, err := os.ReadFile(file)
		require.NoError(b, err)
		return rueidis.NewLuaScript(string(source))
	}
	acquire, complete := script("acquire.lua"), script("complete.lua")
	var next atomic.Int64
	fresh := func() string { return "fresh:" + strconv.FormatInt(next.Add(1), 10) }

	replay := func(b *testing.B, s *redisstore.Store) {
		if g, err := s.Acquire(b.Context(), "done", claim()); err != nil || g.State != core.Done || len(g.Result) != len(result) {
			b.Errorf("met with %v, %v", g.State, err)
		}
	}
	for _, bench := range []struct {
		name string
		step func(b *testing.B)
	}{
		{"operation/commands", func(b *testing.B) {
			key := fresh()
			err1 := client.Do(b.Context(), client.B().Set().Key(key).Value(value).Nx().PxMilliseconds(60000).Build()).Error()
			err2 := client.Do(b.Context(), client.B().Set().Key(key).Value(fingerprint+string(result)).PxMilliseconds(1000).Build()).Error()
			if err1 != nil || err2 != nil {
				b.Error(err1, err2)
			}
		}},
		{"operation/scripts", func(b *testing.B) {
			key, c := fresh(), claim()
			record := "R1;60000;32;" + string(c.Owner[:]) + fingerprint
			first, err1 := acquire.Exec(b.Context(), client, []string{key}, []string{record, "120000", ""}).AsInt64()
			held, err2 := complete.Exec(b.Context(), client, []string{key}, []string{string(c.Owner[:]), "1000", string(result)}).AsInt64()
			if first != 1 || held != 1 || err1 != nil || err2 != nil {
				b.Error(first, held, err1, err2)
			}
		}},
		{"operation/store", func(b *testing.B) {
			key, c := fresh(), claim()
			g, err1 := store.Acquire(b.Context(), key, c)
			err2 := store.Complete(b.Context(), key, c.Owner, result, time.Second)
			if g.State != core.Acquired || err1 != nil || err2 != nil {
				b.Error(g.State, err1, err2)
			}
		}},
		{"replay/commands", func(b *testing.B) {
			if v, err := client.Do(b.Context(), client.B().Get().Key("done").Build()).ToString(); err != nil || len(v) < len(result) {
				b.Error(v, err)
			}
		}},
		{"replay/scripts", func(b *testing.B) {
			parts, err := acquire.Exec(b.Context(), client, []string{"done"}, []string{value, "120000", ""}).ToArray()
			if err != nil || len(parts) != 2 {
				b.Error(parts, err)
			}
		}},
		{"replay/store", func(b *testing.B) { replay(b, store) }},
		{"replay/cached", func(b *testing.B) { replay(b, cached) }},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(parallel / 2) // times GOMAXPROCS
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() && !b.Failed() {
					bench.step(b)
				}
			})
		})
	}
}
