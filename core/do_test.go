package core_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/idem-go/idem/core"
)

func TestDo(t *testing.T) {
	ctx := context.Background()
	e := core.MustNew(core.Config{})
	var ledger atomic.Int64
	work := func(context.Context) ([]byte, error) { ledger.Add(1); return []byte("v"), nil }
	p := core.Policy{Name: "mail"}

	r, err := e.Do(ctx, "k", p, work)
	assert.NoError(t, err)
	assert.Equal(t, core.Result{Value: []byte("v"), Attempt: 1}, r)
	r, err = e.Do(ctx, "k", p, work)
	assert.NoError(t, err)
	assert.Equal(t, core.Result{Value: []byte("v"), Replayed: true}, r)
	r.Value[0] = 'x'
	r, _ = e.Do(ctx, "k", p, work)
	assert.Equal(t, "v", string(r.Value), "the value is the caller's own")

	_, err = e.Do(ctx, "k", core.Policy{Name: "sms"}, work)
	assert.NoError(t, err)
	assert.EqualValues(t, 2, ledger.Load(), "another task's keys are others")

	_, err = e.Do(ctx, "k", core.Policy{Name: "mail", Duplicate: core.Reject, Message: "sent"}, work)
	assert.ErrorIs(t, err, core.ErrDuplicate)
	assert.ErrorContains(t, err, "sent")
	_, err = e.Do(ctx, "", p, work)
	assert.ErrorIs(t, err, core.ErrKeyMissing)
	_, err = e.Do(ctx, "k", core.Policy{}, work)
	assert.Equal(t, []string{"Policy.Name"}, faultyFields(t, err))
	assert.EqualValues(t, 2, ledger.Load())
}

func TestDoFailures(t *testing.T) {
	ctx := context.Background()
	e := core.MustNew(core.Config{})
	boom := errors.New("boom")
	fail := func(context.Context) ([]byte, error) { return nil, boom }
	work := func(context.Context) ([]byte, error) { return []byte("v"), nil }

	_, err := e.Do(ctx, "released", core.Policy{Name: "n"}, fail)
	assert.Equal(t, boom, err)
	r, err := e.Do(ctx, "released", core.Policy{Name: "n"}, work)
	assert.NoError(t, err)
	assert.False(t, r.Replayed)

	keep := core.Policy{Name: "n", OnFailure: core.Keep}
	_, err = e.Do(ctx, "kept", keep, fail)
	assert.Equal(t, boom, err)
	_, err = e.Do(ctx, "kept", keep, work)
	assert.ErrorIs(t, err, core.ErrResultUnavailable)

	small := core.Policy{Name: "n", ResponseLimit: 1}
	r, err = e.Do(ctx, "large", small, func(context.Context) ([]byte, error) { return []byte("12"), nil })
	assert.NoError(t, err)
	assert.Equal(t, "12", string(r.Value))
	_, err = e.Do(ctx, "large", small, work)
	assert.ErrorIs(t, err, core.ErrResultUnavailable)

	assert.Panics(t, func() {
		_, _ = e.Do(ctx, "panic", core.Policy{Name: "n"}, func(context.Context) ([]byte, error) { panic("boom") })
	})
	_, err = e.Do(ctx, "panic", core.Policy{Name: "n"}, work)
	assert.NoError(t, err)

	broken := core.MustNew(core.Config{Store: &spy{Store: newStore(t), acquire: down, release: down}})
	_, err = broken.Do(ctx, "k", core.Policy{Name: "n"}, work)
	assert.ErrorIs(t, err, core.ErrStoreUnavailable)
	assert.ErrorIs(t, err, errDown)
	r, err = broken.Do(ctx, "k", core.Policy{Name: "n", FailOpen: true}, work)
	assert.NoError(t, err)
	assert.Equal(t, core.Result{Value: []byte("v")}, r)
}

func TestDoUncertain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		verdict := core.Unknown()
		p := core.Policy{Name: "n", Lease: 5 * time.Second, Abandoned: core.Uncertain,
			Reconcile: func(_ context.Context, u core.Uncertainty) (core.Verdict, error) {
				assert.Nil(t, u.Request)
				return verdict, nil
			}}
		store := &spy{Store: newStore(t), complete: down, renew: down}
		e := core.MustNew(core.Config{Store: store})
		work := func(context.Context) ([]byte, error) { return []byte("v"), nil }
		_, err := e.Do(ctx, "k", p, work)
		assert.NoError(t, err, "what was done is not undone by the store")
		store.complete = nil
		_, err = e.Do(ctx, "k", p, work)
		assert.ErrorIs(t, err, core.ErrInProgress)
		time.Sleep(5 * time.Second)
		_, err = e.Do(ctx, "k", p, work)
		assert.ErrorIs(t, err, core.ErrUncertain)
		verdict = core.Settled(&core.Response{Status: 200})
		_, err = e.Do(ctx, "k", p, work)
		assert.ErrorIs(t, err, core.ErrUncertain, "a response settles no task")
		verdict = core.SettledValue([]byte("found"))
		r, err := e.Do(ctx, "k", p, work)
		assert.NoError(t, err)
		assert.Equal(t, core.Result{Value: []byte("found"), Replayed: true}, r)
	})
}

// There is no room for what the hook has found out; that the run took effect is kept.
func TestSettledValueWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		store := &spy{Store: newStore(t), complete: down, renew: down}
		e := core.MustNew(core.Config{Store: store})
		p := core.Policy{Name: "n", Lease: time.Second, Abandoned: core.Uncertain,
			Reconcile: func(context.Context, core.Uncertainty) (core.Verdict, error) {
				return core.SettledValue([]byte("found")), nil
			}}
		work := func(context.Context) ([]byte, error) { return nil, nil }
		_, err := e.Do(ctx, "k", p, work)
		assert.NoError(t, err)
		time.Sleep(2 * time.Second)
		tries := 0
		store.complete = func(context.Context) error {
			if tries++; tries == 1 {
				return core.ErrStoreFull
			}
			return nil
		}
		_, err = e.Do(ctx, "k", p, work)
		assert.ErrorIs(t, err, core.ErrResultUnavailable)
		assert.Equal(t, 2, tries)
	})
}

func TestDoConcurrently(t *testing.T) {
	e := core.MustNew(core.Config{})
	var ledger, inProgress, done atomic.Int64
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			_, err := e.Do(context.Background(), "k", core.Policy{Name: "n"}, func(context.Context) ([]byte, error) {
				ledger.Add(1)
				return []byte("v"), nil
			})
			switch {
			case err == nil:
				done.Add(1)
			case errors.Is(err, core.ErrInProgress):
				inProgress.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, 1, ledger.Load())
	assert.EqualValues(t, 200, done.Load()+inProgress.Load())
}

func TestRefusalErrors(t *testing.T) {
	for _, err := range []*core.Refusal{core.ErrInProgress, core.ErrDuplicate, core.ErrResultUnavailable, core.ErrUncertain,
		core.ErrKeyReused, core.ErrKeyMissing, core.ErrKeyInvalid, core.ErrStoreUnavailable} {
		assert.ErrorContains(t, err, string(err.Code))
		assert.NotEmpty(t, err.Title())
		assert.NotEmpty(t, err.Detail)
		assert.GreaterOrEqual(t, err.Status, 400)
		assert.Equal(t, err != core.ErrDuplicate, !errors.Is(err, core.ErrDuplicate))
	}
}
