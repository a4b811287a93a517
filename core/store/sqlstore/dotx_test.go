package sqlstore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/sqlstore"
)

// books is a store, and a table of business rows in the same database: each key must have
// one row or none.
type books struct {
	t     *testing.T
	store *sqlstore.Store
	db    *sql.DB
	table string // of records
	rows  string // of rows
}

func newBooks(t *testing.T, url string) *books {
	s, db, name := fresh(t, url, sqlstore.Config{})
	b := &books{t: t, store: s, db: db, table: name, rows: name + "_rows"}
	suffix := ""
	if strings.HasPrefix(url, "mysql") {
		suffix = " ENGINE=InnoDB"
	}
	_, err := db.Exec("CREATE TABLE " + b.rows + " (name VARCHAR(64) NOT NULL, amount BIGINT NOT NULL)" + suffix)
	require.NoError(t, err)
	t.Cleanup(func() {
		// What a context has ended is rolled back a moment later.
		assert.Eventually(t, func() bool { return db.Stats().InUse == 0 }, 10*time.Second, time.Millisecond)
		_, err := db.Exec("DROP TABLE " + b.rows)
		assert.NoError(t, err)
	})
	return b
}

// enter returns a function for DoTx that makes a row of the given name.
func (b *books) enter(name string) function {
	return func(tx *sql.Tx) ([]byte, error) {
		_, err := tx.Exec("INSERT INTO " + b.rows + " (name, amount) VALUES ('" + name + "', 1)")
		return []byte("entered " + name), err
	}
}

// count returns how many rows of that name are committed.
func (b *books) count(name string) (n int) {
	b.t.Helper()
	require.NoError(b.t, b.db.QueryRow("SELECT COUNT(*) FROM "+b.rows+" WHERE name = '"+name+"'").Scan(&n))
	return n
}

// amount returns the amount of the only row of that name.
func (b *books) amount(name string) (amount int) {
	b.t.Helper()
	require.NoError(b.t, b.db.QueryRow("SELECT amount FROM "+b.rows+" WHERE name = '"+name+"'").Scan(&amount))
	return amount
}

func (b *books) do(key string, fn func(tx *sql.Tx) ([]byte, error), opts ...sqlstore.TxOption) (core.Result[[]byte], error) {
	return b.store.DoTx(b.t.Context(), b.db, key, fn, opts...)
}

type (
	function = func(tx *sql.Tx) ([]byte, error)
	caller   = func(ctx context.Context, db sqlstore.TxBeginner, key string, fn function) (core.Result[[]byte], error)
)

// calls are DoTx with a key, and RunTx in a run of a task with that key.
func (b *books) calls() map[string]caller {
	task := core.MustNew(core.Config{Service: "shop", Store: b.store}).MustTask(core.TaskPolicy{Name: "task"})
	return map[string]caller{
		"DoTx": func(ctx context.Context, db sqlstore.TxBeginner, key string, fn function) (core.Result[[]byte], error) {
			return b.store.DoTx(ctx, db, key, fn)
		},
		"RunTx": func(ctx context.Context, db sqlstore.TxBeginner, key string, fn function) (r core.Result[[]byte], err error) {
			_, err = core.Do(b.t.Context(), task, core.Call{Key: key}, func(run context.Context) (string, error) {
				r, err = b.store.RunTx(ended{run, ctx}, db, fn)
				return "", err
			})
			return r, err
		},
	}
}

func never(*sql.Tx) ([]byte, error) { return nil, errors.New("the function ran") }

func claim(lease time.Duration) store.Claim {
	return store.Claim{Owner: store.NewOwner(), Lease: lease, Retention: time.Hour}
}

