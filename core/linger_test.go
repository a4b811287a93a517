package core_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
)

// Everything in this file runs on synctest's clock.

var errCause = errors.New("the cause")

// contextEnd says when and how a run's context has ended.
type contextEnd struct {
	after      time.Duration
	err, cause error
}

// waitsForItsEnd is a call whose handler does begin, waits for the end of its context and answers with
// captured. The result is read when the call has been served.
func waitsForItsEnd(begin func(ctx context.Context), captured adapter.Capture) (*call, *contextEnd) {
	c, got := post("{}", nil), new(contextEnd)
	start := time.Now()
	c.handler = func(ctx context.Context) adapter.Capture {
		if begin != nil {
			begin(ctx)
		}
		child, cancel := context.WithTimeout(ctx, 24*time.Hour)
		defer cancel()
		<-child.Done()
		*got = contextEnd{time.Since(start), ctx.Err(), context.Cause(ctx)}
		if child.Err() != ctx.Err() || context.Cause(child) != context.Cause(ctx) {
			panic("a child of the run's context has ended in another way")
		}
		return captured
	}
	return c, got
}

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
	leaves := func(after time.Duration) func() context.Context {
		return func() context.Context {
			ctx, leave := context.WithCancel(context.Background())
			time.AfterFunc(after, leave)
			return ctx
		}
	}
	streams := func(after time.Duration) func(context.Context) {
		return func(ctx context.Context) { time.AfterFunc(after, func() { adapter.PartSent(ctx, true) }) }
	}
	for name, tc := range map[string]struct {
		linger time.Duration
		caller func() context.Context
		begin  func(context.Context)
		want   contextEnd
	}{
		"the client leaves": {0, leaves(time.Second), nil,
			contextEnd{time.Minute + time.Second, context.Canceled, context.Canceled}},
		"the client leaves, and its policy is less patient": {5 * time.Second, leaves(time.Second), nil,
			contextEnd{6 * time.Second, context.Canceled, context.Canceled}},
		"the client leaves, and the policy has no patience": {-1, leaves(time.Second), nil,
			contextEnd{time.Second, context.Canceled, context.Canceled}},
		"a deadline": {0, func() context.Context {
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			time.AfterFunc(time.Hour, cancel)
			return ctx
		}, nil, contextEnd{3 * time.Second, context.DeadlineExceeded, context.DeadlineExceeded}},
		"a deadline of which the caller hears first": {0, func() context.Context {
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			time.AfterFunc(time.Hour, cancel)
			return endsEarly{ctx}
		}, nil, contextEnd{3*time.Second + time.Millisecond, context.DeadlineExceeded, context.DeadlineExceeded}},
		"a deadline after the client has left": {0, func() context.Context {
			ctx, leave := context.WithTimeout(context.Background(), 30*time.Second)
			time.AfterFunc(time.Second, leave)
			return ctx
		}, nil, contextEnd{30 * time.Second, context.DeadlineExceeded, context.DeadlineExceeded}},
		"another cause": {0, func() context.Context {
			ctx, cancel := context.WithCancelCause(context.Background())
			time.AfterFunc(2*time.Second, func() { cancel(errCause) })
			return ctx
		}, nil, contextEnd{2 * time.Second, context.Canceled, errCause}},
		"a stream, and then the client leaves": {0, leaves(10 * time.Second), streams(time.Second),
			contextEnd{10 * time.Second, context.Canceled, context.Canceled}},
		"the client leaves, and then a stream": {0, leaves(time.Second), streams(10 * time.Second),
			contextEnd{10 * time.Second, context.Canceled, context.Canceled}},
		"a large answer does not tie": {0, leaves(time.Second), func(ctx context.Context) { adapter.PartSent(ctx, false) },
			contextEnd{time.Minute + time.Second, context.Canceled, context.Canceled}},
	} {
		for _, late := range []bool{false, true} { // the handler asks for its context when that has ended
			bubble(t, fmt.Sprintf("%s, late %v", name, late), func(t *testing.T) {
				g := core.MustNew(core.Config{User: byUser, Store: newStore(t)}).MustGuard(core.Policy{Linger: tc.linger})
				caller := context.WithValue(tc.caller(), errCause, "value")
				c, got := waitsForItsEnd(func(ctx context.Context) {
					if tc.begin != nil {
						tc.begin(ctx)
					}
					assert.NoError(t, ctx.Err())
					if late {
						time.Sleep(tc.want.after)
						synctest.Wait()
						assert.Equal(t, tc.want.err, ctx.Err())
					}
					assert.Equal(t, "value", ctx.Value(errCause))
					want, hasWant := caller.Deadline()
					has, hasGot := ctx.Deadline()
					assert.Equal(t, hasWant, hasGot)
					assert.True(t, want.Equal(has))
				}, answer(201, ""))
				assert.NoError(t, g.Serve(caller, c))
				assert.Equal(t, tc.want, *got)
				time.Sleep(2 * time.Hour)
			})
		}
	}
}

