package fasthttpkit

import (
	"testing"
	"time"
)

// SetMaxDrain sets maxDrain until t ends.
func SetMaxDrain(t *testing.T, d time.Duration) {
	was := maxDrain
	maxDrain = d
	t.Cleanup(func() { maxDrain = was })
}
