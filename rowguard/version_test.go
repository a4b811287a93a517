package rowguard_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/rowguard"
)

func TestUpdate(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *bank) {
		ctx := t.Context()
		version := int64(1)
		for name, update := range map[string]func(id any, version int64, set rowguard.Set) error{
			"DB": func(id any, v int64, set rowguard.Set) error { return rowguard.Update(ctx, b.db, b.Table, id, v, set) },
			"Tx": func(id any, v int64, set rowguard.Set) error {
				return b.inTx(func(tx *sql.Tx) error { return rowguard.Update(ctx, tx, b.Table, id, v, set) })
			},
		} {
			require.NoError(t, update(1, version, rowguard.Set{"balance": 1000 + version, "code": name}))
			version++
			require.NoError(t, update(1, version, nil), "an empty set is a change")
			version++
			balance, is, err := b.account(b.db, 1)
			require.NoError(t, err)
			assert.Equal(t, []int64{998 + version, version}, []int64{int64(balance), is}, name)

			for _, wrong := range []int64{version - 1, version + 1, 0} {
				err := update(1, wrong, rowguard.Set{"balance": 0})
				assert.ErrorIs(t, err, rowguard.ErrStale, name)
				assert.NotErrorIs(t, err, rowguard.ErrNotFound)
			}
			err = update(3, version, rowguard.Set{"balance": 0})
			assert.ErrorIs(t, err, rowguard.ErrNotFound, name)
			assert.NotErrorIs(t, err, rowguard.ErrStale)
			assert.Equal(t, int(998+version), b.balance(1))
		}
		assert.Equal(t, 1000, b.balance(2), "nobody else's row is touched")
	})
}

// TestUpdateCrowd: of 100 who withdraw 1 at the same time, each does.
func TestUpdateCrowd(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *bank) {
		for i, err := range together(func(int) error {
			return rowguard.Retry(t.Context(), 10_000, func() error {
				balance, version, err := b.account(b.db, 1)
				if err != nil {
					return err
				}
				return rowguard.Update(t.Context(), b.db, b.Table, 1, version, rowguard.Set{"balance": balance - 1})
			})
		}) {
			assert.NoError(t, err, i)
		}
		balance, version, err := b.account(b.db, 1)
		require.NoError(t, err)
		assert.Equal(t, []int{900, 101}, []int{balance, int(version)})
	})
}

// TestUpdateOfASnapshot: a transaction that still sees the old row does not overwrite the new one.
func TestUpdateOfASnapshot(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *bank) {
		tries := 0
		err := rowguard.Retry(t.Context(), 3, func() error {
			level := sql.LevelRepeatableRead
			if b.Dialect == rowguard.SQLite {
				level = sql.LevelDefault
			}
			return rowguard.Transact(t.Context(), 3, deferred(b.db, level), func(tx plainTx) error {
				tries++
				balance, version, err := b.account(tx, 1)
				if err != nil {
					return err
				}
				if tries == 1 {
					require.NoError(t, rowguard.Update(t.Context(), b.db, b.Table, 1, 1, rowguard.Set{"balance": 500}))
					again, _, err := b.account(tx, 1)
					require.NoError(t, err)
					require.Equal(t, 1000, again, "it is a snapshot")
				}
				return rowguard.Update(t.Context(), tx, b.Table, 1, version, rowguard.Set{"balance": balance - 1})
			})
		})
		require.NoError(t, err)
		assert.Equal(t, 2, tries)
		assert.Equal(t, 499, b.balance(1))
	})
}

func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stale := fmt.Errorf("wrapped: %w", rowguard.ErrStale)
		for name, c := range map[string]struct {
			tries int
			errs  []error // what fn returns; the last goes on
			want  error
			runs  int
		}{
			"success":      {3, []error{nil}, nil, 1},
			"second":       {3, []error{stale, nil}, nil, 2},
			"last":         {3, []error{stale, stale, nil}, nil, 3},
			"gave up":      {3, []error{stale}, rowguard.ErrStale, 3},
			"one":          {1, []error{stale}, rowguard.ErrStale, 1},
			"default":      {0, []error{stale}, rowguard.ErrStale, 20},
			"deadlock":     {3, []error{errDeadlock, nil}, nil, 2},
			"other":        {3, []error{errOther}, errOther, 1},
			"not found":    {3, []error{rowguard.ErrNotFound}, rowguard.ErrNotFound, 1},
			"locked":       {3, []error{fmt.Errorf("%w: %w", rowguard.ErrLocked, errDeadlock)}, rowguard.ErrLocked, 1},
			"unknown":      {3, []error{fmt.Errorf("%w: %w", rowguard.ErrOutcomeUnknown, errDeadlock)}, rowguard.ErrOutcomeUnknown, 1},
			"stale, other": {3, []error{stale, errOther}, errOther, 2},
		} {
			runs := 0
			begun := time.Now()
			err := rowguard.Retry(t.Context(), c.tries, func() error {
				runs++
				return c.errs[min(runs, len(c.errs))-1]
			})
			assert.ErrorIs(t, err, c.want, name)
			assert.Equal(t, c.runs, runs, name)
			assert.LessOrEqual(t, time.Since(begun), time.Duration(runs-1)*50*time.Millisecond, name)
		}

		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		begun := time.Now()
		err := rowguard.Retry(ctx, 1_000_000, func() error { return stale })
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorIs(t, err, rowguard.ErrStale)
		assert.Equal(t, 200*time.Millisecond, time.Since(begun), "a pause ends with the context")
	})
}

var (
	errOther    = errors.New("out of stock")
	errDeadlock = stated("40P01")
)

// stated is an error of PostgreSQL.
type stated string

func (s stated) Error() string    { return "state " + string(s) }
func (s stated) SQLState() string { return string(s) }
