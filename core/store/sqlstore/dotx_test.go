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
	rows  string // the table
}

func newBooks(t *testing.T, url string) *books {
	s, db, name := fresh(t, url, sqlstore.Config{})
	b := &books{t: t, store: s, db: db, rows: name + "_rows"}
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
func (b *books) enter(name string) func(tx *sql.Tx) ([]byte, error) {
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

func (b *books) do(key string, fn func(tx *sql.Tx) ([]byte, error), opts ...sqlstore.TxOption) (core.Result[[]byte], error) {
	return b.store.DoTx(b.t.Context(), b.db, key, fn, opts...)
}

func never(*sql.Tx) ([]byte, error) { return nil, errors.New("the function ran") }

func claim(lease time.Duration) store.Claim {
	return store.Claim{Owner: store.NewOwner(), Lease: lease, Retention: time.Hour}
}

func TestDoTx(t *testing.T) {
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
		_, err = b.do("brief", b.enter("brief"), sqlstore.Retention(time.Millisecond))
		require.NoError(t, err)
		time.Sleep(5 * time.Millisecond)
		r, err = b.do("brief", b.enter("brief"))
		require.NoError(t, err)
		assert.Equal(t, uint64(1), r.Attempt)
		assert.Equal(t, 2, b.count("brief"))
	})
}

// TestDoTxOutlivesItsRetention: the retention does not count the function's own time.
func TestDoTxOutlivesItsRetention(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		b := newBooks(t, url)
		_, err := b.do("k", func(tx *sql.Tx) ([]byte, error) {
			time.Sleep(30 * time.Millisecond)
			return b.enter("k")(tx)
		}, sqlstore.Retention(10*time.Millisecond))
		require.NoError(t, err)
		assert.Equal(t, 1, b.count("k"))
	})
}

func TestDoTxLeavesNothingOfAFailedRun(t *testing.T) {
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

		ctx, cancel := context.WithCancel(t.Context())
		_, err = b.store.DoTx(ctx, b.db, "k", func(tx *sql.Tx) ([]byte, error) {
			v, err := b.enter("k")(tx)
			cancel()
			return v, err
		})
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, codes.StoreUnavailable)
		require.NotErrorIs(t, err, sqlstore.ErrOutcomeUnknown)

		assert.Zero(t, b.count("k"))
		r, err := b.do("k", b.enter("k"))
		require.NoError(t, err)
		assert.Equal(t, uint64(1), r.Attempt)
		assert.Equal(t, 1, b.count("k"))
	})
}

// TestDoTxThatWasEnded: a function that ends the transaction itself gets an error, because the record is not what it should be.
func TestDoTxThatWasEnded(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		b := newBooks(t, url)
		for name, end := range map[string]func(tx *sql.Tx) error{
			"commits":    (*sql.Tx).Commit,
			"rolls back": (*sql.Tx).Rollback,
			// As MySQL itself does at a deadlock.
			"says ROLLBACK": func(tx *sql.Tx) error { _, err := tx.Exec("ROLLBACK"); return err },
		} {
			_, err := b.do(name, func(tx *sql.Tx) ([]byte, error) { return nil, end(tx) })
			require.ErrorContains(t, err, "ended the transaction", name)
			require.NotErrorIs(t, err, codes.StoreUnavailable, name)
		}
		if dialectOf(url) == sqlstore.PostgreSQL { // where an error ends it
			_, err := b.do("goes on", func(tx *sql.Tx) ([]byte, error) {
				_, _ = tx.Exec("SELECT 1/0")
				return nil, nil
			})
			require.ErrorContains(t, err, "ended the transaction")
		}
	})
}

// TestDoTxAtOnce: of many concurrent duplicates one runs, and the others get its result, or may run if it has failed.
func TestDoTxAtOnce(t *testing.T) {
	run(t, append(strict, engines...), func(t *testing.T, url string) {
		b := newBooks(t, url)
		const rounds, callers = 10, 6
		for round := range rounds {
			key := fmt.Sprint("round ", round)
			var failed, ran, replayed atomic.Int32
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for {
						r, err := b.do(key, func(tx *sql.Tx) ([]byte, error) {
							v, err := b.enter(key)(tx)
							if failed.Add(1) <= 2 {
								err = errors.Join(err, errUnlucky)
							}
							return v, err
						})
						switch {
						case errors.Is(err, errUnlucky):
							continue
						case err != nil:
							t.Error(err)
						case r.Replayed:
							replayed.Add(1)
						default:
							ran.Add(1)
						}
						if err == nil && string(r.Value) != "entered "+key {
							t.Errorf("the result is %q", r.Value)
						}
						return
					}
				})
			}
			wg.Wait()
			require.Equal(t, int32(1), ran.Load(), "callers that ran")
			require.Equal(t, int32(callers-1), replayed.Load(), "callers that got the result")
			require.Equal(t, 1, b.count(key))
		}
	})
}

