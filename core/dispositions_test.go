package core_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/core/store"
)

// detail returns the message of a refused call.
func (c *call) detail() string {
	if c.response.Get(core.RefusedHeader) == "" {
		return ""
	}
	return string(c.response.Body)
}

// What a rejected duplicate is told must be true: what has failed has not been carried out.
func TestWhatARejectedDuplicateIsTold(t *testing.T) {
	const claimsSuccess, saysFailed = "already been carried out", "did not succeed"
	keep := core.Policy{Duplicate: core.Reject(""), Record: core.Record{OnFailure: core.Keep}}
	kept := core.DoubleClick()
	message := kept
	message.Duplicate = core.Reject("Please wait.")
	for name, tc := range map[string]struct {
		policy  core.Policy
		handler func(context.Context) adapter.Capture
		message string // in the refusal; empty: the next one runs
	}{
		"a success":                    {core.DoubleClick(), handlerOf(201), claimsSuccess},
		"a failure":                    {core.DoubleClick(), handlerOf(402), saysFailed},
		"one under a client key":       {withClientKey(keep), handlerOf(503), saysFailed},
		"a refusal of the payment":     {withClientKey(keep), handlerOf(402), claimsSuccess}, // it is a result, see FailedByStatus
		"a panic":                      {keep, func(context.Context) adapter.Capture { panic("boom") }, saysFailed},
		"an error that nobody renders": {keep, func(context.Context) adapter.Capture { return adapter.Capture{Ending: adapter.Unrendered} }, saysFailed},
		"kept by the handler": {core.ResubmitWindow(), func(ctx context.Context) adapter.Capture {
			core.RunFrom(ctx).Keep()
			return answer(402, "")
		}, saysFailed},
		"the policy's message":           {message, handlerOf(201), "Please wait."},
		"also after a failure":           {message, handlerOf(402), "Please wait."},
		"no repeat submit":               {core.NoRepeatSubmit(0, ""), handlerOf(200), "Please do not submit twice."},
		"with a message of its own":      {core.NoRepeatSubmit(0, "Once!"), handlerOf(200), "Once!"},
		"no repeat submit, failed":       {core.NoRepeatSubmit(0, ""), handlerOf(402), ""},
		"failed by its own code":         {core.NoRepeatSubmit(0, ""), answering(200, `{"code":50001}`), ""},
		"resubmit window, failed":        {core.ResubmitWindow(), handlerOf(500), ""},
		"exclusive":                      {core.Exclusive(), handlerOf(200), ""},
		"a failure that may be repeated": {func() core.Policy { p := core.DoubleClick(); p.OnFailure = core.Release; return p }(), handlerOf(402), ""},
	} {
		g := core.MustNew(core.Config{User: byUser}).MustGuard(tc.policy)
		first := post("{}", nil).withKey("k").doing(func(ctx context.Context) adapter.Capture {
			running := serve(t, g, post("{}", nil).withKey("k"))
			assert.Equal(t, "in_progress", running.code(), name)
			assert.NotContains(t, running.detail(), "result", "%s: there will be none to get", name)
			return tc.handler(ctx)
		})
		serveUntilPanic(g, first)
		again := serve(t, g, post("{}", nil).withKey("k"))
		if tc.message == "" {
			assert.Equal(t, 201, again.response.Status, name)
			continue
		}
		assert.Equal(t, "duplicate", again.code(), name)
		assert.Contains(t, again.detail(), tc.message, name)
		if tc.message == saysFailed {
			assert.NotContains(t, again.detail(), claimsSuccess, name)
		}
	}
}

// What was stored under another policy has been carried out, too.
func TestWhatARejectedDuplicateIsToldOfAResponse(t *testing.T) {
	e := core.MustNew(core.Config{User: byUser})
	serve(t, e.MustGuard(core.Policy{}), post("{}", nil))
	again := serve(t, e.MustGuard(core.Policy{Duplicate: core.Reject("")}), post("{}", nil))
	assert.Equal(t, "duplicate", again.code())
	assert.Contains(t, again.detail(), "already been carried out")
}

// recoveries are those of abandoned runs, by whether they are uncertain.
var recoveries = map[bool]core.Recovery{false: core.TakeOver(), true: core.Uncertain(nil)}

func withClientKey(p core.Policy) core.Policy {
	p.Key = core.Header(core.Required)
	return p
}

