// Package core makes an operation happen once. It derives a key, claims it in a store, runs the
// handler under a lease, and replays, waits or refuses when the same operation is requested again.
// It knows no web framework, no driver and no broker. Adapters
// ([github.com/idem-go/idem/httpidem], ginidem, echoidem, echo5idem, fiberidem, fiber3idem) translate for it.
//
//	engine, err := core.New(core.Config{User: core.UserFromHeader("X-User")})
//	if err != nil {
//		return err
//	}
//	orders := engine.MustGuard(core.Policy{Key: core.Params(), Duplicate: core.Replay()})
//	router.POST("/orders", ginidem.New(orders), createOrder)
//
// What is not HTTP (messages, cron jobs, RPC) is a [Task], which [Do] runs.
//
// These are for adapters, applications need none of them: [Exchange], [Capture], [Ending], [Deferrer], [Pending],
// [Finisher], [Stream], [PartSent], [MayStream], [ErrBodyTooLarge], [ErrBodyConsumed], [Guard.Serve], [Guard.ServeToken],
// [Guard.MustUseTokens], [UserFromValue].
//
// # Words
//
//   - operation: what must happen once. It is one user, one route, and one set of parameters or one
//     key that the client has chosen.
//   - policy ([Policy]): how a route is protected. An engine ([Engine]) holds the store and the hooks.
//     A guard ([Guard]) is a policy compiled by an engine; adapters mount it.
//   - key ([Key]): the identity of an operation, as stored.
//   - fingerprint: a digest of the parameters, stored beside a key that the client has chosen. It tells
//     a retry from a reuse of the key.
//   - record: what the store keeps for a key. It is running, done, abandoned (begun, and not
//     finished when its lease passed), or free: nobody runs, and nothing is uncertain.
//   - claim: the right to run an operation. Its owner is a random token.
//   - attempt: the number of a run, from 1. It is one higher at each takeover and at each claim of a
//     free record, so that it serves as a fencing token: other systems can refuse a number lower than
//     one they have seen.
//   - takeover: a claim of an abandoned record.
//   - lease: how long a claim stands without renewal (seconds).
//   - retention: how long a finished result stands (minutes, hours).
//   - run ([Run]): one execution of the handler, under one claim. When the handler has returned, the run
//     is settled: its record is completed, released or abandoned.
//   - duplicate: a request for an operation that has a record.
//   - waiter: a duplicate that waits for a run to finish ([Wait]).
//   - replay: the first response, given to a duplicate.
//   - refusal ([Refusal]): an answer without a run and without a stored response.
//   - verified caller: the sender that a middleware in front has authenticated ([WithCaller]).
//
// # Flow
//
//	request -> key and fingerprint -> Store.Acquire
//	              |acquired                       |a record stands
//	          handler runs, lease is renewed   replay | wait | refuse
//	              |
//	          Store.Complete, Release or Abandon -> answer is sent
//
// The answer is sent after the run is settled (up to [Policy.ResponseLimit]): a client that has its
// answer and sends the request again gets the replay.
//
// A success is kept and a failure is released. A handler can decide otherwise about its own run: see
// [Disposition], [Run.Keep] and [Policy.Failed]. A panic is a failure, and goes on to the middleware that
// recovers it. What the handler had written is dropped. If a part of it has been sent already, the
// run is abandoned.
//
// A run goes on when its client leaves, so that the result is there for the retry. Its context has the
// request's values and deadline, and stands for [Policy.Linger] longer than the client stays. It ends with
// the run, when the lease is lost ([ErrLeaseLost]), and at a shutdown
// ([Engine.Drain], [ErrShutdown]). A handler that then returns without writing anything has failed.
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
//
// The prefix is idem:<service>: with [Config.Service], which every store needs that other processes can reach. Without
// a service it is idem:, in a store of the process only. [Config.LegacyPrefix] keeps another one.
//
// In each part everything but letters, digits and -._~/:@,+*!$&'(); is percent-escaped, so that
// no part can read as another, and a key can be typed into a store's shell. The route is the
// pattern, with :name for a parameter and * for the rest; the values of its parameters are in the
// digest. The route has no host unless its pattern names one. A service that serves tenants by host
// makes [Request.Host] a part of the user.
//
// A user that may be a credential, or has more than 64 bytes, is a '#' and a SHA-256 digest. A
// user from a later source of [FirstUser] has the source's place and a '#' in front. The subject
// of a token that names its issuer is iss#<issuer>%20<subject>, the issuer query-escaped once more.
//
// A verified caller ([WithCaller]; the adapters' Verify sets it for signed requests) is
// caller#<caller>. With a user that [Config.User] finds as well, it is
// caller&<place>#<caller>%20<user>, the caller query-escaped once more. No other source has such a
// mark, so that no other user reads as a verified caller.
//
// The digest is MD5 or SHA-256 ([Policy.Digest]), in lower-case hexadecimal, of a text. The text
// has these parts in this order, joined by line feeds. An absent part leaves no line.
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
//     '&'. A name or value with a bad escape is "%!" and its raw text, escaped. The fields of a form,
//     urlencoded or multipart, have body: in front of their names: a parameter of the query is never
//     a field of the form.
//   - The rest of a path that a wildcard stands for is decoded only where this can't make another path of it: /files/a%2Fb is
//     not /files/a/b, but it is /files/%61%2fb. See [Request].PathParams.
//   - A file is the pair body:name=@<digest of its content>;<file name>. See
//     [WithoutFiles] and [WithoutFileNames]. The boundary does not count.
//   - JSON is the text of RFC 8785, with numbers as exact decimals of any size: two different
//     numbers stay different, and a string is not a number.
//   - The header fields are those of preconditions and ranges (RFC 9110: If-Match, If-None-Match,
//     If-Modified-Since, If-Unmodified-Since, If-Range, Range, Content-Range) and
//     [RequestHeaders]: name:value, the name in lower case, the value without the blanks
//     around it, sorted by name.
//   - The media type has no line if there is none, or if it is application/json,
//     application/x-www-form-urlencoded or multipart; its parameters do not count, not even charset.
//   - Every other body is its raw bytes: another type, malformed JSON, a member name twice, more
//     than 64 levels, a Content-Encoding. So a client that sent JSON as text/plain and got 415 does
//     not get 415 again after it corrects the type.
//   - A body whose reader a middleware in front has replaced counts as what it yields, whatever
//     Content-Encoding names: JSON that Echo's Decompress has decoded is JSON, the same as if it had been sent so. What only
//     limits or watches the server's reader (http.MaxBytesReader, Echo's BodyLimit, otelhttp) replaces nothing. Behind
//     other wrappers compressed JSON is malformed JSON, so that it counts by its raw bytes all the same.
//     On Fiber a body can't be seen to be replaced: Content-Encoding counts.
//
// [Exclude] says what does not count. Under [Fields] only the values at its paths count, and the path
// parameters, the header fields and the media type. The fingerprint beside a key that the client has
// chosen is the same digest, of all parameters but those that the policy excludes and those that a
// verifier has consumed.
//
// A token names its user and its purpose by itself, see [Tokens]. Method and route are not in its key,
// but in its fingerprint: a token that was used on one route is refused on another.
//
// # What it cannot know
//
// Whether a run that never came back took effect. A process that dies between the operation
// and [store.Store.Complete] leaves a record whose lease passes. Then [Record].Abandoned decides
// between a takeover and [Uncertain]. [Run.Attempt] is a fencing token.
//
// Whether a handler obeys its context. A handler that ignores the end of its context goes on, although
// its lease is lost or its client was told that it had not finished. So does a handler behind a timeout
// middleware that answers in its place.
//
// What a middleware in front has taken away. A body that was read before is put together again from what
// was parsed of it, or refused ([CodeBodyConsumed]). But on net/http, Gin and Echo a body of unknown length (in chunks, or over
// HTTP/2) that was read in part looks like a shorter one, and one without a Content-Type that was read to its end like none: to
// the guard, all such requests of a user are one operation. The adapters' Finish, further out than such a middleware, tells.
//
// # Decisions that may surprise
//
// A setting that has no effect in its policy, or contradicts another one, is a fault of
// [Engine.Guard] and [Engine.Task].
//
// Under keys made of parameters, and under tokens, every answer of 400 and above is a failure. A success
// under keys made of parameters stands for a minute, unless it is that of a PUT or DELETE. The caller can't
// choose another key: after "balance too low" and a top-up the same form must run, and tomorrow's order may
// be the same as today's.
//
// Every policy for HTTP needs a user source, also with a client key: two customers do choose
// "order-1", and neither may get the other's receipt. This also holds where all requests are signed:
// [UserFromCaller] then is the source, and refuses a request that has bypassed the verification.
//
// A verified caller is the user even if Config.User is [SharedByAllCallers] or an address: two callers
// are two customers, and one customer has many addresses. A policy that names a source of its own gets
// that source and nothing else.
//
// Lease and retention do not bound each other. A crash blocks the operation for the lease, even if a
// result would stand for less. A claim of [DoubleClick] is renewed like any other, so that a second click
// does not run beside a first that takes longer than the window.
//
// An abandoned run is remembered for 24 hours ([Record].RememberAbandoned), whatever the retention. For
// that time an uncertain operation stays uncertain, and the next attempt has the next number. When a
// run that took over fails and is released, its record stays as an abandoned one, for the same reason. When
// it succeeds and is released, only the number is kept, for as long: the record is free, and the next run is
// no takeover.
//
// Under keys made of parameters a PUT or DELETE that succeeds is released ([Record].OnSuccess): set to 1, to 2 and
// back to 1 is three operations. Its result is handed to those who wait in the process, and so it is never written
// to the store: whoever arrives later must not find it.
//
// Every panic of a handler is a failure, also http.ErrAbortHandler, with which a reverse proxy ends a
// response when its client has gone.
//
// Work that goes on after the answer is not protected: the run's context has ended. Only a run that
// answers with a stream goes on until the stream ends. It is tied to its client: when the client leaves,
// the run ends and is abandoned. But what a handler flushes for the first time after its client has left
// is no stream: a reverse proxy flushes every answer of unknown length, and the service behind it has
// done its work.
//
// A refusal is never kept, whoever made it. A response with [RefusedHeader], of an inner guard or of
// another service, is a failure of the run that passes it on.
//
// A request that meets the same guard twice, with one key, passes the second time: it is the same
// request, not a duplicate. If two guards or tasks of one engine claim one key within one run, the second
// refuses with [CodeGuardConflict]: it would wait for itself.
//
// An expired token is refused for a first use only. The claim tells whether the token was used before; a
// fresh claim is released at once, and refused. Its fingerprint is one of its own: if the store fails and the
// claim stays behind, it does not pass for a run that was begun. Another server whose clock is behind, and
// to which the token is still valid, finds the operation running until the lease passes. So does a
// renewed token, which has the id of the expired one ([Guard.NewToken]). A token that would
// outlive the record of its use is refused as well: it was issued with a longer lifetime, or by a clock that
// is far ahead.
//
// A claim that the store grants only after its lease has passed is not run, because another run may have
// begun. It is released, and the client gets store_unavailable (under [Policy].FailOpen the handler runs
// unprotected, as in every outage). A waiter goes on waiting.
//
// When a store has no room for a response, the record is kept without it: a duplicate gets 409
// result_unavailable, and the handler does not run again.
//
// When a store fails to complete, release or abandon a record, the call is tried again until the store's
// deadline ([Config.StoreTimeout]): a broken connection or a restarting store must not cost the result. The
// client waits for its answer that long, and then gets it all the same.
//
// The waiters for one operation in one process share their store calls: one of them calls for all. Each
// waiter has called once for itself before it waits, and calls once more for itself at its limit. So its
// limit, and a store that is down, mean the same as without the others. A failed call ends no other waiter's
// wait.
//
// In a store of the process a retry with the bytes of the first request is known by a keyed hash of them
// ([store.Recaller]): its fingerprint is not derived, and the store is not asked for a claim. The hash has
// everything that the fingerprint is derived from, and what is excluded, too. With other bytes the fingerprint tells.
//
// A nonce is one Acquire without a Complete: a claim whose lease is the nonce's time to live. It needs
// nothing from a store that operations do not need.
package core
