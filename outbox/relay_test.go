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
	each(t, func(f *fixture) {
		f.writeNames("a/1", "a/2", "b/1", "c1", "a/3", "b/2", "c2")
		b, d := &broker{}, &diary{}
		b.refuse = func(m outbox.Message) error {
			if m.ID == "a/2" && m.Attempt <= 6 {
				return errRefused
			}
			return nil
		}
		options := quick()
		options.Observe = d.observe
		start(f, f.Outbox, b, options)
		await(f, "it has failed once", func() bool { return len(d.of(outbox.Failed)) > 0 })
		f.writeNames("a/4", "b/3", "a/5", "c3") // while it is being retried
		f.sent()
		require.Equal(f, []string{"a/1", "a/2", "a/3", "a/4", "a/5"}, b.names("a"))
		require.Equal(f, []string{"b/1", "b/2", "b/3"}, b.names("b"))
		require.Equal(f, []string{"c1", "c2", "c3"}, b.names(""))

		var pauses []time.Duration
		for i, e := range d.of(outbox.Failed) {
			require.Equal(f, outbox.Event{Kind: outbox.Failed, ID: "a/2", Topic: "test", Attempt: i + 1, Pause: e.Pause, Err: errRefused}, e)
			pauses = append(pauses, e.Pause/time.Millisecond)
		}
		require.Equal(f, []time.Duration{2, 4, 8, 16, 16, 16}, pauses)
		sent := 0
		for _, e := range d.of(outbox.Published) {
			sent += e.Messages
		}
		require.Equal(f, 11, sent)
		require.Empty(f, d.of(outbox.BrokerFailed))
		require.Empty(f, d.of(outbox.DatabaseFailed))
	})
}

