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
// What adapters need is in package adapter, the codes of refusals are in package codes, the contract of a store is in package
// store. [Guard.Serve] and [Guard.ServeTokens] are for adapters.
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
//   - record: what the store keeps for a key. It is running, done (a run has completed it: the operation
//     has finished), abandoned (begun, and not finished when its lease passed), or free: nobody runs, and
//     any claim gets it.
//   - claim: the right to run an operation. Its owner is 128 random bits.
//   - step ([Step]): a named part of a run. What it returned is remembered in the record, so that the next run of the operation
//     skips it.
//   - attempt: the number of a run, from 1. It is one higher at each takeover and at each claim of a
//     free record, so that it serves as a fencing token: other systems can refuse a number lower than
//     one they have seen.
//   - takeover: a claim of an abandoned record.
//   - lease: how long a claim is valid without renewal (seconds).
//   - retention: how long a finished result is kept (minutes, hours). A done record that outlives its result
//     ([Policy].RefuseExpired) has expired.
//   - run ([Run]): one execution of the handler, under one claim. When the handler has returned, the run
//     is settled: its record is completed, released or abandoned.
//   - unsettled: a run that has ended and been answered, and whose record the store has not taken yet
//     ([Unsettled]). Its engine holds the result, in memory.
//   - late settlement: settling an unsettled run.
//   - duplicate: a request for an operation that has a record.
//   - waiter: a duplicate that waits for a run to finish ([Wait]).
//   - replay: the first response, given to a duplicate.
//   - refusal ([Refusal]): an answer without a run and without a stored response.
//   - outside, inside: an outer middleware has the request before the guard, and the answer after it;
//     the handler is inside the guard.
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
// The answer is sent after the run is settled (up to [Policy.ResponseLimit]): a client that has its
// answer and sends the request again gets the replay.
//
// If the store does not take the record within [Config.StoreTimeout], the answer is sent all the same, and the run is
// unsettled. The engine renews the lease and tries again until the store has taken the record, or says that the claim is
// lost. Meanwhile the duplicates that come to this engine are answered from the result. If the record is to be
// released or abandoned, there is none: they get [codes.InProgress] until that is done or the lease has passed. After
// three renewals without the result being taken, the record is completed without it. The engine gives up
// ([RunUnfinished]) when the context of [Engine.Drain] ends, and [Record].RememberAbandoned after the run's end. A run that
// does not fit into [Config.UnsettledLimit] is given up at once.
//
// A success is kept and a failure is released. (A run that has used [Run.Derive] or [Step], and fails so that another try makes
// sense, leaves a free record with which the next one goes on.) A handler can decide otherwise about its own run: see
// [Disposition], [Run.Keep] and [Policy.Failed]. A panic is a failure, and goes on to the middleware that recovers it. What the
// handler had written is dropped. If a part of it has been sent already, the run is abandoned.
//
// A run goes on when its client leaves, so that the result is there for the retry. Its context has the
// request's values and deadline, and is valid for [Policy.Linger] longer than the client stays. It ends with
// the run, when the lease is lost ([ErrLeaseLost]), and at a shutdown
// ([Engine.Drain], [ErrShutdown]). A handler that then returns without writing anything has failed.
//
// # What it cannot know
//
// Whether a run that never came back took effect. A process that dies between the operation
// and [store.Store.Complete] leaves a record whose lease passes. Then [Record].Abandoned decides
// between a takeover and [Uncertain]. [Run.Attempt] is a fencing token.
//
// What another process holds. The result of an unsettled run is in the memory of one engine. Elsewhere duplicates get
// [codes.InProgress] until the lease has passed, and then what [Record].Abandoned says: the operation may run again. So may, also
// in the same process, a claim that the store was asked for before the run ended. If the process dies, that is a crash like any other.
//
// Whether a handler obeys its context. A handler that ignores the end of its context goes on, although
// its lease is lost or its client was told that it had not finished. So does a handler inside a timeout
// middleware that answers in its place.
//
// What an outer middleware has taken away. A body that was read before is put together again from what
// was parsed of it, or refused ([codes.BodyConsumed]). But on net/http, Gin and Echo a body of unknown length (in chunks, or over
// HTTP/2) that was read in part looks like a shorter one, and one without a Content-Type that was read to its end like none: to
// the guard, all such requests of a user are one operation. The adapters' Finish, further out than such a middleware, tells.
//
// # More
//
// The format of keys and digests is in docs/keys.md, what a store shows, and how to seal it, in docs/sealing.md, what may surprise
// in docs/decisions/surprises.md, how to choose a policy in docs/policies.md.
package core
