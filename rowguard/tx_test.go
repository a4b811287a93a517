package rowguard_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/backend"
	"github.com/idem-go/idem/rowguard"
)

// plainTx is a transaction as database/sql begins it.
type plainTx struct{ *sql.Tx }

func (tx plainTx) Commit(context.Context) error   { return tx.Tx.Commit() }
func (tx plainTx) Rollback(context.Context) error { return tx.Tx.Rollback() }

// deferred begins such transactions: in SQLite without a lock.
func deferred(db *sql.DB, level sql.IsolationLevel) func(ctx context.Context) (plainTx, error) {
	return func(ctx context.Context) (plainTx, error) {
		tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
		return plainTx{tx}, err
	}
}

func TestInTx(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *bank) {
		add := func(tx *sql.Tx) error {
			_, err := tx.Exec("UPDATE " + b.Name + " SET balance = balance + 1 WHERE id = 1")
			return err
		}
		conn, err := b.db.Conn(t.Context())
		require.NoError(t, err)
		require.NoError(t, b.inTx(add))
		require.NoError(t, rowguard.InTx(t.Context(), conn, rowguard.TxOptions{Dialect: b.Dialect}, add))
		assert.Equal(t, 1002, b.balance(1))

		require.Equal(t, errOther, b.inTx(func(tx *sql.Tx) error {
			require.NoError(t, add(tx))
			return errOther
		}), "an error of the function's own is its own")
		assert.PanicsWithValue(t, "oops", func() {
			_ = b.inTx(func(tx *sql.Tx) error {
				require.NoError(t, add(tx))
				panic("oops")
			})
		})
		ctx, cancel := context.WithCancel(t.Context())
		err = rowguard.InTx(ctx, b.db, b.options(), func(tx *sql.Tx) error {
			err := add(tx)
			cancel()
			return err
		})
		assert.ErrorIs(t, err, context.Canceled)
		assert.NotErrorIs(t, err, rowguard.ErrOutcomeUnknown, "there was no COMMIT")
		assert.ErrorIs(t, rowguard.InTx(ctx, b.db, b.options(), add), context.Canceled)
		assert.Equal(t, 1002, b.balance(1), "nothing is left of them")

		require.ErrorIs(t, b.inTx(func(tx *sql.Tx) error { return tx.Rollback() }), rowguard.ErrOutcomeUnknown, "the function has ended it")
		require.NoError(t, conn.Close())
		require.NoError(t, rowguard.InTx(t.Context(), b.db, rowguard.TxOptions{Dialect: b.Dialect, ReadOnly: true}, func(tx *sql.Tx) error {
			_, _, err := b.account(tx, 1)
			return err
		}))
	})
}

// TestDeadlock: two transactions lock two rows in different orders. The database ends one of them, which is run again.
func TestDeadlock(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *bank) {
		var met, done sync.WaitGroup
		met.Add(2)
		var runs atomic.Int32
		for _, ids := range [][2]int{{1, 2}, {2, 1}} {
			done.Go(func() {
				first := true
				begin := deferred(b.db, sql.LevelDefault) // in SQLite two that have read can't both write
				err := rowguard.Transact(t.Context(), 100, begin, func(tx plainTx) error {
					runs.Add(1)
					if _, _, err := b.account(tx, ids[0]); err != nil {
						return err
					}
					for i, id := range ids {
						if i == 0 && b.Dialect == rowguard.SQLite {
							b.meet(&first, &met)
						}
						if _, err := tx.Exec("UPDATE " + b.Name + " SET balance = balance + 1 WHERE id = " + strconv.Itoa(id)); err != nil {
							return err
						}
						if i == 0 && b.Dialect != rowguard.SQLite {
							b.meet(&first, &met)
						}
					}
					return nil
				})
				assert.NoError(t, err)
			})
		}
		done.Wait()
		assert.GreaterOrEqual(t, runs.Load(), int32(3), "there was one")
		assert.Equal(t, []int{1002, 1002}, []int{b.balance(1), b.balance(2)})
	})
}

// meet waits for the other one, the first time.
func (b *bank) meet(first *bool, met *sync.WaitGroup) {
	if *first {
		*first = false
		met.Done()
		met.Wait()
	}
}

