package core_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/core/store"
)

// do compiles p for this call alone.
func do(ctx context.Context, e *core.Engine, key string, p core.TaskPolicy,
	fn func(context.Context) ([]byte, error)) (core.Result[[]byte], error) {
	task, err := e.Task(p)
	if err != nil {
		return core.Result[[]byte]{}, err
	}
	return core.Do(ctx, task, core.Call{Key: key}, fn)
}

func TestDo(t *testing.T) {
	ctx := context.Background()
	e := core.MustNew(core.Config{})
	var ledger atomic.Int64
	work := func(context.Context) ([]byte, error) { ledger.Add(1); return []byte("v"), nil }
	p := core.TaskPolicy{Name: "mail"}

	r, err := do(ctx, e, "k", p, work)
	assert.NoError(t, err)
	assert.Equal(t, core.Result[[]byte]{Value: []byte("v"), Attempt: 1}, r)
	r, err = do(ctx, e, "k", p, work)
	assert.NoError(t, err)
	assert.Equal(t, core.Result[[]byte]{Value: []byte("v"), Replayed: true}, r)
	r.Value[0] = 'x'
	r, _ = do(ctx, e, "k", p, work)
	assert.Equal(t, "v", string(r.Value), "the value is the caller's own")

	_, err = do(ctx, e, "k", core.TaskPolicy{Name: "sms"}, work)
	assert.NoError(t, err)
	assert.EqualValues(t, 2, ledger.Load(), "another task's keys are others")

	_, err = do(ctx, e, "k", core.TaskPolicy{Name: "mail", Duplicate: core.Reject("sent")}, work)
	assert.ErrorIs(t, err, codes.Duplicate)
	assert.ErrorContains(t, err, "sent")
	_, err = do(ctx, e, "", p, work)
	assert.ErrorIs(t, err, codes.KeyMissing)
	_, err = do(ctx, e, "k", core.TaskPolicy{}, work)
	assert.Equal(t, []string{"TaskPolicy.Name"}, faultyFields(t, err))
	assert.EqualValues(t, 2, ledger.Load())
}

func TestDoFailures(t *testing.T) {
	ctx := context.Background()
	var observed events
	e := core.MustNew(core.Config{Observe: observed.add})
	boom := errors.New("boom")
	fail := func(context.Context) ([]byte, error) { return nil, boom }
	work := func(context.Context) ([]byte, error) { return []byte("v"), nil }

	_, err := do(ctx, e, "released", core.TaskPolicy{Name: "n"}, fail)
	assert.Equal(t, boom, err)
	assert.Equal(t, core.Released, observed.last().Kind)
	assert.Equal(t, boom, observed.last().Err)
	r, err := do(ctx, e, "released", core.TaskPolicy{Name: "n"}, work)
	assert.NoError(t, err)
	assert.False(t, r.Replayed)

	keep := core.TaskPolicy{Name: "n", Record: core.Record{OnFailure: core.Keep}}
	_, err = do(ctx, e, "kept", keep, fail)
	assert.Equal(t, boom, err)
	_, err = do(ctx, e, "kept", keep, work)
	assert.ErrorIs(t, err, codes.ResultUnavailable)

	small := core.TaskPolicy{Name: "n", ResultLimit: 1}
	for _, replayed := range []bool{false, true} {
		r, err = do(ctx, e, "limit", small, func(context.Context) ([]byte, error) { return []byte("1"), nil })
		assert.NoError(t, err)
		assert.Equal(t, "1", string(r.Value))
		assert.Equal(t, replayed, r.Replayed, "a value of just the limit is stored")
	}
	r, err = do(ctx, e, "large", small, func(context.Context) ([]byte, error) { return []byte("12"), nil })
	assert.NoError(t, err)
	assert.Equal(t, "12", string(r.Value))
	_, err = do(ctx, e, "large", small, work)
	assert.ErrorIs(t, err, codes.ResultUnavailable)

	assert.Panics(t, func() {
		_, _ = do(ctx, e, "panic", core.TaskPolicy{Name: "n"}, func(context.Context) ([]byte, error) { panic("boom") })
	})
	_, err = do(ctx, e, "panic", core.TaskPolicy{Name: "n"}, work)
	assert.NoError(t, err)

	broken := core.MustNew(core.Config{Store: &spy{Store: newStore(t), acquire: down, release: down}})
	_, err = do(ctx, broken, "k", core.TaskPolicy{Name: "n"}, work)
	assert.ErrorIs(t, err, codes.StoreUnavailable)
	assert.ErrorIs(t, err, errDown)
	r, err = do(ctx, broken, "k", core.TaskPolicy{Name: "n", FailOpen: true}, work)
	assert.NoError(t, err)
	assert.Equal(t, core.Result[[]byte]{Value: []byte("v")}, r)
}

