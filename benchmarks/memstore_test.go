package benchmarks

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/memstore"
)

const (
	// recordKey and recordFingerprint are the key and the fingerprint of record 0, as the
	// engine makes them for a client key in the form of a UUID: in one string.
	recordKey         = "idem:U=aliceM=POST%20/ordersK=f81d4fae-7dec-41d0-8765-000000000000"
	recordFingerprint = "c2a36fed15128e9e878583caaafefde9"
	recordResult      = 160 // bytes, as of a small JSON response with its header fields
)

// recordNames returns the key and the fingerprint of record i, in memory of their own.
func recordNames(i int) (key, fingerprint string) {
	both := []byte(recordKey + recordFingerprint)
	digits := both[len(recordKey)-12 : len(recordKey)]
	for at := len(digits) - 1; i > 0; at-- {
		digits[at] = byte('0' + i%10)
		i /= 10
	}
	s := string(both)
	return s[:len(recordKey)], s[len(recordKey):]
}

// claimOf is a claim for record i. Its owner costs nothing: that is not the store's.
func claimOf(i int, fingerprint string) store.Claim {
	c := store.Claim{Fingerprint: fingerprint, Lease: time.Minute, Retention: time.Minute}
	binary.LittleEndian.PutUint64(c.Owner[:], uint64(i)+1)
	return c
}

// finish acquires the key of record i, which is new, and completes it.
func finish(records store.Store, i int, result []byte, retention time.Duration) error {
	key, fingerprint := recordNames(i)
	claim := claimOf(i, fingerprint)
	if g, err := records.Acquire(context.Background(), key, claim); err != nil || g.State != store.Acquired {
		return fmt.Errorf("record %d: %v, %w", i, g.State, err)
	}
	return records.Complete(context.Background(), key, claim.Owner, result, retention)
}

// operate is finish for a benchmark.
func operate(b *testing.B, records *memstore.Store, i int, result []byte, retention time.Duration) {
	if err := finish(records, i, result, retention); err != nil {
		b.Fatal(err)
	}
}

// filled returns a store with finished records 0 to n-1, whose retention ends within the
// second hour.
func filled(b *testing.B, n int, o memstore.Config) *memstore.Store {
	b.Helper()
	records := newMemstore(b, o)
	result := make([]byte, recordResult)
	r := rand.New(rand.NewSource(1)) // else the records would be in order of their ends
	for i := range n {
		operate(b, records, i, result, time.Hour+time.Duration(r.Int63n(int64(time.Hour))))
	}
	if records.Len() != n {
		b.Fatalf("the store holds %d records, want %d", records.Len(), n)
	}
	for _, i := range []int{0, n / 2, n - 1} {
		key, fingerprint := recordNames(i)
		g, err := records.Acquire(context.Background(), key, claimOf(n, fingerprint))
		require.NoError(b, err)
		require.Equal(b, store.Done, g.State)
		require.Len(b, g.Result, recordResult)
		require.Equal(b, fingerprint, g.Fingerprint)
	}
	return records
}

// BenchmarkMemstore is what the in-process store costs, by the number of records that it
// holds already.
//
//   - operation: Acquire of a new key, and Complete. What it adds expires soon, and is
//     removed by later calls. B/record is the memory that one of the records takes beside
//     its key and result;
//   - acquire: the time of each single Acquire of a new key, which is then released: ns/op is
//     the mean, beside it p50, p99, p99.9 and the longest. max-cpu-ns is the most processor
//     time that one has used: on a busy machine the longest one has waited for a processor;
//   - expiry: the same while all the records are expired, and each Acquire removes some.
//
// "none/clock" measures in the same way with nothing in between: what is found there, the
// machine adds to the others.
func BenchmarkMemstore(b *testing.B) {
	b.Run("none/clock", func(b *testing.B) {
		times := newLatencies(b.N)
		b.ResetTimer()
		for range b.N {
			times.begin()
			times.end()
		}
		times.report(b)
	})
	for _, size := range []struct {
		name    string
		records int
	}{{"1k", 1_000}, {"100k", 100_000}, {"1M", 1_000_000}, {"5M", 5_000_000}} {
		b.Run(size.name, func(b *testing.B) {
			if size.records > 1_000_000 && testing.Short() {
				b.Skip("takes 3 GB")
			}
			live(b, size.records)
			x := expiring{records: size.records}
			b.Run("expiry", x.measure)
		})
	}
}