func TestDoTx(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		b := newBooks(t, url)
		first, err := b.do("k", b.enter("k"))
		require.NoError(t, err)
		assert.Equal(t, core.Result[[]byte]{Value: []byte("entered k"), Attempt: 1}, first)
		again, err := b.do("k", never)
		require.NoError(t, err)
		assert.Equal(t, core.Result[[]byte]{Value: []byte("entered k"), Replayed: true}, again)
		assert.Equal(t, 1, b.count("k"))

		// The store sees it done.
		g, err := b.store.Acquire(t.Context(), "k", claim(time.Hour))
		require.NoError(t, err)
		assert.Equal(t, store.Done, g.State)
		assert.Equal(t, "entered k", string(g.Result))
		assert.InDelta(t, (24 * time.Hour).Seconds(), g.Remaining.Seconds(), 60)

		// Another pool on the same database serves as well, and so does one connection.
		other, _ := open(t, strings.Replace(url, "///", "/", 1))
		conn, err := b.db.Conn(t.Context())
		require.NoError(t, err)
		for name, db := range map[string]sqlstore.TxBeginner{"pool": other, "connection": conn} {
			for _, replayed := range []bool{false, true} {
				r, err := b.store.DoTx(t.Context(), db, name, b.enter(name))
				require.NoError(t, err, name)
				assert.Equal(t, replayed, r.Replayed)
			}
			assert.Equal(t, 1, b.count(name))
		}
		require.NoError(t, conn.Close())
	})
}

func TestDoTxMeetsWithWhatStands(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		b := newBooks(t, url)
		ctx := t.Context()
		_, err := b.do("", never)
		require.ErrorIs(t, err, codes.KeyMissing)
		_, err = b.do("k", never, sqlstore.Retention(0))
		require.ErrorContains(t, err, "retention")
		_, err = b.do("k", never, sqlstore.Fingerprint(strings.Repeat("f", 65)))
		require.ErrorContains(t, err, "fingerprint")

		// Another fingerprint, done and running.
		_, err = b.do("k", b.enter("k"), sqlstore.Fingerprint("f"))
		require.NoError(t, err)
		_, err = b.do("k", never, sqlstore.Fingerprint("g"))
		require.ErrorIs(t, err, codes.KeyReused)
		running := claim(time.Hour)
		_, err = b.store.Acquire(ctx, "running", running)
		require.NoError(t, err)
		_, err = b.do("running", never, sqlstore.Fingerprint("g"))
		require.ErrorIs(t, err, codes.KeyReused)
		_, err = b.do("running", never)
		require.ErrorIs(t, err, codes.InProgress)
		require.NoError(t, b.store.Complete(ctx, "running", running.Owner, []byte("elsewhere"), time.Hour))
		r, err := b.do("running", never)
		require.NoError(t, err)
		assert.Equal(t, core.Result[[]byte]{Value: []byte("elsewhere"), Replayed: true}, r)

		// A guard's record that has outlived its result.
		expired := claim(time.Hour)
		_, err = b.store.Acquire(ctx, "expired", expired)
		require.NoError(t, err)
		require.NoError(t, b.store.Capabilities().Outlive(ctx, "expired", expired.Owner, []byte("elsewhere"), time.Microsecond, time.Hour))
		time.Sleep(5 * time.Millisecond)
		_, err = b.do("expired", never, sqlstore.Fingerprint("g"))
		require.ErrorIs(t, err, codes.KeyExpired)

		// An abandoned run is taken over in the transaction, and is abandoned again if that
		// fails.
		abandoned := claim(1)
		_, err = b.store.Acquire(ctx, "abandoned", abandoned)
		require.NoError(t, err)
		time.Sleep(5 * time.Millisecond)
		_, err = b.do("abandoned", never, sqlstore.Fingerprint("g"))
		require.ErrorIs(t, err, codes.KeyReused)
		_, err = b.do("abandoned", never)
		require.ErrorContains(t, err, "the function ran")
		r, err = b.do("abandoned", b.enter("abandoned"))
		require.NoError(t, err)
		assert.Equal(t, uint64(2), r.Attempt)
		require.ErrorIs(t, b.store.Complete(ctx, "abandoned", abandoned.Owner, nil, time.Hour), store.ErrLost)

		// A record whose time has passed is none.
		_, err = b.do("brief", func(tx *sql.Tx) ([]byte, error) {
			time.Sleep(5 * time.Millisecond) // which does not count
			return b.enter("brief")(tx)
		}, sqlstore.Retention(time.Millisecond))
		require.NoError(t, err)
		time.Sleep(5 * time.Millisecond)
		r, err = b.do("brief", b.enter("brief"))
		require.NoError(t, err)
		assert.Equal(t, uint64(1), r.Attempt)
		assert.Equal(t, 2, b.count("brief"))
	})
}

