package memstore

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/idem-go/idem/core/store"
)

// TestInvariants drives a small store at random and checks what no caller can see:
// that the queue is a heap whose records know their places, that map and queue
// hold the same records, that the counters are exact, and that a store which refuses is
// full of what stands. The keys meet in two shards: spread over all of them, they would
// make queues of one record each, which are in order whatever is done to them.
func TestInvariants(t *testing.T) {
	const room = 24
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(0, 0)
		s, err := New(Config{MaxEntries: room, MaxBytes: room*overhead + 400, Now: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		keys := append(keysIn(s, 0, 30), keysIn(s, 1, 10)...)
		key := rapid.Custom(func(t *rapid.T) string { return keys[rapid.IntRange(0, len(keys)-1).Draw(t, "key")] })
		span := rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.IntRange(1, 50).Draw(t, "span")) * time.Second
		})
		owner := rapid.Custom(func(t *rapid.T) store.Owner {
			return store.Owner{byte(rapid.IntRange(1, 2).Draw(t, "owner"))}
		})
		text := rapid.Custom(func(t *rapid.T) string { return strings.Repeat("x", rapid.IntRange(0, 60).Draw(t, "text")) })
		ctx := context.Background()
		acquire := func(t *rapid.T) {
			key, remark := key.Draw(t, "key"), text.Draw(t, "remark")
			fingerprint := rapid.SampledFrom([]string{"", "of another operation"}).Draw(t, "fingerprint")
			secret, id := rapid.SampledFrom([]string{"", "s1", "secret 2"}).Draw(t, "secret"),
				rapid.SampledFrom([]store.ID{{}, {1}}).Draw(t, "id")
			_, err := s.Acquire(ctx, key, store.Claim{
				Owner: owner.Draw(t, "owner"), Fingerprint: fingerprint, Secret: secret, About: store.About{ID: id, Remark: remark},
				Lease: span.Draw(t, "lease"), Retention: span.Draw(t, "retention"), Takeover: rapid.Bool().Draw(t, "takeover"),
				Attempt: rapid.Uint64Range(0, 2).Draw(t, "attempt"),
			})
			checkFull(t, s, err, 1, overhead+int64(len(key)+len(fingerprint)+len(secret)+len(remark)))
		}
		for range rapid.IntRange(0, 2*room).Draw(t, "first") {
			acquire(t)
		}
		t.Repeat(map[string]func(*rapid.T){
			"acquire": acquire,
			"renew": func(t *rapid.T) {
				_ = s.Renew(ctx, key.Draw(t, "key"), owner.Draw(t, "owner"), span.Draw(t, "lease"))
			},
			"complete": func(t *rapid.T) {
				size := rapid.OneOf(rapid.IntRange(0, 100), rapid.IntRange(0, room*overhead)).Draw(t, "size")
				known := rapid.OneOf(rapid.Just(time.Duration(0)), span).Draw(t, "known") // as Complete, or as Outlive
				err := s.outlive(ctx, key.Draw(t, "key"), owner.Draw(t, "owner"), make([]byte, size), span.Draw(t, "retention"), known)
				checkFull(t, s, err, 0, int64(size))
			},
			"release": func(t *rapid.T) {
				_ = s.Release(ctx, key.Draw(t, "key"), owner.Draw(t, "owner"))
			},
			"checkpoint": func(t *rapid.T) {
				steps := []byte(text.Draw(t, "steps"))
				checkFull(t, s, s.checkpoint(ctx, key.Draw(t, "key"), owner.Draw(t, "owner"), steps), 0, int64(1+len(steps)))
			},
			"fail": func(t *rapid.T) {
				_ = s.fail(ctx, key.Draw(t, "key"), owner.Draw(t, "owner"), rapid.Bool().Draw(t, "goes on"))
			},
			"abandon": func(t *rapid.T) {
				_ = s.Abandon(ctx, key.Draw(t, "key"), owner.Draw(t, "owner"))
			},
			"change": func(t *rapid.T) {
				key, result, remark := key.Draw(t, "key"), text.Draw(t, "result"), text.Draw(t, "remark")
				inspect := s.Capabilities().Inspect
				seen, err := inspect.Lookup(ctx, key)
				if err != nil {
					return
				}
				c := store.Change{To: rapid.SampledFrom([]store.State{0, store.Free, store.Done}).Draw(t, "to"), Result: []byte(result),
					Retention: span.Draw(t, "retention"), Remark: remark}
				if c.Validate(seen.State) == nil {
					checkFull(t, s, inspect.Change(ctx, key, seen, c), 0, int64(len(result)+len(remark)))
				}
			},
			"watch": func(t *rapid.T) {
				if _, _, err := s.Capabilities().Watch(ctx, key.Draw(t, "key")); err != nil {
					t.Fatal(err)
				}
			},
			"wait": func(t *rapid.T) { now = now.Add(span.Draw(t, "wait")) },
			"":     func(t *rapid.T) { checkInvariants(t, s) },
		})
	})
}

