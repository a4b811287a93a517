package core_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/core/store"
)

type stepped struct {
	ID    string `json:"id"`
	Cents int64  `json:"cents"`
	Lines map[string][]int
}

// attempt serves one request whose handler is work, which runs, and answers 201, or 502 if work has failed.
func attempt(t *testing.T, g *core.Guard, work func(ctx context.Context) error) {
	t.Helper()
	ran := false
	_ = serveUntilPanic(g, post("{}", nil).doing(func(ctx context.Context) adapter.Capture {
		ran = true
		if err := work(ctx); err != nil {
			return answer(502, "")
		}
		return answer(201, "")
	}))
	require.True(t, ran)
}

var errLater = errors.New("fails after its steps")

// unwanted is a step that must not run. (attempt would take its panic for the handler's.)
func unwanted[T any](t *testing.T, why string) func(context.Context) (T, error) {
	return func(context.Context) (value T, err error) { t.Error(why); return }
}

// TestStepsRunOnce: what has finished does not run again, whatever ends the attempts after it. What has failed does.
func TestStepsRunOnce(t *testing.T) {
	for name, end := range map[string]func(ctx context.Context) error{
		"an error": func(context.Context) error { return errLater },
		"a panic":  func(context.Context) error { panic("boom") },
		"a crash":  func(ctx context.Context) error { core.RunFrom(ctx).Abandon(); return errLater },
	} {
		g := core.MustNew(core.Config{User: byUser}).MustGuard(core.Policy{})
		ran := map[string]int{}
		var attempts []uint64
		for i := range 3 {
			attempt(t, g, func(ctx context.Context) error {
				attempts = append(attempts, core.RunFrom(ctx).Attempt())
				bytes, err := core.Step(ctx, "bytes",
					func(context.Context) ([]byte, error) { ran["bytes"]++; return []byte("\xff\x00"), nil })
				require.NoError(t, err)
				assert.Equal(t, "\xff\x00", string(bytes))
				clear(bytes)
				want := stepped{ID: "r", Cents: 1<<62 + 1, Lines: map[string][]int{"a": {1}}}
				r, err := core.Step(ctx, "receipt", func(context.Context) (stepped, error) { ran["receipt"]++; return want, nil })
				require.NoError(t, err)
				assert.Equal(t, want, r)
				none, err := core.Step(ctx, "nothing", func(context.Context) (*stepped, error) { ran["nothing"]++; return nil, nil })
				require.NoError(t, err)
				assert.Nil(t, none)
				if i == 0 {
					return end(ctx)
				}
				_, err = core.Step(ctx, "outer", func(ctx context.Context) (string, error) {
					ran["outer"]++
					_, err := core.Step(ctx, "inner", func(context.Context) (string, error) { ran["inner"]++; return "in", nil })
					require.NoError(t, err)
					if i == 1 {
						return "", errLater
					}
					return "out", nil
				})
				if i == 1 {
					assert.Equal(t, errLater, err)
					return end(ctx)
				}
				require.NoError(t, err)
				return nil
			})
		}
		assert.Equal(t, []uint64{1, 2, 3}, attempts, name)
		assert.Equal(t, map[string]int{"bytes": 1, "receipt": 1, "nothing": 1, "inner": 1, "outer": 2}, ran, name)
	}
}

// TestStepsAreForgotten: with the operation, and not before.
func TestStepsAreForgotten(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(*core.Run) adapter.Capture
		runs int // of the step, in two attempts
	}{
		"done": {status(201), 2}, "402": {status(402), 2}, "502": {status(502), 1},
		"502, released": {func(r *core.Run) adapter.Capture { r.Release(); return answer(502, "") }, 2},
	} {
		bubble(t, name, func(t *testing.T) {
			g := core.MustNew(core.Config{User: byUser}).MustGuard(core.Policy{})
			runs, failing := 0, 0
			for range 2 {
				serve(t, g, post("{}", nil).doing(func(ctx context.Context) adapter.Capture {
					_, err := core.Step(ctx, "failing", func(context.Context) (int, error) { failing++; return 0, errLater })
					assert.Equal(t, errLater, err)
					_, err = core.Step(ctx, "s", func(context.Context) (int, error) { runs++; return 1, nil })
					require.NoError(t, err)
					return tc.end(core.RunFrom(ctx))
				}))
				time.Sleep(2 * time.Minute)
			}
			assert.Equal(t, tc.runs, runs)
			assert.Equal(t, 2, failing)
		})
	}
	// A run none of whose steps has finished is released, as ever.
	g := core.MustNew(core.Config{User: byUser}).MustGuard(core.Policy{})
	for range 2 {
		attempt(t, g, func(ctx context.Context) error {
			assert.EqualValues(t, 1, core.RunFrom(ctx).Attempt())
			_, err := core.Step(ctx, "s", func(context.Context) (int, error) { return 0, errLater })
			return err
		})
	}
}

