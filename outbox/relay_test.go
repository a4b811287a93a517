package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/outbox"
)

// TestOrderOfAKeyThroughAFailure: those behind a message that fails wait for it, and nobody else
// does. The pauses grow.
func TestOrderOfAKeyThroughAFailure(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		f.writeNames("a/1", "a/2", "b/1", "c1", "a/3", "b/2", "c2")
		b := refusing(func(m outbox.Message) bool { return m.ID == "a/2" && m.Attempt <= 6 })
		start(f, f.Outbox, b, f.quick())
		await(f, "it has failed once", func() bool { return len(f.of(outbox.Failed)) > 0 })
		f.writeNames("a/4", "b/3", "a/5", "c3") // while it is being retried
		f.sent()
		require.Equal(f, []string{"a/1", "a/2", "a/3", "a/4", "a/5"}, b.names("a"))
		require.Equal(f, []string{"b/1", "b/2", "b/3"}, b.names("b"))
		require.Equal(f, []string{"c1", "c2", "c3"}, b.names(""))

		for i, e := range f.of(outbox.Failed) {
			require.Equal(f, outbox.Event{Kind: outbox.Failed, ID: "a/2", Topic: "test", Attempt: i + 1,
				Pause: quickPause(i), Err: errRefused}, e)
		}
		require.Len(f, f.of(outbox.Failed), 6)
		sent := 0
		for _, e := range f.of(outbox.Published) {
			sent += e.Messages
		}
		require.Equal(f, 11, sent)
		require.Empty(f, f.of(outbox.BrokerFailed))
		require.Empty(f, f.of(outbox.DatabaseFailed))
	})
}

// TestPoison: a message that no broker will ever take is tried for ever and seen, and holds up its
// own key only, however many wait behind it.
func TestPoison(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		f.writeNames("a/0")
		for i := range 31 {
			f.writeNames(fmt.Sprintf("p/%d", i))
		}
		f.writeNames("poison", "a/1")
		b := &broker{refuse: func(m outbox.Message) error {
			if m.ID == "p/0" || m.ID == "poison" {
				return fmt.Errorf("no place for %s: \xff\x00", m.ID)
			}
			return nil
		}}
		options := f.quick()
		options.Batch = 5
		start(f, f.Outbox, b, options)
		await(f, "both are being retried", func() bool { return len(f.of(outbox.Failed)) > 30 })
		f.writeNames("a/2", "free")
		await(f, "the others are sent", func() bool { return b.count() == 4 })
		require.Equal(f, []string{"a/0", "a/1", "a/2"}, b.names("a"))
		require.Equal(f, []string{"free"}, b.names(""))
		require.Empty(f, f.of(outbox.Parked))

		await(f, "they are marked", func() bool { return f.stats().Unsent == 32 })
		require.Equal(f, int64(2), f.stats().Retrying)
		require.Positive(f, f.stats().Oldest)
		was, err := f.Unpark(f.Context(), "p/0")
		require.NoError(f, err)
		require.False(f, was, "it is not parked")
		var reason string
		require.NoError(f, f.db.QueryRow("SELECT last_error FROM "+f.table+" WHERE id = 'p/0'").Scan(&reason))
		require.Equal(f, "no place for p/0: \ufffd\ufffd", reason)

		b.set(func(b *broker) { b.refuse = nil })
		f.sent()
		require.Len(f, b.names("p"), 31)
		require.True(f, slicesIsInOrder(b.names("p")))
	})
}

// slicesIsInOrder reports whether names end in 0, 1, 2, …
func slicesIsInOrder(names []string) bool {
	for i, n := range names {
		if !strings.HasSuffix(n, fmt.Sprintf("/%d", i)) {
			return false
		}
	}
	return true
}

