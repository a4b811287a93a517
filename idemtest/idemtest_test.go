package idemtest_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/idemtest"
)

func ask(h http.Handler, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(body))
	r.Header.Set("X-User", "ann")
	r.Header.Set("Idempotency-Key", "k")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func service(t testing.TB, p core.Policy, handler http.HandlerFunc) (*idemtest.Engine, http.Handler) {
	e := idemtest.New(t, core.Config{User: core.UserFromHeader("X-User")})
	mux := http.NewServeMux()
	mux.Handle("POST /orders", httpidem.New(e.MustGuard(p))(handler))
	return e, mux
}

func created(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }

func TestTime(t *testing.T) {
	e, h := service(t, core.Policy{Key: core.Header(core.Required), Record: core.Record{Retention: time.Hour}}, created)
	ask(h, "")
	require.Equal(t, "true", ask(h, "").Header().Get(core.ReplayedHeader))
	e.Advance(time.Hour)
	require.Empty(t, ask(h, "").Header().Get(core.ReplayedHeader))
	e.WantRuns("POST /orders", 2)
	e.WantReplays("POST /orders", 1)
	e.Advance(30 * time.Minute)
	require.Equal(t, "true", ask(h, "").Header().Get(core.ReplayedHeader))
	e.Advance(30 * time.Minute) // one after the other
	require.Empty(t, ask(h, "").Header().Get(core.ReplayedHeader))
}

func TestRunningElsewhere(t *testing.T) {
	e, h := service(t, core.ClientKey(), func(w http.ResponseWriter, r *http.Request) {
		if !httpidem.Run(r).Takeover() {
			t.Error("not a takeover")
		}
	})
	e.NextIsRunning(time.Minute)
	w := ask(h, "")
	require.Equal(t, 409, w.Code)
	require.Equal(t, "in_progress", w.Header().Get(core.RefusedHeader))
	require.Equal(t, 409, ask(h, "").Code, "it goes on running")
	e.Advance(time.Minute)
	require.Equal(t, 200, ask(h, "").Code)
}

func TestAbandonedEarlier(t *testing.T) {
	var attempt uint64
	handler := func(w http.ResponseWriter, r *http.Request) { attempt = httpidem.Run(r).Attempt() }
	e, h := service(t, core.ClientKey(), handler)
	e.NextIsAbandoned(2)
	require.Equal(t, 200, ask(h, "").Code)
	require.EqualValues(t, 3, attempt)

	p := core.ClientKey()
	p.Abandoned = core.Uncertain(nil)
	e, h = service(t, p, handler)
	e.NextIsAbandoned(1)
	require.Equal(t, "uncertain", ask(h, "").Header().Get(core.RefusedHeader))
	e.WantRuns("POST /orders", 0)
}

func TestFailingStore(t *testing.T) {
	e, h := service(t, core.ClientKey(), created)
	e.Fail(idemtest.Acquire)
	require.Equal(t, 503, ask(h, "").Code)
	e.WantRuns("POST /orders", 0)
	e.Fail()
	require.Equal(t, 201, ask(h, "").Code)

	synctest.Test(t, func(t *testing.T) { // whose time is the store's
		task := idemtest.New(t, core.Config{StoreTimeout: 5 * time.Millisecond})
		task.Fail(idemtest.Complete, idemtest.Release, idemtest.Abandon, idemtest.Renew)
		mail := task.MustTask(core.TaskPolicy{Name: "mail"})
		_, err := core.Do(t.Context(), mail, core.Call{Key: "k"}, func(context.Context) (int, error) { return 1, nil })
		require.NoError(t, err, "what was done is done")
		require.Equal(t, 1, task.Count(core.Unsettled, "DO mail"))
		require.Equal(t, 1, task.Unsettled())
		again := func() {
			got, err := core.Do(t.Context(), mail, core.Call{Key: "k"}, func(context.Context) (int, error) { return 2, nil })
			require.NoError(t, err)
			require.Equal(t, 1, got.Value)
		}
		again()
		require.Zero(t, task.Count(core.Completed, "DO mail"))
		task.Fail()
		again()
		synctest.Wait() // the answer may come before the event
		require.Equal(t, 1, task.Count(core.Completed, "DO mail"))
		require.Zero(t, task.Unsettled())

		task.Fail(idemtest.Complete, idemtest.Release, idemtest.Abandon, idemtest.Renew)
		_, err = core.Do(t.Context(), mail, core.Call{Key: "given up"}, func(context.Context) (int, error) { return 1, nil })
		require.NoError(t, err)
		ended, end := context.WithCancel(t.Context())
		end()
		require.ErrorIs(t, task.Drain(ended), context.Canceled)
		require.Equal(t, 1, task.Count(core.RunUnfinished, "DO mail"))
	})
}