type receipt struct {
	ID    string
	Cents int64
	Notes []string `json:",omitempty"`
}

// twice runs fn and has it replayed. It returns both results.
func twice[T any](t *testing.T, value T) (first, again core.Result[T]) {
	t.Helper()
	task := core.MustNew(core.Config{}).MustTask(core.TaskPolicy{Name: "n"})
	var err error
	for _, r := range []*core.Result[T]{&first, &again} {
		*r, err = core.Do(t.Context(), task, core.Call{Key: "k"}, func(context.Context) (T, error) { return value, nil })
		require.NoError(t, err)
	}
	assert.False(t, first.Replayed)
	assert.EqualValues(t, 1, first.Attempt)
	assert.True(t, again.Replayed)
	assert.Zero(t, again.Attempt)
	return first, again
}

func sameTwice[T any](t *testing.T, value T) {
	t.Helper()
	first, again := twice(t, value)
	assert.Equal(t, value, first.Value)
	assert.Equal(t, value, again.Value, "%T", value)
}

type raw []byte

func TestTypesOfValues(t *testing.T) {
	sameTwice(t, []byte("any \x00 \xff bytes"))
	sameTwice(t, "text")
	sameTwice(t, "")
	sameTwice(t, text("\ufffd and \\ufffd are text"))
	sameTwice(t, time.Date(2026, 11, 24, 1, 2, 3, 4, time.UTC))
	sameTwice(t, 42)
	sameTwice(t, int64(math.MaxInt64))
	sameTwice(t, receipt{"r-1", 700, []string{"a"}})
	sameTwice(t, &receipt{ID: "r-1"})
	sameTwice(t, (*receipt)(nil))
	sameTwice(t, map[string]int{"a": 1})
	sameTwice(t, raw("bytes of another type"))
	sameTwice(t, json.RawMessage(`{"a":1}`))
	sameTwice(t, struct{}{})
	sameTwice[any](t, "text")
	sameTwice[any](t, nil)
	sameTwice[any](t, map[string]any{"a": []any{1.5, true, nil, "text"}})
	sameTwice(t, json.RawMessage(" {\"a\": \"<&>\"}\n"))
	sameTwice(t, json.RawMessage(nil))
	sameTwice(t, map[string]json.RawMessage{"a": json.RawMessage(`"<&>"`)})
	sameTwice(t, struct {
		receipt
		At  *time.Time
		Any any
	}{receipt: receipt{ID: "r-1"}, Any: "text"})
	sameTwice(t, struct{ Cents big.Int }{*big.NewInt(5)}) // whose MarshalJSON is its pointer's
	twice(t, struct {                                     // what JSON leaves out is not looked at
		ID  string
		Log bytes.Buffer `json:"-"`
	}{"r-1", *bytes.NewBufferString("left out")})
	_, nothing := twice[[]byte](t, nil)
	assert.Empty(t, nothing.Value)
}

