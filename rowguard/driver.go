package rowguard

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
)

// What is known of drivers without importing them. Package sqlstore knows some of it, too: this module requires
// nothing outside the standard library for those who use it, and the few lines are worth that. Unlike sqlstore, which is told
// the dialect, it finds out from the error alone whose it is.

// sqlState returns the SQLSTATE of an error of PostgreSQL (pgx and lib/pq both have the method), or "".
func sqlState(err error) string {
	var e interface{ SQLState() string }
	if errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}

// mysqlText matches the beginning of an error of MySQL's driver, which has no method for its number.
var mysqlText = regexp.MustCompile(`\bError (\d+)(?: \([0-9A-Z]{5}\))?: `)

// mysqlNumber returns the number of an error of MySQL, or "".
func mysqlNumber(err error) string {
	if m := mysqlText.FindStringSubmatch(err.Error()); m != nil {
		return m[1]
	}
	return ""
}

// sqliteCode returns the result code of an error of SQLite, or 0. modernc's error has a method Code, and its text has
// the code, too; other packages' errors may have the method. mattn's error is recognised by its text.
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
