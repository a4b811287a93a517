// Package redisstore keeps records in Redis: one server, Sentinel or a cluster. It suits services that run as several
// processes. It needs Redis 6.2 or later, or Valkey, and a client. With github.com/redis/rueidis use this package, with
// go-redis package goredisidem, with valkey-go package valkeyidem.
//
//	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"127.0.0.1:6379"}})
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//	store := redisstore.New(client, redisstore.Config{})
//	defer store.Close()
//	engine, err := core.New(core.Config{Service: "shop", Store: store})
//
// or, with a client that the store makes and closes itself:
//
//	store, err := redisstore.NewURL("redis://127.0.0.1:6379", redisstore.Config{})
//
// # Calls
//
// A first request takes two round trips (Acquire and Complete), and a replay takes one. A replay takes two if the
// record outlives its result (RefuseExpired of core.Policy).
//
// Acquire sends SET with NX and GET, and PTTL, in one round trip. If this process has replayed the record before, it
// sends GET instead, which costs the server less (not for records that outlive their results, nor on a cluster,
// whose client may send GET to a replica; the keys of up to 65,536 records are kept for that; a user who may not run
// GET loses nothing else). If an unfinished record is there, a script follows in a second round trip. The script is
// used alone if the server does not support that SET (before Redis 7.0; the store tries again once a minute) or
// refuses to write. Each other call is one EVALSHA of a script on one key. The store loads the scripts when it is
// made. A server that has lost one (after a failover, or SCRIPT FLUSH) gets it in a second round trip.
//
// To store a result, the store sends the record of the claim as it made it, and the record that replaces it. If nobody
// has changed the record meanwhile, the script has nothing to parse, and takes a quarter less of the server's time
// (BenchmarkRedisServerTime in benchmarks). The store keeps the records of up to 8,192 running claims for that, and
// works without them.
//
// Some servers can compare by themselves, and need no script for that: SET with IFEQ (Valkey 8.1, Redis 8.4) stores a
// result, and DELIFEQ (Valkey 9) or DELEX (Redis 8.4) releases a first attempt. A whole operation then takes about as
// much server time as the same commands without a comparison. The script decides, in a second round trip, if the record
// differs, if the server refuses to write (because it is full, say), or if the user may not run the command. When the
// store is made, INFO tells it whether the server has the commands. If a server refuses one, the store stops using it
// for a minute, and then tries it with one call: servers are upgraded, and fail over to others. Processes that use only
// scripts, including those of 0.1.0, can share the server.
//
// A call that failed may have taken effect. It is not sent again when the server was slow to answer. Durations are
// counted by the server's clock, in milliseconds, rounded up.
//
// A call returns when its context ends, even if the server is frozen or the client is connecting. The command may still
// be under way then. If it makes a claim, the store releases that claim when the answer comes. (A replay from the
// client's cache is looked up in the caller's goroutine, and may wait for a new connection.)
//
// Commands of concurrent callers are sent together, up to 32 in one write. A goroutine lets all others run that are ready,
// and then sends what they have added. If there are none, it sends at once. Nobody gets an answer before all have
// theirs. On a cluster each caller's commands are sent alone, so that nobody waits for another caller's node. With
// [Config].WaitForReplicas one batch of any size is under way at a time. A hook of the client, for tracing say, sees
// commands sent together as one DoMulti, with the context values of the first caller.
//
// With 64 goroutines on the server's own machine, operations and replays run 1.4 times as fast as with a bare client
// that sends the same commands, because that makes a write for nearly every command. They run about as fast as plain
// SET NX and SET, or GET, which compare no owner. See BenchmarkRedisPeer in benchmarks.
//
// # Keys and records
//
// A record is one string under exactly the engine's key. No other keys are used, so a cluster
// needs no hash tags. The string is
//
//	<state><attempt>;<retention>;<length>;<owner><fingerprint><about><result>
//
// State is R for running, W for running and watched by waiters, A for abandoned by Abandon or
// Release, D for done. Attempt, the retention in ms (under D that of the result), and the
// fingerprint's length are decimal numbers. A length with a leading 0 says that A is free, not
// abandoned; and that R or W was free before. A '+' before the retention of D says that the record outlives its result: the
// result is kept while the time to live exceeds the number. Only R and W have the owner, 16 bytes. In the place of the result,
// which only D has, the others have the finished steps of the operation, if there are any, which begin with the number of their
// checkpoint, 8 bytes.
//
// An attempt with a leading 0 says that the record describes its operation. Then about is, in this order: '@', or, if
// the record is free (or was) and has kept its operation, 'A' if an earlier run may have taken effect and otherwise
// 'B'; the operation's id, 16 bytes; when it began, in ms since 1970 by the clock of the process that claimed it, 8
// bytes; then the policy, the creator, the remark, and the name of the secret, each after a byte with its length.
// Claims without an About (those of nonces) make records without one.
//
// No point in time decides anything: the key itself expires. Its time to live is the lease plus the
// retention. The lease is valid while the time to live exceeds the retention.
//
// Redis can't let a part of a value expire. A result that its record has outlived is no longer handed out. The first
// claim of the key after that removes it; otherwise it goes with the record. So with RefuseExpired, plan memory for
// results for the whole time for which keys are remembered.
//
// A record takes some 200 bytes besides its key and its result. That includes the server's index
// of keys and expiries, and a fingerprint of 32 bytes (Redis 7.0; TestMemoryPerRecord).
//
// # Memory
//
// The server must not drop records that have not expired: set maxmemory-policy to noeviction. The store reports any
// other policy once, when it is made; see [Config].Warn. Under noeviction, a full server refuses new records, results
// and steps with store.ErrFull. It still renews, releases, abandons, takes over, and completes without a result.
//
// # Waiting
//
// The store can be watched (store.Capabilities). All waiters of a store share one subscription to the channel
// idem:wake, on a connection of its own, which is made for the first waiter and stays until Close. (Calls use other
// connections, because Redis closes a subscribed one whose unsent answers exceed its client-output-buffer-limit for
// pubsub.) A run that has waiters is marked, and its key is published when it ends. Other runs publish nothing. When
// the subscription breaks, all waiters are woken, and those that go on waiting make a new one. A failover may lose
// messages. The engine therefore looks again after about one second, then two, then every four.
//
// # Looking inside
//
// The store has an inspector (store.Capabilities). A look and a change are one script each. A list is a SCAN of each
// master, a page at a time, which blocks no other client. It goes through all keys of the server, including those of
// others. With a Query.Match, to find a key by its digest, for example, it reads only keys until one matches. There is
// no index: it would cost each first request a write, and on a cluster more than one slot.
//
// # Client-side caching
//
// With [Config].ClientSideCache, the first replay of a key in a process comes from the server. The second fetches the
// record into the client's cache. Later ones come from there, in 1 µs instead of 10 (BenchmarkRedisPeer). That helps if
// one process replays the same key many times, to a client that polls, for example. It costs memory:
// ClientOption.CacheSizeEachConn, 128 MiB for each connection by default. First requests and other replays cost the
// same as without it.
//
// It is safe because a finished record does not change until the retention of its result ends. But when a record is
// deleted (DEL, FLUSHALL) or lost in a failover, a process may still replay it until the server's message arrives,
// until the client notices that its connection has broken, or at most for the option's ttl. Client-side caching needs
// RESP3 and a client without DisableCache. Without them it switches itself off. The remaining retention of a cached
// replay is counted by the process's clock, from the first replay.
//
// # Permissions
//
// A user of Redis's access control lists needs, for the engines of a service:
//
//	~idem:<service>:* &idem:wake +eval +evalsha +get +set +del +pexpire +pttl +getrange +setrange
//	+publish +subscribe +unsubscribe +ping +info +script|load
//
// It also needs
//
//   - +delifeq on Valkey 9 and +delex on Redis 8.4 and later. Without it the script releases, and one refused command a minute adds an
//     entry to ACL LOG;
//   - +scan and +strlen for an inspector's lists;
//   - +select for a database other than 0;
//   - +client for the handshake of a client that caches, as rueidis.NewClient makes one unless
//     DisableCache is set;
//   - +client, +multi and +exec for [Config].ClientSideCache;
//   - +wait for [Config].WaitForReplicas;
//   - +cluster, or +sentinel and +role, for a cluster or Sentinel.
//
// Without the channel, waiters poll. Without INFO, the maxmemory-policy is not checked, and the store learns only after
// a minute whether the server compares by itself. Without SCRIPT LOAD, the first call of each script sends it. But
// under FIPS 140 (GODEBUG=fips140=only) the server computes the digests, and SCRIPT LOAD is needed.
//
// When the store is made, it reports commands that the user may not run; see [Config].Warn. It asks ACL DRYRUN (Redis
// 7.0). If the user may not call that, the store runs each command on a key idem:<random> that does not exist; each
// refused command then adds an entry to ACL LOG at each start. The store does not check which keys and channels the
// user may access.
//
// # What can be lost
//
// Redis acknowledges a write before its replicas have it. A failover (Sentinel, a cluster) may lose the last claims and
// results. A duplicate of an operation whose record is lost runs again. The same applies after a restart of a server
// without persistence.
//
//   - With appendonly yes, a restart loses at most the last second; with appendfsync always
//     as well, nothing that was acknowledged.
//   - With min-replicas-to-write 1 and min-replicas-max-lag, a master without replicas refuses
//     writes: it acknowledges fewer writes that will be lost. One that is cut off continues for the lag, 10 s by default.
//   - With [Config].WaitForReplicas, a claim, renewal or result that fewer than n replicas have acknowledged is an error.
//     In all failovers of TestRedisLosesAcknowledgedRecordsAtFailover nothing was lost with it, and in many without it.
//
// Config.WaitForReplicas does not make Redis consistent. WAIT does not decide which replica is elected: with several,
// it may be one that has not acknowledged, unless n is the number of all. Replicas acknowledge what is in their memory,
// not on a disk. A call that only reads does not fail for lack of replicas: a replay may be of a result whose Complete
// has failed, and which a failover still loses.
//
// WaitForReplicas costs a round trip between the servers for each call, including replays, because the answers to a
// batch come when the replicas have all of it. Commands that arrive meanwhile wait for the next batch. With a replica
// on the same machine an operation takes 0.31 ms instead of 0.18, and 64 goroutines make 25,000 a second instead of
// 34,000. With 2 ms to the replica and back, it takes 5 ms, and they make 5,500. (BenchmarkWaitingForAReplica measures
// it.) WAIT also holds up everything else that a shared client sends on its connection, so give the store a client of
// its own. While replicas are missing, each call takes the limit or twice that; only what the store has in its client's
// cache is replayed at once.
//
// If that is not acceptable, use package sqlstore.
//
// # Clients
//
// The store needs little of a client: [Client] is an interface of four methods, and its documentation says what each
// must guarantee. [New] adapts a client of rueidis, and [NewWithClient] takes any Client. The modules goredisidem and
// valkeyidem adapt clients of go-redis and valkey-go. One suite tests all three: lost answers, ends of subscriptions,
// moving slots, failovers, and the suite of stores on each kind of server.
//
// If you make the client of rueidis, or of valkey-go, yourself, some of its settings matter.
//
//   - PipelineMultiplex: with -1, which [NewURL] sets, there is one connection to each server,
//     and calls arrive in order. By default, the Release after an Acquire that timed out may
//     overtake it.
//   - ConnLifetime: rueidis sends a command again if the server was silent for a second when
//     the connection's life ended. An Acquire may then find the claim that it has just made
//     itself, and the operation is refused as in progress until the lease passes.
//   - Standalone.EnableRedirect: the same may happen to a claim that a server made just before
//     it became a replica. Each caller's commands are sent alone, unless the client is wrapped in another
//     one (for tracing, say). Then commands that were sent together are sent again together, and a Complete, Release or
//     Abandon that took effect may be reported as lost.
//   - SendToReplicas: it must send the store's commands to masters.
//   - ConnWriteTimeout (10 s by default; 3 s with [NewURL]): how long a silent connection is
//     kept, and how long the answers to commands sent together, up to 32, may take.
//
// Other settings cost processor time. The table shows the time of client and server together, with 64 goroutines; one
// connection (PipelineMultiplex -1) is 1. Differences below a tenth are left out.
//
//	setting                                             sent together      sent alone, as on a cluster
//	PipelineMultiplex 2: four connections               1.2, the default   1.4
//	PipelineMultiplex 4: sixteen connections            1.4                1.5 to 1.9
//	MaxFlushDelay 20 µs                                 1.1 to 1.2         0.8 to 0.9
//	DisableCache, AlwaysPipelining, RingScaleEachConn   1                  1
//
// A cluster's client has one connection to each node by default. With four goroutines, only MaxFlushDelay
// makes a difference, where commands are sent alone: 1.2 to 1.3.
package redisstore
