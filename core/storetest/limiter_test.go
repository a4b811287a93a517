package storetest

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/core"
)

// limiterFaults are the ways in which a turnstile can break the contract, each with a case that must notice.
var limiterFaults = map[string]string{
	"lets one more in":                   "n at once, and no more",
	"lets one less in":                   "n at once, and no more",
	"begins with one":                    "n at once, and no more",
	"tells to wait for a moment":         "n at once, and no more",
	"loses a part of what comes back":    "n at once, and no more",
	"looks, then counts":                 "of many at once as many as there are",
	"counts in each process":             "of many at once as many as there are",
	"lets all in who were told to wait":  "of many at once one gets what has come back",
	"tells to wait for too short a time": "one comes back after the wait, and not before",
	"tells to wait for too long a time":  "one comes back after the wait, and not before",
	"lets in a little too early":         "one comes back after the wait, and not before",
	"comes back slowly":                  "one comes back after the wait, and not before",
	"saves up for days":                  "a bucket holds n, however long it was left alone",
	"counts by the hour on the clock":    "up to 2n-1 in a window",
	"fills up at the end of a window":    "up to 2n-1 in a window",
	"counts the refused":                 "a refused call counts nothing",
	"begins to wait anew":                "a refused call counts nothing",
	"folds keys' case":                   "keys are exact",
	"trims keys":                         "keys are exact",
	"ends keys at NUL":                   "keys are exact",
	"knows no empty key":                 "keys are exact",
	"counts all as one":                  "keys are exact",
	"cuts keys at 255":                   "long keys count to the last byte",
	"keeps the keys' memory":             "a key's memory is the caller's",
	"does not look at the context":       "an ended context counts nothing",
	"counts for an ended context":        "an ended context counts nothing",
	"forgets the oldest":                 "what is not full is not forgotten",
	"forgets nobody":                     "what is full is forgotten",
	"tells of no keys":                   "what is full is forgotten",
	"comes back by the second":           "a history is that of a bucket",
}

// limiterFaultsInTime are the faults that a case must notice also when the clock can't be moved.
var limiterFaultsInTime = map[string]string{
	"lets one more in":                   "n at once, and no more",
	"lets one less in":                   "n at once, and no more",
	"looks, then counts":                 "of many at once as many as there are",
	"counts in each process":             "of many at once as many as there are",
	"tells to wait for too short a time": "one comes back after the wait, and not before",
	"lets in a little too early":         "one comes back after the wait, and not before",
	"comes back too soon":                "one comes back after the wait, and not before",
	"saves up for days":                  "a bucket holds n, however long it was left alone",
	"counts the refused":                 "a refused call counts nothing",
	"begins to wait anew":                "a refused call counts nothing",
	"trims keys":                         "keys are exact",
	"keeps the keys' memory":             "a key's memory is the caller's",
	"counts for an ended context":        "an ended context counts nothing",
	"forgets the oldest":                 "what is not full is not forgotten",
	"forgets nobody":                     "what is full is forgotten",
}

// turnstile is a limiter of the simplest kind: a map of buckets under one mutex. Without a fault it keeps the
// contract; with one it breaks it in the way that the fault's name says.
type turnstile struct {
	mu      sync.Mutex
	n       float64
	window  time.Duration
	now     func() time.Time
	fault   string
	buckets map[string]*pail
	order   []string
}

type pail struct {
	holds  float64
	at     time.Time
	wasted bool // somebody was refused
}

func newTurnstile(n int, window time.Duration, now func() time.Time, fault string) *turnstile {
	return &turnstile{n: float64(n), window: window, now: now, fault: fault, buckets: map[string]*pail{}}
}

// is reports whether the turnstile has one of these faults.
func (s *turnstile) is(names ...string) bool {
	for _, name := range names {
		if limiterFaults[name] == "" && limiterFaultsInTime[name] == "" {
			panic("storetest: no such fault: " + name)
		}
	}
	return slices.Contains(names, s.fault)
}

