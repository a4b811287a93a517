package redisstore

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/store"
)

// TestOwnersThatNeverReturn: the table of claims is bounded, and the last one is in it.
func TestOwnersThatNeverReturn(t *testing.T) {
	c := claimed{records: map[store.Owner]string{}}
	var owner store.Owner
	for range claimedMax + 10 {
		owner = store.NewOwner()
		c.add(owner, "record")
		c.add(owner, "record")
	}
	require.LessOrEqual(t, len(c.records), claimedMax)
	require.Equal(t, "record", c.take(owner))
	require.Empty(t, c.take(owner))
}
