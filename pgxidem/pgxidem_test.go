package pgxidem_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/core/store/sqlstore"
	"github.com/idem-go/idem/internal/backend"
	"github.com/idem-go/idem/internal/leak"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/pgxidem"
	"github.com/idem-go/idem/rowguard"
)

func TestMain(m *testing.M) {
	// GORM's store of prepared statements has a goroutine that nothing ends.
	leak.VerifyTestMain(m, goleak.IgnoreAnyFunction("gorm.io/gorm/internal/lru.NewLRU[...].func1"))
}

type function = func(tx pgx.Tx) ([]byte, error)

// books are a store on a pool of pgx's, and a table of business rows beside the store's.
type books struct {
	t     testing.TB
	url   string
	pool  *pgxpool.Pool
	db    *sql.DB // on the pool
	store *sqlstore.Store
	task  *core.Task // on the store
	rows  string     // the table of rows; that of records has "_records" behind
}

func newBooks(t testing.TB, change ...func(*pgxpool.Config)) *books {
	b := &books{t: t, url: backend.Postgres(t), rows: "pgxidem_" + strings.ToLower(rand.Text())}
	var err error
	b.pool = b.open(b.url, change...)
	b.db = stdlib.OpenDBFromPool(b.pool)
	b.db.SetMaxOpenConns(int(b.pool.Config().MaxConns))
	t.Cleanup(func() { assert.NoError(t, b.db.Close()) })
	b.store, err = sqlstore.New(b.db, sqlstore.PostgreSQL, sqlstore.Config{Table: b.rows + "_records"})
	require.NoError(t, err)
	t.Cleanup(b.store.Close)
	require.NoError(t, b.store.Migrate(t.Context()))
	b.task = core.MustNew(core.Config{Service: "shop", Store: b.store}).MustTask(core.TaskPolicy{Name: "task"})
	b.exec("CREATE TABLE " + b.rows + " (name text NOT NULL, amount bigint NOT NULL DEFAULT 1)")
	t.Cleanup(func() { b.exec("DROP TABLE " + b.rows + ", " + b.rows + "_records") })
	return b
}

// open opens a pool, and checks at the end of the test that no connection was kept.
func (b *books) open(url string, change ...func(*pgxpool.Config)) *pgxpool.Pool {
	config, err := pgxpool.ParseConfig(url)
	require.NoError(b.t, err)
	for _, c := range change {
		c(config)
	}
	pool, err := pgxpool.NewWithConfig(b.t.Context(), config)
	require.NoError(b.t, err)
	b.t.Cleanup(pool.Close) // which waits for all connections
	return pool
}

func (b *books) exec(statement string) {
	_, err := b.pool.Exec(context.Background(), statement)
	require.NoError(b.t, err)
}

// enter returns a function that makes a row.
func (b *books) enter(name string) function {
	return func(tx pgx.Tx) ([]byte, error) {
		_, err := tx.Exec(context.Background(), "INSERT INTO "+b.rows+" (name) VALUES ($1)", name)
		return []byte("entered " + name), err
	}
}

// count returns how many rows of that name are committed.
func (b *books) count(name string) (n int) {
	b.t.Helper()
	require.NoError(b.t, b.pool.QueryRow(context.Background(), "SELECT count(*) FROM "+b.rows+" WHERE name = $1", name).Scan(&n))
	return n
}

// records returns how many records stand.
func (b *books) records() (n int) {
	b.t.Helper()
	require.NoError(b.t, b.pool.QueryRow(context.Background(), "SELECT count(*) FROM "+b.rows+"_records").Scan(&n))
	return n
}

func (b *books) do(key string, fn function, opts ...sqlstore.TxOption) (core.Result[[]byte], error) {
	return pgxidem.DoTx(b.t.Context(), b.store, b.pool, key, fn, opts...)
}

var errUnlucky = errors.New("unlucky")

func never(pgx.Tx) ([]byte, error) { return nil, errors.New("the function ran") }

