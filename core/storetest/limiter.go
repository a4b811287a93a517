package storetest

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/idem-go/idem/core"
)

// LimiterFactory makes a limiter of n in window that has counted nothing yet; where limiters share a server, one with a
// name of its own. It may be called several times for a case. It releases its resources by tb.Cleanup, and fails tb if it
// can't make a limiter.
type LimiterFactory func(tb testing.TB, n int, window time.Duration) LimiterInstance

// LimiterInstance is a limiter under test.
type LimiterInstance struct {
	// Limiter is the limiter. It must not be nil.
	Limiter core.Limiter
	// Advance moves the limiter's clock forward by d; nothing else moves it. Leave it nil if the clock can't be
	// moved, as a server's: the suite then sleeps, some tens of milliseconds at a time, and skips the cases that
	// need a clock. It is called in the case's goroutine.
	Advance func(d time.Duration)
	// Peer makes another limiter with the same counts, as another process would. Leave it nil if the counts
	// belong to one process.
	Peer func() core.Limiter
	// Held returns for how many keys the limiter, or its server, holds state. Leave it nil if that is not known;
	// the cases about it are then skipped.
	Held func() int
}

// RunLimiter checks the limiter that factory makes, in a subtest for each case: whether it keeps the contract of
// core.Limiter.
//
//	func TestLimiter(t *testing.T) {
//		storetest.RunLimiter(t, func(tb testing.TB, n int, window time.Duration) storetest.LimiterInstance {
//			return storetest.LimiterInstance{Limiter: mylimiter.New(n, window)}
//		})
//	}
//
// No case depends on the speed of the machine: with a real clock, the suite allows for calls that come back while the
// machine is busy.
func RunLimiter(t *testing.T, factory LimiterFactory) {
	t.Helper()
	if factory == nil {
		t.Fatal("storetest: the factory is nil")
	}
	for _, c := range limiterCases {
		t.Run(c.name, func(t *testing.T) { runLimiter(t, c, factory) })
	}
}

// runLimiter runs one case, in a stand-in for the subtest when the suite tests itself.
func runLimiter(tb testing.TB, c limiterCase, factory LimiterFactory) {
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("the rule: %s", c.why)
		}
	})
	c.run(&limits{tb, factory})
}

// limiterCase is one rule. why says what goes wrong without it.
type limiterCase struct {
	name string
	why  string
	run  func(l *limits)
}

// limits makes the limiters of a case.
type limits struct {
	testing.TB
	factory LimiterFactory
}

// of returns a limiter of n in window.
func (l *limits) of(n int, window time.Duration) *meter {
	l.Helper()
	m := &meter{TB: l.TB, LimiterInstance: l.factory(l.TB, n, window), n: n, window: window}
	if m.Limiter == nil {
		l.Fatal("storetest: the factory made no limiter")
	}
	return m
}

// clocked returns a limiter of n in window whose clock can be moved. It skips the case if there is none.
func (l *limits) clocked(n int, window time.Duration) *meter {
	l.Helper()
	m := l.of(n, window)
	if m.Advance == nil {
		l.Skip("the limiter's clock can't be moved")
	}
	return m
}

// meter is a limiter under test, with the checks that the cases are written in. The checks end the case when they
// fail, so they belong to the case's own goroutine.
type meter struct {
	testing.TB
	LimiterInstance
	n      int
	window time.Duration
}

const (
	// rounding is how much a wait may be off.
	rounding = time.Millisecond
	// impatience is how long a caller waits that ignores Retry-After.
	impatience = time.Millisecond
)

// step is the time in which one token comes back.
func (m *meter) step() time.Duration { return m.window / time.Duration(m.n) }

// pass lets d go by on the limiter's clock.
func (m *meter) pass(d time.Duration) {
	if m.Advance != nil {
		m.Advance(d)
		return
	}
	time.Sleep(d + slack)
}

// ask asks for one more.
func (m *meter) ask(key string) (wait time.Duration) {
	m.Helper()
	wait, err := m.Limiter.Allow(m.Context(), key)
	if err != nil {
		m.Fatalf("Allow(%.40q): %v", key, err)
	}
	if wait < 0 || wait > m.step()+rounding {
		m.Fatalf("Allow(%.40q): wait %v, where one comes back in %v", key, wait, m.step())
	}
	return wait
}

func (m *meter) allowed(key string) {
	m.Helper()
	if wait := m.ask(key); wait > 0 {
		m.Fatalf("Allow(%.40q): wait %v, want one to be allowed", key, wait)
	}
}