// TestParked: after as many attempts as are allowed, a message is put aside with its reason, and
// its key goes on.
func TestParked(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		f.writeNames("a/1", "a/2", "a/3")
		b := refusing(func(m outbox.Message) bool { return m.ID == "a/2" })
		options := f.quick()
		options.MaxAttempts = 3
		start(f, f.Outbox, b, options)
		f.sent()
		require.Equal(f, []string{"a/1", "a/3"}, b.names("a"))
		require.Len(f, f.of(outbox.Failed), 2)
		require.Equal(f, []outbox.Event{{Kind: outbox.Parked, ID: "a/2", Topic: "test", Attempt: 3, Err: errRefused}}, f.of(outbox.Parked))
		require.Equal(f, int64(1), f.stats().Parked)
		require.Zero(f, f.stats().Oldest)
		var reason string
		var attempts int
		require.NoError(f, f.db.QueryRow("SELECT last_error, attempts FROM "+f.table+" WHERE state = 3").Scan(&reason, &attempts))
		require.Equal(f, errRefused.Error(), reason)
		require.Equal(f, 3, attempts)

		// Somebody has repaired what was wrong.
		b.set(func(b *broker) { b.refuse = nil })
		for id, want := range map[string]bool{"a/1": false, "nobody": false, "a/2": true} {
			was, err := f.Unpark(f.Context(), id)
			require.NoError(f, err)
			require.Equal(f, want, was, id)
		}
		f.sent()
		require.Equal(f, []string{"a/1", "a/3", "a/2"}, b.names("a"))
		require.Equal(f, 1, b.arrived[2].Attempt)
	})
}

// TestOutage: while the broker is away, nobody is blamed, however long that takes.
func TestOutage(t *testing.T) {
	f := onSQLite(t)
	f.writeNames("a/1", "x", "a/2", "b/1", "y", "b/2")
	outage := func() error { return errRefused } // not an error of each
	b := &broker{down: outage}
	options := f.quick()
	options.MaxAttempts = 1
	start(f, f.Outbox, b, options)
	await(f, "it has failed often", func() bool { return len(f.of(outbox.BrokerFailed)) > 20 })
	b.set(func(b *broker) { b.down = nil })
	f.sent()
	require.Equal(f, []string{"a/1", "a/2"}, b.names("a"))
	require.Equal(f, []string{"b/1", "b/2"}, b.names("b"))
	require.ElementsMatch(f, []string{"x", "y"}, b.names(""))
	require.Empty(f, f.of(outbox.Parked))
	require.Empty(f, f.of(outbox.Failed))
	failed := f.of(outbox.BrokerFailed)
	for i, e := range failed {
		require.Equal(f, quickPause(i), e.Pause)
		require.ErrorIs(f, e.Err, errRefused)
	}
	for _, m := range b.arrived {
		require.Equal(f, 1, m.Attempt)
	}

	// Afterwards all is as it was: batches, and the pauses of another outage.
	f.writeNames("1", "2", "3", "4")
	f.sent()
	published := f.of(outbox.Published)
	require.Equal(f, 4, published[len(published)-1].Messages)
	b.set(func(b *broker) { b.down = outage })
	f.writeNames("5")
	await(f, "it has failed again", func() bool { return len(f.of(outbox.BrokerFailed)) > len(failed) })
	require.Equal(f, 2*time.Millisecond, f.of(outbox.BrokerFailed)[len(failed)].Pause)
}

// TestOutageEndsTheRound: what the broker has confirmed nothing of for want of a connection is not followed by more, neither by
// later messages of a key that it has taken, nor by those that have failed before.
func TestOutageEndsTheRound(t *testing.T) {
	f := onSQLite(t)
	f.writeNames("p/1", "a/1", "b/1", "a/2")
	f.exec("UPDATE {t} SET state = 1 WHERE id = 'p/1'")
	b := &broker{refuse: func(m outbox.Message) error {
		if m.Key == "b" {
			return outbox.ErrUnconfirmed
		}
		return nil
	}}
	options := f.quick()
	options.Pause, options.MaxPause = time.Hour, time.Hour
	start(f, f.Outbox, b, options)
	await(f, "it has failed", func() bool { return len(f.of(outbox.BrokerFailed)) == 1 })
	time.Sleep(20 * time.Millisecond)
	b.set(func(b *broker) { require.Equal(f, 1, b.calls) })
}

// TestLongestWaitingFirst: of those that are tried again.
func TestLongestWaitingFirst(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		f.writeNames("a/third", "b/first", "c/second")
		for at, id := range []string{"b/first", "c/second", "a/third"} {
			f.exec(fmt.Sprintf("UPDATE {t} SET state = 1, state_at = %d WHERE id = '%s'", at, id))
		}
		b := &broker{}
		options := f.quick()
		options.Batch = 1
		start(f, f.Outbox, b, options)
		f.sent()
		require.Equal(f, []string{"b/first", "c/second", "a/third"}, []string{b.arrived[0].ID, b.arrived[1].ID, b.arrived[2].ID})
	})
}