// TestPoison: a message that no broker will ever take is tried for ever and seen, and holds up its
// own key only, however many wait behind it.
func TestPoison(t *testing.T) {
	each(t, func(f *fixture) {
		f.writeNames("a/0", "p/0")
		for i := range 30 {
			f.writeNames(fmt.Sprintf("p/%d", i+1))
		}
		f.writeNames("poison", "a/1")
		b, d := &broker{}, &diary{}
		b.refuse = func(m outbox.Message) error {
			if m.ID == "p/0" || m.ID == "poison" {
				return fmt.Errorf("no place for %s: \xff\x00", m.ID)
			}
			return nil
		}
		options := quick()
		options.Batch, options.Observe = 5, d.observe
		start(f, f.Outbox, b, options)
		await(f, "both are being retried", func() bool { return len(d.of(outbox.Failed)) > 30 })
		f.writeNames("a/2", "free")
		await(f, "the others are sent", func() bool { return b.count() == 4 })
		require.Equal(f, []string{"a/0", "a/1", "a/2"}, b.names("a"))
		require.Equal(f, []string{"free"}, b.names(""))
		require.Empty(f, b.names("p"))
		require.Empty(f, d.of(outbox.Parked))

		var s outbox.Stats
		await(f, "they are marked", func() bool {
			var err error
			s, err = f.Stats(f.Context())
			return err == nil && s.Unsent == 32
		})
		require.Equal(f, int64(2), s.Retrying)
		require.Positive(f, s.Oldest)
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
	each(t, func(f *fixture) {
		f.writeNames("a/1", "a/2", "a/3")
		b, d := &broker{}, &diary{}
		b.refuse = func(m outbox.Message) error {
			if m.ID == "a/2" {
				return errRefused
			}
			return nil
		}
		options := quick()
		options.MaxAttempts, options.Observe = 3, d.observe
		start(f, f.Outbox, b, options)
		f.sent()
		require.Equal(f, []string{"a/1", "a/3"}, b.names("a"))
		require.Len(f, d.of(outbox.Failed), 2)
		require.Equal(f, []outbox.Event{{Kind: outbox.Parked, ID: "a/2", Topic: "test", Attempt: 3, Err: errRefused}}, d.of(outbox.Parked))
		s, err := f.Stats(f.Context())
		require.NoError(f, err)
		require.Equal(f, int64(1), s.Parked)
		require.Zero(f, s.Oldest)
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
	each(t, func(f *fixture) {
		f.writeNames("a/1", "x", "a/2", "b/1", "y", "b/2")
		b, d := &broker{}, &diary{}
		outage := errors.New("connection refused")
		b.down = func() error { return outage }
		options := quick()
		options.MaxAttempts, options.Observe = 1, d.observe
		start(f, f.Outbox, b, options)
		await(f, "it has failed often", func() bool { return len(d.of(outbox.BrokerFailed)) > 20 })
		require.Zero(f, b.count())
		b.set(func(b *broker) { b.down = nil })
		f.sent()
		require.Equal(f, []string{"a/1", "a/2"}, b.names("a"))
		require.Equal(f, []string{"b/1", "b/2"}, b.names("b"))
		require.ElementsMatch(f, []string{"x", "y"}, b.names(""))
		require.Empty(f, d.of(outbox.Parked))
		require.Empty(f, d.of(outbox.Failed))
		failed := d.of(outbox.BrokerFailed)
		for i, e := range failed {
			require.Equal(f, quickPause(i), e.Pause)
			require.ErrorIs(f, e.Err, outage)
		}
		for _, m := range b.arrived {
			require.Equal(f, 1, m.Attempt)
		}

		// Afterwards all is as it was: batches, and the pauses of another outage.
		f.writeNames("1", "2", "3", "4")
		f.sent()
		published := d.of(outbox.Published)
		require.Equal(f, 4, published[len(published)-1].Messages)
		b.set(func(b *broker) { b.down = func() error { return outage } })
		f.writeNames("5")
		await(f, "it has failed again", func() bool { return len(d.of(outbox.BrokerFailed)) > len(failed) })
		require.Equal(f, 2*time.Millisecond, d.of(outbox.BrokerFailed)[len(failed)].Pause)
	})
}

// TestOutageEndsTheRound: what the broker has confirmed nothing of for want of a connection is not followed by more, neither by
// later messages of a key that it has taken, nor by those that have failed before.
func TestOutageEndsTheRound(t *testing.T) {
	each(t, func(f *fixture) {
		f.writeNames("p/1", "a/1", "b/1", "a/2")
		f.exec("UPDATE {t} SET state = 1 WHERE id = 'p/1'")
		b, d := &broker{}, &diary{}
		b.refuse = func(m outbox.Message) error {
			if m.Key == "b" {
				return outbox.ErrUnconfirmed
			}
			return nil
		}
		options := quick()
		options.Pause, options.MaxPause, options.Observe = time.Hour, time.Hour, d.observe
		start(f, f.Outbox, b, options)
		await(f, "it has failed", func() bool { return len(d.of(outbox.BrokerFailed)) == 1 })
		time.Sleep(20 * time.Millisecond)
		b.set(func(b *broker) { require.Equal(f, 1, b.calls) })
	})
}

// TestLongestWaitingFirst: of those that are tried again.
func TestLongestWaitingFirst(t *testing.T) {
	each(t, func(f *fixture) {
		f.writeNames("a/third", "b/first", "c/second")
		for at, id := range []string{"b/first", "c/second", "a/third"} {
			f.exec(fmt.Sprintf("UPDATE {t} SET state = 1, state_at = %d WHERE id = '%s'", at, id))
		}
		b := &broker{}
		options := quick()
		options.Batch = 1
		start(f, f.Outbox, b, options)
		f.sent()
		require.Equal(f, []string{"b/first", "c/second", "a/third"}, []string{b.arrived[0].ID, b.arrived[1].ID, b.arrived[2].ID})
	})
}

// TestPauseAfterManyFailures: does not grow beyond MaxPause, however many there were.
func TestPauseAfterManyFailures(t *testing.T) {
	each(t, func(f *fixture) {
		f.writeNames("a")
		f.exec("UPDATE {t} SET state = 1, attempts = 100")
		b, d := &broker{}, &diary{}
		b.refuse = func(outbox.Message) error { return errRefused }
		options := quick()
		options.Observe = d.observe
		start(f, f.Outbox, b, options)
		await(f, "it has failed", func() bool { return len(d.of(outbox.Failed)) > 0 })
		require.Equal(f, options.MaxPause, d.of(outbox.Failed)[0].Pause)
	})
}

// TestPauses: a message that has failed is left alone for its pause; and when a broker refuses all that
// it gets, so is the broker.
func TestPauses(t *testing.T) {
	each(t, func(f *fixture) {
		f.writeNames("p/0", "a/0")
		b, d := &broker{}, &diary{}
		b.refuse = func(m outbox.Message) error {
			if m.Key == "a" {
				return nil
			}
			return errRefused
		}
		options := quick()
		options.Batch, options.Pause, options.MaxPause, options.Observe = 2, time.Hour, time.Hour, d.observe
		start(f, f.Outbox, b, options)
		for i := range 10 {
			f.writeNames(fmt.Sprintf("a/%d", i+1))
			await(f, "it has come", func() bool { return b.count() > i+1 })
		}
		require.Len(f, d.of(outbox.Failed), 1)

		f.writeNames("1", "2", "3", "4")
		await(f, "two are refused", func() bool { return len(d.of(outbox.Failed)) == 3 })
		time.Sleep(20 * time.Millisecond)
		require.Len(f, d.of(outbox.Failed), 3)
	})
}

// TestUnconfirmed: the connection is lost in the midst of a publish. What was confirmed is not sent
// again, and what was not is nobody's fault.
func TestUnconfirmed(t *testing.T) {
	each(t, func(f *fixture) {
		f.writeNames("a/0", "b/0", "c/0", "d/0", "a/1", "b/1")
		b, d := &broker{}, &diary{}
		lost := 0
		b.refuse = func(m outbox.Message) error {
			switch {
			case m.ID == "b/0" && m.Attempt == 1:
				return errRefused
			case (m.ID == "a/0" || m.ID == "c/0") && lost < 4:
				lost++
				return fmt.Errorf("connection lost: %w", outbox.ErrUnconfirmed)
			}
			return nil
		}
		options := quick()
		options.MaxAttempts, options.Observe = 2, d.observe
		start(f, f.Outbox, b, options)
		f.sent()
		require.Equal(f, []string{"a/0", "a/1"}, b.names("a"))
		require.Equal(f, []string{"b/0", "b/1"}, b.names("b"))
		require.Equal(f, []string{"c/0"}, b.names("c"))
		require.Equal(f, []string{"d/0"}, b.names("d"))
		require.Empty(f, d.of(outbox.Parked))
		require.Equal(f, 2, d.of(outbox.BrokerFailed)[0].Messages)
		require.ErrorIs(f, d.of(outbox.BrokerFailed)[0].Err, outbox.ErrUnconfirmed)
		require.Equal(f, "b/0", d.of(outbox.Failed)[0].ID)
	})
}

// TestPublisherThatDoesNotSayWhich: a publisher that stops at the first message that fails, and
// does not say which it was. The others are sent all the same, some of them twice. What is not blamed
// is not parked.
func TestPublisherThatDoesNotSayWhich(t *testing.T) {
	each(t, func(f *fixture) {
		f.writeNames("a/1", "x", "p/1", "b/1", "p/2", "a/2")
		b, d := &broker{}, &diary{}
		naive := outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
			for _, m := range messages {
				if m.ID == "p/1" {
					return errRefused
				}
				_ = b.Publish(ctx, []outbox.Message{m})
			}
			return nil
		})
		options := quick()
		options.MaxAttempts, options.Observe = 2, d.observe
		start(f, f.Outbox, naive, options)
		next := 0
		await(f, "it has failed alone", func() bool { // while others prove that the broker is there
			f.writeNames(fmt.Sprintf("c/%d", next))
			next++
			return len(d.of(outbox.Failed)) > 6
		})
		await(f, "the others are sent", func() bool {
			s, err := f.Stats(f.Context())
			return err == nil && s.Unsent == 2
		})
		require.Equal(f, []string{"a/1", "a/2"}, first(b.names("a")))
		require.Equal(f, []string{"b/1"}, first(b.names("b")))
		require.Equal(f, []string{"x"}, first(b.names("")))
		require.Empty(f, b.names("p"))
		require.Len(f, first(b.names("c")), next)
		require.True(f, slicesIsInOrder(first(b.names("c"))))
		require.NotEmpty(f, d.of(outbox.BrokerFailed))
		require.Empty(f, d.of(outbox.Parked))
		for i, e := range d.of(outbox.Failed) {
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
	each(t, func(f *fixture) {
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
		}), quick())
		f.sent()
		require.True(f, slicesIsInOrder(b.names("a")))
		require.True(f, slicesIsInOrder(b.names("b")))
		require.Equal(f, 120, b.count())
		require.Greater(f, most.Load(), int64(2), "those without a key go together")
	})
}

// TestWrongOutcomes: a publisher that gives other than one outcome for each message is taken to
// have confirmed none.
func TestWrongOutcomes(t *testing.T) {
	each(t, func(f *fixture) {
		f.writeNames("1", "2", "3")
		b, d := &broker{}, &diary{}
		wrong := outbox.Errors{nil, errRefused}
		options := quick()
		options.Observe = d.observe
		start(f, f.Outbox, outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
			if len(messages) == 3 {
				return fmt.Errorf("publish: %w", wrong)
			}
			_ = b.Publish(ctx, messages)
			return make(outbox.Errors, len(messages)) // nothing but nil
		}), options)
		f.sent()
		require.Equal(f, []string{"1", "2", "3"}, b.names(""))
		require.Len(f, d.of(outbox.BrokerFailed), 1)
		require.ErrorIs(f, d.of(outbox.BrokerFailed)[0].Err, errRefused)
	})
}

