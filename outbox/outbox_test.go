package outbox_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/google/uuid"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/idem-go/idem/core/store/sqlstore"
	"github.com/idem-go/idem/internal/backend"
	"github.com/idem-go/idem/internal/leak"
	"github.com/idem-go/idem/outbox"
)

func TestMain(m *testing.M) {
	_ = mysql.SetLogger(&mysql.NopLogger{}) // it would report each connection that the tests cut
	leak.VerifyTestMain(m)
}

// engine is a database that the tests run on.
type engine struct {
	name string
	url  func(tb testing.TB) string
}

var engines = []engine{
	{"PostgreSQL", backend.Postgres},
	{"MySQL", backend.MySQL},
	{"SQLite", func(tb testing.TB) string {
		return "sqlite:" + filepath.Join(tb.TempDir(), "outbox.db") + "?_pragma=busy_timeout(10000)"
	}},
}

// each runs test on every engine, at once: most of the time they wait.
func each(t *testing.T, test func(f *fixture)) { on(t, engines, test) }

func on(t *testing.T, engines []engine, test func(f *fixture)) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			test(fresh(t, e.url(t), outbox.Config{}))
		})
	}
}

// onSQLite returns an outbox for a test of what is the same on every engine.
func onSQLite(t *testing.T) *fixture {
	t.Parallel()
	return fresh(t, engines[2].url(t), outbox.Config{})
}

// fixture is an outbox with tables of its own, which are dropped with the test.
type fixture struct {
	testing.TB
	diary   // of the relays with the options of quick
	url     string
	db      *sql.DB
	dialect sqlstore.Dialect
	table   string
	*outbox.Outbox
}

func fresh(tb testing.TB, url string, options outbox.Config) *fixture {
	tb.Helper()
	f := &fixture{TB: tb, url: url, table: "outbox_test_" + strings.ToLower(rand.Text()[:12])}
	f.db, f.dialect = open(tb, url)
	options.Table = f.table
	var err error
	f.Outbox, err = outbox.New(f.db, f.dialect, options)
	require.NoError(tb, err)
	require.NoError(tb, f.Migrate(tb.Context()))
	f.dropped(f.table, f.table+"_lease")
	return f
}

// dropped drops tables at the end of the test.
func (f *fixture) dropped(tables ...string) {
	f.Cleanup(func() {
		for _, table := range tables {
			_, err := f.db.Exec("DROP TABLE IF EXISTS " + table)
			assert.NoError(f, err)
		}
	})
}

func open(tb testing.TB, url string) (*sql.DB, sqlstore.Dialect) {
	tb.Helper()
	db, dialect, err := sqlstore.Open(url)
	require.NoError(tb, err)
	tb.Cleanup(func() { assert.NoError(tb, db.Close()) })
	return db, dialect
}

// beside is the same outbox by way of another pool, or one whose table has an addition to its name.
func (f *fixture) beside(db *sql.DB, addition ...string) *outbox.Outbox {
	o, err := outbox.New(db, f.dialect, outbox.Config{Table: f.table + strings.Join(addition, "")})
	require.NoError(f, err)
	return o
}

// write writes messages in a transaction that is committed.
func (f *fixture) write(messages ...outbox.Message) {
	f.Helper()
	require.NoError(f, f.tryWrite(messages...))
}

func (f *fixture) tryWrite(messages ...outbox.Message) error {
	tx, err := f.db.BeginTx(context.Background(), nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := f.Write(context.Background(), tx, messages...); err != nil {
		return err
	}
	return tx.Commit()
}

// writeNames writes a message for each name, which is its ID; what stands before a slash is the
// key: "a/1".
func (f *fixture) writeNames(names ...string) {
	f.Helper()
	f.write(named(names...)...)
}

func named(names ...string) (messages []outbox.Message) {
	for _, name := range names {
		key, _, keyed := strings.Cut(name, "/")
		if !keyed {
			key = ""
		}
		messages = append(messages, outbox.Message{ID: name, Key: key, Topic: "test", Body: []byte(name)})
	}
	return messages
}

// quick are options for a relay that loses no time, and still has some.
func (f *fixture) quick() outbox.RelayConfig {
	return outbox.RelayConfig{
		Lease: 10 * time.Second, Poll: 5 * time.Millisecond,
		Pause: 2 * time.Millisecond, MaxPause: 16 * time.Millisecond, Observe: f.observe,
	}
}

// quickPause is the pause of quick after i earlier failures in a row.
func quickPause(i int) time.Duration { return 2 * time.Millisecond << min(i, 3) }

// start runs a relay. stop ends it, and returns what Run has returned.
func start(tb testing.TB, o *outbox.Outbox, p outbox.Publisher, options outbox.RelayConfig) (stop func() error) {
	tb.Helper()
	relay, err := o.NewRelay(p, options)
	require.NoError(tb, err)
	stop = run(relay)
	tb.Cleanup(func() { assert.NoError(tb, stop()) })
	return stop
}

// run runs a relay until it is stopped.
func run(relay *outbox.Relay) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(ctx) }()
	return sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
}