// TestPauseAfterManyFailures: does not grow beyond MaxPause, however many there were.
func TestPauseAfterManyFailures(t *testing.T) {
	f := onSQLite(t)
	f.writeNames("a")
	f.exec("UPDATE {t} SET state = 1, attempts = 100")
	start(f, f.Outbox, refusing(func(outbox.Message) bool { return true }), f.quick())
	await(f, "it has failed", func() bool { return len(f.of(outbox.Failed)) > 0 })
	require.Equal(f, f.quick().MaxPause, f.of(outbox.Failed)[0].Pause)
}

// TestPauses: a message that has failed is left alone for its pause; and when a broker refuses all that
// it gets, so is the broker.
func TestPauses(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		f.writeNames("p/0", "a/0")
		b := refusing(func(m outbox.Message) bool { return m.Key != "a" })
		options := f.quick()
		options.Batch, options.Pause, options.MaxPause = 2, time.Hour, time.Hour
		start(f, f.Outbox, b, options)
		for i := range 10 {
			f.writeNames(fmt.Sprintf("a/%d", i+1))
			await(f, "it has come", func() bool { return b.count() > i+1 })
		}
		require.Len(f, f.of(outbox.Failed), 1)

		f.writeNames("1", "2", "3", "4")
		await(f, "two are refused", func() bool { return len(f.of(outbox.Failed)) == 3 })
		time.Sleep(20 * time.Millisecond)
		require.Len(f, f.of(outbox.Failed), 3)
	})
}

// TestUnconfirmed: the connection is lost in the midst of a publish. What was confirmed is not sent
// again, and what was not is nobody's fault.
func TestUnconfirmed(t *testing.T) {
	f := onSQLite(t)
	f.writeNames("a/0", "b/0", "c/0", "d/0", "a/1", "b/1")
	lost := 0
	b := &broker{refuse: func(m outbox.Message) error {
		switch {
		case m.ID == "b/0" && m.Attempt == 1:
			return errRefused
		case (m.ID == "a/0" || m.ID == "c/0") && lost < 4:
			lost++
			return fmt.Errorf("connection lost: %w", outbox.ErrUnconfirmed)
		}
		return nil
	}}
	options := f.quick()
	options.MaxAttempts = 2
	start(f, f.Outbox, b, options)
	f.sent()
	for key, want := range map[string][]string{"a": {"a/0", "a/1"}, "b": {"b/0", "b/1"}, "c": {"c/0"}, "d": {"d/0"}} {
		require.Equal(f, want, b.names(key))
	}
	require.Empty(f, f.of(outbox.Parked))
	require.Equal(f, 2, f.of(outbox.BrokerFailed)[0].Messages)
	require.ErrorIs(f, f.of(outbox.BrokerFailed)[0].Err, outbox.ErrUnconfirmed)
	require.Equal(f, "b/0", f.of(outbox.Failed)[0].ID)
}

// TestPublisherThatDoesNotSayWhich: a publisher that stops at the first message that fails, and
// does not say which it was. The others are sent all the same, some of them twice. What is not blamed
// is not parked.
func TestPublisherThatDoesNotSayWhich(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		f.writeNames("a/1", "x", "p/1", "b/1", "p/2", "a/2")
		b := &broker{}
		naive := outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
			for _, m := range messages {
				if m.ID == "p/1" {
					return errRefused
				}
				_ = b.Publish(ctx, []outbox.Message{m})
			}
			return nil
		})
		options := f.quick()
		options.MaxAttempts = 2
		start(f, f.Outbox, naive, options)
		next := 0
		await(f, "it has failed alone", func() bool { // while others prove that the broker is there
			f.writeNames(fmt.Sprintf("c/%d", next))
			next++
			return len(f.of(outbox.Failed)) > 6
		})
		await(f, "the others are sent", func() bool { return f.stats().Unsent == 2 })
		for key, want := range map[string][]string{"a": {"a/1", "a/2"}, "b": {"b/1"}, "": {"x"}, "p": nil} {
			require.Equal(f, want, first(b.names(key)))
		}
		require.Len(f, first(b.names("c")), next)
		require.True(f, slicesIsInOrder(first(b.names("c"))))
		require.NotEmpty(f, f.of(outbox.BrokerFailed))
		require.Empty(f, f.of(outbox.Parked))
		for i, e := range f.of(outbox.Failed) {
			require.Equal(f, "p/1", e.ID)
			require.Equal(f, quickPause(i), e.Pause)
		}
	})
}