func (m *meter) refused(key string) (wait time.Duration) {
	m.Helper()
	if wait = m.ask(key); wait == 0 {
		m.Fatalf("Allow(%.40q): one was allowed, want none", key)
	}
	return wait
}

// drain asks until it is refused, and expects that as many as a full bucket holds were allowed.
func (m *meter) drain(key string) (wait time.Duration) {
	m.Helper()
	since := time.Now()
	for allowed := 0; ; allowed++ {
		if wait = m.ask(key); wait > 0 {
			if allowed < m.n {
				m.Fatalf("%d were allowed at once, want %d", allowed, m.n)
			}
			return wait
		}
		if allowed >= m.most(since) {
			m.Fatalf("more than %d were allowed at once", allowed)
		}
	}
}

// most is how many may be allowed of a bucket that was full at a moment: it holds so many, and others have come
// back meanwhile, if the clock is a real one.
func (m *meter) most(since time.Time) int {
	if m.Advance != nil {
		return m.n
	}
	return m.n + int((time.Since(since)+rounding)/m.step())
}

// spread says which limiter on the same counts each of several callers uses.
func (m *meter) spread() func(caller int) core.Limiter {
	m.Helper()
	limiters := []core.Limiter{m.Limiter}
	if m.Peer != nil {
		peer := m.Peer()
		if peer == nil {
			m.Fatal("storetest: the instance's Peer made no limiter")
		}
		limiters = append(limiters, peer)
	}
	return func(caller int) core.Limiter { return limiters[caller%len(limiters)] }
}

// burst makes 100 calls at once, and expects that want are allowed.
func (m *meter) burst(limiter func(caller int) core.Limiter, key string, want int) {
	m.Helper()
	var allowed, refused atomic.Int64
	together(100, func(caller int) {
		switch wait, err := limiter(caller).Allow(m.Context(), key); {
		case err != nil:
			m.Errorf("Allow: %v", err)
		case wait == 0:
			allowed.Add(1)
		default:
			refused.Add(1)
		}
	})
	if allowed.Load() != int64(want) || refused.Load() != int64(100-want) {
		m.Fatalf("of 100 at once, %d were allowed and %d refused; want %d and %d", allowed.Load(), refused.Load(), want, 100-want)
	}
}

