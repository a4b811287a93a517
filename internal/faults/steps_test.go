//go:build unix

package faults_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSteps kills processes in and between the three steps of their handlers, and freezes some: a step that has finished never
// runs again, the next run gets its result, and each step has the same key downstream in every run.
func TestSteps(t *testing.T) {
	t.Parallel()
	kills := 12
	if os.Getenv("IDEM_LONG") != "" {
		kills = 200
	}
	program := theService(t)
	for _, s := range everyStore(t) {
		t.Run(s.name, func(t *testing.T) {
			shortly(t, s.name)
			t.Parallel()
			steps := &stepsTrial{trial: newTrial(t), program: program,
				results: map[string]string{}, by: map[string]uint64{}, keys: map[string]string{}}
			steps.args = []string{"-store", s.fresh(t), "-lease", "400ms", "-framework", "gin", "-bank", bank(t, steps.called)}
			for op := 0; steps.killed < kills; op++ {
				steps.pay(fmt.Sprint("steps-", op), 1+op%7, op%5 == 4 && s.name != "SQLite") // which may be frozen with its lock
			}
			t.Logf("%d processes killed; steps began %d times, of which %d were begun again",
				steps.killed, steps.runs, steps.runs-len(steps.results))
			assert.Greater(t, steps.runs, len(steps.results), "no process was killed in a step")
		})
	}
}

// stepsTrial has what the handlers tell of their steps, by operation and step.
type stepsTrial struct {
	*trial
	program string
	args    []string
	killed  int

	mu      sync.Mutex
	results map[string]string // of those that have finished
	by      map[string]uint64 // in which attempt that was told first
	keys    map[string]string
	runs    int    // of steps
	calls   int    // by the process under way
	at      int    // the call at which it is stopped; 0: none
	stop    func() // does it
}

// called is called by a handler when a step runs, and when it has finished.
func (s *stepsTrial) called(told, op string, attempt uint64) {
	s.mu.Lock()
	kind, result, _ := strings.Cut(told, " ")
	name, _, _ := strings.Cut(result, " ")
	step := op + "/" + name
	switch was, finished := s.results[step]; kind {
	case "run":
		s.runs++
		// A run that was frozen does not know yet that another has taken over.
		assert.False(s.t, finished && attempt >= s.by[step], "%s runs again, and has finished", step)
		if key, ran := s.keys[step]; ran {
			assert.Equal(s.t, key, result, "%s has another key", step)
		}
		s.keys[step] = result
	case "finished":
		if finished {
			assert.Equal(s.t, was, result, "%s has another result", step)
		}
		if !finished {
			s.by[step] = attempt
		}
		s.results[step] = result
	}
	var stop func()
	if s.calls++; s.calls == s.at {
		stop = s.stop
	}
	s.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// pay asks for a payment until it is done. Its first processes are killed at some moment of the three steps; or one is frozen, and
// thawed when another has taken over.
func (s *stepsTrial) pay(op string, kills int, freezes bool) {
	t := s.t
	arm := func(at int, stop func()) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.calls, s.at, s.stop = 0, at, stop
	}
	for answer := ""; kills > 0 && !strings.HasPrefix(answer, "201"); kills-- {
		p := startProcess(s.trial, s.program, 0, s.args...)
		at, within := 1+rand.IntN(4), rand.IntN(2) == 0
		if s.killed == 0 {
			at, within = 1, true // for certain, a step is begun again
		}
		arm(at, func() {
			if within {
				p.kill()
			} else { // on its way to the next call, or behind the last one
				go func() {
					time.Sleep(rand.N(3 * time.Millisecond))
					p.kill()
				}()
			}
		})
		for deadline := time.Now().Add(patience); answer == "" || strings.HasPrefix(answer, "409"); time.Sleep(20 * time.Millisecond) {
			require.True(t, time.Now().Before(deadline), "neither killed nor done")
			answer = p.send(op)
		}
		p.kill()
		if answer == "none" {
			s.killed, answer = s.killed+1, ""
		}
	}
	var frozen *process
	var answer <-chan string
	if freezes {
		frozen = startProcess(s.trial, s.program, 0, s.args...)
		stopped := make(chan struct{})
		arm(1, func() { frozen.freeze(); close(stopped) })
		answer = make(chan string)
		for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
			answer = frozen.sent(op)
			select {
			case <-stopped:
			case got := <-answer:
				if strings.HasPrefix(got, "409") && time.Now().Before(deadline) {
					continue
				}
				frozen = nil // it was done before
			}
			break
		}
	}
	arm(0, nil)
	heir := startProcess(s.trial, s.program, 0, s.args...)
	defer heir.kill()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if got := heir.send(op); strings.HasPrefix(got, "201") {
			break
		}
		require.True(t, time.Now().Before(deadline), "it is never done")
	}
	if frozen != nil {
		frozen.thaw()
		<-answer // the stale run remembers nothing, as called and the replay tell
		frozen.kill()
	}
	require.Equal(t, "201 replayed", heir.send(op))
	s.mu.Lock()
	defer s.mu.Unlock()
	var results []string
	for _, name := range []string{"reserve", "charge", "mail"} {
		results = append(results, s.results[op+"/"+name])
	}
	require.Equal(t, strings.Join(results, "\n"), s.body(op))
}