func TestDoTx(t *testing.T) {
	b := newBooks(t)
	first, err := b.do("k", func(tx pgx.Tx) ([]byte, error) {
		// The record is there, for this transaction only.
		var records int
		err := tx.QueryRow(t.Context(), "SELECT count(*) FROM "+b.rows+"_records").Scan(&records)
		require.NoError(t, err)
		assert.Equal(t, 1, records)
		assert.Zero(t, b.records())
		return b.enter("k")(tx)
	})
	require.NoError(t, err)
	assert.Equal(t, core.Result[[]byte]{Value: []byte("entered k"), Attempt: 1}, first)
	again, err := b.do("k", never)
	require.NoError(t, err)
	assert.Equal(t, core.Result[[]byte]{Value: []byte("entered k"), Replayed: true}, again)
	assert.Equal(t, 1, b.count("k"))

	// sqlstore's own calls find the same record.
	again, err = b.store.DoTx(t.Context(), b.db, "k", func(*sql.Tx) ([]byte, error) { return nil, errUnlucky })
	require.NoError(t, err)
	assert.True(t, again.Replayed)

	// Options are sqlstore's, and so are refusals.
	_, err = b.do("k", never, sqlstore.Fingerprint("b"))
	require.ErrorIs(t, err, codes.KeyReused)
	_, err = pgxidem.RunTx(t.Context(), b.store, b.pool, never)
	require.ErrorIs(t, err, codes.NoRun)
	_, err = pgxidem.DoTx(t.Context(), b.store, nil, "k", never)
	require.ErrorContains(t, err, "nil")
	_, err = pgxidem.RunTx(t.Context(), b.store, b.pool, nil)
	require.ErrorContains(t, err, "nil")
}

// TestRunTx: the run's own record is the one that is marked, and what was committed is found by the next run.
func TestRunTx(t *testing.T) {
	b := newBooks(t)
	call := func(after error) (r core.Result[[]byte], err error) {
		_, err = core.Do(t.Context(), b.task, core.Call{Key: "k"}, func(ctx context.Context) ([]byte, error) {
			r, err = pgxidem.RunTx(ctx, b.store, b.pool, b.enter("k"))
			return r.Value, errors.Join(err, after)
		})
		return r, err
	}
	first, err := call(errUnlucky) // after the commit
	require.ErrorIs(t, err, errUnlucky)
	assert.Equal(t, core.Result[[]byte]{Value: []byte("entered k"), Attempt: 1}, first)
	again, err := call(nil)
	require.NoError(t, err)
	assert.Equal(t, core.Result[[]byte]{Value: []byte("entered k"), Replayed: true}, again)
	assert.Equal(t, 1, b.count("k"))
	assert.Equal(t, 1, b.records())

	// Options are sqlstore's, and most of them not for a run.
	_, err = core.Do(t.Context(), b.task, core.Call{Key: "other"}, func(ctx context.Context) ([]byte, error) {
		_, err := pgxidem.RunTx(ctx, b.store, b.pool, never, sqlstore.Fingerprint("f"))
		return nil, err
	})
	require.ErrorContains(t, err, "are the policy's")
}

// TestNothingIsLeft: of a function that fails or panics, neither rows nor record, and its connection is as good as new.
func TestNothingIsLeft(t *testing.T) {
	b := newBooks(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	_, err := b.do("k", func(tx pgx.Tx) ([]byte, error) {
		_, err := b.enter("k")(tx)
		return nil, errors.Join(err, errUnlucky)
	})
	require.ErrorIs(t, err, errUnlucky)
	require.NotErrorIs(t, err, codes.StoreUnavailable)
	require.Panics(t, func() {
		_, _ = b.do("k", func(tx pgx.Tx) ([]byte, error) {
			_, _ = b.enter("k")(tx)
			panic("oops")
		})
	})
	assert.Zero(t, b.count("k"))
	assert.Zero(t, b.records())
	_, err = b.do("k", b.enter("k"))
	require.NoError(t, err)
	assert.Equal(t, 1, b.count("k"))
	assert.EqualValues(t, 1, b.pool.Stat().NewConnsCount(), "a connection that was given back with a transaction would be closed")
}

// TestTheTransactionIsBorrowed: the function can't end it, and has the rest of a pgx.Tx.
func TestTheTransactionIsBorrowed(t *testing.T) {
	b := newBooks(t)
	ctx := t.Context()
	_, err := b.do("k", func(tx pgx.Tx) ([]byte, error) {
		assert.ErrorContains(t, tx.Commit(ctx), "pgxidem: the function must not end the transaction")
		assert.ErrorContains(t, tx.Rollback(ctx), "pgxidem: the function must not end the transaction")

		assert.ErrorIs(t, pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error {
			_, err := b.enter("undone")(inner)
			return errors.Join(err, errUnlucky)
		}), errUnlucky)
		assert.NoError(t, pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error {
			_, err := b.enter("kept")(inner)
			return err
		}))
		_, err := tx.CopyFrom(ctx, pgx.Identifier{b.rows}, []string{"name"}, pgx.CopyFromRows([][]any{{"copied"}, {"copied"}}))
		return nil, err
	})
	require.NoError(t, err)
	assert.Equal(t, []int{0, 1, 2}, []int{b.count("undone"), b.count("kept"), b.count("copied")})
}