func TestDoTxLeavesNothingOfAFailedRun(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		b := newBooks(t, url)
		cause := errors.New("no money")
		_, err := b.do("k", func(tx *sql.Tx) ([]byte, error) {
			_, err := b.enter("k")(tx)
			return nil, errors.Join(err, cause)
		})
		require.ErrorIs(t, err, cause)
		require.NotErrorIs(t, err, codes.StoreUnavailable)

		require.PanicsWithValue(t, "oops", func() {
			_, _ = b.do("k", func(tx *sql.Tx) ([]byte, error) {
				_, _ = b.enter("k")(tx)
				panic("oops")
			})
		})

		var wg sync.WaitGroup
		wg.Go(func() {
			_, _ = b.do("k", func(tx *sql.Tx) ([]byte, error) {
				_, _ = b.enter("k")(tx)
				runtime.Goexit()
				return nil, nil
			})
		})
		wg.Wait()

		assert.Zero(t, b.count("k"))
		r, err := b.do("k", b.enter("k"))
		require.NoError(t, err)
		assert.Equal(t, uint64(1), r.Attempt)
		assert.Equal(t, 1, b.count("k"))
	})
}

// TestEndedByTheFunction: a function that ends the transaction itself gets an error, because the record is not what it should be. It
// is not marked as committed: the next call runs.
func TestEndedByTheFunction(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		b := newBooks(t, url)
		says := func(statement string) func(tx *sql.Tx) error {
			return func(tx *sql.Tx) error {
				_, _ = tx.Exec(statement)
				return nil
			}
		}
		ends := map[string]func(tx *sql.Tx) error{
			"commits":    (*sql.Tx).Commit,
			"rolls back": (*sql.Tx).Rollback,
			"says so":    says("ROLLBACK"), // as MySQL itself does at a deadlock
		}
		if dialectOf(url) == sqlstore.PostgreSQL { // where an error ends it
			ends["goes on"] = says("SELECT 1/0")
		}
		for name, call := range b.calls() {
			for how, end := range ends {
				key := name + " " + how
				_, err := call(t.Context(), b.db, key, func(tx *sql.Tx) ([]byte, error) { return nil, end(tx) })
				require.ErrorContains(t, err, "ended the transaction", key)
				_, refused := errors.AsType[*core.Refusal](err)
				require.False(t, refused, key)
				r, err := call(t.Context(), b.db, key, b.enter(key))
				for errors.Is(err, codes.InProgress) { // a record that was committed has a lease, until the clock moves on
					r, err = call(t.Context(), b.db, key, b.enter(key))
				}
				require.NoError(t, err, key)
				require.False(t, r.Replayed, key)
				require.Equal(t, 1, b.count(key), key)
			}
		}
	})
}

// TestDoTxAtOnce: two processes have many concurrent duplicates.
func TestDoTxAtOnce(t *testing.T) {
	t.Parallel()
	run(t, append(strict, engines...), func(t *testing.T, url string) {
		b, peer := newBooks(t, url), new(books)
		*peer = *b
		peer.db, _ = open(t, url)
		peer.store = openStore(t, url, b.table)
		b.atOnce(peer)
	})
}

// atOnce makes concurrent duplicates, here and at peers. One runs, and the others get its result, or may run if it has failed.
func (b *books) atOnce(peers ...*books) {
	const rounds, callers = 10, 6
	sides := append(peers, b)
	for round := range rounds {
		key := fmt.Sprint("round ", round)
		var failed, ran, replayed atomic.Int32
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				r, err := core.Result[[]byte]{}, errUnlucky
				for errors.Is(err, errUnlucky) {
					r, err = sides[i%len(sides)].do(key, func(tx *sql.Tx) ([]byte, error) {
						v, err := b.enter(key)(tx)
						if failed.Add(1) <= 2 {
							err = errors.Join(err, errUnlucky)
						}
						return v, err
					})
				}
				assert.NoError(b.t, err)
				assert.Equal(b.t, "entered "+key, string(r.Value))
				if r.Replayed {
					replayed.Add(1)
				} else {
					ran.Add(1)
				}
			})
		}
		wg.Wait()
		require.Equal(b.t, int32(1), ran.Load(), "callers that ran")
		require.Equal(b.t, int32(callers-1), replayed.Load(), "callers that got the result")
		require.Equal(b.t, 1, b.count(key))
	}
}

