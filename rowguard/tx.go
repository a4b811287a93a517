package rowguard

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// TxOptions says how [InTx] runs a transaction. Only the Dialect is required.
type TxOptions struct {
	Dialect   Dialect
	Isolation sql.IsolationLevel // the database's default if zero
	ReadOnly  bool               // in SQLite, such a transaction does not lock when it begins

	// Tries is how often the function is run at most; 20 if zero or less.
	Tries int
	// Wait is how long a transaction of SQLite waits for the write lock before it gets [ErrLocked]; 5 s if zero or
	// less. The wait may take the connection's busy_timeout longer, during which the driver ignores ctx. It has no
	// effect in other databases: see [Lock] and their own settings.
	Wait time.Duration
}

// TxBeginner begins transactions: a *sql.DB or a *sql.Conn.
type TxBeginner interface {
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}

// InTx runs fn in a transaction of db, and commits it if fn returns nil. After a deadlock, a serialisation failure or a
// lock timeout of the database's own, it rolls back and runs fn again after a random pause, up to [TxOptions.Tries] times.
// It does not do so after [ErrLocked], or after a lock_timeout or NOWAIT that the caller has set.
//
// fn makes its changes through tx only. It passes ctx to each statement, returns every error of a statement, and neither
// commits nor rolls back. It may run several times: whatever else it does must be repeatable.
//
// If fn returns an error or panics, or ctx has ended, InTx rolls back and returns the error or panics. A COMMIT that may
// have taken effect is never repeated: see [ErrOutcomeUnknown]. All other errors mean that nothing was committed.
//
// In SQLite the transaction takes the write lock when it begins (BEGIN IMMEDIATE), whatever the driver's settings: of two
// transactions that have read, only one could write.
func InTx(ctx context.Context, db TxBeginner, opts TxOptions, fn func(tx *sql.Tx) error) error {
	if opts.Dialect < PostgreSQL || opts.Dialect > SQLite {
		return errDialect
	}
	wait := opts.Wait
	if wait <= 0 {
		wait = 5 * time.Second
	}
	begin := func(ctx context.Context) (tx sqlTx, err error) {
		err = poll(ctx, wait, classBusy, func() error {
			tx.Tx, err = db.BeginTx(ctx, &sql.TxOptions{Isolation: opts.Isolation, ReadOnly: opts.ReadOnly})
			return err
		})
		if err != nil || opts.Dialect != SQLite || opts.ReadOnly {
			return tx, err
		}
		// database/sql can't begin such a transaction: the one that it has begun is replaced on its connection.
		if _, err = tx.ExecContext(ctx, "ROLLBACK"); err == nil {
			err = poll(ctx, wait, classBusy, func() error {
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

// Transaction is a transaction that [Transact] commits or rolls back. A pgx.Tx is one.
type Transaction interface {
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// Transact is [InTx] for transactions of any kind: begin begins one. It runs fn at most tries times, or 20 if
// tries is zero or less.
func Transact[T Transaction](ctx context.Context, tries int, begin func(ctx context.Context) (T, error), fn func(tx T) error) error {
	return again(ctx, tries, transient, func() error {
		tx, err := begin(ctx)
		if err != nil {
			return orEnded(ctx, err)
		}
		return once(ctx, tx, fn)
	})
}

// once runs one transaction.
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

// sqlTx is a *sql.Tx whose Commit and Rollback return when ctx ends: not all drivers stop a COMMIT or a ROLLBACK to a silent
// server. The goroutine then ends with the connection.
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
