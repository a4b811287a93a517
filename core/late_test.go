package core_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
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

// remote is a store on another machine, as one of several processes reaches it. fault says what happens to a call before it is made,
// lost what happens to its answer; nil: nothing.
type remote struct {
	store.Store
	fault, lost func(ctx context.Context, call string) error

	mu    sync.Mutex
	calls []string
}

func (r *remote) do(ctx context.Context, call string, do func() error) error {
	r.mu.Lock()
	r.calls = append(r.calls, call)
	fault, lost := r.fault, r.lost
	r.mu.Unlock()
	if fault != nil {
		if err := fault(ctx, call); err != nil {
			return err
		}
	}
	err := do()
	if lost != nil {
		if fault := lost(ctx, call); fault != nil {
			return fault
		}
	}
	return err
}

// breaks sets what happens to calls from now on.
func (r *remote) breaks(fault, lost func(ctx context.Context, call string) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault, r.lost = fault, lost
}

// count says how many of the calls had one of these names.
func (r *remote) count(names ...string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, call := range r.calls {
		if slices.Contains(names, call) {
			n++
		}
	}
	return n
}

func (r *remote) Acquire(ctx context.Context, key string, claim store.Claim) (g store.Grant, err error) {
	err = r.do(ctx, "acquire", func() (err error) { g, err = r.Store.Acquire(ctx, key, claim); return err })
	if err != nil {
		g = store.Grant{}
	}
	return g, err
}

func (r *remote) Renew(ctx context.Context, key string, owner store.Owner, lease time.Duration) error {
	return r.do(ctx, "renew", func() error { return r.Store.Renew(ctx, key, owner, lease) })
}

func (r *remote) Complete(ctx context.Context, key string, owner store.Owner, result []byte, retention time.Duration) error {
	return r.do(ctx, called("complete", result), func() error { return r.Store.Complete(ctx, key, owner, result, retention) })
}

func (r *remote) Release(ctx context.Context, key string, owner store.Owner) error {
	return r.do(ctx, "release", func() error { return r.Store.Release(ctx, key, owner) })
}

func (r *remote) Abandon(ctx context.Context, key string, owner store.Owner) error {
	return r.do(ctx, "abandon", func() error { return r.Store.Abandon(ctx, key, owner) })
}

func (r *remote) Capabilities() store.Capabilities {
	can := r.Store.Capabilities()
	fail, outlive := can.Fail, can.Outlive
	can.Fail = func(ctx context.Context, key string, owner store.Owner, goesOn bool) error {
		return r.do(ctx, "fail", func() error { return fail(ctx, key, owner, goesOn) })
	}
	can.Outlive = func(ctx context.Context, key string, owner store.Owner, result []byte, retention, known time.Duration) error {
		return r.do(ctx, called("outlive", result), func() error { return outlive(ctx, key, owner, result, retention, known) })
	}
	can.Inspect = inspected{can.Inspect, r}
	can.Local, can.Recall = false, nil
	return can
}

type inspected struct {
	store.Inspector
	of *remote
}

func (i inspected) Lookup(ctx context.Context, key string) (found store.Record, err error) {
	err = i.of.do(ctx, "lookup", func() (err error) { found, err = i.Inspector.Lookup(ctx, key); return err })
	return found, err
}

// called is the name of a call without a result, or with one.
func called(name string, result []byte) string {
	if len(result) == 0 {
		return name + " without"
	}
	return name
}

// refused refuses all calls, or those that have one of these names.
func refused(names ...string) func(context.Context, string) error {
	return func(_ context.Context, call string) error {
		if len(names) == 0 || slices.Contains(names, call) {
			return errDown
		}
		return nil
	}
}

func hanging(ctx context.Context, _ string) error { return hang(ctx) }

// apart are two engines on one store, which the first reaches by a link of its own.
type apart struct {
	link     *remote
	here     *core.Engine
	there    *core.Engine
	observed events
}

func setApart(t *testing.T, c core.Config) *apart {
	p := &apart{link: &remote{Store: newStore(t)}}
	c.User = byUser
	c.Store = &remote{Store: p.link.Store}
	p.there = core.MustNew(c)
	c.Store, c.Observe = p.link, p.observed.add
	p.here = core.MustNew(c)
	p.observed.all = nil // that the store is local
	return p
}