// TestLockWaitTimeout: MySQL's own limit rolls back a statement only, or all, as it is set up. InTx rolls back all, and
// runs it again.
func TestLockWaitTimeout(t *testing.T) {
	b := newBank(t, engines[1].dialect, engines[1].url(t))
	release := b.hold()
	runs := 0
	require.NoError(t, b.inTx(func(tx *sql.Tx) error {
		runs++
		if runs > 1 {
			release()
		}
		_, err := tx.Exec("UPDATE " + b.Name + " SET balance = balance + 1 WHERE id = 2")
		require.NoError(t, err)
		_, err = tx.Exec("SET innodb_lock_wait_timeout = 1")
		require.NoError(t, err)
		_, err = tx.Exec("UPDATE " + b.Name + " SET balance = balance + 1 WHERE id = 1")
		return err
	}))
	assert.Equal(t, 2, runs)
	assert.Equal(t, []int{1001, 1001}, []int{b.balance(1), b.balance(2)})
}

// TestTurns: a transaction of SQLite waits for the write lock as long as TxOptions.Wait says.
func TestTurns(t *testing.T) {
	b := newBank(t, engines[2].dialect, engines[2].url(t))
	never := func(*sql.Tx) error { return errors.New("it ran") }
	for name, db := range map[string]*sql.DB{
		"as it comes":     b.db,
		"locks by itself": open(t, b.Dialect, b.url+"&_txlock=immediate"),
		"waits by itself": open(t, b.Dialect, b.url+"&_pragma=busy_timeout(10)"),
	} {
		release := b.hold()
		opts := rowguard.TxOptions{Dialect: b.Dialect, Wait: 30 * time.Millisecond}
		assert.ErrorIs(t, rowguard.InTx(t.Context(), db, opts, never), rowguard.ErrLocked, name)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		opts.Wait = time.Hour
		assert.ErrorIs(t, rowguard.InTx(ctx, db, opts, never), context.DeadlineExceeded, name)
		cancel()
		opts.ReadOnly = true
		assert.NoError(t, rowguard.InTx(t.Context(), db, opts, func(*sql.Tx) error { return nil }), name)
		opts.ReadOnly = false
		done := make(chan error, 1)
		go func() { done <- rowguard.InTx(t.Context(), db, opts, func(*sql.Tx) error { return nil }) }()
		time.Sleep(10 * time.Millisecond)
		require.Empty(t, done, name)
		release()
		require.NoError(t, <-done, name)
	}
}

// TestBusyCommit: without a write-ahead log a reader keeps SQLite from committing. That is rolled back, and run again.
func TestBusyCommit(t *testing.T) {
	b := newBank(t, engines[2].dialect, "file:"+filepath.Join(t.TempDir(), "db"))
	b.exec("PRAGMA journal_mode = DELETE")
	reader := b.begin()
	_, _, err := b.account(reader, 1)
	require.NoError(t, err)
	runs := 0
	require.NoError(t, b.inTx(func(tx *sql.Tx) error {
		if runs++; runs > 1 {
			require.NoError(t, reader.Rollback())
		}
		_, err := tx.Exec("UPDATE " + b.Name + " SET balance = balance + 1 WHERE id = 1")
		return err
	}))
	assert.Equal(t, 2, runs)
	assert.Equal(t, 1001, b.balance(1))
}

// TestSwallowedError: a function that goes on after an error that has aborted its transaction commits nothing, and is told
// so.
func TestSwallowedError(t *testing.T) {
	b := newBank(t, engines[0].dialect, engines[0].url(t))
	err := b.inTx(func(tx *sql.Tx) error {
		_, err := tx.Exec("UPDATE " + b.Name + " SET balance = 0")
		require.NoError(t, err)
		_, err = tx.Exec("SELECT 1/0")
		require.Error(t, err)
		return nil
	})
	require.Error(t, err)
	assert.NotErrorIs(t, err, rowguard.ErrOutcomeUnknown)
	assert.Equal(t, 1000, b.balance(1))
}

// TestCutAtCommit: a connection that is lost there leaves it unknown whether the transaction was committed, and it is not
// run again.
func TestCutAtCommit(t *testing.T) {
	for _, e := range engines[:2] {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			b := newBank(t, e.dialect, e.url(t))
			u, err := url.Parse(b.url)
			require.NoError(t, err)
			link := backend.NewProxy(t, u.Host)
			db := open(t, e.dialect, link.URL(b.url))
			commit := []byte(map[rowguard.Dialect]string{rowguard.PostgreSQL: "commit", rowguard.MySQL: "COMMIT"}[e.dialect])
			deposit := func(ctx context.Context) (runs int, err error) {
				err = rowguard.InTx(ctx, db, b.options(), func(tx *sql.Tx) error {
					runs++
					_, err := tx.ExecContext(ctx, "UPDATE "+b.Name+" SET balance = balance + 1 WHERE id = 1")
					return err
				})
				return runs, err
			}
			for after, committed := range map[bool]int{false: 1000, true: 1001} {
				b.exec("UPDATE " + b.Name + " SET balance = 1000")
				cut := link.CutBefore
				if after {
					cut = link.CutAfter
				}
				lost := cut(commit)
				runs, err := deposit(t.Context())
				<-lost
				assert.ErrorIs(t, err, rowguard.ErrOutcomeUnknown)
				assert.Equal(t, 1, runs)
				assert.Equal(t, committed, b.balance(1), "cut after the COMMIT: %v", after)
			}

			// One that is lost before the COMMIT is known not to have happened.
			lost := link.CutBefore([]byte("balance + 1"))
			_, err = deposit(t.Context())
			<-lost
			require.Error(t, err)
			assert.NotErrorIs(t, err, rowguard.ErrOutcomeUnknown)
			runs, err := deposit(t.Context())
			require.NoError(t, err)
			assert.Equal(t, 1, runs)
		})
	}
}