// TestLevels: the level is that of the option.
func TestLevels(t *testing.T) {
	b := newBooks(t)
	for level, want := range map[sql.IsolationLevel]string{
		sql.LevelDefault: "read committed", sql.LevelReadUncommitted: "read uncommitted", sql.LevelReadCommitted: "read committed",
		sql.LevelRepeatableRead: "repeatable read", sql.LevelSnapshot: "repeatable read", sql.LevelSerializable: "serializable",
	} {
		r, err := b.do(level.String(), func(tx pgx.Tx) ([]byte, error) {
			var got string
			err := tx.QueryRow(t.Context(), "SHOW transaction_isolation").Scan(&got)
			return []byte(got), err
		}, sqlstore.Isolation(level))
		require.NoError(t, err)
		assert.Equal(t, want, string(r.Value))
	}
	_, err := b.do("k", never, sqlstore.Isolation(sql.LevelLinearizable))
	require.ErrorContains(t, err, "Linearizable")
}

// TestRawConnection: a *sql.Conn on the pool gives a function of sqlstore's own DoTx pgx's connection, which is in the transaction.
func TestRawConnection(t *testing.T) {
	b := newBooks(t)
	conn, err := b.db.Conn(t.Context())
	require.NoError(t, err)
	for _, fail := range []error{errUnlucky, nil} {
		_, err := b.store.DoTx(t.Context(), conn, "key", func(*sql.Tx) ([]byte, error) {
			return nil, errors.Join(fail, conn.Raw(func(raw any) error {
				_, err := raw.(*stdlib.Conn).Conn().CopyFrom(t.Context(), pgx.Identifier{b.rows}, []string{"name"},
					pgx.CopyFromRows([][]any{{"k"}, {"k"}}))
				return err
			}))
		})
		require.ErrorIs(t, err, fail)
	}
	require.NoError(t, conn.Close())
	assert.Equal(t, 2, b.count("k"))
}

// TestReadOnlySessions: connections to a server that only reads are left by a transaction, which then is begun on another one.
func TestReadOnlySessions(t *testing.T) {
	b := newBooks(t)
	pool := b.open(b.url) // which the store does not reset
	require.NoError(t, pool.Ping(t.Context()))
	for _, c := range pool.AcquireAllIdle(t.Context()) {
		_, err := c.Exec(t.Context(), "SET default_transaction_read_only = on")
		assert.NoError(t, err)
		c.Release()
	}
	_, err := pgxidem.DoTx(t.Context(), b.store, pool, "key", b.enter("key"))
	require.NoError(t, err)
	assert.Equal(t, 1, b.count("key"))
}

// link opens a pool on connections that can fail. Each statement goes as it is written.
func (b *books) link(change ...func(*pgxpool.Config)) (*backend.Proxy, *pgxpool.Pool) {
	u, err := url.Parse(b.url)
	require.NoError(b.t, err)
	proxy := backend.NewProxy(b.t, u.Host)
	return proxy, b.open(proxy.URL(b.url), append(change, func(c *pgxpool.Config) {
		c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	})...)
}