// stepping is a handler that fails when it has finished a step, so that its record is kept for the next attempt.
func stepping(ctx context.Context) adapter.Capture {
	if _, err := core.Step(ctx, "step", func(context.Context) (int, error) { return 1, nil }); err != nil {
		panic(err)
	}
	return answer(502, "")
}

// The store is away while a run ends, and for longer than anybody waits for it. Whatever is to become of the record becomes of it when
// the store is back; meanwhile duplicates in the process are answered by what it knows, and others are kept off.
func TestLateSettlement(t *testing.T) {
	const key = "k"
	keyed := func(change func(*core.Policy)) core.Policy {
		p := core.ClientKey()
		change(&p)
		return p
	}
	tokens := tokensFor(tokenSecret)
	for name, tc := range map[string]struct {
		policy  core.Policy
		handler func(context.Context) adapter.Capture // nil: 201
		config  core.Config
		meets   string // a duplicate here, while the store is away
		other   string // so, with other parameters
		there   string // elsewhere
		later   string // here, after 20 s; empty: as before
		ends    core.Kind
		after   string // elsewhere, when it is settled
	}{
		"a result": {policy: core.ClientKey(), meets: "replay", other: "key_reused",
			there: "in_progress", ends: core.Completed, after: "replay"},
		"of parameters": {policy: core.Policy{Record: core.Record{Retention: time.Hour}}, meets: "replay", other: "store_unavailable",
			there: "in_progress", ends: core.Completed, after: "replay"},
		"that is rejected": {policy: keyed(func(p *core.Policy) { p.Duplicate = core.Reject("") }),
			meets: "duplicate", other: "key_reused", there: "in_progress", ends: core.Completed, after: "duplicate"},
		"that is waited for": {policy: keyed(func(p *core.Policy) { p.Duplicate = core.Wait(time.Second) }),
			meets: "replay", other: "key_reused", there: "in_progress", ends: core.Completed, after: "replay"},
		"that is sealed": {policy: core.ClientKey(), config: core.Config{Seal: sealUnder("a")},
			meets: "replay", other: "key_reused", there: "in_progress", ends: core.Completed, after: "replay"},
		"that its record outlives": {policy: keyed(func(p *core.Policy) { p.RefuseExpired = time.Hour }),
			meets: "replay", other: "key_reused", there: "in_progress", ends: core.Completed, after: "replay"},
		"that was streamed": {policy: core.ClientKey(), handler: func(ctx context.Context) adapter.Capture {
			adapter.PartSent(ctx, true)
			captured := answer(200, "")
			captured.Incomplete = true
			return captured
		}, meets: "result_unavailable", other: "key_reused", there: "in_progress", ends: core.Completed, after: "result_unavailable"},
		"a stream that was cut": {policy: core.ClientKey(), handler: endsWith(adapter.Cut),
			meets: "in_progress", other: "key_reused", there: "in_progress", ends: core.RunAbandoned, after: "attempt 2"},
		"a failure that is kept": {policy: keyed(func(p *core.Policy) { p.OnFailure = core.Keep }), handler: handlerOf(500),
			meets: "replay", other: "key_reused", there: "in_progress", ends: core.Completed, after: "replay"},
		"a failure": {policy: core.ClientKey(), handler: handlerOf(500),
			meets: "in_progress", other: "key_reused", there: "in_progress", ends: core.Released, after: "attempt 1"},
		"a panic": {policy: core.ClientKey(), handler: panicking,
			meets: "in_progress", other: "key_reused", there: "in_progress", ends: core.Released, after: "attempt 1"},
		"a failure with steps": {policy: core.ClientKey(), handler: stepping,
			meets: "in_progress", other: "key_reused", there: "in_progress", ends: core.Released, after: "attempt 2"},
		"abandoned": {policy: keyed(func(p *core.Policy) { p.Abandoned = core.Uncertain(nil) }), handler: abandoning,
			meets: "in_progress", other: "key_reused", there: "in_progress", ends: core.RunAbandoned, after: "uncertain"},
		"a token": {policy: checkout(tokens), meets: "replay", other: "key_reused",
			there: "in_progress", ends: core.Completed, after: "replay"},
		"a PUT that leaves no record": {policy: core.Policy{}, meets: "in_progress", other: "store_unavailable",
			there: "in_progress", ends: core.Released, after: "attempt 1"},
		"a store that may be away": {policy: keyed(func(p *core.Policy) { p.FailOpen = true }),
			meets: "replay", other: "key_reused", there: "in_progress", ends: core.Completed, after: "replay"},
		"a result that is no longer kept": {policy: keyed(func(p *core.Policy) {
			p.Retention, p.RetainFromStart = 10*time.Second, true
		}), meets: "replay", later: "in_progress", other: "key_reused", there: "in_progress", ends: core.Released, after: "attempt 1"},
		"so, but known": {policy: keyed(func(p *core.Policy) {
			p.Retention, p.RetainFromStart, p.RefuseExpired = 10*time.Second, true, time.Hour
		}), meets: "replay", later: "key_expired", other: "key_reused", there: "in_progress", ends: core.Completed, after: "key_expired"},
	} {
		for outage, fault := range map[string]func(context.Context, string) error{"refuses": refused(), "hangs": hanging} {
			bubble(t, name+", the store "+outage, func(t *testing.T) {
				p := setApart(t, tc.config)
				policy := tc.policy
				policy.Lease = time.Minute // longer than the store is away
				here, there := p.here.MustGuard(policy), p.there.MustGuard(policy)
				token := ""
				if policy.Name == "checkout" {
					token = tokenFor(t, here, "alice")
				}
				var ledger atomic.Int64
				ask := func(more string) *call {
					c := post(`{"n":1`+more+`}`, &ledger)
					switch {
					case token != "":
						c = submit(token, strings.ReplaceAll(more, ",", "&"), &ledger)
					case strings.Contains(name, "PUT"):
						c.method = "PUT"
					case name == "of parameters":
					default:
						c = c.withKey(key)
					}
					return c
				}

				first, began := ask(""), time.Now()
				if tc.handler != nil {
					first.doing(tc.handler)
				}
				handler := first.handler
				serveUntilPanic(here, first.doing(func(ctx context.Context) adapter.Capture {
					defer p.link.breaks(fault, nil)
					return handler(ctx)
				}))
				assert.Equal(t, 2*time.Second, time.Since(began), "the client waits for no longer")
				if first.response != nil {
					assert.NotEqual(t, 503, first.response.Status, "it gets the handler's answer")
				}
				require.Equal(t, []core.Kind{core.Started, core.Unsettled}, p.observed.kinds())
				told := p.observed.last()
				assert.Error(t, told.Err)
				assert.Zero(t, told.Elapsed, "the handler's")
				assert.Equal(t, 1, p.here.Unsettled())

				ran, asked := ledger.Load(), time.Now()
				assert.Equal(t, tc.meets, outcome(t, here, ask("")))
				assert.LessOrEqual(t, time.Since(asked), 2*time.Second)
				assert.Equal(t, tc.other, outcome(t, here, ask(`,"m":2`)))
				assert.Equal(t, tc.there, outcome(t, there, ask("")))
				if again := ask(""); tc.meets == "replay" {
					assert.Equal(t, first.response.Body, serve(t, here, again).response.Body, "whatever others have had answered meanwhile")
				}
				time.Sleep(20 * time.Second)
				synctest.Wait()
				assert.Equal(t, cmp.Or(tc.later, tc.meets), outcome(t, here, ask("")))
				p.link.breaks(nil, nil)
				time.Sleep(8 * time.Second)
				assert.Zero(t, p.here.Unsettled())
				assert.Equal(t, ran, ledger.Load(), "nobody has run")

				kinds := p.observed.kinds()
				require.Equal(t, 1, count(kinds, endingKinds...), kinds)
				for _, ev := range p.observed.all {
					if slices.Contains(endingKinds, ev.Kind) {
						assert.Equal(t, tc.ends, ev.Kind)
						assert.True(t, ev.Late)
						assert.Equal(t, told.Elapsed, ev.Elapsed, "the handler's")
						assert.Equal(t, told.ID, ev.ID)
					}
				}
				assert.Equal(t, tc.after, outcome(t, there, ask("")))
				calls := len(p.link.calls)
				time.Sleep(time.Hour)
				assert.Len(t, p.link.calls, calls, "there is nothing to do any more")
			})
		}
	}
}

