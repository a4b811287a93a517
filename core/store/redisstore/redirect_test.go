package redisstore_test

import (
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/internal/backend"
)

func TestNoBatchesForRedirections(t *testing.T) {
	server := backend.StartRedis(t)
	o, err := rueidis.ParseURL(server.URL())
	require.NoError(t, err)
	o.Standalone.ReplicaAddress, o.SendToReplicas = o.InitAddress, func(rueidis.Completed) bool { return false }
	client, err := rueidis.NewClient(o)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	require.False(t, redisstore.SendsTogether(client))
	require.True(t, redisstore.SendsTogether(openClient(t, server.URL())))
}
