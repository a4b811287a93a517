package amqpidem_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/amqpidem"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/memstore"
	"github.com/idem-go/idem/core/store/sqlstore"
	"github.com/idem-go/idem/idemtest"
	"github.com/idem-go/idem/internal/backend"
)

// The states of a message, each against the broker.

func TestDoneIsAcknowledged(t *testing.T) {
	for _, duplicate := range []core.Duplicate{core.Reject(""), core.Replay()} {
		k := newKit(t, func(k *kit) { k.policy.Duplicate = duplicate })
		stop := k.start(succeed)
		k.publish("1", "body")
		e := k.settled(amqpidem.Done, 1)
		assert.Equal(t, 1, e.Attempt)
		stop()
		k.empty()
	}
}

func TestDuplicateOfDoneIsAcknowledgedAndNotRun(t *testing.T) {
	for _, duplicate := range []core.Duplicate{core.Reject(""), core.Replay(), core.Wait(time.Second)} {
		k := newKit(t, func(k *kit) { k.policy.Duplicate = duplicate })
		stop := k.start(succeed)
		k.publish("1", "body")
		k.settled(amqpidem.Done, 1)
		k.publish("1", "body")
		e := k.settled(amqpidem.Duplicate, 1)
		assert.Zero(t, e.Attempt)
		assert.NoError(t, e.Err)
		assert.Len(t, k.runs(), 1)
		stop()
		k.empty()
	}
}

// What is done is done, also if nothing is known of it but that.
func TestDuplicateOfDoneWithoutAResult(t *testing.T) {
	k := newKit(t, func(k *kit) { k.policy.Duplicate = core.Replay() })
	_, err := core.Do(t.Context(), k.config.Task, core.Call{Key: "1", Fingerprint: bodyDigest},
		func(context.Context) (func(), error) { return func() {}, nil }) // can't be stored
	require.NoError(t, err)
	stop := k.start(succeed)
	k.publish("1", "body")
	k.settled(amqpidem.Duplicate, 1)
	assert.Empty(t, k.runs())
	stop()
	k.empty()
}

// bodyDigest is the SHA-256 digest of "body".
const bodyDigest = "230d8358dc8e8890b4c58deeb62912ee2f20357ae92a5cc861b98e68fe31acb5"

func TestDuplicateOfRunningComesBackAfterADelay(t *testing.T) {
	k := newKit(t)
	release := make(chan struct{})
	stop := k.start(func(context.Context, *amqp.Delivery) error {
		<-release
		return nil
	})
	k.publish("1", "body")
	k.eventually("running", func() bool { return len(k.runs()) == 1 })
	k.publish("1", "body")
	e := k.settled(amqpidem.Deferred, 4)
	assert.Equal(t, string(codes.InProgress), e.Reason)
	assert.Zero(t, e.Attempt, "no attempt is counted")
	assert.Equal(t, k.topology.Delays[2], e.Delay, "the delays grow, so that it is no hot loop")
	close(release)
	k.settled(amqpidem.Done, 1)
	k.settled(amqpidem.Duplicate, 1)
	assert.Len(t, k.runs(), 1)
	stop()
	k.empty()
}

func TestFailedComesBackAfterGrowingDelays(t *testing.T) {
	k := newKit(t)
	var tries atomic.Int64
	stop := k.start(func(_ context.Context, d *amqp.Delivery) error {
		if tries.Add(1) < 4 {
			return errBroken
		}
		return nil
	})
	k.publish("1", "body")
	e := k.settled(amqpidem.Done, 1)
	assert.Equal(t, 4, e.Attempt)
	runs := k.runs()
	require.Len(t, runs, 4)
	for i, r := range runs {
		assert.Equal(t, i+1, r.attempt.Number)
		assert.Equal(t, 4, r.attempt.Of)
		assert.Equal(t, 1, r.attempt.Deliveries)
		assert.Equal(t, runs[0].attempt.FirstSeen.Unix(), r.attempt.FirstSeen.Unix(), "it stays that of the first")
		if i > 0 {
			assert.GreaterOrEqual(t, r.at.Sub(runs[i-1].at), k.topology.Delays[i-1])
		}
	}
	stop()
	k.empty()
}

