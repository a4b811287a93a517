package sign

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Memory that is used again holds nothing of the message before.
func TestSortedParamsAreForgotten(t *testing.T) {
	l := new(params)
	require.NoError(t, l.reserve("key", ""))
	require.NoError(t, l.addPairs("amount=5&to=bob&A=&b%5B%5D="))
	require.NoError(t, l.finish(&SortedOptions{SecretName: "key"}))
	l.reset()
	require.Empty(t, l.list)
	require.Empty(t, l.reserved)
	require.Empty(t, l.alike)
	require.Empty(t, l.base)
	for _, p := range l.list[:cap(l.list)] {
		require.Zero(t, p)
	}
	for _, name := range l.reserved[:cap(l.reserved)] {
		require.Zero(t, name)
	}
	for _, a := range l.alike[:cap(l.alike)] {
		require.Zero(t, a)
	}
	require.NoError(t, l.addPairs("key=6"), "which is no longer reserved")
	require.NoError(t, l.finish(new(SortedOptions)))
	require.Equal(t, "key=6", string(l.base))

	l.reset()
	require.NoError(t, l.add("a", string(make([]byte, maxBase))))
	require.NoError(t, l.finish(new(SortedOptions)))
	l.reset()
	require.Nil(t, l.base, "large buffers are not kept")
}