// keysIn returns n keys that lie in one shard.
func keysIn(s *Store, shard, n int) []string {
	var keys []string
	for i := 0; len(keys) < n; i++ {
		key := strconv.Itoa(i)
		if sh, _ := s.locate(key); sh == &s.shards[shard] {
			keys = append(keys, key)
		}
	}
	return keys
}

// checkFull expects that a call which wanted so many entries and bytes more has met with no
// error but the claim's loss, or with a store whose standing records leave too little room.
func checkFull(t *rapid.T, s *Store, err error, entries, bytes int64) {
	if err == nil || errors.Is(err, store.ErrLost) {
		return
	}
	if !errors.Is(err, store.ErrFull) {
		t.Fatal(err)
	}
	now := s.elapsed()
	for i := range s.shards {
		for _, slot := range s.shards[i].queue {
			if slot.at > now {
				entries++
				bytes += s.shards[i].entry(slot.number).size()
			}
		}
	}
	if entries <= s.maxEntries && bytes <= s.maxBytes {
		t.Fatalf("the store is full, but with what was wanted %d entries and %d bytes would stand, where %d and %d are allowed",
			entries, bytes, s.maxEntries, s.maxBytes)
	}
}

func checkInvariants(t interface{ Fatalf(string, ...any) }, s *Store) {
	var entries, bytes int64
	for i := range s.shards {
		sh := &s.shards[i]
		if sh.records.len() != len(sh.queue) {
			t.Fatalf("shard %d: %d records but a queue of %d", i, sh.records.len(), len(sh.queue))
		}
		for j, slot := range sh.queue {
			e := sh.entry(slot.number)
			if int(e.place) != j || e.number != slot.number {
				t.Fatalf("shard %d: record %d at %d believes to be %d at %d", i, slot.number, j, e.number, e.place)
			}
			if parent := (j - 1) / 2; j > 0 && sh.queue[parent].at > slot.at {
				t.Fatalf("shard %d: %d is due before its parent", i, j)
			}
			if _, hash := s.locate(sh.key(e)); sh.find(hash, sh.key(e)) != e {
				t.Fatalf("shard %d: queue and map disagree on %q", i, sh.key(e))
			}
			all, runs := sh.texts(e), !e.done && !e.owner.IsZero() && e.id != (store.ID{})
			if !runs && e.class != inLarge && e.class != classOf(all.len()) {
				t.Fatalf("shard %d: %q keeps room that only the run of an operation may have", i, sh.key(e))
			}
			entries++
			bytes += e.size()
		}
	}
	if entries != s.entries.Load() || bytes != s.bytes.Load() {
		t.Fatalf("counted %d entries and %d bytes, there are %d and %d", s.entries.Load(), s.bytes.Load(), entries, bytes)
	}
	if entries > s.maxEntries || bytes > s.maxBytes {
		t.Fatalf("%d entries and %d bytes are over the bounds", entries, bytes)
	}
}

// TestBoundsHoldUnderLoad: many callers at the bounds at once exceed neither, and
// afterwards everything adds up.
func TestBoundsHoldUnderLoad(t *testing.T) {
	const workers, rounds = 8, 3000
	s, err := New(Config{MaxEntries: 20, MaxBytes: 20 * (overhead + 20)})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	var wg sync.WaitGroup
	var full, acquired atomic.Int64
	for w := range workers {
		wg.Go(func() {
			for i := range rounds {
				key := strconv.Itoa((w*7 + i*13) % 60)
				owner := store.NewOwner()
				g, err := s.Acquire(ctx, key, store.Claim{Owner: owner, Lease: 10 * time.Microsecond, Takeover: true})
				switch {
				case errors.Is(err, store.ErrFull):
					full.Add(1)
				case err != nil:
					t.Error(err)
				case g.State == store.Acquired && i%3 == 0:
					acquired.Add(1)
					_ = s.Complete(ctx, key, owner, make([]byte, i%50), 50*time.Microsecond)
				case g.State == store.Acquired && i%3 == 1:
					acquired.Add(1)
					_ = s.Release(ctx, key, owner)
				}
				if n, b := s.Len(), s.Bytes(); n > 20 || b > s.maxBytes {
					t.Errorf("%d entries and %d bytes are over the bounds", n, b)
				}
			}
		})
	}
	wg.Wait()
	checkInvariants(t, s)
	if acquired.Load() == 0 {
		t.Error("nothing was acquired: this tests nothing")
	}
	t.Logf("%d acquired, %d refused by a full store", acquired.Load(), full.Load())
}

