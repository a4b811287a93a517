package outbox_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/store/sqlstore"
	"github.com/idem-go/idem/internal/backend"
	"github.com/idem-go/idem/outbox"
)

// link is a way to the database that can fail: a proxy on the wire, and for SQLite, which has
// none, a driver in front of the real one.
type link struct {
	db *sql.DB
	// cut breaks the connection that says the next statement with these words, before or after it
	// has taken effect. The channel closes when that has happened.
	cut func(words string, after bool) <-chan struct{}
	// down and up cut and restore it; stall and resume hold back what goes over it.
	down, up, stall, resume func()
	// delay makes it slow; nil if it can't be.
	delay func(time.Duration)
}

// link opens another pool, on whose connections each statement goes as it is written.
func (f *fixture) link() *link {
	if f.dialect == sqlstore.SQLite {
		d := &faultyDriver{real: f.db.Driver(), dsn: "file:" + strings.TrimPrefix(f.url, "sqlite:") + "&_pragma=journal_mode(WAL)&_txlock=immediate"}
		db := sql.OpenDB(d)
		f.Cleanup(func() { assert.NoError(f, db.Close()) })
		down, up := func() { d.away(true) }, func() { d.away(false) }
		return &link{db: db, cut: d.cut, down: down, up: up, stall: down, resume: up}
	}
	u, err := url.Parse(f.url)
	require.NoError(f, err)
	proxy := backend.NewProxy(f, u.Host)
	l := &link{down: proxy.Cut, up: proxy.Restore, stall: proxy.Stall, resume: proxy.Resume, delay: proxy.Delay}
	l.cut = func(words string, after bool) <-chan struct{} {
		if after {
			return proxy.CutAfter([]byte(words))
		}
		return proxy.CutBefore([]byte(words))
	}
	if f.dialect == sqlstore.PostgreSQL {
		l.db, _ = open(f, proxy.URL(f.url)+"&default_query_exec_mode=simple_protocol")
		return l
	}
	config := mysql.NewConfig()
	config.User, config.Net, config.Addr, config.DBName = u.User.Username(), "tcp", proxy.Addr(), u.Path[1:]
	config.Passwd, _ = u.User.Password()
	config.InterpolateParams = true
	connector, err := mysql.NewConnector(config)
	require.NoError(f, err)
	db := sql.OpenDB(connector)
	f.Cleanup(func() { assert.NoError(f, db.Close()) })
	l.db = db
	return l
}

// faultyDriver is a driver in front of another.
type faultyDriver struct {
	real driver.Driver
	dsn  string

	mu    sync.Mutex
	gone  bool
	words string
	after bool
	hit   chan struct{} // nil: nothing is to be cut
}

var errCut = errors.New("the connection was cut")

func (d *faultyDriver) cut(words string, after bool) <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.words, d.after, d.hit = words, after, make(chan struct{})
	return d.hit
}

func (d *faultyDriver) away(gone bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gone = gone
}

// cuts reports whether the connection breaks at this point.
func (d *faultyDriver) cuts(statement string, after bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gone {
		return true
	}
	if d.hit == nil || d.after != after || !strings.Contains(statement, d.words) {
		return false
	}
	close(d.hit)
	d.hit = nil
	return true
}

func (d *faultyDriver) Connect(context.Context) (driver.Conn, error) {
	if d.cuts("", false) {
		return nil, errCut
	}
	c, err := d.real.Open(d.dsn)
	return &faultyConn{Conn: c, d: d}, err
}

func (d *faultyDriver) Driver() driver.Driver { return d.real }

type faultyConn struct {
	driver.Conn
	d      *faultyDriver
	broken bool
}

func (c *faultyConn) IsValid() bool { return !c.broken }

func (c *faultyConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if c.broken = c.d.cuts(query, false); c.broken {
		return nil, errCut
	}
	result, err := c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
	if c.broken = c.d.cuts(query, true); c.broken {
		return nil, errCut
	}
	return result, err
}

func (c *faultyConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if c.broken = c.d.cuts(query, false) || c.d.cuts(query, true); c.broken {
		return nil, errCut
	}
	rows, err := c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
	return &faultyRows{rows, c}, err
}

type faultyRows struct {
	driver.Rows
	c *faultyConn
}