// TestCutAtEachStep: the connection breaks at each statement, before and after it took effect. Nothing is half done, the call
// says so, and the next one makes it whole. A transaction that has not begun is begun on another connection.
func TestCutAtEachStep(t *testing.T) {
	b := newBooks(t)
	link, pool := b.link()
	for i, step := range []string{"begin", "ON CONFLICT", "(name) VALUES", "SET state = 2", "commit"} {
		for after, lay := range map[bool]func([]byte) <-chan struct{}{false: link.CutBefore, true: link.CutAfter} {
			key := fmt.Sprintf("key %d %v", i, after) // none of the words
			cut := lay([]byte(step))
			r, err := pgxidem.DoTx(t.Context(), b.store, pool, key, b.enter(key))
			<-cut
			done := step == "begin" || step == "commit"
			if done {
				require.NoError(t, err, key) // it has found out
				require.False(t, r.Replayed, key)
			} else {
				require.ErrorIs(t, err, codes.StoreUnavailable, key)
				require.NotErrorIs(t, err, sqlstore.ErrOutcomeUnknown, key)
				require.Zero(t, b.count(key), key)
			}
			again, err := pgxidem.DoTx(t.Context(), b.store, pool, key, b.enter(key))
			require.NoError(t, err, key)
			require.Equal(t, done, again.Replayed, key)
			require.Equal(t, 1, b.count(key), key)
		}
	}
}

// TestSessionIsEnded: by an administrator, in the midst of the function.
func TestSessionIsEnded(t *testing.T) {
	b := newBooks(t)
	for what, result := range map[string]func(err error) error{
		"and it says so":                       func(err error) error { return err },
		"and it hides it":                      func(error) error { return nil },
		"and it has made something else of it": func(err error) error { return fmt.Errorf("%w: %v", errUnlucky, err) },
	} {
		_, err := b.do("k", func(tx pgx.Tx) ([]byte, error) {
			b.exec(fmt.Sprintf("SELECT pg_terminate_backend(%d)", tx.Conn().PgConn().PID()))
			_, err := b.enter("k")(tx)
			return nil, result(err)
		})
		require.ErrorIs(t, err, codes.StoreUnavailable, what)
	}
	_, err := b.do("k", b.enter("k"))
	require.NoError(t, err)
	assert.Equal(t, 1, b.count("k"))
}

// steps is a tracer of pgx that calls a function before and after each statement.
type steps struct {
	meet atomic.Pointer[func(step string)]
}

func (s *steps) at(step string) {
	if meet := s.meet.Load(); meet != nil {
		(*meet)(step)
	}
}

func (s *steps) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	s.at("before " + q.SQL)
	return ctx
}

func (s *steps) TraceQueryEnd(_ context.Context, _ *pgx.Conn, q pgx.TraceQueryEndData) {
	s.at("after " + q.CommandTag.String())
}