// limiterCases is the whole suite.
var limiterCases = []limiterCase{
	{
		name: "n at once, and no more",
		why:  "a new bucket is full; a window that n does not divide must not allow one too few or too many",
		run: func(l *limits) {
			for n, window := range map[int]time.Duration{1: long, 2: long, 3: long, 7: long, 49: 49 * long, 100: 24 * long} {
				m := l.of(n, window)
				since := time.Now()
				wait := m.drain("k")
				if soonest := m.step() - time.Since(since) - rounding; wait < soonest {
					m.Errorf("%d in %v: wait %v, where one comes back in %v", n, window, wait, m.step())
				}
				m.refused("k")
			}
		},
	},
	{
		name: "of many at once as many as there are",
		why:  "a limiter that looks and then counts, in two steps, allows more than n; one that counts in each process allows n for each process",
		run: func(l *limits) {
			m := l.of(20, long)
			limiter := m.spread()
			for round := range 20 {
				m.burst(limiter, fmt.Sprint("round ", round), 20)
			}
		},
	},
	{
		name: "of many at once one gets what has come back",
		why:  "of many calls at the same moment, exactly as many are allowed as tokens have come back",
		run: func(l *limits) {
			m := l.clocked(20, 20*time.Second)
			limiter := m.spread()
			m.burst(limiter, "k", 20)
			for _, back := range []int{1, 1, 2, 1, 20, 1} {
				m.pass(time.Duration(back) * time.Second)
				m.burst(limiter, "k", back)
			}
		},
	},
	{
		name: "one comes back after the wait, and not before",
		why:  "a caller that waits as long as Retry-After says must be allowed; one that does not must be refused",
		run: func(l *limits) {
			sizes := map[int]time.Duration{1: 40 * time.Millisecond, 3: 100 * time.Millisecond}
			if l.of(1, long).Advance == nil {
				for n, window := range sizes {
					comesBackInTime(l.of(n, window))
				}
				return
			}
			sizes[7], sizes[49], sizes[10] = time.Second, 49*time.Second, 24*time.Hour
			for n, window := range sizes {
				m := l.of(n, window)
				m.drain("k")
				var waited time.Duration
				rounds := 2*n + 5
				for range rounds {
					wait := m.refused("k")
					m.pass(wait / 2)
					rest := m.refused("k")
					if off := (wait - wait/2 - rest).Abs(); off > rounding || rest <= rounding {
						m.Fatalf("%d in %v: wait %v, and after half of it %v", n, window, wait, rest)
					}
					m.pass(rest - rounding)
					m.refused("k")
					m.pass(rounding)
					m.allowed("k")
					waited += wait
				}
				want := window * time.Duration(rounds) / time.Duration(n)
				if off := (waited - want).Abs(); off > rounding {
					m.Fatalf("%d in %v: %d came back in %v, want %v", n, window, rounds, waited, want)
				}
			}
		},
	},
	{
		name: "a bucket holds n, however long it was left alone",
		why:  "a bucket never holds more than n, however long it was not used",
		run: func(l *limits) {
			m := l.of(3, 30*time.Millisecond)
			m.drain("k")
			m.pass(3 * m.window)
			m.drain("k")
			if m.Advance == nil {
				return
			}
			m.pass(m.window)
			m.drain("k")
			m.pass(2 * m.step())
			m.allowed("k")
			m.allowed("k")
			m.refused("k")
		},
	},
	{
		name: "up to 2n-1 in a window",
		why:  "n are allowed at once, and then one each window/n: a limiter with fixed windows allows 2n around the end of one, or none until it ends",
		run: func(l *limits) {
			m := l.clocked(5, time.Second)
			for _, apart := range []time.Duration{0, 300 * time.Millisecond, 7 * time.Second} {
				m.pass(m.window + apart)
				allowed := 0
				for range 100 {
					if m.ask("k") == 0 {
						allowed++
					}
					m.pass(m.window / 100)
				}
				if allowed != 2*m.n-1 {
					m.Fatalf("%d were allowed in %v, want %d", allowed, m.window, 2*m.n-1)
				}
			}
		},
	},
	{
		name: "a refused call counts nothing",
		why:  "refused calls do not count: otherwise a client that retries too early is never allowed",
		run: func(l *limits) {
			m := l.of(5, long)
			wait := m.drain("k")
			for range 200 {
				if m.Advance != nil {
					m.Advance(time.Second)
				}
				again := m.refused("k")
				if again > wait+rounding {
					m.Fatalf("the wait has grown from %v to %v", wait, again)
				}
				wait = again
			}
			if m.Advance != nil {
				m.pass(m.step() - 200*time.Second)
				m.allowed("k")
				m.refused("k")
				return
			}
			m = l.of(1, 40*time.Millisecond)
			m.drain("k")
			for since := time.Now(); m.ask("k") > 0; time.Sleep(impatience) {
				if time.Since(since) > m.window+patience {
					m.Fatal("a caller that keeps retrying is never allowed")
				}
			}
		},
	},
	{
		name: "keys are exact",
		why:  "keys are exact bytes: with folded case, trimmed blanks, a NUL that ends a string or hash tags, one user's calls count for another",
		run: func(l *limits) {
			m := l.of(1, long)
			for _, key := range awkwardKeys {
				m.allowed(key)
			}
			for _, key := range awkwardKeys {
				m.refused(key)
			}
		},
	},
	{
		name: "long keys count to the last byte",
		why:  "keys have any length: one that is cut short is another user's",
		run: func(l *limits) {
			m := l.of(1, long)
			for _, n := range []int{64, 255, 256, 1024, 1 << 16} {
				stem := strings.Repeat("k", n-1)
				m.allowed(stem + "a")
				m.allowed(stem + "b")
				m.refused(stem + "a")
				m.refused(stem + "b")
			}
		},
	},
	{
		name: "a key's memory is the caller's",
		why:  "Fiber reuses the memory of strings after the handler: a limiter that keeps one counts for another user",
		run: func(l *limits) {
			m := l.of(1, long)
			memory := []byte("alice")
			m.allowed(unsafe.String(unsafe.SliceData(memory), len(memory)))
			copy(memory, "carol")
			m.refused("alice")
			m.allowed("carol")
		},
	},
	{
		name: "an ended context counts nothing",
		why:  "a call whose context has ended does not count",
		run: func(l *limits) {
			m := l.of(2, long)
			for want, ctx := range ended(m) {
				for range 3 {
					if wait, err := m.Limiter.Allow(ctx, "k"); !errors.Is(err, want) || wait != 0 {
						m.Errorf("Allow with an ended context: %v, %v; want %v", wait, err, want)
					}
				}
			}
			m.drain("k")
		},
	},
	{
		name: "what is not full is not forgotten",
		why:  "a key must not be forgotten before its bucket is full: otherwise its user gets n more",
		run: func(l *limits) {
			m := l.of(4, long)
			m.drain("k")
			for round := range 3 {
				for i := range 500 {
					m.allowed(fmt.Sprint("other ", round, i))
				}
				m.refused("k")
				if m.Advance != nil {
					m.pass(m.step())
					m.allowed("k")
					m.refused("k")
				}
			}
		},
	},
	{
		name: "what is full is forgotten",
		why:  "a key is forgotten after its bucket is full: otherwise memory grows with every user",
		run: func(l *limits) {
			held := func(m *meter) int {
				if m.Held == nil {
					m.Skip("how many keys are held can't be told")
				}
				return m.Held()
			}
			const few, many = 500, 2000
			come := func(m *meter, who string, n int) {
				for i := range n {
					m.ask(fmt.Sprint(who, i))
				}
			}
			m := l.of(2, long)
			come(m, "user ", few)
			if n := held(m); n != few {
				m.Fatalf("the limiter holds %d keys, want %d", n, few)
			}
			m = l.of(2, 60*time.Millisecond)
			come(m, "user ", few)
			come(m, "user ", few/2) // half of them twice
			m.pass(m.window)
			// The keys of these calls are held, at least for a while; of the earlier ones at most a few that no call has
			// come across.
			come(m, "other ", many)
			if n := held(m); n > many+few/8 {
				m.Fatalf("a window after %d keys were asked for, and %d others were, the limiter holds %d", few, many, n)
			}
		},
	},
	{
		name: "a history is that of a bucket",
		why:  "at whatever times calls come: n at once, and then one each window/n",
		run: func(l *limits) {
			for n, window := range map[int]time.Duration{1: 100 * time.Millisecond, 3: time.Second, 10: time.Minute} {
				history(l.clocked(n, window))
			}
		},
	},
}

