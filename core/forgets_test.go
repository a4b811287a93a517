package core_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/store"
)

func put(quantity int, ledger *atomic.Int64) *call {
	c := post(fmt.Sprintf(`{"quantity":%d}`, quantity), ledger)
	c.method = "PUT"
	return c
}

// A PUT or DELETE is idempotent by itself (RFC 9110, section 9.2.2): there and back, the third must not be answered
// from the first.
func TestThereAndBack(t *testing.T) {
	fields := core.Params(core.Fields("quantity"))
	for name, tc := range map[string]struct {
		method string
		policy core.Policy
		runs   int64
	}{
		"PUT":                    {"PUT", core.Policy{}, 3},
		"DELETE":                 {"DELETE", core.Policy{}, 3},
		"under Fields":           {"PUT", core.Policy{Key: fields}, 3},
		"with Reject":            {"PUT", core.Policy{Duplicate: core.Reject("")}, 3},
		"with Wait":              {"PUT", core.Policy{Duplicate: core.Wait(time.Second)}, 3},
		"POST":                   {"POST", core.Policy{}, 2},
		"PATCH":                  {"PATCH", core.Policy{Key: fields}, 2},
		"an explicit Retention":  {"PUT", core.Policy{Record: core.Record{Retention: time.Minute}}, 2},
		"an explicit OnSuccess":  {"PUT", core.Policy{Record: core.Record{OnSuccess: core.Keep}}, 2},
		"an explicit OnFailure":  {"PUT", core.Policy{Record: core.Record{OnFailure: core.Release}}, 2},
		"a preset that sets one": {"DELETE", core.DoubleClick(), 2},
		"under a chosen key": {"PUT", core.Policy{Key: core.Func(func(r *core.Request) (string, error) {
			return string(r.Body), nil
		})}, 2},
	} {
		var ledger atomic.Int64
		g := core.MustNew(core.Config{User: byUser}).MustGuard(tc.policy)
		for _, quantity := range []int{1, 2, 1} {
			c := put(quantity, &ledger)
			c.method = tc.method
			c.after(func(context.Context) {
				running := put(quantity, &ledger)
				running.method = tc.method
				if tc.policy.Duplicate != core.Wait(time.Second) {
					assert.Equal(t, "in_progress", serve(t, g, running).code(), name)
				}
			})
			serve(t, g, c)
		}
		assert.Equal(t, tc.runs, ledger.Load(), name)
	}

	g := core.MustNew(core.Config{User: byUser}).MustGuard(core.Policy{})
	serve(t, g, put(1, nil).doing(func(ctx context.Context) adapter.Capture { core.RunFrom(ctx).Keep(); return answer(201, "") }))
	assert.True(t, serve(t, g, put(1, nil)).replayed(), "Run.Keep")
}

// Whoever asks before a PUT ends gets its result, also if the store has let one of them in already. Whoever comes
// later runs anew.
func TestWaitersOfAPut(t *testing.T) {
	for name, open := range map[string]func(testing.TB) store.Store{
		"local":   newStore,
		"watched": func(t testing.TB) store.Store { return newWatchedSpy(t) },
		"polled":  func(t testing.TB) store.Store { return &spy{Store: newStore(t)} },
		"slow to end": func(t testing.TB) store.Store {
			s := newWatchedSpy(t)
			s.after, s.complete = true, func(context.Context) error { time.Sleep(time.Second); return nil }
			return s
		},
		"slow": func(t testing.TB) store.Store {
			return &spy{Store: newStore(t), acquire: func(context.Context) error { time.Sleep(time.Second); return nil }}
		},
	} {
		bubble(t, name, func(t *testing.T) {
			var ledger atomic.Int64
			began := time.Now()
			e := core.MustNew(core.Config{User: byUser, Store: open(t)})
			g := e.MustGuard(core.Policy{Duplicate: core.Wait(time.Minute)})
			go serve(t, g, put(1, &ledger).after(func(context.Context) { time.Sleep(10500 * time.Millisecond) }))
			done := make(chan *call, 500)
			for i := range cap(done) {
				if i%10 == 0 {
					time.Sleep(time.Second / 5)
				}
				go func() { done <- serve(t, g, put(1, &ledger)) }()
			}
			for range cap(done) {
				c := <-done
				require.True(t, c.replayed())
				require.Equal(t, `{"order":1}`, string(c.response.Body))
			}
			assert.EqualValues(t, 1, ledger.Load())
			synctest.Wait()
			assert.Zero(t, e.Waited())
			assert.False(t, serve(t, g, put(1, &ledger)).replayed())
			assert.EqualValues(t, 2, ledger.Load())
			assert.Less(t, time.Since(began), 15*time.Second, "nobody asks the store once more, and nobody keeps a claim")

			failing, impatient := put(1, &ledger), e.MustGuard(core.Policy{Duplicate: core.Wait(time.Millisecond)})
			failing.handler = func(context.Context) adapter.Capture {
				assert.Equal(t, "in_progress", serve(t, impatient, put(1, &ledger)).code())
				return answer(500, "")
			}
			serve(t, g, failing)
		})
	}
}