// A task's value is settled late as a response is. It belongs to the caller.
func TestLateSettlementOfATask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := setApart(t, core.Config{})
		policy := core.TaskPolicy{Name: "mail", Record: core.Record{Lease: time.Minute}}
		r, err := do(t.Context(), p.here, "k", policy, func(context.Context) ([]byte, error) {
			p.link.breaks(refused(), nil)
			return []byte("sent"), nil
		})
		require.NoError(t, err)
		require.Equal(t, "sent", string(r.Value))
		never := func(context.Context) ([]byte, error) { t.Error("it runs again"); return nil, nil }
		for range 2 {
			again, err := do(t.Context(), p.here, "k", policy, never)
			require.NoError(t, err)
			require.Equal(t, core.Result[[]byte]{Value: []byte("sent"), Replayed: true}, again)
			copy(again.Value, "lost")
		}
		_, err = do(t.Context(), p.there, "k", policy, never)
		require.ErrorIs(t, err, codes.InProgress)
		p.link.breaks(nil, nil)
		_, err = do(t.Context(), p.here, "k", policy, never)
		require.NoError(t, err)
		again, err := do(t.Context(), p.there, "k", policy, never)
		require.NoError(t, err, "the caller has had it settled")
		require.Equal(t, "sent", string(again.Value))
	})
}