func (r *faultyRows) Next(dest []driver.Value) error {
	if r.c.broken = r.c.d.cuts("row", false); r.c.broken {
		return errCut
	}
	return r.Rows.Next(dest)
}

// TestCutAtEachStep: the relay's connection breaks at each of its statements, before and after it
// took effect. A relay that lives remembers what was confirmed: nothing is sent twice.
func TestCutAtEachStep(t *testing.T) {
	each(t, func(f *fixture) {
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
				b := &broker{}
				failed := false
				b.refuse = func(m outbox.Message) error {
					if !failed && strings.HasSuffix(m.ID, "/1") {
						failed = true
						return errRefused
					}
					return nil
				}
				var want []string
				for i := range 4 {
					want = append(want, fmt.Sprintf("%d/%d", round, i))
					f.writeNames(fmt.Sprintf("%d/%d", round, i), fmt.Sprintf("free %d %d", round, i))
				}
				cut := l.cut(words, after)
				stop := start(f, f.beside(l.db), b, quick())
				f.sent()
				require.NoError(f, stop(), what)
				<-cut
				s, err := f.Stats(f.Context())
				require.NoError(f, err)
				require.Zero(f, s, what)
				require.Equal(f, want, b.names(fmt.Sprint(round)), what)
				require.Equal(f, 8, b.count(), what)
			}
		}
	})
}

// TestFewerAfterAFailedRead: what is too much for the time that a statement has is halved until it is
// not.
func TestFewerAfterAFailedRead(t *testing.T) {
	each(t, func(f *fixture) {
		f.writeNames("1", "2", "3", "4")
		b := &broker{}
		options := quick()
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
			return b.Publish(ctx, messages)
		}), options)
		await(f, "all have come", func() bool { return b.count() == 4 })
		require.NoError(f, stop())
		require.Equal(f, []int{2, 2}, sizes)
	})
}

// TestCutBetweenRows: an answer that breaks off is none.
func TestCutBetweenRows(t *testing.T) {
	f := fresh(t, engines[2].url(t), outbox.Config{})
	l := f.link()
	cut := l.cut("row", false)
	_, err := f.beside(l.db).Stats(t.Context())
	<-cut
	require.ErrorIs(t, err, errCut)
}

// TestUnreadableRow: it is said which one it is, nothing is sent without what it says, and the database has its pause.
func TestUnreadableRow(t *testing.T) {
	each(t, func(f *fixture) {
		f.writeNames("broken", "a/1")
		f.exec("UPDATE {t} SET headers = '{' WHERE id = 'broken'")
		b, d := &broker{}, &diary{}
		options := quick()
		options.Pause, options.MaxPause, options.Observe = time.Hour, time.Hour, d.observe
		stop := start(f, f.Outbox, b, options)
		await(f, "it is said", func() bool { return len(d.of(outbox.DatabaseFailed)) > 0 })
		require.ErrorContains(f, d.of(outbox.DatabaseFailed)[0].Err, `the headers of "broken"`)
		time.Sleep(20 * time.Millisecond)
		require.Len(f, d.of(outbox.DatabaseFailed), 1, "it pauses")
		require.NoError(f, stop())
		require.Zero(f, b.count())
		start(f, f.Outbox, b, quick())
		f.exec("UPDATE {t} SET headers = '{}' WHERE id = 'broken'")
		f.sent()
		require.Equal(f, 2, b.count())
	})
}

// TestDatabaseAway: the database goes while a message is being confirmed, and is away for longer
// than a statement is tried. When it is back, the message is marked first.
func TestDatabaseAway(t *testing.T) {
	each(t, func(f *fixture) {
		l := f.link()
		f.writeNames("a/0", "a/1", "a/2")
		b, d := &broker{}, &diary{}
		b.down = func() error {
			if len(b.arrived) == 1 {
				l.down()
			}
			return nil
		}
		options := quick()
		options.Batch, options.Observe = 2, d.observe
		start(f, f.beside(l.db), b, options)
		await(f, "it has noticed", func() bool { return len(d.of(outbox.DatabaseFailed)) >= 3 })
		l.up()
		f.sent()
		require.Equal(f, []string{"a/0", "a/1", "a/2"}, b.names("a"))
		failed := d.of(outbox.DatabaseFailed)
		for i, e := range failed {
			require.Error(f, e.Err)
			require.Equal(f, quickPause(i), e.Pause)
		}

		// Another time, the pauses begin anew.
		b.set(func(b *broker) { b.down = func() error { l.down(); return nil } })
		f.writeNames("a/3")
		await(f, "it has noticed", func() bool { return len(d.of(outbox.DatabaseFailed)) > len(failed) })
		require.Equal(f, 2*time.Millisecond, d.of(outbox.DatabaseFailed)[len(failed)].Pause)
		_, err := f.beside(l.db).Unpark(f.Context(), "nobody")
		require.Error(f, err, "there is an end to trying")
		l.up()
		f.sent()
	})
}

