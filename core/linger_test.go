package core_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
)

var errCause = errors.New("the cause")

// endsEarly is a context that ends a moment before its deadline, for each has a timer of its own.
type endsEarly struct{ context.Context }

func (e endsEarly) Deadline() (time.Time, bool) {
	at, ok := e.Context.Deadline()
	return at.Add(time.Millisecond), ok
}

func emptyAnswer() adapter.Capture {
	return adapter.Capture{Response: &core.Response{Status: 200}, Ending: adapter.Empty}
}

func TestHowTheContextOfARunEnds(t *testing.T) {
	const s = time.Second
	leaves := func(after, deadline time.Duration, cause error) func() context.Context {
		return func() context.Context {
			ctx, leave := context.WithCancelCause(context.Background())
			time.AfterFunc(after, func() { leave(cause) })
			if deadline == 0 {
				return ctx
			}
			ctx, cancel := context.WithTimeout(ctx, deadline)
			time.AfterFunc(time.Hour, cancel)
			return ctx
		}
	}
	streams := func(after time.Duration) func(context.Context) {
		return func(ctx context.Context) { time.AfterFunc(after, func() { adapter.PartSent(ctx, true) }) }
	}
	large := func(ctx context.Context) { adapter.PartSent(ctx, false) }
	begins := func(context.Context) {}
	early := func() context.Context { return endsEarly{leaves(time.Hour, 3*s, nil)()} }
	canceled, late := context.Canceled, context.DeadlineExceeded
	for name, tc := range map[string]struct {
		linger time.Duration
		caller func() context.Context
		begin  func(context.Context)
		after  time.Duration
		cause  error
	}{
		"the client leaves": {0, leaves(s, 0, nil), begins, time.Minute + s, canceled},
		"the client leaves, and its policy is less patient": {5 * s, leaves(s, 0, nil), begins, 6 * s, canceled},
		"the client leaves, and the policy has no patience": {-1, leaves(s, 0, nil), begins, s, canceled},
		"a deadline": {0, leaves(time.Hour, 3*s, nil), begins, 3 * s, late},
		"a deadline of which the caller hears first": {0, early, begins, 3*s + time.Millisecond, late},
		"a deadline after the client has left":       {0, leaves(s, 30*s, nil), begins, 30 * s, late},
		"another cause":                              {0, leaves(2*s, 0, errCause), begins, 2 * s, errCause},
		"a stream, and then the client leaves":       {0, leaves(10*s, 0, nil), streams(s), 10 * s, canceled},
		"the client leaves, and then a stream":       {0, leaves(s, 0, nil), streams(10 * s), 10 * s, canceled},
		"a large answer does not tie":                {0, leaves(s, 0, nil), large, time.Minute + s, canceled},
	} {
		for _, asksLate := range []bool{false, true} { // the handler asks for its context when that has ended
			bubble(t, fmt.Sprintf("%s, late %v", name, asksLate), func(t *testing.T) {
				want := canceled
				if tc.cause == late {
					want = late
				}
				start := time.Now()
				caller := context.WithValue(tc.caller(), errCause, "value")
				c := post("{}", nil).after(func(ctx context.Context) {
					tc.begin(ctx)
					assert.NoError(t, ctx.Err())
					if asksLate {
						time.Sleep(tc.after)
						synctest.Wait()
						assert.Equal(t, want, ctx.Err())
					}
					assert.Equal(t, "value", ctx.Value(errCause))
					callers, hasOne := caller.Deadline()
					deadline, ok := ctx.Deadline()
					assert.Equal(t, hasOne, ok)
					assert.True(t, callers.Equal(deadline))
					child, cancel := context.WithTimeout(ctx, 24*time.Hour)
					defer cancel()
					<-child.Done()
					assert.Equal(t, tc.after, time.Since(start))
					assert.Equal(t, []error{want, tc.cause}, []error{ctx.Err(), context.Cause(ctx)})
					assert.Equal(t, []error{want, tc.cause}, []error{child.Err(), context.Cause(child)})
				})
				g := core.MustNew(core.Config{User: byUser, Store: newStore(t)}).MustGuard(core.Policy{Linger: tc.linger})
				serveFor(t, caller, g, c)
				time.Sleep(2 * time.Hour)
			})
		}
	}
}

