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

// durable are the arguments of a server that a kill costs nothing which it has acknowledged.
var durable = []string{"--appendonly", "yes", "--appendfsync", "always"}

func openRedis(t *testing.T, url string, config redisstore.Config) store.Store {
	t.Helper()
	s, err := redisstore.NewURL(url, config)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// redisKinds are a server that takes scripts, and one that compares by itself.
var redisKinds = []struct {
	name     string
	start    func(testing.TB, ...string) *backend.Server
	sentinel func(testing.TB) *backend.Sentinel
}{{"Redis", backend.StartRedis, backend.StartRedisSentinel}, {"Valkey", backend.StartValkey, backend.StartValkeySentinel}}

func TestRedisServer(t *testing.T) {
	for _, kind := range redisKinds {
		t.Run(kind.name, func(t *testing.T) { t.Parallel(); redisServers(t, kind.name, kind.start) })
	}
}

func redisServers(t *testing.T, name string, start func(testing.TB, ...string) *backend.Server) {
	fresh := func(args ...string) func(t *testing.T) (*backend.Server, store.Store) {
		return func(t *testing.T) (*backend.Server, store.Store) {
			t.Parallel()
			redis := start(t, args...)
			return redis, openRedis(t, redis.URL(), redisstore.Config{})
		}
	}
	durableServer(t, redisServer, name, fresh(durable...))
	t.Run("frozen before the claims of many", func(t *testing.T) {
		t.Parallel()
		redis := start(t, durable...)
		// A connection that is given up while the server is frozen releases no claims.
		s := newHastyShop(t, openRedis(t, redis.URL()+"?write_timeout=1m", redisstore.Config{}),
			core.Policy{Record: core.Record{Abandoned: core.Uncertain(nil), Lease: longLease}})
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
		s.report(redisServer, "server frozen beyond the deadline before a hundred claims at once, thawed; Uncertain",
			name, tally{executions: len(ops)}, ops...)
	})
	killing := func(t *testing.T) (*backend.Server, store.Store) {
		redis, records := fresh(durable...)(t)
		killed := map[string]bool{}
		return redis, before{records, func(key string) {
			if !killed[key] {
				killed[key] = true
				redis.Kill()
			}
		}}
	}
	trier(t, redisServer, name, killing)("server killed between the handler and the result, restarted later", newHastyShop,
		core.Record{}, once, func(redis *backend.Server, s *shop) {
			s.answers(func() { require.True(s.t, s.saw(core.Unsettled)); redis.Start() }, s.until, "201 replayed")
		})
	try := trier(t, redisServer, name, fresh("--maxmemory-policy", "noeviction"))
	try("server restarted **empty** (no persistence) between answer and retry", newShop, core.Record{}, tally{executions: 6, duplicates: 3},
		func(redis *backend.Server, s *shop) {
			for _, op := range three {
				s.gets("201", op)
				s.gets("201 replayed", op)
				redis.Kill()
				redis.Start()
				s.until("201", op)
			}
		})
	try("server restarted **empty** while the handler runs", newShop, core.Record{}, tally{executions: 6, duplicates: 3},
		func(redis *backend.Server, s *shop) {
			s.while(func(op string, _ uint64) {
				if s.ledger.of(op) == 1 {
					redis.Kill()
					redis.Start()
				}
			})
			for _, op := range three {
				s.gets("201", op)
				require.True(s.t, s.saw(core.RunLost) || s.saw(core.RunUnfinished))
				s.until("201", op)
				s.gets("201 replayed", op)
			}
		})
	try("`SCRIPT FLUSH` (NOSCRIPT) before each step", newShop, core.Record{}, once, func(redis *backend.Server, s *shop) {
		flush := func() { command(s.t, redis, "SCRIPT", "FLUSH") }
		s.while(first(flush))
		flush()
		s.answers(flush, s.gets, "201 replayed")
	})
	memory := func(redis *backend.Server, s *shop, bytes string) func() {
		return func() { command(s.t, redis, "CONFIG", "SET", "maxmemory", bytes) }
	}
	try("server out of memory (noeviction) before the claim, room later", newShop, core.Record{}, once,
		func(redis *backend.Server, s *shop) {
			full := memory(redis, s, "1")
			s.refuses(func(string) { full() }, memory(redis, s, "0"), s.gets)
		})
	try("server out of memory (noeviction) while the handler runs", newShop, core.Record{}, once, func(redis *backend.Server, s *shop) {
		s.while(first(memory(redis, s, "1")))
		s.answers(memory(redis, s, "0"), s.gets, "409 result_unavailable") // that it was done is kept
	})
}

func TestRedisLink(t *testing.T) {
	for _, kind := range redisKinds {
		t.Run(kind.name, func(t *testing.T) { t.Parallel(); redisLinks(t, kind.name, kind.start) })
	}
}

func redisLinks(t *testing.T, name string, start func(testing.TB, ...string) *backend.Server) {
	fresh := func(t *testing.T) (*backend.Proxy, store.Store) {
		t.Parallel()
		proxy := backend.NewProxy(t, start(t).Addr())
		return proxy, openRedis(t, "redis://"+proxy.Addr(), redisstore.Config{})
	}
	brokenLink(t, redisLink, name, fresh)
	trier(t, redisLink, name, fresh)("link slow, within the deadline", newShop, core.Record{}, once,
		func(proxy *backend.Proxy, s *shop) {
			proxy.Delay(50 * time.Millisecond)
			s.answers(nothing, s.gets, "201 replayed")
		})
}