// await waits until cond holds.
func await(tb testing.TB, what string, cond func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(time.Minute); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			require.FailNow(tb, "this has not come about: "+what)
		}
	}
}

func (f *fixture) stats() outbox.Stats {
	f.Helper()
	s, err := f.Stats(context.Background())
	require.NoError(f, err)
	return s
}

// leaseUntil is when the lease ends.
func (f *fixture) leaseUntil() (until int64) {
	f.Helper()
	require.NoError(f, f.db.QueryRow("SELECT lease_until FROM "+f.table+"_lease").Scan(&until))
	return until
}

// sent waits until nothing is left to be sent.
func (f *fixture) sent() {
	f.Helper()
	await(f, "everything is sent", func() bool {
		s, err := f.Stats(context.Background())
		return err == nil && s.Unsent == 0
	})
}

// broker is a broker that the test looks into.
type broker struct {
	mu      sync.Mutex
	arrived []outbox.Message
	refuse  func(m outbox.Message) error // if set: a message's own failure
	down    func() error                 // if set: a failure of the whole
	calls   int
}

// refusing is a broker that refuses some messages.
func refusing(which func(m outbox.Message) bool) *broker {
	return &broker{refuse: func(m outbox.Message) error {
		if which(m) {
			return errRefused
		}
		return nil
	}}
}

func (b *broker) Publish(_ context.Context, messages []outbox.Message) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	if b.down != nil {
		if err := b.down(); err != nil {
			return err
		}
	}
	errs := make(outbox.Errors, len(messages))
	for i, m := range messages {
		if b.refuse != nil {
			errs[i] = b.refuse(m)
		}
		if errs[i] == nil {
			b.arrived = append(b.arrived, m)
		}
	}
	return errs
}

// held is a publisher that goes on when the test says so, or is over, whatever becomes of ctx.
type held struct {
	f     *fixture
	to    outbox.Publisher
	begun chan context.Context
	end   chan struct{}
}

func (f *fixture) held(to outbox.Publisher) *held {
	return &held{f, to, make(chan context.Context, 10), make(chan struct{})}
}

func (h *held) Publish(ctx context.Context, messages []outbox.Message) error {
	h.begun <- ctx
	select {
	case <-h.end:
	case <-h.f.Context().Done():
	}
	return h.to.Publish(ctx, messages)
}

// set changes the broker while relays use it.
func (b *broker) set(change func(b *broker)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(b)
}

// names returns what has arrived under a key, in order; with duplicates.
func (b *broker) names(key string) (names []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.arrived {
		if m.Key == key {
			names = append(names, m.ID)
		}
	}
	return names
}

func (b *broker) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.arrived)
}

// first returns the first occurrences.
func first(names []string) (result []string) {
	seen := map[string]bool{}
	for _, n := range names {
		if !seen[n] {
			result = append(result, n)
		}
		seen[n] = true
	}
	return result
}

// diary keeps what a relay tells.
type diary struct {
	mu     sync.Mutex
	events []outbox.Event
}

func (d *diary) observe(_ context.Context, e outbox.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, e)
}

func (d *diary) of(kind outbox.Kind) (events []outbox.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.events {
		if e.Kind == kind {
			events = append(events, e)
		}
	}
	return events
}

