//go:build !skewed

package main

// It takes minutes to compile, which the tests with a changed standard library would have to
// do anew; and the clock of SQLite is the process's own.
import _ "modernc.org/sqlite"