// TestEndWhileTheLeaseIsAskedFor: the relay gets it, and does not hear of it, when it is to end. It gives back what it has.
func TestEndWhileTheLeaseIsAskedFor(t *testing.T) {
	each(t, func(f *fixture) {
		for range 5 { // it may be so fast that it has asked again
			l := f.link()
			cut := l.cut("_lease SET owner", true)
			stop := start(f, f.beside(l.db), &broker{}, quick())
			<-cut
			require.NoError(f, stop())
			s, err := f.Stats(f.Context())
			require.NoError(f, err)
			require.Empty(f, s.Relay)
		}
	})
}

// TestEndWhileTheDatabaseIsAway: the relay ends in the midst of a long pause. What was confirmed
// before is marked, if that is possible; if not, Run says so, and another Run of the relay begins with
// it.
func TestEndWhileTheDatabaseIsAway(t *testing.T) {
	each(t, func(f *fixture) {
		for _, back := range []bool{true, false} {
			name := fmt.Sprint("back ", back)
			l := f.link()
			f.writeNames(name)
			b, d := &broker{}, &diary{}
			b.down = func() error { l.down(); return nil }
			options := quick()
			options.Pause, options.MaxPause, options.Observe = time.Hour, time.Hour, d.observe
			relay, err := f.beside(l.db).NewRelay(b, options)
			require.NoError(f, err)
			run := func() (stop func() error) {
				ctx, cancel := context.WithCancel(f.Context())
				ended := make(chan error, 1)
				go func() { ended <- relay.Run(ctx) }()
				return func() error { cancel(); return <-ended }
			}
			stop := run()
			await(f, "it has failed", func() bool { return len(d.of(outbox.DatabaseFailed)) == 1 })
			if back {
				l.up()
				require.NoError(f, stop())
			} else {
				require.Error(f, stop())
				l.up()
				stop = run()
				f.sent()
				require.NoError(f, stop())
			}
			s, err := f.Stats(f.Context())
			require.NoError(f, err)
			require.Zero(f, s.Unsent)
			require.Equal(f, []string{name}, b.names(""))
		}
	})
}

// TestTakeover: a relay is cut off from the database in the midst of a publish that takes no end.
// Its time is over when the other one begins, and what it sends late is a duplicate that is in
// order. It begins nothing more.
func TestTakeover(t *testing.T) {
	each(t, func(f *fixture) {
		f.writeNames("a/0", "a/1", "a/2")
		l := f.link()
		b, d := &broker{}, &diary{}
		begun, end := make(chan context.Context, 10), make(chan struct{})
		options := quick()
		options.Lease, options.Observe = time.Second, d.observe
		start(f, f.beside(l.db), outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
			begun <- ctx
			<-end // whatever ctx says
			return b.Publish(ctx, messages)
		}), options)
		cutOff := <-begun
		l.stall()

		options.Lease = time.Minute
		stop := start(f, f.Outbox, outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
			deadline, _ := cutOff.Deadline()
			assert.False(f, time.Now().Before(deadline), "the first one may still send")
			return b.Publish(ctx, messages)
		}), options)
		f.sent()
		close(end)
		await(f, "the late one has come", func() bool { return b.count() == 4 })
		l.resume()
		await(f, "it sees that it is not the one", func() bool { return len(d.of(outbox.LeaseLost)) == 1 })
		f.writeNames("a/3")
		f.sent()
		require.Equal(f, []string{"a/0", "a/1", "a/2", "a/0", "a/3"}, b.names("a"))
		require.Empty(f, begun, "the first one has begun nothing more")

		require.NoError(f, stop())
		f.writeNames("a/4")
		f.sent()
		require.Len(f, begun, 1, "until it is its turn again")
		require.Len(f, d.of(outbox.LeaseAcquired), 3, "by the first one twice")
		require.Len(f, d.of(outbox.LeaseLost), 1)
	})
}

