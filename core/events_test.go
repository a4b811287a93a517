package core_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
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

var endingKinds = []core.Kind{core.Completed, core.Released, core.RunAbandoned, core.RunLost, core.RunUnfinished}

// However a run ends, whatever its handler has decided, and whatever the store does about it:
// its Started is followed by one ending event, and by none after that.
func TestEachRunHasOneEndingEvent(t *testing.T) {
	endings := map[string]func(context.Context) adapter.Capture{
		"success":    handlerOf(201),
		"failure":    handlerOf(502),
		"panic":      panicking,
		"goexit":     func(context.Context) adapter.Capture { runtime.Goexit(); panic("unreachable") },
		"unrendered": unrendered,
		"too large":  answering(200, strings.Repeat("x", 100)),
		"streamed, and cut": func(ctx context.Context) adapter.Capture {
			adapter.PartSent(ctx, true)
			return endsWith(adapter.Cut)(ctx)
		},
		"gives up": func(ctx context.Context) adapter.Capture {
			select {
			case <-ctx.Done():
			case <-time.After(time.Minute):
			}
			return endsWith(adapter.Empty)(ctx)
		},
		"a refusal further in":        refusing(409),
		"deferred":                    deferring,
		"deferred, then panic":        deferring,
		"a hook panics":               handlerOf(299),
		"deferred, and a hook panics": deferring,
		"the observer panics":         handlerOf(201),
	}
	decisions := map[string]func(*core.Run){
		"": func(*core.Run) {}, "keep": (*core.Run).Keep, "release": (*core.Run).Release, "abandon": (*core.Run).Abandon,
	}
	faults := map[string]func(*spy){
		"":                  func(*spy) {},
		"down at the end":   func(s *spy) { s.complete, s.release, s.abandon = down, down, down },
		"hangs at the end":  func(s *spy) { s.complete, s.release, s.abandon = hang, hang, hang },
		"the claim is lost": func(s *spy) { s.renew, s.complete, s.release, s.abandon = lost, lost, lost, lost },
		"no room":           func(s *spy) { s.complete = func(context.Context) error { return store.ErrFull } },
	}
	for ending, handler := range endings {
		for decision, decide := range decisions {
			for fault, inject := range faults {
				for _, drained := range []bool{false, true} {
					name := fmt.Sprintf("%s, %q, %q, drained %v", ending, decision, fault, drained)
					synctest.Test(t, func(t *testing.T) {
						var seen events
						records := &spy{Store: newStore(t)}
						inject(records)
						e := core.MustNew(core.Config{User: byUser, Store: records, Observe: func(ctx context.Context, ev core.Event) {
							seen.add(ctx, ev)
							ends := slices.Contains(endingKinds, ev.Kind) || ev.Kind == core.Unsettled
							if ending == "the observer panics" && ends && !ev.Late { // else no caller would recover it
								panic("observer")
							}
						}})
						failed := func(r *core.Response) bool {
							if r.Status == 299 {
								panic("hook")
							}
							return core.FailedByStatus(r)
						}
						g := e.MustGuard(core.Policy{Record: core.Record{Lease: time.Second}, ResponseLimit: 50, Failed: failed})
						c := post("{}", nil).doing(handler).after(func(ctx context.Context) {
							decide(core.RunFrom(ctx))
							if drained {
								go func() { _ = e.Drain(over()) }()
							}
							if fault == "the claim is lost" {
								<-ctx.Done() // found out by a renewal
							}
						})
						done := make(chan struct{})
						go func() {
							defer close(done)
							defer func() { _ = recover() }()
							_ = g.Serve(t.Context(), c)
							switch ending {
							case "deferred":
								final := answer(201, "")
								_ = c.pending.Finish(&final)
								_ = c.pending.Finish(&final)
							case "deferred, then panic":
								_ = c.pending.Finish(nil)
							case "deferred, and a hook panics":
								defer func() { _ = c.pending.Finish(nil) }() // whoever recovers may try
								final := answer(299, "")
								_ = c.pending.Finish(&final)
							}
						}()
						<-done
						time.Sleep(time.Minute)
						_ = e.Drain(over()) // gives up what is unsettled
						time.Sleep(time.Minute)
						synctest.Wait()

						// That the lease was lost may be told when the handler has already given up.
						lasting := slices.DeleteFunc(seen.all, func(ev core.Event) bool { return ev.Kind == core.LeaseLost })
						var kinds []core.Kind
						for _, ev := range lasting {
							kinds = append(kinds, ev.Kind)
						}
						assert.Equal(t, 1, count(kinds, core.Started), name)
						assert.Equal(t, 1, count(kinds, endingKinds...), "%s: %v", name, kinds)
						assert.Contains(t, endingKinds, kinds[len(kinds)-1], "%s: %v", name, kinds)
						last := lasting[len(lasting)-1]
						assert.EqualValues(t, 1, last.Attempt, name)
						switch {
						case fault == "the claim is lost":
							assert.Equal(t, core.RunLost, last.Kind, name)
							assert.ErrorIs(t, last.Err, store.ErrLost, name)
						case strings.HasSuffix(fault, "at the end"):
							assert.Equal(t, core.RunUnfinished, last.Kind, name)
						}
						assert.Equal(t, last.Late, slices.Contains(kinds, core.Unsettled), name)
						assert.LessOrEqual(t, count(kinds, core.Unsettled), 1, name)
					})
				}
			}
		}
	}
}

