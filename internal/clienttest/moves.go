package clienttest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/internal/backend"
)

// begin acquires key, which must be free, and returns the owner.
func begin(t *testing.T, s *redisstore.Store, key string) store.Owner {
	t.Helper()
	c := store.Claim{Owner: store.NewOwner(), Lease: time.Hour, Retention: time.Hour}
	g, err := s.Acquire(t.Context(), key, c)
	require.NoError(t, err)
	require.Equal(t, store.Grant{State: store.Acquired, Attempt: 1}, g)
	return c.Owner
}

// meet expects a record in a state under key, attempt 1, and returns its result.
func meet(t *testing.T, s *redisstore.Store, key string, state store.State) (result string) {
	t.Helper()
	g, err := s.Acquire(t.Context(), key, store.Claim{Owner: store.NewOwner(), Lease: time.Hour, Retention: time.Hour})
	require.NoError(t, err)
	require.Equal(t, state, g.State)
	require.EqualValues(t, 1, g.Attempt)
	return string(g.Result)
}

// movingSlot: while a slot of a cluster moves, and when it has moved, a claim is made once, by
// the node that has the key, and found there.
func movingSlot(t *testing.T, open func(tb testing.TB, url string) *redisstore.Store) {
	cluster := backend.StartRedisCluster(t)
	s := open(t, cluster.URL())
	nodes := make([]rueidis.Client, 2)
	ids := make([]string, 2)
	for i := range nodes {
		options, err := rueidis.ParseURL(cluster.Nodes[i].URL())
		require.NoError(t, err)
		options.ForceSingleClient = true
		nodes[i], err = rueidis.NewClient(options)
		require.NoError(t, err)
		t.Cleanup(nodes[i].Close)
		ids[i], err = nodes[i].Do(t.Context(), nodes[i].B().ClusterMyid().Build()).ToString()
		require.NoError(t, err)
	}
	tell := func(node int, args ...string) {
		t.Helper()
		require.NoError(t, nodes[node].Do(t.Context(), nodes[node].B().Arbitrary(args...).Build()).Error())
	}
	const slot = "0"
	at := func(node int, key string) bool { // ASKING, for a slot that is being imported
		client := nodes[node]
		results := client.DoMulti(t.Context(), client.B().Arbitrary("ASKING").Build(), client.B().Arbitrary("EXISTS", key).Build())
		n, err := results[1].AsInt64()
		return err == nil && n == 1
	}
	stays, asked, moved := "{3560}stays", "{3560}asked", "{3560}moved" // CLUSTER KEYSLOT 3560 is 0
	owner := begin(t, s, stays)
	require.NoError(t, s.Complete(t.Context(), stays, owner, []byte("result"), time.Hour))
	require.True(t, at(0, stays))

	tell(1, "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
	tell(0, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])
	meet(t, s, stays, store.Done)
	owner = begin(t, s, asked)
	require.True(t, at(1, asked))
	meet(t, s, asked, store.Running)
	require.NoError(t, s.Complete(t.Context(), asked, owner, []byte("result"), time.Hour))
	require.Equal(t, "result", meet(t, s, asked, store.Done))

	host, port, _ := strings.Cut(cluster.Nodes[1].Addr(), ":")
	tell(0, "MIGRATE", host, port, stays, "0", "5000")
	for node := range nodes {
		tell(node, "CLUSTER", "SETSLOT", slot, "NODE", ids[1])
	}
	owner = begin(t, s, moved)
	require.True(t, at(1, moved))
	require.NoError(t, s.Complete(t.Context(), moved, owner, nil, time.Hour))
	for _, key := range []string{stays, asked, moved} {
		meet(t, s, key, store.Done)
	}
}

// failover: what replication has carried over goes on at the new master: claims are renewed, completed and released, waiters are woken and
// can wait there. What it has not is lost, and nobody makes it again.
func failover(t *testing.T, servers *backend.Sentinel, open func(tb testing.TB, url string) *redisstore.Store) {
	s := open(t, servers.URL())
	ctx := t.Context()
	watched, quiet, released := begin(t, s, "watched"), begin(t, s, "quiet"), begin(t, s, "released")
	watch := func() <-chan struct{} {
		changed, stop, err := s.Capabilities().Watch(ctx, "watched")
		require.NoError(t, err)
		t.Cleanup(stop)
		return changed
	}
	changed := watch()
	// The master acknowledges before the replica has it; this write comes after the others.
	master := dial(t, servers.Master.URL())
	require.NoError(t, master.Dedicated(func(conn rueidis.DedicatedClient) error {
		if err := conn.Do(ctx, conn.B().Set().Key("last").Value("").Build()).Error(); err != nil {
			return err
		}
		n, err := conn.Do(ctx, conn.B().Wait().Numreplicas(1).Timeout(10_000).Build()).AsInt64()
		if err == nil && n != 1 {
			err = errors.New("the replica lags behind")
		}
		return err
	}))
	servers.Failover()
	receive(t, changed)
	require.Eventually(t, func() bool {
		return s.Renew(ctx, "watched", watched, time.Hour) == nil
	}, 20*time.Second, 10*time.Millisecond)
	changed = watch()
	require.NoError(t, s.Complete(ctx, "watched", watched, []byte("result"), time.Hour))
	receive(t, changed)
	require.Equal(t, "result", meet(t, s, "watched", store.Done))
	require.NoError(t, s.Complete(ctx, "quiet", quiet, []byte("result"), time.Hour))
	require.Equal(t, "result", meet(t, s, "quiet", store.Done))
	require.NoError(t, s.Release(ctx, "released", released))
	lost := begin(t, s, "released")

	master = dial(t, servers.Master.URL()) // a replica that lags, and is promoted, lacks a record
	require.NoError(t, master.Do(ctx, master.B().Del().Key("released").Build()).Error())
	require.ErrorIs(t, s.Complete(ctx, "released", lost, []byte("result"), time.Hour), store.ErrLost)
}
