package redisstore

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEvicts(t *testing.T) {
	for _, info := range []string{"", "# Memory\r\nused_memory:1\r\n", "maxmemory_policy:noeviction\r\n", "maxmemory_policy:\r\nallocator_frag_ratio:1\r\n"} {
		require.NoError(t, evicts("host:1", info), "%q", info)
	}
	for _, policy := range []string{"allkeys-lru", "volatile-lru", "volatile-ttl", "allkeys-random"} {
		err := evicts("host:1", "# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:"+policy+"\r\nx:y\r\n")
		require.ErrorContains(t, err, "host:1 is "+policy+":")
	}
}