// Who waits for a run that the store does not take is answered as soon as its caller is, and not when the store is asked for the next time.
func TestWaitersOfAnUnsettledRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := setApart(t, core.Config{})
		policy := core.ClientKey()
		policy.Lease, policy.Duplicate = time.Minute, core.Wait(time.Minute)
		g, began := p.here.MustGuard(policy), time.Now()
		var served sync.WaitGroup
		for i := range 10 {
			ask := func() *call { return post("{}", nil).withKey(fmt.Sprint(i)) }
			served.Go(func() {
				serve(t, g, ask().after(func(context.Context) {
					time.Sleep(20 * time.Second)
					p.link.breaks(refused(), nil)
				}))
			})
			served.Go(func() {
				time.Sleep(time.Second)
				assert.Equal(t, "replay", outcome(t, g, ask()))
				assert.Equal(t, 22*time.Second, time.Since(began))
			})
		}
		served.Wait()
	})
}

// begin has each of calls run here, at once, while the store goes away; it returns when all have their answers.
func (p *apart) begin(t *testing.T, g *core.Guard, fault func(context.Context, string) error, calls ...*call) {
	var served sync.WaitGroup
	for _, c := range calls {
		served.Go(func() {
			serve(t, g, c.after(func(context.Context) {
				time.Sleep(time.Millisecond) // until all have their claims
				p.link.breaks(fault, nil)
			}))
		})
	}
	served.Wait()
	p.observed.all = slices.DeleteFunc(p.observed.all, func(ev core.Event) bool { return ev.Kind == core.Started })
}

// A caller that finds out that the claim is lost goes the ordinary way, and so do those that have asked with it.
func TestCallersLearnThatTheClaimIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := setApart(t, core.Config{})
		policy := core.ClientKey()
		policy.Lease = time.Second
		here, there := p.here.MustGuard(policy), p.there.MustGuard(policy)
		ask := func() *call { return post("{}", nil).withKey("k") }
		failed := func() *call { return post("{}", nil).withKey("failed") }
		p.begin(t, here, refused(), ask(), failed().doing(handlerOf(500)))
		assert.Equal(t, "attempt 2", outcome(t, there, ask().doing(handlerOf(500)))) // it is released: whoever comes next runs
		assert.Equal(t, "replay", outcome(t, here, ask()), "without the store nobody here can know")
		assert.Equal(t, "store_unavailable", outcome(t, here, failed()), "there is no result, and the lease has passed")
		p.link.breaks(nil, nil)
		assert.Equal(t, "attempt 3", outcome(t, here, ask()))
		assert.Equal(t, "attempt 1", outcome(t, here, failed()))
		assert.Zero(t, p.here.Unsettled())

		failed = func() *call { return post("{}", nil).withKey("released") }
		here = p.here.MustGuard(core.ClientKey()) // its lease does not pass
		p.begin(t, here, refused(), failed().doing(handlerOf(500)))
		p.link.breaks(nil, nil)
		assert.Equal(t, "attempt 1", outcome(t, here, failed()), "and so does one that has had a failure released")
	})
}

