// Package rowguard protects rows that several transactions change at once, with the database's own means: versions,
// locks, states and unique indexes. It works with PostgreSQL, MySQL, MariaDB and SQLite, on a *sql.DB,
// *sql.Tx or *sql.Conn. It needs no table of its own and imports no driver.
//
//	var accounts = rowguard.Table{Dialect: rowguard.PostgreSQL, Name: "accounts", Version: "version"}
//
//	err := rowguard.Retry(ctx, 0, func() error {
//		a, err := load(ctx, db, id) // balance and version
//		if err != nil {
//			return err
//		}
//		return rowguard.Update(ctx, db, accounts, id, a.version, rowguard.Set{"balance": a.balance - 10})
//	})
//
// # Which guard
//
//   - [Update]: the new values depend on the old ones. If the row has changed since you read it, Update returns [ErrStale],
//     and [Retry] reads it again. No lock is held in between, so Update also suits a form that a person fills in.
//   - [Lock]: one row changes very often, or several rows change together. Transactions take turns. One that waits
//     longer than its limit gets [ErrLocked]. [LockNext] gives each of several workers a free row.
//   - [Move]: the row's state decides what is allowed. A [Machine] declares the transitions. Of two moves that exclude
//     each other, one succeeds, and the other gets [ErrTransition] or [ErrAlready].
//   - [Insert]: a value must exist only once. A second Insert gets [ErrDuplicate].
//   - [InTx] runs a transaction. It runs the transaction again after a deadlock or a serialisation failure, but never if it may
//     have been committed: then it returns [ErrOutcomeUnknown].
//
// docs/transactions.md says what each costs.
//
// # Other drivers
//
// Functions take a [Conn], which has two methods of database/sql. A few lines make one from a pgx.Tx, a *pgx.Conn or a
// *pgxpool.Pool:
//
//	type Conn struct{ pgx.Tx }
//
//	func (c Conn) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
//		tag, err := c.Exec(ctx, query, args...)
//		return driver.RowsAffected(tag.RowsAffected()), err
//	}
//
//	func (c Conn) QueryRowContext(ctx context.Context, query string, args ...any) pgx.Row {
//		return c.QueryRow(ctx, query, args...)
//	}
//
// A pgx.Tx is a [Transaction] without an adapter:
//
//	err := rowguard.Transact(ctx, 0, pool.Begin, func(tx pgx.Tx) error {
//		return rowguard.Insert(ctx, Conn{tx}, coupons, rowguard.Set{"code": code})
//	})
//
// The package recognises errors without importing the driver: by the method SQLState() string (pgx, lib/pq), the number in the text
// (go-sql-driver/mysql), the method Code() int (modernc.org/sqlite), or the text (mattn/go-sqlite3).
package rowguard
