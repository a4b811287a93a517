// Package pgxidem runs sqlstore's transactions on a pgxpool.Pool: the function gets a pgx.Tx, with batches, COPY and
// pgx's own types, instead of a *sql.Tx.
//
//	db := stdlib.OpenDBFromPool(pool)              // the store uses the pool, too
//	db.SetMaxOpenConns(int(pool.Config().MaxConns)) // so that transactions leave it a connection
//	store, err := sqlstore.New(db, sqlstore.PostgreSQL, sqlstore.Config{Reset: pool.Reset})
//	if err != nil {
//		return err
//	}
//	err = store.Migrate(ctx)
//
// Purge the table regularly: see store.PurgeEvery.
//
// In a consumer, a cron job or an import, under a key that you choose:
//
//	result, err := pgxidem.DoTx(ctx, store, pool, "charge:"+messageID, func(tx pgx.Tx) ([]byte, error) {
//		_, err := tx.Exec(ctx, "INSERT INTO charges …")
//		return nil, err
//	})
//
// In the handler of a guard, or in the function of a task, under the run's key:
//
//	result, err := pgxidem.RunTx(r.Context(), store, pool, func(tx pgx.Tx) ([]byte, error) {
//		…
//	})
//
// They share the table, rules and round trips of sqlstore's DoTx and RunTx: each finds the records of the other.
//
// # Transactions on the store's pool
//
// A transaction holds a connection, and the store needs another one to claim, renew and complete. Transactions of DoTx and
// RunTx count like those on the store's own *sql.DB: with SetMaxOpenConns(n), at most n-1 are open at once, and the others
// wait. Without that limit, transactions can take the whole pool, and the store's calls time out. A store with its own
// connections (sqlstore.NewURL) can't be blocked in this way, but its limit applies too.
//
// # rowguard and outbox
//
// [Adapt] makes any pgx.Tx usable with rowguard and outbox:
//
//	err := box.Write(ctx, pgxidem.Adapt(tx), message)
//	err := rowguard.Insert(ctx, pgxidem.Adapt(tx), coupons, rowguard.Set{"code": code})
//
// A pgx.Tx is a rowguard.Transaction without an adapter:
//
//	err := rowguard.Transact(ctx, 0, pool.Begin, func(tx pgx.Tx) error {
//		return rowguard.Lock(ctx, pgxidem.Adapt(tx), accounts, id, time.Second, nil)
//	})
//
// # The connection
//
// When a context ends during a statement, pgx closes the connection, and the pool makes another one. If the connection
// breaks in the function, and the function returns any error but a context's, DoTx and RunTx return
// codes.StoreUnavailable.
//
// If a server is read-only (25006, such as a demoted primary that has kept its connections), DoTx and RunTx call
// pool.Reset, at most once a second, and try again. For the store's own calls, sqlstore.Config.Reset does the same.
// Behind a pooler that shares connections between transactions, set the pool's ConnConfig.DefaultQueryExecMode to
// pgx.QueryExecModeExec.
package pgxidem
