package rowguard

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// TxOptions says how transactions are run. The zero value is complete but for the Dialect.
type TxOptions struct {
	Dialect   Dialect
	Isolation sql.IsolationLevel // the database's default if zero
	ReadOnly  bool               // in SQLite, such a transaction does not lock at its beginning

	// Tries is how often the function is run at most; DefaultTries if zero or less.
	Tries int
	// Wait is how long a transaction of SQLite waits for its turn to write; 5 s if zero or less. Then it is
	// [ErrLocked]. The connection's busy_timeout comes on top, and in it ctx is not heard. How long the others
	// wait for locks is said by [Lock], and by their own settings.
	Wait time.Duration
}

// TxBeginner begins transactions: a *sql.DB or a *sql.Conn.
type TxBeginner interface {
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}

// InTx runs fn in a transaction of db, and commits it if fn returns nil. If the database undoes it (a deadlock, a
// serialisation failure, a wait for a lock that took longer than the database allows by itself), it is rolled back and run
// again after a random pause, up to [TxOptions.Tries] times. Limits that somebody has set are kept: ErrLocked, and a
// lock_timeout or NOWAIT of the caller's own, are not run again.
//
// fn makes its changes through tx only. It hands ctx to each statement, and returns every error that a statement returns;
// it neither commits nor rolls back. It may run several times, so what it does elsewhere must bear that.
//
// If fn fails or panics, or ctx has ended, everything is rolled back, and that is returned, or goes on. A COMMIT that
// may have taken effect is never run again: see [ErrOutcomeUnknown]. All other errors mean that nothing was committed.
//
// In SQLite the transaction locks at its beginning (BEGIN IMMEDIATE), whatever the driver's settings: two that have read could
// not both write.
func InTx(ctx context.Context, db TxBeginner, opts TxOptions, fn func(tx *sql.Tx) error) error {
	if opts.Dialect < PostgreSQL || opts.Dialect > SQLite {
		return errDialect
	}
	wait := opts.Wait
	if wait <= 0 {
		wait = 5 * time.Second
	}
	begin := func(ctx context.Context) (tx sqlTx, err error) {
		err = poll(ctx, wait, faultBusy, func() error {
			tx.Tx, err = db.BeginTx(ctx, &sql.TxOptions{Isolation: opts.Isolation, ReadOnly: opts.ReadOnly})
			return err
		})
		if err != nil || opts.Dialect != SQLite || opts.ReadOnly {
			return tx, err
		}
		// database/sql has no word for it: the transaction that it has begun makes place for another one.
		if _, err = tx.ExecContext(ctx, "ROLLBACK"); err == nil {
			err = poll(ctx, wait, faultBusy, func() error {
				_, err := tx.ExecContext(ctx, "BEGIN IMMEDIATE")
				return err
			})
		}
		if err != nil {
			_ = tx.Tx.Rollback()
		}
		return tx, err
	}
	return Transact(ctx, opts.Tries, begin, func(tx sqlTx) error { return fn(tx.Tx) })
}

// Transaction is a transaction that [Transact] ends. A pgx.Tx is one.
type Transaction interface {
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// Transact is [InTx] for transactions of any kind, begun by begin. It runs fn at most tries times; [DefaultTries] if zero or
// less.
func Transact[T Transaction](ctx context.Context, tries int, begin func(ctx context.Context) (T, error), fn func(tx T) error) error {
	return again(ctx, tries, transient, func() error {
		tx, err := begin(ctx)
		if err != nil {
			return orEnded(ctx, err)
		}
		return once(ctx, tx, fn)
	})
}

// once runs one transaction to its end.
func once[T Transaction](ctx context.Context, tx T, fn func(tx T) error) error {
	committing := false
	defer func() {
		if !committing { // also if fn panics
			_ = tx.Rollback(ctx)
		}
	}()
	if err := fn(tx); err != nil {
		return orEnded(ctx, err)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("rowguard: %w", err)
	}
	committing = true
	switch err := tx.Commit(ctx); {
	case err == nil:
		return nil
	case rolledBack(err):
		return failure(ctx, err)
	default:
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
}

// sqlTx is a *sql.Tx whose end is not waited for beyond that of a context: not all drivers give up a COMMIT or a ROLLBACK to
// a server that does not answer. What is left then ends with the connection.
type sqlTx struct{ *sql.Tx }

func (tx sqlTx) Commit(ctx context.Context) error   { return within(ctx, tx.Tx.Commit) }
func (tx sqlTx) Rollback(ctx context.Context) error { return within(ctx, tx.Tx.Rollback) }

func within(ctx context.Context, end func() error) error {
	if ctx.Done() == nil {
		return end()
	}
	done := make(chan error, 1)
	go func() { done <- end() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		select {
		case err := <-done: // at the same moment
			return err
		default:
			return ctx.Err()
		}
	}
}
