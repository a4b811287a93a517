package sqlstore

import (
	"context"
	"time"
)

// Clock makes an SQL expression a store's clock, in place of the server's.
func Clock(now string) Config { return Config{now: now} }

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
	Pick       = pick
	IsDirectPQ = isDirectPQ
	StoredKey  = storedKey
	Class      = Dialect.class
	Undone     = Dialect.undone
)

// Failure is err as a call of a store returns it.
func Failure(d Dialect, err error) error {
	return (&Store{dialect: d}).failure(context.Background(), "call", err)
}

const (
	ClassOther     = classOther
	ClassTransient = classTransient
	ClassLocked    = classLocked
	ClassDuplicate = classDuplicate
	ClassFull      = classFull
	ClassReadOnly  = classReadOnly
	Batch          = batch
	Tries          = tries
)

// LeftLongAgo lets the next call that finds a read-only server close connections at once.
func (s *Store) LeftLongAgo() { s.left.Store(nil) }

// TableName is the table's name, quoted.
func (s *Store) TableName() string { return s.table.name }
