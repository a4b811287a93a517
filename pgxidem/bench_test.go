package pgxidem_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/pgxidem"
)

// BenchmarkDoTx is a row that is inserted: in a bare transaction, in one that also makes the record of a key, in the function
// of a task that marks its own, and a duplicate of each.
func BenchmarkDoTx(b *testing.B) {
	k := newBooks(b)
	ctx := b.Context()
	doTx := func(key string) error {
		_, err := pgxidem.DoTx(ctx, k.store, k.pool, key, k.enter(key))
		return err
	}
	runTx := func(key string) error {
		_, err := core.Do(ctx, k.task, core.Call{Key: key}, func(ctx context.Context) ([]byte, error) {
			r, err := pgxidem.RunTx(ctx, k.store, k.pool, k.enter(key))
			return r.Value, err
		})
		return err
	}
	for _, c := range []struct {
		name string
		do   func(key string) error
		one  bool // key for all
		rows func(n int) int
	}{
		{"bare", func(key string) error {
			return pgx.BeginFunc(ctx, k.pool, func(tx pgx.Tx) error { _, err := k.enter(key)(tx); return err })
		}, false, func(n int) int { return n }},
		{"DoTx", doTx, false, func(n int) int { return n }},
		{"DoTx duplicate", doTx, true, func(int) int { return 1 }},
		{"RunTx", runTx, false, func(n int) int { return n }},
		{"RunTx duplicate", runTx, true, func(int) int { return 1 }},
	} {
		b.Run(c.name, func(b *testing.B) {
			k.exec("TRUNCATE " + k.rows + ", " + k.rows + "_records")
			for i := 0; b.Loop(); i++ {
				key := fmt.Sprint(i)
				if c.one {
					key = "one"
				}
				require.NoError(b, c.do(key))
			}
			var rows int
			require.NoError(b, k.pool.QueryRow(ctx, "SELECT count(*) FROM "+k.rows).Scan(&rows))
			require.Equal(b, c.rows(b.N), rows)
		})
	}
}