// TestTwoRelays: one sends, and when it ends the other does at once.
func TestTwoRelays(t *testing.T) {
	each(t, func(f *fixture) {
		b := &broker{}
		var senders [2]atomic.Int64
		var diaries [2]diary
		var stops [2]func() error
		for i := range 2 {
			options := quick()
			options.Name, options.Lease, options.Observe = fmt.Sprint("relay ", i), time.Minute, diaries[i].observe
			if i == 1 {
				options.Lease = 300 * time.Millisecond // it asks every 100 ms
			}
			stops[i] = start(f, f.Outbox, outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
				senders[i].Add(1)
				return b.Publish(ctx, messages)
			}), options)
			await(f, "the first one leads", func() bool { return len(diaries[0].of(outbox.LeaseAcquired)) == 1 })
		}
		for i := range 50 {
			f.writeNames(fmt.Sprintf("a/%d", i))
		}
		f.sent()
		require.Equal(f, 50, b.count(), "nothing twice")
		require.Zero(f, senders[1].Load())
		s, err := f.Stats(f.Context())
		require.NoError(f, err)
		require.Equal(f, "relay 0", s.Relay)

		require.NoError(f, stops[0]())
		for i := range 50 {
			f.writeNames(fmt.Sprintf("a/%d", 50+i))
		}
		f.sent()
		require.Equal(f, 100, b.count(), "nothing twice")
		require.True(f, slicesIsInOrder(b.names("a")))
		require.Positive(f, senders[1].Load())
		await(f, "the second one has its lease, which is short", func() bool {
			s, err = f.Stats(f.Context())
			require.NoError(f, err)
			return s.Relay == "relay 1"
		})
		require.Empty(f, diaries[0].of(outbox.LeaseLost))
		require.NoError(f, stops[1]())
		s, err = f.Stats(f.Context())
		require.NoError(f, err)
		require.Empty(f, s.Relay)
	})
}

