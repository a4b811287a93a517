package simulator

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/internal/jitter"
	"github.com/idem-go/idem/core/storetest"
	"github.com/idem-go/idem/internal/race"
)

var (
	played = flag.String("schedule", "", "the `schedule` that TestSchedule plays, as a failing one is printed")
	budget = flag.Int("schedules", 0, "how `many` schedules of each scenario are played; 0: 10,000, with IDEM_LONG 100,000")
	seed   = flag.Uint64("seed", 0, "of the random schedules; 0: another one each time")
)

var failed atomic.Bool // a schedule has

func TestMain(m *testing.M) {
	jitter.Spread = func(d time.Duration) time.Duration { return d } // each replay is alike
	debug.SetGCPercent(400)                                          // there is little to keep
	flag.Parse()
	os.Exit(m.Run())
}

// schedule is what deviates from the first possibility: the possibility that is taken, by the number of the choice.
type schedule map[int]int

func (s schedule) choose(at, n int) int {
	if c := s[at]; c < n {
		return c
	}
	return 0
}

// with returns s with one more deviation.
func (s schedule) with(at, choice int) schedule {
	longer := maps.Clone(s)
	longer[at] = choice
	return longer
}

func (s schedule) String() string {
	var b strings.Builder
	for i, at := range slices.Sorted(maps.Keys(s)) {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%d=%d", at, s[at])
	}
	return b.String()
}

// parse reads a scenario's name, a colon, and what String returns.
func parse(text string) (*scenario, schedule, error) {
	name, list, _ := strings.Cut(text, ":")
	all := slices.Concat(scenarios, exhibits)
	i := slices.IndexFunc(all, func(s *scenario) bool { return s.name == name })
	if i < 0 {
		return nil, nil, fmt.Errorf("there is no scenario %q", name)
	}
	s := schedule{}
	for _, deviation := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' }) {
		at, choice, _ := strings.Cut(deviation, "=")
		a, err1 := strconv.Atoi(at)
		c, err2 := strconv.Atoi(choice)
		if err := cmp.Or(err1, err2); err != nil {
			return nil, nil, fmt.Errorf("%q is no deviation: %w", deviation, err)
		}
		s[a] = c
	}
	return all[i], s, nil
}

// play plays one schedule. choose is asked at each choice among more than one possibility.
func (s *scenario) play(t *testing.T, choose func(at, n int) int) *world {
	return s.show(t, choose, false)
}

// show is play, and notes what happens if traced is set.
func (s *scenario) show(t *testing.T, choose func(at, n int) int, traced bool) (w *world) {
	synctest.Test(t, func(*testing.T) {
		w = newWorld(s, choose, traced)
		w.run()
	})
	return w
}

// explore plays so many schedules of s: those with fewer deviations first, and all with the same number of them, or if those are
// too many, a sample that is always the same. It returns how many it has played, and up to how many deviations all.
func explore(t *testing.T, s *scenario, limit int) (n, all int) {
	sample := rand.New(rand.NewPCG(1, 2))
	level, whole := []schedule{{}}, true
	for all = -1; len(level) > 0; {
		var next []schedule
		seen := 0 // of the next level: schedules of which next is a sample
		for _, deviations := range level {
			if failed.Load() && flag.Lookup("test.failfast").Value.String() == "true" {
				return n, all
			}
			w := s.play(t, deviations.choose)
			if n++; len(w.broken) > 0 {
				report(t, s, deviations)
			}
			last := -1
			for at := range deviations {
				last = max(last, at)
			}
			for at := last + 1; at < len(w.choices); at++ {
				for choice := 1; choice < w.choices[at]; choice++ {
					if seen++; len(next) < limit {
						next = append(next, deviations.with(at, choice))
					} else if i := sample.IntN(seen); i < len(next) {
						next[i] = deviations.with(at, choice)
					}
				}
			}
		}
		if whole {
			all++
		}
		if left := limit - n; len(next) > left {
			sample.Shuffle(len(next), func(i, j int) { next[i], next[j] = next[j], next[i] })
			next = next[:max(left, 0)]
		}
		whole = whole && seen == len(next)
		level = next
	}
	return n, all
}