func count(kinds []core.Kind, of ...core.Kind) (n int) {
	for _, k := range kinds {
		if slices.Contains(of, k) {
			n++
		}
	}
	return n
}

func endsWith(e adapter.Ending) func(context.Context) adapter.Capture {
	return func(context.Context) adapter.Capture { r := answer(200, ""); r.Ending = e; return r }
}

func TestFlagsOfEndingEvents(t *testing.T) {
	hook := core.Policy{Failed: func(*core.Response) bool { panic("hook") }}
	for name, tc := range map[string]struct {
		policy           core.Policy
		handler          func(context.Context) adapter.Capture
		kind             core.Kind
		failed, panicked bool
	}{
		"success":            {core.Policy{}, handlerOf(201), core.Completed, false, false},
		"failure":            {core.Policy{}, handlerOf(500), core.Released, true, false},
		"failure, kept":      {core.Policy{Record: core.Record{OnFailure: core.Keep}}, handlerOf(500), core.Completed, true, false},
		"failure, abandoned": {core.Policy{Record: core.Record{OnFailure: core.Abandon}}, handlerOf(500), core.RunAbandoned, true, false},
		"lock":               {core.Exclusive(), handlerOf(200), core.Released, false, false},
		"panic":              {core.Policy{}, panicking, core.Released, true, true},
		"panic of a hook":    {hook, handlerOf(200), core.Completed, false, true},
		"so, and cut off":    {hook, endsWith(adapter.Cut), core.RunAbandoned, true, true},
		"so, and running on": {hook, endsWith(adapter.RunsOn), core.RunUnfinished, true, true},
	} {
		var seen events
		g := core.MustNew(core.Config{User: byUser, Observe: seen.add}).MustGuard(tc.policy)
		c := post("{}", nil).doing(tc.handler)
		serveUntilPanic(g, c)
		last := seen.last()
		assert.Equal(t, tc.kind, last.Kind, name)
		assert.Equal(t, []bool{tc.failed, tc.panicked}, []bool{last.Failed, last.Panicked}, name)
	}
}

// The event that says what has become of a request says also how long it had waited, and what the record remarks.
func TestWaitingIsTold(t *testing.T) {
	for name, tc := range map[string]struct {
		status int
		limit  time.Duration
		want   core.Event // its Remark is the run's
		fault  error      // of the store, when the duplicate asks once more
	}{
		"success": {201, 5 * time.Second, core.Event{Kind: core.Replayed, Status: 201, Waited: 3 * time.Second, Remark: "of success"}, nil},
		"failure": {500, 5 * time.Second, core.Event{Kind: core.Started, Waited: 3 * time.Second}, nil},
		"limit": {201, time.Second, core.Event{Kind: core.Refused, Status: 409, Code: codes.InProgress,
			Waited: time.Second, Remark: "of limit"}, nil},
		"store": {201, time.Second, core.Event{Kind: core.Unprotected, Waited: time.Second}, errDown},
	} {
		bubble(t, name, func(t *testing.T) {
			var seen events
			remark := func(context.Context) string { return "of " + name }
			records := &spy{Store: newStore(t)}
			can := records.Store.Capabilities() // it can be watched
			records.can = &can
			records.acquire = func(context.Context) error {
				if records.acquires.Load() > 2 {
					return tc.fault
				}
				return nil
			}
			e := core.MustNew(core.Config{User: byUser, Store: records, Remark: remark, Observe: seen.add})
			g := e.MustGuard(core.Policy{Duplicate: core.Wait(tc.limit), FailOpen: true})
			go serve(t, g, post("{}", nil).doing(slowly(3*time.Second, tc.status, "")))
			synctest.Wait()
			go serve(t, g, post("{}", nil))
			time.Sleep(6 * time.Second)
			synctest.Wait()
			var told []core.Event
			for _, ev := range seen.all {
				if ev.Waited > 0 {
					told = append(told, core.Event{Kind: ev.Kind, Status: ev.Status, Code: ev.Code, Waited: ev.Waited, Remark: ev.Remark})
				}
			}
			assert.Equal(t, []core.Event{tc.want}, told)
		})
	}
}