// A context that is asked for when its run has ended has ended, too.
func TestContextAfterItsRun(t *testing.T) {
	g := core.MustNew(core.Config{User: byUser}).MustGuard(core.Policy{})
	c := post("{}", nil)
	var kept context.Context
	c.handler = func(ctx context.Context) adapter.Capture {
		kept = ctx
		return answer(201, "")
	}
	assert.NoError(t, g.Serve(t.Context(), c))
	assert.Equal(t, context.Canceled, kept.Err())
	child, cancel := context.WithCancel(kept)
	defer cancel()
	<-child.Done()
	<-kept.Done()
	assert.Equal(t, context.Canceled, kept.Err())
	assert.EqualError(t, context.Cause(kept), "idem: the run has ended")
}

// The first end of a context counts, also for whoever asks when it has ended again.
func TestTheFirstCauseCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := core.MustNew(core.Config{User: byUser, Store: newStore(t)}).MustGuard(core.Policy{})
		ctx, cancel := context.WithCancelCause(context.Background())
		c := post("{}", nil)
		var kept context.Context
		c.handler = func(ctx context.Context) adapter.Capture {
			kept = ctx
			cancel(errCause)
			synctest.Wait()
			return answer(201, "")
		}
		assert.NoError(t, g.Serve(ctx, c))
		assert.Equal(t, errCause, context.Cause(kept))
	})
}

// Who has left before anything was streamed to it has no stream.
func TestWhoMayBeStreamedTo(t *testing.T) {
	canceled := func(cause error) func(context.Context) context.Context {
		return func(ctx context.Context) context.Context {
			ctx, cancel := context.WithCancelCause(ctx)
			cancel(cause)
			return ctx
		}
	}
	for name, tc := range map[string]struct {
		caller   func(context.Context) context.Context
		streamed bool
		want     bool
	}{
		"the client is there": {func(ctx context.Context) context.Context { return ctx }, false, true},
		"the client has left": {canceled(nil), false, false},
		"a deadline has passed": {func(ctx context.Context) context.Context {
			ctx, cancel := context.WithTimeout(ctx, 0)
			cancel()
			return ctx
		}, false, true},
		"another cause":      {canceled(errCause), false, true},
		"a stream has begun": {canceled(nil), true, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := core.MustNew(core.Config{User: byUser}).MustGuard(core.Policy{})
			c := post("{}", nil).doing(func(ctx context.Context) adapter.Capture {
				if tc.streamed {
					adapter.PartSent(ctx, true)
				}
				assert.Equal(t, tc.want, adapter.MayStream(ctx))
				return answer(201, "")
			})
			assert.NoError(t, g.Serve(tc.caller(t.Context()), c))
		})
	}
	assert.True(t, adapter.MayStream(t.Context()), "no run")
}

