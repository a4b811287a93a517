// Package core makes an operation happen once: it derives a key, claims it in a store,
// runs the handler under a lease, and replays, waits or refuses when the same operation
// is asked for again. It knows no web framework, no driver and no broker; adapters
// ([github.com/idem-go/idem/httpidem], ginidem, echoidem, fiberidem) translate for it.
//
//	engine, err := core.New(core.Config{User: core.UserFromHeader("X-User")})
//	if err != nil {
//		return err
//	}
//	orders := engine.MustGuard(core.Policy{Key: core.Params(), Duplicate: core.Replay})
//	router.POST("/orders", ginidem.New(orders), createOrder)
//
// What is not HTTP (messages, cron jobs, RPC) is a [Task], which [Do] runs.
//
// # Words
//
//   - An operation is what must happen once: one user, one route, and one set of parameters
//     or one key that the client has chosen.
//   - A [Policy] says how a route is protected. An [Engine] holds the store and the hooks. A
//     [Guard] is a policy compiled by an engine: what an adapter mounts.
//   - The key is the identity of an operation, as stored. The fingerprint is a digest of the
//     parameters, kept beside a key that somebody has chosen, to tell a retry from a reuse.
//   - A claim is the right to run. Its owner is a random token, its attempt a number that
//     is one higher at each takeover.
//   - The lease is how long a claim stands without renewal (seconds). The retention is how
//     long a finished result stands (minutes, hours).
//   - A record is what the store keeps for a key: running, done, or abandoned (begun, and
//     not finished when its lease passed).
//   - A replay answers a duplicate with the first response. A refusal ([Refusal]) answers it
//     without running the handler and without a stored response.
//
// # Flow
//
//	request -> key and fingerprint -> Store.Acquire
//	              |acquired                       |something stands
//	          handler runs, lease is renewed   replay | wait | refuse
//	              |
//	          Store.Complete, Release or Abandon -> answer goes out
//
// The answer goes out after the record is settled (up to [Policy.ResponseLimit]), so that a
// client which has its answer and asks again gets the replay.
//
// A success is kept, a failure is released, and a handler can decide otherwise about its own
// run: see [Disposition], [Run.Keep] and [Policy.Failed]. A panic is a failure and goes on to
// whoever recovers it; what the handler had written is dropped, unless it has left already. Then
// the run is abandoned, for the client has a part of an answer.
//
// What has been begun is finished. A run's context has the request's values and deadline, but
// when the client leaves it stands for [Policy.Linger] longer; the result is there for the
// retry. It ends with the run, when the lease is lost ([ErrLeaseLost]), and at a shutdown
// ([Engine.Drain], [ErrShutdown]). A handler that gives up then and writes nothing has failed.
//
// # Keys
//
// A stored key is one of
//
//	<prefix>U=<user>M=<method>%20<route>P=<digest of the parameters>    Params, Fields
//	<prefix>U=<user>M=<method>%20<route>K=<key>                         Header, Func, CallerEvent
//	<prefix>U=M=<name of the policy>T=<id of the token>                 Token
//	<prefix>U=<user>M=DO%20<name of the policy>K=<key>                  Do
//	<prefix>N=<key id>#<nonce>                                          Nonces
//	<prefix>L=<name>#<digest of the key>                                redisstore.NewLimiter
//
// In each part everything but letters, digits and -._~/:@,+*!$&'(); is percent-escaped, so that
// no part can read as another, and a key can be typed into a store's shell. The route is the
// pattern, with :name for a parameter and * for the rest; the values of its parameters are in the
// digest. Only a pattern that names a host has one. Where a service serves tenants by host, make
// [Request.Host] a part of the user.
//
// A user who may be a credential, or has more than 64 bytes, is a '#' and a SHA-256 digest. A
// user from a later source of [FirstUser] has the source's place and a '#' in front. The subject
// of a token that names its issuer is iss#<issuer>%20<subject>, the issuer query-escaped once more.
//
// A caller whom a middleware in front has authenticated ([WithCaller]; the adapters' Verify does
// so for signed requests) is caller#<caller>. With a user whom [Config.User] finds as well, it is
// caller&<place>#<caller>%20<user>, the caller query-escaped once more. No other source has such a
// mark: nobody can pass for a verified caller.
//
// The digest is MD5 or SHA-256 ([Policy.Digest]), in lower-case hexadecimal, of a text. The text
// has these parts in this order, joined by line feeds. What is absent leaves nothing.
//
//	a=1&body:b=2           pairs: path parameters, query, form
//	{"c":3}                a JSON body
//	if-match:"v1"          a line for each header field that counts
//	type:image/png         the media type
//	0x00 and raw bytes     every other body
//
// So for a flat JSON object alone it is the digest of the object with its members sorted.
//
//   - Pairs are name=value, both query-escaped, sorted by name, repeats in their order, joined by
//     '&'. What has a bad escape is "%!" and its raw text, escaped. The fields of a form,
//     urlencoded or multipart, have body: in front of their names: what came by query is never
//     what came by form.
//   - A file is the pair body:name=@<digest of its content>;<file name>. See
//     [Policy.WithoutFiles] and [Policy.WithoutFileNames]. The boundary does not count.
//   - JSON is the text of RFC 8785, with numbers as exact decimals of any size: no two
//     different numbers are one, and a string is no number.
//   - The header fields are those of preconditions and ranges (RFC 9110: If-Match, If-None-Match,
//     If-Modified-Since, If-Unmodified-Since, If-Range, Range, Content-Range) and
//     [Policy.RequestHeaders]: name:value, the name in lower case, the value without the blanks
//     around it, sorted by name.
//   - The media type has no line if there is none, or if it is application/json,
//     application/x-www-form-urlencoded or multipart; its parameters do not count.
//   - Every other body is its raw bytes: another type, malformed JSON, a member name twice, more
//     than 64 levels, a Content-Encoding. So a client that has sent JSON as text/plain, and
//     got 415, does not get it again when the type is put right.
//
// See [Exclude] for what does not count. Under [Fields] only the values at its paths do, and the
// path parameters, the header fields and the media type. The fingerprint beside a key that
// somebody has chosen is the same digest, of all parameters but those that the policy excludes and
// those that a verifier has consumed.
//
// A token names its user and its purpose by itself, see [Tokens]. Method and route, which its key does
// not hold, are in its fingerprint: a token that was used on one route is no key of another.
//
// # What it cannot know
//
// Whether a run that never came back took effect. A process that dies between the operation
// and [store.Store.Complete] leaves a record whose lease passes; then [Policy.Abandoned] decides
// between taking over and [Uncertain]. [Run.Attempt] is a fencing token for systems that can
// refuse an old one.
//
// Whether a handler obeys its context. One that ignores its end goes on although its lease is
// lost, or its client was told that it had not finished. So does one behind a timeout
// middleware that answers in its place.
//
// What a middleware in front has taken away. A body that somebody has read is put together
// again from what was parsed of it, or refused ([CodeBodyConsumed]); but a chunked body that was
// read in part looks like a shorter one.
//
// # Decisions that may surprise
//
// A setting that has no effect in its policy, or contradicts another one, is a fault of
// [Engine.Guard] and [Engine.Task]. Who wrote it meant something else.
//
// Under keys made of parameters, and under tokens, every answer of 400 and above is a failure. A success under
// keys made of parameters stands for a minute. The caller can't choose another key: after "balance too low" and a top-up the
// same form must run, and tomorrow's order may be the same as today's.
//
// Every policy for HTTP needs a user source, also with a client key: two customers do
// choose "order-1", and neither may get the other's receipt. That also holds where all
// requests are signed: [UserFromCaller] says so, and refuses a request that has come past the
// verification.
//
// A verified caller is the user even if Config.User is [SharedByAllCallers] or an address: two
// callers are two customers, and one customer has many addresses. A policy that names its
// source itself gets that source and nothing else.
//
// Lease and retention do not bound each other. A crash blocks the operation for the lease,
// also if a result would stand for less; and a claim of [DoubleClick] is renewed like any other, so
// that a second click does not run beside a first that takes longer than the window.
//
// An abandoned run is remembered for 24 hours ([Policy.RememberAbandoned]), whatever the retention:
// for so long an uncertain operation stays uncertain, and the next attempt has the next number.
// When a run that took over is released, its record stays behind as an abandoned one, for
// the same reason.
//
// Every panic of a handler counts as a failure, also http.ErrAbortHandler, with which a
// reverse proxy ends a response whose client has gone.
//
// Work that goes on after the answer is not protected, and should not look as if it were: the
// run's context has ended. Only a run that answers with a stream goes on until the stream ends. It
// is tied to its client: when that leaves, the run is over, and abandoned. But what a handler
// flushes for the first time when its client has left already is no stream: a reverse proxy flushes
// every answer whose length it does not know, and what is behind it has done its work.
//
// A refusal is never kept, by whomever it was made: a response with [RefusedHeader], of a guard
// further in or of another service, is a failure of the run that passes it on.
//
// A request that meets the same guard twice on its way, with one key, passes the second time: it is
// the same request, not a duplicate. If two guards, or tasks, of one engine claim one key within
// one run, the second refuses with [CodeGuardConflict]: it would wait for itself.
//
// A token is too old for a first use only. Whether it was used before, the claim tells: a fresh one is
// released at once, and refused. It has a fingerprint of its own: should it stay behind, because the store is down
// when it is to be released, it does not pass for a run that was begun. Those in time, who may meet with it on a server
// whose clock is behind, find the operation running as long as its lease stands. What would outlive the record of its
// use is too old as well: it was issued with a longer lifetime, or by a clock that is far ahead.
//
// A claim that the store answers only when its lease has passed is not run: another run may have
// begun. It is released, and the client gets store_unavailable (under [Policy].FailOpen the handler
// runs unprotected, as in every outage); a duplicate that waits goes on.
//
// When a store has no room for a response, the record is kept without it: a duplicate
// gets 409 result_unavailable, and the handler does not run again.
//
// When a record can't be settled, that is tried again until the store's deadline
// ([Config.StoreTimeout]): a connection that breaks, or a store that restarts, must not cost the
// result. For so long the client waits for its answer, and then gets it all the same.
//
// The duplicates that wait for one operation in one process look at its record together: one
// of them does it for all. Each has asked for itself first, whether it may run, and asks for
// itself once more at its limit; so its own time, and a store that is down, mean for it what
// they would mean without the others. A look that fails ends nobody's wait.
//
// A nonce is one Acquire that nobody settles: a claim with its time to live for a lease. It
// needs nothing from a store that operations do not need.
package core