func TestWhatARejectedTaskIsTold(t *testing.T) {
	task := core.MustNew(core.Config{}).MustTask(core.TaskPolicy{Name: "n", Duplicate: core.Reject(""), Record: core.Record{OnFailure: core.Keep}})
	boom := errors.New("boom")
	for key, fn := range map[string]func(context.Context) (int, error){
		"done":     func(context.Context) (int, error) { return 1, nil },
		"failed":   func(context.Context) (int, error) { return 0, boom },
		"panicked": func(context.Context) (int, error) { panic("boom") },
	} {
		func() {
			defer func() { _ = recover() }()
			_, _ = core.Do(t.Context(), task, core.Call{Key: key}, fn)
		}()
		_, err := core.Do(t.Context(), task, core.Call{Key: key}, fn)
		assert.ErrorIs(t, err, codes.Duplicate, key)
		assert.Regexp(t, "^idem: duplicate: This ", err.Error())
		if key == "done" {
			assert.ErrorContains(t, err, "already been carried out")
		} else {
			assert.ErrorContains(t, err, "did not succeed", key)
		}
	}
}

// What can't be shown is not stored: under Reject no response and no value, and else the one
// byte that says that there is none.
func TestWhatIsStoredInPlaceOfAResponse(t *testing.T) {
	const unavailable = "\x01"
	keep := core.Policy{Record: core.Record{OnFailure: core.Keep}}
	reject := core.Policy{Duplicate: core.Reject("")}
	finished := reject
	finished.Abandoned = core.Uncertain(func(_ context.Context, u core.Uncertainty) (core.Verdict, error) {
		if u.Request == nil {
			return core.Finished([]byte("7")), nil
		}
		return core.Finished(&core.Response{Status: 201}), nil
	})
	for name, tc := range map[string]struct {
		policy  core.Policy
		handler func(context.Context) adapter.Capture // nil: a task
		want    string
	}{
		"an error that nobody renders": {keep, func(context.Context) adapter.Capture { return adapter.Capture{Ending: adapter.Unrendered} }, unavailable},
		"one that somebody ignores":    {keep, func(context.Context) adapter.Capture { c := emptyAnswer(); c.Err = errDown; return c }, unavailable},
		"a panic of a hook":            {core.Policy{Failed: func(*core.Response) bool { panic("hook") }}, handlerOf(201), unavailable},
		"a response that is rejected":  {reject, handlerOf(201), ""},
		"a value that is rejected":     {reject, nil, ""},
		"a response that was found":    {finished, handlerOf(201), ""},
		"a value that was found":       {finished, nil, ""},
	} {
		var key core.Key
		records := newStore(t)
		e := core.MustNew(core.Config{User: byUser, Store: records, Observe: func(_ context.Context, ev core.Event) { key = ev.Key }})
		reconciles := strings.HasSuffix(name, "was found")
		ask := func() {
			defer func() { _ = recover() }()
			if tc.handler != nil {
				c := post("{}", nil).doing(func(ctx context.Context) adapter.Capture {
					if reconciles {
						core.RunFrom(ctx).Abandon()
					}
					return tc.handler(ctx)
				})
				_ = e.MustGuard(tc.policy).Serve(t.Context(), c)
				return
			}
			p := core.TaskPolicy{Name: "n", Duplicate: tc.policy.Duplicate, Record: tc.policy.Record}
			_, _ = core.Do(t.Context(), e.MustTask(p), core.Call{Key: "k"}, func(ctx context.Context) (int, error) {
				if reconciles {
					core.RunFrom(ctx).Abandon()
				}
				return 7, nil
			})
		}
		ask()
		if reconciles {
			ask()
		}
		grant, err := records.Acquire(t.Context(), key.Raw(), store.Claim{Owner: store.NewOwner(), Lease: time.Second})
		assert.NoError(t, err, name)
		assert.Equal(t, store.Done, grant.State, name)
		assert.Equal(t, tc.want, string(grant.Result), name)
	}
}

// A retention that counts from the start may end with the run, to the moment.
func TestARunAsLongAsItsRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var observed events
		g := core.MustNew(core.Config{User: byUser, Observe: observed.add}).MustGuard(core.Policy{Record: core.Record{Retention: time.Second, RetainFromStart: true}})
		serve(t, g, post("{}", nil).doing(slowly(time.Second, 201, "")))
		assert.Equal(t, core.Released, observed.last().Kind)
		assert.False(t, serve(t, g, post("{}", nil)).replayed())
	})
}

