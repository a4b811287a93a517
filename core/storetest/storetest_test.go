package storetest

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/idem-go/idem/core/store"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// The model fails here because it should: nobody wants to replay that, nor wait
	// until it is as short as can be.
	for name, value := range map[string]string{"rapid.nofailfile": "true", "rapid.shrinktime": "1ms"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// faults are the ways in which the reference store can break the contract, each with a case that
// must notice.
var faults = map[string]string{
	"counts attempts from 0":     "a free key is acquired",
	"attempts survive a release": "a stale owner changes nothing after a release",

	"lets its own owner in again": "a standing claim keeps everybody out",
	"takes over what is running":  "a standing claim keeps everybody out",
	"looks, then locks":           "one of many is acquired",

	"folds keys' case":   "keys are exact",
	"trims keys":         "keys are exact",
	"ends keys at NUL":   "keys are exact",
	"normalises keys":    "keys are exact",
	"reads hash tags":    "keys are exact",
	"cuts keys at 255":   "long keys count to the last byte",
	"knows no empty key": "keys are exact",

	"forgets the fingerprint of what is done": "the fingerprint comes back",
	"keeps the latest fingerprint":            "the fingerprint comes back",
	"tells the new owner of a fingerprint":    "a free key is acquired",

	"takes a claim without an owner":          "a bad claim changes nothing",
	"takes a claim without a lease":           "a bad claim changes nothing",
	"takes a claim with a negative retention": "a bad claim changes nothing",
	"takes a claim with a long fingerprint":   "a bad claim changes nothing",
	"claims, then looks at the claim":         "a bad claim changes nothing",
	"renews for any lease":                    "a bad claim changes nothing",
	"calls a renewal without a lease lost":    "a bad claim changes nothing",

	"acquires whatever the context says":  "an ended context changes nothing",
	"claims, then looks at the context":   "an ended context changes nothing",
	"renews whatever the context says":    "an ended context changes nothing",
	"completes whatever the context says": "an ended context changes nothing",
	"releases whatever the context says":  "an ended context changes nothing",
	"abandons whatever the context says":  "an ended context changes nothing",
	"watches whatever the context says":   "an ended context watches nothing",

	"anybody may renew":                 "a stranger changes nothing",
	"anybody may complete":              "a stranger changes nothing",
	"anybody may release":               "a stranger changes nothing",
	"compares half the owner":           "owners differ in any byte",
	"folds owners' case":                "owners differ in any byte",
	"completes what is not there":       "without a record there is nothing to hold",
	"releasing nothing succeeds":        "without a record there is nothing to hold",
	"renewing nothing succeeds":         "without a record there is nothing to hold",
	"releases, then looks at the owner": "a stranger changes nothing",
	"former owners count":               "a stale owner changes nothing after a takeover",
	"anybody may abandon":               "a stranger changes nothing",
	"abandoning nothing succeeds":       "without a record there is nothing to hold",
	"finished records can be abandoned": "a finished record is nobody's",
	"finished records can be renewed":   "a finished record is nobody's",
	"finished records can be completed": "a finished record is nobody's",
	"finished records can be released":  "a finished record is nobody's",

	"forgets the attempt at a release":                             "a release after a takeover keeps the attempt",
	"forgets the attempt at a completion without retention":        "completing without retention after a takeover keeps the attempt, and nothing else",
	"completing without retention abandons":                        "completing without retention after a takeover keeps the attempt, and nothing else",
	"what is free is abandoned":                                    "completing without retention after a takeover keeps the attempt, and nothing else",
	"gives what is free for the same parameters only":              "completing without retention after a takeover keeps the attempt, and nothing else",
	"gives what is free to takeovers only":                         "completing without retention after a takeover keeps the attempt, and nothing else",
	"gives what is free for its own number only":                   "completing without retention after a takeover keeps the attempt, and nothing else",
	"what was free keeps its fingerprint":                          "completing without retention after a takeover keeps the attempt, and nothing else",
	"what is free is not counted":                                  "completing without retention after a takeover keeps the attempt, and nothing else",
	"never forgets what is free":                                   "a free record is remembered for its retention",
	"does not tell what was free":                                  "completing without retention after a takeover keeps the attempt, and nothing else",
	"calls every later claim free":                                 "takeover is for the same parameters only",
	"a release frees":                                              "a release after a takeover keeps the attempt",
	"a release abandons what was free":                             "a record that was free is so after a release",
	"abandoning leaves free what was free":                         "a record that was free is so after a release",
	"a takeover leaves free what was free":                         "a record that was free is so after a release",
	"what is released stays its owner's":                           "a stale owner changes nothing after releasing what it took over",
	"remembers what is released until its lease would have passed": "a release after a takeover is remembered for its retention",
	"forgets the fingerprint of what is released":                  "a release after a takeover keeps the attempt",

	"forgets a first attempt that is abandoned":                     "an abandoned run can be taken over at once",
	"forgets the fingerprint of what is abandoned":                  "an abandoned run can be taken over at once",
	"lets nobody have what is abandoned":                            "an abandoned run can be taken over at once",
	"lets anybody have what is abandoned":                           "an abandoned run can be taken over at once",
	"abandons in two steps":                                         "one of many takes over what is abandoned",
	"looks, then abandons":                                          "one of many endings counts",
	"what is abandoned stays its owner's":                           "a stale owner changes nothing after abandoning",
	"the zero owner holds what nobody does":                         "a stale owner changes nothing after abandoning",
	"keeps what is abandoned without retention":                     "an abandoned run is remembered for its retention",
	"lapsed claims can't be abandoned":                              "a lapsed claim can be abandoned",
	"remembers what is abandoned until its lease would have passed": "an abandoned run is remembered for its retention",
	"remembers what is abandoned late since its lease has passed":   "an abandoned run is forgotten when its retention is over",

	"keeps the lock as long as the result":          "a crash blocks for the lease only",
	"takes over unasked":                            "an abandoned record is reported and left alone",
	"takes over with other parameters":              "takeover is for the same parameters only",
	"takes over any attempt":                        "takeover is for the named attempt only",
	"takes over named attempts only":                "takeover is for the named attempt only",
	"looks, then takes over":                        "one of many takes over",
	"looks, then completes":                         "either the late owner or the taker wins",
	"takeover does not count":                       "the attempt counts takeovers",
	"forgets the attempt of what is done":           "the attempt counts takeovers",
	"takeover keeps the first lease":                "a takeover brings its own lease and retention",
	"takeover keeps the first retention":            "a takeover brings its own lease and retention",
	"renews nothing":                                "a renewed lease ends later",
	"renews to later only":                          "a lease may be renewed to end sooner",
	"renewing adds to the lease":                    "a lease may be renewed to end sooner",
	"lapsed claims can't be renewed":                "a lapsed claim that nobody took is still its owner's",
	"lapsed claims can't be completed":              "a lapsed claim that nobody took is still its owner's",
	"lapsed claims can't be released":               "a lapsed claim that nobody took is still its owner's",
	"never forgets the abandoned":                   "an abandoned record is forgotten after its retention",
	"looks, then begins anew":                       "one of many begins anew",
	"counts in milliseconds":                        "spans of any length",
	"tells what remains in milliseconds":            "what remains is true",
	"tells the lease of what is done":               "what remains is true",
	"tells the lease of what is abandoned":          "what remains is true",
	"counts a claim's retention from its beginning": "a lease ends when it is over",
	"ends leases a second late":                     "a lease ends when it is over",
	"renewing drops the retention":                  "a renewed lease keeps its retention",
	"looking prolongs":                              "looking prolongs nothing",

	"forgets results with the claim":                        "a result outlives the lease",
	"never forgets results":                                 "a result is forgotten after its retention",
	"counts a result's retention from the end of the lease": "a result is forgotten after its retention",
	"no retention means for ever":                           "completing without retention releases",
	"ends results at NUL":                                   "results come back as they were",
	"keeps results as text":                                 "results come back as they were",
	"cuts results at 64 KiB":                                "results come back as they were",
	"keeps the caller's bytes":                              "bytes are copied",
	"hands out its own bytes":                               "bytes are copied",
	"one buffer for all":                                    "many keys at once",

	"wakes nobody by completion":                    "a watcher is woken by completion",
	"wakes nobody by release":                       "a watcher is woken by release",
	"wakes nobody by takeover":                      "a watcher is woken by a takeover",
	"wakes nobody by releasing what was taken over": "a watcher is woken by a release after a takeover",
	"wakes nobody by abandoning":                    "a watcher is woken by Abandon",
	"watches no abandoned run":                      "an abandoned run can be watched",
	"watches nothing for ever":                      "watching nothing returns at once",
	"wakes all the time":                            "a watch on a quiet run stays quiet",
	"wakes one watcher only":                        "all watchers are woken",
	"needs a goroutine for each watcher, for ever":  "a watcher may give up",
	"one watcher gives up for all":                  "a watcher may give up",
	"panics at a second stop":                       "a watcher may give up",
	"hands out no stop":                             "a watcher may give up",
	"sends where it should close":                   "a watcher is woken by completion",

	"recalls what is not finished": "what is finished is recalled",
	"recalls its own bytes":        "what is finished is recalled",
	"recalls the first claim":      "what was taken over is recalled as its last run's",
	"recalls what has passed":      "what has passed is not recalled",
	"recalls for what embeds it":   "declares what it implements",

	"looks, then renews":        "histories are linearizable",
	"completes in two steps":    "histories are linearizable",
	"takes over in two steps":   "histories are linearizable",
	"answers from a cache":      "histories are linearizable",
	"locks in the process only": "one of many is acquired",

	"tries again":                      "histories are linearizable under faults",
	"takes over from itself":           "histories are linearizable under faults",
	"delivers twice":                   "histories are linearizable under faults",
	"acknowledges what did not arrive": "histories are linearizable under faults",
	"loses completions at a restart":   "histories are linearizable under faults",

	"drops the oldest record when full": "a full store refuses",
	"is full without ErrFull":           "a full store refuses",
	"never gives room back":             "a full store has room again after a release",
	"drops what is abandoned when full": "a full store keeps what is abandoned",
	"the dead take up room":             "a full store reclaims what has passed",
	"takeover needs room":               "a full store can be taken over in",

	"looks for the dead until it meets with the living": "a full store reclaims what has passed among what stands",
}

// alsoNoticed are cases that the table above does not name, because another one
// is closer to the fault, with the fault that each must notice.
var alsoNoticed = map[string]string{
	"one of many completions counts":     "looks, then completes",
	"no wake-up is lost":                 "wakes nobody by completion",
	"it behaves as the model does":       "renews nothing",
	"one of many uses of a token runs":   "looks, then locks",
	"all uses of a token get one answer": "locks in the process only",
}

func caseNamed(t *testing.T, name string) testCase {
	t.Helper()
	i := slices.IndexFunc(cases, func(c testCase) bool { return c.name == name })
	if i < 0 {
		t.Fatalf("there is no case %q", name)
	}
	return cases[i]
}

// TestSound: the reference store without a fault keeps the contract, so that what fails below
// fails for its fault.
func TestSound(t *testing.T) {
	factory, features := faultyStores("")
	Run(t, factory, features)
}

// faultyStores makes stores with a fault, with two clients each.
func faultyStores(fault string) (Factory, Features) {
	bounded := func(tb testing.TB, room int) Instance {
		s, l := newReferenceStore(fault, room), &link{}
		tb.Cleanup(l.late.Wait)
		return Instance{
			Store:   &storeClient{referenceStore: s, link: l},
			Advance: s.clock.Advance,
			Peer:    func() store.Store { return &storeClient{referenceStore: s, link: l} },
		}
	}
	factory := func(tb testing.TB) Instance { return bounded(tb, 0) }
	faulty := func(tb testing.TB) (Instance, func()) {
		i := factory(tb)
		return i, i.Store.(*storeClient).disturb
	}
	return factory, Features{Watch: true, Local: true, Recall: true, Bounded: bounded, Faulty: faulty}
}

// TestFaultsAreNoticed: a suite that can't fail is no suite.
func TestFaultsAreNoticed(t *testing.T) {
	defer func(was time.Duration) { patience = was }(patience)
	patience = 300 * time.Millisecond
	notices := func(t *testing.T, fault, name string) {
		t.Helper()
		factory, features := faultyStores(fault)
		for range 50 { // what clients and the model meet with is chance: with -short the model misses a fault every other time
			c := caseNamed(t, name)
			if r := rehearse(t, c, factory, features); r.Failed() && !r.skipped {
				if !strings.Contains(r.log.String(), c.why) {
					t.Errorf("the failure does not tell its rule: %s", r.log.String())
				}
				return
			}
		}
		t.Errorf("a store that %q passes the case %q", fault, name)
	}
	for _, fault := range slices.Sorted(maps.Keys(faults)) {
		t.Run(fault, func(t *testing.T) { notices(t, fault, faults[fault]) })
	}
	for _, name := range slices.Sorted(maps.Keys(alsoNoticed)) {
		t.Run(name, func(t *testing.T) { notices(t, alsoNoticed[name], name) })
	}
}

// TestEveryCaseCanFail: each case has a fault above that it must notice.
func TestEveryCaseCanFail(t *testing.T) {
	noticed := map[string]bool{
		"declares what it implements": true, // TestDeclarations
	}
	for _, name := range faults {
		noticed[name] = true
	}
	for name := range alsoNoticed {
		noticed[name] = true
	}
	seen := map[string]bool{}
	for _, c := range cases {
		if !noticed[c.name] {
			t.Errorf("the case %q has no fault that it must notice", c.name)
		}
		if c.why == "" || seen[c.name] {
			t.Errorf("the case %q has no reason or is there twice", c.name)
		}
		seen[c.name] = true
	}
}

func TestDeclarations(t *testing.T) {
	c := caseNamed(t, "declares what it implements")
	factory, _ := faultyStores("")
	for _, f := range []Features{{Watch: true, Local: true}, {Watch: true, Recall: true}, {Local: true, Recall: true}, {}} {
		if r := rehearse(t, c, factory, f); !r.Failed() {
			t.Errorf("a store that implements all and declares %+v passes", f)
		}
	}
}

// TestLackingFeatures: a case that needs what a store lacks is skipped, and says what that is.
func TestLackingFeatures(t *testing.T) {
	bare := func(testing.TB) Instance { return Instance{Store: newReferenceStore("", 0)} }
	for _, c := range cases {
		want := map[needs]string{
			needWatch: "declares no Watch", needRecall: "declares no Recall", needClock: "clock can't be moved", needBounds: "declares no bounds", needFaults: "declares no faults",
		}[c.needs]
		if c.needs == 0 {
			continue
		}
		if r := rehearse(t, c, bare, Features{}); !r.skipped || r.Failed() || !strings.Contains(r.log.String(), want) {
			t.Errorf("%q is not skipped with %q: %s", c.name, want, r.log.String())
		}
	}
}

// TestUndecided: a history that could not be checked does not pass.
func TestUndecided(t *testing.T) {
	defer func(was time.Duration) { patience = was }(patience)
	patience = time.Nanosecond
	// Refused renewals fit in anywhere, and one that succeeds without a record nowhere: only all 2^60 sets of calls that may
	// come before it show that. No machine tries those before the timeout.
	renewal := porcupine.Operation{Input: call{method: "Renew", owner: store.NewOwner()}, Output: answer{}, Call: 1, Return: 2}
	history := []porcupine.Operation{renewal}
	renewal.Output = answer{err: store.ErrLost}
	history = append(history, slices.Repeat([]porcupine.Operation{renewal}, 60)...)
	if err := checkHistory("k", history); err == nil || !strings.Contains(err.Error(), "could not be decided") {
		t.Errorf("a check without time says: %.80v", err)
	}
}

// TestEmptyPromises: a feature that is declared and does nothing does not pass, nor does a factory that makes no store.
func TestEmptyPromises(t *testing.T) {
	factory, features := faultyStores("")
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
		{"a free key is acquired", "the factory made no store", none},
	} {
		if r := rehearse(t, caseNamed(t, c.name), c.factory, features); !r.Failed() || !strings.Contains(r.log.String(), c.wants) {
			t.Errorf("%q does not fail with %q: %s", c.name, c.wants, r.log.String())
		}
	}
}