// TestStalePage: a relay is held up for longer than its lease, and in the meantime another one has sent
// everything, and has ended. What the first has read before is not sent again.
func TestStalePage(t *testing.T) {
	each(t, func(f *fixture) {
		f.writeNames("a/0", "a/1", "a/2")
		b := &broker{}
		begun, end := make(chan struct{}, 10), make(chan struct{})
		options := quick()
		options.Lease = 200 * time.Millisecond
		start(f, f.Outbox, outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
			begun <- struct{}{}
			<-end // whatever ctx says
			return b.Publish(ctx, messages)
		}), options)
		<-begun
		stop := start(f, f.Outbox, b, options)
		f.sent()
		require.NoError(f, stop())
		close(end)
		f.writeNames("a/3")
		f.sent()
		require.Equal(f, []string{"a/0", "a/1", "a/2", "a/0", "a/3"}, b.names("a"))
	})
}

// TestLateFailure: what another relay has sent in the meantime is sent, whatever has become of it here.
func TestLateFailure(t *testing.T) {
	each(t, func(f *fixture) {
		f.writeNames("a/0")
		b, d := &broker{}, &diary{}
		begun, end := make(chan struct{}, 10), make(chan struct{})
		options := quick()
		options.Lease, options.Observe = 200*time.Millisecond, d.observe
		start(f, f.Outbox, outbox.PublisherFunc(func(context.Context, []outbox.Message) error {
			begun <- struct{}{}
			<-end // whatever ctx says
			return outbox.Errors{errRefused}
		}), options)
		<-begun
		stop := start(f, f.Outbox, b, quick())
		f.sent()
		require.NoError(f, stop())
		close(end)
		await(f, "it has failed", func() bool { return len(d.of(outbox.Failed)) == 1 })
		s, err := f.Stats(f.Context())
		require.NoError(f, err)
		require.Zero(f, s.Unsent)
	})
}

// TestLeaseThatComesTooLate: the database takes longer to renew a lease than the lease stands. With
// such a lease nothing is sent.
func TestLeaseThatComesTooLate(t *testing.T) {
	each(t, func(f *fixture) {
		l := f.link()
		if l.delay == nil {
			f.Skip("SQLite is not far away")
		}
		f.writeNames("a/0", "a/1")
		b := &broker{}
		options := quick()
		options.Lease = 1200 * time.Millisecond
		start(f, f.beside(l.db), outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
			assert.NoError(f, ctx.Err())
			if messages[0].ID == "a/0" {
				l.delay(640 * time.Millisecond)
				time.Sleep(options.Lease / 3) // it is to be renewed
			}
			return b.Publish(ctx, messages)
		}), options)
		leases := map[int64]bool{}
		await(f, "it has renewed its lease in vain", func() bool {
			var until int64
			require.NoError(f, f.db.QueryRow("SELECT lease_until FROM "+f.table+"_lease").Scan(&until))
			leases[until] = true
			return len(leases) > 4
		})
		l.delay(0)
		f.sent()
	})
}

// TestDeadlineOfAPublish: is before the lease's end, however long the database has taken to answer.
func TestDeadlineOfAPublish(t *testing.T) {
	each(t, func(f *fixture) {
		l := f.link()
		if l.delay == nil {
			f.Skip("SQLite is not far away")
		}
		f.writeNames("a")
		l.delay(50 * time.Millisecond)
		options := quick()
		options.Lease = 300 * time.Millisecond
		start(f, f.beside(l.db), outbox.PublisherFunc(func(ctx context.Context, _ []outbox.Message) error {
			deadline, _ := ctx.Deadline()
			var until int64
			assert.NoError(f, f.db.QueryRow("SELECT lease_until FROM "+f.table+"_lease").Scan(&until))
			assert.Less(f, deadline.UnixMicro(), until)
			return nil
		}), options)
		f.sent()
	})
}

// TestOrderWithoutLease: three relays send at once, as if each had the lease; publishers refuse at
// random. All that the lease is for is that there are few duplicates.
func TestOrderWithoutLease(t *testing.T) {
	each(t, func(f *fixture) {
		const keys, each = 5, 30
		b := &broker{}
		b.refuse = func(outbox.Message) error {
			if rand.N(20) == 0 {
				return errRefused
			}
			return nil
		}
		options := quick()
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