// live measures a store whose records all stand.
func live(b *testing.B, records int) {
	bound := memstore.Config{MaxEntries: 2*records + 1<<20}
	before := heap()
	s := filled(b, records, bound)
	perRecord := float64(heap()-before)/float64(records) - float64(len(recordKey)+recordResult)

	next := records // records are never the same again, in any benchmark
	b.Run("operation", func(b *testing.B) {
		result := make([]byte, recordResult)
		b.ReportAllocs()
		for b.Loop() {
			operate(b, s, next, result, time.Millisecond)
			next++
		}
		if s.Len() < records {
			b.Fatalf("the store holds %d records only", s.Len())
		}
		b.ReportMetric(perRecord, "B/record")
	})
	b.Run("acquire", func(b *testing.B) {
		times := newLatencies(b.N)
		b.ReportAllocs()
		b.ResetTimer()
		for range b.N {
			key, fingerprint := recordNames(next)
			claim := claimOf(next, fingerprint)
			next++
			times.begin()
			g, err := s.Acquire(context.Background(), key, claim)
			times.end()
			if err != nil || g.State != store.Acquired {
				b.Fatalf("%v, %v", g.State, err)
			}
			if err := s.Release(context.Background(), key, claim.Owner); err != nil {
				b.Fatal(err)
			}
		}
		times.report(b)
	})
	runtime.KeepAlive(s)
}

// perAcquire is how many expired records an Acquire removes.
const perAcquire = 8

// expiring is a store full of expired records.
type expiring struct {
	records int
	store   *memstore.Store
	ahead   atomic.Int64 // what the store's clock is ahead, so that the records expire at once
	next    int          // the next record to be added
	left    int          // Acquires until the store is as good as empty
	removed int          // records that they have removed
}

// fill makes the store anew.
func (x *expiring) fill(b *testing.B) {
	x.store = nil
	x.ahead.Store(0)
	x.store = filled(b, x.records, memstore.Config{
		MaxEntries: 2 * x.records,
		Now:        func() time.Time { return time.Now().Add(time.Duration(x.ahead.Load())) },
	})
	x.ahead.Store(int64(3 * time.Hour))
	x.next, x.left, x.removed = x.records, x.records/perAcquire, 0
	runtime.GC() // the store before is gone, and need not be collected while others are timed
}

// measure times Acquires that meet with expired records. When they have removed these, the
// store is filled anew, outside of the time that is measured.
func (x *expiring) measure(b *testing.B) {
	times := newLatencies(b.N)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if x.left == 0 {
			b.StopTimer()
			x.fill(b)
			b.StartTimer()
		}
		key, fingerprint := recordNames(x.next)
		claim := claimOf(x.next, fingerprint)
		x.next++
		held := x.store.Len()
		times.begin()
		g, err := x.store.Acquire(context.Background(), key, claim)
		times.end()
		if err != nil || g.State != store.Acquired {
			b.Fatalf("%v, %v", g.State, err)
		}
		n := held + 1 - x.store.Len()
		if n < 0 || n > perAcquire {
			b.Fatalf("%d records were removed at once", n)
		}
		x.removed += n
		// In a small store some shards are not met with by then.
		if x.left--; x.left == 0 && x.removed < x.records/3 {
			b.Fatalf("%d records were removed of %d expired ones", x.removed, x.records)
		}
	}
	times.report(b)
}

// heap is the number of bytes that are in use, of objects.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // what pools have held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// latencies are the times of single calls by one goroutine, in nanoseconds.
type latencies struct {
	times  []uint32
	began  time.Time
	cpu    time.Duration // of the thread, when the call began
	maxCPU time.Duration // the most that a call has used; zero if that is not known
}

// newLatencies has room for n calls. The goroutine stays on its thread until done.
func newLatencies(n int) *latencies {
	runtime.LockOSThread()
	return &latencies{times: make([]uint32, 0, n)}
}

func (l *latencies) begin() {
	l.cpu, _ = cpuTime()
	l.began = time.Now()
}

func (l *latencies) end() {
	l.times = append(l.times, uint32(min(time.Since(l.began), 4*time.Second)))
	if cpu, known := cpuTime(); known {
		l.maxCPU = max(l.maxCPU, cpu-l.cpu)
	}
}

// report stops the timer. ns/op becomes the mean of the calls.
func (l *latencies) report(b *testing.B) {
	b.StopTimer()
	runtime.UnlockOSThread()
	if len(l.times) != b.N {
		b.Fatalf("%d times of %d calls", len(l.times), b.N)
	}
	sum := 0.0
	for _, t := range l.times {
		sum += float64(t)
	}
	slices.Sort(l.times)
	at := func(share float64) float64 { return float64(l.times[int(share*float64(b.N-1))]) }
	b.ReportMetric(sum/float64(b.N), "ns/op")
	b.ReportMetric(at(0.5), "p50-ns")
	b.ReportMetric(at(0.99), "p99-ns")
	b.ReportMetric(at(0.999), "p99.9-ns")
	b.ReportMetric(at(1), "max-ns")
	if l.maxCPU > 0 {
		b.ReportMetric(float64(l.maxCPU), "max-cpu-ns")
	}
}
