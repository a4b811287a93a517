package core_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

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
	keyed := keep
	keyed.Key = core.Header(core.Required)
	message := core.DoubleClick()
	message.Duplicate = core.Reject("Please wait.")
	for name, tc := range map[string]struct {
		policy  core.Policy
		handler func(context.Context) adapter.Capture
		message string // in the refusal; empty: the next one runs
	}{
		"a success":                    {core.DoubleClick(), handlerOf(201), claimsSuccess},
		"a failure":                    {core.DoubleClick(), handlerOf(402), saysFailed},
		"one under a client key":       {keyed, handlerOf(503), saysFailed},
		"a refusal of the payment":     {keyed, handlerOf(402), claimsSuccess}, // it is a result, see FailedByStatus
		"a panic":                      {keep, panicking, saysFailed},
		"an error that nobody renders": {keep, unrendered, saysFailed},
		"kept by the handler": {core.ResubmitWindow(), func(ctx context.Context) adapter.Capture {
			core.RunFrom(ctx).Keep()
			return answer(402, "")
		}, saysFailed},
		"the policy's message":      {message, handlerOf(201), "Please wait."},
		"also after a failure":      {message, handlerOf(402), "Please wait."},
		"no repeat submit":          {core.NoRepeatSubmit(0, ""), handlerOf(200), "Please do not submit twice."},
		"with a message of its own": {core.NoRepeatSubmit(0, "Once!"), handlerOf(200), "Once!"},
		"failed by its own code":    {core.NoRepeatSubmit(0, ""), answering(200, `{"code":50001}`), ""},
	} {
		g := core.MustNew(core.Config{User: byUser}).MustGuard(tc.policy)
		serveUntilPanic(g, post("{}", nil).withKey("k").doing(func(ctx context.Context) adapter.Capture {
			running := serve(t, g, post("{}", nil).withKey("k"))
			assert.Equal(t, "in_progress", running.code(), name)
			assert.NotContains(t, running.detail(), "result", "%s: there will be none to get", name)
			return tc.handler(ctx)
		}))
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
	e := core.MustNew(core.Config{User: byUser})
	serve(t, e.MustGuard(core.Policy{}), post("{}", nil))
	again := serve(t, e.MustGuard(core.Policy{Duplicate: core.Reject("")}), post("{}", nil))
	assert.Contains(t, again.detail(), claimsSuccess, "what was stored under another policy has been carried out, too")
}

// recoveries are those of abandoned runs, by whether they are uncertain.
var recoveries = map[bool]core.Recovery{false: core.TakeOver(), true: core.Uncertain(nil)}

func TestWhatARejectedTaskIsTold(t *testing.T) {
	task := core.MustNew(core.Config{}).MustTask(core.TaskPolicy{
		Name: "n", Duplicate: core.Reject(""), Record: core.Record{OnFailure: core.Keep}})
	for want, fn := range map[string]func(context.Context) (int, error){
		"already been carried out": func(context.Context) (int, error) { return 1, nil },
		"did not succeed":          func(context.Context) (int, error) { return 0, errDown },
	} {
		_, _ = core.Do(t.Context(), task, core.Call{Key: want}, fn)
		_, err := core.Do(t.Context(), task, core.Call{Key: want}, fn)
		assert.ErrorIs(t, err, codes.Duplicate)
		assert.Regexp(t, "^idem: duplicate: This .*"+want, err.Error())
	}
}

