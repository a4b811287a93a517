package redisstore

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestVersions: which commands a server has, by its INFO. Valkey also tells which Redis it is compatible with.
func TestVersions(t *testing.T) {
	for info, want := range map[string][3]bool{
		"": {}, "redis_version:x": {}, "redis_version:8": {}, "redis_version:7.4.2\r\n": {}, "redis_version:8.2.1\r\n": {},
		"redis_version:8.4.0\r\n":  {true, false, true},
		"redis_version:10.0.0\r\n": {true, false, true},
		"redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1\r\n": {},
		"redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.1\r\n": {true},
		"redis_version:8.4.0\r\nserver_name:valkey\r\nvalkey_version:9.0.0\r\n": {true, true},
	} {
		var n natives
		n.learn(info)
		require.Equal(t, want, [3]bool{n.set.works.Load(), n.delifeq.works.Load(), n.delex.works.Load()}, "%q", info)
	}
}

// TestTrial: after a refusal, one call tries again, and not at once.
func TestTrial(t *testing.T) {
	var c trial
	c.works.Store(true)
	require.True(t, c.allowed())
	c.refused()
	require.False(t, c.allowed())
	c.next.Store(0)
	require.True(t, c.allowed())
	require.False(t, c.allowed(), "another call, before the first one has its answer")
}
