package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/core/store"
)

// fault is what an error of a database means to a store.
type fault uint8

const (
	faultOther     fault = iota
	faultTransient       // a deadlock or the like: the statement had no effect and may be tried again
	faultLocked          // somebody else's lock stood for too long: the same, and it is worth waiting
	faultDuplicate       // the key is there already
	faultFull            // there is no room
	faultReadOnly        // the server does not write (any more): the statement had no effect, but see cutOff
)

// temporary reports whether what has failed is worth trying again.
func (d Dialect) temporary(err error) bool {
	switch d.fault(err) {
	case faultTransient, faultLocked, faultReadOnly:
		return true
	}
	return errors.Is(err, errAgain)
}

// fault looks into err without knowing the driver.
func (d Dialect) fault(err error) fault {
	switch d {
	case PostgreSQL:
		switch sqlState(err) {
		case "40001", "40P01": // serialization_failure, deadlock_detected
			return faultTransient
		case "55P03": // lock_not_available
			return faultLocked
		case "53100": // disk_full
			return faultFull
		case "25006": // read_only_sql_transaction
			return faultReadOnly
		}
	case MySQL:
		switch mysqlNumber(err) {
		case 1213, 1020: // deadlock, and MariaDB's record that has changed since it was read
			return faultTransient
		case 1205: // lock wait timeout
			return faultLocked
		case 1062: // duplicate entry
			return faultDuplicate
		case 1114, 1021: // table full, disk full
			return faultFull
		case 1836, 1792: // read-only mode, read-only transaction
			return faultReadOnly
		case 1290: // an option forbids it, whose name is in the text of any language
			if text := err.Error(); strings.Contains(text, "read-only") || strings.Contains(text, "read_only") {
				return faultReadOnly
			}
		}
		if d.cutOff(err) {
			return faultReadOnly
		}
		// A result that is larger than the server takes. There are several numbers for it, one
		// of which says that nobody knows what is wrong.
		if err != nil && tooLarge(err.Error()) {
			return faultFull
		}
	case SQLite:
		switch sqliteCode(err) {
		case 5, 6: // SQLITE_BUSY, SQLITE_LOCKED
			return faultLocked
		case 13: // SQLITE_FULL
			return faultFull
		}
	}
	return faultOther
}

