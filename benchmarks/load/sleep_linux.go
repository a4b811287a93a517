package load

import (
	"syscall"
	"time"
)

// sleep sleeps for d. When a process is idle, time.Sleep wakes up to a millisecond late, which
// is as long as an answer takes. The kernel is more exact, but holds a thread for it, so
// this is for one goroutine, and only for the last part of a long sleep.
func sleep(d time.Duration) {
	const coarse = 2 * time.Millisecond
	deadline := time.Now().Add(d)
	if d > coarse {
		time.Sleep(d - coarse)
	}
	for left := time.Until(deadline); left > 0; left = time.Until(deadline) {
		t := syscall.NsecToTimespec(int64(left))
		_ = syscall.Nanosleep(&t, nil) // a signal ends it early; then there is something left
	}
}
