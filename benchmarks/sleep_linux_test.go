package benchmarks

import (
	"syscall"
	"time"
)

func init() {
	// It holds a thread, and so is for one goroutine, and for the last part of a long sleep.
	sleep = func(d time.Duration) {
		const coarse = 2 * time.Millisecond
		deadline := time.Now().Add(d)
		time.Sleep(d - coarse)
		for left := time.Until(deadline); left > 0; left = time.Until(deadline) {
			t := syscall.NsecToTimespec(int64(left))
			_ = syscall.Nanosleep(&t, nil) // a signal ends it early; then there is something left
		}
	}
}
