package amqpidem

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/idemtest"
)

// desk decides about deliveries without a broker.
type desk struct {
	*Handler
	t      *testing.T
	engine *idemtest.Engine
	ran    []Attempt
	last   decision
}

// decide returns what is decided about a delivery, in words.
func (k *desk) decide(ctx context.Context, d amqp.Delivery) (says string) {
	var decided sync.WaitGroup
	decided.Go(func() { // which runtime.Goexit ends
		k.handle(ctx, &d, func(_ *run, what decision) { k.last = what })
	})
	decided.Wait()
	says = string(k.last.outcome)
	if k.last.reason != "" {
		says += " " + k.last.reason
	}
	if k.last.attempt > 0 {
		says += fmt.Sprint(" #", k.last.attempt)
	}
	if k.last.delay > 0 {
		says += fmt.Sprint(" ", k.last.delay)
		assert.Equal(k.t, k.topology.delayQueue(k.last.delay), k.last.queue)
	}
	if k.last.outcome == Dead {
		says += fmt.Sprint(" after ", k.last.past.attempts)
		assert.Equal(k.t, k.topology.DeadLetters(), k.last.queue)
	}
	return says
}

// walk follows a message to its end, or as far as n deliveries.
func (k *desk) walk(d amqp.Delivery, n int) (all []string) {
	for range n {
		all = append(all, k.decide(k.t.Context(), d))
		if k.last.delay == 0 {
			break
		}
		d.Headers = copyFor(&d, k.last.queue, k.last.past, d.Headers).Publishing.Headers
		d.Headers["x-death"] = []any{amqp.Table{"queue": k.last.queue}}
		d.Redelivered = false
	}
	return all
}

// again is a delivery that comes for the n-th time since it was published.
func again(id string, n int) amqp.Delivery {
	return amqp.Delivery{MessageId: id, Body: []byte("body"), Redelivered: true, Headers: amqp.Table{"x-delivery-count": int64(n - 1)}}
}

// uncertain is a policy of which nobody knows whether a run that has failed took effect.
func uncertain(reconcile func(context.Context, core.Uncertainty) (core.Verdict, error)) core.TaskPolicy {
	return core.TaskPolicy{Record: core.Record{OnFailure: core.Abandon, Abandoned: core.Uncertain(reconcile)}}
}

