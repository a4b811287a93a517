//go:build !linux

package canon_test

import "time"

var start = time.Now()

// cpuTime returns what time has passed, where nothing tells for how long a thread has run.
func cpuTime() time.Duration { return time.Since(start) }