// TestLeaseIsRenewed: before it passes, also while there is nothing to send.
func TestLeaseIsRenewed(t *testing.T) {
	each(t, func(f *fixture) {
		options := quick()
		d := &diary{}
		options.Poll, options.Lease, options.Observe = time.Hour, 200*time.Millisecond, d.observe
		start(f, f.Outbox, &broker{}, options)
		var last int64
		await(f, "it is renewed in time", func() bool {
			before := last
			require.NoError(f, f.db.QueryRow("SELECT lease_until FROM "+f.table+"_lease").Scan(&last))
			return before > 0 && last > before && last-before < options.Lease.Microseconds()
		})
		require.Len(f, d.of(outbox.LeaseAcquired), 1)
	})
}

// TestTimeOfAPublish: each one has its share of the lease, which is renewed before it, also in the midst of a page.
func TestTimeOfAPublish(t *testing.T) {
	each(t, func(f *fixture) {
		f.writeNames("a/0", "a/1")
		options := quick()
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
	})
}

// TestStandBy: a relay that does not have the lease looks for its turn, and at nothing else.
func TestStandBy(t *testing.T) {
	each(t, func(f *fixture) {
		f.writeNames("a/1")
		f.exec("UPDATE {t}_lease SET owner = 'another', lease_until = 9000000000000000")
		f.exec("ALTER TABLE {t} RENAME TO {t}_away")
		b, d := &broker{}, &diary{}
		options := quick()
		options.Lease, options.Observe = 300*time.Millisecond, d.observe // time enough to send
		start(f, f.Outbox, b, options)
		time.Sleep(20 * time.Millisecond)
		require.Empty(f, d.of(outbox.DatabaseFailed))
		f.exec("ALTER TABLE {t}_away RENAME TO {t}")
		f.exec("UPDATE {t}_lease SET lease_until = 0")
		f.sent()
		require.Equal(f, []string{"a/1"}, b.names("a"))
	})
}