func (s *turnstile) key(key string) string {
	switch {
	case s.is("keeps the keys' memory"):
		return key
	case s.is("folds keys' case"):
		return strings.ToLower(key)
	case s.is("trims keys"):
		key = strings.TrimSpace(key)
	case s.is("ends keys at NUL"):
		key, _, _ = strings.Cut(key, "\x00")
	case s.is("knows no empty key") && key == "":
		key = " "
	case s.is("counts all as one"):
		return "all"
	case s.is("cuts keys at 255"):
		key = key[:min(len(key), 255)]
	}
	return strings.Clone(key)
}

func (s *turnstile) Allow(ctx context.Context, key string) (time.Duration, error) {
	if err := ctx.Err(); err != nil && !s.is("does not look at the context") {
		if !s.is("counts for an ended context") {
			return 0, err
		}
		defer func() { _, _ = s.Allow(context.WithoutCancel(ctx), key) }()
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.forget(now)
	key = s.key(key)
	p := s.buckets[key]
	if p == nil {
		p = &pail{holds: s.full(), at: now}
		s.buckets[key] = p
		s.order = append(s.order, key)
	}
	s.refill(p, now)
	step := float64(s.window) / s.n
	one := 1.0
	switch {
	case s.is("lets in a little too early"):
		one = 0.8
	case s.is("lets all in who were told to wait") && p.holds > 0.5 && p.wasted:
		return 0, nil
	}
	if p.holds+1e-9 >= one {
		if s.is("looks, then counts") {
			s.mu.Unlock()
			time.Sleep(100 * time.Microsecond)
			s.mu.Lock()
		}
		p.holds--
		p.wasted = false
		return 0, nil
	}
	p.wasted = true
	wait := (1 - p.holds) * step
	switch {
	case s.is("counts the refused"):
		p.holds--
		wait = math.Min(wait, step)
	case s.is("begins to wait anew"):
		p.holds, wait = math.Floor(p.holds), step
	case s.is("tells to wait for a moment"):
		wait = 1
	case s.is("tells to wait for too short a time"):
		wait *= 0.5
	case s.is("tells to wait for too long a time"):
		wait = step
	}
	return time.Duration(math.Ceil(wait)), nil
}

// full is how much a bucket holds that was never asked for.
func (s *turnstile) full() float64 {
	switch {
	case s.is("lets one more in"):
		return s.n + 1
	case s.is("lets one less in"):
		return s.n - 1
	case s.is("begins with one"):
		return 1
	case s.is("loses a part of what comes back"):
		return s.n - 0.1
	}
	return s.n
}

func (s *turnstile) refill(p *pail, now time.Time) {
	window := s.window
	switch {
	case s.is("comes back slowly"):
		window += window / 4
	case s.is("comes back too soon"):
		window -= window / 4
	}
	most := s.n
	if s.is("saves up for days") {
		most *= 100
	}
	whole := time.Duration(0) // what has passed counts by so much
	switch {
	case s.is("counts by the hour on the clock"):
		if !now.Truncate(s.window).Equal(p.at.Truncate(s.window)) {
			p.holds = s.n
		}
		p.at = now
		return
	case s.is("fills up at the end of a window"):
		whole = s.window
	case s.is("comes back by the second"):
		whole = s.window / time.Duration(s.n) / 3
	}
	passed := now.Sub(p.at)
	if whole > 0 {
		passed = passed.Truncate(whole)
	}
	p.at = p.at.Add(passed)
	p.holds = math.Max(p.holds, math.Min(most, p.holds+float64(passed)*s.n/float64(window)))
}

func (s *turnstile) forget(now time.Time) {
	if s.is("forgets the oldest") && len(s.order) > 300 {
		delete(s.buckets, s.order[0])
		s.order = s.order[1:]
	}
	if s.is("forgets nobody", "saves up for days") {
		return
	}
	for key, p := range s.buckets {
		if p.holds+float64(now.Sub(p.at))*s.n/float64(s.window) >= s.n {
			delete(s.buckets, key)
		}
	}
}

func (s *turnstile) held() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.is("tells of no keys") {
		return 0
	}
	return len(s.buckets)
}