func TestLastAttemptMakesADeadLetter(t *testing.T) {
	k := newKit(t)
	before := time.Now().Truncate(time.Second)
	stop := k.start(func(context.Context, *amqp.Delivery) error {
		return errors.New(strings.Repeat("é", 1000)) // 2000 bytes
	})
	k.publish("1", "body", func(m *amqp.Publishing) { m.Headers = amqp.Table{"tenant": "acme"} })
	e := k.settled(amqpidem.Dead, 1)
	assert.Equal(t, 4, e.Attempt)
	assert.Equal(t, "failed", e.Reason)
	d := k.take(k.topology.DeadLetters())
	assert.Equal(t, "body", string(d.Body))
	assert.Equal(t, "1", d.MessageId)
	assert.Equal(t, "acme", d.Headers["tenant"])
	assert.EqualValues(t, 4, d.Headers["x-idem-attempts"])
	assert.Equal(t, "failed", d.Headers["x-idem-reason"])
	text := d.Headers["x-idem-error"].(string)
	assert.LessOrEqual(t, len(text), 1024, "it is bounded")
	assert.Equal(t, strings.Repeat("é", 510)+"…", text)
	seen, err := time.Parse(time.RFC3339, d.Headers["x-idem-first-seen"].(string))
	require.NoError(t, err)
	assert.WithinRange(t, seen, before, time.Now())
	assert.Len(t, k.runs(), 4)
	stop()
	k.empty()
}

func TestPanicIsAFailure(t *testing.T) {
	k := newKit(t)
	stop := k.start(func(context.Context, *amqp.Delivery) error { panic("nil map") })
	k.publish("1", "body")
	e := k.settled(amqpidem.Dead, 1)
	assert.Equal(t, "panicked", e.Reason)
	assert.Contains(t, string(e.Stack), "TestPanicIsAFailure")
	assert.Len(t, k.runs(), 4)
	assert.Equal(t, "panic: nil map", k.take(k.topology.DeadLetters()).Headers["x-idem-error"], "without the stack")
	stop()
	k.empty()
}

// A function may end its goroutine: FailNow of a test does. The consumer goes on.
func TestGoexitIsAFailure(t *testing.T) {
	k := newKit(t, func(k *kit) { k.consumer.Concurrency, k.consumer.Prefetch = 1, 1 })
	stop := k.start(func(context.Context, *amqp.Delivery) error { runtime.Goexit(); return nil })
	k.publish("1", "body")
	e := k.settled(amqpidem.Dead, 1)
	assert.Equal(t, "panicked", e.Reason)
	assert.Len(t, k.runs(), 4)
	assert.Equal(t, "panic: runtime.Goexit", k.take(k.topology.DeadLetters()).Headers["x-idem-error"])
	stop()
	k.empty()
}

func TestPermanentErrorMakesADeadLetterAtOnce(t *testing.T) {
	k := newKit(t)
	stop := k.start(func(context.Context, *amqp.Delivery) error {
		return fmt.Errorf("order 7: %w", amqpidem.Permanent(errBroken))
	})
	k.publish("1", "body")
	e := k.settled(amqpidem.Dead, 1)
	assert.ErrorIs(t, e.Err, errBroken)
	assert.Len(t, k.runs(), 1)
	d := k.take(k.topology.DeadLetters())
	assert.Equal(t, "permanent", d.Headers["x-idem-reason"])
	assert.Equal(t, "order 7: the card was declined", d.Headers["x-idem-error"])
	assert.EqualValues(t, 1, d.Headers["x-idem-attempts"])
	stop()
	k.empty()
	assert.NoError(t, amqpidem.Permanent(nil))
}

// The function's word counts, also about what else would be put off without an attempt.
func TestPermanentRefusalMakesADeadLetterAtOnce(t *testing.T) {
	k := newKit(t)
	stop := k.start(func(context.Context, *amqp.Delivery) error {
		return amqpidem.Permanent(core.NewRefusal(codes.InProgress, errBroken))
	})
	k.publish("1", "body")
	assert.Equal(t, "permanent", k.settled(amqpidem.Dead, 1).Reason)
	k.take(k.topology.DeadLetters())
	stop()
	k.empty()
}

// uncertain is a policy of which nobody knows whether a run that has failed took effect.
func uncertain(reconcile func(context.Context, core.Uncertainty) (core.Verdict, error)) func(*kit) {
	return func(k *kit) {
		k.policy.OnFailure, k.policy.Abandoned = core.Abandon, core.Uncertain(reconcile)
	}
}

func TestUncertainMakesADeadLetter(t *testing.T) {
	for name, change := range map[string]func(*kit){
		"nobody is asked": uncertain(nil),
		"unknown": uncertain(func(context.Context, core.Uncertainty) (core.Verdict, error) {
			return core.Unknown(), nil
		}),
		"asking fails": uncertain(func(context.Context, core.Uncertainty) (core.Verdict, error) {
			return core.RunAgain(), errBroken
		}),
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t, change)
			stop := k.start(fail)
			k.publish("1", "body")
			e := k.settled(amqpidem.Dead, 1)
			assert.Equal(t, string(codes.Uncertain), e.Reason)
			d := k.take(k.topology.DeadLetters())
			assert.Equal(t, "uncertain", d.Headers["x-idem-reason"])
			assert.Contains(t, d.Headers["x-idem-error"], "uncertain")
			assert.EqualValues(t, 1, d.Headers["x-idem-attempts"])
			assert.Len(t, k.runs(), 1, "it is not run again")
			stop()
			k.empty()
		})
	}
}