// TestStepsOfSignedEvents: a sender delivers again whatever the answer, so that each failure is one to go on from.
func TestStepsOfSignedEvents(t *testing.T) {
	p := core.SignedEvent()
	p.Name = "stripe"
	g, runs := core.MustNew(core.Config{}).MustGuard(p), 0
	ctx := core.WithCallerEvent(t.Context(), "stripe", "evt_1")
	reused := adapter.Capture{Ending: adapter.Unrendered, Err: core.NewRefusal(codes.KeyReused, nil)}
	for _, end := range []adapter.Capture{answer(422, ""), reused, answer(201, "")} {
		require.NoError(t, g.Serve(ctx, post("{}", nil).doing(func(ctx context.Context) adapter.Capture {
			_, err := core.Step(ctx, "s", func(context.Context) (int, error) { runs++; return 1, nil })
			require.NoError(t, err)
			return end
		})))
	}
	assert.Equal(t, 1, runs)
}

// TestStepErrors: a step that can't be remembered says so.
func TestStepErrors(t *testing.T) {
	records := newStore(t)
	e := core.MustNew(core.Config{User: byUser, Store: records})
	one := func(context.Context) (int, error) { return 1, nil }
	attempt(t, e.MustGuard(core.Policy{}), func(ctx context.Context) error {
		for _, name := range []string{"", strings.Repeat("n", 256)} {
			_, err := core.Step(ctx, name, one)
			assert.ErrorContains(t, err, "1 to 255 bytes")
		}
		_, err := core.Step(ctx, "once", func(ctx context.Context) (int, error) {
			_, err := core.Step(ctx, "once", one)
			assert.ErrorContains(t, err, `"once"`, "while it runs")
			return 1, nil
		})
		require.NoError(t, err)
		_, err = core.Step(ctx, "once", one)
		assert.ErrorContains(t, err, `"once"`)

		assert.PanicsWithValue(t, "step", func() {
			_, _ = core.Step(ctx, "again", func(context.Context) (int, error) { panic("step") })
		})
		_, err = core.Step(ctx, "again", one) // it has failed, and may be tried
		require.NoError(t, err)

		v, err := core.Step(ctx, "lossy", func(context.Context) (string, error) { return "\xff", nil })
		assert.ErrorContains(t, err, "not remembered")
		assert.Equal(t, "\xff", v)
		any, err := core.Step(ctx, "lossy", func(context.Context) (any, error) { return 5, nil })
		assert.ErrorContains(t, err, "not remembered")
		assert.Equal(t, 5, any)

		big := func(n int) func(context.Context) ([]byte, error) {
			return func(context.Context) ([]byte, error) { return make([]byte, n), nil }
		}
		_, err = core.Step(ctx, "a half", big(32<<10))
		require.NoError(t, err)
		_, err = core.Step(ctx, "too much", big(32<<10))
		assert.ErrorContains(t, err, "65536 bytes")
		_, err = core.Step(ctx, "too much", big(32<<10-2)) // beside two results of a byte
		require.NoError(t, err)
		_, err = core.Step(ctx, "one more byte", big(1))
		assert.ErrorContains(t, err, "65536 bytes")

		for i := 0; err == nil || i < 250; i++ {
			_, err = core.Step(ctx, fmt.Sprintf("%0255d", i), big(0))
			require.Less(t, i, 257)
		}
		assert.ErrorContains(t, err, "names")

		end, endAgain := core.RunFrom(ctx).BeginTx(), core.RunFrom(ctx).BeginTx()
		end()
		_, err = core.Step(ctx, "in a transaction", one)
		assert.ErrorContains(t, err, "RunTx")
		endAgain()
		_, err = core.Step(ctx, "in a transaction", big(0))
		assert.NoError(t, err)
		return errLater
	})
	attempt(t, e.MustGuard(core.Policy{}), func(ctx context.Context) error {
		_, err := core.Step(ctx, "once", unwanted[stepped](t, "it has finished"))
		assert.ErrorContains(t, err, "no core_test.stepped")
		_, err = core.Step(ctx, "a half", unwanted[[]byte](t, "it has finished"))
		assert.NoError(t, err)
		_, err = core.Step(ctx, "a half", unwanted[[]byte](t, "it has finished"))
		assert.ErrorContains(t, err, `"a half"`, "once in each run")
		_, err = core.Step(ctx, "lossy", func(context.Context) (string, error) { return "now", nil })
		assert.ErrorContains(t, err, "65536 bytes", "those before count")
		return nil
	})

	_, err := core.Step(t.Context(), "s", one)
	assert.ErrorIs(t, err, codes.NoRun)
	for _, seal := range []*core.Seal{nil, sealUnder("a")} {
		e := core.MustNew(core.Config{User: byUser, Service: "s", Store: shared{newStore(t)}, Seal: seal})
		attempt(t, e.MustGuard(core.Policy{}), func(ctx context.Context) error {
			_, err := core.Step(ctx, "s", unwanted[int](t, "it would not be remembered"))
			assert.ErrorContains(t, err, "Checkpoint")
			assert.ErrorContains(t, err, "core_test.shared", "the store that somebody has chosen")
			return nil
		})
	}
	var late context.Context
	attempt(t, core.MustNew(core.Config{User: byUser}).MustGuard(core.Policy{}), func(ctx context.Context) error { late = ctx; return nil })
	_, err = core.Step(late, "s", unwanted[int](t, "the run has ended"))
	assert.ErrorIs(t, err, store.ErrLost)
}

