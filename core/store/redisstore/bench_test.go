package redisstore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/storetest"
	"github.com/idem-go/idem/internal/backend"
	"github.com/idem-go/idem/internal/clienttest"
)

func BenchmarkStandalone(b *testing.B) {
	storetest.Bench(b, clienttest.Instances(b, backend.Redis(b), openStore))
}

func BenchmarkWaitingForAReplica(b *testing.B) {
	master, _ := startReplicated(b)
	_, err := openWaiting(b, master.URL()).Acquire(b.Context(), "the replica follows", newClaim())
	require.NoError(b, err)
	storetest.Bench(b, clienttest.Instances(b, master.URL(), openWaiting))
}