// One try is for all who ask, no more than 64 are under way at once, and a store that is back is not asked for one run after the other.
func TestTriesAreBounded(t *testing.T) {
	const runs, most = 300, 64
	synctest.Test(t, func(t *testing.T) {
		p := setApart(t, core.Config{})
		policy := core.ClientKey()
		policy.Lease = time.Hour
		g := p.here.MustGuard(policy)
		var ledger, underWay, top atomic.Int64
		var calls []*call
		for i := range runs {
			calls = append(calls, post("{}", &ledger).withKey(fmt.Sprint(i)))
		}
		p.begin(t, g, refused(), calls...)
		require.Equal(t, runs, p.here.Unsettled())
		p.link.breaks(func(ctx context.Context, call string) error {
			for at := underWay.Add(1); at > top.Load(); {
				top.Store(at)
			}
			defer underWay.Add(-1)
			return hang(ctx)
		}, nil)

		var served sync.WaitGroup
		time.Sleep(time.Minute) // no try is under way of each run
		asked := p.link.count("complete")
		for range 100 {
			served.Go(func() { assert.Equal(t, "replay", outcome(t, g, post("{}", &ledger).withKey("0"))) })
		}
		synctest.Wait()
		served.Wait()
		assert.LessOrEqual(t, p.link.count("complete")-asked, 2*most, "the callers have had one try")
		assert.EqualValues(t, most, top.Load())

		p.link.breaks(refused(), nil)
		time.Sleep(10 * time.Second) // none hangs any more
		p.link.breaks(nil, nil)
		back, asked, first := time.Now(), p.link.count("complete"), time.Time{}
		for p.here.Unsettled() > 0 {
			if time.Sleep(time.Millisecond); first.IsZero() && p.here.Unsettled() < runs {
				first = time.Now()
			}
		}
		assert.Less(t, time.Since(back), 5*time.Second)
		assert.LessOrEqual(t, time.Since(first), 2*time.Millisecond, "one that is taken says that the store is back")
		assert.LessOrEqual(t, p.link.count("complete")-asked, runs, "each once")
		assert.EqualValues(t, runs, ledger.Load())
	})
}

// What does not fit is given up, as if nothing were settled late; what has been settled makes room.
func TestUnsettledLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const room = 3
		result := strings.Repeat("r", 1000)
		p := setApart(t, core.Config{UnsettledLimit: room*(1<<10+1000) + 1<<10})
		policy := core.ClientKey()
		policy.Lease = time.Hour
		g := p.here.MustGuard(policy)
		for round := range 2 {
			var calls []*call
			for i := range room + 2 {
				calls = append(calls, post("{}", nil).withKey(fmt.Sprint(round, "-", i)).doing(answering(201, result)))
			}
			p.observed.all = nil
			p.begin(t, g, refused(), calls...)
			assert.Equal(t, room, p.here.Unsettled())
			kinds := p.observed.kinds()
			assert.Equal(t, []int{room, 2}, []int{count(kinds, core.Unsettled), count(kinds, core.RunUnfinished)}, kinds)
			p.link.breaks(nil, nil)
			time.Sleep(10 * time.Second)
			assert.Zero(t, p.here.Unsettled())
			replayed := 0
			for i := range room + 2 {
				switch met := outcome(t, g, post("{}", nil).withKey(fmt.Sprint(round, "-", i))); met {
				case "replay":
					replayed++
				default:
					assert.Equal(t, "in_progress", met, "until its lease passes")
				}
			}
			assert.Equal(t, room, replayed)
		}
	})
}