// What can't be encoded is returned all the same, and has been done.
func TestValuesThatCannotBeStored(t *testing.T) {
	var observed events
	task := core.MustNew(core.Config{Observe: observed.add}).MustTask(core.TaskPolicy{Name: "n"})
	notUTF8 := "\xff"
	for key, check := range map[string]func(key string, calls *int) error{
		"channel":               returns(task, any(make(chan int))),
		"not a number":          returns(task, any(math.NaN())),
		"function":              returns(task, any(func() {})),
		"not UTF-8":             returns(task, notUTF8),
		"within a struct":       returns(task, receipt{ID: notUTF8}),
		"within a map":          returns(task, map[string][]string{"a": {notUTF8}}),
		"the name of a member":  returns(task, map[string]int{notUTF8: 1}),
		"of a named type":       returns(task, text(notUTF8)),
		"behind an interface":   returns(task, any(&receipt{ID: notUTF8})),
		"a number beyond float": returns(task, any(int64(math.MaxInt64))),
		"bytes in an any":       returns(task, any([]byte("x"))),
		"an int in an any":      returns(task, any(5)),
		"a struct in an any":    returns(task, any(receipt{ID: "r-1"})),
		"a time in an any":      returns(task, any(time.Unix(1, 0))), // as a text
		"JSON in an any":        returns(task, map[string]any{"raw": json.RawMessage("{}")}),
		"a nil pointer, so":     returns(task, any((*receipt)(nil))),
		"of an embedded struct": returns(task, struct{ embedded }{embedded{Of: 5}}),
		"deeper":                returns(task, &struct{ Of []map[string]any }{[]map[string]any{{"n": 5}}}),
		"of unexported fields":  returns(task, writeNothing{1}),
		"deeper still":          returns(task, struct{ Of []writeNothing }{[]writeNothing{{1}}}),
		"not JSON":              returns(task, json.RawMessage("{")),
		"read as another":       returns(task, writeOnly{1}),
		"never read":            returns(task, []error{errDown}),
	} {
		calls := 0
		assert.NoError(t, check(key, &calls), key)
		last := observed.last()
		assert.Equal(t, core.Completed, last.Kind)
		assert.False(t, last.Failed)
		assert.Error(t, last.Err, "somebody should know")
		assert.ErrorIs(t, check(key, &calls), codes.ResultUnavailable, key)
		assert.Equal(t, 1, calls)
	}
}

type text string

type writeNothing struct{ n int }

type embedded struct{ Of any }

// writeOnly has a JSON that it does not read.
type writeOnly struct{ n int }

func (w writeOnly) MarshalJSON() ([]byte, error) { return json.Marshal(w.n) }

func (w *writeOnly) UnmarshalJSON([]byte) error { return nil }

// returns calls Do with a function that returns value.
func returns[T any](task *core.Task, value T) func(key string, calls *int) error {
	return func(key string, calls *int) error {
		_, err := core.Do(context.Background(), task, core.Call{Key: key}, func(context.Context) (T, error) { *calls++; return value, nil })
		return err
	}
}

type panics struct{}

func (panics) MarshalJSON() ([]byte, error) { panic("value") }

// What the value does when it is encoded is not the function's: the work has been done.
func TestValuesThatPanic(t *testing.T) {
	task := core.MustNew(core.Config{}).MustTask(core.TaskPolicy{Name: "n"})
	calls := 0
	fn := func(context.Context) (panics, error) { calls++; return panics{}, nil }
	assert.PanicsWithValue(t, "value", func() { _, _ = core.Do(t.Context(), task, core.Call{Key: "k"}, fn) })
	_, err := core.Do(t.Context(), task, core.Call{Key: "k"}, fn)
	assert.ErrorIs(t, err, codes.ResultUnavailable)
	assert.Equal(t, 1, calls)
}

// The type has changed since: that is not a reason to run again, and half a value is none.
func TestReplaysThatCannotBeDecoded(t *testing.T) {
	task := core.MustNew(core.Config{}).MustTask(core.TaskPolicy{Name: "n"})
	type older struct{ ID, Cents, Notes string }
	_, err := core.Do(t.Context(), task, core.Call{Key: "k"},
		func(context.Context) (older, error) { return older{"r-1", "seven", ""}, nil })
	require.NoError(t, err)
	r, err := core.Do(t.Context(), task, core.Call{Key: "k"}, func(context.Context) (receipt, error) {
		t.Error("ran again")
		return receipt{}, nil
	})
	assert.ErrorIs(t, err, codes.ResultUnavailable)
	var fault *json.UnmarshalTypeError
	assert.ErrorAs(t, err, &fault)
	assert.Equal(t, core.Result[receipt]{}, r)
}