// How long an abandoned run is remembered is not the retention's business.
func TestAbandonedRunsAreRememberedBeyondTheRetention(t *testing.T) {
	short := core.Policy{Record: core.Record{Lease: time.Second, Retention: 2 * time.Second}}
	for name, tc := range map[string]struct {
		remember time.Duration
		left     func(t *testing.T, store *spy, g *core.Guard, c *call) // leaves an abandoned run, within a second
	}{
		"a crash": {0, func(t *testing.T, store *spy, g *core.Guard, c *call) {
			store.renew, store.complete = down, down
			serve(t, g, c)
			store.renew, store.complete = nil, nil
		}},
		"a failure that may have taken effect": {0, func(t *testing.T, _ *spy, g *core.Guard, c *call) {
			c.handler = abandoning
			serve(t, g, c)
		}},
		"for as long as the policy says": {time.Minute, func(t *testing.T, _ *spy, g *core.Guard, c *call) {
			c.handler = abandoning
			serve(t, g, c)
		}},
	} {
		for uncertain, recovery := range recoveries {
			for _, remembered := range []bool{true, false} {
				synctest.Test(t, func(t *testing.T) {
					p := short
					p.Abandoned, p.RememberAbandoned = recovery, tc.remember
					store := &spy{Store: newStore(t)}
					g := core.MustNew(core.Config{User: byUser, Store: store}).MustGuard(p)
					tc.left(t, store, g, post("{}", nil))
					remember := tc.remember
					if remember == 0 {
						remember = 24 * time.Hour
					}
					if remembered {
						time.Sleep(remember - 2*time.Second)
					} else {
						time.Sleep(remember + 5*time.Second)
					}
					var attempt uint64
					c := post("{}", nil).doing(attemptTo(&attempt))
					serve(t, g, c)
					switch {
					case !remembered:
						assert.EqualValues(t, 1, attempt, name)
					case uncertain:
						assert.Equal(t, "uncertain", c.code(), name)
					default:
						assert.EqualValues(t, 2, attempt, name)
					}
				})
			}
		}
	}
}

// Each way in which a handler decides about its run, against each way in which the run ends.
func TestHandlersDecideAboutTheirRuns(t *testing.T) {
	decide := map[string]func(*core.Run){
		"keep": (*core.Run).Keep, "release": (*core.Run).Release, "abandon": (*core.Run).Abandon,
	}
	refusal := func() adapter.Capture {
		r := answer(409, "")
		r.Response.Header = append(r.Response.Header, core.Field{Name: core.RefusedHeader, Value: "in_progress"})
		return r
	}
	// What the next request gets: a replay, a run with attempt 1 or 2, or a refusal.
	want := map[string]map[string]string{
		"success": {"keep": "replay", "release": "attempt 1", "abandon": "attempt 2"},
		"failure": {"keep": "replay", "release": "attempt 1", "abandon": "attempt 2"},
		"panic":   {"keep": "result_unavailable", "release": "attempt 1", "abandon": "attempt 2"},
		"refusal": {"keep": "attempt 1", "release": "attempt 1", "abandon": "attempt 2"},
		"lost":    {"keep": "attempt 2", "release": "attempt 2", "abandon": "attempt 2"},
	}
	for ending, of := range want {
		for decision, next := range of {
			for uncertain, recovery := range recoveries {
				synctest.Test(t, func(t *testing.T) {
					var observed events
					store := &spy{Store: newStore(t)}
					if ending == "lost" {
						store.renew, store.complete, store.release, store.abandon = lost, lost, lost, lost
					}
					g := core.MustNew(core.Config{User: byUser, Store: store, Observe: observed.add}).
						MustGuard(core.Policy{Record: core.Record{Lease: time.Second, Abandoned: recovery}})
					c := post("{}", nil).doing(func(ctx context.Context) adapter.Capture {
						core.RunFrom(ctx).Release() // the last call counts
						decide[decision](core.RunFrom(ctx))
						switch ending {
						case "failure":
							return answer(502, "")
						case "panic":
							panic("boom")
						case "refusal":
							return refusal()
						case "lost":
							<-ctx.Done()
							assert.ErrorIs(t, context.Cause(ctx), core.ErrLeaseLost)
						}
						return answer(201, "")
					})
					func() {
						defer func() { assert.Equal(t, ending == "panic", recover() != nil) }()
						_ = g.Serve(t.Context(), c)
					}()
					synctest.Wait() // for a renewal that is still under way
					store.renew, store.complete, store.release, store.abandon = nil, nil, nil, nil
					if ending == "lost" {
						assert.Contains(t, observed.kinds(), core.RunLost)
						time.Sleep(time.Second)
					}
					got := "attempt 1"
					again := post("{}", nil).doing(func(ctx context.Context) adapter.Capture {
						if core.RunFrom(ctx).Attempt() == 2 {
							got = "attempt 2"
						}
						return answer(201, "")
					})
					serve(t, g, again)
					switch {
					case again.code() != "":
						got = again.code()
					case again.replayed():
						got = "replay"
					}
					expected := next
					if uncertain && next == "attempt 2" {
						expected = "uncertain"
					}
					assert.Equal(t, expected, got, "%s, %s", ending, decision)
				})
			}
		}
	}
}

