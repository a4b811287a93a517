// Package jitter spreads pauses, so that callers who were stopped together do not come back together.
package jitter

import (
	"math/rand/v2"
	"time"
)

// Spread returns a random duration of d/2 or more, and less than d/2+d. d must be more than zero. It is a variable for
// package simulator, whose runs must be alike; nothing changes it while an engine works.
var Spread = func(d time.Duration) time.Duration { return d/2 + rand.N(d) }
