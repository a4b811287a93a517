package faults_test

import (
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/internal/backend"
)

// command has a server carry out a command over a connection of its own.
func command(t *testing.T, server *backend.Server, args ...string) rueidis.RedisMessage {
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true, DisableCache: true})
	require.NoError(t, err)
	defer c.Close()
	m, err := c.Do(t.Context(), c.B().Arbitrary(args[0]).Args(args[1:]...).Build()).ToMessage()
	require.NoError(t, err, args)
	return m
}

func number(t *testing.T, m rueidis.RedisMessage) int64 {
	n, err := m.AsInt64()
	require.NoError(t, err)
	return n
}

// replicated starts a server that may become a master or a replica, and does not wait for
// more replicas before it sends the first what it has.
func replicated(t *testing.T) *backend.Server {
	return backend.StartRedis(t, "--repl-diskless-sync-delay", "0")
}

// replicate makes a replica of master that is reached through addr, and waits until it has
// caught up.
func replicate(t *testing.T, master *backend.Server, addr string, replica *backend.Server) {
	host, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	command(t, replica, "REPLICAOF", host, port)
	info(t, replica, "master_link_status:up")
	info(t, master, "state=online")
}

// info waits until INFO replication says so.
func info(t *testing.T, server *backend.Server, line string) {
	require.Eventually(t, func() bool {
		m := command(t, server, "INFO", "replication")
		s, err := m.ToString()
		return err == nil && strings.Contains(s, line)
	}, patience, 20*time.Millisecond, line)
}

// caughtUp waits until a replica has everything.
func caughtUp(t *testing.T, master *backend.Server) {
	have := command(t, master, "WAIT", "1", strconv.FormatInt(patience.Milliseconds(), 10))
	require.EqualValues(t, 1, number(t, have))
}

func TestRedisReplicas(t *testing.T) {
	trier(t, redisReplica, "Redis", func(t *testing.T) (*backend.Server, store.Store) {
		t.Parallel()
		redis := backend.StartRedis(t)
		return redis, openRedis(t, redis.URL(), redisstore.Config{})
	})("the server has become a replica (READONLY), and a master again", newShop, core.Record{}, once,
		func(redis *backend.Server, s *shop) {
			role := func(host, port string) { command(s.t, redis, "REPLICAOF", host, port) }
			s.refuses(func(string) { role("127.0.0.1", "1") }, func() { role("NO", "ONE") }, s.gets) // of nobody
		})
	t.Run("too few replicas", func(t *testing.T) {
		t.Parallel()
		master, replica := replicated(t), replicated(t)
		replicate(t, master, master.Addr(), replica)
		command(t, master, "CONFIG", "SET", "min-replicas-to-write", "1")
		s := newShop(t, openRedis(t, master.URL(), redisstore.Config{}), core.Policy{})
		info(t, master, "min_slaves_good_slaves:1")
		require.Equal(t, "201", s.send(three[0]))
		caughtUp(t, master)
		replica.Kill()
		info(t, master, "min_slaves_good_slaves:0")
		require.Equal(t, "503 store_unavailable", s.send(three[1]))
		require.Equal(t, "503 store_unavailable", s.send(three[2]))
		replica.Start()
		replicate(t, master, master.Addr(), replica)
		for _, op := range three[1:] {
			s.until("201", op)
		}
		s.report(redisReplica, "`min-replicas-to-write 1`, the replica killed, restarted", "Redis", tally{executions: 3}, three...)
	})
	t.Run("no replica to wait for", func(t *testing.T) {
		t.Parallel()
		master, replica := replicated(t), replicated(t)
		replicate(t, master, master.Addr(), replica)
		s := newShop(t, openRedis(t, master.URL(), redisstore.Config{WaitForReplicas: 1}), core.Policy{})
		s.while(func(string, uint64) { replica.Kill() })
		s.until("201", three[0]) // its claim has a replica, its result has none
		ended := s.ended(1)[0]
		require.Equal(t, core.Completed, ended.Kind)
		require.ErrorContains(t, ended.Err, "replicas", "that no replica has it")
		s.while(nil)
		s.until("201 replayed", three[0])
		require.Equal(t, "503 store_unavailable", s.send(three[1]))
		require.Equal(t, "503 store_unavailable", s.send(three[2]))
		replica.Start()
		replicate(t, master, master.Addr(), replica)
		for _, op := range three[1:] {
			s.until("201", op)
		}
		s.report(redisReplica, "`WaitForReplicas: 1`, the replica killed while a handler runs, restarted",
			"Redis", tally{executions: 3}, three...)
	})
	failsOver := func(t *testing.T, name string, pair *backend.Sentinel) {
		s := newHastyShop(t, openRedis(t, pair.URL(), redisstore.Config{}), core.Policy{})
		for _, op := range three {
			require.Equal(t, "201", s.send(op))
		}
		// A run that has begun on the old master ends on the new one.
		s.while(func(op string, _ uint64) {
			caughtUp(t, pair.Master)
			pair.Master.Kill()
			pair.AwaitFailover()
			s.while(nil)
			s.until("201", "op-5") // the client has found the new master
		})
		require.Equal(t, "201", s.send("op-4"))
		ops := append([]string{"op-4", "op-5"}, three...)
		for _, op := range ops {
			s.until("201 replayed", op)
		}
		s.report(redisReplica, "master killed while a handler runs, the replica had caught up; Sentinel fails over",
			name+" with Sentinel", tally{executions: 5}, ops...)
	}
	for _, kind := range redisKinds {
		t.Run("failover of "+kind.name, func(t *testing.T) { t.Parallel(); failsOver(t, kind.name, kind.sentinel(t)) })
	}
	t.Run("cluster node", func(t *testing.T) {
		t.Parallel()
		cluster := backend.StartRedisCluster(t)
		s := newHastyShop(t, openRedis(t, cluster.URL(), redisstore.Config{}), core.Policy{})
		var ops []string
		for i := range 12 {
			ops = append(ops, "op-"+strconv.Itoa(i))
			require.Equal(t, "201", s.send(ops[i]))
		}
		first := cluster.Nodes[0]
		mine := map[string]bool{} // the operations whose records are on the first node
		for i, key := range s.started() {
			slot := command(t, first, "CLUSTER", "KEYSLOT", key.Raw())
			count := command(t, first, "CLUSTER", "COUNTKEYSINSLOT", strconv.FormatInt(number(t, slot), 10))
			mine[ops[i]] = number(t, count) > 0
		}
		first.Kill()
		seen := map[bool]int{}
		for _, op := range ops {
			if mine[op] {
				require.Equal(t, "503 store_unavailable", s.send(op))
			}
			seen[mine[op]]++
		}
		require.Positive(t, seen[true])
		require.Positive(t, seen[false])
		first.Start()
		for _, op := range ops {
			if mine[op] {
				s.until("201", op) // the node has kept nothing
			} else {
				s.until("201 replayed", op)
			}
		}
		s.report(redisReplica, "a node without a replica killed, restarted **empty**", "Redis Cluster",
			tally{executions: len(ops) + seen[true], duplicates: seen[true]}, ops...)
	})
}