// TestEach: messages are published together, and each outcome stands at its message's place.
func TestEach(t *testing.T) {
	errBad := errors.New("bad")
	messages := []outbox.Message{{ID: "sent"}, {ID: "bad"}, {ID: "lost"}}
	var together sync.WaitGroup
	together.Add(len(messages))
	publish := func(_ context.Context, m outbox.Message) error {
		together.Done()
		together.Wait()
		return map[string]error{"bad": errBad, "lost": errRefused}[m.ID]
	}
	publisher := outbox.Each(publish, func(err error) bool { return err == errBad })
	require.Equal(t, outbox.Errors{nil, errBad, errors.Join(outbox.ErrUnconfirmed, errRefused)}, publisher.Publish(t.Context(), messages))

	together.Add(len(messages))
	require.Equal(t, outbox.Errors{nil, errors.Join(outbox.ErrUnconfirmed, errBad), errors.Join(outbox.ErrUnconfirmed, errRefused)},
		outbox.Each(publish, nil).Publish(t.Context(), messages))

	gone := outbox.Each(func(context.Context, outbox.Message) error { runtime.Goexit(); return nil }, nil)
	require.Equal(t, outbox.Errors{outbox.ErrUnconfirmed}, gone.Publish(t.Context(), messages[:1]))
}

// TestOneOfAKeyAtATime: what a publisher gets at once may overtake each other, so no two messages
// of a key are among it.
func TestOneOfAKeyAtATime(t *testing.T) {
	f := onSQLite(t)
	for i := range 40 {
		f.writeNames(fmt.Sprintf("a/%d", i), fmt.Sprintf("b/%d", i), fmt.Sprintf("free%d", i))
	}
	var most atomic.Int64
	b := &broker{}
	start(f, f.Outbox, outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
		most.Store(max(most.Load(), int64(len(messages))))
		keys := map[string]bool{}
		for _, m := range messages {
			assert.False(f, m.Key != "" && keys[m.Key], "two of a key at once")
			keys[m.Key] = true
		}
		return b.Publish(ctx, messages)
	}), f.quick())
	f.sent()
	require.True(f, slicesIsInOrder(b.names("a")))
	require.True(f, slicesIsInOrder(b.names("b")))
	require.Equal(f, 120, b.count())
	require.Greater(f, most.Load(), int64(3), "those without a key go together")
}

// TestWrongOutcomes: a publisher that gives other than one outcome for each message is taken to
// have confirmed none.
func TestWrongOutcomes(t *testing.T) {
	f := onSQLite(t)
	f.writeNames("1", "2", "3")
	b := &broker{}
	start(f, f.Outbox, outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
		if len(messages) == 3 {
			return fmt.Errorf("publish: %w", outbox.Errors{nil, errRefused})
		}
		return b.Publish(ctx, messages)
	}), f.quick())
	f.sent()
	require.Equal(f, []string{"1", "2", "3"}, b.names(""))
	require.Len(f, f.of(outbox.BrokerFailed), 1)
	require.ErrorIs(f, f.of(outbox.BrokerFailed)[0].Err, errRefused)
}

// TestTwoRelays: one sends, and when it ends the other does at once.
func TestTwoRelays(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		b := &broker{}
		var senders [2]atomic.Int64
		var stops [2]func() error
		for i := range 2 {
			options := f.quick()
			options.Name, options.Lease = fmt.Sprint("relay ", i), time.Minute
			if i == 1 {
				options.Lease = 300 * time.Millisecond // it asks every 100 ms
			}
			stops[i] = start(f, f.Outbox, outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
				senders[i].Add(1)
				return b.Publish(ctx, messages)
			}), options)
			await(f, "the first one leads", func() bool { return len(f.of(outbox.LeaseAcquired)) == 1 })
		}
		for i := range 50 {
			f.writeNames(fmt.Sprintf("a/%d", i))
		}
		f.sent()
		require.Equal(f, 50, b.count(), "nothing twice")
		require.Zero(f, senders[1].Load())
		require.Equal(f, "relay 0", f.stats().Relay)

		require.NoError(f, stops[0]())
		require.Empty(f, f.of(outbox.LeaseLost))
		for i := range 50 {
			f.writeNames(fmt.Sprintf("a/%d", 50+i))
		}
		f.sent()
		require.Equal(f, 100, b.count(), "nothing twice")
		require.True(f, slicesIsInOrder(b.names("a")))
		require.Positive(f, senders[1].Load())
		await(f, "the second one has its lease, which is short", func() bool { return f.stats().Relay == "relay 1" })
		require.NoError(f, stops[1]())
		require.Empty(f, f.stats().Relay)
	})
}