// A context that is asked for when its run has ended has ended, too. The first end counts, also for whoever asks then.
func TestContextAfterItsRun(t *testing.T) {
	for cause, handler := range map[string]func(cancel context.CancelCauseFunc){
		"idem: the run has ended": func(context.CancelCauseFunc) {},
		errCause.Error():          func(cancel context.CancelCauseFunc) { cancel(errCause); synctest.Wait() },
	} {
		bubble(t, cause, func(t *testing.T) {
			var kept context.Context
			ctx, cancel := context.WithCancelCause(context.Background())
			c := post("{}", nil).after(func(ctx context.Context) { kept = ctx; handler(cancel) })
			serveFor(t, ctx, core.MustNew(core.Config{User: byUser, Store: newStore(t)}).MustGuard(core.Policy{}), c)
			child, stop := context.WithCancel(kept)
			defer stop()
			<-child.Done()
			<-kept.Done()
			assert.Equal(t, context.Canceled, kept.Err())
			assert.EqualError(t, context.Cause(kept), cause)
		})
	}
}

// Who has left before anything was streamed to it has no stream.
func TestWhoMayBeStreamedTo(t *testing.T) {
	canceled := func(cause error) context.Context {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		return ctx
	}
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	for name, tc := range map[string]struct {
		caller         context.Context
		streamed, want bool
	}{
		"the client is there":   {t.Context(), false, true},
		"the client has left":   {canceled(nil), false, false},
		"a deadline has passed": {late, false, true},
		"another cause":         {canceled(errCause), false, true},
		"a stream has begun":    {canceled(nil), true, true},
	} {
		g := core.MustNew(core.Config{User: byUser}).MustGuard(core.Policy{})
		assert.NoError(t, g.Serve(tc.caller, post("{}", nil).after(func(ctx context.Context) {
			if tc.streamed {
				adapter.PartSent(ctx, true)
			}
			assert.Equal(t, tc.want, adapter.MayStream(ctx), name)
		})))
	}
	assert.True(t, adapter.MayStream(t.Context()), "no run")
}

// What a handler has given up is no result, whatever the policy says of results and failures; but
// a handler that says that it has done its work is believed.
func TestGivenUp(t *testing.T) {
	says := func(what func(*core.Run)) func(context.Context, *adapter.Capture) {
		return func(ctx context.Context, _ *adapter.Capture) { what(core.RunFrom(ctx)) }
	}
	for name, tc := range map[string]struct {
		onFailure core.Disposition
		handler   func(context.Context, *adapter.Capture)
		want      core.Kind // Completed: it is a result
	}{
		"nothing written":              {0, nil, core.Released},
		"failures are kept":            {core.Keep, nil, core.Released},
		"failures are uncertain":       {core.Abandon, nil, core.RunAbandoned},
		"an error that nobody renders": {0, func(_ context.Context, c *adapter.Capture) { c.Err = errCause }, core.Released},
		"a status":                     {0, func(_ context.Context, c *adapter.Capture) { c.Ending = adapter.Answered }, core.Completed},
		"abandoned, says the handler":  {0, says((*core.Run).Abandon), core.RunAbandoned},
		"released, says the handler":   {0, says((*core.Run).Release), core.Released},
		"done, says the handler":       {0, says((*core.Run).Keep), core.Completed},
	} {
		for _, later := range []bool{false, true} {
			bubble(t, name, func(t *testing.T) {
				var observed events
				g := core.MustNew(core.Config{User: byUser, Store: newStore(t), Observe: observed.add}).
					MustGuard(core.Policy{Record: core.Record{OnFailure: tc.onFailure}})
				captured := emptyAnswer()
				c := post("{}", nil).doing(func(ctx context.Context) adapter.Capture {
					<-ctx.Done()
					if tc.handler != nil {
						tc.handler(ctx, &captured)
					}
					if later {
						return deferring(ctx)
					}
					return captured
				})
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				assert.NoError(t, g.Serve(ctx, c))
				if later {
					c.finish(t, captured)
				}
				last := observed.last()
				assert.Equal(t, tc.want, last.Kind)
				if tc.want == core.Completed {
					assert.Equal(t, "replay", outcome(t, g, post("{}", nil)))
					return
				}
				assert.Equal(t, "unfinished", c.code())
				assert.Equal(t, http.StatusServiceUnavailable, last.Status, "what the client got")
				assert.True(t, last.Failed)
				assert.Contains(t, outcome(t, g, post("{}", nil)), "attempt")
			})
		}
	}
}