// TestOutageOfOneRelaysBroker: another relay may reach the broker that this one can't.
func TestOutageOfOneRelaysBroker(t *testing.T) {
	each(t, func(f *fixture) {
		b, d := &broker{}, &diary{}
		options := quick()
		options.Lease, options.MaxPause, options.Observe = time.Hour, time.Hour, d.observe
		start(f, f.Outbox, outbox.PublisherFunc(func(context.Context, []outbox.Message) error { return errRefused }), options)
		f.writeNames("a/1", "a/2")
		await(f, "the first one has failed", func() bool { return len(d.of(outbox.BrokerFailed)) > 2 })
		options = quick()
		options.Lease = 300 * time.Millisecond
		start(f, f.Outbox, b, options)
		f.sent()
		require.Equal(f, []string{"a/1", "a/2"}, b.names("a"))
	})
}

// TestEnd: a publish that is under way when the context ends is waited for, and what it has sent is
// marked; nothing more is begun.
func TestEnd(t *testing.T) {
	each(t, func(f *fixture) {
		f.writeNames("a/1", "a/2", "b/1")
		b := &broker{}
		b.refuse = func(m outbox.Message) error {
			if m.Key == "b" {
				return errRefused
			}
			return nil
		}
		begun, end := make(chan struct{}), make(chan struct{})
		options := quick()
		options.Drain = time.Minute
		relay, err := f.NewRelay(outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
			close(begun) // once only
			<-end
			assert.NoError(f, ctx.Err())
			return b.Publish(ctx, messages)
		}), options)
		require.NoError(f, err)
		ctx, cancel := context.WithCancel(f.Context())
		ended := make(chan error, 1)
		go func() { ended <- relay.Run(ctx) }()
		<-begun
		cancel()
		select {
		case <-ended:
			f.Fatal("it has not waited")
		case <-time.After(30 * time.Millisecond):
		}
		close(end)
		require.NoError(f, <-ended)
		require.Equal(f, []string{"a/1"}, b.names("a"))
		s, err := f.Stats(f.Context())
		require.NoError(f, err)
		require.Equal(f, int64(2), s.Unsent, "the other one is marked")
		require.Equal(f, int64(1), s.Retrying, "also what has failed")
		require.Empty(f, s.Relay)
	})
}

