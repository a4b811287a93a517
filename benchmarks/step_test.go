package benchmarks

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/internal/backend"
)

// BenchmarkStep is what a task costs with steps, each with a result of 100 bytes, and with a derived key. On Redis, a server of its own,
// there are also its round-trips/op, and received-B/op, what the store has sent to it.
func BenchmarkStep(b *testing.B) {
	for _, s := range []struct {
		name string
		open func(b *testing.B) (backing, rueidis.Client)
	}{
		{"memory", func(b *testing.B) (backing, rueidis.Client) { return openMemory(b, b.N), nil }},
		{"redis", func(b *testing.B) (backing, rueidis.Client) {
			url := backend.StartRedis(b).URL()
			options, err := rueidis.ParseURL(url)
			require.NoError(b, err)
			client, err := rueidis.NewClient(options)
			require.NoError(b, err)
			b.Cleanup(client.Close)
			return openRedis(b, url), client
		}},
		{"postgres", func(b *testing.B) (backing, rueidis.Client) { return openSQL(b, backend.Postgres(b)), nil }},
	} {
		for _, steps := range []int{0, 1, 3} {
			b.Run(fmt.Sprintf("%s/%d", s.name, steps), func(b *testing.B) { benchmarkSteps(b, s.open, steps, false) })
		}
		b.Run(s.name+"/derive", func(b *testing.B) { benchmarkSteps(b, s.open, 0, true) })
	}
}

func benchmarkSteps(b *testing.B, open func(b *testing.B) (backing, rueidis.Client), steps int, derive bool) {
	backing, redis := open(b)
	c := core.Config{Store: backing.store, Service: backing.service, StoreTimeout: time.Minute}
	if derive {
		c.Secrets = []core.Secret{{Name: "s1", Key: []byte("0123456789abcdef0123456789abcdef")}}
	}
	task := core.MustNew(c).MustTask(core.TaskPolicy{Name: "task", Record: core.Record{Lease: time.Minute}})
	keys, names := newClientKeys(b.N), []string{"reserve", "charge", "mail"}[:steps]
	result := []byte(strings.Repeat("r", 100))
	ran, derived := 0, 0
	before := counters(b, redis)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		_, err := core.Do(context.Background(), task, core.Call{Key: keys.at(i)}, func(ctx context.Context) ([]byte, error) {
			for _, name := range names {
				if _, err := core.Step(ctx, name, func(context.Context) ([]byte, error) { ran++; return result, nil }); err != nil {
					return nil, err
				}
			}
			if derive {
				key, err := core.RunFrom(ctx).Derive("call")
				derived += len(key)
				return nil, err
			}
			return nil, nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	if ran != b.N*steps || derive != (derived == 40*b.N && derived > 0) {
		b.Fatalf("%d steps ran, and %d characters were derived, in %d", ran, derived, b.N)
	}
	if redis != nil {
		after := counters(b, redis)
		b.ReportMetric(float64(after[0]-before[0])/float64(b.N), "received-B/op")
		b.ReportMetric(float64(after[1]-before[1])/float64(b.N), "round-trips/op")
	}
}

// counters are how many bytes the server has received so far, and how many claims and scripts it was asked for.
func counters(b *testing.B, client rueidis.Client) (n [2]int) {
	b.Helper()
	if client == nil {
		return n
	}
	info, err := client.Do(context.Background(), client.B().Info().Section("stats").Build()).ToString()
	require.NoError(b, err)
	_, rest, _ := strings.Cut(info, "total_net_input_bytes:")
	_, err = fmt.Sscan(rest, &n[0])
	require.NoError(b, err)
	n[1] = roundTrips(b, client, "pttl evalsha eval")
	return n
}