// The states of a message: what is decided about its deliveries, and about each that comes back after a delay.
func TestDecisions(t *testing.T) {
	refused := func(c codes.Code) error { return fmt.Errorf("charge: %w", core.NewRefusal(c, errBroken)) }
	verdict := func(v core.Verdict, err error) core.TaskPolicy {
		return uncertain(func(context.Context, core.Uncertainty) (core.Verdict, error) { return v, err })
	}
	errs := func(errs ...error) func(*desk, context.Context, *amqp.Delivery) error {
		return func(k *desk, _ context.Context, _ *amqp.Delivery) error { return errs[min(len(k.ran), len(errs))-1] }
	}
	message := func(id, body string) amqp.Delivery { return amqp.Delivery{MessageId: id, Body: []byte(body)} }
	once, twice := []amqp.Delivery{message("1", "body")}, []amqp.Delivery{message("1", "body"), message("1", "body")}
	anonymous := []amqp.Delivery{message("", "body"), message("", "body"), message("", "another")}
	for _, c := range []struct {
		name     string
		policy   core.TaskPolicy
		config   Config
		before   func(*desk)
		comes    []amqp.Delivery
		fn       func(*desk, context.Context, *amqp.Delivery) error
		want     []string
		runs     int
		numbered uint64 // as the store counts the last run, if it matters
	}{
		{name: "done, and done before", policy: core.TaskPolicy{Duplicate: core.Reject("")}, comes: twice,
			want: []string{"done #1", "duplicate"}, runs: 1},
		{name: "a stored result", comes: twice, want: []string{"done #1", "duplicate"}, runs: 1},
		{name: "a waiting policy", policy: core.TaskPolicy{Duplicate: core.Wait(time.Second)}, comes: twice,
			want: []string{"done #1", "duplicate"}, runs: 1},
		{name: "done before, and nothing else is known of it", comes: once, before: func(k *desk) {
			call, _ := k.call(&once[0])
			// Its result can't be stored.
			_, err := core.Do(t.Context(), k.config.Task, call, func(context.Context) (func(), error) { return func() {}, nil })
			require.NoError(t, err)
		}, want: []string{"duplicate"}},
		{name: "running elsewhere", before: func(k *desk) { k.engine.NextIsRunning(time.Hour) }, comes: once,
			want: []string{"deferred in_progress 1s", "deferred in_progress 5s", "deferred in_progress 30s", "deferred in_progress 30s"}},
		{name: "fails three times", comes: once, fn: errs(errBroken, errBroken, errBroken, nil),
			want: []string{"failed #1 1s", "failed #2 5s", "failed #3 30s", "done #4"}, runs: 4},
		{name: "fails, and is published again", comes: twice, fn: errs(errBroken),
			want: []string{"failed #1 1s", "failed #2 5s", "failed #3 30s", "dead failed #4 after 4",
				"failed #1 1s", "failed #2 5s", "failed #3 30s", "dead failed #4 after 4"}, runs: 8},
		{name: "more attempts than delays", config: Config{Attempts: 5}, comes: once, fn: errs(errBroken),
			want: []string{"failed #1 1s", "failed #2 5s", "failed #3 30s", "failed #4 30s", "dead failed #5 after 5"}, runs: 5},
		{name: "panics", config: Config{Attempts: 2}, comes: once,
			fn:   func(*desk, context.Context, *amqp.Delivery) error { panic("nil map") },
			want: []string{"failed #1 1s", "dead panicked #2 after 2"}, runs: 2},
		{name: "ends its goroutine", config: Config{Attempts: 2}, comes: once,
			fn:   func(*desk, context.Context, *amqp.Delivery) error { runtime.Goexit(); return nil },
			want: []string{"failed #1 1s", "dead panicked #2 after 2"}, runs: 2},
		{name: "fails for good", comes: once, fn: errs(fmt.Errorf("order 7: %w", Permanent(errBroken))),
			want: []string{"dead permanent #1 after 1"}, runs: 1},
		{name: "is refused for good", comes: once, fn: errs(Permanent(refused(codes.InProgress))),
			want: []string{"dead permanent #1 after 1"}, runs: 1},

		{name: "uncertain, and nobody is asked", policy: uncertain(nil), comes: once, fn: errs(errBroken),
			want: []string{"failed #1 1s", "dead uncertain after 1"}, runs: 1},
		{name: "uncertain, and nobody knows", policy: verdict(core.Unknown(), nil), comes: once, fn: errs(errBroken),
			want: []string{"failed #1 1s", "dead uncertain after 1"}, runs: 1},
		{name: "uncertain, and asking fails", policy: verdict(core.RunAgain(), errBroken), comes: once, fn: errs(errBroken),
			want: []string{"failed #1 1s", "dead uncertain after 1"}, runs: 1},
		{name: "uncertain, and asking panics", comes: once, fn: errs(errBroken),
			policy: uncertain(func(context.Context, core.Uncertainty) (core.Verdict, error) { panic("nil map") }),
			want:   []string{"failed #1 1s", "failed #2 5s", "failed #3 30s", "dead panicked #4 after 4"}, runs: 1},
		{name: "uncertain, and it was done", policy: verdict(core.Finished[[]byte](nil), nil), comes: once, fn: errs(errBroken),
			want: []string{"failed #1 1s", "duplicate"}, runs: 1},
		{name: "uncertain, and it may run", policy: verdict(core.RunAgain(), nil), comes: once, fn: errs(errBroken, nil),
			want: []string{"failed #1 1s", "done #2"}, runs: 2},

		{name: "another body", comes: []amqp.Delivery{once[0], message("1", "another")},
			want: []string{"done #1", "dead key_reused after 0"}, runs: 1},
		{name: "no id", comes: anonymous[:1], want: []string{"dead no_message_id after 0"}},
		{name: "no id, but a digest", config: Config{WithoutID: Digest}, comes: anonymous, fn: errs(errBroken, nil),
			want: []string{"failed #1 1s", "done #2", "duplicate", "done #1"}, runs: 3},
		{name: "no id, and passes", config: Config{WithoutID: Pass}, comes: anonymous[:2],
			fn:   errs(errBroken, errBroken, errBroken, errBroken, nil),
			want: []string{"failed #1 1s", "failed #2 5s", "failed #3 30s", "dead failed #4 after 4", "done #1"}, runs: 5},
		{name: "no id, and panics", config: Config{WithoutID: Pass, Attempts: 1}, comes: anonymous[:1],
			fn:   func(*desk, context.Context, *amqp.Delivery) error { panic("nil map") },
			want: []string{"dead panicked #1 after 1"}, runs: 1},

		{name: "no store", before: func(k *desk) { k.engine.Fail(idemtest.Acquire) }, comes: once,
			want: []string{"deferred store_unavailable 1s", "deferred store_unavailable 5s"}},
		{name: "drained", before: func(k *desk) { require.NoError(t, k.engine.Drain(t.Context())) }, comes: once,
			want: []string{"deferred shutting_down 1s", "deferred shutting_down 5s"}},
		// What an operation within the function is refused for is no attempt if it will pass. The rest has failed, and is no refusal of
		// the message itself.
		{name: "refused within", comes: once,
			fn: errs(refused(codes.StoreUnavailable), refused(codes.Unfinished), refused(codes.InProgress), refused(codes.ShuttingDown),
				errBroken, refused(codes.StoreUnavailable), refused(codes.Duplicate), refused(codes.KeyReused), refused(codes.NoRun)),
			want: []string{"deferred store_unavailable 1s", "deferred unfinished 5s", "deferred in_progress 30s",
				"deferred shutting_down 30s", "failed #1 1s", "deferred store_unavailable 1s", "failed #2 5s", "failed #3 30s",
				"dead failed #4 after 4"}, runs: 9},
		{name: "loses its claim", policy: core.TaskPolicy{Record: core.Record{Lease: 50 * time.Millisecond}}, comes: once,
			fn: func(k *desk, ctx context.Context, _ *amqp.Delivery) error {
				if len(k.ran) == 2 {
					return nil
				}
				k.engine.Fail(idemtest.Renew)
				<-ctx.Done()
				k.engine.Fail()
				assert.ErrorIs(k.t, context.Cause(ctx), core.ErrLeaseLost)
				return context.Cause(ctx)
			}, want: []string{"deferred interrupted 1s", "done #1"}, runs: 2},

		// A run that never came back is an attempt, if the store has seen it: nothing else bounds how often a message may
		// take a process with it.
		{name: "two runs never came back", before: func(k *desk) { k.engine.NextIsAbandoned(2) },
			comes: []amqp.Delivery{again("1", 3), once[0]}, fn: errs(errBroken),
			want: []string{"failed #3 30s", "dead failed #4 after 4",
				"failed #1 1s", "failed #2 5s", "failed #3 30s", "dead failed #4 after 4"}, runs: 6, numbered: 8},
		{name: "no run came back", before: func(k *desk) { k.engine.NextIsAbandoned(4) }, comes: []amqp.Delivery{again("1", 5)},
			want: []string{"dead exhausted #5 after 4"}},
		{name: "a redelivery without a run is none", comes: []amqp.Delivery{again("1", 3)}, want: []string{"done #1"}, runs: 1},
		{name: "the store has seen runs of earlier publishings", before: func(k *desk) { k.engine.NextIsAbandoned(6) },
			comes: []amqp.Delivery{again("1", 2)}, fn: errs(errBroken),
			want: []string{"failed #2 5s", "failed #3 30s", "dead failed #4 after 4"}, runs: 3, numbered: 9},
		{name: "a copy comes again, and no run had begun", before: func(k *desk) { k.engine.NextIsAbandoned(3) },
			comes: []amqp.Delivery{{MessageId: "1", Redelivered: true, Headers: amqp.Table{headerAttempts: int64(1), headerRun: int64(3),
				"x-delivery-count": int64(1), "x-death": []any{amqp.Table{"queue": "orders.delay.1000"}}}}},
			want: []string{"done #2"}, runs: 1},
		{name: "a run does not come back, and its message is another copy by then", before: func(k *desk) {
			k.engine.NextIsRunning(time.Hour)
			assert.Equal(t, []string{"deferred in_progress 1s"}, k.walk(again("2", 2), 1))
			k.engine.Advance(2 * time.Hour)
		}, comes: []amqp.Delivery{{MessageId: "2", Body: []byte("body"),
			Headers: amqp.Table{headerLost: int64(1), "x-death": []any{amqp.Table{"queue": "orders.delay.1000"}}}}},
			want: []string{"done #2"}, runs: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := &desk{t: t, engine: idemtest.New(t, core.Config{})}
			c.policy.Name = "billing"
			c.config.Task, c.config.Publisher = k.engine.MustTask(c.policy), new(Publisher)
			c.config.Topology = Topology{Queue: "orders", Delays: []time.Duration{time.Second, 5 * time.Second, 30 * time.Second}}
			var number uint64
			var err error
			k.Handler, err = NewHandler(c.config, func(ctx context.Context, d *amqp.Delivery) error {
				k.ran, number = append(k.ran, AttemptFrom(ctx)), core.RunFrom(ctx).Attempt()
				if c.fn == nil {
					return nil
				}
				return c.fn(k, ctx, d)
			})
			require.NoError(t, err)
			if c.before != nil {
				c.before(k)
			}
			var got []string
			for _, d := range c.comes {
				if k.last.outcome == Dead { // an operator publishes it again, with all its headers
					d.Headers = copyFor(&d, k.last.queue, k.last.past, d.Headers).Publishing.Headers
				}
				got = append(got, k.walk(d, len(c.want)-len(got))...)
			}
			assert.Equal(t, c.want, got)
			assert.Len(t, k.ran, c.runs)
			assert.True(t, c.numbered == 0 || c.numbered == number, number)
			for _, a := range k.ran {
				assert.Equal(t, k.config.Attempts, a.Of)
			}
			if k.last.outcome == Dead && k.last.attempt > 0 && k.last.reason != "exhausted" && !strings.Contains(c.name, "asking panics") {
				assert.Equal(t, []any{number, 0}, []any{k.last.past.run, k.last.past.lost}, "what comes later is counted from there")
			}
			switch k.last.reason {
			case "panicked":
				assert.True(t, strings.HasPrefix(k.last.err.Error(), "panic: "), "without the stack: %v", k.last.err)
			case "permanent":
				assert.ErrorIs(t, k.last.err, errBroken)
			}
		})
	}
	assert.NoError(t, Permanent(nil))
}