var errUnlucky = errors.New("unlucky")

// TestDoTxDeadlock makes two transactions wait for each other. The database ends one of
// them, which runs again.
func TestDoTxDeadlock(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		b := newBooks(t, url)
		if strings.HasPrefix(url, "sqlite") {
			t.Skip("SQLite has one writer at a time: nobody waits for another")
		}
		_, err := b.db.Exec("INSERT INTO " + b.rows + " (name, amount) VALUES ('a', 0), ('b', 0)")
		require.NoError(t, err)
		if strings.HasPrefix(url, "mysql") { // where rows that have no index are all locked
			_, err := b.db.Exec("ALTER TABLE " + b.rows + " ADD PRIMARY KEY (name)")
			require.NoError(t, err)
		}
		var met sync.WaitGroup
		met.Add(2)
		var runs atomic.Int32
		transfer := func(key, from, to string) error {
			first := true
			_, err := b.do(key, func(tx *sql.Tx) ([]byte, error) {
				runs.Add(1)
				if _, err := tx.Exec("UPDATE " + b.rows + " SET amount = amount - 1 WHERE name = '" + from + "'"); err != nil {
					return nil, err
				}
				if first { // both hold their first row before either asks for its second
					first = false
					met.Done()
					met.Wait()
				}
				_, err := tx.Exec("UPDATE " + b.rows + " SET amount = amount + 1 WHERE name = '" + to + "'")
				return nil, err
			})
			return err
		}
		var one, two error
		var wg sync.WaitGroup
		wg.Go(func() { one = transfer("a to b", "a", "b") })
		wg.Go(func() { two = transfer("b to a", "b", "a") })
		wg.Wait()
		require.NoError(t, one)
		require.NoError(t, two)
		assert.GreaterOrEqual(t, runs.Load(), int32(3), "there was no deadlock")
		assert.Equal(t, []int{0, 0}, []int{b.amount("a"), b.amount("b")})
	})
}

// TestDoTxSerializable: transactions that read what others write are repeated after serialisation failures.
func TestDoTxSerializable(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		b := newBooks(t, url)
		_, err := b.db.Exec("INSERT INTO " + b.rows + " (name, amount) VALUES ('sum', 0)")
		require.NoError(t, err)
		var opts []sqlstore.TxOption
		if !strings.HasPrefix(url, "sqlite") { // which knows no other level
			opts = append(opts, sqlstore.Isolation(sql.LevelSerializable))
		}
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				_, err := b.do(fmt.Sprint(i), func(tx *sql.Tx) ([]byte, error) {
					var sum int
					if err := tx.QueryRow("SELECT amount FROM " + b.rows + " WHERE name = 'sum'").Scan(&sum); err != nil {
						return nil, err
					}
					_, err := tx.Exec(fmt.Sprintf("UPDATE %s SET amount = %d WHERE name = 'sum'", b.rows, sum+1))
					return nil, err
				}, opts...)
				assert.NoError(t, err)
			})
		}
		wg.Wait()
		assert.Equal(t, 6, b.amount("sum"))
	})
}

