package limit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// More than n calls would fit in the window if the step were rounded down.
func TestStepIsRoundedUp(t *testing.T) {
	for _, tc := range []struct{ n, window, step int }{{3, 10, 4}, {3, 9, 3}, {3, 11, 4}, {3, 1, 1}, {1, 10, 10}} {
		l := New(tc.n, time.Duration(tc.window))
		require.EqualValues(t, tc.step, l.step)
		require.EqualValues(t, tc.n*tc.step, l.whole)
	}
}