// A try whose answer was lost may have taken effect. The event has what the store said; of a record that is gone nobody can say by what.
func TestLostAnswersOfTries(t *testing.T) {
	for lost, ends := range map[string]core.Kind{"complete": core.Completed, "release": core.RunUnfinished} {
		bubble(t, lost, func(t *testing.T) {
			p, tries := setApart(t, core.Config{}), 0
			handler := map[string]func(context.Context) adapter.Capture{"complete": handlerOf(201), "release": handlerOf(500)}[lost]
			serve(t, p.here.MustGuard(core.ClientKey()), post("{}", nil).withKey("k").doing(handler).after(func(context.Context) {
				p.link.breaks(nil, func(_ context.Context, call string) error {
					if tries++; call == lost && tries == 1 {
						return errDown
					}
					return nil
				})
			}))
			assert.Equal(t, ends, p.observed.last().Kind)
			assert.ErrorIs(t, p.observed.last().Err, errDown)
		})
	}
}

// The store takes all but the result. Others are kept off by renewals, and in the end the operation is remembered without its result.
func TestAResultThatIsNeverTaken(t *testing.T) {
	for _, tc := range []struct {
		lease, known time.Duration
		fault        error
		least        time.Duration
	}{
		{time.Second, 0, errDown, 20 * time.Second},         // the lease is shorter than the deadline
		{time.Minute, time.Hour, errDown, 42 * time.Second}, // a third of the lease lies between two renewals
		{3 * time.Second, 0, context.DeadlineExceeded, 200 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := setApart(t, core.Config{})
			policy := core.ClientKey()
			policy.Lease, policy.RefuseExpired = tc.lease, tc.known
			here, there := p.here.MustGuard(policy), p.there.MustGuard(policy)
			ask := func() *call { return post("{}", nil).withKey("k") }
			began := time.Now()
			p.begin(t, here, func(ctx context.Context, call string) error {
				if err := refused("complete", "outlive")(ctx, call); err != nil {
					return tc.fault
				}
				return nil
			}, ask())
			for p.here.Unsettled() > 0 {
				assert.Equal(t, "in_progress", outcome(t, there, ask()))
				assert.Equal(t, "replay", outcome(t, here, ask()))
				time.Sleep(500 * time.Millisecond)
			}
			synctest.Wait() // the last event is told after the count has fallen
			took := time.Since(began)
			assert.GreaterOrEqual(t, took, tc.least)
			assert.Less(t, took, tc.least+20*time.Second)
			assert.GreaterOrEqual(t, p.link.count("renew"), 3)
			p.observed.all = slices.DeleteFunc(p.observed.all, func(ev core.Event) bool { return !slices.Contains(endingKinds, ev.Kind) })
			ended := p.observed.last()
			assert.Equal(t, core.Completed, ended.Kind)
			assert.ErrorIs(t, ended.Err, store.ErrFull)
			assert.ErrorIs(t, ended.Err, tc.fault)
			for _, g := range []*core.Guard{here, there} {
				assert.Equal(t, "result_unavailable", outcome(t, g, ask()))
			}
		})
	}
}

// A failure that is never taken is not in the way for longer than three renewals and a lease.
func TestAFailureThatIsNeverTaken(t *testing.T) {
	for refuse, end := range map[string]func(context.Context) adapter.Capture{"release": handlerOf(500), "abandon": abandoning} {
		bubble(t, refuse, func(t *testing.T) {
			p := setApart(t, core.Config{})
			policy := core.ClientKey()
			policy.Lease = 3 * time.Second
			here, there := p.here.MustGuard(policy), p.there.MustGuard(policy)
			ask := func() *call { return post("{}", nil).withKey("k") }
			began := time.Now()
			p.begin(t, here, refused(refuse, "acquire"), ask().doing(end))
			time.Sleep(2 * time.Second)
			assert.Equal(t, "in_progress", outcome(t, here, ask()), "the lease has been renewed")
			for outcome(t, there, ask()) == "in_progress" {
				time.Sleep(100 * time.Millisecond)
			}
			assert.Equal(t, 3, p.link.count("renew"))
			assert.Less(t, time.Since(began), 15*time.Second)
			p.link.breaks(nil, nil)
			time.Sleep(5 * time.Second)
			assert.Equal(t, 1, count(p.observed.kinds(), core.RunLost))
			assert.Equal(t, "replay", outcome(t, here, ask()))
		})
	}
}