// A middleware in front ends its context when it returns; what comes after it is not given up.
func TestAContextThatEndsBehindTheHandler(t *testing.T) {
	g := core.MustNew(core.Config{User: byUser, Store: newStore(t)}).MustGuard(core.Policy{Linger: -1})
	ctx, cancel := context.WithCancel(context.Background())
	c := post("{}", nil).doing(deferring)
	assert.NoError(t, g.Serve(ctx, c))
	cancel()
	time.Sleep(time.Millisecond) // for the context of the run to end
	c.finish(t, emptyAnswer())
	assert.Equal(t, 200, c.response.Status)
	assert.Equal(t, "replay", outcome(t, g, post("{}", nil)))
}

// A stream is cut when its client has gone, or the service ends it, also if the handler has seen that before its context;
// whoever else may answer an error. But while the handler may run on, nothing is decided.
func TestCutStream(t *testing.T) {
	type handler func(e *core.Engine, leave func()) func(context.Context) adapter.Capture
	streams := func(ending adapter.Ending, end func(e *core.Engine, leave func())) handler {
		return func(e *core.Engine, leave func()) func(context.Context) adapter.Capture {
			return func(ctx context.Context) adapter.Capture {
				adapter.PartSent(ctx, true)
				end(e, leave)
				captured := answer(200, "")
				captured.Incomplete, captured.Ending = true, ending
				return captured
			}
		}
	}
	heldBack := func(captured adapter.Capture) handler {
		return func(_ *core.Engine, leave func()) func(context.Context) adapter.Capture {
			return func(ctx context.Context) adapter.Capture {
				leave()
				assert.False(t, adapter.MayStream(ctx))
				<-ctx.Done()
				return captured
			}
		}
	}
	stays, leaves := func(*core.Engine, func()) {}, func(_ *core.Engine, leave func()) { leave() }
	shutsDown := func(e *core.Engine, _ func()) { go func() { _ = e.Drain(over()) }(); synctest.Wait() }
	for name, tc := range map[string]struct {
		handler handler
		want    core.Kind
	}{
		"whole":                      {streams(adapter.Answered, stays), core.Completed},
		"left":                       {streams(adapter.Answered, leaves), core.RunAbandoned},
		"shut down":                  {streams(adapter.Answered, shutsDown), core.RunAbandoned},
		"not all sent":               {streams(adapter.Cut, stays), core.RunAbandoned},
		"held back":                  {heldBack(answer(200, "")), core.RunAbandoned},
		"held back, with an error":   {heldBack(adapter.Capture{Ending: adapter.Unrendered, Err: errCause}), core.RunAbandoned},
		"left, and the handler runs": {streams(adapter.RunsOn, leaves), core.RunUnfinished},
	} {
		bubble(t, name, func(t *testing.T) {
			var observed events
			e := core.MustNew(core.Config{User: byUser, Store: newStore(t), Observe: observed.add})
			ctx, leave := context.WithCancel(context.Background())
			defer leave()
			c := post("{}", nil).doing(tc.handler(e, leave))
			c.held = &core.Response{}
			assert.NoError(t, e.MustGuard(core.Policy{Linger: -1}).Serve(ctx, c))
			assert.Equal(t, tc.want, observed.last().Kind)
			assert.Equal(t, tc.want != core.Completed, observed.last().Failed)
		})
	}
}