// An operation is the app and the message: nobody's id is another one's digest.
func TestCall(t *testing.T) {
	const digest = "230d8358dc8e8890b4c58deeb62912ee2f20357ae92a5cc861b98e68fe31acb5" // SHA-256 of "body"
	task := core.MustNew(core.Config{}).MustTask(core.TaskPolicy{Name: "mail"})
	for id, key := range map[string]string{"a:b": "a:b", "": "#" + digest, "#" + digest: "##" + digest} {
		h := &Handler{config: Config{Task: task, WithoutID: Digest}}
		call := must(h.call(&amqp.Delivery{AppId: "shop", MessageId: id, Body: []byte("body")}))
		assert.Equal(t, core.Call{User: "shop", Key: key, Fingerprint: digest}, call)
	}
	seal := &core.Seal{DigestKey: []byte(digest), Keys: []core.Secret{{Name: "a", Key: []byte(digest[1:])}}}
	task = core.MustNew(core.Config{Seal: seal}).MustTask(core.TaskPolicy{Name: "mail"})
	call := must((&Handler{config: Config{Task: task, WithoutID: Digest}}).call(&amqp.Delivery{Body: []byte("body")}))
	assert.Equal(t, "#"+task.Digest([]byte("body")), call.Key)
	assert.NotContains(t, call.Key, digest)
}