// Reconcile may panic, too. Its tries are bounded like those of any panic.
func TestUncertainWhenAskingPanics(t *testing.T) {
	k := newKit(t, uncertain(func(context.Context, core.Uncertainty) (core.Verdict, error) { panic("nil map") }))
	stop := k.start(fail)
	k.publish("1", "body")
	assert.Equal(t, "panicked", k.settled(amqpidem.Dead, 1).Reason)
	assert.EqualValues(t, 4, k.take(k.topology.DeadLetters()).Headers["x-idem-attempts"])
	assert.Len(t, k.runs(), 1)
	stop()
	k.empty()
}

func TestUncertainThatIsSettled(t *testing.T) {
	k := newKit(t, uncertain(func(context.Context, core.Uncertainty) (core.Verdict, error) {
		return core.Finished[[]byte](nil), nil
	}))
	stop := k.start(fail)
	k.publish("1", "body")
	k.settled(amqpidem.Duplicate, 1)
	assert.Len(t, k.runs(), 1)
	stop()
	k.empty()
}

func TestUncertainThatMayRunAgain(t *testing.T) {
	k := newKit(t, uncertain(func(context.Context, core.Uncertainty) (core.Verdict, error) {
		return core.RunAgain(), nil
	}))
	stop := k.start(func(ctx context.Context, _ *amqp.Delivery) error {
		if core.RunFrom(ctx).Takeover() {
			return nil
		}
		return errBroken
	})
	k.publish("1", "body")
	k.settled(amqpidem.Done, 1)
	runs := k.runs()
	require.Len(t, runs, 2)
	assert.Equal(t, 2, runs[1].attempt.Number, "what the store has counted is not counted twice")
	stop()
	k.empty()
}

func TestSameIDWithAnotherBodyMakesADeadLetter(t *testing.T) {
	k := newKit(t)
	stop := k.start(succeed)
	k.publish("1", "body")
	k.settled(amqpidem.Done, 1)
	k.publish("1", "another")
	e := k.settled(amqpidem.Dead, 1)
	assert.Equal(t, string(codes.KeyReused), e.Reason)
	d := k.take(k.topology.DeadLetters())
	assert.Equal(t, "key_reused", d.Headers["x-idem-reason"])
	assert.Contains(t, d.Headers["x-idem-error"], "key_reused")
	assert.EqualValues(t, 0, d.Headers["x-idem-attempts"])
	assert.Equal(t, "another", string(d.Body))
	assert.Len(t, k.runs(), 1)
	stop()
	k.empty()
}

func TestMessageWithoutIDMakesADeadLetter(t *testing.T) {
	k := newKit(t)
	stop := k.start(succeed)
	k.publish("", "body")
	k.settled(amqpidem.Dead, 1)
	d := k.take(k.topology.DeadLetters())
	assert.Equal(t, "no_message_id", d.Headers["x-idem-reason"])
	assert.Empty(t, d.MessageId)
	assert.Empty(t, k.runs())
	stop()
	k.empty()
}

func TestMessageWithoutIDByItsDigest(t *testing.T) {
	k := newKit(t, func(k *kit) { k.config.WithoutID = amqpidem.Digest })
	var tries atomic.Int64
	stop := k.start(func(context.Context, *amqp.Delivery) error {
		if tries.Add(1) == 1 {
			return errBroken // on its way it gets no id
		}
		return nil
	})
	k.publish("", "body")
	k.settled(amqpidem.Done, 1)
	k.publish("", "body")
	k.settled(amqpidem.Duplicate, 1)
	k.publish("", "another")
	k.settled(amqpidem.Done, 2)
	// Nobody's id is another one's digest.
	k.publish("#"+bodyDigest, "body")
	k.settled(amqpidem.Done, 3)
	k.publish("#"+bodyDigest, "body")
	k.settled(amqpidem.Duplicate, 2)
	stop()
	k.empty()
}

func TestMessageWithoutIDPasses(t *testing.T) {
	k := newKit(t, func(k *kit) { k.config.WithoutID = amqpidem.Pass })
	stop := k.start(func(_ context.Context, d *amqp.Delivery) error {
		switch string(d.Body) {
		case "bad":
			return errBroken
		case "worse":
			panic("nil map")
		}
		return nil
	})
	k.publish("", "body")
	k.publish("", "body")
	k.settled(amqpidem.Done, 2)
	assert.Len(t, k.runs(), 2)
	k.publish("", "bad")
	k.settled(amqpidem.Dead, 1)
	assert.Len(t, k.runs(), 6, "attempts are counted all the same")
	assert.EqualValues(t, 4, k.take(k.topology.DeadLetters()).Headers["x-idem-attempts"])
	k.publish("", "worse")
	assert.Equal(t, "panicked", k.settled(amqpidem.Dead, 2).Reason)
	k.take(k.topology.DeadLetters())
	stop()
	k.empty()
}