// undone reports whether err, from a COMMIT, means that the transaction was certainly
// rolled back.
func (d Dialect) undone(err error) bool {
	switch d.fault(err) {
	case faultTransient, faultLocked, faultFull:
		return true
	case faultReadOnly:
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

// cutOff reports whether err is that of a node of Galera which is cut off from its cluster and takes no
// commands. It may come when a change was sent to the others, so that a COMMIT, or a statement outside a
// transaction, may have taken effect.
func (d Dialect) cutOff(err error) bool { return d == MySQL && mysqlNumber(err) == 1047 }

// noTransaction reports whether err says that the transaction, or a savepoint in it, is not there.
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

// sqlState returns the SQLSTATE of an error of PostgreSQL (pgx and lib/pq both have the
// method), or "".
func sqlState(err error) string {
	var e interface{ SQLState() string }
	if errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}

// mysqlNumber returns the number of an error of MySQL, or 0. The driver's error has it in
// a field only, and importing the driver for its type would make everybody compile it.
func mysqlNumber(err error) uint64 {
	if err == nil {
		return 0
	}
	if v := reflect.Indirect(reflect.ValueOf(err)); v.Kind() == reflect.Struct {
		if f := v.FieldByName("Number"); f.IsValid() && f.CanUint() {
			return f.Uint()
		}
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return mysqlNumber(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			if n := mysqlNumber(err); n != 0 {
				return n
			}
		}
	}
	return 0
}

// sqliteCode returns the primary result code of an error of SQLite, or 0. modernc's error
// has a method for it; mattn's is known by its words.
func sqliteCode(err error) int {
	var e interface{ Code() int }
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	if err == nil {
		return 0
	}
	switch text := err.Error(); {
	case strings.Contains(text, "database is locked"):
		return 5
	case strings.Contains(text, "database table is locked"):
		return 6
	case strings.Contains(text, "database or disk is full"):
		return 13
	}
	return 0
}

// tooLarge reports whether the text of an error says that a packet exceeds the server's limit,
// or the driver's.
func tooLarge(text string) bool {
	return strings.Contains(text, "max_allowed_packet") || strings.Contains(text, "MaxAllowedPacket")
}

// fromDriver reports whether err, which a function of the caller's has returned, comes from
// the driver: an error of the caller's own may look like one.
func (d Dialect) fromDriver(err error) bool {
	word := map[Dialect]string{MySQL: "mysql", SQLite: "sqlite"}[d]
	if word == "" {
		return sqlState(err) != "" // nobody else has that method
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		t := reflect.TypeOf(e)
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if strings.Contains(t.PkgPath(), word) {
			return true
		}
		if several, ok := e.(interface{ Unwrap() []error }); ok {
			return slices.ContainsFunc(several.Unwrap(), d.fromDriver)
		}
	}
	return false
}

// errAgain says that a record has changed between a look and a step that relied on it.
var errAgain = errors.New("the record kept changing")

const (
	tries     = 20                    // of a call that meets with deadlocks and the like
	lockWait  = time.Minute           // of a call that meets with locks, if its context has no end
	lastPause = 50 * time.Millisecond // between two tries, at most
	servers   = 3                     // of which a call may find that they only read

	leaveEvery = time.Second // at most: a store's closing of idle connections
)

// patience decides how often a call is tried.
type patience struct {
	begun    time.Time
	tries    int
	readOnly int // how many of them
}

// again reports whether the failure of a try allows another one, and waits for the moment.
func (p *patience) again(ctx context.Context, d Dialect, err error) bool {
	if p.begun.IsZero() {
		p.begun = time.Now()
	}
	p.tries++
	fault := d.fault(err)
	if fault == faultReadOnly {
		p.readOnly++
	}
	switch {
	case fault == faultReadOnly && p.readOnly < servers:
	case fault == faultLocked && time.Since(p.begun) < lockWait:
	case (fault == faultTransient || errors.Is(err, errAgain)) && p.tries < tries:
	default:
		return false
	}
	return pause(ctx, p.tries, lastPause)
}

// retry calls try until it is not worth trying again.
func (s *Store) retry(ctx context.Context, call string, try func() error) error {
	var p patience
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := try()
		s.leave(ctx, s.db, err)
		if err == nil || s.dialect.cutOff(err) || !p.again(ctx, s.dialect, err) {
			s.weed(ctx, err)
			return s.failure(ctx, call, err)
		}
	}
}

// weed follows a call that failed. If its connection has broken, then those that lie idle in
// the pool have too, as a rule, and each would cost another call; a ping takes out those that
// it fails on.
func (s *Store) weed(ctx context.Context, err error) {
	if err == nil || errors.Is(err, store.ErrLost) || s.dialect == SQLite || s.dialect.fault(err) != faultOther {
		return
	}
	for idle := s.db.Stats().Idle; idle > 0 && ctx.Err() == nil; idle-- {
		if !errors.Is(s.db.PingContext(ctx), driver.ErrBadConn) {
			return
		}
	}
}

// leave follows a call that failed. If its server only reads, it may be a primary that was demoted and
// has kept its connections: those that lie idle in db are closed, for new ones may lead to its
// successor. As long as there is none, that happens at most once a second.
func (s *Store) leave(ctx context.Context, db TxBeginner, err error) {
	if err == nil || s.dialect.fault(err) != faultReadOnly || ctx.Err() != nil {
		return
	}
	last, now := s.left.Load(), time.Now()
	if last != nil && now.Sub(*last) < leaveEvery || !s.left.CompareAndSwap(last, &now) {
		return
	}
	if pool, is := db.(interface { // a *sql.DB, or what is made of one
		Stats() sql.DBStats
		Conn(ctx context.Context) (*sql.Conn, error)
	}); is {
		ctx, cancel := context.WithTimeout(ctx, time.Second) // others may have taken what was idle
		defer cancel()
		for idle := pool.Stats().Idle; idle > 0; idle-- {
			conn, err := pool.Conn(ctx)
			if err != nil {
				break
			}
			_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		}
	}
	if pool, is := db.(interface{ Reset() }); is {
		pool.Reset()
	}
	if s.reset != nil {
		s.reset()
	}
}

// pause waits before the try after the n-th one, a random time, so that two that have
// hindered each other do not meet again. It reports whether ctx has time left.
func pause(ctx context.Context, n int, limit time.Duration) bool {
	if n == 1 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(rand.N(min(time.Millisecond<<min(n, 16), limit)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// failure is err as a call returns it.
func (s *Store) failure(ctx context.Context, call string, err error) error {
	if err == nil || errors.Is(err, store.ErrLost) {
		return err
	}
	if errors.Is(err, errSentTwice) {
		err = errSentTwice // without what database/sql says of an argument
	}
	switch state := sqlState(err); {
	case s.dialect != PostgreSQL:
	case state == "42P05", state == "26000", // a prepared statement is there already, or is not there
		state == "08P01" && strings.Contains(err.Error(), "bind message"): // or is another
		err = fmt.Errorf("%w (is a pooler between that shares its connections? see pooler=transaction in Open)", err)
	}
	if s.dialect.fault(err) == faultFull {
		err = fmt.Errorf("%w: %w", store.ErrFull, err)
	}
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		err = fmt.Errorf("%w: %w", ended, err) // some drivers report a broken connection instead
	}
	return fmt.Errorf("sqlstore: %s: %w", call, err)
}
