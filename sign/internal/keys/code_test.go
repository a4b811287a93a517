package keys

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

// An authentication code that was computed here cannot be compared by ==.
func TestCodesAreNotComparable(t *testing.T) {
	require.False(t, reflect.TypeFor[Code]().Comparable())
}

// What was not made has no key, and verifies nothing.
func TestNothingIsVerifiedWithoutAKey(t *testing.T) {
	require.False(t, new(Material).Verify(nil, nil))
}