// TestLeaseIsRenewed: before it passes, also while there is nothing to send.
func TestLeaseIsRenewed(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		options := f.quick()
		options.Poll, options.Lease = time.Hour, 200*time.Millisecond
		start(f, f.Outbox, &broker{}, options)
		var last int64
		await(f, "it is renewed in time", func() bool {
			before := last
			last = f.leaseUntil()
			return before > 0 && last > before && last-before < options.Lease.Microseconds()
		})
		require.Len(f, f.of(outbox.LeaseAcquired), 1)
	})
}

// TestTimeOfAPublish: each one has its share of the lease, which is renewed before it, also in the midst of a page.
func TestTimeOfAPublish(t *testing.T) {
	f := onSQLite(t)
	f.writeNames("a/0", "a/1")
	options := f.quick()
	options.Lease = 150 * time.Millisecond
	var deadlines []time.Time
	stop := start(f, f.Outbox, outbox.PublisherFunc(func(ctx context.Context, _ []outbox.Message) error {
		deadline, _ := ctx.Deadline()
		deadlines = append(deadlines, deadline)
		time.Sleep(options.Lease / 3) // it is to be renewed
		return nil
	}), options)
	f.sent()
	require.NoError(f, stop())
	require.True(f, deadlines[1].After(deadlines[0]))
}

// TestStandBy: a relay that does not have the lease looks for its turn, and at nothing else.
func TestStandBy(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		f.writeNames("a/1")
		f.exec("UPDATE {t}_lease SET owner = 'another', lease_until = 9000000000000000")
		f.exec("ALTER TABLE {t} RENAME TO {t}_away")
		b := &broker{}
		options := f.quick()
		options.Lease = 300 * time.Millisecond // time enough to send
		start(f, f.Outbox, b, options)
		time.Sleep(20 * time.Millisecond)
		require.Empty(f, f.of(outbox.DatabaseFailed))
		f.exec("ALTER TABLE {t}_away RENAME TO {t}")
		f.exec("UPDATE {t}_lease SET lease_until = 0")
		f.sent()
		require.Equal(f, []string{"a/1"}, b.names("a"))
	})
}

// TestOutageOfOneRelaysBroker: another relay may reach the broker that this one can't.
func TestOutageOfOneRelaysBroker(t *testing.T) {
	f := onSQLite(t)
	b := &broker{}
	options := f.quick()
	options.Lease, options.MaxPause = time.Hour, time.Hour
	start(f, f.Outbox, outbox.PublisherFunc(func(context.Context, []outbox.Message) error { return errRefused }), options)
	f.writeNames("a/1", "a/2")
	await(f, "the first one has failed", func() bool { return len(f.of(outbox.BrokerFailed)) > 2 })
	options = f.quick()
	options.Lease = 300 * time.Millisecond
	start(f, f.Outbox, b, options)
	f.sent()
	require.Equal(f, []string{"a/1", "a/2"}, b.names("a"))
}

// TestEnd: a publish that is under way when the context ends is waited for, and what it has sent is
// marked; nothing more is begun.
func TestEnd(t *testing.T) {
	f := onSQLite(t)
	f.writeNames("a/1", "a/2", "b/1")
	b := refusing(func(m outbox.Message) bool { return m.Key == "b" })
	h := f.held(b)
	options := f.quick()
	options.Drain = time.Minute
	stop := start(f, f.Outbox, h, options)
	publishing := <-h.begun
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	time.Sleep(30 * time.Millisecond)
	require.Empty(f, ended, "it has not waited")
	require.NoError(f, publishing.Err())
	close(h.end)
	require.NoError(f, <-ended)
	require.Empty(f, h.begun)
	require.Equal(f, []string{"a/1"}, b.names("a"))
	s := f.stats()
	s.Oldest = 0
	require.Equal(f, outbox.Stats{Unsent: 2, Retrying: 1}, s, "the other one is marked, and also what has failed")
}

