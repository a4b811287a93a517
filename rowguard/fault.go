package rowguard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// What callers branch on, by errors.Is. What the driver has said is wrapped beside them.
var (
	ErrNotFound  = errors.New("rowguard: there is no such row")
	ErrStale     = errors.New("rowguard: the row has changed since it was read")
	ErrLocked    = errors.New("rowguard: somebody else holds the lock")
	ErrDuplicate = errors.New("rowguard: a row with a value that must be unique is there already")

	// ErrAlready is returned by [Move] for a row that is in the wanted state: this is a repeat, or
	// somebody else was faster. What follows from the move must not be done again.
	ErrAlready = errors.New("rowguard: the row is in that state already")
	// ErrTransition is what a [*TransitionError] is.
	ErrTransition = errors.New("rowguard: illegal transition")

	// ErrOutcomeUnknown is returned by [InTx] and [Transact] if the connection was lost, or the context
	// ended, while the transaction was being committed (or fn had ended it by itself): nobody knows whether
	// it was. Ask the database before it is run again; or let its first statement be an [Insert] under a key of the
	// operation's, and a second run is harmless.
	ErrOutcomeUnknown = errors.New("rowguard: nobody knows whether the transaction was committed")
)

// IsDuplicate reports whether err, of any statement, says that a value which must be unique is there already:
// it is [ErrDuplicate], or what a driver of PostgreSQL, MySQL or SQLite returns. In PostgreSQL such an error
// has aborted its transaction; [Insert] does without it.
func IsDuplicate(err error) bool {
	return errors.Is(err, ErrDuplicate) || faultOf(err) == faultDuplicate
}

// fault is what an error of a database means.
type fault uint8

const (
	faultOther     fault = iota
	faultUndone          // a deadlock or a serialisation failure: the transaction is as good as rolled back
	faultBusy            // a lock was not free for as long as the database waits by itself
	faultRefused         // a lock was not free for as long as somebody wanted to wait
	faultDuplicate       // a unique index has such an entry
)

// codes are SQLSTATEs of PostgreSQL, and numbers of MySQL.
var codes = map[string]fault{
	"40001": faultUndone,    // serialization_failure
	"40P01": faultUndone,    // deadlock_detected
	"55P03": faultRefused,   // lock_not_available
	"23505": faultDuplicate, // unique_violation
	"1213":  faultUndone,    // deadlock
	"1020":  faultUndone,    // MariaDB: the record has changed since it was read
	"1205":  faultBusy,      // lock wait timeout
	"3572":  faultRefused,   // NOWAIT
	"1062":  faultDuplicate, // duplicate entry
	"1586":  faultDuplicate, // the same, naming the index
}

// faultOf looks into err without knowing the driver, or the database.
func faultOf(err error) fault {
	if err == nil || errors.Is(err, ErrLocked) || errors.Is(err, ErrOutcomeUnknown) {
		return faultOther
	}
	if f := cmp.Or(codes[sqlState(err)], codes[mysqlNumber(err)]); f != faultOther {
		return f
	}
	switch code := sqliteCode(err); code {
	case 517: // SQLITE_BUSY_SNAPSHOT: waiting does not help
		return faultUndone
	case 2067, 1555, 2579: // SQLITE_CONSTRAINT_UNIQUE, _PRIMARYKEY, _ROWID
		return faultDuplicate
	default:
		if code &= 0xff; code == 5 || code == 6 { // SQLITE_BUSY, SQLITE_LOCKED
			return faultBusy
		}
	}
	return faultOther
}

// transient reports whether what has failed with err may be run again, once it has been rolled back.
func transient(err error) bool {
	f := faultOf(err)
	return (f == faultUndone || f == faultBusy) && !errors.Is(err, errGaveUp)
}

// rolledBack reports whether err, from a COMMIT, means that the transaction was certainly rolled back.
func rolledBack(err error) bool {
	if faultOf(err) != faultOther {
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

// sqlState returns the SQLSTATE of an error of PostgreSQL (pgx and lib/pq both have the method), or "".
func sqlState(err error) string {
	var e interface{ SQLState() string }
	if errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}

// mysqlText is how the error of MySQL's driver begins, which has its number in no method.
var mysqlText = regexp.MustCompile(`\bError (\d+)(?: \([0-9A-Z]{5}\))?: `)

// mysqlNumber returns the number of an error of MySQL, or "".
func mysqlNumber(err error) string {
	if m := mysqlText.FindStringSubmatch(err.Error()); m != nil {
		return m[1]
	}
	return ""
}

// sqliteCode returns the result code of an error of SQLite, or 0. modernc's error has a method for it, and so have
// others that are not SQLite's: the code is in the text, too. mattn's is known by its words.
func sqliteCode(err error) int {
	var e interface{ Code() int }
	switch text := err.Error(); {
	case errors.As(err, &e) && strings.Contains(text, "("+strconv.Itoa(e.Code())+")"):
		return e.Code()
	case strings.Contains(text, "database is locked"):
		return 5
	case strings.Contains(text, "database table is locked"):
		return 6
	case strings.Contains(text, "UNIQUE constraint failed"):
		return 2067
	case strings.Contains(text, "constraint failed"):
		return 19
	case strings.Contains(text, "database or disk is full"):
		return 13
	}
	return 0
}

// failure is err as a call returns it.
func failure(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case faultOf(err) == faultDuplicate && !errors.Is(err, ErrDuplicate):
		err = fmt.Errorf("%w: %w", ErrDuplicate, err)
	default:
		err = fmt.Errorf("rowguard: %w", err)
	}
	return orEnded(ctx, err)
}

// orEnded is err, and if ctx has ended, ctx's error, too: some drivers report a broken connection instead.
func orEnded(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		return fmt.Errorf("%w: %w", ended, err)
	}
	return err
}

const lastPause = 50 * time.Millisecond // between two tries, at most

// pause waits before the try after the n-th one, a random time, so that those who have hindered each other do
// not meet again. It returns ctx's error if ctx ends first.
func pause(ctx context.Context, n int) error {
	timer := time.NewTimer(rand.N(min(2*time.Millisecond<<min(n, 16), lastPause)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
