package storetest

import (
	"encoding/binary"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem/core/store"
)

// benchResult is what the benchmarks store: a small JSON response with a few
// header fields.
const benchResult = 300

// Bench measures the store that factory makes, in a sub-benchmark for each way in
// which an engine meets with it. Each checks what it measures: that fresh keys
// were fresh and that replays came with the result.
//
//   - fresh: Acquire of a new key and Complete, as for a first request; the key's own
//     allocation is counted in;
//   - replay: Acquire of a finished key;
//   - running: Acquire of a key that another owner runs;
//   - renew: Renew by the owner;
//   - parallel: fresh and replay by turns, on all processors.
func Bench(b *testing.B, factory Factory) {
	b.Run("fresh", func(b *testing.B) {
		s := newBench(b, factory)
		b.ReportAllocs()
		key := append(make([]byte, 0, 64), "bench:fresh:"...)
		for i := 0; b.Loop(); i++ {
			s.fresh(b, string(strconv.AppendInt(key, int64(i), 10)), i)
		}
	})
	b.Run("replay", func(b *testing.B) {
		s := newBench(b, factory)
		s.prepare(b, "bench:done", true)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			s.meet(b, "bench:done", i, store.Done)
		}
	})
	b.Run("running", func(b *testing.B) {
		s := newBench(b, factory)
		s.prepare(b, "bench:running", false)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			s.meet(b, "bench:running", i, store.Running)
		}
	})
	b.Run("renew", func(b *testing.B) {
		s := newBench(b, factory)
		owner := s.prepare(b, "bench:renewed", false)
		ctx := b.Context()
		b.ReportAllocs()
		for b.Loop() {
			if err := s.store.Renew(ctx, "bench:renewed", owner, long); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("parallel", func(b *testing.B) {
		s := newBench(b, factory)
		s.prepare(b, "bench:done", true)
		var worker atomic.Int64
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			key := append(make([]byte, 0, 64), "bench:parallel:"+strconv.FormatInt(worker.Add(1), 10)+":"...)
			for i := 0; pb.Next(); i++ {
				if i%2 == 0 {
					s.fresh(b, string(strconv.AppendInt(key, int64(i), 10)), i)
				} else {
					s.meet(b, "bench:done", i, store.Done)
				}
				if b.Failed() {
					return
				}
			}
		})
	})
}

type bench struct {
	store   store.Store
	advance func(time.Duration)
	result  []byte
}

func newBench(b *testing.B, factory Factory) *bench {
	b.Helper()
	i := factory(b)
	if i.Store == nil {
		b.Fatal("storetest: the factory made no store")
	}
	return &bench{store: i.Store, advance: i.Advance, result: make([]byte, benchResult)}
}

// benchOwner returns a token that is different for each i, and costs nothing: what an
// owner costs is not the store's.
func benchOwner(i int) store.Owner {
	var o store.Owner
	binary.LittleEndian.PutUint64(o[:], uint64(i)+1)
	return o
}

func (s *bench) prepare(b *testing.B, key string, done bool) store.Owner {
	b.Helper()
	owner := store.NewOwner()
	g, err := s.store.Acquire(b.Context(), key, store.Claim{Owner: owner, Fingerprint: digest, Lease: 24 * long, Retention: long})
	if err != nil || g.State != store.Acquired {
		b.Fatalf("a fresh key: %v, %v", g.State, err)
	}
	if done {
		if err := s.store.Complete(b.Context(), key, owner, s.result, 24*long); err != nil {
			b.Fatal(err)
		}
	}
	return owner
}

// fresh runs one operation. Its result is kept for a few milliseconds only, so that
// a benchmark of millions measures a store at work, not one that fills up.
func (s *bench) fresh(b *testing.B, key string, i int) {
	owner := benchOwner(i)
	g, err := s.store.Acquire(b.Context(), key, store.Claim{Owner: owner, Fingerprint: digest, Lease: time.Minute, Retention: time.Minute})
	if err != nil || g.State != store.Acquired {
		b.Errorf("a fresh key: %v, %v", g.State, err)
		return
	}
	if err := s.store.Complete(b.Context(), key, owner, s.result, 20*time.Millisecond); err != nil {
		b.Errorf("Complete: %v", err)
	}
	if s.advance != nil && i%1024 == 0 {
		s.advance(20 * time.Millisecond)
	}
}

func (s *bench) meet(b *testing.B, key string, i int, want store.State) {
	g, err := s.store.Acquire(b.Context(), key,
		store.Claim{Owner: benchOwner(i), Fingerprint: digest, Lease: time.Minute, Retention: time.Minute, Takeover: true})
	if err != nil || g.State != want || want == store.Done && len(g.Result) != benchResult {
		b.Errorf("Acquire met with %v and %d bytes, %v; want %v", g.State, len(g.Result), err, want)
	}
}