// shut is a store that can't be reached while it is down.
type shut struct {
	store.Store
	down atomic.Bool
}

func (s *shut) Acquire(ctx context.Context, key string, c store.Claim) (store.Grant, error) {
	if s.down.Load() {
		return store.Grant{}, errors.New("connection refused")
	}
	return s.Store.Acquire(ctx, key, c)
}

func TestStoreUnavailableComesBackAfterADelay(t *testing.T) {
	inner, err := memstore.New(memstore.Options{})
	require.NoError(t, err)
	store := &shut{Store: inner}
	k := newKit(t, func(k *kit) { k.engine = core.MustNew(core.Config{Service: "shop", Store: store}) })
	store.down.Store(true)
	stop := k.start(succeed)
	k.publish("1", "body")
	e := k.settled(amqpidem.Deferred, 6)
	assert.Equal(t, string(codes.StoreUnavailable), e.Reason)
	assert.Empty(t, k.runs())
	store.down.Store(false)
	assert.Equal(t, 1, k.settled(amqpidem.Done, 1).Attempt, "none of them is counted")
	stop()
	k.empty()
}

// Of what an operation within the function is refused for, no attempt is counted if it will pass. The rest has
// failed, and is not taken for a refusal of the message itself.
func TestRefusalWithinTheFunction(t *testing.T) {
	k := newKit(t)
	refused := func(c codes.Code) error { return fmt.Errorf("charge: %w", core.NewRefusal(c, errBroken)) }
	steps := []struct {
		err     error
		outcome amqpidem.Outcome
		attempt int
		delay   int
	}{
		{refused(codes.StoreUnavailable), amqpidem.Deferred, 0, 0}, // what sqlstore's RunTx returns
		{refused(codes.Unfinished), amqpidem.Deferred, 0, 1},
		{refused(codes.InProgress), amqpidem.Deferred, 0, 2},
		{refused(codes.ShuttingDown), amqpidem.Deferred, 0, 2},
		{errBroken, amqpidem.Failed, 1, 0},
		{refused(codes.StoreUnavailable), amqpidem.Deferred, 0, 0}, // the delays begin anew
		{refused(codes.Duplicate), amqpidem.Failed, 2, 1},
		{refused(codes.KeyReused), amqpidem.Failed, 3, 2},
		{nil, amqpidem.Done, 4, 0},
	}
	var tries atomic.Int64
	stop := k.start(func(context.Context, *amqp.Delivery) error { return steps[tries.Add(1)-1].err })
	k.publish("1", "body")
	k.settled(amqpidem.Done, 1)
	stop()
	var got []amqpidem.Event
	for _, e := range k.events {
		if e.Stage == amqpidem.Settled {
			got = append(got, e)
		}
	}
	require.Len(t, got, len(steps))
	for i, s := range steps {
		assert.Equal(t, []any{s.outcome, s.attempt}, []any{got[i].Outcome, got[i].Attempt}, i)
		if s.err != nil {
			assert.Equal(t, k.topology.Delays[s.delay], got[i].Delay, i)
		}
	}
	k.empty()
}

// RunTx on another store than the engine's will never succeed: it is a failure like any other.
func TestRunTxOnAnotherStoreFails(t *testing.T) {
	table := "idem_test_" + strings.ToLower(rand.Text())
	records, err := sqlstore.NewURL(t.Context(), backend.Postgres(t), sqlstore.Table(table))
	require.NoError(t, err)
	t.Cleanup(records.Close)
	db, err := sql.Open("pgx", backend.Postgres(t))
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := db.Exec("DROP TABLE " + table)
		assert.NoError(t, err)
		assert.NoError(t, db.Close())
	})
	k := newKit(t)
	stop := k.start(func(ctx context.Context, _ *amqp.Delivery) error {
		_, err := records.RunTx(ctx, db, func(*sql.Tx) ([]byte, error) { return nil, errBroken })
		return err
	})
	k.publish("1", "body")
	dead := k.settled(amqpidem.Dead, 1)
	stop()
	assert.Equal(t, "failed", dead.Reason)
	assert.ErrorIs(t, dead.Err, codes.NoRun)
	assert.Equal(t, []int{3, 0}, []int{k.count(amqpidem.Settled, amqpidem.Failed), k.count(amqpidem.Settled, amqpidem.Deferred)})
	k.take(k.topology.DeadLetters())
	k.empty()
}

