//go:build !linux

package load

import "time"

// sleep sleeps for d, or longer, by as much as time.Sleep is late.
func sleep(d time.Duration) { time.Sleep(d) }
