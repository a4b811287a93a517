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
