// Package redisstore keeps records in Redis: one server, Sentinel or a cluster. It suits
// a service of many processes. It needs Redis 6.2 or later, or Valkey, and the client
// rueidis.
//
//	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"127.0.0.1:6379"}})
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//	store := redisstore.New(client)
//	defer store.Close()
//	engine, err := core.New(core.Config{Store: store})
//
// or, with a client that is the store's own:
//
//	store, err := redisstore.NewURL("redis://127.0.0.1:6379")
//
// # Calls
//
// A claim is one SET with NX and GET, and PTTL in the same round trip. A script takes its place where the
// server does not know that (before Redis 7.0; found out once for each store) or refuses to write, and follows
// it where a record stands that is not finished: two round trips then. Each other call is one script on one key, sent by its
// digest: one round trip, one EVALSHA. A first request costs two (Acquire, Complete), a replay one. The servers get the
// scripts when the store is made; one that does not know a script all the same (after a
// failover, or SCRIPT FLUSH) gets it, once, in a second round trip. Whatever the server was slow to
// answer is not sent again: a call that fails may have taken effect. All spans are counted
// by the server's clock, in milliseconds, rounded up.
//
// A call returns when its context ends, also when the server is frozen, or the client is
// connecting. It may still be under way then; a claim that is made so late is released when
// its answer comes. (A replay from the client's cache is looked up in the caller's goroutine,
// and may wait for a new connection.)
//
// From 64 goroutines on one machine with its server, operations run at the rate of the bare client that sends
// the same, and replays at 0.85 of it. SET NX and SET, which compare no owner, run 1.5 times as fast. See
// BenchmarkRedisPeer in benchmarks.
//
// # Keys and records
//
// A record is one string under exactly the engine's key. No other keys are used, so a cluster
// needs no hash tags. The string is
//
//	<state><attempt>;<retention>;<length>;<owner><fingerprint><result>
//
// State is R for running, W for running and watched by waiters, A for abandoned by Abandon or
// Release, D for done. Attempt, the retention in ms (under D that of the result, or 0), and the fingerprint's length are
// decimal numbers. The owner, 16 bytes, is there under R and W only, the result under D.
//
// No point in time is stored: the key expires. It lives for its lease and its
// retention, and while its time to live exceeds the retention, the lease stands.
//
// A record takes some 200 bytes beyond its key and its result, the server's index of keys and
// expiries and a fingerprint of 32 bytes included (Redis 7.0; TestMemoryPerRecord).
//
// # Memory
//
// The server must not drop records that stand: set maxmemory-policy to noeviction. Anything
// else is reported once, when the store is made; see [Warn]. Under noeviction, a server that
// is full refuses new records and results with store.ErrFull, and still renews, releases,
// abandons, takes over, and completes without a result.
//
// # Waiting
//
// The store implements store.Watcher. All waiters of a store share one subscription to the
// channel idem:wake, on one connection, which is made for the first waiter and stays until
// Close. (It is not one that serves calls: Redis ends a subscribed connection on which more
// waits to be sent than its client-output-buffer-limit for pubsub allows.) A run that has
// waiters carries a mark; what ends it publishes its key, and only then. When the subscription
// breaks, all waiters are woken; those that go on waiting make a new one. Messages may be lost
// in a failover; the engine looks again in any case, after one second or so, then two, then
// every four.
//
// # Client-side caching
//
// With [ClientSideCache], a finished record that a process has met with once is fetched into
// the client's cache when it is next asked for, and from then on answered from there: in
// 1 µs instead of 10, and without the server (BenchmarkRedisPeer). That pays for
// a key that is replayed again and again to the same process, such as that of a client that
// polls, and costs memory (ClientOption.CacheSizeEachConn, 128 MiB for each connection by
// default; replays of a key that isn't in there cost the same one round trip). First
// requests cost nothing more.
//
// It is safe because a finished record never changes until its retention ends. What it
// changes is this: when somebody deletes a record (DEL, FLUSHALL), or a failover loses it, a
// process may replay it for a moment longer: until the server's message arrives, until
// the client notices that its connection has broken, or at most for the option's ttl. It
// needs RESP3 and a client without DisableCache; without them it switches itself off. The
// remaining retention is then counted by the process's clock from when the record was met.
//
// # Limits
//
// [NewLimiter] makes a core.Limiter that processes share: at most n in a window, for each user. A call is one
// script on one key, like those of the store; nothing is made in advance. The key is
//
//	<prefix>L=<name>#<SHA-256 of the limiter's key, in hexadecimal>
//
// where no engine has records. It holds when the bucket is full again, in microseconds of the server's
// clock, and who was counted last; then it expires. It takes some 250 bytes. What is one step, window/n, is rounded up to
// whole microseconds. When the server's clock is set back, nobody waits longer than a step for it.
//
// A call that failed may have been counted. One that the client has sent twice is counted once, unless
// another for the same key came in between; then one too many is counted. A server that can't count (out of
// memory, loading, a replica) is an error. A failover may lose the last counts, and then more is allowed.
//
// # Permissions
//
// A user of Redis's access control lists needs, for an engine with the default prefix:
//
//	~idem:* &idem:wake +eval +evalsha +get +set +del +pexpire +pttl +getrange +setrange
//	+publish +subscribe +unsubscribe +ping +info +script|load
//
// and +select for another database than 0, +client for the handshake of a client that caches
// (as one from rueidis.NewClient does unless it has DisableCache), +client, +multi and +exec
// for [ClientSideCache], and +cluster (or +sentinel, +role) where there is one. Without the channel, waiters poll. Without INFO, the
// maxmemory-policy is not looked at; without SCRIPT LOAD, the first call of each script sends it
// (but under FIPS 140, GODEBUG=fips140=only, where the server computes the digests, it
// is needed). A command that the user may not run is reported when the store is made, not at the first renewal; see [Warn]. It is found by
// ACL DRYRUN (Redis 7.0), where the user may call that, else by running each command on a key idem:<random> that does not exist. Where
// ACL DRYRUN can't be had, each command that is refused makes an entry of ACL LOG at each start. Which keys and channels he may use
// is not looked at. A limiter needs +eval, +evalsha, +get, +set, +getex and +time on ~idem:L=*.
//
// # What can be lost
//
// Redis acknowledges before its replicas have the data. A failover (Sentinel, a cluster)
// may lose the last claims and results, and an operation whose record is lost runs again if it
// is asked for again. So does one after a restart of a server without persistence.
//
//   - appendonly yes: a restart loses the last second at most; appendfsync always:
//     nothing that was acknowledged.
//   - min-replicas-to-write 1, min-replicas-max-lag: a master without replicas refuses
//     writes, which narrows the window in which it acknowledges what will be lost.
//   - The store does not WAIT for replicas: that costs a round trip among the servers,
//     and promises nothing about which of them is elected.
//
// Who can't accept that uses package sqlstore.
//
// # Clients
//
// The store uses connections as they are. Some settings of the client matter. With
// PipelineMultiplex set to -1, as [NewURL] sets it, there is one connection to each server, and
// what follows a call that timed out arrives after it; by default a Release may overtake its
// Acquire. With ConnLifetime, rueidis sends a command again if the server was silent for a second when the
// connection's life ended: a claim may then meet with itself, and the operation is in
// progress for nobody until the lease passes. So may, with Standalone.EnableRedirect, one that a server has
// made just before it became a replica. With SendToReplicas, the store's commands must
// go to masters. ConnWriteTimeout (10 s by default; 3 s with [NewURL]) is how long a silent
// connection is kept.
package redisstore
