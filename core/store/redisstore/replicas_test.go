package redisstore_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/core/storetest"
	"github.com/idem-go/idem/internal/backend"
	"github.com/idem-go/idem/internal/clienttest"
)

// startReplicated starts a master and a replica.
func startReplicated(tb testing.TB) (master, replica *backend.Server) {
	master = backend.StartRedis(tb, "--repl-diskless-sync-delay", "0")
	host, port, err := net.SplitHostPort(master.Addr())
	require.NoError(tb, err)
	return master, backend.StartRedis(tb, "--replicaof", host, port)
}

// openWaiting opens a store that waits as long as it takes for a replica.
func openWaiting(tb testing.TB, url string) *redisstore.Store {
	return openURL(tb, url+"?write_timeout=2m", redisstore.Config{WaitForReplicas: 1, ReplicaTimeout: time.Minute})
}

// TestWaitingForAReplica: the suite.
func TestWaitingForAReplica(t *testing.T) {
	t.Parallel()
	master, _ := startReplicated(t)
	storetest.Run(t, clienttest.Instances(t, master.URL(), openWaiting), storetest.Features{})
}

// TestWithoutAReplica: a call whose write no replica has is an error that does not say that the claim is lost. What stands can
// be read.
func TestWithoutAReplica(t *testing.T) {
	t.Parallel()
	master, replica := startReplicated(t)
	patient := openWaiting(t, master.URL())
	begin(t, patient, "the replica follows")
	replica.Kill()
	s := openURL(t, master.URL(), redisstore.Config{WaitForReplicas: 1, ReplicaTimeout: 10 * time.Millisecond})
	beside := openURL(t, master.URL(), redisstore.Config{})
	ctx, c := t.Context(), newClaim()
	unconfirmed := func(err error) { t.Helper(); require.ErrorContains(t, err, "0 of 1") }
	acquire := func(key string) error { _, err := s.Acquire(ctx, key, c); return err }

	unconfirmed(acquire("k"))
	meet(t, s, "k", store.Running)
	unconfirmed(s.Renew(ctx, "k", c.Owner, time.Hour))
	unconfirmed(s.Complete(ctx, "k", c.Owner, []byte("result"), time.Hour))
	require.ErrorIs(t, s.Complete(ctx, "k", c.Owner, nil, time.Hour), store.ErrLost)
	require.Equal(t, "result", string(meet(t, s, "k", store.Done).Result))

	unconfirmed(acquire("l"))
	unconfirmed(s.Release(ctx, "l", c.Owner))
	c = begin(t, beside, "l")
	unconfirmed(s.Abandon(ctx, "l", c.Owner))
	c.Takeover = true
	unconfirmed(acquire("l")) // by the script

	// A claim whose caller does not wait so long is released.
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	_, err := openURL(t, master.URL(), redisstore.Config{WaitForReplicas: 1}).Acquire(short, "m", newClaim())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Eventually(t, func() bool {
		g, err := beside.Acquire(ctx, "m", newClaim())
		return err == nil && g.State == store.Acquired
	}, 10*time.Second, time.Millisecond)

	replica.Start()
	begin(t, patient, "the replica follows again")
}