// A run whose claim was lost is no attempt: another one may have begun.
func TestLostClaimIsNoAttempt(t *testing.T) {
	e := idemtest.New(t, core.Config{})
	k := newKit(t, func(k *kit) { k.engine, k.policy.Lease = e.Engine, 50*time.Millisecond })
	var tries atomic.Int64
	stop := k.start(func(ctx context.Context, _ *amqp.Delivery) error {
		if tries.Add(1) == 2 {
			return nil
		}
		e.Fail(idemtest.Renew)
		<-ctx.Done()
		e.Fail()
		return context.Cause(ctx)
	})
	k.publish("1", "body")
	assert.Equal(t, 1, k.settled(amqpidem.Done, 1).Attempt)
	lost := k.settled(amqpidem.Deferred, 1)
	assert.Equal(t, "interrupted", lost.Reason)
	assert.ErrorIs(t, lost.Err, core.ErrLeaseLost)
	stop()
	k.empty()
}

// The end of its context ends the function, which is no attempt, and does not keep the delivery from being settled.
func TestHandleSettlesAfterTheEndOfItsContext(t *testing.T) {
	k := newKit(t)
	require.NoError(t, k.topology.Declare(k.conn))
	k.publish("1", "body")
	k.publish("2", "body")
	ch, err := k.conn.Channel()
	require.NoError(t, err)
	first, second := k.get(ch), k.get(ch)
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, k.handler(func(ctx context.Context, _ *amqp.Delivery) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}).Handle(ctx, second))
	assert.Equal(t, "interrupted", k.settled(amqpidem.Deferred, 1).Reason)
	assert.Equal(t, "2", k.take(k.topology.Queue).MessageId)
	require.NoError(t, ch.Close())
	assert.Equal(t, first.MessageId, k.take(k.topology.Queue).MessageId, "it alone was settled")
	k.empty()
}

func TestDrainedEngineIsNoAttempt(t *testing.T) {
	k := newKit(t)
	require.NoError(t, k.engine.Drain(t.Context()))
	stop := k.start(succeed)
	k.publish("1", "body")
	assert.Equal(t, string(codes.ShuttingDown), k.settled(amqpidem.Deferred, 1).Reason)
	stop()
}

// A run that never came back is an attempt, if the store has seen it: nothing else bounds how often a
// message may take a process with it that comes back through a delay.
func TestRunsThatNeverCameBackAreAttempts(t *testing.T) {
	records, err := memstore.New(memstore.Options{})
	require.NoError(t, err)
	k := newKit(t, func(k *kit) { k.engine = core.MustNew(core.Config{Store: records}) })
	require.NoError(t, k.topology.Declare(k.conn))
	lease, last := time.Duration(1), store.NewOwner()
	key := func(id string) string { return "idem:U=M=DO%20" + k.policy.Name + "K=" + id }
	crash := func(id string, times int) {
		k.publish(id, "body")
		for range times {
			ch, err := k.conn.Channel()
			require.NoError(t, err)
			k.get(ch)
			g, err := records.Acquire(t.Context(), key(id), store.Claim{Owner: last,
				Fingerprint: bodyDigest, Lease: lease, Retention: time.Hour, Takeover: true})
			require.NoError(t, err)
			require.Equal(t, store.Acquired, g.State)
			require.NoError(t, ch.Close())
		}
	}
	crash("1", 2)
	stop := k.start(func(_ context.Context, d *amqp.Delivery) error {
		if d.MessageId == "3" {
			return nil
		}
		return errBroken
	})
	k.settled(amqpidem.Dead, 1)
	runs := k.runs()
	require.Len(t, runs, 2, "two of the four attempts never came back")
	assert.Equal(t, 3, runs[0].attempt.Number)
	assert.EqualValues(t, 3, runs[0].number)
	assert.Equal(t, 4, runs[1].attempt.Number)
	assert.EqualValues(t, 4, runs[1].number)
	dead := k.take(k.topology.DeadLetters())
	assert.EqualValues(t, 4, dead.Headers["x-idem-attempts"])

	// A replay begins anew, although the numbers of the store do not.
	k.put(amqp.Publishing{MessageId: "1", Body: dead.Body, Headers: dead.Headers})
	k.settled(amqpidem.Dead, 2)
	assert.Len(t, k.runs(), 6)
	k.take(k.topology.DeadLetters())

	stop()
	crash("2", 4)
	stop = k.start(fail)
	e := k.settled(amqpidem.Dead, 3)
	assert.Equal(t, "exhausted", e.Reason)
	assert.Len(t, k.runs(), 6, "it is not run a fifth time")
	d := k.take(k.topology.DeadLetters())
	assert.Equal(t, "exhausted", d.Headers["x-idem-reason"])
	assert.EqualValues(t, 4, d.Headers["x-idem-attempts"])

	// Nor need a replay bring the headers that tell which runs were before it.
	stop()
	crash("2", 1)
	stop = k.start(fail)
	k.settled(amqpidem.Dead, 4)
	runs = k.runs()
	require.Len(t, runs, 9)
	assert.Equal(t, 2, runs[6].attempt.Number, "the run that has crashed was the first")
	assert.EqualValues(t, 7, runs[6].number)
	k.take(k.topology.DeadLetters())

	// A run that never came back counts also if its lease has to pass before the next, and the message is another copy by then.
	stop()
	lease = time.Hour
	crash("4", 1)
	stop = k.start(fail)
	k.settled(amqpidem.Deferred, 1)
	require.NoError(t, records.Renew(t.Context(), key("4"), last, 1)) // it has passed
	k.settled(amqpidem.Dead, 5)
	runs = k.runs()
	require.Len(t, runs, 12)
	assert.Equal(t, []int{2, 1}, []int{runs[9].attempt.Number, runs[9].attempt.Deliveries})
	k.take(k.topology.DeadLetters())
	stop()
	k.empty()
}