// TestContextEnds: before, at each step, and while the function or the server is busy. Nothing is committed, and no
// connection is kept.
func TestContextEnds(t *testing.T) {
	b := newBooks(t)
	tracer := &steps{}
	link, pool := b.link(func(c *pgxpool.Config) { c.MaxConns, c.ConnConfig.Tracer = 1, tracer })
	do := func(ctx context.Context, key string, fn function) error {
		_, err := pgxidem.DoTx(ctx, b.store, pool, key, fn)
		return err
	}
	errLeft := errors.New("the client has left")
	var ctx context.Context
	var leave func()
	for _, step := range []struct {
		name, at string   // nowhere: the function leaves
		silent   bool     // the server, from then on
		fn       function // nil: it enters the name
	}{
		{"begin", "before begin", false, nil},
		{"the server is silent from begin on", "before begin", true, nil},
		{"claim", "ON CONFLICT", false, nil},
		{"in the function's statement", "nowhere", false, func(tx pgx.Tx) ([]byte, error) {
			time.AfterFunc(10*time.Millisecond, leave)
			_, err := tx.Exec(ctx, "SELECT pg_sleep(60)")
			return nil, err
		}},
		{"in a statement without the context", "nowhere", false, func(tx pgx.Tx) ([]byte, error) {
			time.AfterFunc(10*time.Millisecond, leave)
			_, err := tx.Exec(context.Background(), "SELECT pg_sleep(0.05)")
			assert.NoError(t, err, "nobody else has used the connection")
			<-ctx.Done()
			return nil, err
		}},
		{"between the function's statements", "nowhere", false, func(tx pgx.Tx) ([]byte, error) {
			_, err := tx.Exec(ctx, "SELECT 1")
			leave()
			_, late := tx.Exec(ctx, "SELECT 1")
			return nil, errors.Join(err, late)
		}},
		{"complete", "before UPDATE", false, nil},
		{"completed", "after UPDATE", false, nil},
		{"commit", "before commit", false, nil},
		{"the server is silent from commit on", "before commit", true, nil},
	} {
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(t.Context())
		leave = func() { cancel(errLeft) }
		meet := func(statement string) {
			if strings.Contains(statement, step.at) {
				if step.silent {
					link.Stall()
				}
				leave()
			}
		}
		tracer.meet.Store(&meet)
		fn := step.fn
		if fn == nil {
			fn = b.enter(step.name)
		}
		err := do(ctx, step.name, fn)
		tracer.meet.Store(nil)
		link.Resume()
		cancel(nil)
		require.ErrorIs(t, err, context.Canceled, step.name)
		require.ErrorIs(t, err, errLeft, step.name)
		require.NotErrorIs(t, err, codes.StoreUnavailable, step.name)
		unknown := step.at == "before commit"
		require.Equal(t, unknown, errors.Is(err, sqlstore.ErrOutcomeUnknown), step.name)
		require.Eventually(t, func() bool { return pool.Stat().AcquiredConns() == 0 }, 10*time.Second, time.Millisecond, step.name)
		if !unknown {
			require.Zero(t, b.count(step.name), step.name)
		}
		require.NoError(t, do(t.Context(), step.name, b.enter(step.name)), step.name)
		require.Equal(t, 1, b.count(step.name), step.name)
	}

	// Nobody gives a connection back.
	held, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	err = do(ctx, "k", never)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, codes.StoreUnavailable)
	held.Release()

	// A limit of the function's own is its own affair, though pgx closes the connection.
	err = do(t.Context(), "k", func(tx pgx.Tx) ([]byte, error) {
		limited, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := tx.Exec(limited, "SELECT pg_sleep(60)")
		return nil, err
	})
	// this if pgx was still writing
	require.True(t, errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded), err)
	require.NotErrorIs(t, err, codes.StoreUnavailable)
	for _, own := range []error{context.Canceled, os.ErrDeadlineExceeded} {
		err = do(t.Context(), "k", func(tx pgx.Tx) ([]byte, error) { return nil, errors.Join(tx.Conn().Close(t.Context()), own) })
		require.ErrorIs(t, err, own)
		require.NotErrorIs(t, err, codes.StoreUnavailable)
	}
}

// TestPoolIsNotStarved: transactions leave the store a connection of the pool that they share, however many wait.
func TestPoolIsNotStarved(t *testing.T) {
	b := newBooks(t, func(c *pgxpool.Config) { c.MaxConns = 4 })
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			_, err := core.Do(t.Context(), b.task, core.Call{Key: fmt.Sprint(i)}, func(ctx context.Context) ([]byte, error) {
				_, err := pgxidem.RunTx(ctx, b.store, b.pool, func(tx pgx.Tx) ([]byte, error) {
					_, err := tx.Exec(ctx, "SELECT pg_sleep(0.2)") // all together take longer than a call of the store may
					return nil, err
				})
				return nil, err
			})
			assert.NoError(t, err)
		})
	}
	wg.Wait()
	var done int
	require.NoError(t, b.pool.QueryRow(t.Context(), "SELECT count(*) FROM "+b.rows+"_records WHERE state = 2").Scan(&done))
	assert.Equal(t, 64, done)
}

