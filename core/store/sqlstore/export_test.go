package sqlstore

import (
	"fmt"
	"time"
)

// ClockAhead makes a store's clock run ahead of the server's by the microseconds that the
// SQL expression gives.
func ClockAhead(d Dialect, by string) Option {
	return func(o *options) { o.now = fmt.Sprintf("(%s + %s)", d.now(), by) }
}

// Tick is the step of a server's clock.
func Tick(d Dialect) time.Duration { return d.tick() }

// DSN is a URL in the form of the driver's.
func DSN(url, driver string) (string, error) {
	_, _, dsn, err := parse(url)
	if err != nil {
		return "", err
	}
	return dsn(driver), nil
}

// Of the internals, what the tests look at.
var (
	Pick      = pick
	StoredKey = storedKey
	Fault     = Dialect.fault
	Undone    = Dialect.undone
)

const (
	FaultOther     = faultOther
	FaultTransient = faultTransient
	FaultLocked    = faultLocked
	FaultDuplicate = faultDuplicate
	FaultFull      = faultFull
	PurgeBatch     = purgeBatch
)

// TableName is the table's name, quoted.
func (s *Store) TableName() string { return s.table.name }