func TestReplayFromTheDeadLettersBeginsAnew(t *testing.T) {
	k := newKit(t)
	var mended atomic.Bool
	stop := k.start(func(context.Context, *amqp.Delivery) error {
		if mended.Load() {
			return nil
		}
		return errBroken
	})
	k.publish("1", "body")
	k.settled(amqpidem.Dead, 1)
	dead := k.take(k.topology.DeadLetters())

	// As an operator, or a shovel, does: the message with all its headers.
	replay := amqp.Publishing{MessageId: dead.MessageId, Body: dead.Body, Headers: dead.Headers}
	k.put(replay)
	k.settled(amqpidem.Dead, 2)
	runs := k.runs()
	require.Len(t, runs, 8)
	assert.Equal(t, 1, runs[4].attempt.Number)
	assert.Equal(t, 4, runs[7].attempt.Number)
	again := k.take(k.topology.DeadLetters())
	assert.EqualValues(t, 4, again.Headers["x-idem-attempts"])

	mended.Store(true)
	k.put(replay)
	assert.Equal(t, 1, k.settled(amqpidem.Done, 1).Attempt)
	stop()
	k.empty()
}

func TestKeyIsConsumerAppAndMessage(t *testing.T) {
	k := newKit(t)
	stop := k.start(succeed)
	ids := [][2]string{{"", "a:b"}, {"a", "b"}, {"a:b", ""}, {"a:b", "c"}, {"a", "b:c"}, {"a K=", "b"}, {"a", "K=b"}, {"A", "b"}}
	ran := 0
	for _, id := range ids {
		if id[1] == "" {
			continue // has no message id
		}
		k.publish(id[1], "body", func(m *amqp.Publishing) { m.AppId = id[0] })
		ran++
		k.settled(amqpidem.Done, ran)
	}
	for i, id := range ids[:2] {
		k.publish(id[1], "body", func(m *amqp.Publishing) { m.AppId = id[0] })
		k.settled(amqpidem.Duplicate, i+1)
	}
	stop()
	k.empty()
}

// Two queues that get one message each run it once: they have two consumers, with two names.
func TestTwoQueuesRunOneMessageOnceEach(t *testing.T) {
	store, err := memstore.New(memstore.Options{})
	require.NoError(t, err)
	engine := core.MustNew(core.Config{Store: store})
	shared := func(k *kit) { k.engine = engine }
	mail := newKit(t, shared)
	exchange := mail.topology.Queue
	require.NoError(t, mail.ch.ExchangeDeclare(exchange, "fanout", false, true, false, false, nil))
	bound := func(k *kit) {
		shared(k)
		k.topology.Bindings = []amqpidem.Binding{{Exchange: exchange, Key: "order.created"}}
	}
	mail, bill := newKit(t, bound), newKit(t, bound)
	stops := []func(){mail.start(succeed), bill.start(succeed)}
	for range 2 {
		require.NoError(t, mail.publisher.Publish(t.Context(), amqpidem.Message{
			Exchange: exchange, Key: "order.created", Publishing: amqp.Publishing{MessageId: "order-1", Body: []byte("body")},
		}))
	}
	for _, k := range []*kit{mail, bill} {
		k.settled(amqpidem.Done, 1)
		k.settled(amqpidem.Duplicate, 1)
		assert.Len(t, k.runs(), 1)
	}
	for i, k := range []*kit{mail, bill} {
		stops[i]()
		k.empty()
	}
}