// TestNoConnectionBetweenTries: a call that waits for its next turn leaves the pool to the one whose turn it is.
func TestNoConnectionBetweenTries(t *testing.T) {
	b := newBooks(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var beside sync.WaitGroup
	runs := 0
	_, err := pgxidem.DoTx(ctx, b.store, b.pool, "k", func(tx pgx.Tx) ([]byte, error) {
		if runs++; runs > 1 {
			return b.enter("k")(tx)
		}
		beside.Go(func() {
			_, err := pgxidem.DoTx(ctx, b.store, b.pool, "beside", b.enter("beside"))
			assert.NoError(t, err)
		})
		time.Sleep(20 * time.Millisecond) // it waits
		return nil, &pgconn.PgError{Code: "40001"}
	})
	require.NoError(t, err)
	beside.Wait()
	assert.Equal(t, []int{2, 1, 1}, []int{runs, b.count("k"), b.count("beside")})
}

// TestAdapt: guards of rows, and messages, in the transaction that makes the record.
func TestAdapt(t *testing.T) {
	b := newBooks(t)
	ctx := t.Context()
	box, err := outbox.New(b.db, sqlstore.PostgreSQL, outbox.Config{Table: b.rows + "_box"})
	require.NoError(t, err)
	require.NoError(t, box.Migrate(ctx))
	b.exec("CREATE TABLE " + b.rows + "_orders (id text PRIMARY KEY, state text NOT NULL, version bigint NOT NULL)")
	t.Cleanup(func() { b.exec("DROP TABLE " + b.rows + "_box, " + b.rows + "_box_lease, " + b.rows + "_orders") })
	orders := rowguard.Table{Dialect: rowguard.PostgreSQL, Name: b.rows + "_orders", Version: "version"}
	order := func(fail error) error {
		_, err := b.do("order", func(tx pgx.Tx) ([]byte, error) {
			conn := pgxidem.Adapt(tx)
			err := rowguard.Insert(ctx, conn, orders, rowguard.Set{"id": "o-1", "state": "new", "version": 1})
			if err != nil {
				return nil, err
			}
			assert.ErrorIs(t, rowguard.Insert(ctx, conn, orders, rowguard.Set{"id": "o-1", "state": "new", "version": 1}),
				rowguard.ErrDuplicate)
			message := outbox.Message{Key: "o-1", Topic: "order.created", Headers: map[string]string{"a": "b"}, Body: []byte{0, 0xff}}
			return nil, errors.Join(box.Write(ctx, conn, message), fail)
		})
		return err
	}
	for want, fail := range []error{errUnlucky, nil, nil} {
		require.ErrorIs(t, order(fail), fail)
		stats, err := box.Stats(ctx)
		require.NoError(t, err)
		require.EqualValues(t, min(want, 1), stats.Unsent)
	}

	require.NoError(t, rowguard.Transact(ctx, 0, b.pool.Begin, func(tx pgx.Tx) error {
		var state string
		assert.NoError(t, rowguard.Lock(ctx, pgxidem.Adapt(tx), orders, "o-1", time.Second, rowguard.Scan{"state": &state}))
		assert.Equal(t, "new", state)
		assert.ErrorIs(t, rowguard.Lock(ctx, pgxidem.Adapt(tx), orders, "o-2", 0, nil), rowguard.ErrNotFound)
		return rowguard.Update(ctx, pgxidem.Adapt(tx), orders, "o-1", 1, rowguard.Set{"state": "paid"})
	}))
	require.ErrorIs(t, rowguard.Transact(ctx, 0, b.pool.Begin, func(tx pgx.Tx) error {
		assert.ErrorIs(t, rowguard.Update(ctx, pgxidem.Adapt(tx), orders, "o-1", 1, nil), rowguard.ErrStale)
		_, err := pgxidem.Adapt(tx).ExecContext(ctx, "SELECT 1/0")
		assert.ErrorContains(t, err, "22012") // and it is no statement that has changed nothing
		return errUnlucky
	}), errUnlucky)

	var headers string
	var body []byte
	require.NoError(t, b.pool.QueryRow(ctx, "SELECT headers, body FROM "+b.rows+"_box").Scan(&headers, &body))
	assert.Equal(t, []any{`{"a":"b"}`, []byte{0, 0xff}}, []any{headers, body})
}
