package rowguard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Lock locks the row id of t until the transaction ends (SELECT … FOR UPDATE), and reads the columns of into in the same
// statement. (In MySQL's default isolation, a later SELECT may return an older row.) If another transaction holds the lock,
// Lock waits for up to wait, at most a day, and then returns [ErrLocked]; with zero or less it does not wait. It returns
// [ErrNotFound] if there is no such row. c must be in a transaction; a *sql.DB is refused.
//
// How it waits depends on the database:
//
//   - PostgreSQL: the local setting lock_timeout, in milliseconds, which is restored afterwards: three round trips.
//     ErrLocked then means that the transaction is aborted. Without waiting, it is SKIP LOCKED: one round trip, and the
//     transaction can go on.
//   - MariaDB: WAIT, in whole seconds, rounded up, or NOWAIT. MySQL has no WAIT: there Lock repeats NOWAIT, with pauses
//     of up to 50 ms. One round trip for each try; the transaction can go on.
//   - SQLite has no row locks. Lock takes the only write lock, which a transaction of [InTx] holds already. In other
//     transactions it tries again, with pauses; each try may take the connection's busy_timeout longer.
//
// If a transaction locks several rows, lock them in a fixed order, for example by ID. Otherwise transactions deadlock, and InTx
// has to run them again.
func Lock[R Row](ctx context.Context, c Conn[R], t Table, id any, wait time.Duration, into Scan) error {
	g, err := locking(c, t, into)
	if err != nil {
		return err
	}
	query, dest := g.selection(into)
	read := func(suffix string) error {
		return g.read(ctx, query+" WHERE "+g.ID+" = "+g.arg(id)+suffix, dest...)
	}
	wait = min(max(wait, 0), 24*time.Hour)
	switch {
	case t.Dialect == SQLite:
		if err := g.lockWriter(ctx, wait); err != nil {
			return err
		}
		return read("")
	case t.Dialect == MySQL && wait == 0:
		return orLocked(read(" FOR UPDATE NOWAIT"))
	case t.Dialect == MySQL: // each of the two skips what is the other's
		suffix := fmt.Sprintf(" FOR UPDATE /*M! WAIT %d */ /*!80001 NOWAIT */", (wait+time.Second-1)/time.Second)
		return poll(ctx, wait, classRefused, func() error { return read(suffix) })
	case wait == 0:
		err := read(" FOR UPDATE SKIP LOCKED")
		if errors.Is(err, ErrNotFound) {
			if err = g.look(ctx, id, "1", new(int)); err == nil {
				err = fmt.Errorf("%w in %s", ErrLocked, g.Name)
			}
		}
		return err
	}
	var before, now string
	limit := func(limit string) string {
		return "SELECT current_setting('lock_timeout'), set_config('lock_timeout', " + g.arg(limit) + ", true)"
	}
	if err := g.read(ctx, limit(fmt.Sprintf("%dms", max(wait.Milliseconds(), 1))), &before, &now); err != nil {
		return err
	}
	err = orLocked(read(" FOR UPDATE"))
	if sqlState(err) != "" {
		return err // the transaction is aborted
	}
	// It can go on after all else: no row, a Scan that fails, even a ctx that has ended between two statements.
	if ctx.Err() != nil {
		detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		ctx = detached
	}
	return errors.Join(err, g.read(ctx, limit(before), &now, &before))
}

// LockNext locks the first row of t, by ID, that is in state and not locked by another transaction (SKIP LOCKED), and reads
// the columns of into. Workers that share a queue table get one row each, and none waits for another. It returns
// [ErrNotFound] if no row is free. c must be in a transaction; a *sql.DB is refused. Bring the row into another state before
// the transaction ends. Make an index on state and ID: without one, MySQL locks every row that it scans.
//
// In SQLite, whose transactions take turns, it returns [ErrLocked] if another one is writing.
func LockNext[R Row](ctx context.Context, c Conn[R], t Table, state string, into Scan) error {
	g, err := locking(c, t, into)
	if err != nil {
		return err
	}
	suffix := " FOR UPDATE SKIP LOCKED"
	if t.Dialect == SQLite {
		suffix = ""
		if err := g.lockWriter(ctx, 0); err != nil {
			return err
		}
	}
	query, dest := g.selection(into)
	return g.read(ctx, query+" WHERE "+g.State+" = "+g.arg(state)+" ORDER BY "+g.ID+" LIMIT 1"+suffix, dest...)
}

func locking[R Row](c Conn[R], t Table, into Scan) (*guard[R], error) {
	if _, pool := any(c).(*sql.DB); pool {
		return nil, errors.New("rowguard: a lock needs a transaction: without one it ends with its statement")
	}
	return on(c, t, into)
}

// lockWriter takes SQLite's write lock, by an UPDATE of no row.
func (g *guard[R]) lockWriter(ctx context.Context, wait time.Duration) error {
	return poll(ctx, wait, classBusy, func() error {
		_, err := g.change(ctx, "UPDATE "+g.Name+" SET "+g.ID+" = "+g.ID+" WHERE 0")
		return err
	})
}

// poll calls try until its error is not retried, or wait is over.
func poll(ctx context.Context, wait time.Duration, retried class, try func() error) error {
	begun := time.Now()
	for n := 1; ; n++ {
		err := try()
		if classOf(err) != retried || time.Since(begun) >= wait {
			return orLocked(err)
		}
		if ended := pause(ctx, n); ended != nil {
			return fmt.Errorf("rowguard: %w: %w", ended, err)
		}
	}
}

// orLocked returns err, joined with ErrLocked if it says that a lock was not free.
func orLocked(err error) error {
	if f := classOf(err); f == classBusy || f == classRefused {
		return fmt.Errorf("%w: %w", ErrLocked, err)
	}
	return err
}