// rehearsal stands in for the subtest of a case that is meant to fail.
type rehearsal struct {
	testing.TB // what isn't replaced below is not for a stand-in

	ctx context.Context

	mu       sync.Mutex
	failed   bool
	skipped  bool
	log      strings.Builder
	cleanups []func()
}

func rehearse(t *testing.T, c testCase, factory Factory, features Features) *rehearsal {
	return rehearseAny(t, func(tb testing.TB) { run(tb, c, factory, features) })
}

func rehearseAny(t *testing.T, run func(tb testing.TB)) *rehearsal {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := &rehearsal{ctx: ctx}
	r.inside(func() { run(r) })
	for len(r.cleanups) > 0 {
		last := len(r.cleanups) - 1
		cleanup := r.cleanups[last]
		r.cleanups = r.cleanups[:last]
		r.inside(cleanup)
	}
	return r
}

// inside calls fn where FailNow may end the goroutine. A panic is a failure.
func (r *rehearsal) inside(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				r.Errorf("panic: %v", p)
			}
		}()
		fn()
	}()
	<-done
}

func (r *rehearsal) note(failed bool, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = r.failed || failed
	r.log.WriteString(text + "\n")
}

func (r *rehearsal) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *rehearsal) skip(text string) {
	r.note(false, text)
	r.skipped = true
	runtime.Goexit()
}

