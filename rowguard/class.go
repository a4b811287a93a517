package rowguard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// The errors that callers branch on, by errors.Is. The driver's error, if there is one, is wrapped as well.
var (
	// ErrNotFound is returned if no row has the given ID, and by [LockNext] if no row is free.
	ErrNotFound = errors.New("rowguard: no such row")
	// ErrStale is returned by [Update] and [Move] if the row has changed since it was read.
	ErrStale = errors.New("rowguard: the row has changed since it was read")
	// ErrLocked is returned by [Lock], [LockNext] and [InTx] if another transaction holds the lock for too long.
	ErrLocked = errors.New("rowguard: another transaction holds the lock")
	// ErrDuplicate is returned by [Insert] and [Update] if a unique index has the value already.
	ErrDuplicate = errors.New("rowguard: a row with this unique value exists already")

	// ErrAlready is returned by [Move] if the row is in the wanted state: the move is a repeat, or another
	// caller was faster. Do not repeat what follows from the move.
	ErrAlready = errors.New("rowguard: the row is in that state already")
	// ErrTransition is returned by [Move] for an illegal transition, as a [*TransitionError].
	ErrTransition = errors.New("rowguard: illegal transition")

	// ErrOutcomeUnknown is returned by [InTx] and [Transact] if the connection broke, or the context ended,
	// during the commit, or if fn has ended the transaction itself. The transaction may or may not have been
	// committed. Find out from the database before you run it again; or make an [Insert] under a key of the
	// operation its first statement, so that a second run does no harm.
	ErrOutcomeUnknown = errors.New("rowguard: the transaction may or may not have been committed")
)

// IsDuplicate reports whether err, of any statement, is a violation of a unique index: [ErrDuplicate], or the error
// of a driver of PostgreSQL, MySQL or SQLite. In PostgreSQL such an error aborts the transaction; [Insert] avoids
// that.
func IsDuplicate(err error) bool {
	return errors.Is(err, ErrDuplicate) || classOf(err) == classDuplicate
}

// class is what kind of error a database has returned.
type class uint8

const (
	classOther     class = iota
	classUndone          // a deadlock or a serialisation failure: the transaction can only be rolled back
	classBusy            // a lock was not free within the database's own limit
	classRefused         // a lock was not free within a limit that the caller has set
	classDuplicate       // a unique index has such an entry
)

// codes are SQLSTATEs of PostgreSQL, and numbers of MySQL.
var codes = map[string]class{
	"40001": classUndone,    // serialization_failure
	"40P01": classUndone,    // deadlock_detected
	"55P03": classRefused,   // lock_not_available
	"23505": classDuplicate, // unique_violation
	"1213":  classUndone,    // deadlock
	"1020":  classUndone,    // MariaDB: the record has changed since it was read
	"1205":  classBusy,      // lock wait timeout
	"3572":  classRefused,   // NOWAIT
	"1062":  classDuplicate, // duplicate entry
	"1586":  classDuplicate, // the same, naming the index
}

// classOf classifies err without importing a driver.
func classOf(err error) class {
	if err == nil || errors.Is(err, ErrLocked) || errors.Is(err, ErrOutcomeUnknown) {
		return classOther
	}
	if f := cmp.Or(codes[sqlState(err)], codes[mysqlNumber(err)]); f != classOther {
		return f
	}
	switch code := sqliteCode(err); code {
	case 517: // SQLITE_BUSY_SNAPSHOT: waiting does not help
		return classUndone
	case 2067, 1555, 2579: // SQLITE_CONSTRAINT_UNIQUE, _PRIMARYKEY, _ROWID
		return classDuplicate
	default:
		if code &= 0xff; code == 5 || code == 6 { // SQLITE_BUSY, SQLITE_LOCKED
			return classBusy
		}
	}
	return classOther
}

// transient reports whether a transaction that failed with err may be run again after its rollback.
func transient(err error) bool {
	f := classOf(err)
	return (f == classUndone || f == classBusy) && !errors.Is(err, errGaveUp)
}

// rolledBack reports whether err, from a COMMIT, means that the transaction was certainly rolled back.
func rolledBack(err error) bool {
	if classOf(err) != classOther {
		return true
	}
	switch state := sqlState(err); {
	case len(state) == 5 && state != "40003": // statement_completion_unknown
		switch state[:2] {
		case "08", "57", "58", "XX": // of the connection, of the operator, of the system, internal
			return false
		}
		return true // a deferred constraint, say
	case strings.Contains(err.Error(), "commit unexpectedly resulted in rollback"): // pgx, if fn went on after an error
		return true
	}
	switch sqliteCode(err) & 0xff {
	case 13, 19: // SQLITE_FULL, SQLITE_CONSTRAINT
		return true
	}
	return false
}

// failure returns err as a call returns it.
func failure(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case classOf(err) == classDuplicate && !errors.Is(err, ErrDuplicate):
		err = fmt.Errorf("%w: %w", ErrDuplicate, err)
	default:
		err = fmt.Errorf("rowguard: %w", err)
	}
	return orEnded(ctx, err)
}

// orEnded returns err, joined with ctx's error if ctx has ended: some drivers report a broken connection instead.
func orEnded(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		return fmt.Errorf("%w: %w", ended, err)
	}
	return err
}

const lastPause = 50 * time.Millisecond // between two tries, at most

// pause waits for a random time after the n-th try, so that two transactions that have blocked each other do not do so
// again. It returns ctx's error if ctx ends first.
func pause(ctx context.Context, n int) error {
	sleep(ctx, rand.N(min(time.Millisecond<<min(n, 16), lastPause)))
	return ctx.Err()
}

// sleep waits for d. It returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