func TestLostCommit(t *testing.T) {
	t.Parallel()
	run(t, append(strict, engines...), func(t *testing.T, url string) {
		b := newBooks(t, url)
		pool, l := lossyDB(t, b.db, url)
		for name, call := range b.calls() {
			for what, lose := range map[string]*atomic.Int32{"committed, and the answer was lost": &l.after, "rolled back": &l.before} {
				key, runs := name+" "+what, 0
				lose.Store(1)
				r, err := call(t.Context(), pool, key, func(tx *sql.Tx) ([]byte, error) {
					runs++
					return b.enter(key)(tx)
				})
				require.NoError(t, err)
				assert.Equal(t, core.Result[[]byte]{Value: []byte("entered " + key), Attempt: 1}, r)
				assert.Equal(t, what == "rolled back", runs == 2)
				assert.Equal(t, 1, b.count(key))
			}

			// A database that goes at each commit.
			key := name + " hopeless"
			l.before.Store(100)
			_, err := call(t.Context(), pool, key, b.enter(key))
			l.before.Store(0)
			require.ErrorIs(t, err, sqlstore.ErrOutcomeUnknown)
			require.ErrorIs(t, err, codes.Unfinished)
			require.ErrorIs(t, err, errBroken)
			assert.Zero(t, b.count(key))
		}

		// It is not run again because its record has expired.
		l.after.Store(1)
		r, err := b.store.DoTx(t.Context(), pool, "brief", b.enter("brief"), sqlstore.Retention(time.Nanosecond))
		require.NoError(t, err)
		assert.False(t, r.Replayed)
		assert.Equal(t, 1, b.count("brief"))

		// It was not, and the second run fails by itself: that is known, too.
		l.before.Store(1)
		runs := 0
		_, err = b.store.DoTx(t.Context(), pool, "failed", func(tx *sql.Tx) ([]byte, error) {
			if runs++; runs == 2 {
				return nil, errUnlucky
			}
			return b.enter("failed")(tx)
		})
		require.ErrorIs(t, err, errUnlucky)
		require.NotErrorIs(t, err, sqlstore.ErrOutcomeUnknown)
		assert.Zero(t, b.count("failed"))

		// A database that can't be asked afterwards.
		ctx, cancel := context.WithCancel(t.Context())
		l.after.Store(1)
		_, err = b.store.DoTx(ctx, pool, "unknown", func(tx *sql.Tx) ([]byte, error) {
			attempts := 0
			gone := func() {
				if attempts++; attempts == 4 {
					cancel()
				}
			}
			l.gone.Store(&gone)
			pool.SetMaxIdleConns(-1) // closed when it comes back
			return b.enter("unknown")(tx)
		})
		require.ErrorIs(t, err, sqlstore.ErrOutcomeUnknown)
		require.ErrorIs(t, err, codes.Unfinished)
		require.ErrorIs(t, err, context.Canceled)
		l.gone.Store(nil)
		r, err = b.do("unknown", never)
		require.NoError(t, err)
		assert.Equal(t, core.Result[[]byte]{Value: []byte("entered unknown"), Replayed: true}, r)

		// The server answers the commit only after ctx has ended.
		pool, l = lossyDB(t, b.db, url)
		answer := make(chan struct{})
		ctx, cancel = context.WithCancel(t.Context())
		l.hold = func() {
			cancel()
			<-answer
		}
		_, err = b.store.DoTx(ctx, pool, "held", b.enter("held"))
		require.ErrorIs(t, err, sqlstore.ErrOutcomeUnknown)
		require.ErrorIs(t, err, context.Canceled)
		close(answer)
		r, err = b.do("held", b.enter("held"))
		require.NoError(t, err)
		assert.Equal(t, "entered held", string(r.Value))
		assert.Equal(t, 1, b.count("held"))
	})
}

// TestDoTxLostCommitIsAskedAfter: DoTx asks for five seconds whether a lost commit took effect, unless ctx ends first. On a lost
// connection of the caller's it can't ask.
func TestDoTxLostCommitIsAskedAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		url := engines[2].url(t)
		b := newBooks(t, url)
		pool, l := lossyDB(t, b.db, url)
		pool.SetMaxIdleConns(-1) // the connection is closed when it comes back
		l.before.Store(1)
		asked := 0
		gone := func() { asked++ }
		begun := time.Now()
		_, err := b.store.DoTx(t.Context(), pool, "k", func(tx *sql.Tx) ([]byte, error) {
			l.gone.Store(&gone)
			return b.enter("k")(tx)
		})
		require.ErrorIs(t, err, sqlstore.ErrOutcomeUnknown)
		require.ErrorIs(t, err, codes.Unfinished)
		assert.InDelta(t, 5, time.Since(begun).Seconds(), 0.5)
		assert.Greater(t, asked, 5)
		assert.Less(t, asked, 500, "with pauses between")

		l.gone.Store(nil)
		conn, err := pool.Conn(t.Context())
		require.NoError(t, err)
		l.before.Store(1)
		l.err = driver.ErrBadConn
		begun = time.Now()
		_, err = b.store.DoTx(t.Context(), conn, "k", b.enter("k"))
		require.ErrorIs(t, err, sqlstore.ErrOutcomeUnknown)
		assert.Less(t, time.Since(begun), time.Second)
	})
}

