package faults_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/internal/backend"
)

// durable starts a Redis server that a kill costs nothing which it has acknowledged.
func durable(t *testing.T) *backend.Server {
	return backend.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
}

func openRedis(t *testing.T, url string, config redisstore.Config) store.Store {
	t.Helper()
	s, err := redisstore.NewURL(url, config)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

func TestRedisServer(t *testing.T) {
	durableServer(t, redisServer, "Redis", func(t *testing.T) (*backend.Server, store.Store) {
		t.Parallel()
		redis := durable(t)
		return redis, openRedis(t, redis.URL(), redisstore.Config{})
	})
	t.Run("frozen before the claims of many", func(t *testing.T) {
		t.Parallel()
		redis := durable(t)
		// A connection that is given up while the server is frozen releases no claims.
		s := newHastyShop(t, openRedis(t, redis.URL()+"?write_timeout=1m", redisstore.Config{}), core.Policy{Record: core.Record{Abandoned: core.Uncertain(nil), Lease: longLease}})
		var ops []string
		var answers []<-chan string
		redis.Freeze()
		for i := range 100 {
			ops = append(ops, "op-"+strconv.Itoa(i))
			answers = append(answers, s.sent(ops[i]))
		}
		for _, answer := range answers {
			require.Equal(t, "503 store_unavailable", <-answer)
		}
		redis.Thaw()
		for _, op := range ops {
			require.Zero(t, s.ledger.of(op))
			// Claims that were under way are made now, for nobody, and are released.
			s.until("201", op)
		}
		s.report(redisServer, "server frozen beyond the deadline before a hundred claims at once, thawed; Uncertain", "Redis", tally{executions: len(ops)}, ops...)
	})
	for _, policy := range policies {
		t.Run("killed after the handler, "+policy.name, func(t *testing.T) {
			t.Parallel()
			redis := durable(t)
			killed := map[string]bool{}
			store := before{openRedis(t, redis.URL(), redisstore.Config{}), func(key string) {
				if !killed[key] {
					killed[key] = true
					redis.Kill()
				}
			}}
			s := newHastyShop(t, store, core.Policy{Record: core.Record{Abandoned: policy.abandoned}})
			for _, op := range three {
				require.Equal(t, "201", s.send(op), "the client gets the real response")
				require.True(t, s.saw(core.RunUnfinished))
				redis.Start()
				s.until(policy.last, op)
			}
			s.report(redisServer, "server killed between the handler and the result, restarted later; "+policy.name, "Redis", policy.want, three...)
		})
	}
	t.Run("restarted empty after the answer", func(t *testing.T) {
		t.Parallel()
		redis := backend.StartRedis(t)
		s := newShop(t, openRedis(t, redis.URL(), redisstore.Config{}), core.Policy{})
		for _, op := range three {
			require.Equal(t, "201", s.send(op))
			require.Equal(t, "201 replayed", s.send(op))
			redis.Kill()
			redis.Start()
			s.until("201", op)
		}
		s.report(redisServer, "server restarted **empty** (no persistence) between answer and retry", "Redis", tally{executions: 6, duplicates: 3}, three...)
	})
	t.Run("restarted empty during the handler", func(t *testing.T) {
		t.Parallel()
		redis := backend.StartRedis(t)
		s := newShop(t, openRedis(t, redis.URL(), redisstore.Config{}), core.Policy{})
		s.while(func(op string, _ uint64) {
			if s.ledger.of(op) == 1 {
				redis.Kill()
				redis.Start()
			}
		})
		for _, op := range three {
			require.Equal(t, "201", s.send(op), "the client gets the real response")
			require.True(t, s.saw(core.RunLost) || s.saw(core.RunUnfinished))
			s.until("201", op)
			require.Equal(t, "201 replayed", s.send(op))
		}
		s.report(redisServer, "server restarted **empty** while the handler runs", "Redis", tally{executions: 6, duplicates: 3}, three...)
	})
	t.Run("scripts flushed", func(t *testing.T) {
		t.Parallel()
		redis := backend.StartRedis(t)
		flush := func(string, uint64) { command(t, redis, "SCRIPT", "FLUSH") }
		s := newShop(t, openRedis(t, redis.URL(), redisstore.Config{}), core.Policy{})
		s.while(flush)
		for _, op := range three {
			flush("", 0)
			require.Equal(t, "201", s.send(op))
			flush("", 0)
			require.Equal(t, "201 replayed", s.send(op))
		}
		s.report(redisServer, "`SCRIPT FLUSH` (NOSCRIPT) before each step", "Redis", tally{executions: 3}, three...)
	})
	t.Run("full before the claim", func(t *testing.T) {
		t.Parallel()
		redis := backend.StartRedis(t, "--maxmemory-policy", "noeviction")
		s := newShop(t, openRedis(t, redis.URL(), redisstore.Config{}), core.Policy{})
		for _, op := range three {
			command(t, redis, "CONFIG", "SET", "maxmemory", "1")
			require.Equal(t, "503 store_unavailable", s.send(op))
			require.Zero(t, s.ledger.of(op))
			command(t, redis, "CONFIG", "SET", "maxmemory", "0")
			require.Equal(t, "201", s.send(op))
			require.Equal(t, "201 replayed", s.send(op))
		}
		s.report(redisServer, "server out of memory (noeviction) before the claim, room later", "Redis", tally{executions: 3}, three...)
	})
	t.Run("full during the handler", func(t *testing.T) {
		t.Parallel()
		redis := backend.StartRedis(t, "--maxmemory-policy", "noeviction")
		s := newShop(t, openRedis(t, redis.URL(), redisstore.Config{}), core.Policy{Record: core.Record{Lease: longLease}})
		s.while(func(string, uint64) { command(t, redis, "CONFIG", "SET", "maxmemory", "1") })
		for _, op := range three {
			require.Equal(t, "201", s.send(op), "the client gets the real response")
			command(t, redis, "CONFIG", "SET", "maxmemory", "0")
			require.Equal(t, "409 result_unavailable", s.send(op), "that it was done is kept")
		}
		s.report(redisServer, "server out of memory (noeviction) while the handler runs", "Redis", tally{executions: 3}, three...)
	})
}

func TestRedisLink(t *testing.T) {
	fresh := func(t *testing.T) (*backend.Proxy, store.Store) {
		proxy := backend.NewProxy(t, backend.StartRedis(t).Addr())
		return proxy, openRedis(t, "redis://"+proxy.Addr(), redisstore.Config{})
	}
	brokenLink(t, redisLink, "Redis", fresh)
	t.Run("slow", func(t *testing.T) {
		t.Parallel()
		proxy, store := fresh(t)
		s := newShop(t, store, core.Policy{})
		proxy.Delay(50 * time.Millisecond)
		for _, op := range three {
			require.Equal(t, "201", s.send(op))
			require.Equal(t, "201 replayed", s.send(op))
		}
		s.report(redisLink, "link slow, within the deadline", "Redis", tally{executions: 3}, three...)
	})
}