func lost(context.Context) error { return store.ErrLost }

// Who waits for a run that is abandoned does not wait for its lease: one takes over at once, and
// the others get what that one does.
func TestOneWaiterTakesOverAnAbandonedRunAtOnce(t *testing.T) {
	for name, open := range map[string]func(testing.TB) store.Store{
		"watched": newStore,
		"polled":  func(t testing.TB) store.Store { return &spy{Store: newStore(t)} },
	} {
		for uncertain, recovery := range recoveries {
			synctest.Test(t, func(t *testing.T) {
				var ledger, second atomic.Int64
				began := time.Now()
				g := core.MustNew(core.Config{User: byUser, Store: open(t)}).MustGuard(core.Policy{
					Duplicate: core.Wait(time.Minute), Record: core.Record{Lease: 30 * time.Second, OnFailure: core.Abandon, Abandoned: recovery}})
				go func() { serve(t, g, post("{}", &ledger).doing(slowly(time.Second, 502, ""))) }()
				synctest.Wait()
				done := make(chan *call, 20)
				for range cap(done) {
					c := post("{}", &ledger).doing(func(ctx context.Context) adapter.Capture {
						second.Add(1)
						assert.EqualValues(t, 2, core.RunFrom(ctx).Attempt())
						soon := time.Second + time.Millisecond
						if name == "polled" {
							soon = 2 * time.Second
						}
						assert.Less(t, time.Since(began), soon, "%s: not when the old lease ends", name)
						time.Sleep(time.Second)
						return answer(201, "")
					})
					go func() { done <- serve(t, g, c) }()
				}
				for range cap(done) {
					c := <-done
					if uncertain {
						assert.Equal(t, "uncertain", c.code(), name)
					} else {
						assert.Equal(t, http.StatusCreated, c.response.Status, name)
					}
				}
				assert.Less(t, time.Since(began), 4*time.Second, name)
				if !uncertain {
					assert.EqualValues(t, 1, second.Load(), name)
				} else {
					assert.Zero(t, second.Load(), name)
				}
			})
		}
	}
}

func TestUncertain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		verdict, asked := core.Unknown(), 0
		var failure error
		// What is stored here has just the size of the limit.
		p := core.Policy{Record: core.Record{
			Lease: time.Second,
			Abandoned: core.Uncertain(func(_ context.Context, u core.Uncertainty) (core.Verdict, error) {
				asked++
				assert.EqualValues(t, 1, u.Attempt)
				assert.Equal(t, "/orders", u.Request.Route)
				return verdict, failure
			}),
		}, ResponseLimit: len(`{"order":1}`), StoredHeaders: core.DropHeaders("X-Secret")}
		abandoned := func() (*core.Guard, *atomic.Int64) {
			var ledger atomic.Int64
			store := newStore(t)
			g := core.MustNew(core.Config{User: byUser, Store: store}).MustGuard(p)
			crash(t, store, g, post("{}", &ledger), time.Second)
			assert.Equal(t, "in_progress", serve(t, g, post("{}", &ledger)).code())
			time.Sleep(2 * time.Second)
			return g, &ledger
		}

		g, ledger := abandoned()
		for range 2 {
			c := serve(t, g, post("{}", ledger))
			assert.Equal(t, 409, c.response.Status)
			assert.Equal(t, "uncertain", c.code())
		}
		failure = errDown
		for _, verdict = range []core.Verdict{core.RunAgain(), core.Finished(&core.Response{Status: 201}), core.Unknown()} {
			assert.Equal(t, "uncertain", serve(t, g, post("{}", ledger)).code(), "a verdict beside an error is none")
		}
		failure = nil
		assert.Zero(t, ledger.Load())
		assert.Equal(t, 5, asked)

		verdict = core.Finished(&core.Response{Status: 201, Body: []byte("as we found"),
			Header: []core.Field{{Name: "X-Kept", Value: "1"}, {Name: "X-Secret", Value: "s"}}})
		c := serve(t, g, post("{}", ledger))
		assert.True(t, c.replayed())
		assert.Equal(t, "as we found", string(c.response.Body))
		assert.Equal(t, "1", c.response.Get("X-Kept"))
		assert.Empty(t, c.response.Get("X-Secret"), "StoredHeaders are about it, too")
		assert.Zero(t, ledger.Load())
		verdict = core.Finished[*core.Response](nil)
		assert.True(t, serve(t, g, post("{}", ledger)).replayed(), "it is not asked again")

		g, ledger = abandoned()
		assert.Equal(t, "uncertain", serve(t, g, post("{}", ledger)).code(), "a verdict without a response is none")
		verdict = core.RunAgain()
		assert.Equal(t, 201, serve(t, g, post("{}", ledger)).response.Status)
		assert.True(t, serve(t, g, post("{}", ledger)).replayed())
		assert.EqualValues(t, 1, ledger.Load())

		p.Abandoned = core.Uncertain(nil)
		g, ledger = abandoned()
		assert.Equal(t, "uncertain", serve(t, g, post("{}", ledger)).code())
	})
}