// A duplicate that waits for a run, and then for the one that has taken it over, has waited once.
func TestWaitingGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen events
		again := func(context.Context, core.Uncertainty) (core.Verdict, error) { return core.RunAgain(), nil }
		g := core.MustNew(core.Config{User: byUser, Store: newStore(t), Observe: seen.add}).MustGuard(core.Policy{
			Duplicate: core.Wait(time.Minute), Record: core.Record{OnFailure: core.Abandon, Abandoned: core.Uncertain(again)}})
		for range 3 {
			go serve(t, g, post("{}", nil).doing(func(ctx context.Context) adapter.Capture {
				return slowly(2*time.Second, map[uint64]int{1: 500, 2: 201}[core.RunFrom(ctx).Attempt()], "")(ctx)
			}))
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		waited := map[core.Kind]time.Duration{}
		for _, ev := range seen.all {
			if ev.Waited > 0 {
				waited[ev.Kind] += ev.Waited
			}
		}
		assert.Equal(t, map[core.Kind]time.Duration{core.Started: 2 * time.Second, core.Replayed: 4 * time.Second}, waited)
	})
}

func TestRequestsThatPassAreSeen(t *testing.T) {
	var seen events
	g := core.MustNew(core.Config{User: byUser, Observe: seen.add}).MustGuard(core.Policy{Name: "hooks", Key: core.Header(core.Optional)})
	c := serve(t, g, post("{}", nil))
	assert.Equal(t, 1, c.passed)
	assert.Equal(t, core.Event{Kind: core.Passed, Policy: "hooks", Route: "POST /orders"}, seen.last())
	safe := post("", nil)
	safe.method = "GET"
	serve(t, g, safe)
	assert.Len(t, seen.all, 2, "a safe method is none of the guard's business")
}

func TestLevelsOfLogEvents(t *testing.T) {
	var out bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	observe := core.LogEvents(logger, slog.LevelDebug)
	refused := func(code codes.Code, err error) core.Event {
		return core.Event{Kind: core.Refused, Code: code, Err: err}
	}
	for level, events := range map[string][]core.Event{
		"INFO": {{Kind: core.StoreIsLocal}},
		"DEBUG": {
			{Kind: core.Started, Attempt: 1}, {Kind: core.Started, Attempt: 2}, {Kind: core.Completed}, {Kind: core.Released, Failed: true},
			{Kind: core.Replayed}, {Kind: core.Passed}, refused(codes.InProgress, nil), refused(codes.KeyReused, nil),
			refused(codes.UserMissing, nil), refused(codes.UserMissing, core.ErrNoUser), refused(codes.ShuttingDown, nil),
		},
		"WARN": {
			{Kind: core.Started, Attempt: 2, Takeover: true}, {Kind: core.Completed, Err: store.ErrFull},
			{Kind: core.Completed, Panicked: true}, {Kind: core.Released, Failed: true, Panicked: true},
			{Kind: core.Released, Err: adapter.ErrUnrendered}, {Kind: core.Released, Err: core.NewRefusal(codes.NoRun, nil)},
			{Kind: core.RunAbandoned}, {Kind: core.RunLost}, {Kind: core.RunUnfinished}, {Kind: core.LeaseLost}, {Kind: core.RenewFailed},
			{Kind: core.Unprotected}, refused(codes.UserMissing, errors.New("a *jwt.Token")), refused(codes.Uncertain, nil),
			refused(codes.StoreUnavailable, nil), refused(codes.BodyConsumed, nil),
			refused(codes.StoreNotShared, nil), refused(codes.GuardConflict, nil),
		},
	} {
		for _, event := range events {
			out.Reset()
			observe(context.Background(), event)
			assert.Contains(t, out.String(), "level="+level+" ", "%+v", event)
			assert.Equal(t, event.Takeover, strings.Contains(out.String(), `"idem: takeover"`))
			assert.NotContains(t, out.String(), "key=", "there is none")
			assert.Equal(t, event.Kind != core.StoreIsLocal, strings.Contains(out.String(), "policy="), "%+v", event)
		}
	}
	observe = core.LogEvents(logger, slog.LevelInfo)
	for code, level := range map[codes.Code]string{codes.KeyReused: "INFO", codes.Uncertain: "WARN", codes.ShuttingDown: "DEBUG"} {
		out.Reset()
		observe(context.Background(), core.Event{Kind: core.Refused, Code: code, Status: core.NewRefusal(code, nil).Status})
		assert.Contains(t, out.String(), "level="+level+" ", code)
	}
	out.Reset()
	observe(context.Background(), core.Event{Kind: core.Released, Policy: "p", Route: "POST /x", Key: core.NewKey("idem:U=alice"),
		ID: store.ID{15: 7}, Attempt: 2, Status: 500, Elapsed: time.Second, Waited: 2 * time.Second,
		Failed: true, Panicked: true, Err: errDown})
	require.Contains(t, out.String(), fmt.Sprintf(`msg="idem: released" policy=p route="POST /x" key=%v `+
		`operation=00000000000000000000000000000007 attempt=2 status=500 elapsed=1s waited=2s `+
		`failed=true panicked=true err="connection refused"`, core.NewKey("idem:U=alice")))
	assert.NotContains(t, out.String(), "alice")
}