// TestNamesOfSteps: they may be long, and have a limit together, which those of earlier attempts count for.
func TestNamesOfSteps(t *testing.T) {
	g := core.MustNew(core.Config{User: byUser}).MustGuard(core.Policy{})
	for range 2 {
		attempt(t, g, func(ctx context.Context) error {
			one := func(context.Context) (int, error) { return 1, nil }
			for i := range 257 { // 64 KiB, but for a byte
				_, err := core.Step(ctx, fmt.Sprintf("%0255d", i), one)
				require.NoError(t, err)
			}
			_, err := core.Step(ctx, "xx", one)
			assert.ErrorContains(t, err, "65536 bytes")
			return errLater
		})
	}
}

// TestStepsOfALaterVersion are no steps of this one: it does not run what may have finished.
func TestStepsOfALaterVersion(t *testing.T) {
	for _, steps := range []string{"\x02", "\x01\x05once", "\x01\xff", "\x08\x00\x00\x00\x00\x00\x00\x01\x01",
		"\x07\x00\x00\x00\x00\x00\x00\x01\x02", "\x07\x00\x00\x00\x00\x00\x00\x01"} {
		records := newStore(t)
		g := core.MustNew(core.Config{User: byUser, Store: records}).MustGuard(core.Policy{})
		attempt(t, g, func(ctx context.Context) error {
			run := core.RunFrom(ctx)
			require.NoError(t, records.Capabilities().Checkpoint(ctx, run.Key().Raw(), run.Owner(), []byte(steps)))
			run.Abandon()
			return errLater
		})
		attempt(t, g, func(ctx context.Context) error {
			_, err := core.Step(ctx, "once", unwanted[int](t, "it may have finished"))
			assert.ErrorContains(t, err, "later version")
			return nil
		})
	}
}

// TestStepsWithoutNumbers: builds after 0.1.0 have written steps without the number of a checkpoint. They count, and any number is newer.
func TestStepsWithoutNumbers(t *testing.T) {
	records, ran := newStore(t), 0
	g := core.MustNew(core.Config{User: byUser, Store: records}).MustGuard(core.Policy{})
	attempt(t, g, func(ctx context.Context) error {
		run := core.RunFrom(ctx)
		require.NoError(t, records.Capabilities().Checkpoint(ctx, run.Key().Raw(), run.Owner(), []byte("\x01\x05first\x011")))
		run.Abandon()
		return errLater
	})
	for range 2 {
		attempt(t, g, func(ctx context.Context) error {
			v, err := core.Step(ctx, "first", unwanted[int](t, "it has finished"))
			require.NoError(t, err)
			assert.Equal(t, 1, v)
			v, err = core.Step(ctx, "second", func(context.Context) (int, error) { ran++; return 2, nil })
			require.NoError(t, err)
			assert.Equal(t, 2, v)
			return errLater
		})
	}
	assert.Equal(t, 1, ran)
}

// TestStepsAtOnce: they may run concurrently.
func TestStepsAtOnce(t *testing.T) {
	g := core.MustNew(core.Config{User: byUser}).MustGuard(core.Policy{})
	var mu sync.Mutex
	ran := 0
	for range 2 {
		attempt(t, g, func(ctx context.Context) error {
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					v, err := core.Step(ctx, fmt.Sprint("step ", i), func(context.Context) (int, error) {
						mu.Lock()
						defer mu.Unlock()
						ran++
						return i, nil
					})
					assert.NoError(t, err)
					assert.Equal(t, i, v)
				})
			}
			wg.Wait()
			return errLater
		})
	}
	assert.Equal(t, 8, ran)
}
