package backend

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/idem-go/idem/internal/leak"
)

func TestMain(m *testing.M) { leak.VerifyTestMain(m) }

// trialTB is a test that a test can look at: it may be skipped or fail, as nothing has
// happened.
type trialTB struct {
	testing.TB // the test that looks

	said     string
	skipped  bool
	failed   bool
	cleanups []func()
}

// try runs f as a test of its own, with its cleanup, and returns what became of it.
func try(t *testing.T, f func(tb testing.TB)) *trialTB {
	trial := &trialTB{TB: t}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f(trial)
	}()
	<-ended
	for i := len(trial.cleanups) - 1; i >= 0; i-- {
		trial.cleanups[i]()
	}
	return trial
}

func (t *trialTB) Helper()                           {}
func (t *trialTB) Cleanup(f func())                  { t.cleanups = append(t.cleanups, f) }
func (t *trialTB) Failed() bool                      { return t.failed }
func (t *trialTB) Skipped() bool                     { return t.skipped }
func (t *trialTB) Log(args ...any)                   { t.said += fmt.Sprintln(args...) }
func (t *trialTB) Logf(format string, args ...any)   { t.said += fmt.Sprintf(format, args...) + "\n" }
func (t *trialTB) Error(args ...any)                 { t.failed = true; t.Log(args...) }
func (t *trialTB) Errorf(format string, args ...any) { t.failed = true; t.Logf(format, args...) }
func (t *trialTB) Fatal(args ...any)                 { t.Error(args...); runtime.Goexit() }
func (t *trialTB) Fatalf(format string, args ...any) { t.Errorf(format, args...); runtime.Goexit() }

func (t *trialTB) Skipf(format string, args ...any) {
	t.skipped = true
	t.Logf(format, args...)
	runtime.Goexit()
}

// required unsets IDEM_REQUIRE_BACKENDS, which the test may have been started with, or
// sets it.
func required(t *testing.T, value string) {
	t.Setenv("IDEM_REQUIRE_BACKENDS", value)
	if value == "" {
		_ = os.Unsetenv("IDEM_REQUIRE_BACKENDS")
	}
}