func TestUsersAndFingerprintsOfTasks(t *testing.T) {
	records := newStore(t)
	task := core.MustNew(core.Config{Store: records}).MustTask(core.TaskPolicy{Name: "mail"})
	do := func(c core.Call) (core.Result[string], error) {
		return core.Do(t.Context(), task, c, func(ctx context.Context) (string, error) { return core.RunFrom(ctx).Key().Raw(), nil })
	}
	key := func(c core.Call) (key string) {
		_, err := core.Do(t.Context(), task, c, func(ctx context.Context) (int, error) {
			key = core.RunFrom(ctx).Key().Raw()
			return 0, nil
		})
		require.NoError(t, err)
		return key
	}
	assert.Equal(t, "idem:U=M=DO%20mailK=k", key(core.Call{Key: "k"}))
	assert.Equal(t, "idem:U=bobM=DO%20mailK=k", key(core.Call{Key: "k", User: "bob"}))
	assert.Equal(t, "idem:U=bobM%3DDO%20mailK%3DkM=DO%20mailK=k", key(core.Call{Key: "k", User: "bobM=DO mailK=k"}), "the parts stay apart")
	assert.Equal(t, "idem:U=M=DO%20mailK=%00%FF", key(core.Call{Key: "\x00\xff"}), "any bytes")
	long := strings.Repeat("u", 65)
	assert.NotContains(t, key(core.Call{Key: "k", User: long}), "uu")
	assert.Contains(t, key(core.Call{Key: "k", User: long[1:]}), long[1:], "64 bytes are stored as they are")

	_, err := do(core.Call{Key: "k", Fingerprint: "v1"})
	assert.ErrorIs(t, err, codes.KeyReused, "the record has no fingerprint")

	// A message with a fingerprint, short, of just 64 bytes and long; the same again, and another.
	for i, print := range []string{"v1", strings.Repeat("f", 64), strings.Repeat("f", 65), strings.Repeat("f", 10000)} {
		c := core.Call{Key: fmt.Sprint("message ", i), User: "eve", Fingerprint: print}
		_, err := do(c)
		require.NoError(t, err)
		r, err := do(c)
		assert.NoError(t, err)
		assert.True(t, r.Replayed)
		key := fmt.Sprintf("idem:U=eveM=DO%%20mailK=message%%20%d", i)
		stands, err := records.Acquire(t.Context(), key, store.Claim{Owner: store.NewOwner(), Lease: time.Second})
		require.NoError(t, err)
		assert.Equal(t, store.Done, stands.State)
		assert.Equal(t, len(print) <= 64, stands.Fingerprint == print, "more than 64 bytes are stored as a hash")
		for _, other := range []string{"", print + "x", print[1:]} {
			c.Fingerprint = other
			_, err = do(c)
			assert.ErrorIs(t, err, codes.KeyReused, "%d: %q", i, other)
		}
	}
	lenient := core.MustNew(core.Config{Store: records}).MustTask(core.TaskPolicy{Name: "mail", IgnoreFingerprint: true})
	r, err := core.Do(t.Context(), lenient, core.Call{Key: "message 0", User: "eve", Fingerprint: "v2"},
		func(context.Context) (string, error) { return "", nil })
	assert.NoError(t, err)
	assert.True(t, r.Replayed)
}