// A result that is taken at last is whole, although there was no room for it, nor for the record, before.
func TestAFullStoreThatMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := setApart(t, core.Config{})
		policy := core.ClientKey()
		policy.Lease = time.Minute
		g := p.here.MustGuard(policy)
		began := time.Now()
		p.begin(t, g, func(context.Context, string) error { return store.ErrFull }, post("{}", nil).withKey("k"))
		assert.Less(t, time.Since(began), time.Second, "that it is full is an answer: the client need not wait")
		p.link.breaks(nil, nil)
		time.Sleep(5 * time.Second)
		assert.Equal(t, core.Completed, p.observed.last().Kind)
		assert.NoError(t, p.observed.last().Err)
		assert.Equal(t, "replay", outcome(t, p.there.MustGuard(policy), post("{}", nil).withKey("k")))
	})
}

// Drain waits for what is unsettled, and has the store asked at once. When its context ends, it gives up.
func TestDrainSettles(t *testing.T) {
	for name, tc := range map[string]struct {
		back time.Duration
		ends core.Kind
		err  error
	}{"back in time": {3 * time.Second, core.Completed, nil}, "not back": {time.Hour, core.RunUnfinished, context.DeadlineExceeded}} {
		for outage, fault := range map[string]func(context.Context, string) error{"refuses": refused(), "hangs": hanging} {
			bubble(t, name+", the store "+outage, func(t *testing.T) {
				p := setApart(t, core.Config{})
				policy := core.ClientKey()
				policy.Lease = time.Hour
				g := p.here.MustGuard(policy)
				var calls []*call
				for i := range 100 {
					calls = append(calls, post("{}", nil).withKey(fmt.Sprint(i)))
				}
				p.begin(t, g, fault, calls...)
				time.Sleep(time.Minute) // the pauses have grown
				p.observed.all = nil
				began := time.Now()
				p.link.breaks(func(ctx context.Context, call string) error {
					if time.Since(began) < tc.back {
						return fault(ctx, call)
					}
					return nil
				}, nil)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				asked := p.link.count("complete")
				time.AfterFunc(time.Millisecond, func() {
					if outage == "refuses" { // else tries are under way
						assert.GreaterOrEqual(t, p.link.count("complete")-asked, 50, "the store is asked at once")
					}
				})
				assert.ErrorIs(t, p.here.Drain(ctx), tc.err)
				assert.LessOrEqual(t, time.Since(began), 12*time.Second)
				time.Sleep(5 * time.Second) // tries that were under way
				assert.Zero(t, p.here.Unsettled())
				assert.Equal(t, 100, count(p.observed.kinds(), tc.ends), p.observed.kinds())
				calls2 := len(p.link.calls)
				time.Sleep(time.Minute)
				assert.Len(t, p.link.calls, calls2)
			})
		}
	}

	bubble(t, "a run that ends afterwards", func(t *testing.T) {
		p := setApart(t, core.Config{})
		g := p.here.MustGuard(core.ClientKey())
		p.begin(t, g, refused(), post("{}", nil).withKey("k").after(func(context.Context) { assert.Error(t, p.here.Drain(over())) }))
		assert.Equal(t, []core.Kind{core.RunUnfinished}, p.observed.kinds())
	})
}

// What the store never takes is given up at last, as long after the run as it would be remembered.
func TestUnsettledForTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := setApart(t, core.Config{})
		policy := core.ClientKey()
		policy.RememberAbandoned = time.Hour
		g := p.here.MustGuard(policy)
		ended := time.Now()
		p.begin(t, g, func(context.Context, string) error {
			if time.Since(ended) > time.Minute {
				return errors.New("another fault")
			}
			return errDown
		}, post("{}", nil).withKey("k"))
		time.Sleep(time.Hour - 10*time.Second)
		assert.Equal(t, "replay", outcome(t, g, post("{}", nil).withKey("k")))
		assert.Less(t, p.link.count("complete"), 6000, "the pauses have grown")
		time.Sleep(20 * time.Second)
		assert.Zero(t, p.here.Unsettled())
		last := p.observed.last()
		assert.Equal(t, core.RunUnfinished, last.Kind)
		assert.True(t, last.Late)
		assert.ErrorIs(t, last.Err, errDown, "the first")
		assert.Equal(t, "store_unavailable", outcome(t, g, post("{}", nil).withKey("k")))
	})
}