// What a handler has given up is no result, whatever the policy says of results and failures; but
// a handler that says that it has done its work is believed.
func TestGivenUp(t *testing.T) {
	for name, tc := range map[string]struct {
		policy  core.Policy
		handler func(ctx context.Context, c adapter.Capture) adapter.Capture
		want    core.Kind
		code    string
		ran     int64
	}{
		"nothing written":        {want: core.Released, code: "unfinished", ran: 2},
		"failures are kept":      {policy: core.Policy{Record: core.Record{OnFailure: core.Keep}}, want: core.Released, code: "unfinished", ran: 2},
		"failures are uncertain": {policy: core.Policy{Record: core.Record{OnFailure: core.Abandon}}, want: core.RunAbandoned, code: "unfinished", ran: 2},
		"an error that nobody renders": {handler: func(_ context.Context, c adapter.Capture) adapter.Capture { c.Err = errCause; return c },
			want: core.Released, code: "unfinished", ran: 2},
		"a status": {handler: func(_ context.Context, c adapter.Capture) adapter.Capture { c.Ending = adapter.Answered; return c },
			want: core.Completed, ran: 1},
		"abandoned, says the handler": {handler: func(ctx context.Context, c adapter.Capture) adapter.Capture { core.RunFrom(ctx).Abandon(); return c },
			want: core.RunAbandoned, code: "unfinished", ran: 2},
		"released, says the handler": {handler: func(ctx context.Context, c adapter.Capture) adapter.Capture { core.RunFrom(ctx).Release(); return c },
			want: core.Released, code: "unfinished", ran: 2},
		"done, says the handler": {handler: func(ctx context.Context, c adapter.Capture) adapter.Capture { core.RunFrom(ctx).Keep(); return c },
			want: core.Completed, ran: 1},
	} {
		for _, later := range []bool{false, true} {
			bubble(t, name, func(t *testing.T) {
				var observed events
				g := core.MustNew(core.Config{User: byUser, Store: newStore(t), Observe: observed.add}).MustGuard(tc.policy)
				var ran atomic.Int64
				c := post("{}", nil)
				var captured adapter.Capture
				c.handler = func(ctx context.Context) adapter.Capture {
					if ran.Add(1) > 1 {
						return answer(201, "")
					}
					<-ctx.Done()
					captured = emptyAnswer()
					if tc.handler != nil {
						captured = tc.handler(ctx, captured)
					}
					if later {
						c.held = captured.Response
						return adapter.Capture{Ending: adapter.Deferred}
					}
					return captured
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				assert.NoError(t, g.Serve(ctx, c))
				if later {
					assert.NoError(t, c.pending.Finish(&captured))
				}
				assert.Contains(t, observed.kinds(), tc.want)
				if tc.code != "" {
					assert.Equal(t, tc.code, c.code())
					last := observed.last()
					assert.Equal(t, http.StatusServiceUnavailable, last.Status, "what the client got")
					assert.True(t, last.Failed)
				}
				serve(t, g, post("{}", nil).doing(c.handler))
				assert.Equal(t, tc.ran, ran.Load())
			})
		}
	}
}

// A middleware in front ends its context when it returns; what comes after it is not given up.
func TestAContextThatEndsBehindTheHandler(t *testing.T) {
	g := core.MustNew(core.Config{User: byUser, Store: newStore(t)}).MustGuard(core.Policy{Linger: -1})
	ctx, cancel := context.WithCancel(context.Background())
	c := post("{}", nil)
	captured := emptyAnswer()
	c.handler = func(context.Context) adapter.Capture {
		c.held = captured.Response
		return adapter.Capture{Ending: adapter.Deferred}
	}
	assert.NoError(t, g.Serve(ctx, c))
	cancel()
	time.Sleep(time.Millisecond) // for the context of the run to end
	assert.NoError(t, c.pending.Finish(&captured))
	assert.Equal(t, 200, c.response.Status)
	assert.True(t, serve(t, g, post("{}", nil)).replayed())
}

// A stream is cut when its client has gone, also if the handler has seen that before its context; whoever else may
// answer an error. But while the handler may run on, nothing is decided.
func TestCutStream(t *testing.T) {
	for name, want := range map[string]core.Kind{
		"whole":                      core.Completed,
		"left":                       core.RunAbandoned,
		"not all sent":               core.RunAbandoned,
		"held back":                  core.RunAbandoned,
		"held back, with an error":   core.RunAbandoned,
		"left, and the handler runs": core.RunUnfinished,
		"shut down":                  core.RunAbandoned,
	} {
		t.Run(name, func(t *testing.T) {
			var observed events
			e := core.MustNew(core.Config{User: byUser, Store: newStore(t), Observe: observed.add})
			g := e.MustGuard(core.Policy{Linger: -1})
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			c := post("{}", nil)
			c.handler = func(ctx context.Context) adapter.Capture {
				captured := answer(200, "")
				captured.Incomplete = true
				if strings.HasPrefix(name, "held back") {
					cancel()
					assert.False(t, adapter.MayStream(ctx))
					<-ctx.Done()
					if name != "held back" {
						c.held = captured.Response
						return adapter.Capture{Ending: adapter.Unrendered, Err: errCause}
					}
					return captured
				}
				adapter.PartSent(ctx, true)
				if strings.HasPrefix(name, "left") {
					cancel()
				}
				switch name {
				case "not all sent":
					captured.Ending = adapter.Cut
				case "left, and the handler runs":
					captured.Ending = adapter.RunsOn
				case "shut down":
					over, end := context.WithCancel(t.Context())
					end()
					go func() { _ = e.Drain(over) }()
					<-ctx.Done()
				}
				return captured
			}
			assert.NoError(t, g.Serve(ctx, c))
			last := observed.last()
			assert.Equal(t, want, last.Kind)
			assert.Equal(t, want != core.Completed, last.Failed)
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
		var ledger atomic.Int64
		e := core.MustNew(core.Config{User: byUser, Store: newStore(t)})
		g := e.MustGuard(core.Policy{})
		waits := e.MustGuard(core.Policy{Duplicate: core.Wait(time.Hour)})
		serve(t, g, post(`{"n":0}`, &ledger))

		var served sync.WaitGroup
		slow, stubborn, waiter := post(`{"n":1}`, nil), post(`{"n":2}`, nil), post(`{"n":1}`, nil)
		slow.handler = func(ctx context.Context) adapter.Capture {
			time.Sleep(5 * time.Second)
			assert.NoError(t, ctx.Err())
			return answer(201, "slow")
		}
		stubborn.handler = func(ctx context.Context) adapter.Capture {
			<-ctx.Done()
			assert.ErrorIs(t, context.Cause(ctx), core.ErrShutdown)
			return emptyAnswer()
		}
		pending := post(`{"n":3}`, nil) // a run whose outcome is not known yet counts
		pending.handler = deferring
		serve(t, g, pending)
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
		refused := serve(t, g, post(`{"n":4}`, &ledger))
		assert.Equal(t, 503, refused.response.Status)
		assert.Equal(t, "shutting_down", refused.code())
		assert.True(t, serve(t, g, post(`{"n":0}`, &ledger)).replayed())
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.True(t, waiter.replayed())
		captured := answer(201, "late")
		pending.held = captured.Response
		assert.NoError(t, pending.pending.Finish(&captured))
		served.Wait()
		assert.Equal(t, 20*time.Second, time.Since(start))
		assert.Contains(t, results, context.DeadlineExceeded, "who has ended the rest says so")
		assert.Equal(t, "shutting_down", stubborn.code())
		assert.EqualValues(t, 1, ledger.Load())
		ended, end := context.WithCancel(context.Background())
		end()
		for range 100 { // however the two come out
			assert.NoError(t, e.Drain(ended), "nothing runs")
		}
	})
}

// A run is over when it is finished, not when its handler has returned.
func TestDrainWaitsForRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &spy{Store: newStore(t), complete: func(context.Context) error { time.Sleep(time.Second); return nil }}
		e := core.MustNew(core.Config{User: byUser, Store: store})
		var served sync.WaitGroup
		served.Go(func() { serve(t, e.MustGuard(core.Policy{}), post("{}", nil)) })
		synctest.Wait()
		assert.EqualValues(t, 1, store.completes.Load(), "under way")
		start := time.Now()
		for range 2 { // both wait for the same
			served.Go(func() {
				assert.NoError(t, e.Drain(t.Context()))
				assert.Equal(t, time.Second, time.Since(start))
			})
		}
		served.Wait()
		assert.NoError(t, e.Drain(t.Context()))
		assert.NoError(t, core.MustNew(core.Config{Store: store}).Drain(t.Context()))
		assert.Equal(t, time.Second, time.Since(start), "nothing runs")
	})
}