func TestMessageArrivesAsItWasWritten(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		long := strings.Repeat("ä", 127)
		body := make([]byte, 100<<10)
		for i := range body {
			body[i] = byte(i)
		}
		want := []outbox.Message{
			{Topic: "orders.created"},
			{Exchange: "orders"},
			{ID: "id 'a' \\ \"b\"", Key: "Key ", Exchange: "x", Topic: "t%s{table}?$1",
				ContentType: "text/plain; charset=utf-8", Body: []byte("\x00'\\\xff")},
			{ID: long, Key: long, Exchange: long, Topic: long, ContentType: long,
				Headers: map[string]string{long: strings.Repeat("日", 1000), "empty": "", "odd": "\x01\"\\🙂"}},
			{Key: "key", Topic: "t", Body: body},
			{Key: "Key", Topic: "t", Headers: map[string]string{}},
		}
		for i := range 120 { // more than one statement
			want = append(want, outbox.Message{Topic: "many", Key: "many", Body: fmt.Appendf(nil, "%0*d", i*200, i)})
		}
		before := time.Now().Add(-time.Minute)
		f.write(want...)
		f.exec("UPDATE {t} SET created_at = created_at - 3600000000")
		b := &broker{}
		start(f, f.Outbox, b, f.quick())
		f.sent()
		require.Len(f, b.arrived, len(want))
		byPosition := map[int64]outbox.Message{}
		lowest := b.arrived[0].Position
		for _, m := range b.arrived {
			byPosition[m.Position] = m
			lowest = min(lowest, m.Position)
		}
		for i, w := range want {
			got := byPosition[lowest+int64(i)]
			if w.ID == "" {
				require.Regexp(f, `^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, got.ID)
				w.ID = got.ID
			}
			require.WithinRange(f, got.CreatedAt, before.Add(-time.Hour), time.Now().Add(time.Minute-time.Hour))
			if w.Headers == nil {
				w.Headers = map[string]string{}
			}
			if len(got.Body) == 0 {
				got.Body = nil
			}
			w.Position, w.CreatedAt, w.Attempt = got.Position, got.CreatedAt, 1
			require.Equal(f, w, got, i)
		}
	})
}

// statements are the numbers of bytes of bodies in each statement of a transaction.
type statements []int

func (s *statements) ExecContext(_ context.Context, _ string, args ...any) (sql.Result, error) {
	size := 0
	for _, arg := range args {
		if body, is := arg.([]byte); is {
			size += len(body)
		}
	}
	*s = append(*s, size)
	return nil, nil
}

// TestWriteLarge: servers of MySQL take no statement of any size.
func TestWriteLarge(t *testing.T) {
	t.Parallel()
	f := fresh(t, engines[2].url(t), outbox.Config{})
	var messages []outbox.Message
	for range 7 {
		messages = append(messages, outbox.Message{Topic: "t", Body: make([]byte, 100<<10)})
	}
	messages = append(messages, outbox.Message{Topic: "t", Body: make([]byte, 1<<20)})
	var s statements
	require.NoError(t, f.Write(t.Context(), &s, messages...))
	require.Equal(t, statements{200 << 10, 200 << 10, 200 << 10, 100 << 10, 1 << 20}, s)
}

func TestNewID(t *testing.T) {
	id, err := uuid.Parse(outbox.NewID())
	require.NoError(t, err)
	require.EqualValues(t, 7, id.Version())
	require.NotEqual(t, outbox.NewID(), outbox.NewID())
}

func TestWriteRefuses(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		f.Outbox, _ = outbox.New(f.db, f.dialect, outbox.Config{Table: f.table, MaxBody: 10})
		good := outbox.Message{Topic: "t", Body: make([]byte, 10)}
		for fault, m := range map[string]outbox.Message{
			"ID is":                  {Topic: "t", ID: strings.Repeat("i", 256)},
			"Key is":                 {Topic: "t", Key: "\xff"},
			"Topic is":               {Topic: "a\x00b"},
			"Exchange is":            {Exchange: strings.Repeat("ä", 128)},
			"ContentType is":         {Topic: "t", ContentType: "\xff"},
			"the name of a header":   {Topic: "t", Headers: map[string]string{"\xff": ""}},
			"a header has no name":   {Topic: "t", Headers: map[string]string{"": "x"}},
			"the header h is":        {Topic: "t", Headers: map[string]string{"h": "\xff"}},
			"no destination":         {Key: "k", Body: []byte("b")},
			"the body has 11 bytes;": {Topic: "t", Body: make([]byte, 11)},
		} {
			err := f.tryWrite(good, m, good)
			require.ErrorIs(f, err, outbox.ErrInvalid, fault)
			require.ErrorContains(f, err, fault)
			require.ErrorContains(f, err, "message 1:")
		}
		err := f.tryWrite(outbox.Message{Key: "\xff"}, good, outbox.Message{})
		require.ErrorContains(f, err, "message 0: Key is")
		require.ErrorContains(f, err, "message 2: it has no destination")

		require.ErrorContains(f, f.Write(f.Context(), f.db, good), "*sql.DB is not a transaction")
		require.ErrorContains(f, f.Write(f.Context(), nil, good), "a <nil> is not a transaction")
		require.NoError(f, f.tryWrite())
		require.Zero(f, f.stats())

		// Two messages of one identity: consumers would take the second for a duplicate.
		f.writeNames("once", "Once", "once ")
		err = f.tryWrite(named("other", "once")...)
		require.Error(f, err)
		require.NotErrorIs(f, err, outbox.ErrInvalid)
		require.Equal(f, int64(3), f.stats().Unsent)
	})
}

// TestLateCommit: a transaction that has got its position first is committed last. A relay that
// remembered the highest position that it has sent would never look at the lower one.
func TestLateCommit(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		if f.dialect == sqlstore.SQLite {
			f.Skip("SQLite has one writer at a time: positions are committed in their order")
		}
		b := &broker{}
		stop := start(f, f.Outbox, b, f.quick())
		late, err := f.db.BeginTx(f.Context(), nil)
		require.NoError(f, err)
		defer late.Rollback()
		require.NoError(f, f.Write(f.Context(), late, named("late", "k/late")...))
		f.writeNames("early", "other/early", "k/early") // committed, and beyond
		await(f, "the early ones are sent", func() bool { return b.count() == 3 })
		f.sent() // nor is the relay held up by what is not committed
		require.NoError(f, late.Commit())
		await(f, "the late ones are sent", func() bool { return b.count() == 5 })
		require.NoError(f, stop())

		position := map[string]int64{}
		for _, m := range b.arrived {
			position[m.ID] = m.Position
		}
		require.Less(f, position["late"], position["early"], "the case that this is about")
		require.Equal(f, []string{"early", "late"}, b.names(""))
		require.Equal(f, []string{"k/early", "k/late"}, b.names("k"))
	})
}

func TestNew(t *testing.T) {
	_, err := outbox.New(nil, 0, outbox.Config{Table: "a-b", MaxBody: -1})
	require.ErrorContains(t, err, "dialect")
	require.ErrorContains(t, err, "nil")
	require.ErrorContains(t, err, "MaxBody")
	db, dialect := open(t, "sqlite::memory:")
	for _, name := range []string{"a.b.c", "1a", "a b", "a;", `a"`, strings.Repeat("a", 51), "a."} {
		_, err = outbox.New(db, dialect, outbox.Config{Table: name})
		require.ErrorContains(t, err, "not a valid table name", name)
	}
	o, err := outbox.New(db, dialect, outbox.Config{})
	require.NoError(t, err)
	_, err = o.NewRelay(nil, outbox.RelayConfig{Lease: -1, Poll: -1, Pause: 2, MaxPause: 1, Drain: -1,
		Batch: -1, Name: strings.Repeat("n", 201)})
	for _, fault := range []string{"publisher is nil", "RelayConfig.Lease", "RelayConfig.Poll", "RelayConfig.MaxPause", "RelayConfig.Drain",
		"RelayConfig.Batch", "RelayConfig.Name"} {
		require.ErrorContains(t, err, fault)
	}
	relay, err := o.NewRelay(&broker{}, outbox.RelayConfig{})
	require.NoError(t, err)
	options := outbox.OptionsOf(relay)
	require.Contains(t, options.Name, fmt.Sprint(os.Getpid()))
	options.Name = ""
	require.Equal(t, outbox.RelayConfig{
		Lease: 15 * time.Second, Poll: time.Second, Batch: 100,
		Pause: 500 * time.Millisecond, MaxPause: 30 * time.Second, Drain: 5 * time.Second,
	}, options)
	relay, err = o.NewRelay(&broker{}, outbox.RelayConfig{Pause: time.Minute})
	require.NoError(t, err)
	require.Equal(t, time.Minute, outbox.OptionsOf(relay).MaxPause)
}

var errRefused = errors.New("the broker does not want it")