var errUnlucky = errors.New("unlucky")

// TestDoTxDeadlock makes two transactions wait for each other. The database ends one of
// them, which runs again.
func TestDoTxDeadlock(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		b := newBooks(t, url)
		if strings.HasPrefix(url, "sqlite") {
			t.Skip("SQLite has one writer at a time: nobody waits for another")
		}
		for _, name := range []string{"a", "b"} {
			_, err := b.db.Exec("INSERT INTO " + b.rows + " (name, amount) VALUES ('" + name + "', 0)")
			require.NoError(t, err)
		}
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
		for _, name := range []string{"a", "b"} {
			var amount int
			require.NoError(t, b.db.QueryRow("SELECT amount FROM "+b.rows+" WHERE name = '"+name+"'").Scan(&amount))
			assert.Zero(t, amount, name)
		}
	})
}

// TestDoTxSerializable: transactions that read what others write are repeated after serialisation failures.
func TestDoTxSerializable(t *testing.T) {
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
		var sum int
		require.NoError(t, b.db.QueryRow("SELECT amount FROM "+b.rows+" WHERE name = 'sum'").Scan(&sum))
		assert.Equal(t, 6, sum)
	})
}

func TestDoTxLostCommit(t *testing.T) {
	run(t, append(strict, engines...), func(t *testing.T, url string) {
		b := newBooks(t, url)
		pool, l := lossyDB(t, b.db, url)
		runs := 0
		do := func(key string) (core.Result[[]byte], error) {
			runs = 0
			return b.store.DoTx(t.Context(), pool, key, func(tx *sql.Tx) ([]byte, error) {
				runs++
				return b.enter(key)(tx)
			})
		}

		// It was committed, and the answer was lost.
		l.after.Store(1)
		r, err := do("committed")
		require.NoError(t, err)
		assert.Equal(t, core.Result[[]byte]{Value: []byte("entered committed"), Attempt: 1}, r)
		assert.Equal(t, 1, runs)
		assert.Equal(t, 1, b.count("committed"))

		// It was not.
		l.before.Store(1)
		r, err = do("rolled back")
		require.NoError(t, err)
		assert.Equal(t, core.Result[[]byte]{Value: []byte("entered rolled back"), Attempt: 1}, r)
		assert.Equal(t, 2, runs)
		assert.Equal(t, 1, b.count("rolled back"))

		// It was not, and the second run fails by itself: that is known, too.
		l.before.Store(1)
		runs = 0
		_, err = b.store.DoTx(t.Context(), pool, "failed", func(tx *sql.Tx) ([]byte, error) {
			if runs++; runs == 2 {
				return nil, errUnlucky
			}
			return b.enter("failed")(tx)
		})
		require.ErrorIs(t, err, errUnlucky)
		require.NotErrorIs(t, err, sqlstore.ErrOutcomeUnknown)
		assert.Zero(t, b.count("failed"))

		// A database that goes at each commit.
		l.before.Store(100)
		_, err = do("hopeless")
		require.ErrorIs(t, err, sqlstore.ErrOutcomeUnknown)
		require.ErrorIs(t, err, codes.Unfinished)
		require.ErrorIs(t, err, errBroken)
		l.before.Store(0)
		assert.Zero(t, b.count("hopeless"))

		// And one that can't be asked afterwards.
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
		r, err = do("unknown")
		require.NoError(t, err)
		assert.Equal(t, core.Result[[]byte]{Value: []byte("entered unknown"), Replayed: true}, r)
		assert.Zero(t, runs)

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
		r, err = do("held")
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
	for name, db := range map[string]sqlstore.TxBeginner{"driver": b.db, "pool": pool, "wrapper": struct{ *sql.DB }{pool}, "connection": conn} {
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
	each(t, func(t *testing.T, url string) {
		b := newBooks(t, url)
		pool, l := lossyDB(t, b.db, url)
		other := openStore(t, url, strings.Trim(b.store.TableName(), "\"`"))
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