// TestEndWithoutTheLease: a lease that is another relay's by now stands when this one ends.
func TestEndWithoutTheLease(t *testing.T) {
	each(t, func(f *fixture) {
		f.writeNames("a/1")
		begun, end := make(chan struct{}), make(chan struct{})
		stop := start(f, f.Outbox, outbox.PublisherFunc(func(context.Context, []outbox.Message) error {
			close(begun)
			<-end
			return nil
		}), quick())
		<-begun
		f.exec("UPDATE {t}_lease SET owner = 'another', lease_until = 9000000000000000")
		close(end)
		require.NoError(f, stop())
		s, err := f.Stats(f.Context())
		require.NoError(f, err)
		require.Equal(f, outbox.Stats{Relay: "another"}, s)
	})
}

// TestSentAgain: a relay that has sent a message, and marked it, knows nothing more of it: somebody who makes it unsent
// has it sent again.
func TestSentAgain(t *testing.T) {
	each(t, func(f *fixture) {
		f.writeNames("a/1")
		b := &broker{}
		start(f, f.Outbox, b, quick())
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
	each(t, func(f *fixture) {
		f.writeNames("a/1")
		begun := make(chan struct{})
		options := quick()
		options.Drain = 10 * time.Millisecond
		d := &diary{}
		options.Observe = d.observe
		stop := start(f, f.Outbox, outbox.PublisherFunc(func(ctx context.Context, _ []outbox.Message) error {
			close(begun)
			<-ctx.Done()
			assert.Equal(f, context.Canceled, ctx.Err(), "it is not the end of the lease")
			return ctx.Err()
		}), options)
		<-begun
		require.NoError(f, stop())
		s, err := f.Stats(f.Context())
		require.NoError(f, err)
		require.Equal(f, int64(1), s.Unsent)
		require.Zero(f, s.Retrying, "nobody is blamed")
		require.Empty(f, d.of(outbox.BrokerFailed))
	})
}

// TestNotify: whoever says so need not wait for the next look.
func TestNotify(t *testing.T) {
	each(t, func(f *fixture) {
		b := &broker{}
		options := quick()
		options.Poll, options.Lease = time.Hour, 3*time.Hour
		d := &diary{}
		options.Observe = d.observe
		f.Notify() // nobody is there
		f.Notify()
		start(f, f.Outbox, b, options)
		await(f, "it leads", func() bool { return len(d.of(outbox.LeaseAcquired)) == 1 })
		for i := range 3 {
			f.writeNames(fmt.Sprintf("a/%d", i))
			f.Notify()
			await(f, "it has come", func() bool { return b.count() == i+1 })
		}
	})
}

func TestRunTwice(t *testing.T) {
	f := fresh(t, engines[2].url(t), outbox.Config{})
	b, d := &broker{}, &diary{}
	options := quick()
	options.Observe = d.observe
	relay, err := f.NewRelay(b, options)
	require.NoError(t, err)
	for range 2 { // one after the other is all right
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- relay.Run(ctx) }()
		await(t, "it runs", func() bool { return len(d.of(outbox.LeaseAcquired)) == 1 })
		require.ErrorContains(t, relay.Run(ctx), "running already")
		cancel()
		require.NoError(t, <-ended)
		d.events = nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, relay.Run(ctx))
}

func TestLogEvents(t *testing.T) {
	var out strings.Builder
	log := outbox.LogEvents(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})))
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