// A run that has failed, or has lost its claim, hands nothing over. Nor is anything handed to those whose policy keeps
// records: they would find this one's, if there were one.
func TestWhatIsNotHandedOver(t *testing.T) {
	waits := core.Policy{Duplicate: core.Wait(time.Minute), Record: core.Record{Lease: time.Second}}
	keeps := waits
	keeps.Retention = time.Minute
	for name, tc := range map[string]struct {
		handler func(context.Context) adapter.Capture
		waiter  core.Policy
	}{
		"a failure":         {handlerOf(500), waits},
		"what was released": {func(ctx context.Context) adapter.Capture { core.RunFrom(ctx).Release(); return answer(200, "") }, waits},
		"of a lost run":     {func(ctx context.Context) adapter.Capture { <-ctx.Done(); return answer(200, "") }, waits},
		"to others":         {handlerOf(200), keeps},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &spy{Store: newStore(t), renew: func(context.Context) error { return store.ErrLost }} // a third of a second later
			e := core.MustNew(core.Config{User: byUser, Store: s})
			first := put(1, nil).doing(func(ctx context.Context) adapter.Capture {
				time.Sleep(time.Second / 10)
				return tc.handler(ctx)
			})
			go serve(t, e.MustGuard(waits), first)
			synctest.Wait()
			assert.False(t, serve(t, e.MustGuard(tc.waiter), put(1, nil)).replayed(), name)
		})
	}
}

// A success that is released is no abandoned run, whatever its attempt. Only its number is kept.
func TestAReleasedSuccessIsNoAbandonedRun(t *testing.T) {
	release := func(ctx context.Context) adapter.Capture { core.RunFrom(ctx).Release(); return answer(201, "") }
	for name, tc := range map[string]struct {
		policy   core.Policy
		takeover func(context.Context) adapter.Capture
		third    string
	}{
		"by the policy": {core.Policy{Record: core.Record{OnSuccess: core.Release}, Duplicate: core.Reject("")},
			handlerOf(201), "attempt 3, takeover false"},
		"by the handler":         {core.Policy{}, release, "attempt 3, takeover false"},
		"by its method":          {core.Policy{}, handlerOf(201), "attempt 3, takeover false"},
		"but a failure still is": {core.Policy{}, handlerOf(500), "uncertain"},
	} {
		var last core.Event
		e := core.MustNew(core.Config{User: byUser, Observe: func(_ context.Context, e core.Event) { last = e }})
		takeOver, uncertain := e.MustGuard(tc.policy), tc.policy
		uncertain.Abandoned = core.Uncertain(nil)
		run := func(g *core.Guard, handler func(context.Context) adapter.Capture) (met string) {
			c := put(1, nil).doing(func(ctx context.Context) adapter.Capture {
				met = fmt.Sprintf("attempt %d, takeover %t", core.RunFrom(ctx).Attempt(), core.RunFrom(ctx).Takeover())
				assert.Equal(t, core.RunFrom(ctx).Takeover(), last.Takeover, "%+v", last)
				return handler(ctx)
			})
			serve(t, g, c)
			return met + c.code()
		}
		run(takeOver, abandoning)
		assert.Equal(t, "attempt 2, takeover true", run(takeOver, tc.takeover), name)
		assert.Equal(t, tc.third, run(e.MustGuard(uncertain), handlerOf(500)), name)
		if tc.third != "uncertain" {
			assert.Equal(t, "attempt 4, takeover false", run(e.MustGuard(uncertain), handlerOf(500)), "%s: nothing is uncertain", name)
		}
	}
}

// What Reconcile has found out about a PUT answers its duplicate, and stands no longer than a run's own result.
func TestReconciledPut(t *testing.T) {
	var ledger atomic.Int64
	g := core.MustNew(core.Config{User: byUser}).MustGuard(core.Policy{Record: core.Record{
		Abandoned: finding(core.Finished(&core.Response{Status: 204})),
	}})
	serve(t, g, put(1, &ledger).doing(abandoning))
	assert.Equal(t, 204, serve(t, g, put(1, &ledger)).response.Status)
	assert.Zero(t, ledger.Load())
	assert.Equal(t, 201, serve(t, g, put(1, &ledger)).response.Status)
}