// turnstiles makes turnstiles with a fault.
func turnstiles(fault string, clocked bool) LimiterFactory {
	return func(_ testing.TB, n int, window time.Duration) LimiterInstance {
		clock, now := NewClock(), time.Now
		i := LimiterInstance{}
		if clocked {
			now, i.Advance = clock.Now, clock.Advance
		}
		s := newTurnstile(n, window, now, fault)
		i.Limiter, i.Held = s, s.held
		i.Peer = func() core.Limiter {
			if fault == "counts in each process" {
				return newTurnstile(n, window, now, fault)
			}
			return s
		}
		return i
	}
}

func limiterCaseNamed(t *testing.T, name string) limiterCase {
	t.Helper()
	i := slices.IndexFunc(limiterCases, func(c limiterCase) bool { return c.name == name })
	if i < 0 {
		t.Fatalf("there is no case %q", name)
	}
	return limiterCases[i]
}

// TestSoundLimiter: the turnstile without a fault keeps the contract.
func TestSoundLimiter(t *testing.T) {
	t.Run("by a clock", func(t *testing.T) { RunLimiter(t, turnstiles("", true)) })
	for _, c := range limiterCases {
		t.Run("in time/"+c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runLimiter(t, c, turnstiles("", false)) })
		})
	}
}

// TestLimiterFaultsAreNoticed: a suite that can't fail is no suite.
func TestLimiterFaultsAreNoticed(t *testing.T) {
	notices := func(t *testing.T, fault string, c limiterCase, clocked bool) {
		t.Helper()
		r := rehearseAny(t, func(tb testing.TB) { runLimiter(tb, c, turnstiles(fault, clocked)) })
		if !r.Failed() || r.skipped {
			t.Errorf("a limiter that %q passes the case %q", fault, c.name)
		}
		if !strings.Contains(r.log.String(), c.why) {
			t.Errorf("the failure does not tell its rule: %s", r.log.String())
		}
	}
	for _, fault := range slices.Sorted(maps.Keys(limiterFaults)) {
		t.Run(fault, func(t *testing.T) { notices(t, fault, limiterCaseNamed(t, limiterFaults[fault]), true) })
	}
	for _, fault := range slices.Sorted(maps.Keys(limiterFaultsInTime)) {
		t.Run("in time/"+fault, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { notices(t, fault, limiterCaseNamed(t, limiterFaultsInTime[fault]), false) })
		})
	}
}

// TestEveryLimiterCaseCanFail: each case has a fault that it must notice.
func TestEveryLimiterCaseCanFail(t *testing.T) {
	noticed := slices.Collect(maps.Values(limiterFaults))
	for i, c := range limiterCases {
		if !slices.Contains(noticed, c.name) {
			t.Errorf("the case %q has no fault that it must notice", c.name)
		}
		if c.why == "" || slices.ContainsFunc(limiterCases[:i], func(other limiterCase) bool { return other.name == c.name }) {
			t.Errorf("the case %q has no reason or is there twice", c.name)
		}
	}
}

// TestLimiterEmptyPromises: a factory that makes no limiter, no peer or a limiter that only fails does not pass.
func TestLimiterEmptyPromises(t *testing.T) {
	for name, i := range map[string]LimiterInstance{
		"nothing":            {},
		"a peer that isn't":  {Limiter: newTurnstile(20, long, time.Now, ""), Peer: func() core.Limiter { return nil }},
		"one without answer": {Limiter: unknowing{}},
	} {
		c := limiterCaseNamed(t, "of many at once as many as there are")
		r := rehearseAny(t, func(tb testing.TB) {
			runLimiter(tb, c, func(testing.TB, int, time.Duration) LimiterInstance { return i })
		})
		if !r.Failed() {
			t.Errorf("a factory that makes %s passes", name)
		}
	}
	bare := func(_ testing.TB, n int, window time.Duration) LimiterInstance {
		return LimiterInstance{Limiter: newTurnstile(n, window, time.Now, "")}
	}
	for _, name := range []string{"what is full is forgotten", "a history is that of a bucket"} {
		if r := rehearseAny(t, func(tb testing.TB) { runLimiter(tb, limiterCaseNamed(t, name), bare) }); !r.skipped {
			t.Errorf("%q was not skipped", name)
		}
	}
}

// unknowing is a limiter whose calls all fail.
type unknowing struct{}

func (unknowing) Allow(context.Context, string) (time.Duration, error) {
	return 0, errors.New("the limiter is down")
}
