// Package pgxidem gives what idem does in transactions to those who use pgx without database/sql: a pgxpool.Pool, and a
// pgx.Tx with batches, COPY and its own types.
//
//	db := stdlib.OpenDBFromPool(pool)              // the store's way to the pool
//	db.SetMaxOpenConns(int(pool.Config().MaxConns)) // so that transactions leave it a connection
//	store, err := sqlstore.New(db, sqlstore.PostgreSQL, sqlstore.Reset(pool.Reset))
//	if err != nil {
//		return err
//	}
//	err = store.Migrate(ctx)
//
// In a consumer, a cron job or an import, under a key of the caller's:
//
//	result, err := pgxidem.DoTx(ctx, store, pool, "charge:"+messageID, func(tx pgx.Tx) ([]byte, error) {
//		_, err := tx.Exec(ctx, "INSERT INTO charges …")
//		return nil, err
//	})
//
// In the handler of a guard, or in the function of a task, under its key:
//
//	result, err := pgxidem.RunTx(r.Context(), store, pool, func(tx pgx.Tx) ([]byte, error) {
//		…
//	})
//
// Both are sqlstore's own, on the same table and by the same rules: a record that one has made, the other finds. They
// take the same round trips.
//
// # One pool for both
//
// A transaction holds a connection, and the store needs one to claim, renew and settle. Transactions of DoTx and RunTx are
// counted as those on the store's own *sql.DB: with its SetMaxOpenConns(n), at most n-1 are open at once, the others
// wait. Without a limit there, transactions can take the whole pool, and the store's calls time out in front of it. A store with connections of
// its own (sqlstore.NewURL) needs no such care; its limit counts all the same.
//
// # Guards of rows, and the outbox
//
// [Adapt] makes of any pgx.Tx what rowguard and outbox take:
//
//	err := box.Write(ctx, pgxidem.Adapt(tx), message)
//	err := rowguard.Insert(ctx, pgxidem.Adapt(tx), coupons, rowguard.Set{"code": code})
//
// And a pgx.Tx is a rowguard.Transaction as it is:
//
//	err := rowguard.Transact(ctx, 0, pool.Begin, func(tx pgx.Tx) error {
//		return rowguard.Lock(ctx, pgxidem.Adapt(tx), accounts, id, time.Second, nil)
//	})
//
// # The connection
//
// When a context ends in the midst of a statement, pgx closes the connection, and the pool makes another one. A function
// that finds the connection broken gets core.CodeStoreUnavailable from DoTx and RunTx, whatever it has made of pgx's error, as
// long as it returns one that is no context's.
//
// When a server only reads (25006: a primary that was demoted and has kept its connections), DoTx and RunTx call pool.Reset, at most once a second,
// and try again; the store does so for its own calls with the option sqlstore.Reset. Behind a pooler that shares connections
// between transactions, set the pool's ConnConfig.DefaultQueryExecMode to pgx.QueryExecModeExec.
package pgxidem
