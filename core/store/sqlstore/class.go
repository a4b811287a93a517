package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/idem-go/idem/core/store"
)

// class is what kind of error a database has returned.
type class uint8

const (
	classOther     class = iota
	classTransient       // a deadlock or the like: the statement had no effect and may be tried again
	classLocked          // a wait for a lock timed out: the same, and waiting longer helps
	classDuplicate       // the key exists already
	classFull            // there is no room
	classReadOnly        // the server is read-only: the statement had no effect, but see cutOff
)

// temporary reports whether a failed try is worth repeating.
func (d Dialect) temporary(err error) bool {
	switch d.class(err) {
	case classTransient, classLocked, classReadOnly:
		return true
	}
	return errors.Is(err, errAgain)
}

// class returns the class of err without importing a driver.
func (d Dialect) class(err error) class {
	switch d {
	case PostgreSQL:
		switch sqlState(err) {
		case "40001", "40P01": // serialization_failure, deadlock_detected
			return classTransient
		case "55P03": // lock_not_available
			return classLocked
		case "53100": // disk_full
			return classFull
		case "25006": // read_only_sql_transaction
			return classReadOnly
		}
	case MySQL:
		switch mysqlNumber(err) {
		case 1213, 1020: // deadlock, and MariaDB's record that has changed since it was read
			return classTransient
		case 1205: // lock wait timeout
			return classLocked
		case 1062: // duplicate entry
			return classDuplicate
		case 1114, 1021: // table full, disk full
			return classFull
		case 1836, 1792: // read-only mode, read-only transaction
			return classReadOnly
		case 1290: // an option forbids it, whose name is in the text of any language
			if text := err.Error(); strings.Contains(text, "read-only") || strings.Contains(text, "read_only") {
				return classReadOnly
			}
		}
		if d.cutOff(err) {
			return classReadOnly
		}
		// A result is larger than the server allows. There are several numbers for it, one of them
		// for unknown errors.
		if err != nil && tooLarge(err.Error()) {
			return classFull
		}
	case SQLite:
		switch sqliteCode(err) {
		case 5, 6: // SQLITE_BUSY, SQLITE_LOCKED
			return classLocked
		case 13: // SQLITE_FULL
			return classFull
		}
	}
	return classOther
}

// undone reports whether err, from a COMMIT, means that the transaction was certainly
// rolled back.
func (d Dialect) undone(err error) bool {
	switch d.class(err) {
	case classTransient, classLocked, classFull:
		return true
	case classReadOnly:
		return !d.cutOff(err)
	}
	state := sqlState(err)
	if d != PostgreSQL || len(state) != 5 || state == "40003" { // statement_completion_unknown
		return false
	}
	switch state[:2] {
	case "08", "57", "58", "XX": // of the connection, of the operator, of the system, internal
		return false
	}
	return true // a deferred constraint, say
}

// cutOff reports whether err comes from a node that is cut off from its Galera cluster and takes no commands. It may
// come after a change was sent to the other nodes, so that a COMMIT, or a statement outside a transaction, may have
// taken effect.
func (d Dialect) cutOff(err error) bool { return d == MySQL && mysqlNumber(err) == 1047 }

// IsNoTable reports whether err, from any driver, says that a table does not exist.
func (d Dialect) IsNoTable(err error) bool {
	switch d {
	case PostgreSQL:
		return sqlState(err) == "42P01" // undefined_table
	case MySQL:
		return mysqlNumber(err) == 1146
	}
	return err != nil && strings.Contains(err.Error(), "no such table")
}

// noColumn reports whether err says that a column does not exist, or that a table has no such column.
func (d Dialect) noColumn(err error) bool {
	switch d {
	case PostgreSQL:
		return sqlState(err) == "42703" // undefined_column
	case MySQL:
		return mysqlNumber(err) == 1054
	}
	return err != nil && (strings.Contains(err.Error(), "no such column") || strings.Contains(err.Error(), "has no column named"))
}

// noTransaction reports whether err says that the transaction, or a savepoint in it, does not exist.
func (d Dialect) noTransaction(err error) bool {
	switch d {
	case PostgreSQL:
		switch sqlState(err) {
		case "25P01", "25P02", "3B001": // no active, in failed transaction; invalid savepoint
			return true
		}
	case MySQL:
		return mysqlNumber(err) == 1305 // SAVEPOINT does not exist
	case SQLite:
		return err != nil && strings.Contains(err.Error(), "no such savepoint")
	}
	return false
}

// errAgain says that a record has changed between two statements that depend on each other.
var errAgain = errors.New("the record kept changing")

const (
	// tries is how often a call is tried after deadlocks and the like. With the pauses between them that takes some 0.4 s:
	// more than a burst of them lasts, and less than a caller would notice. Packages outbox and rowguard do the same.
	tries         = 20
	readOnlyTries = 3                     // on read-only servers
	lockWait      = time.Minute           // how long a call retries after lock timeouts, if its context has no end
	lastPause     = 50 * time.Millisecond // between two tries, at most

	leaveEvery = time.Second // how often leaveReadOnly closes idle connections, at most
)

// retries counts the tries of a call.
type retries struct {
	begun    time.Time
	tries    int
	readOnly int // how many of them met a read-only server
}

