// Package benchmarks measures what this module costs, beside what it is to be compared with
// in the same run: bare frameworks, the idempotency middleware of Fiber v2 and v3, the bare Redis
// client, digests alone. It is a module of its own, so that nobody who uses the
// other one downloads what is only needed here.
//
// Fiber v3 requires a newer fasthttp than Fiber v2 does, and raises it for both: here Fiber v2 runs
// on fasthttp 1.69, not on the 1.51 that its own go.mod names.
//
//	cd benchmarks && go test -run '^$' -bench . -benchmem .
//
// Each benchmark checks that its workload is what it claims to be (that first requests ran
// the handler, that replays did not and said so, that refusals had their code, how many
// records were left), and then times. Compare the rows of one run: what a guard adds is the
// difference to "bare".
//
// Redis and PostgreSQL must be reachable (scripts/backends starts them), and redis-server
// installed, or the rows that need them are skipped; with IDEM_REQUIRE_BACKENDS=1 they fail.
// The store of five million records takes 3 GB; -short leaves it out.
//
// # Names
//
// The names are the axes of the tables, and cmd/report reads them. In <> stands one of the
// words that follow.
//
//	Matrix/<framework>/bare/none
//	Matrix/<framework>/<variant>/<store>
//	    framework  gin, echo (v4), echo5, fiber (v2), fiber3, nethttp
//	    variant    client-key-first       201, the handler runs, with an Idempotency-Key
//	               parameter-key-first    the same, without: the key is made of the body
//	               replay                 201 from the store, with an Idempotency-Key
//	               parameter-key-replay   the same, without
//	               conflict               409 in_progress: a duplicate while the first one runs
//	               key-reused             422: the Idempotency-Key came with another body before
//	    store      memory, redis, sqlite, postgres; but for gin, the latter three have
//	               client-key-first and replay only
//	FiberPeer/<way>, Fiber3Peer/<way>     on Fiber v2 and v3
//	    way        bare, own-first, own-replay (Fiber's middleware, with its storage in memory),
//	               ours-first, ours-replay (client key, memory),
//	               ours-unchecked-first, ours-unchecked-replay (the same without the fingerprint
//	               of the parameters, which Fiber's does not have)
//	RedisPeer/<what>/<way>                of 64 goroutines; round-trips/op
//	    what       operation (Acquire and Complete), replay
//	    way        commands (SET NX and SET, or GET), scripts (what the store sends, by the bare client),
//	               store; replay also has cached (the store with its client-side cache)
//	RedisClients/<what>/<client>          of 64 goroutines, on a Valkey that compares by itself
//	    what       first (Acquire and Complete), replay
//	    client     rueidis, valkey-go, go-redis: the store on it; rueidis-bare (SET NX and SET, or GET),
//	               go-redis-bare (what the store sends)
//	Keys/<kind>/<size>/<way>              MB/s
//	    kind       json, form, multipart, binary
//	    size       200B, 4KiB, 64KiB, 1MiB, exactly
//	    way        key (Guard.Key), md5 (of the same bytes); json also has
//	               jsontext (Canonicalize) and jsontext-md5
//	Body/<framework>/<kind>/<size>/<way>  of a request whose handler reads the whole body; MB/s
//	    kind       json, binary
//	    size       200B, 1MiB, exactly; binary also has 1MiB-chunked (without a
//	               Content-Length), and for fiber and fiber3 1MiB-streamed (StreamRequestBody)
//	    way        bare, guarded (the key is made of the body)
//	Body/none/<kind>/<size>/<way>         md5 (of the same bytes), read-md5 (the same, after
//	                                      they were read into memory of their own)
//	Sign/<scheme>
//	    scheme     v1, v1-ed25519, rfc9421-hmac, rfc9421-ed25519, webhooks,
//	               sorted-query, sorted-form, sorted-json (by where the parameters
//	               stand); floor (the two hashes of v1 alone)
//	Token/issue/<by>                      a one-shot token; by core, or by the handler of nethttp
//	Token/<way>/<what>                    net/http, memory
//	    way        client-key, header (a token there), with the JSON body; client-key-form, form (a
//	               token in it), with a form of 200 bytes
//	    what       first (checked, and the handler runs), replay (checked, and 201 from the store)
//	Memstore/<records>/<what>
//	    records    1k, 100k, 1M, 5M live records
//	    what       operation (Acquire and Complete; B/record, beside key and result),
//	               acquire (p50-ns, p99-ns, p99.9-ns, max-ns, max-cpu-ns),
//	               expiry (the same, while all records are expired and being removed)
//	Memstore/none/clock                   what measuring single calls costs
//	Do                                    an operation that is not HTTP, memory
//	Client/<way>                          a RoundTrip of 200 bytes without a network; tcp-… over TCP
//	    way        bare, passed (to a host that is not guarded), safe (a GET), keyed, keyed-without-limit
//	               (TryTimeout), keyed-buffered (a body without GetBody), tcp-bare, tcp-keyed
//	Query/gin/bare/none                   a handler that asks PostgreSQL SELECT pg_sleep(0.001)
//	Query/gin/client-key-first/<store>    the same with a guard
//	Load/<framework>/<way>/<loop>/connections=<n>/<again>=<percent>    over TCP; req/s, p50-ns, p99-ns,
//	                                      p99.9-ns, service-cpu-ns of a request, and how many cores service and
//	                                      client keep busy; a service has half of them
//	    way        bare (without a guard), memory, redis; own (Fiber's middleware); redis2 (two processes
//	               on one Redis)
//	    loop       closed (each connection sends when it has its answer), open (requests are due
//	               at half of that rate, due/s, and latency counts from then)
//	    n          64, 1024 connections, each opened once, before anything is timed, and kept
//	    again      replays (requests for an operation that has been answered), duplicates (for one that
//	               may be running)
//	Wait/<store>/<waiters>                the end of a run for which 1, 100 or 10000 duplicates wait;
//	                                      acquires/op, watches/op, on redis also round-trips/op, sent-B/op
//	    store      memory, redis
//
// Every framework of the matrix serves the same workload, one request after the other: a JSON
// body of 200 bytes, answered with 201 and a small JSON body, into a writer that keeps
// nothing, without a network.
//
// BenchmarkConsumer, for a consumer of messages, is in amqpidem, so that this module does not require its
// client; cmd/report runs it, too.
package benchmarks
