package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/store/sqlstore"
	"github.com/idem-go/idem/internal/backend"
	"github.com/idem-go/idem/outbox"
)

// link is another pool, on a way to the database that can fail, and on which each statement goes as it is written.
type link struct {
	*backend.Proxy
	db *sql.DB
}

// eachOverALink runs test on the engines that are reached over a network.
func eachOverALink(t *testing.T, test func(f *fixture)) { on(t, engines[:2], test) }

func (f *fixture) link() link {
	u, err := url.Parse(f.url)
	require.NoError(f, err)
	l := link{Proxy: backend.NewProxy(f, u.Host)}
	option := "&default_query_exec_mode=simple_protocol"
	if f.dialect == sqlstore.MySQL {
		option = "?interpolateParams=true"
	}
	l.db, _ = open(f, l.URL(f.url)+option)
	return l
}

// TestCutAtEachStep: the relay's connection breaks at each of its statements, before and after it
// took effect. A relay that lives remembers what was confirmed: nothing is sent twice.
func TestCutAtEachStep(t *testing.T) {
	t.Parallel()
	eachOverALink(t, func(f *fixture) {
		round := 0
		for step, words := range map[string]string{
			"lease":   "_lease SET owner",
			"read":    "UNION ALL",
			"sent":    "SET state = 2",
			"failed":  "SET state = 1",
			"release": "lease_until = 0",
		} {
			for _, after := range []bool{false, true} {
				round++
				what := fmt.Sprintf("%s, after %v", step, after)
				l := f.link()
				failed := false
				b := refusing(func(m outbox.Message) bool {
					first := !failed && strings.HasSuffix(m.ID, "/1")
					failed = failed || first
					return first
				})
				var want []string
				for i := range 4 {
					want = append(want, fmt.Sprintf("%d/%d", round, i))
					f.writeNames(fmt.Sprintf("%d/%d", round, i), fmt.Sprintf("free %d %d", round, i))
				}
				lay := l.CutBefore
				if after {
					lay = l.CutAfter
				}
				cut := lay([]byte(words))
				stop := start(f, f.beside(l.db), b, f.quick())
				f.sent()
				require.NoError(f, stop(), what)
				<-cut
				require.Zero(f, f.stats(), what)
				require.Equal(f, want, b.names(fmt.Sprint(round)), what)
				require.Equal(f, 8, b.count(), what)
			}
		}
	})
}

// TestFewerAfterAFailedRead: what is too much for the time that a statement has is halved until it is
// not.
func TestFewerAfterAFailedRead(t *testing.T) {
	f := onSQLite(t)
	f.writeNames("1", "2", "3", "4")
	options := f.quick()
	options.Batch = 4
	f.exec("ALTER TABLE {t} RENAME TO {t}_away")
	options.Observe = func(_ context.Context, e outbox.Event) {
		if e.Kind == outbox.DatabaseFailed {
			assert.ErrorContains(f, e.Err, "outbox: read: ")
			_, err := f.db.Exec("ALTER TABLE " + f.table + "_away RENAME TO " + f.table)
			assert.NoError(f, err)
		}
	}
	var sizes []int
	stop := start(f, f.Outbox, outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
		sizes = append(sizes, len(messages))
		return nil
	}), options)
	f.sent()
	require.NoError(f, stop())
	require.Equal(f, []int{2, 2}, sizes)
}

// TestCutBetweenRows: an answer that breaks off is none.
func TestCutBetweenRows(t *testing.T) {
	t.Parallel()
	f := fresh(t, engines[0].url(t), outbox.Config{})
	f.exec("DROP TABLE {t}_lease")
	f.exec("CREATE VIEW {t}_lease AS SELECT 'relay' AS name, '' AS owner, 1 / n AS lease_until FROM generate_series(1, 0, -1) AS n")
	_, err := f.Stats(t.Context())
	require.ErrorContains(t, err, "division by zero")
	f.exec("DROP VIEW {t}_lease")
}

// TestUnreadableRow: it is said which one it is, nothing is sent without what it says, and the database has its pause.
func TestUnreadableRow(t *testing.T) {
	f := onSQLite(t)
	f.writeNames("broken", "a/1")
	f.exec("UPDATE {t} SET headers = '{' WHERE id = 'broken'")
	b := &broker{}
	options := f.quick()
	options.Pause, options.MaxPause = time.Hour, time.Hour
	stop := start(f, f.Outbox, b, options)
	await(f, "it is said", func() bool { return len(f.of(outbox.DatabaseFailed)) > 0 })
	require.ErrorContains(f, f.of(outbox.DatabaseFailed)[0].Err, `the headers of "broken"`)
	time.Sleep(20 * time.Millisecond)
	require.Len(f, f.of(outbox.DatabaseFailed), 1, "it pauses")
	require.NoError(f, stop())
	require.Zero(f, b.count())
}