// report fails the test with a schedule that breaks an invariant, as short as it can be made, and what happens then.
func report(t *testing.T, s *scenario, deviations schedule) {
	t.Helper()
	for again := true; again; {
		again = false
		for at := range maps.Clone(deviations) {
			shorter := maps.Clone(deviations)
			delete(shorter, at)
			if w := s.play(t, shorter.choose); len(w.broken) > 0 {
				deviations, again = shorter, true
			}
		}
	}
	w := s.show(t, deviations.choose, true)
	failed.Store(true)
	t.Fatalf("go test ./core/internal/simulator -run TestSchedule -schedule=%s:%s\n%s", s.name, deviations, w)
}

// TestSimulation plays the schedules of each scenario.
func TestSimulation(t *testing.T) {
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			n, all := explore(t, s, schedules())
			t.Logf("%d schedules, all with up to %d deviations, in %v", n, all, time.Since(began).Round(time.Millisecond))
		})
	}
}

// schedules is how many schedules of each scenario are played.
func schedules() int {
	switch {
	case *budget > 0:
		return *budget
	case race.Enabled, testing.Short():
		return 100 // that there is no race; CI plays the others without the detector
	case os.Getenv("IDEM_LONG") != "":
		return 100_000
	}
	return 10_000
}

// TestRandomSchedules plays schedules with any number of deviations.
func TestRandomSchedules(t *testing.T) {
	if os.Getenv("IDEM_LONG") == "" {
		t.Skip("it takes long")
	}
	first := *seed
	if first == 0 {
		first = rand.Uint64()
	}
	t.Logf("-seed=%d", first)
	for i, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(first, uint64(i)))
			for range schedules() / 5 {
				taken, rate := schedule{}, 0.05+random.Float64()/3
				w := s.play(t, func(at, n int) int {
					if random.Float64() < rate {
						taken[at] = random.IntN(n)
					}
					return taken[at]
				})
				if len(w.broken) > 0 {
					report(t, s, taken)
				}
			}
		})
	}
}

// TestTraces plays some schedules of each scenario, and checks what the processes ask the store and are told.
func TestTraces(t *testing.T) {
	for i, s := range scenarios {
		if s.failovers {
			continue // its store does not keep its contract
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			random, noted := rand.New(rand.NewPCG(5, uint64(i))), *s
			for range schedules() / 50 {
				var trace bytes.Buffer
				taken, rate := schedule{}, random.Float64()/3
				noted.calls = &trace
				noted.play(t, func(at, n int) int {
					if random.Float64() < rate {
						taken[at] = random.IntN(n)
					}
					return taken[at]
				})
				require.NoError(t, storetest.CheckTrace(&trace), "-schedule=%s:%s", s.name, taken)
			}
		})
	}
}

// TestSchedule plays one schedule, and says what happens.
func TestSchedule(t *testing.T) {
	if *played == "" {
		t.Skip("without -schedule there is nothing to play")
	}
	s, deviations, err := parse(*played)
	if err != nil {
		t.Fatal(err)
	}
	w := s.show(t, deviations.choose, true)
	t.Log(w)
	if len(w.broken) > 0 {
		t.Fail()
	}
}

// TestSchedulesReplayAlike plays some schedules a thousand times.
func TestSchedulesReplayAlike(t *testing.T) {
	for i, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			random, taken := rand.New(rand.NewPCG(3, uint64(i))), schedule{}
			first := s.show(t, func(at, n int) int {
				if random.IntN(4) == 0 {
					taken[at] = random.IntN(n)
				}
				return taken[at]
			}, true).String()
			for range min(1000, schedules()) {
				if again := s.show(t, taken.choose, true).String(); again != first {
					t.Fatalf("-schedule=%s:%s was played in two ways:\n%s\n%s", s.name, taken, first, again)
				}
			}
		})
	}
}