func TestObservers(t *testing.T) {
	assert.Nil(t, core.Observers())
	assert.Nil(t, core.Observers(nil))
	var told []int
	tell := func(i int) func(context.Context, core.Event) {
		return func(_ context.Context, e core.Event) { told = append(told, i, int(e.Attempt)) }
	}
	for i, observe := range []func(context.Context, core.Event){core.Observers(tell(1)), core.Observers(nil, tell(1), nil, tell(2))} {
		told = nil
		observe(t.Context(), core.Event{Attempt: 7})
		assert.Equal(t, []int{1, 7, 2, 7}[:2*i+2], told)
	}
}

// TestOperationID: one operation has one id, in its record, in its runs, and in all of its events.
func TestOperationID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen events
		records := newStore(t)
		e := core.MustNew(core.Config{User: byUser, Store: records, Observe: seen.add})
		g := e.MustGuard(core.Policy{Name: strings.Repeat("\u20ac", 100) + "\x00", Key: core.Header(core.Required)})
		var run store.ID
		request := func(key string) *call {
			c := post("{}", nil).withKey(key)
			c.header.Set("Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
			return c.after(func(ctx context.Context) { run = core.RunFrom(ctx).ID() })
		}
		abandoned := request("abandoned").after(func(ctx context.Context) { run = core.RunFrom(ctx).ID(); core.RunFrom(ctx).Abandon() })
		serve(t, g, request("done"))
		first := run
		serve(t, g, request("done"))
		other := request("done")
		other.body = "other"
		serve(t, g, other)
		assert.Equal(t, []core.Kind{core.Started, core.Completed, core.Replayed, core.Refused}, seen.kinds()[1:])
		for _, ev := range seen.all[1:] {
			assert.Equal(t, first, ev.ID, ev.Kind)
		}
		r, err := records.Capabilities().Inspect.Lookup(t.Context(), seen.last().Key.Raw())
		require.NoError(t, err)
		assert.Equal(t, store.About{ID: first, Policy: strings.Repeat("\u20ac", 85), Creator: r.Creator,
			Remark: "4bf92f3577b34da6a3ce929d0e0e4736"}, r.About)
		assert.Regexp(t, fmt.Sprintf(" %d$", os.Getpid()), r.Creator)

		abandoned.header.Set("Traceparent", "00-release by ana: the bank says no-00f067aa0ba902b7-01")
		serve(t, g, abandoned)
		r, err = records.Capabilities().Inspect.Lookup(t.Context(), seen.last().Key.Raw())
		require.NoError(t, err)
		assert.Empty(t, r.Remark, "a client writes what looks like an operator's remark")
		begun := run
		serve(t, g, request("abandoned"))
		assert.Equal(t, begun, run, "a takeover")
		assert.NotEqual(t, first, run)
		assert.NotZero(t, run)
		assert.Zero(t, core.RunFrom(t.Context()).ID())

		c := core.Config{Store: records, Remark: func(context.Context) string { return strings.Repeat("x", 300) }}
		task := core.MustNew(c).MustTask(core.TaskPolicy{Name: "mail"})
		_, err = core.Do(t.Context(), task, core.Call{Key: "k"}, func(ctx context.Context) (int, error) {
			r, err := records.Capabilities().Inspect.Lookup(ctx, core.RunFrom(ctx).Key().Raw())
			assert.Len(t, r.Remark, 255)
			return 0, err
		})
		assert.NoError(t, err)
	})
}