// A verdict is about the run that was asked about, not about one that was begun, and crashed,
// while the hook was thinking.
func TestVerdictsAreAboutOneRun(t *testing.T) {
	for _, decide := range []core.Verdict{core.RunAgain(), core.Finished(&core.Response{Status: 200})} {
		synctest.Test(t, func(t *testing.T) {
			var ledger atomic.Int64
			var asked []uint64
			records := newStore(t)
			g := core.MustNew(core.Config{User: byUser, Store: records}).MustGuard(core.Policy{
				Record: core.Record{
					Lease: time.Second,
					Abandoned: core.Uncertain(func(_ context.Context, u core.Uncertainty) (core.Verdict, error) {
						asked = append(asked, u.Attempt)
						if u.Attempt == 2 {
							return core.Unknown(), nil
						}
						grant, err := records.Acquire(context.Background(), u.Key.Raw(), store.Claim{
							Owner: store.NewOwner(), Lease: time.Second, Retention: time.Hour, Takeover: true})
						require.NoError(t, err)
						require.EqualValues(t, 2, grant.Attempt)
						time.Sleep(2 * time.Second)
						return decide, nil
					}),
				}})
			crash(t, records, g, post("{}", &ledger), time.Second)
			time.Sleep(2 * time.Second)
			assert.Equal(t, "uncertain", serve(t, g, post("{}", &ledger)).code())
			assert.Equal(t, []uint64{1, 2}, asked)
			assert.Zero(t, ledger.Load())
		})
	}
}

// A record from before a policy said IgnoreFingerprint has a fingerprint that its claims no longer
// have. No verdict can take it over, and nobody may try for ever.
func TestVerdictsThatCannotBeCarriedOut(t *testing.T) {
	for _, verdict := range []core.Verdict{core.RunAgain(), core.Finished(&core.Response{Status: 200})} {
		synctest.Test(t, func(t *testing.T) {
			var ledger atomic.Int64
			store := newStore(t)
			e := core.MustNew(core.Config{User: byUser, Store: store})
			p := core.ClientKey()
			p.Lease, p.Abandoned = time.Second, core.Uncertain(nil)
			strict := e.MustGuard(p)
			asked := 0
			p.Key = core.Header(core.Required, core.IgnoreFingerprint())
			p.Abandoned = core.TakeOver()
			takesOver := e.MustGuard(p)
			p.Abandoned = core.Uncertain(func(context.Context, core.Uncertainty) (core.Verdict, error) { asked++; return verdict, nil })
			lenient := e.MustGuard(p)

			crash(t, store, strict, post("{}", &ledger).withKey("k"), time.Second)
			time.Sleep(2 * time.Second)
			for _, g := range []*core.Guard{lenient, takesOver} {
				assert.Equal(t, "key_reused", serve(t, g, post("{}", &ledger).withKey("k")).code())
			}
			assert.Equal(t, 1, asked)
			assert.Zero(t, ledger.Load())
		})
	}
}