// TestAResultTakesTheRoomOfManyDead: a result that is larger than what one pass over a shard
// gives back is refused only if there is no room after all of them.
func TestAResultTakesTheRoomOfManyDead(t *testing.T) {
	const n = 40 * reclaimPerCall
	now := time.Unix(0, 0)
	s, err := New(Config{MaxEntries: n + 1, MaxBytes: 1 << 20, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	owner := store.Owner{1}
	// In one shard, lest a few from each of them be enough.
	for i, key := range keysIn(s, 7, n+1) {
		lease := time.Second
		if i == 0 {
			lease = time.Hour
		}
		if _, err := s.Acquire(ctx, key, store.Claim{Owner: owner, Lease: lease}); err != nil {
			t.Fatal(err)
		}
	}
	now = now.Add(time.Second)
	key := keysIn(s, 7, 1)[0]
	rest := 1<<20 - overhead - len(key)
	if err := s.Complete(ctx, key, owner, make([]byte, rest), time.Hour); err != nil {
		t.Fatalf("a result of %d bytes beside %d dead records: %v", rest, n, err)
	}
	if s.Len() != 1 {
		t.Errorf("%d records are left beside the one that takes all the room", s.Len()-1)
	}
	checkInvariants(t, s)
}

// TestLayout holds the sizes that the comments and the memory target rest on.
func TestLayout(t *testing.T) {
	if got := unsafe.Sizeof(entry{}); got > 104 {
		t.Errorf("an entry has %d bytes, not 104", got)
	}
	if got := unsafe.Sizeof(shard{}); got != 64 {
		t.Errorf("a shard has %d bytes, not a cache line of 64", got)
	}
	if shardCount&(shardCount-1) != 0 {
		t.Errorf("shardCount is %d, not a power of two", shardCount)
	}
}

// TestEmptiedShardLetsGo: maps and slices never shrink by themselves, so that one
// busy hour would be paid for until the process ends.
func TestEmptiedShardLetsGo(t *testing.T) {
	s, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	owner := store.NewOwner()
	ctx := context.Background()
	const n = 4 * shardCount * keepQueue
	for i := range n {
		if _, err := s.Acquire(ctx, strconv.Itoa(i), store.Claim{Owner: owner, Lease: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		if err := s.Release(ctx, strconv.Itoa(i), owner); err != nil {
			t.Fatal(err)
		}
	}
	for i := range s.shards {
		if s.shards[i].records.len() != 0 || s.shards[i].records.first != nil || s.shards[i].queue != nil {
			t.Fatalf("shard %d keeps room for %d records that are gone", i, cap(s.shards[i].queue))
		}
	}
}

// TestRoomForAResult: a result of the last one's size goes into the block of its run, and no other record has room to spare.
func TestRoomForAResult(t *testing.T) {
	s, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, sh := t.Context(), &s.shards[0]
	claim := store.Claim{Owner: store.Owner{1}, About: store.About{ID: store.ID{1}}, Lease: time.Hour, Retention: time.Hour}
	begin := func(key string) *entry {
		if _, err := s.Acquire(ctx, key, claim); err != nil {
			t.Fatal(err)
		}
		_, hash := s.locate(key)
		return sh.find(hash, key)
	}
	keys, usual := keysIn(s, 0, 12), 0
	for i, size := range []int{100, 100, 20, 1023, 1024, 1500, 1023, 0, 1000} {
		e := begin(keys[i])
		class, block := e.class, e.block
		if class != classOf(len(keys[i])+usual) {
			t.Errorf("the run before a result of %d bytes has a block of %d", size, classSize(class))
		}
		if err := s.Complete(ctx, keys[i], claim.Owner, make([]byte, size), time.Hour); err != nil {
			t.Fatal(err)
		}
		fits := size < largeResult && class == classOf(len(keys[i])+size)
		if e = begin(keys[i]); fits != (e.class == class && e.block == block) || size >= largeResult != (e.class == inLarge) {
			t.Errorf("a result of %d bytes: class %d, block %d, then %d, %d", size, class, block, e.class, e.block)
		}
		if size < largeResult {
			usual = size
		}
		checkInvariants(t, s)
	}
	long := ""
	for i, at := 0, (*shard)(nil); at != sh; i++ {
		long = strings.Repeat("k", 1500) + strconv.Itoa(i)
		at, _ = s.locate(long)
	}
	if e := begin(long); e.class != classOf(len(long)) {
		t.Errorf("a long key has class %d", e.class)
	}
	begin(keys[9])
	begin(keys[10])
	if err := errors.Join(s.Abandon(ctx, keys[9], claim.Owner), s.fail(ctx, keys[10], claim.Owner, true)); err != nil {
		t.Error(err)
	}
	claim.ID = store.ID{}
	begin(keys[11])
	checkInvariants(t, s)
}