func TestFunctionSeesTheMessageAsItWasPublished(t *testing.T) {
	k := newKit(t)
	require.NoError(t, k.ch.ExchangeDeclare(k.topology.Queue, "topic", false, true, false, false, nil))
	k.topology.Bindings = []amqpidem.Binding{{Exchange: k.topology.Queue, Key: "order.*"}}
	k.config.Topology = k.topology
	seen := make(chan amqp.Delivery, 2)
	stop := k.start(func(ctx context.Context, d *amqp.Delivery) error {
		seen <- *d
		if len(seen) == 1 {
			return errBroken
		}
		return nil
	})
	sent := amqp.Publishing{
		Headers: amqp.Table{"tenant": "acme", "shard": uint16(7), "size": uint32(8), "CC": []any{k.topology.DeadLetters()}}, ContentType: "application/json", ContentEncoding: "identity",
		Priority: 3, CorrelationId: "c", ReplyTo: "r", Expiration: "60000", MessageId: "1", Timestamp: time.Unix(1e9, 0), Type: "t",
		UserId: "guest", AppId: "shop", Body: []byte("{}"),
	}
	require.NoError(t, k.publisher.Publish(t.Context(), amqpidem.Message{Exchange: k.topology.Queue, Key: "order.created", Publishing: sent}))
	k.settled(amqpidem.Done, 1)
	first, second := <-seen, <-seen
	for _, d := range []amqp.Delivery{first, second} {
		assert.Equal(t, k.topology.Queue, d.Exchange)
		assert.Equal(t, "order.created", d.RoutingKey)
		assert.Equal(t, []any{"acme", uint16(7), uint32(8)}, []any{d.Headers["tenant"], d.Headers["shard"], d.Headers["size"]})
		assert.Equal(t, []any{"application/json", "identity", uint8(3), "c", "r", "1", int64(1e9), "t", "shop", "{}"},
			[]any{d.ContentType, d.ContentEncoding, d.Priority, d.CorrelationId, d.ReplyTo, d.MessageId, d.Timestamp.Unix(), d.Type, d.AppId, string(d.Body)})
		assert.Error(t, d.Ack(false), "it is not the function's to settle")
	}
	assert.Equal(t, "guest", second.Headers["x-idem-user-id"])
	assert.Empty(t, second.Expiration, "it was for the first delivery")
	stop()
	k.empty() // and the dead letters, to which CC would have taken the copy
}

// Who may publish to one exchange can't pass for a publisher to another.
func TestOriginIsNotThePublishersToChoose(t *testing.T) {
	k := newKit(t)
	k.topology.Bindings = []amqpidem.Binding{{Exchange: "amq.topic", Key: k.topology.Queue + ".public"}}
	k.config.Topology = k.topology
	seen := make(chan string, 1)
	stop := k.start(func(_ context.Context, d *amqp.Delivery) error {
		seen <- d.Exchange + " " + d.RoutingKey
		return nil
	})
	require.NoError(t, k.publisher.Publish(t.Context(), amqpidem.Message{Exchange: "amq.topic", Key: k.topology.Queue + ".public", Publishing: amqp.Publishing{
		Headers: amqp.Table{"x-idem-exchange": "internal", "x-idem-routing-key": "refund"},
	}}))
	assert.Equal(t, "amq.topic "+k.topology.Queue+".public", <-seen)
	stop()
	k.empty()
}

// What fails of a message that a queue has dead-lettered to here goes on all the same: the broker would
// take it for one that goes round in circles, if it still said where it has been.
func TestMessageThatHasBeenHereBefore(t *testing.T) {
	k := newKit(t)
	stop := k.start(fail)
	k.publish("1", "body", func(m *amqp.Publishing) {
		m.Headers = amqp.Table{"x-death": []any{amqp.Table{"queue": k.topology.Queue, "reason": "expired", "count": int64(1)}}}
	})
	k.settled(amqpidem.Dead, 1)
	assert.Len(t, k.runs(), 4)
	k.take(k.topology.DeadLetters())
	stop()
	k.empty()
}

// A crash between the copy in the delay queue and the acknowledgement makes two of one message: none is
// lost, and the key makes them one operation.
func TestCrashBeforeTheAcknowledgement(t *testing.T) {
	k := newKit(t)
	require.NoError(t, k.topology.Declare(k.conn))
	var tries atomic.Int64
	h := k.handler(func(context.Context, *amqp.Delivery) error {
		if tries.Add(1) == 1 {
			return errBroken
		}
		return nil
	})
	ch, err := k.conn.Channel()
	require.NoError(t, err)
	k.publish("1", "body")
	d := k.get(ch)
	d.Acknowledger = severed{ch}
	require.Error(t, h.Handle(t.Context(), d))
	assert.Equal(t, 1, k.count(amqpidem.Unsettled, amqpidem.Failed))
	assert.ErrorIs(t, k.events[0].Err, amqp.ErrClosed)
	assert.ErrorIs(t, k.events[0].Err, errBroken)

	stop := k.startWith(h)
	k.settled(amqpidem.Done, 1)
	k.settled(amqpidem.Duplicate, 1)
	stop()
	k.empty()
}

// severed is a channel that is lost when something is to be acknowledged.
type severed struct{ ch *amqp.Channel }

func (s severed) Ack(uint64, bool) error        { return errors.Join(s.ch.Close(), amqp.ErrClosed) }
func (s severed) Nack(uint64, bool, bool) error { panic("nothing is given back") }
func (s severed) Reject(uint64, bool) error     { panic("nothing is rejected") }