// TestEndWithoutTheLease: a lease that is another relay's by now stands when this one ends.
func TestEndWithoutTheLease(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		f.writeNames("a/1")
		h := f.held(&broker{})
		stop := start(f, f.Outbox, h, f.quick())
		<-h.begun
		f.exec("UPDATE {t}_lease SET owner = 'another', lease_until = 9000000000000000")
		close(h.end)
		require.NoError(f, stop())
		require.Equal(f, outbox.Stats{Relay: "another"}, f.stats())
	})
}

// TestSentAgain: a relay that has sent a message, and marked it, knows nothing more of it: somebody who makes it unsent
// has it sent again.
func TestSentAgain(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		f.writeNames("a/1")
		b := &broker{}
		start(f, f.Outbox, b, f.quick())
		f.sent()
		purged, err := f.Purge(f.Context(), time.Minute)
		require.NoError(f, err)
		require.Zero(f, purged, "it was sent just now")
		f.exec("UPDATE {t} SET state = 0, state_at = 0")
		f.sent()
		require.Equal(f, []string{"a/1", "a/1"}, b.names("a"))
	})
}

// TestEndOfAPublishThatHangs: it is given no longer than Drain.
func TestEndOfAPublishThatHangs(t *testing.T) {
	f := onSQLite(t)
	f.writeNames("a/1")
	options := f.quick()
	options.Drain = 10 * time.Millisecond
	begun := make(chan struct{})
	stop := start(f, f.Outbox, outbox.PublisherFunc(func(ctx context.Context, _ []outbox.Message) error {
		close(begun)
		<-ctx.Done()
		assert.Equal(f, context.Canceled, ctx.Err(), "it is not the end of the lease")
		return ctx.Err()
	}), options)
	<-begun
	require.NoError(f, stop())
	require.Equal(f, int64(1), f.stats().Unsent)
	require.Zero(f, f.stats().Retrying, "nobody is blamed")
	require.Empty(f, f.of(outbox.BrokerFailed))
}

// TestNotify: whoever says so need not wait for the next look.
func TestNotify(t *testing.T) {
	f := onSQLite(t)
	b := &broker{}
	options := f.quick()
	options.Poll, options.Lease = time.Hour, 3*time.Hour
	f.Notify() // nobody is there
	f.Notify()
	start(f, f.Outbox, b, options)
	await(f, "it leads", func() bool { return len(f.of(outbox.LeaseAcquired)) == 1 })
	for i := range 3 {
		f.writeNames(fmt.Sprintf("a/%d", i))
		f.Notify()
		await(f, "it has come", func() bool { return b.count() == i+1 })
	}
}

func TestRunTwice(t *testing.T) {
	f := onSQLite(t)
	relay, err := f.NewRelay(&broker{}, f.quick())
	require.NoError(t, err)
	for i := range 2 { // one after the other is all right
		stop := run(relay)
		await(t, "it runs", func() bool { return len(f.of(outbox.LeaseAcquired)) == i+1 })
		require.ErrorContains(t, relay.Run(t.Context()), "running already")
		require.NoError(t, stop())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, relay.Run(ctx))
}

func TestLogEvents(t *testing.T) {
	var out strings.Builder
	log := outbox.LogEvents(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	for kind := outbox.LeaseAcquired; kind <= outbox.DatabaseFailed; kind++ {
		log(t.Context(), outbox.Event{Kind: kind, ID: "id", Attempt: 3, Err: errRefused})
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 7)
	for i, want := range []string{
		`DEBUG msg="outbox: lease acquired"`, `WARN msg="outbox: lease lost"`, `DEBUG msg="outbox: published"`, `WARN msg="outbox: failed"`,
		`ERROR msg="outbox: parked"`, `WARN msg="outbox: broker failed"`, `WARN msg="outbox: database failed"`,
	} {
		require.Contains(t, lines[i], want)
		require.Contains(t, lines[i], "id=id")
		require.Contains(t, lines[i], errRefused.Error())
	}
	require.Equal(t, "invalid", outbox.Kind(0).String())
	require.Equal(t, "invalid", outbox.Kind(99).String())
}