// What can't be shown is not stored: under Reject no response and no value, and else the one
// byte that says that there is none.
func TestWhatIsStoredInPlaceOfAResponse(t *testing.T) {
	const unavailable = "\x01"
	keep := core.Policy{Record: core.Record{OnFailure: core.Keep}}
	reject := core.Policy{Duplicate: core.Reject("")}
	hook := core.Policy{Failed: func(*core.Response) bool { panic("hook") }}
	ignored := func(context.Context) adapter.Capture { c := emptyAnswer(); c.Err = errDown; return c }
	finished := reject
	finished.Abandoned = core.Uncertain(func(_ context.Context, u core.Uncertainty) (core.Verdict, error) {
		if u.Request == nil {
			return core.Finished([]byte("7")), nil
		}
		return core.Finished(&core.Response{Status: 201}), nil
	})
	request := func(p core.Policy, handler func(context.Context) adapter.Capture) func(*core.Engine) {
		return func(e *core.Engine) { serveUntilPanic(e.MustGuard(p), post("{}", nil).doing(handler)) }
	}
	task := func(p core.Policy, end func(*core.Run)) func(*core.Engine) {
		return func(e *core.Engine) {
			task := e.MustTask(core.TaskPolicy{Name: "n", Duplicate: p.Duplicate, Record: p.Record})
			_, _ = core.Do(t.Context(), task, core.Call{Key: "k"}, func(ctx context.Context) (int, error) {
				end(core.RunFrom(ctx))
				return 7, nil
			})
		}
	}
	for name, tc := range map[string]struct {
		ask  func(*core.Engine)
		want string
	}{
		"an error that nobody renders": {request(keep, unrendered), unavailable},
		"one that somebody ignores":    {request(keep, ignored), unavailable},
		"a panic of a hook":            {request(hook, handlerOf(201)), unavailable},
		"a response that is rejected":  {request(reject, handlerOf(201)), ""},
		"a value that is rejected":     {task(reject, (*core.Run).Keep), ""},
		"a response that was found":    {request(finished, abandoning), ""},
		"a value that was found":       {task(finished, (*core.Run).Abandon), ""},
	} {
		var observed events
		records := newStore(t)
		e := core.MustNew(core.Config{User: byUser, Store: records, Observe: observed.add})
		tc.ask(e)
		tc.ask(e) // what was found is found by the second
		grant, err := records.Acquire(t.Context(), observed.last().Key.Raw(), store.Claim{Owner: store.NewOwner(), Lease: time.Second})
		assert.NoError(t, err, name)
		assert.Equal(t, store.Done, grant.State, name)
		assert.Equal(t, tc.want, string(grant.Result), name)
	}
}

// A retention that counts from the start may end with the run, to the moment.
func TestARunAsLongAsItsRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var observed events
		g := core.MustNew(core.Config{User: byUser, Observe: observed.add}).MustGuard(core.Policy{
			Record: core.Record{Retention: time.Second, RetainFromStart: true}})
		serve(t, g, post("{}", nil).doing(slowly(time.Second, 201, "")))
		assert.Equal(t, core.Released, observed.last().Kind)
		assert.False(t, serve(t, g, post("{}", nil)).replayed())
	})
}

// Each way in which a handler decides about its run, against each way in which the run ends.
func TestHandlersDecideAboutTheirRuns(t *testing.T) {
	decide := map[string]func(*core.Run){
		"keep": (*core.Run).Keep, "release": (*core.Run).Release, "abandon": (*core.Run).Abandon,
	}
	endings := map[string]func(context.Context) adapter.Capture{
		"success": handlerOf(201), "failure": handlerOf(502), "panic": panicking, "refusal": refusing(409),
		"lost": func(ctx context.Context) adapter.Capture {
			<-ctx.Done()
			assert.ErrorIs(t, context.Cause(ctx), core.ErrLeaseLost)
			return answer(201, "")
		},
	}
	for ending, of := range map[string]map[string]string{ // what the next request gets
		"success": {"keep": "replay", "release": "attempt 1", "abandon": "attempt 2"},
		"failure": {"keep": "replay", "release": "attempt 1", "abandon": "attempt 2"},
		"panic":   {"keep": "result_unavailable", "release": "attempt 1", "abandon": "attempt 2"},
		"refusal": {"keep": "attempt 1", "release": "attempt 1", "abandon": "attempt 2"},
		"lost":    {"keep": "attempt 2", "release": "attempt 2", "abandon": "attempt 2"},
	} {
		for decision, next := range of {
			for uncertain, recovery := range recoveries {
				bubble(t, fmt.Sprintf("%s, %s, uncertain %t", ending, decision, uncertain), func(t *testing.T) {
					var observed events
					store := &spy{Store: newStore(t)}
					if ending == "lost" {
						store.renew, store.complete, store.release, store.abandon = lost, lost, lost, lost
					}
					g := core.MustNew(core.Config{User: byUser, Store: store, Observe: observed.add}).
						MustGuard(core.Policy{Record: core.Record{Lease: time.Second, Abandoned: recovery}})
					panicked := serveUntilPanic(g, post("{}", nil).doing(func(ctx context.Context) adapter.Capture {
						core.RunFrom(ctx).Release() // the last call counts
						decide[decision](core.RunFrom(ctx))
						return endings[ending](ctx)
					}))
					assert.Equal(t, ending == "panic", panicked != nil)
					synctest.Wait() // for a renewal that is still under way
					store.renew, store.complete, store.release, store.abandon = nil, nil, nil, nil
					if ending == "lost" {
						assert.Contains(t, observed.kinds(), core.RunLost)
						time.Sleep(time.Second)
					}
					want := next
					if uncertain && next == "attempt 2" {
						want = "uncertain"
					}
					assert.Equal(t, want, outcome(t, g, post("{}", nil)))
				})
			}
		}
	}
}

