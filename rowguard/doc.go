// Package rowguard is what a database can guard by itself: rows that are changed by several at once, in PostgreSQL,
// MySQL and MariaDB, or SQLite. It needs no table of its own, imports no driver, and works on what database/sql
// gives: *sql.DB, *sql.Tx, *sql.Conn.
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
//   - [Update]: a change is made of what was read. Who has read an older version gets [ErrStale], and [Retry] reads
//     again. No lock is held in between, so it also fits a form that somebody fills in.
//   - [Lock]: many change one row at the same time, or several rows change together. They take turns, within a time limit:
//     [ErrLocked]. [LockNext] gives workers one free row each.
//   - [Move]: what may be done depends on a state. A [Machine] declares what follows what; of two moves that exclude each
//     other one succeeds, and the other is an [ErrTransition], or [ErrAlready].
//   - [Insert]: something must be there once. [ErrDuplicate].
//   - [InTx] runs a transaction, and runs it again after a deadlock or a serialisation failure, but not if it may have been
//     committed: [ErrOutcomeUnknown].
//
// docs/rows.md says what each costs.
//
// # Other drivers
//
// Functions take a [Conn], two methods in the words of database/sql, and so a few lines make one of a pgx.Tx (a *pgx.Conn,
// a *pgxpool.Pool):
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
// A pgx.Tx is a [Transaction] as it is:
//
//	err := rowguard.Transact(ctx, 0, pool.Begin, func(tx pgx.Tx) error {
//		return rowguard.Insert(ctx, Conn{tx}, coupons, rowguard.Set{"code": code})
//	})
//
// Errors are told apart without knowing the driver: by the method SQLState() string (pgx, lib/pq), by the number in the text
// of go-sql-driver/mysql's, by the method Code() int of modernc.org/sqlite's and the words of mattn/go-sqlite3's.
package rowguard