// Under IgnoreFingerprint the key alone decides also which operation goes on, after a failure and after a crash.
func TestATaskGoesOnWhateverItsFingerprint(t *testing.T) {
	task := core.MustNew(core.Config{}).MustTask(core.TaskPolicy{Name: "mail", IgnoreFingerprint: true})
	steps := 0
	for i, end := range []func(*core.Run){func(*core.Run) {}, (*core.Run).Abandon, func(*core.Run) {}} {
		r, err := core.Do(t.Context(), task, core.Call{Key: "k", Fingerprint: fmt.Sprint("v", i)}, func(ctx context.Context) (int, error) {
			end(core.RunFrom(ctx))
			n, err := core.Step(ctx, "once", func(context.Context) (int, error) { steps++; return steps, nil })
			return n, errors.Join(err, errLater)
		})
		assert.ErrorIs(t, err, errLater)
		assert.Equal(t, core.Result[int]{Value: 1, Attempt: uint64(i + 1)}, r)
	}
}

func TestDoWithinDo(t *testing.T) {
	e := core.MustNew(core.Config{})
	mail, twin := e.MustTask(core.TaskPolicy{Name: "mail"}), e.MustTask(core.TaskPolicy{Name: "mail"})
	sms := e.MustTask(core.TaskPolicy{Name: "sms"})
	call := core.Call{Key: "k"}
	inner := func(ctx context.Context, task *core.Task, c core.Call) (core.Result[int], error) {
		return core.Do(ctx, task, c, func(context.Context) (int, error) { return 7, nil })
	}
	_, err := core.Do(t.Context(), mail, call, func(ctx context.Context) (int, error) {
		r, err := inner(ctx, mail, call)
		assert.NoError(t, err)
		assert.Equal(t, core.Result[int]{Value: 7}, r, "the same run, not one of its own")

		_, err = inner(ctx, twin, call)
		assert.ErrorIs(t, err, codes.GuardConflict, "another task of one name claims the same key")

		r, err = inner(ctx, sms, call)
		assert.NoError(t, err)
		assert.EqualValues(t, 1, r.Attempt, "another operation")

		_, err = core.Do(ctx, sms, core.Call{Key: "deeper"}, func(ctx context.Context) (int, error) {
			r, err := inner(ctx, mail, call)
			assert.NoError(t, err)
			assert.Zero(t, r.Attempt)
			return 0, err
		})
		return 1, err
	})
	require.NoError(t, err)
	r, err := inner(t.Context(), twin, call)
	assert.NoError(t, err)
	assert.Equal(t, core.Result[int]{Value: 1, Replayed: true}, r, "two tasks of one name have the same operations")
}

// A context that outlives its run says nothing about what runs now.
func TestDoWithTheContextOfAnEndedRun(t *testing.T) {
	task := core.MustNew(core.Config{}).MustTask(core.TaskPolicy{Name: "n"})
	calls := 0
	var kept context.Context
	fn := func(ctx context.Context) (int, error) { calls++; kept = ctx; return calls, nil }
	_, err := core.Do(t.Context(), task, core.Call{Key: "k"}, fn)
	require.NoError(t, err)
	require.Error(t, kept.Err())
	r, err := core.Do(context.WithoutCancel(kept), task, core.Call{Key: "k"}, fn)
	assert.NoError(t, err)
	assert.Equal(t, core.Result[int]{Value: 1, Replayed: true}, r)
	assert.Equal(t, 1, calls)
}

// A call whose context has ended runs nothing and claims nothing.
func TestDoWithAContextThatHasEnded(t *testing.T) {
	records := &spy{Store: newStore(t)}
	task := core.MustNew(core.Config{Store: records}).MustTask(core.TaskPolicy{Name: "n", FailOpen: true})
	late, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	for want, ctx := range map[error]context.Context{context.Canceled: over(), context.DeadlineExceeded: late} {
		_, err := core.Do(ctx, task, core.Call{Key: "k"}, func(context.Context) (int, error) { t.Error("it runs"); return 1, nil })
		assert.Equal(t, want, err)
	}
	assert.Zero(t, records.acquires.Load())
}