func (r *rehearsal) Cleanup(fn func())                 { r.cleanups = append(r.cleanups, fn) }
func (r *rehearsal) Context() context.Context          { return r.ctx }
func (r *rehearsal) Error(args ...any)                 { r.note(true, fmt.Sprintln(args...)) }
func (r *rehearsal) Errorf(format string, args ...any) { r.note(true, fmt.Sprintf(format, args...)) }
func (r *rehearsal) Fail()                             { r.note(true, "") }
func (r *rehearsal) FailNow()                          { r.Fail(); runtime.Goexit() }
func (r *rehearsal) Fatal(args ...any)                 { r.Error(args...); runtime.Goexit() }
func (r *rehearsal) Fatalf(format string, args ...any) { r.Errorf(format, args...); runtime.Goexit() }
func (r *rehearsal) Helper()                           {}
func (r *rehearsal) Log(args ...any)                   { r.note(false, fmt.Sprintln(args...)) }
func (r *rehearsal) Logf(format string, args ...any)   { r.note(false, fmt.Sprintf(format, args...)) }
func (r *rehearsal) Name() string                      { return "rehearsal" }
func (r *rehearsal) Skip(args ...any)                  { r.skip(fmt.Sprintln(args...)) }
func (r *rehearsal) Skipf(format string, args ...any)  { r.skip(fmt.Sprintf(format, args...)) }
func (r *rehearsal) SkipNow()                          { r.skip("") }