func lost(context.Context) error { return store.ErrLost }

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
		}, ResponseLimit: len("as we found"), StoredHeaders: core.DropHeaders("X-Secret")}
		abandoned := func() *core.Guard {
			store := newStore(t)
			g := core.MustNew(core.Config{User: byUser, Store: store}).MustGuard(p)
			crash(t, store, g, post("{}", nil), time.Second)
			assert.Equal(t, "in_progress", outcome(t, g, post("{}", nil)))
			time.Sleep(2 * time.Second)
			return g
		}

		g := abandoned()
		assert.Equal(t, "uncertain", outcome(t, g, post("{}", nil)))
		failure = errDown
		for _, verdict = range []core.Verdict{core.RunAgain(), core.Finished(&core.Response{Status: 201}), core.Unknown()} {
			assert.Equal(t, "uncertain", outcome(t, g, post("{}", nil)), "a verdict beside an error is none")
		}
		failure = nil
		assert.Equal(t, 4, asked)

		verdict = core.Finished(&core.Response{Status: 201, Body: []byte("as we found"),
			Header: []core.Field{{Name: "X-Kept", Value: "1"}, {Name: "X-Secret", Value: "s"}}})
		c := serve(t, g, post("{}", nil))
		assert.True(t, c.replayed())
		assert.Equal(t, "as we found", string(c.response.Body))
		assert.Equal(t, "1", c.response.Get("X-Kept"))
		assert.Empty(t, c.response.Get("X-Secret"), "StoredHeaders are about it, too")
		verdict = core.Finished[*core.Response](nil)
		assert.Equal(t, "replay", outcome(t, g, post("{}", nil)), "it is not asked again")

		g = abandoned()
		assert.Equal(t, "uncertain", outcome(t, g, post("{}", nil)), "a verdict without a response is none")
		verdict = core.RunAgain()
		assert.Equal(t, "attempt 2", outcome(t, g, post("{}", nil)))
		assert.Equal(t, "replay", outcome(t, g, post("{}", nil)))
	})
}

// A record from before a policy said IgnoreFingerprint has a fingerprint that its claims no longer
// have. The key alone decides all the same.
func TestARecordFromBeforeIgnoreFingerprint(t *testing.T) {
	for _, tc := range []struct {
		recovery core.Recovery
		want     string
	}{
		{core.TakeOver(), "attempt 2"}, {finding(core.RunAgain()), "attempt 2"},
		{finding(core.Finished(&core.Response{Status: 200})), "replay"},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := newStore(t)
			e := core.MustNew(core.Config{User: byUser, Store: store})
			crash(t, store, e.MustGuard(core.ClientKey()), post("{}", nil).withKey("k"), time.Second)
			time.Sleep(2 * time.Second)
			p := core.ClientKey(core.IgnoreFingerprint())
			p.Abandoned = tc.recovery
			assert.Equal(t, tc.want, outcome(t, e.MustGuard(p), post("{}", nil).withKey("k")))
		})
	}
}