// Each call fails by itself.
func TestCallsThatFail(t *testing.T) {
	ends := map[idemtest.Call]func(*core.Run){
		idemtest.Complete: (*core.Run).Keep, idemtest.Release: (*core.Run).Release, idemtest.Abandon: (*core.Run).Abandon,
	}
	synctest.Test(t, func(t *testing.T) {
		for failing := range ends {
			e := idemtest.New(t, core.Config{StoreTimeout: 5 * time.Millisecond})
			calls := []idemtest.Call{failing}
			e.Fail(calls...)
			calls[0] = "another"
			task := e.MustTask(core.TaskPolicy{Name: "mail"})
			for call, end := range ends {
				_, err := core.Do(t.Context(), task, core.Call{Key: string(call)}, func(ctx context.Context) (int, error) {
					end(core.RunFrom(ctx))
					return 0, errors.New("no")
				})
				require.Error(t, err)
				events := e.Events()
				last := events[len(events)-1]
				require.Equal(t, call == failing, last.Kind == core.Unsettled, "%s while %s fails", call, failing)
			}
			e.Fail()
			time.Sleep(time.Second) // the store is asked again
			events := e.Events()
			require.True(t, events[len(events)-1].Late, "%s works again", failing)
			require.Zero(t, e.Unsettled())
			events[0].Kind = core.RunUnfinished
			require.Equal(t, core.Started, e.Events()[0].Kind, "the caller's own")
		}
	})

	synctest.Test(t, func(t *testing.T) {
		e := idemtest.New(t, core.Config{})
		e.Fail(idemtest.Renew)
		_, err := core.Do(t.Context(), e.MustTask(core.TaskPolicy{Name: "mail"}), core.Call{Key: "k"},
			func(ctx context.Context) (int, error) {
				select {
				case <-ctx.Done():
				case <-time.After(time.Hour):
				}
				return 0, context.Cause(ctx)
			})
		require.ErrorIs(t, err, core.ErrLeaseLost)
		require.NotZero(t, e.Count(core.RenewFailed, "DO mail"))
	})
}

func TestAttempt(t *testing.T) {
	for attempt := uint64(1); attempt < 4; attempt++ {
		ran := false
		idemtest.Attempt(t, attempt, func(ctx context.Context) {
			ran = true
			require.Equal(t, attempt, core.RunFrom(ctx).Attempt())
			require.NoError(t, ctx.Err())
		})
		require.True(t, ran)
	}
}

// recorder is a test that may fail.
type recorder struct {
	testing.TB
	failures []string
}

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, _ ...any) {
	r.failures = append(r.failures, format)
}
func (r *recorder) Fatal(args ...any) {
	panic(args[0])
}

func TestAssertionsCanFail(t *testing.T) {
	r := &recorder{TB: t}
	e, h := service(r, core.ClientKey(), created)
	ask(h, "")
	ask(h, "")
	e.WantRuns("POST /orders", 1)
	e.WantReplays("POST /orders", 1)
	require.Empty(t, r.failures)
	e.WantRuns("POST /orders", 2)
	e.WantRuns("POST /other", 1)
	e.WantReplays("POST /orders", 0)
	require.Len(t, r.failures, 3)
	require.Panics(t, func() { idemtest.New(r, core.Config{Store: struct{ store.Store }{}}) })
	require.Panics(t, func() { idemtest.New(r, core.Config{StoreTimeout: -1}) })
	require.Panics(t, func() { idemtest.Attempt(r, 0, func(context.Context) {}) })
}

// A replay is reported when its client may have it already.
func TestWantReplaysWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{TB: t}
		e, h := service(r, core.ClientKey(), created)
		ask(h, "")
		go func() {
			time.Sleep(500 * time.Millisecond)
			ask(h, "")
		}()
		e.WantReplays("POST /orders", 1)
		require.Empty(t, r.failures)
		begun := time.Now()
		e.WantReplays("POST /orders", 0)
		require.Len(t, r.failures, 1)
		require.Zero(t, time.Since(begun), "there is nothing to wait for")
		e.WantReplays("POST /orders", 2)
		require.Len(t, r.failures, 2)
		require.LessOrEqual(t, time.Since(begun), 2*time.Second)
	})
}

func TestObserversAreTold(t *testing.T) {
	var observed int
	e := idemtest.New(t, core.Config{Observe: func(context.Context, core.Event) { observed++ }})
	_, err := core.Do(t.Context(), e.MustTask(core.TaskPolicy{Name: "n"}), core.Call{Key: "k"}, func(context.Context) (int, error) {
		return 0, errors.New("no")
	})
	require.Error(t, err)
	require.Equal(t, 2, observed)
	require.Len(t, e.Events(), 2)
}
