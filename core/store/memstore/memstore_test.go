package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/memstore"
	"github.com/idem-go/idem/core/storetest"
	"github.com/idem-go/idem/internal/leak"
)

func TestMain(m *testing.M) { leak.VerifyTestMain(m) }

// newStore makes a store with a clock that only Advance moves.
func newStore(tb testing.TB, o memstore.Config) storetest.Instance {
	tb.Helper()
	clock := storetest.NewClock()
	o.Now = clock.Now
	return storetest.Instance{Store: open(tb, o), Advance: clock.Advance}
}

// unmoved makes a store whose clock is the machine's.
func unmoved(tb testing.TB, o memstore.Config) storetest.Instance {
	tb.Helper()
	return storetest.Instance{Store: open(tb, o)}
}

func open(tb testing.TB, o memstore.Config) *memstore.Store {
	tb.Helper()
	s, err := memstore.New(o)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func TestStore(t *testing.T) {
	for clock, open := range map[string]func(testing.TB, memstore.Config) storetest.Instance{"moved": newStore, "the machine's": unmoved} {
		t.Run(clock, func(t *testing.T) {
			storetest.Run(t, func(tb testing.TB) storetest.Instance { return open(tb, memstore.Config{}) }, storetest.Features{
				Bounded: func(tb testing.TB, n int) storetest.Instance { return open(tb, memstore.Config{MaxEntries: n}) },
			})
		})
	}
}

func BenchmarkStore(b *testing.B) {
	storetest.Bench(b, func(tb testing.TB) storetest.Instance { return unmoved(tb, memstore.Config{}) })
}

func TestOptions(t *testing.T) {
	for capacity, o := range map[int]memstore.Config{1 << 20: {}, 1: {MaxEntries: 1, MaxBytes: 1}, 128: {MaxBytes: 64 << 10},
		math.MaxInt32: {MaxEntries: math.MaxInt32, MaxBytes: math.MaxInt64}} {
		if s, err := memstore.New(o); err != nil || s.Capabilities().Capacity != capacity {
			t.Errorf("New(%+v): %v, not with room for %d", o, err, capacity)
		}
	}
	_, err := memstore.New(memstore.Config{MaxEntries: -1, MaxBytes: -1})
	if err == nil || !strings.Contains(err.Error(), "MaxEntries") || !strings.Contains(err.Error(), "MaxBytes") {
		t.Errorf("two faults are reported as: %v", err)
	}
	if _, err := memstore.New(memstore.Config{MaxEntries: math.MaxInt32 + 1}); err == nil {
		t.Error("more entries than a queue can number are accepted")
	}
}

func claim() store.Claim {
	return store.Claim{Owner: store.NewOwner(), Fingerprint: "f", Lease: time.Minute, Retention: time.Minute}
}

func begin(t *testing.T, s store.Store, key string, c store.Claim) {
	t.Helper()
	if g, err := s.Acquire(t.Context(), key, c); err != nil || g.State != store.Acquired || g.Attempt != 1 {
		t.Fatalf("Acquire(%q): %v, attempt %d, %v; want it acquired afresh", key, g.State, g.Attempt, err)
	}
}

// TestBytesAreBounded: the bound counts keys, fingerprints, results and the records
// themselves, exactly, and gives back what it counted.
func TestBytesAreBounded(t *testing.T) {
	const each = memstore.Overhead + 2 + 1 // "k0" and "f"
	in := newStore(t, memstore.Config{MaxBytes: 3*each + 10})
	s := in.Store.(*memstore.Store)
	ctx := t.Context()
	claims := []store.Claim{claim(), claim(), claim()}
	for i, c := range claims {
		begin(t, s, fmt.Sprint("k", i), c)
	}
	if s.Len() != 3 || s.Bytes() != 3*each {
		t.Fatalf("3 records count as %d and %d bytes, want %d bytes", s.Len(), s.Bytes(), 3*each)
	}
	if _, err := s.Acquire(ctx, "k3", claim()); !errors.Is(err, store.ErrFull) {
		t.Fatalf("a fourth record: %v, want ErrFull", err)
	}

	// A result that does not fit leaves the record running, and its owner in power.
	if err := s.Complete(ctx, "k0", claims[0].Owner, make([]byte, 11), time.Hour); !errors.Is(err, store.ErrFull) {
		t.Fatalf("11 bytes where 10 fit: %v, want ErrFull", err)
	}
	if g, err := s.Acquire(ctx, "k0", claim()); err != nil || g.State != store.Running {
		t.Fatalf("the record is %v, %v; want running", g.State, err)
	}
	if err := s.Complete(ctx, "k0", claims[0].Owner, make([]byte, 10), time.Hour); err != nil {
		t.Fatalf("10 bytes where 10 fit: %v", err)
	}
	if s.Bytes() != 3*each+10 {
		t.Fatalf("the store counts %d bytes, want %d", s.Bytes(), 3*each+10)
	}

	// Another owner gets ErrLost, not ErrFull.
	if err := s.Complete(ctx, "k1", store.NewOwner(), make([]byte, 100), time.Hour); !errors.Is(err, store.ErrLost) {
		t.Fatalf("a stranger's result: %v, want ErrLost", err)
	}

	// What has passed makes room for a result, too.
	in.Advance(time.Minute)
	if err := s.Renew(ctx, "k1", claims[1].Owner, time.Hour); err != nil {
		t.Fatal(err)
	}
	in.Advance(time.Minute) // k2 is forgotten
	if err := s.Complete(ctx, "k1", claims[1].Owner, make([]byte, each), time.Hour); err != nil {
		t.Fatalf("a result in the room of a forgotten record: %v", err)
	}
	in.Advance(2 * time.Hour)
	begin(t, s, "k0", claim())
	begin(t, s, "k1", claim())
	begin(t, s, "k2", claim())
	if s.Len() != 3 || s.Bytes() != 3*each {
		t.Fatalf("3 records count as %d and %d bytes, want %d bytes", s.Len(), s.Bytes(), 3*each)
	}
}

// TestOutlivedResults: none is handed out, whether a call has removed it or not, and each that is removed gives its room back.
func TestOutlivedResults(t *testing.T) {
	const n, size = 5000, 100 // so many that no call removes all of its shard
	in := newStore(t, memstore.Config{})
	s := in.Store.(*memstore.Store)
	can := s.Capabilities()
	for i := range n {
		key, c := strconv.Itoa(i), claim()
		begin(t, s, key, c)
		if err := can.Outlive(t.Context(), key, c.Owner, make([]byte, size), time.Minute, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	full := s.Bytes()
	in.Advance(time.Minute)
	for i := n - 1; i >= 0; i-- {
		key := strconv.Itoa(i)
		g, _, done := can.Recall([]byte(key))
		if i%2 == 0 {
			var err error
			g, err = s.Acquire(t.Context(), key, claim())
			done = err == nil
		}
		if !done || !g.Expired || len(g.Result) > 0 {
			t.Fatalf("%q: %t, %+v", key, done, g)
		}
	}
	if freed := full - s.Bytes(); freed != n*size {
		t.Errorf("%d bytes of room came back, want %d", freed, n*size)
	}
}

// TestHugeResultSweepsNothing: what can never fit must not cost the others anything.
func TestHugeResultSweepsNothing(t *testing.T) {
	in := newStore(t, memstore.Config{MaxBytes: 4096})
	s := in.Store.(*memstore.Store)
	c := claim()
	begin(t, s, "k", c)
	for i := range 5 {
		brief := claim()
		brief.Retention = 0
		brief.Lease = time.Second
		begin(t, s, strconv.Itoa(i), brief)
	}
	in.Advance(time.Second)
	before := s.Len()
	if err := s.Complete(t.Context(), "k", c.Owner, make([]byte, 1<<20), time.Hour); !errors.Is(err, store.ErrFull) {
		t.Fatalf("a result larger than the store: %v, want ErrFull", err)
	}
	if s.Len() != before {
		t.Errorf("%d records were swept for a result that can't fit", before-s.Len())
	}
}

// TestNoCallSweeps counts the work of each call after 200,000 records have expired
// at once: a sweep of all of them under one lock would stall whoever comes first.
func TestNoCallSweeps(t *testing.T) {
	const n = 200_000
	in := newStore(t, memstore.Config{MaxEntries: n})
	s := in.Store.(*memstore.Store)
	brief := claim()
	brief.Lease, brief.Retention = time.Second, 0
	for i := range n {
		begin(t, s, strconv.Itoa(i), brief)
	}
	in.Advance(time.Hour)
	if s.Len() != n {
		t.Fatalf("%d records, want %d that nobody has reclaimed", s.Len(), n)
	}
	calls := 0
	for s.Len() > calls { // until only those that were added are left
		before := s.Len()
		begin(t, s, "new"+strconv.Itoa(calls), claim())
		calls++
		if swept := before + 1 - s.Len(); swept > memstore.ReclaimPerCall {
			t.Fatalf("call %d reclaimed %d records", calls, swept)
		}
		if calls > n {
			t.Fatalf("after %d calls, %d records are still there", calls, s.Len()-calls)
		}
	}
	t.Logf("%d dead records were gone after %d calls", n, calls)
}

// TestTheDeadNeverOutgrowTheLiving: in steady work, calls reclaim at least as fast as
// they add, so that memory follows what stands.
func TestTheDeadNeverOutgrowTheLiving(t *testing.T) {
	in := newStore(t, memstore.Config{})
	s := in.Store.(*memstore.Store)
	brief := claim()
	brief.Lease, brief.Retention = time.Second, 0
	for i := range 100_000 { // 1,000 a second
		begin(t, s, strconv.Itoa(i), brief)
		in.Advance(time.Millisecond)
		// 1,000 stand; each shard keeps a few dead ones until it is next called.
		if s.Len() > 3000 {
			t.Fatalf("after %d calls, the store holds %d records where 1,000 stand", i, s.Len())
		}
	}
}

// TestMemoryPerRecord measures what a record takes beyond its key, fingerprint and
// result: at most 190 bytes is the promise, and what Config.MaxBytes counts. The store has copies of all three.
func TestMemoryPerRecord(t *testing.T) {
	const n = 100_000
	s := open(t, memstore.Config{})
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("idem:U=user-%06dM=POST%%20/ordersP=%032d", i%1000, i)
	}
	result := make([]byte, 256) // a size class: nothing is lost to rounding
	c := claim()
	c.Fingerprint, c.Policy, c.Creator = strings.Repeat("f", 32), "client-key", "shop-1/12345"
	texts := float64(len(keys[0]) + len(c.Fingerprint))
	ctx := t.Context()
	before, objects := heap()
	for _, key := range keys {
		if _, err := s.Acquire(ctx, key, c); err != nil {
			t.Fatal(err)
		}
	}
	running, _ := heap()
	for _, key := range keys {
		if err := s.Complete(ctx, key, c.Owner, result, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	done, more := heap()
	perRunning := (float64(running)-float64(before))/n - texts
	perDone := (float64(done)-float64(before))/n - texts - float64(len(result))
	t.Logf("%.0f bytes per running record, %.0f per finished one", perRunning, perDone)
	if perRunning > memstore.Overhead || perDone > memstore.Overhead {
		t.Errorf("a record takes %.0f bytes running and %.0f finished, beyond key, fingerprint and result; at most %d",
			perRunning, perDone, memstore.Overhead)
	}
	if perObject := n / (float64(more) - float64(objects)); perObject < 10 {
		t.Errorf("%.1f records for each object that the collector marks", perObject)
	}
	if perDone < 50 {
		t.Errorf("a record takes %.0f bytes: this measures nothing", perDone)
	}
	runtime.KeepAlive(s)
	runtime.KeepAlive(keys)
}

func heap() (bytes, objects uint64) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc, m.HeapObjects
}

// TestAllocations: a claim costs its record, a result its copy.
func TestAllocations(t *testing.T) {
	s := open(t, memstore.Config{})
	ctx := context.Background()
	c := claim()
	keys := make([]string, 20_000)
	for i := range keys {
		keys[i] = strconv.Itoa(i)
	}
	next, recall, buf := 0, s.Capabilities().Recall, make([]byte, 0, 8)
	measure := func(name string, want float64, fn func(key string)) {
		t.Helper()
		next = 0
		got := testing.AllocsPerRun(len(keys)-2, func() {
			fn(keys[next])
			next++
		})
		if got > want {
			t.Errorf("%s: %v allocations, want at most %v", name, got, want)
		}
	}
	measure("Acquire, fresh", 1, func(key string) { _, _ = s.Acquire(ctx, key, c) })
	measure("Acquire, running", 0, func(key string) { _, _ = s.Acquire(ctx, key, c) })
	measure("Renew", 0, func(key string) { _ = s.Renew(ctx, key, c.Owner, time.Hour) })
	measure("Complete", 1, func(key string) { _ = s.Complete(ctx, key, c.Owner, []byte("result"), time.Hour) })
	measure("Recall", 1, func(key string) { buf = append(buf[:0], key...); _, _, _ = recall(buf) })
	measure("Acquire, done", 1, func(key string) { _, _ = s.Acquire(ctx, key, c) })
}

// TestSpansBeyondTheEndOfTime: the longest duration must not turn into a moment long
// past.
func TestSpansBeyondTheEndOfTime(t *testing.T) {
	in := newStore(t, memstore.Config{})
	in.Advance(time.Hour)
	c := claim()
	c.Lease, c.Retention = math.MaxInt64, math.MaxInt64
	begin(t, in.Store, "k", c)
	if err := in.Store.Renew(t.Context(), "k", c.Owner, math.MaxInt64); err != nil {
		t.Fatal(err)
	}
	in.Advance(1000 * time.Hour)
	if g, err := in.Store.Acquire(t.Context(), "k", claim()); err != nil || g.State != store.Running {
		t.Fatalf("the record is %v, %v; want running", g.State, err)
	}
	if err := in.Store.Complete(t.Context(), "k", c.Owner, nil, math.MaxInt64); err != nil {
		t.Fatal(err)
	}
	in.Advance(1000 * time.Hour)
	if g, err := in.Store.Acquire(t.Context(), "k", claim()); err != nil || g.State != store.Done {
		t.Fatalf("the record is %v, %v; want done", g.State, err)
	}
}

// TestReclaimedRunWakesItsWatchers: the channel goes with its record.
func TestReclaimedRunWakesItsWatchers(t *testing.T) {
	in := newStore(t, memstore.Config{MaxEntries: 1})
	s := in.Store.(*memstore.Store)
	begin(t, s, "k", claim())
	changed, stop, err := s.Capabilities().Watch(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	in.Advance(time.Hour)
	begin(t, s, "other", claim())
	select {
	case <-changed:
	default:
		t.Error("the record is gone and its watcher sleeps on")
	}
}

func TestBytesOfAFreeRecord(t *testing.T) {
	s := open(t, memstore.Config{})
	ctx, c := t.Context(), store.Claim{Owner: store.NewOwner(), Fingerprint: "f", Lease: time.Hour, Retention: time.Hour, Takeover: true}
	acquire := func() error { _, err := s.Acquire(ctx, "k", c); return err }
	err := errors.Join(acquire(), s.Abandon(ctx, "k", c.Owner), acquire())
	before := s.Bytes()
	err = errors.Join(err, s.Complete(ctx, "k", c.Owner, nil, 0))
	c.Fingerprint = "another"
	if err := errors.Join(err, acquire()); err != nil || s.Bytes() != before+6 {
		t.Errorf("%d bytes, then %d with a fingerprint that is 6 bytes longer; %v", before, s.Bytes(), err)
	}
}
