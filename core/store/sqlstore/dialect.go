package sqlstore

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Dialect is the SQL that a database speaks. There is no default: the zero Dialect is
// refused.
type Dialect uint8

// The dialects.
const (
	// PostgreSQL is PostgreSQL 12 and later.
	PostgreSQL Dialect = iota + 1
	// MySQL is MySQL 5.7 and later, and MariaDB 10.5 and later, with InnoDB.
	MySQL
	// SQLite is SQLite 3.42 and later.
	SQLite
)

// String returns the database's name.
func (d Dialect) String() string {
	switch d {
	case PostgreSQL:
		return "PostgreSQL"
	case MySQL:
		return "MySQL"
	case SQLite:
		return "SQLite"
	}
	return "invalid"
}

// now is the server's clock in SQL, in whole microseconds since 1970 UTC.
func (d Dialect) now() string {
	switch d {
	case PostgreSQL:
		return "(extract(epoch FROM statement_timestamp()) * 1000000)::bigint"
	case MySQL:
		// UNIX_TIMESTAMP would take local time, in which an hour comes twice a year.
		return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
	default:
		return "(CAST(unixepoch('subsec') * 1000 + 0.5 AS INTEGER) * 1000)"
	}
}

// tick is the resolution of the server's clock.
func (d Dialect) tick() time.Duration {
	if d == SQLite {
		return time.Millisecond
	}
	return time.Microsecond
}

// micros is d in the microseconds of a column, rounded up.
func micros(d time.Duration) int64 {
	us := int64(d / time.Microsecond)
	if d%time.Microsecond > 0 {
		us++
	}
	return us
}

// lease is d in the microseconds of a column. One tick is added, because the clock may be
// just about to move on, and a lease must not end before its time.
func (d Dialect) lease(lease time.Duration) int64 {
	return micros(lease) + micros(d.tick())
}

// remaining is left microseconds as a duration, at least one microsecond.
func remaining(left int64) time.Duration {
	left = min(left, int64(maxSpan/time.Microsecond))
	return max(time.Duration(left)*time.Microsecond, time.Microsecond)
}

const maxSpan = time.Duration(1<<63 - 1)

// identifier matches a part of a table's name. It is short enough for the name of the index to
// have at most 63 bytes, to which PostgreSQL cuts names.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,49}$`)

const begunSuffix = "_created_at"

// table is a table's name, checked and quoted.
type table struct {
	name   string // quoted, with its schema if it was given with one
	expiry string // name of the index on expires_at, quoted as CREATE INDEX wants it
	begun  string // … of that on created_at
	on     string // the table as CREATE INDEX wants it

	schema, plain string // as they were given; schema may be empty
}

func (d Dialect) table(name string) (table, error) {
	parts := strings.Split(name, ".")
	if len(parts) > 2 {
		return table{}, fmt.Errorf("the table's name %q has more than one dot", name)
	}
	for _, p := range parts {
		if !identifier.MatchString(p) {
			return table{},
				fmt.Errorf("%q is no name for a table: letters, digits and _ are allowed, up to 50 of them, not a digit first", name)
		}
	}
	quote := `"`
	if d == MySQL {
		quote = "`"
	}
	quoted := func(s string) string { return quote + s + quote }
	last := parts[len(parts)-1]
	t := table{name: quoted(last), expiry: quoted(last + "_expires_at"), begun: quoted(last + begunSuffix), on: quoted(last), plain: last}
	if len(parts) == 2 {
		t.schema = parts[0]
		schema := quoted(parts[0]) + "."
		t.name = schema + t.name
		if d == SQLite { // where the index has the schema
			t.expiry, t.begun = schema+t.expiry, schema+t.begun
		} else {
			t.on = t.name
		}
	}
	return t, nil
}