// TestDatabaseAway: the database goes while a message is being confirmed, and is away for longer
// than a statement is tried. When it is back, the message is marked first.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	eachOverALink(t, func(f *fixture) {
		l := f.link()
		f.writeNames("a/0", "a/1", "a/2")
		b := &broker{}
		b.down = func() error {
			if len(b.arrived) == 1 {
				l.Cut()
			}
			return nil
		}
		options := f.quick()
		options.Batch = 2
		start(f, f.beside(l.db), b, options)
		await(f, "it has noticed", func() bool { return len(f.of(outbox.DatabaseFailed)) >= 3 })
		l.Restore()
		f.sent()
		require.Equal(f, []string{"a/0", "a/1", "a/2"}, b.names("a"))
		failed := f.of(outbox.DatabaseFailed)
		for i, e := range failed {
			require.Error(f, e.Err)
			require.Equal(f, quickPause(i), e.Pause)
		}

		// Another time, the pauses begin anew.
		b.set(func(b *broker) { b.down = func() error { l.Cut(); return nil } })
		f.writeNames("a/3")
		await(f, "it has noticed", func() bool { return len(f.of(outbox.DatabaseFailed)) > len(failed) })
		require.Equal(f, 2*time.Millisecond, f.of(outbox.DatabaseFailed)[len(failed)].Pause)
		_, err := f.beside(l.db).Unpark(f.Context(), "nobody")
		require.Error(f, err, "there is an end to trying")
		l.Restore()
		f.sent()
	})
}

// TestEndWhileTheLeaseIsAskedFor: the relay gets it, and does not hear of it, when it is to end. It gives back what it has.
func TestEndWhileTheLeaseIsAskedFor(t *testing.T) {
	t.Parallel()
	eachOverALink(t, func(f *fixture) {
		for range 5 { // it may be so fast that it has asked again
			l := f.link()
			cut := l.CutAfter([]byte("_lease SET owner"))
			stop := start(f, f.beside(l.db), &broker{}, f.quick())
			<-cut
			require.NoError(f, stop())
			require.Empty(f, f.stats().Relay)
		}
	})
}

// TestEndWhileTheDatabaseIsAway: the relay ends in the midst of a long pause. What was confirmed
// before is marked, if that is possible; if not, Run says so, and another Run of the relay begins with
// it.
func TestEndWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	eachOverALink(t, func(f *fixture) {
		for i, back := range []bool{true, false} {
			name := fmt.Sprint("back ", back)
			l := f.link()
			f.writeNames(name)
			b := &broker{down: func() error { l.Cut(); return nil }}
			options := f.quick()
			options.Pause, options.MaxPause = time.Hour, time.Hour
			relay, err := f.beside(l.db).NewRelay(b, options)
			require.NoError(f, err)
			stop := run(relay)
			await(f, "it has failed", func() bool { return len(f.of(outbox.DatabaseFailed)) == i+1 })
			if !back {
				require.Error(f, stop())
			}
			l.Restore()
			if !back {
				stop = run(relay)
				f.sent()
			}
			require.NoError(f, stop())
			require.Zero(f, f.stats().Unsent)
			require.Equal(f, []string{name}, b.names(""))
		}
	})
}

// TestTakeover: a relay is cut off from the database in the midst of a publish that takes no end.
// Its time is over when the other one begins, and what it sends late is a duplicate that is in
// order. It begins nothing more.
func TestTakeover(t *testing.T) {
	t.Parallel()
	eachOverALink(t, func(f *fixture) {
		f.writeNames("a/0", "a/1", "a/2")
		l := f.link()
		b := &broker{}
		h := f.held(b)
		options := f.quick()
		options.Lease = time.Second
		start(f, f.beside(l.db), h, options)
		cutOff := <-h.begun
		l.Stall()

		options.Lease = time.Minute
		stop := start(f, f.Outbox, outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
			deadline, _ := cutOff.Deadline()
			assert.False(f, time.Now().Before(deadline), "the first one may still send")
			return b.Publish(ctx, messages)
		}), options)
		taken := func() bool { return len(f.of(outbox.LeaseAcquired)) == 2 }
		require.Eventually(f, taken, 20*time.Second, time.Millisecond, "the lease of a second is not taken over")
		f.sent()
		close(h.end)
		await(f, "the late one has come", func() bool { return b.count() == 4 })
		l.Resume()
		await(f, "it sees that it is not the one", func() bool { return len(f.of(outbox.LeaseLost)) == 1 })
		f.writeNames("a/3")
		f.sent()
		require.Equal(f, []string{"a/0", "a/1", "a/2", "a/0", "a/3"}, b.names("a"))
		require.Empty(f, h.begun, "the first one has begun nothing more")

		require.NoError(f, stop())
		f.writeNames("a/4")
		f.sent()
		require.Len(f, h.begun, 1, "until it is its turn again")
		require.Len(f, f.of(outbox.LeaseAcquired), 3, "by the first one twice")
		require.Len(f, f.of(outbox.LeaseLost), 1)
	})
}

