package storetest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/internal/rehearsal"
)

func caseNamed(t *testing.T, name string) testCase {
	t.Helper()
	i := slices.IndexFunc(cases, func(c testCase) bool { return c.name == name })
	if i < 0 {
		t.Fatalf("there is no case %q", name)
	}
	return cases[i]
}

// TestSound: without a fault the store keeps the contract, so that what fails below fails for its fault.
func TestSound(t *testing.T) {
	factory, features := plantedStores(plant{})
	Run(t, factory, features)
}

// plantedStores makes stores with a fault, with two clients each.
func plantedStores(p plant) (Factory, Features) {
	bounded := func(tb testing.TB, room int) Instance {
		s := newPlantedStore(p, room)
		tb.Cleanup(s.late.Wait)
		return Instance{Store: s, Advance: s.clock.Advance, Peer: s.peer}
	}
	factory := func(tb testing.TB) Instance { return bounded(tb, 0) }
	faulty := func(tb testing.TB) (Instance, func()) {
		i := factory(tb)
		return i, i.Store.(*plantedStore).disturb
	}
	return factory, Features{Bounded: bounded, Faulty: faulty}
}

// TestFaultsAreNoticed: a suite that can't fail is no suite. Each case notices a fault.
func TestFaultsAreNoticed(t *testing.T) {
	defer func(was time.Duration) { patience = was }(patience)
	patience = 300 * time.Millisecond
	noticed := map[string]bool{}
	for _, f := range faults {
		factory, features := plantedStores(f.plant)
		for name := range strings.SplitSeq(f.cases, ";") {
			c := caseNamed(t, strings.TrimSpace(name))
			noticed[c.name] = true
			t.Run(f.name+"/"+c.name, func(t *testing.T) {
				for range 50 { // what clients meet with is chance
					if r := rehearse(t, c, factory, features); r.Failed() && !r.Skipped() {
						if !strings.Contains(r.Said(), c.why) {
							t.Errorf("the failure does not tell its rule: %s", r.Said())
						}
						return
					}
				}
				t.Error("it passes")
			})
		}
	}
	for _, c := range cases {
		if !noticed[c.name] {
			t.Errorf("the case %q has no fault that it must notice", c.name)
		}
		delete(noticed, c.name) // which are there once
		if c.why == "" {
			t.Errorf("the case %q has no reason", c.name)
		}
	}
}

// TestLackingFeatures: a case that needs what a store lacks is skipped, and says what that is.
func TestLackingFeatures(t *testing.T) {
	nothing := plant{declare: func(can *store.Capabilities) { *can = store.Capabilities{} }}
	bare := func(testing.TB) Instance { return Instance{Store: newPlantedStore(nothing, 0)} }
	for _, c := range cases {
		want := map[needs]string{
			needWatch: "declares no Watch", needRecall: "declares no Recall", needInspect: "declares no Inspect",
			needClock: "clock can't be moved", needBounds: "makes no bounded store", needFaults: "makes no faulty store",
		}[c.needs]
		if c.needs == 0 {
			continue
		}
		if r := rehearse(t, c, bare, Features{}); !r.Skipped() || r.Failed() || !strings.Contains(r.Said(), want) {
			t.Errorf("%q is not skipped with %q: %s", c.name, want, r.Said())
		}
	}
}

// TestUndecided: a history that could not be checked does not pass.
func TestUndecided(t *testing.T) {
	defer func(was int) { mostProgress = was }(mostProgress)
	mostProgress = 1000
	// Refused renewals fit in anywhere, and one that succeeds without a record nowhere: only all 2^60 sets of calls that may
	// come before it show that. No machine tries those.
	renewal := operation{call: call{method: "Renew", owner: store.NewOwner()}, begun: 1, returned: 2}
	history := []operation{renewal}
	renewal.answer.err = store.ErrLost
	history = append(history, slices.Repeat([]operation{renewal}, 60)...)
	if err := checkHistory("k", history); err == nil || !strings.Contains(err.Error(), "could not be decided") {
		t.Errorf("a check without time says: %.80v", err)
	}
}

// TestEmptyPromises: a feature that is declared and does nothing does not pass, nor does a factory that makes no store.
func TestEmptyPromises(t *testing.T) {
	factory, features := plantedStores(plant{})
	faulty := features.Faulty
	features.Faulty = func(tb testing.TB) (Instance, func()) {
		i, _ := faulty(tb)
		return i, func() {}
	}
	peerless := func(tb testing.TB) Instance {
		i := factory(tb)
		i.Peer = func() store.Store { return nil }
		return i
	}
	none := func(testing.TB) Instance { return Instance{} }
	for _, c := range []struct {
		name, wants string
		factory     Factory
	}{
		{"histories are linearizable under faults", "the store was not disturbed", factory},
		{"one of many is acquired", "Peer made no store", peerless},
		{"bytes are copied", "the factory made no store", none},
	} {
		if r := rehearse(t, caseNamed(t, c.name), c.factory, features); !r.Failed() || !strings.Contains(r.Said(), c.wants) {
			t.Errorf("%q does not fail with %q: %s", c.name, c.wants, r.Said())
		}
	}
}

func rehearse(t *testing.T, c testCase, factory Factory, features Features) *rehearsal.T {
	return rehearsal.Run(t, func(tb testing.TB) { run(tb, c, factory, features) })
}