// next reports whether the call is to be tried again after err. It waits before it returns true.
func (r *retries) next(ctx context.Context, d Dialect, err error) bool {
	if r.begun.IsZero() {
		r.begun = time.Now()
	}
	r.tries++
	of := d.class(err)
	if of == classReadOnly {
		r.readOnly++
	}
	switch {
	case of == classReadOnly && r.readOnly < readOnlyTries:
	case of == classLocked && time.Since(r.begun) < lockWait:
	case (of == classTransient || errors.Is(err, errAgain)) && r.tries < tries:
	default:
		return false
	}
	return pause(ctx, r.tries, lastPause)
}

// retry calls try until it succeeds or is not worth repeating.
func (s *Store) retry(ctx context.Context, call string, try func() error) error {
	var r retries
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := try()
		s.leaveReadOnly(ctx, s.db, err)
		if err == nil || s.dialect.cutOff(err) || !r.next(ctx, s.dialect, err) {
			s.closeBroken(ctx, err)
			return s.failure(ctx, call, err)
		}
	}
}

// closeBroken pings idle connections after a call has failed. If its connection has broken,
// mostly the idle ones have too, and each would make another call fail; a failed ping removes one
// from the pool.
func (s *Store) closeBroken(ctx context.Context, err error) {
	if err == nil || refused(err) || s.dialect == SQLite || s.dialect.class(err) != classOther {
		return
	}
	for idle := s.db.Stats().Idle; idle > 0 && ctx.Err() == nil; idle-- {
		if !errors.Is(s.db.PingContext(ctx), driver.ErrBadConn) {
			return
		}
	}
}

// idlePool is a *sql.DB, or a wrapper that embeds one: a TxBeginner whose idle connections leaveReadOnly can close.
type idlePool interface {
	Stats() sql.DBStats
	Conn(ctx context.Context) (*sql.Conn, error)
}

// leaveReadOnly closes the idle connections of db if err says that the server is read-only. It may be a demoted primary
// that has kept its connections; new ones may lead to its successor. It does so at most once a second.
func (s *Store) leaveReadOnly(ctx context.Context, db TxBeginner, err error) {
	if err == nil || s.dialect.class(err) != classReadOnly || ctx.Err() != nil {
		return
	}
	last, now := s.left.Load(), time.Now()
	if last != nil && now.Sub(*last) < leaveEvery || !s.left.CompareAndSwap(last, &now) {
		return
	}
	if pool, is := db.(idlePool); is {
		ctx, cancel := context.WithTimeout(ctx, time.Second) // Conn waits if others have taken the idle ones
		defer cancel()
		for idle := pool.Stats().Idle; idle > 0; idle-- {
			conn, err := pool.Conn(ctx)
			if err != nil {
				break
			}
			_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		}
	}
	if pool, is := db.(Resetter); is {
		pool.Reset()
	}
	if s.reset != nil {
		s.reset()
	}
}

// pause waits for a random time after the n-th try, so that two calls that have blocked each
// other do not do so again. It reports false if ctx has ended.
func pause(ctx context.Context, n int, limit time.Duration) bool {
	if n == 1 {
		return ctx.Err() == nil
	}
	return sleep(ctx, rand.N(min(time.Millisecond<<min(n, 16), limit)))
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

// refused reports whether err says that the record is not the caller's, or not the one that it expects.
func refused(err error) bool {
	return errors.Is(err, store.ErrLost) || errors.Is(err, store.ErrMovedOn) || errors.Is(err, store.ErrNoRecord)
}

// failure returns err as a call returns it: with the name of the call, the context's error and
// store.ErrFull where they apply, and a hint at poolers, or at Migrate.
func (s *Store) failure(ctx context.Context, call string, err error) error {
	if err == nil || refused(err) {
		return err
	}
	if errors.Is(err, errSentTwice) {
		err = errSentTwice // without database/sql's words about an argument
	}
	switch state := sqlState(err); {
	case s.dialect != PostgreSQL:
	case state == "42P05", state == "26000", // a prepared statement is there already, or is not there
		state == "08P01" && strings.Contains(err.Error(), "bind message"): // or is another
		err = fmt.Errorf("%w (is there a pooler that shares its connections? see pooler=transaction in Open)", err)
	}
	if s.dialect.IsNoTable(err) && call != "migrate" {
		err = fmt.Errorf("there is no table %s: run Migrate, or the statements of Schema: %w", s.table.name, err)
	}
	if s.dialect.noColumn(err) && call != "migrate" {
		err = fmt.Errorf("the table %s is that of an earlier version: run Migrate, or add what Schema has and the table lacks: %w",
			s.table.name, err)
	}
	if s.dialect.class(err) == classFull {
		err = fmt.Errorf("%w: %w", store.ErrFull, err)
	}
	ended := ctx.Err()
	if deadline, has := ctx.Deadline(); ended == nil && has && !time.Now().Before(deadline) {
		ended = context.DeadlineExceeded // a socket's may be noticed before the context's own
	}
	if ended != nil && !errors.Is(err, ended) {
		err = fmt.Errorf("%w: %w", ended, err) // some drivers report a broken connection instead
	}
	return fmt.Errorf("sqlstore: %s: %w", call, err)
}
