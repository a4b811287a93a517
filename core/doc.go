// Package core makes an operation happen once: it derives keys, claims them in a store,
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
// # Words
//
// An operation is what must happen once: one user, one route, and one set of parameters
// or one key chosen by the client. A [Policy] says how a route is protected, an [Engine]
// holds the store and the hooks, a [Guard] is a policy compiled by an engine: what an
// adapter mounts. The key is the identity of an operation as stored, the fingerprint a
// digest of the parameters beside it. A claim is the right to run, held by a random owner
// token; each takeover has an attempt number one higher. The lease is how long a claim
// stands without renewal (seconds), the retention how long a finished result stands
// (hours).
//
// # Flow
//
// The flow stands in one place, the method once in engine.go:
//
//	request -> key and fingerprint -> Store.Acquire
//	              |acquired                       |something stands
//	          handler runs, lease is renewed   replay | wait | refuse
//	              |
//	          Store.Complete or Store.Release -> answer goes out
//
// The answer goes out after the record is settled (up to the response limit), so that a
// client which has its answer and asks again gets the replay.
//
// # Keys
//
// A stored key is
//
//	<prefix>U=<user>M=<method> <route>P=<digest of the parameters>
//
// with K=<client's key> in place of P= under [Header] and [Func]. In each part everything but
// letters, digits and -._~/:@,+*!$&'(); is percent-escaped, so that no part can read as
// another. A user who may be a credential or has more than 64 bytes is a '#' and a SHA-256
// digest; one from a later source of [FirstUser] has its place and a '#' in front. The keys
// of [Engine.Do] have no user, and DO and the policy's name for method and route.
//
// A caller whom a middleware in front has authenticated ([WithCaller]; the adapters' Verify
// does so for signed requests) is caller#<caller>; with a user whom [Config].User finds as
// well, it is caller&<place>#<caller>%20<user>, the caller query-escaped once more. No other
// source has such a mark, so that nobody can pass for a verified caller.
//
// [Nonces] has keys of its own, which no operation can have:
//
//	<prefix>N=<key id>#<nonce>
//
// The host is part of a key only if the route's pattern names one. Where one service serves
// tenants by host, make the host a part of the user.
//
// The canonical parameters are, for pairs (path parameters, query, form fields),
// name=value, query-escaped and sorted by name; for JSON, the text of RFC 8785 with
// numbers as exact decimals of any size; for anything else (malformed JSON, duplicate
// member names, more than 64 levels, any Content-Encoding) a zero byte and the raw bytes,
// so that no raw body reads as parameters or as JSON: who has sent JSON as text/plain, and
// got 415, must not get it again when the type is put right. See [Exclude] for what does not
// count.
//
// # What it cannot know
//
// Whether a run that never came back took effect: a process that dies between the
// operation and [Store.Complete] leaves a record whose lease passes, and then the policy
// decides between taking over and [Uncertain]. [Run.Attempt] is a fencing token for
// systems that can refuse an old one. A handler that ignores the end of its context goes
// on although its lease is lost.
//
// # Decisions that may surprise
//
// Every panic of a handler counts as a failure, whose next try runs. That is also true of
// http.ErrAbortHandler, with which a reverse proxy ends a response whose client has gone.
//
// When a run that took over fails and is released, its record stays behind as an abandoned
// one: fencing numbers never go back, and that an earlier run never finished is not
// forgotten.
//
// When a guard further in refuses a request, the guards around it forget theirs: the handler
// was not reached.
//
// Every policy for HTTP needs a user source, also with a client key: two customers do
// choose "order-1", and neither may get the other's receipt. That also holds where all
// requests are signed: [UserFromCaller] says so, and refuses a request that has come past the
// verification.
//
// A verified caller is the user even if Config.User is SharedByAllCallers or an address:
// two key ids are two customers, and one customer has many addresses. A policy that names its
// source itself gets that source and nothing else.
//
// A nonce is one Acquire that nobody settles: a claim with its time to live for a lease. It
// needs nothing from a store that operations do not need.
//
// A claim under [DoubleClick] is renewed like any other. The 45 seconds are how long it
// stands at least; a second click does not run beside a first that takes longer.
//
// The context of a run ends with the run, as that of a net/http request does. Work that
// goes on after the answer is not protected, and should not look as if it were. Only that
// of a run which answers with a stream goes on for as long as the request's own does.
//
// When a store has no room for a response, the record is kept without it: a duplicate
// gets 409 result_unavailable, and the handler does not run again.
//
// When a record can't be completed or released, that is tried again until the store's deadline
// ([Config].StoreTimeout): a connection that breaks, or a store that restarts, must not cost the
// result. For so long the client waits for its answer, and then gets it all the same.
// A duplicate that waits goes on waiting when a look at the record fails.
//
// The duplicates that wait for one operation in one process look at its record together: one
// of them does it for all. Each has asked for itself first, whether it may run, and asks for
// itself once more at its limit; so its own time, and a store that is down, mean for it what
// they would mean without the others.
//
// A request in which an outer guard has claimed the same key passes an inner one: it is
// the same request, not a duplicate.
package core