// A call without a key runs each time, whatever the store and Drain say. Within a run it belongs to that.
func TestDoWithAnOptionalKey(t *testing.T) {
	var seen events
	records := &spy{Store: newStore(t)}
	e := core.MustNew(core.Config{Observe: seen.add, Store: records})
	task := e.MustTask(core.TaskPolicy{Name: "n", Presence: core.Optional})
	runs := 0
	fn := func(ctx context.Context) (int, error) {
		runs++
		_, err := core.RequireRun(ctx)
		assert.ErrorIs(t, err, codes.KeyMissing)
		return runs, errLater
	}
	for i := range 2 {
		r, err := core.Do(t.Context(), task, core.Call{User: "ann", Fingerprint: "f"}, fn)
		assert.Equal(t, errLater, err)
		assert.Equal(t, core.Result[int]{Value: i + 1}, r)
		assert.Equal(t, core.Event{Kind: core.Passed, Policy: "n", Route: "DO n"}, seen.last())
		assert.NoError(t, e.Drain(t.Context()))
	}
	_, err := core.Do(over(), task, core.Call{}, fn)
	assert.Equal(t, context.Canceled, err)
	assert.Zero(t, records.acquires.Load())
	_, err = core.Do(t.Context(), task, core.Call{Key: "k"}, fn)
	assert.ErrorIs(t, err, codes.ShuttingDown, "one with a key is protected")
	assert.Equal(t, 2, runs)

	other := core.MustNew(core.Config{}).MustTask(core.TaskPolicy{Name: "n"})
	_, err = core.Do(t.Context(), other, core.Call{Key: "k"}, func(ctx context.Context) (int, error) {
		_, err := core.Do(ctx, task, core.Call{}, func(within context.Context) (int, error) {
			assert.Same(t, core.RunFrom(ctx), core.RunFrom(within))
			return 0, nil
		})
		return 0, err
	})
	assert.NoError(t, err)
}

// The end of a task's context is meant, unless its policy says that the caller may leave.
func TestContextsOfTasks(t *testing.T) {
	for _, linger := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			task := core.MustNew(core.Config{}).MustTask(core.TaskPolicy{Name: "n", Linger: linger})
			type ctxKey struct{}
			ctx, leave := context.WithCancelCause(context.WithValue(t.Context(), ctxKey{}, "outer"))
			_, err := core.Do(ctx, task, core.Call{Key: "k"}, func(run context.Context) (int, error) {
				assert.Equal(t, "outer", run.Value(ctxKey{}))
				assert.NoError(t, run.Err())
				leave(nil)
				before := time.Now()
				<-run.Done()
				assert.Equal(t, linger, time.Since(before))
				assert.Equal(t, context.Canceled, context.Cause(run))
				return 0, run.Err()
			})
			assert.ErrorIs(t, err, context.Canceled)
			r, err := core.Do(t.Context(), task, core.Call{Key: "k"}, func(context.Context) (int, error) { return 1, nil })
			assert.NoError(t, err)
			assert.Equal(t, 1, r.Value, "the failure was released")
		})
	}
}

// What the hook has found out is replayed. If there is no room for it, that the run took effect is kept.
func TestFinishedValue(t *testing.T) {
	for _, full := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			records := &spy{Store: newStore(t), complete: down, renew: down}
			e := core.MustNew(core.Config{Store: records})
			p := core.TaskPolicy{Name: "n", ResultLimit: len("found"), Record: core.Record{Lease: time.Second}}
			p.Abandoned = finding(core.Finished([]byte("found")))
			work := func(context.Context) ([]byte, error) { return nil, nil }
			_, err := do(t.Context(), e, "k", p, work)
			assert.NoError(t, err, "what was done is not undone by the store")
			assert.Error(t, e.Drain(over()), "the process ends")
			e = core.MustNew(core.Config{Store: records})
			time.Sleep(2 * time.Second)
			tries := 0
			records.complete = func(context.Context) error {
				if tries++; full && tries == 1 {
					return store.ErrFull
				}
				return nil
			}
			r, err := do(t.Context(), e, "k", p, work)
			if full {
				assert.ErrorIs(t, err, codes.ResultUnavailable)
				assert.Equal(t, 2, tries)
				return
			}
			assert.NoError(t, err)
			assert.Equal(t, core.Result[[]byte]{Value: []byte("found"), Replayed: true}, r)
		})
	}
}
