//go:build unix

package benchmarks

import (
	"syscall"
	"time"
)

// processTime is the processor time that this process has used.
func processTime() time.Duration {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// openFiles is how many files and connections this process may have open. Go has raised it as far as it may.
func openFiles() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 1 << 20
	}
	return int(min(limit.Cur, 1<<20))
}