// script is a transaction that ends as a test wants it to.
type script struct {
	commit    error
	rollbacks int
}

func (s *script) Commit(context.Context) error   { return s.commit }
func (s *script) Rollback(context.Context) error { s.rollbacks++; return nil }

func TestTransactIsBounded(t *testing.T) {
	errLocked := fmt.Errorf("%w: %w", rowguard.ErrLocked, errDeadlock) // it has waited for as long as it was to
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			begin, fn, commit error
			tries             int
			want              error
			runs              int
			rollbacks         int
		}{
			"success":           {runs: 1},
			"deadlock":          {fn: errDeadlock, tries: 3, want: errDeadlock, runs: 3, rollbacks: 3},
			"deadlock, default": {fn: errDeadlock, want: errDeadlock, runs: 20, rollbacks: 20},
			"serialisation":     {commit: stated("40001"), tries: 3, want: stated("40001"), runs: 3},
			"other":             {fn: errOther, want: errOther, runs: 1, rollbacks: 1},
			"lock_timeout":      {fn: stated("55P03"), want: stated("55P03"), runs: 1, rollbacks: 1},
			"locked":            {fn: errLocked, want: rowguard.ErrLocked, runs: 1, rollbacks: 1},
			"locked at begin":   {begin: errLocked, want: rowguard.ErrLocked},
			"stale":             {fn: rowguard.ErrStale, want: rowguard.ErrStale, runs: 1, rollbacks: 1},
			"unknown":           {commit: errOther, want: rowguard.ErrOutcomeUnknown, runs: 1},
			"unknown within": {fn: errors.Join(rowguard.ErrOutcomeUnknown, errDeadlock),
				want: rowguard.ErrOutcomeUnknown, runs: 1, rollbacks: 1},
			"no connection":       {begin: errOther, want: errOther},
			"constraint deferred": {commit: stated("23503"), want: stated("23503"), runs: 1},
		} {
			begins, runs, tx := 0, 0, &script{commit: c.commit}
			begun := time.Now()
			begin := func(context.Context) (*script, error) {
				begins++
				return tx, c.begin
			}
			err := rowguard.Transact(t.Context(), c.tries, begin, func(*script) error { runs++; return c.fn })
			assert.ErrorIs(t, err, c.want, name)
			assert.Equal(t, []int{max(c.runs, 1), c.runs, c.rollbacks}, []int{begins, runs, tx.rollbacks}, name)
			assert.Equal(t, errors.Is(err, rowguard.ErrOutcomeUnknown), c.want == rowguard.ErrOutcomeUnknown, name)
			assert.LessOrEqual(t, time.Since(begun), time.Duration(runs)*50*time.Millisecond, name)

			// Retry around it does not multiply the tries.
			if errors.Is(err, errDeadlock) {
				again := 0
				_ = rowguard.Retry(t.Context(), 5, func() error { again++; return err })
				assert.Equal(t, 1, again, name)
			}
		}

		ctx, cancel := context.WithCancel(t.Context())
		err := rowguard.Transact(ctx, 0, func(context.Context) (*script, error) { return &script{}, nil }, func(*script) error {
			cancel()
			return errOther // what some drivers say then
		})
		assert.ErrorIs(t, err, context.Canceled)
		assert.ErrorIs(t, err, errOther)
		ctx, cancel = context.WithCancel(t.Context())
		err = rowguard.Transact(ctx, 0, func(context.Context) (*script, error) { cancel(); return nil, errOther },
			func(*script) error { return nil })
		assert.ErrorIs(t, err, context.Canceled)
		assert.ErrorIs(t, err, errOther)

		ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		begun := time.Now()
		err = rowguard.Transact(ctx, 1_000_000, func(context.Context) (*script, error) { return &script{}, nil },
			func(*script) error { return errDeadlock })
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorIs(t, err, errDeadlock)
		assert.Equal(t, 100*time.Millisecond, time.Since(begun))
	})
}
