package benchmarks

import (
	"syscall"
	"time"
	"unsafe"
)

// cpuTime is the processor time that the calling thread has used, and true. Unlike the time
// of day it stands still while the thread waits for a processor.
func cpuTime() (time.Duration, bool) {
	const clockThreadCPUTime = 3 // CLOCK_THREAD_CPUTIME_ID of clock_gettime(2)
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockThreadCPUTime, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return 0, false
	}
	return time.Duration(ts.Nano()), true
}
