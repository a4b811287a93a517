package pgxidem_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/idem-go/idem/core/store/sqlstore"
)

// gormTx is the session that docs/transactions.md shows.
func gormTx(ctx context.Context, g *gorm.DB, tx *sql.Tx) *gorm.DB {
	session := g.Session(&gorm.Session{NewDB: true, Context: ctx}) // without a context, it would share its statement with g
	session.Statement.ConnPool = tx
	return session
}

// TestGORM: what GORM does in the transaction of DoTx is committed with the record, or not at all, in each of its
// modes.
func TestGORM(t *testing.T) {
	type row struct {
		Name   string
		Amount int64
	}
	for mode, config := range map[string]gorm.Config{
		"plain": {}, "prepared": {PrepareStmt: true}, "translated": {TranslateError: true}, "skip": {SkipDefaultTransaction: true},
	} {
		t.Run(mode, func(t *testing.T) {
			b := newBooks(t)
			ctx := t.Context()
			config.Logger = logger.Discard
			g, err := gorm.Open(postgres.New(postgres.Config{Conn: b.db}), &config)
			require.NoError(t, err)
			count := func(name string) (n int64) {
				require.NoError(t, g.Table(b.rows).Where("name = ?", name).Count(&n).Error)
				return n
			}
			create := func(name string, fail error) func(tx *sql.Tx) ([]byte, error) {
				return func(tx *sql.Tx) ([]byte, error) {
					s := gormTx(ctx, g, tx)
					if err := s.Table(b.rows).Create(&row{name, 1}).Error; err != nil {
						return nil, err
					}
					// A transaction of GORM's in it is a savepoint.
					err := s.Transaction(func(inner *gorm.DB) error {
						return errors.Join(inner.Table(b.rows).Create(&row{"undone", 1}).Error, errUnlucky)
					})
					assert.ErrorIs(t, err, errUnlucky)
					assert.Zero(t, count(name), "nobody else sees it")
					return []byte(name), fail
				}
			}
			for i, fail := range []error{errUnlucky, nil, nil} {
				_, err := b.store.DoTx(ctx, b.db, "k", create("k", fail))
				require.ErrorIs(t, err, fail)
				require.EqualValues(t, min(i, 1), count("k"))
			}
			require.Zero(t, count("undone"))

			// The session is the transaction's alone.
			require.NoError(t, g.Table(b.rows).Create(&row{"outside", 1}).Error)
			require.EqualValues(t, 1, count("outside"))

			// GORM's errors are the driver's still: what the database has undone is run again.
			require.NoError(t, g.Table(b.rows).Create(&row{"sum", 0}).Error)
			var wg sync.WaitGroup
			for i := range 4 {
				wg.Go(func() {
					_, err := b.store.DoTx(ctx, b.db, fmt.Sprint(i), func(tx *sql.Tx) ([]byte, error) {
						s := gormTx(ctx, g, tx)
						var r row
						if err := s.Table(b.rows).Where("name = 'sum'").Take(&r).Error; err != nil {
							return nil, err
						}
						return nil, s.Table(b.rows).Where("name = 'sum'").Update("amount", r.Amount+1).Error
					}, sqlstore.Isolation(sql.LevelSerializable))
					assert.NoError(t, err)
				})
			}
			wg.Wait()
			var sum row
			require.NoError(t, g.Table(b.rows).Where("name = 'sum'").Take(&sum).Error)
			require.EqualValues(t, 4, sum.Amount)
		})
	}
}