// A client that has got a part of an answer can't be told that nothing was done.
func TestPanicBehindAPartOfAnAnswer(t *testing.T) {
	for _, streaming := range []bool{false, true} {
		var observed events
		g := core.MustNew(core.Config{User: byUser, Observe: observed.add}).MustGuard(core.Policy{})
		c := post("{}", nil).doing(func(ctx context.Context) adapter.Capture { adapter.PartSent(ctx, streaming); panic("boom") })
		assert.PanicsWithValue(t, "boom", func() { _ = g.Serve(t.Context(), c) })
		assert.Equal(t, core.RunAbandoned, observed.last().Kind)
	}
}

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := core.MustNew(core.Config{User: byUser, Store: newStore(t)})
		g := e.MustGuard(core.Policy{})
		waits := e.MustGuard(core.Policy{Duplicate: core.Wait(time.Hour)})
		serve(t, g, post(`{"n":0}`, nil))

		slow := post(`{"n":1}`, nil).after(func(ctx context.Context) { time.Sleep(5 * time.Second); assert.NoError(t, ctx.Err()) })
		waiter := post(`{"n":1}`, nil)
		stubborn := post(`{"n":2}`, nil).doing(func(ctx context.Context) adapter.Capture {
			<-ctx.Done()
			assert.ErrorIs(t, context.Cause(ctx), core.ErrShutdown)
			return emptyAnswer()
		})
		pending := serve(t, g, post(`{"n":3}`, nil).doing(deferring)) // a run whose outcome is not known yet counts
		var served sync.WaitGroup
		served.Go(func() { serve(t, g, slow) })
		served.Go(func() { serve(t, g, stubborn) })
		synctest.Wait()
		served.Go(func() { serve(t, waits, waiter) })
		synctest.Wait()

		start := time.Now()
		results := make([]error, 3)
		for i := range results {
			served.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				defer cancel()
				results[i] = e.Drain(ctx)
			})
		}
		synctest.Wait()
		refused := serve(t, g, post(`{"n":4}`, nil))
		assert.Equal(t, 503, refused.response.Status)
		assert.Equal(t, "shutting_down", refused.code())
		assert.Zero(t, refused.ran)
		assert.Equal(t, "replay", outcome(t, g, post(`{"n":0}`, nil)))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.True(t, waiter.replayed())
		pending.finish(t, answer(201, "late"))
		served.Wait()
		assert.Equal(t, 20*time.Second, time.Since(start))
		assert.Contains(t, results, context.DeadlineExceeded, "who has ended the rest says so")
		assert.Equal(t, "shutting_down", stubborn.code())
		for range 100 { // however the two come out
			assert.NoError(t, e.Drain(over()), "nothing runs")
		}
	})
}

// Runs that have been ended are given the store's deadline to finish, and no more.
func TestDrainEndsAllRuns(t *testing.T) {
	for tidies, waits := range map[time.Duration]time.Duration{time.Second: time.Second, time.Minute: 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			e := core.MustNew(core.Config{User: byUser, StoreTimeout: 3 * time.Second})
			g := e.MustGuard(core.Policy{})
			var served sync.WaitGroup
			for _, body := range []string{"1", "2", "3"} {
				served.Go(func() {
					serve(t, g, post(body, nil).after(func(ctx context.Context) {
						select {
						case <-ctx.Done():
						case <-time.After(time.Hour):
						}
						assert.Equal(t, core.ErrShutdown, context.Cause(ctx))
						time.Sleep(tidies)
					}))
				})
			}
			synctest.Wait()
			ctx, end := context.WithCancelCause(t.Context())
			end(errCause)
			start := time.Now()
			assert.Equal(t, errCause, e.Drain(ctx))
			assert.Equal(t, waits, time.Since(start))
			served.Wait()
		})
	}
}

// A run that ends in an unusual way is counted out once: Drain waits for the others.
func TestDrainAfterAStorePanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &spy{Store: newStore(t)}
		e := core.MustNew(core.Config{User: byUser, Store: store})
		g := e.MustGuard(core.Policy{})
		var served sync.WaitGroup
		served.Go(func() { serve(t, g, post("1", nil).doing(slowly(time.Second, 201, ""))) })
		synctest.Wait()
		store.complete = func(context.Context) error {
			if store.completes.Load() == 1 {
				panic("store")
			}
			return nil
		}
		assert.Equal(t, "store", serveUntilPanic(g, post("2", nil)))
		start := time.Now()
		assert.NoError(t, e.Drain(t.Context()))
		assert.Equal(t, time.Second, time.Since(start))
		served.Wait()
	})
}

// countingContext counts the functions that wait for its end.
type countingContext struct {
	context.Context
	ended   chan struct{}
	waiting atomic.Int64
}

func (c *countingContext) Done() <-chan struct{} { return c.ended }

// AfterFunc is what package context calls in place of waiting for Done.
func (c *countingContext) AfterFunc(func()) (stop func() bool) {
	c.waiting.Add(1)
	return sync.OnceValue(func() bool { c.waiting.Add(-1); return true })
}