// comesBackInTime is "one comes back after the wait, and not before" by a real clock. Whatever delays a call
// makes what has passed longer, so that nothing here depends on calls being fast.
func comesBackInTime(m *meter) {
	m.Helper()
	began := time.Now()
	var refused, before time.Time // when the last refused call was made, and until when it had to wait
	for allowed := 0; allowed < 3*m.n+5; {
		asked := time.Now()
		wait := m.ask("k")
		now := time.Now()
		if wait > 0 {
			refused, before = asked, asked.Add(wait)
			if allowed%2 == 0 { // else it asks all the time
				time.Sleep(wait + slack)
				m.allowed("k")
				allowed++
				refused = time.Time{}
			} else {
				time.Sleep(impatience)
			}
			continue
		}
		if allowed++; allowed > m.most(began) {
			m.Fatalf("%d in %v: %d were allowed in %v", m.n, m.window, allowed, time.Since(began))
		}
		if !refused.IsZero() && now.Add(rounding).Before(before) {
			m.Fatalf("%d in %v: one came back %v after the call that was told to wait %v", m.n, m.window, now.Sub(refused), before.Sub(refused))
		}
		refused = time.Time{}
	}
}

// history asks at random moments, and compares the answers with those of a bucket.
func history(m *meter) {
	m.Helper()
	const seed = 20261121
	random := rand.New(rand.NewPCG(seed, uint64(m.n)))
	bucket, off := float64(m.n), float64(rounding)/float64(m.step())
	for i := range 500 {
		apart := time.Duration(random.Int64N(int64(m.step() * 3 / 2)))
		if random.IntN(3) == 0 {
			apart = 0
		}
		m.pass(apart)
		bucket = math.Min(float64(m.n), bucket+float64(apart)/float64(m.step()))
		switch wait := m.ask("k"); {
		case wait == 0 && bucket < 1-off:
			m.Fatalf("call %d was allowed out of a bucket that holds %.3f", i, bucket)
		case wait == 0:
			bucket = math.Max(0, bucket-1)
		case bucket > 1+off:
			m.Fatalf("call %d was refused out of a bucket that holds %.3f", i, bucket)
		default:
			if want := (1 - bucket) * float64(m.step()); math.Abs(float64(wait)-want) > float64(rounding) {
				m.Fatalf("call %d: wait %v, want %v", i, wait, time.Duration(want))
			}
		}
	}
}