// With no queue for the delay, the delivery is not acknowledged: it stays the broker's.
func TestDelayQueueIsMissing(t *testing.T) {
	k := newKit(t)
	require.NoError(t, k.topology.Declare(k.conn))
	_, err := k.ch.QueueDelete(k.topology.Queues()[0+1], false, false, false)
	require.NoError(t, err)
	ch, err := k.conn.Channel()
	require.NoError(t, err)
	k.publish("1", "body")
	d := k.get(ch)
	err = k.handler(fail).Handle(t.Context(), d)
	require.ErrorIs(t, err, amqpidem.ErrUnroutable)
	assert.Less(t, k.events[0].Elapsed, patience)
	require.NoError(t, ch.Close())
}

// In a consumer a copy that is refused holds its own delivery, and nothing else, until it is taken.
func TestRefusedCopy(t *testing.T) {
	for _, checkOnly := range []bool{false, true} {
		k := newKit(t, func(k *kit) { k.consumer.CheckOnly, k.consumer.Concurrency = checkOnly, 1 })
		require.NoError(t, k.topology.Declare(k.conn))
		stop := k.start(func(ctx context.Context, d *amqp.Delivery) error {
			if strings.HasPrefix(d.MessageId, "held") && amqpidem.AttemptFrom(ctx).Number == 1 {
				return errBroken
			}
			return nil
		})
		hold := func(id string) {
			_, err := k.ch.QueueDelete(k.topology.Queues()[0+1], false, false, false)
			require.NoError(t, err)
			before := k.count(amqpidem.Unsettled, amqpidem.Failed)
			k.publish(id, "body")
			k.eventually("it is held", func() bool { return k.count(amqpidem.Unsettled, amqpidem.Failed) > before })
		}
		hold("held")
		good := make([]amqpidem.Message, 100)
		for i := range good {
			good[i] = k.message(fmt.Sprint(i))
		}
		require.NoError(t, k.publisher.Publish(t.Context(), good...))
		k.settled(amqpidem.Done, 100)
		if checkOnly {
			k.eventually("it is tried again", func() bool { return k.count(amqpidem.Unsettled, amqpidem.Failed) > 1 })
			require.NoError(t, k.topology.Declare(k.conn))
		}
		k.settled(amqpidem.Failed, 1)
		k.settled(amqpidem.Done, 101)
		hold("held, too")
		if !checkOnly {
			k.settled(amqpidem.Done, 102)
		} else { // the end does not wait for it
			defer func() { assert.Equal(t, "held, too", k.take(k.topology.Queue).MessageId) }()
		}
		stop()
		assert.Zero(t, k.count(amqpidem.Disconnected, ""))
	}
}

// A message whose headers all but fill a frame can be delivered, but no copy of it can be published.
// It must not stay, and break everybody's connections.
func TestHeadersThatLeaveNoRoom(t *testing.T) {
	k := newKit(t)
	stop := k.start(fail)
	k.publish("1", "body", func(m *amqp.Publishing) { m.Headers = amqp.Table{"h": strings.Repeat("x", 130860)} })
	e := k.settled(amqpidem.Dead, 1)
	assert.Equal(t, "headers_too_large", e.Reason)
	assert.ErrorIs(t, e.Err, errBroken)
	assert.Equal(t, 1, e.Attempt)
	d := k.take(k.topology.DeadLetters())
	assert.Equal(t, "headers_too_large", d.Headers["x-idem-reason"])
	assert.Equal(t, "body", string(d.Body))
	assert.NotContains(t, d.Headers, "h")
	assert.Zero(t, k.count(amqpidem.Disconnected, ""))
	stop()
	k.empty()
}

func TestHandlerFaults(t *testing.T) {
	_, err := amqpidem.NewHandler(amqpidem.Config{
		Attempts: -1, WithoutID: 9,
		Topology: amqpidem.Topology{Type: 7, Satellites: amqpidem.Foreign, DeliveryLimit: 3, Delays: []time.Duration{time.Second, time.Microsecond}},
	}, nil)
	for _, field := range []string{"Config.Task", "Config.Publisher", "Config.Attempts", "Config.WithoutID", "Topology.Queue", "Topology.Type",
		"Topology.Satellites", "Topology.DeliveryLimit", "Topology.Delays", "function is nil"} {
		assert.ErrorContains(t, err, field)
	}
	var fault *core.ConfigError
	assert.ErrorAs(t, err, &fault)

	task := core.MustNew(core.Config{}).MustTask(core.TaskPolicy{Name: "billing", Record: core.Record{OnFailure: core.Keep}})
	_, err = amqpidem.NewHandler(amqpidem.Config{Task: task, Topology: amqpidem.Topology{Queue: "q"}}, succeed)
	assert.ErrorContains(t, err, "keeps failures")
}