// A worker hands the same context to Do for years: nothing of a run may stay with it.
func TestNothingStaysWithTheCallersContext(t *testing.T) {
	drained := core.MustNew(core.Config{User: byUser})
	assert.NoError(t, drained.Drain(t.Context()))
	for name, handler := range map[string]func(context.Context) adapter.Capture{
		"success": handlerOf(201),
		"failure": handlerOf(500),
		"panic":   panicking,
		"later":   deferring,
		"drained": nil,
	} {
		ctx := &countingContext{Context: context.Background(), ended: make(chan struct{})}
		c := post("{}", nil).doing(func(run context.Context) adapter.Capture {
			assert.EqualValues(t, 1, ctx.waiting.Load(), name)
			return handler(run)
		})
		e := core.MustNew(core.Config{User: byUser})
		if name == "drained" { // nothing runs
			e = drained
		}
		func() {
			defer func() { _ = recover() }()
			_ = e.MustGuard(core.Policy{}).Serve(ctx, c)
		}()
		if name == "later" {
			c.finish(t, answer(201, ""))
		}
		assert.Zero(t, ctx.waiting.Load(), name)
		assert.Equal(t, name != "drained", c.ran == 1)
	}
}

// A drain whose time has passed meets runs that are just being made.
func TestDrainWhileRunsBegin(t *testing.T) {
	for range 300 {
		e := core.MustNew(core.Config{User: byUser, Store: newStore(t)})
		g := e.MustGuard(core.Policy{})
		var served sync.WaitGroup
		for range 4 {
			served.Go(func() { serve(t, g, post("{}", nil)) })
		}
		_ = e.Drain(over())
		served.Wait()
	}
}

// What a handler answers because the engine has ended its context is no answer of the operation's.
func TestInterruptedRuns(t *testing.T) {
	kept := core.ClientKey()
	kept.OnFailure = core.Keep
	paying := core.ClientKey()
	paying.Failed = core.FailedByAnyError
	status := func(status int) func(context.Context) adapter.Capture {
		return func(ctx context.Context) adapter.Capture { return answer(status, "of the handler") }
	}
	failing := func(captured adapter.Capture) func(context.Context) adapter.Capture {
		return func(ctx context.Context) adapter.Capture {
			own := captured
			own.Err = ctx.Err()
			return own
		}
	}
	sent := answer(500, "of the handler")
	sent.Incomplete = true
	for name, tc := range map[string]struct {
		policy  core.Policy
		handler func(context.Context) adapter.Capture
		refused bool
	}{
		"a 500":                        {core.ClientKey(), status(500), true},
		"a 503":                        {core.ClientKey(), status(503), true},
		"an error, rendered":           {core.ClientKey(), failing(answer(500, "of the handler")), true},
		"an error that nobody renders": {core.ClientKey(), failing(adapter.Capture{Ending: adapter.Unrendered}), true},
		"a success":                    {core.ClientKey(), status(201), false},
		"a 402 that counts as failed":  {paying, status(402), false},
		"a failure that is kept":       {kept, status(500), false},
		"a part of it has been sent":   {core.ClientKey(), failing(sent), false},
		"it may have taken effect": {core.ClientKey(), func(ctx context.Context) adapter.Capture {
			core.RunFrom(ctx).Abandon()
			return answer(500, "of the handler")
		}, false},
	} {
		for code, ends := range map[string]func(e *core.Engine){
			"shutting_down": func(e *core.Engine) { _ = e.Drain(over()) },
			"unfinished":    func(*core.Engine) {}, // its lease is lost
			"":              func(*core.Engine) {}, // the client has left
		} {
			bubble(t, name+" "+code, func(t *testing.T) {
				records := &spy{Store: newStore(t)}
				if code == "unfinished" {
					records.renew = lost
				}
				e := core.MustNew(core.Config{User: byUser, Store: records})
				policy := tc.policy
				policy.Linger = -1
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				c := post("{}", nil).withKey("k").doing(tc.handler).after(func(run context.Context) {
					if ends(e); code == "" {
						leave()
					}
					<-run.Done()
				})
				serveFor(t, ctx, e.MustGuard(policy), c)
				if refused := tc.refused && code != ""; refused {
					assert.Equal(t, code, c.code())
					assert.Equal(t, 503, c.response.Status)
					assert.NotEmpty(t, c.response.Get("Retry-After"))
				} else if c.response != nil {
					assert.Equal(t, "of the handler", string(c.response.Body))
				}
			})
		}
	}
}
