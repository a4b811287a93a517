package sqlstore

import (
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// What is known of drivers without importing them: importing one would make every user of this package compile it.

// driverOf is the type of db's driver.
func driverOf(db *sql.DB) string { return fmt.Sprintf("%T", db.Driver()) }

const (
	typePGX = "*stdlib.Driver"
	typePQ  = "*pq.Driver"
)

// isDirectPQ reports whether db uses lib/pq, and the URL names no setting for poolers.
func isDirectPQ(db *sql.DB, rawURL string) bool {
	return driverOf(db) == typePQ && !strings.Contains(rawURL, "pooler=") && !strings.Contains(rawURL, "binary_parameters=")
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

// mysqlNumber returns the number of an error of MySQL, or 0. The driver's error has it in a field only.
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

// sqliteCode returns the primary result code of an error of SQLite, or 0. modernc's error has a
// method for it; mattn's is recognised by its text.
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

// fromDriver reports whether err, which the caller's function has returned, comes from the
// driver. An error of the caller's own may have the same methods.
func (d Dialect) fromDriver(err error) bool {
	word := map[Dialect]string{MySQL: "mysql", SQLite: "sqlite"}[d]
	if word == "" {
		return sqlState(err) != "" // only drivers' errors have that method
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
