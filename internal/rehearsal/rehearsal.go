// Package rehearsal runs tests that are meant to fail, or to be skipped: those of suites, and of helpers of tests.
package rehearsal

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// T stands in for a test, and keeps to itself what becomes of it. What isn't replaced below is the test's that rehearses.
type T struct {
	testing.TB

	ctx context.Context

	mu              sync.Mutex
	failed, skipped bool
	said            strings.Builder
	cleanups        []func()
}

// Run runs fn as a test of its own, with its cleanup.
func Run(tb testing.TB, fn func(tb testing.TB)) *T {
	ctx, cancel := context.WithCancel(tb.Context())
	defer cancel()
	t := &T{TB: tb, ctx: ctx}
	t.inside(func() { fn(t) })
	for len(t.cleanups) > 0 {
		last := len(t.cleanups) - 1
		cleanup := t.cleanups[last]
		t.cleanups = t.cleanups[:last]
		t.inside(cleanup)
	}
	return t
}

// inside calls fn where FailNow may end the goroutine. A panic is a failure.
func (t *T) inside(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				t.Errorf("panic: %v", p)
			}
		}()
		fn()
	}()
	<-done
}

func (t *T) note(failed bool, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed = t.failed || failed
	t.said.WriteString(text + "\n")
}

func (t *T) skip(text string) {
	t.note(false, text)
	t.skipped = true
	runtime.Goexit()
}

// Said returns what the test has logged.
func (t *T) Said() string { return t.said.String() }

func (t *T) Failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed
}

func (t *T) Cleanup(fn func())                 { t.cleanups = append(t.cleanups, fn) }
func (t *T) Context() context.Context          { return t.ctx }
func (t *T) Error(args ...any)                 { t.note(true, fmt.Sprintln(args...)) }
func (t *T) Errorf(format string, args ...any) { t.note(true, fmt.Sprintf(format, args...)) }
func (t *T) Fail()                             { t.note(true, "") }
func (t *T) FailNow()                          { t.Fail(); runtime.Goexit() }
func (t *T) Fatal(args ...any)                 { t.Error(args...); runtime.Goexit() }
func (t *T) Fatalf(format string, args ...any) { t.Errorf(format, args...); runtime.Goexit() }
func (t *T) Log(args ...any)                   { t.note(false, fmt.Sprintln(args...)) }
func (t *T) Logf(format string, args ...any)   { t.note(false, fmt.Sprintf(format, args...)) }
func (t *T) Skip(args ...any)                  { t.skip(fmt.Sprintln(args...)) }
func (t *T) Skipf(format string, args ...any)  { t.skip(fmt.Sprintf(format, args...)) }
func (t *T) SkipNow()                          { t.skip("") }
func (t *T) Skipped() bool                     { return t.skipped }