// TestStalePage: a relay is held up for longer than its lease, and in the meantime another one has sent
// everything, and has ended. What the first has read before is not sent again.
func TestStalePage(t *testing.T) {
	f := onSQLite(t)
	f.writeNames("a/0", "a/1", "a/2")
	b := &broker{}
	h := f.held(b)
	options := f.quick()
	options.Lease = 200 * time.Millisecond
	start(f, f.Outbox, h, options)
	<-h.begun
	stop := start(f, f.Outbox, b, options)
	f.sent()
	require.NoError(f, stop())
	close(h.end)
	f.writeNames("a/3")
	f.sent()
	require.Equal(f, []string{"a/0", "a/1", "a/2", "a/0", "a/3"}, b.names("a"))
}

// TestLateFailure: what another relay has sent in the meantime is sent, whatever has become of it here.
func TestLateFailure(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		f.writeNames("a/0")
		h := f.held(refusing(func(outbox.Message) bool { return true }))
		options := f.quick()
		options.Lease = 200 * time.Millisecond
		start(f, f.Outbox, h, options)
		<-h.begun
		stop := start(f, f.Outbox, &broker{}, f.quick())
		f.sent()
		require.NoError(f, stop())
		close(h.end)
		await(f, "it has failed", func() bool { return len(f.of(outbox.Failed)) == 1 })
		require.Zero(f, f.stats().Unsent)
	})
}

// TestLeaseThatComesTooLate: the database takes longer to renew a lease than the lease stands. With
// such a lease nothing is sent.
func TestLeaseThatComesTooLate(t *testing.T) {
	t.Parallel()
	eachOverALink(t, func(f *fixture) {
		l := f.link()
		f.writeNames("a/0", "a/1")
		b := &broker{}
		options := f.quick()
		options.Lease = 1200 * time.Millisecond
		start(f, f.beside(l.db), outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
			assert.NoError(f, ctx.Err())
			if messages[0].ID == "a/0" {
				l.Delay(640 * time.Millisecond)
				time.Sleep(options.Lease / 3) // it is to be renewed
			}
			return b.Publish(ctx, messages)
		}), options)
		leases := map[int64]bool{}
		await(f, "it has renewed its lease in vain", func() bool {
			leases[f.leaseUntil()] = true
			return len(leases) > 4
		})
		l.Delay(0)
		f.sent()
	})
}

// TestDeadlineOfAPublish: is before the lease's end, however long the database has taken to answer.
func TestDeadlineOfAPublish(t *testing.T) {
	t.Parallel()
	eachOverALink(t, func(f *fixture) {
		l := f.link()
		f.writeNames("a")
		l.Delay(50 * time.Millisecond)
		options := f.quick()
		options.Lease = 300 * time.Millisecond
		start(f, f.beside(l.db), outbox.PublisherFunc(func(ctx context.Context, _ []outbox.Message) error {
			deadline, _ := ctx.Deadline()
			assert.Less(f, deadline.UnixMicro(), f.leaseUntil())
			return nil
		}), options)
		f.sent()
	})
}

// TestOrderWithoutLease: three relays send at once, as if each had the lease; publishers refuse at
// random. All that the lease is for is that there are few duplicates.
func TestOrderWithoutLease(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		const keys, each = 5, 30
		b := refusing(func(outbox.Message) bool { return rand.N(20) == 0 })
		options := f.quick()
		options.Batch = 20
		options.Observe = func(_ context.Context, e outbox.Event) {
			if e.Kind == outbox.LeaseAcquired { // whose end the relay does not notice
				_, err := f.db.Exec("UPDATE " + f.table + "_lease SET lease_until = 0")
				assert.NoError(f, err)
			}
		}
		for range 3 {
			start(f, f.Outbox, b, options)
		}
		var wg sync.WaitGroup
		for key := range keys {
			wg.Go(func() {
				for i := range each {
					assert.NoError(f, f.tryWrite(named(fmt.Sprintf("%d/%d", key, i))...))
				}
			})
		}
		wg.Wait()
		f.sent()
		for key := range keys {
			names := first(b.names(fmt.Sprint(key)))
			require.Len(f, names, each)
			require.True(f, slicesIsInOrder(names), names)
		}
		f.Logf("%d messages were sent %d times by 3 relays at once", keys*each, b.count())
	})
}