// Runs that have been ended are given the store's deadline to finish, and no more.
func TestDrainEndsAllRuns(t *testing.T) {
	for tidies, waits := range map[time.Duration]time.Duration{time.Second: time.Second, time.Minute: 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			e := core.MustNew(core.Config{User: byUser, StoreTimeout: 3 * time.Second})
			var served sync.WaitGroup
			for _, body := range []string{"1", "2", "3"} {
				c := post(body, nil).doing(func(ctx context.Context) adapter.Capture {
					select {
					case <-ctx.Done():
					case <-time.After(time.Hour):
					}
					assert.Equal(t, core.ErrShutdown, context.Cause(ctx))
					time.Sleep(tidies)
					return answer(201, "")
				})
				served.Go(func() { serve(t, e.MustGuard(core.Policy{}), c) })
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
		slow, odd := post("1", nil), post("2", nil)
		slow.handler = slowly(time.Second, 201, "")
		odd.handler = handlerOf(201)
		var served sync.WaitGroup
		served.Go(func() { serve(t, g, slow) })
		synctest.Wait()
		store.complete = func(context.Context) error {
			if store.completes.Load() == 1 {
				panic("store")
			}
			return nil
		}
		assert.PanicsWithValue(t, "store", func() { _ = g.Serve(t.Context(), odd) })
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
	e := core.MustNew(core.Config{User: byUser})
	g := e.MustGuard(core.Policy{})
	for name, handler := range map[string]func(context.Context) adapter.Capture{
		"success": handlerOf(201),
		"failure": handlerOf(500),
		"panic":   panicking,
		"later":   deferring,
		"drained": func(context.Context) adapter.Capture { t.Error("runs"); return answer(201, "") },
	} {
		ctx := &countingContext{Context: context.Background(), ended: make(chan struct{})}
		c := post(`"`+name+`"`, nil).doing(func(run context.Context) adapter.Capture {
			assert.EqualValues(t, 1, ctx.waiting.Load(), name)
			return handler(run)
		})
		serving := g
		if name == "drained" {
			other := core.MustNew(core.Config{User: byUser})
			assert.NoError(t, other.Drain(t.Context()))
			serving = other.MustGuard(core.Policy{})
		}
		func() {
			defer func() { _ = recover() }()
			_ = serving.Serve(ctx, c)
		}()
		if name == "later" {
			captured := answer(201, "")
			assert.NoError(t, c.pending.Finish(&captured))
		}
		assert.Zero(t, ctx.waiting.Load(), name)
	}
}

// A drain whose time has passed meets runs that are just being made.
func TestDrainWhileRunsBegin(t *testing.T) {
	ended, end := context.WithCancel(context.Background())
	end()
	for range 300 {
		e := core.MustNew(core.Config{User: byUser, Store: newStore(t)})
		g := e.MustGuard(core.Policy{})
		var served sync.WaitGroup
		for range 4 {
			served.Go(func() {
				c := post("{}", nil).doing(handlerOf(201))
				assert.NoError(t, g.Serve(context.Background(), c))
			})
		}
		_ = e.Drain(ended)
		served.Wait()
	}
}
