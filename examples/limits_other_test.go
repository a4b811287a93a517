//go:build !unix

package examples_test

// openFiles is a guess at how many connections this process may have open.
func openFiles() int { return 2000 }
