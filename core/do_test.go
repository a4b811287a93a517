package core_test

import (
	"context"
	"errors"
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
func do(ctx context.Context, e *core.Engine, key string, p core.TaskPolicy, fn func(context.Context) ([]byte, error)) (core.Result[[]byte], error) {
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
	e := core.MustNew(core.Config{})
	boom := errors.New("boom")
	fail := func(context.Context) ([]byte, error) { return nil, boom }
	work := func(context.Context) ([]byte, error) { return []byte("v"), nil }

	_, err := do(ctx, e, "released", core.TaskPolicy{Name: "n"}, fail)
	assert.Equal(t, boom, err)
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

func TestDoUncertain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		verdict := core.Unknown()
		p := core.TaskPolicy{Name: "n", Record: core.Record{
			Lease: 5 * time.Second,
			Abandoned: core.Uncertain(func(_ context.Context, u core.Uncertainty) (core.Verdict, error) {
				assert.Nil(t, u.Request)
				return verdict, nil
			}),
		}, ResultLimit: len("found")}
		store := &spy{Store: newStore(t), complete: down, renew: down}
		e := core.MustNew(core.Config{Store: store})
		work := func(context.Context) ([]byte, error) { return []byte("v"), nil }
		_, err := do(ctx, e, "k", p, work)
		assert.NoError(t, err, "what was done is not undone by the store")
		store.complete = nil
		_, err = do(ctx, e, "k", p, work)
		assert.ErrorIs(t, err, codes.InProgress)
		time.Sleep(5 * time.Second)
		_, err = do(ctx, e, "k", p, work)
		assert.ErrorIs(t, err, codes.Uncertain)
		verdict = core.Finished(&core.Response{Status: 200})
		_, err = do(ctx, e, "k", p, work)
		assert.ErrorIs(t, err, codes.Uncertain, "a response finishes no task")
		verdict = core.Finished([]byte("found"))
		r, err := do(ctx, e, "k", p, work)
		assert.NoError(t, err)
		assert.Equal(t, core.Result[[]byte]{Value: []byte("found"), Replayed: true}, r)
	})
}

// There is no room for what the hook has found out; that the run took effect is kept.
func TestFinishedValueWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		records := &spy{Store: newStore(t), complete: down, renew: down}
		e := core.MustNew(core.Config{Store: records})
		p := core.TaskPolicy{Name: "n", Record: core.Record{
			Lease: time.Second,
			Abandoned: core.Uncertain(func(context.Context, core.Uncertainty) (core.Verdict, error) {
				return core.Finished([]byte("found")), nil
			}),
		}}
		work := func(context.Context) ([]byte, error) { return nil, nil }
		_, err := do(ctx, e, "k", p, work)
		assert.NoError(t, err)
		time.Sleep(2 * time.Second)
		tries := 0
		records.complete = func(context.Context) error {
			if tries++; tries == 1 {
				return store.ErrFull
			}
			return nil
		}
		_, err = do(ctx, e, "k", p, work)
		assert.ErrorIs(t, err, codes.ResultUnavailable)
		assert.Equal(t, 2, tries)
	})
}

func TestRefusalErrors(t *testing.T) {
	task := core.MustNew(core.Config{}).MustTask(core.TaskPolicy{Name: "n"})
	refused := func() *core.Refusal {
		_, err := core.Do(t.Context(), task, core.Call{}, func(context.Context) (int, error) { return 0, nil })
		require.ErrorIs(t, err, codes.KeyMissing)
		require.NotErrorIs(t, err, codes.KeyInvalid)
		require.ErrorContains(t, err, "key_missing")
		r, ok := errors.AsType[*core.Refusal](err)
		require.True(t, ok)
		return r
	}
	first := refused()
	require.ErrorIs(t, first, codes.KeyMissing)
	require.Equal(t, 400, first.Status)
	require.NotEmpty(t, first.Code.Title())
	require.NotEmpty(t, first.Detail)
	*first = core.Refusal{Code: "mine"}
	require.Equal(t, 400, refused().Status, "nobody can change what others get")
}
