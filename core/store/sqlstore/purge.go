package sqlstore

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/idem-go/idem/core/store"
)

// purgeKey is the key of the claim under which one process purges. No engine makes such a key.
const purgeKey = "purge"

// manyExpired is how many expired records a table should not hold.
const manyExpired = 100_000

// Purge removes the expired records of all sources in the table, and returns how many it removed. Before that it removes the
// results that their records have outlived (RefuseExpired of core.Policy), which it does not count. It works in batches, each a
// transaction of its own, so that it blocks no call for long. After an error, the records that it has counted stay removed. It is
// safe to call while other calls run, and in several processes at once.
func (s *Store) Purge(ctx context.Context) (int64, error) {
	if _, err := s.inBatches(ctx, s.q.strip); err != nil {
		return 0, err
	}
	return s.inBatches(ctx, s.q.purge)
}

// inBatches runs q until nothing is left to be changed, and returns how many records it has changed.
func (s *Store) inBatches(ctx context.Context, q *statement) (int64, error) {
	var changed int64
	for {
		var n int64
		err := s.retry(ctx, "purge", func() (err error) {
			n, err = s.exec(ctx, nil, q, &values{})
			return err
		})
		changed += n
		if err != nil || n < batch {
			return changed, err
		}
	}
}

// Expired returns how many records of all sources in the table have expired, or have outlived their results, and are not purged. It
// counts up to limit. The error describes what is wrong with the table, like that of Migrate.
func (s *Store) Expired(ctx context.Context, limit int) (n int, err error) {
	q := compile(s.dialect, s.table.name, s.dialect.now(),
		fmt.Sprintf("SELECT COUNT(*) FROM (SELECT 1 FROM {table} WHERE %s OR %s LIMIT %d) AS expired", expiredSQL, outlived, limit))
	err = s.retry(ctx, "expired", func() error {
		if _, err := s.check(ctx); err != nil {
			return err
		}
		return s.db.QueryRowContext(ctx, q.text).Scan(&n)
	})
	return n, err
}

// PurgeEvery purges the table about every d, which must be greater than zero, until ctx ends. It returns the context's error. All
// processes of a service may call it, each in a goroutine: only one of them purges in each d. Failures are logged with
// slog.Default, and tried again after d. If a hundred thousand records or more had expired since the last purge, that is logged
// once: d should be shorter.
//
//	go store.PurgeEvery(ctx, 10*time.Minute)
func (s *Store) PurgeEvery(ctx context.Context, d time.Duration) error {
	told := false
	for sleep(ctx, d/2+rand.N(d)) { // so that processes that were started together do not come together
		// The claim is never released: it is valid for nearly d, and is then gone.
		g, err := s.Acquire(ctx, purgeKey, store.Claim{Owner: store.NewOwner(), Lease: d/2 + 1})
		if err == nil && g.State != store.Acquired {
			continue
		}
		var n int64
		if err == nil {
			n, err = s.Purge(ctx)
		}
		switch {
		case ctx.Err() != nil:
		case err != nil:
			slog.WarnContext(ctx, "sqlstore: expired records could not be purged", "table", s.table.name, "err", err)
		case n >= manyExpired && !told:
			told = true
			slog.WarnContext(ctx, "sqlstore: many records had expired since the last purge: purge more often",
				"table", s.table.name, "purged", n, "every", d)
		}
	}
	return ctx.Err()
}
