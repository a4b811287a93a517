// Package core runs an operation once. It derives a key, claims it in a store, runs the handler under a lease, and
// replays, waits or refuses when the same operation is requested again. It knows no web framework, no driver and no
// broker. Adapters ([github.com/idem-go/idem/httpidem], ginidem, echoidem, echo5idem, fiberidem, fiber3idem) translate for it.
//
//	engine, err := core.New(core.Config{User: core.UserFromHeader("X-User")})
//	if err != nil {
//		return err
//	}
//	orders := engine.MustGuard(core.Policy{Key: core.Params(), Duplicate: core.Replay()})
//	router.POST("/orders", ginidem.New(orders), createOrder)
//
// Operations that are not HTTP requests (messages, cron jobs, RPC) are the runs of a [Task], which [Do] runs.
//
// Package adapter has what adapters need, package codes the codes of refusals, and package store the contract of a store.
// [Guard.Serve] and [Guard.ServeTokens] are for adapters.
//
// # Words
//
//   - operation: what must happen once. It is identified by one user, one route, and either one set of parameters or
//     one key that the client has chosen.
//   - policy ([Policy]): how a route is protected. An engine ([Engine]) holds the store and the hooks.
//     A guard ([Guard]) is a policy compiled by an engine; adapters mount it.
//   - key ([Key]): the identity of an operation, as stored.
//   - fingerprint: a digest of the parameters. It is stored with a key that the client has chosen, and tells
//     a retry from a reuse of the key.
//   - record: what the store keeps for a key. It is running, done (a run has completed it: the operation
//     has finished), abandoned (a run began and had not finished when its lease passed), or free (nobody runs, and
//     any claim gets it).
//   - claim: the right to run an operation. Its owner is identified by 128 random bits.
//   - step ([Step]): a named part of a run. The record remembers what it returned, so that the next run of the operation
//     skips it.
//   - attempt: the number of a run, from 1. It increases by one on each takeover and on each claim of a
//     free record. So it serves as a fencing token: other systems can refuse a number lower than
//     one they have seen.
//   - takeover: a claim of an abandoned record.
//   - lease: how long a claim is valid without renewal (seconds).
//   - retention: how long a finished result is kept (minutes, hours). A done record that outlives its result
//     ([Policy].RefuseExpired) has expired.
//   - run ([Run]): one execution of the handler, under one claim. When the handler has returned, the run
//     is settled: its record is completed, released or abandoned.
//   - unsettled: a run that has ended and been answered, but whose record the store has not taken yet
//     ([Unsettled]). Its engine holds the result in memory.
//   - late settlement: settling an unsettled run.
//   - duplicate: a request for an operation that has a record.
//   - waiter: a duplicate that waits for a run to finish ([Wait]).
//   - replay: the first response, given to a duplicate.
//   - refusal ([Refusal]): an answer without a run and without a stored response.
//   - outside, inside: middleware outside the guard sees the request before the guard, and the answer after it.
//     The handler is inside the guard.
//   - verified caller: the sender that an outer middleware has authenticated ([WithCaller]).
//
// # Flow
//
//	request -> key and fingerprint -> Store.Acquire
//	              |acquired                       |a record is there
//	          handler runs, lease is renewed   replay | wait | refuse
//	              |
//	          Store.Complete, Release or Abandon -> answer is sent
//
// A response of up to [Policy.ResponseLimit] is sent after the run is settled. A client that has its
// answer and sends the request again therefore gets the replay.
//
// If the store does not take the record within [Config.StoreTimeout], the answer is sent anyway, and the run is
// unsettled. The engine renews the lease and tries again until the store has taken the record or says that the claim is
// lost. Meanwhile the engine answers its duplicates from the result. A record to be released or abandoned has no result:
// its duplicates get [codes.InProgress] until it is settled or the lease has passed. If the store takes
// renewals, three at least and for ten times the StoreTimeout, but refuses the result, the record is completed without the result
// (if the result only times out, after a hundred times the StoreTimeout). The engine gives up
// ([RunUnfinished]) when the context of [Engine.Drain] ends, and [Record].RememberAbandoned after the run's end. It gives up
// at once a run that does not fit into [Config.UnsettledLimit].
//
// A success is kept and a failure is released. A run that has used [Run.Derive] or [Step], and fails in a way that makes another
// try sensible, leaves a free record, with which the next run continues. A handler can decide otherwise about its own run: see
// [Disposition], [Run.Keep] and [Policy.Failed]. A panic is a failure. It passes on to the middleware that recovers it, and
// the guard drops what the handler had written. If part of that has been sent already, the run is abandoned.
//
// A run continues when its client leaves, so that the result is there for the retry. The run's context has the
// request's values and deadline, and stays valid for [Policy.Linger] after the client has left. It ends with
// the run, when the lease is lost ([ErrLeaseLost]), and at a shutdown
// ([Engine.Drain], [ErrShutdown]). A handler that then returns without writing anything has failed.
//
// # What it cannot know
//
// idem cannot know whether a run that never finished took effect. A process that dies between the operation
// and [store.Store.Complete] leaves a record whose lease passes. Then [Record].Abandoned decides
// between a takeover and [Uncertain]. [Run.Attempt] is a fencing token.
//
// idem cannot know what another process holds. The result of an unsettled run is in the memory of one engine. Elsewhere
// duplicates get [codes.InProgress] until the lease has passed. Then [Record].Abandoned decides, and the operation may run again.
// A claim that the store was asked for before the run ended may also run again, even in the same process. If the process dies, that
// is a crash like any other.
//
// idem cannot make a handler obey its context. A handler that ignores the end of its context keeps running, although
// its lease is lost or its client was told that it had not finished. So does a handler inside a timeout
// middleware that answers in its place.
//
// idem cannot always see what an outer middleware has taken away. A body that was read before is rebuilt from what
// was parsed of it, or refused ([codes.BodyConsumed]). But on net/http, Gin and Echo there are two exceptions. If outer middleware has
// read part of a body of unknown length (in chunks, or over HTTP/2), the guard sees only the rest. A fully read body of unknown length
// without a Content-Type looks empty: to the guard, all such requests of a user are one operation. To detect
// both, mount the adapter's Finish outside that middleware.
//
// # More
//
// docs/policies.md says how to choose a policy. docs/records.md says what a store shows, how to seal it, and has the format of keys and
// digests. docs/decisions.md has the decisions behind all this, and those that may surprise.
package core