// TestDoTxConstraint: an error that only the commit brings is the caller's.
func TestDoTxConstraint(t *testing.T) {
	b := newBooks(t, engines[0].url(t))
	_, err := b.db.Exec("ALTER TABLE " + b.rows + " ADD CONSTRAINT once UNIQUE (name) DEFERRABLE INITIALLY DEFERRED")
	require.NoError(t, err)
	runs := 0
	_, err = b.do("k", func(tx *sql.Tx) ([]byte, error) {
		runs++
		_, err := b.enter("k")(tx)
		if err == nil {
			_, err = b.enter("k")(tx)
		}
		return nil, err
	})
	require.ErrorContains(t, err, "23505")
	require.NotErrorIs(t, err, codes.StoreUnavailable)
	assert.Equal(t, 1, runs)
	assert.Zero(t, b.count("k"))
}

// TestBusyCommit: without a write-ahead log, SQLite refuses to commit while others read, and leaves the transaction open. DoTx rolls it
// back, whether the driver does so or not.
func TestBusyCommit(t *testing.T) {
	url := with(engines[2].url(t), "_pragma=journal_mode(DELETE)")
	b := newBooks(t, url)
	readers, _ := open(t, url)
	pool, l := lossyDB(t, b.db, url)
	l.open = true
	conn, err := pool.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	for name, db := range map[string]sqlstore.TxBeginner{
		"driver": b.db, "pool": pool, "wrapper": struct{ *sql.DB }{pool}, "connection": conn,
	} {
		reader, err := readers.QueryContext(t.Context(), "SELECT 1 FROM sqlite_schema")
		require.NoError(t, err)
		require.True(t, reader.Next())
		runs := 0
		_, err = b.store.DoTx(t.Context(), db, name, func(tx *sql.Tx) ([]byte, error) {
			if runs++; runs == 2 {
				assert.NoError(t, reader.Close())
			}
			return b.enter(name)(tx)
		})
		assert.NoError(t, err, name)
		assert.NoError(t, reader.Close())
		assert.Equal(t, 2, runs, name)
		assert.Equal(t, 1, b.count(name), name)
	}
}

// between does something before the second transaction begins.
type between struct {
	sqlstore.TxBeginner
	begun int
	do    func()
}

func (b *between) BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error) {
	if b.begun++; b.begun == 2 {
		b.do()
	}
	return b.TxBeginner.BeginTx(ctx, opts)
}

// TestDoTxLostCommitToAnother: if another process has run the operation before a lost commit is looked up, DoTx returns that
// process's value.
func TestDoTxLostCommitToAnother(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		b := newBooks(t, url)
		pool, l := lossyDB(t, b.db, url)
		other := openStore(t, url, b.table)
		db, _ := open(t, url)
		l.before.Store(1)
		result, err := b.store.DoTx(t.Context(), &between{TxBeginner: pool, do: func() {
			_, err := other.DoTx(t.Context(), db, "k", b.enter("theirs"))
			assert.NoError(t, err)
		}}, "k", b.enter("ours"))
		require.NoError(t, err)
		require.Equal(t, core.Result[[]byte]{Value: []byte("entered theirs"), Replayed: true}, result)
		require.Equal(t, 1, b.count("theirs"))
		require.Zero(t, b.count("ours"))
	})
}

// TestLeavesBetweenTries: if ctx ends before the next try, the error is ctx's.
func TestLeavesBetweenTries(t *testing.T) {
	t.Parallel()
	run(t, engines[2:], func(t *testing.T, url string) {
		b := newBooks(t, url)
		// The record can be neither made nor found, as if it kept changing.
		_, err := b.db.Exec("CREATE TRIGGER vanished BEFORE INSERT ON " + b.store.TableName() + " BEGIN SELECT RAISE(IGNORE); END")
		require.NoError(t, err)
		_, err = b.do("k", never)
		require.ErrorIs(t, err, codes.StoreUnavailable)
		require.ErrorContains(t, err, "kept changing")

		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		pool, l := lossyDB(t, b.db, url)
		l.rollback = cancel
		_, err = b.store.DoTx(ctx, pool, "k", never)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "kept changing")
		require.NotErrorIs(t, err, codes.StoreUnavailable)
	})
}
