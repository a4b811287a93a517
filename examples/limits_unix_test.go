//go:build unix

package examples_test

import "syscall"

// openFiles is how many files and connections this process may have open.
func openFiles() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 2000
	}
	return int(min(limit.Cur, 1<<20))
}
