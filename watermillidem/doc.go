// Package watermillidem is middleware for Watermill (github.com/ThreeDotsLabs/watermill) that runs a handler once for each
// message. It works with every broker that Watermill supports: Kafka, NATS, AMQP, SQL and the rest.
//
//	engine, err := core.New(core.Config{Service: "shop", Store: store}) // all consumers share the store
//	…
//	router.AddMiddleware(
//		middleware.Recoverer,
//		poison, // middleware.PoisonQueueWithFilter(publisher, "poison", watermillidem.Permanent)
//		watermillidem.MustNew(engine, watermillidem.Config{}),
//	)
//
// A message counts as done only after its handler has succeeded: a failed one runs again when the broker redelivers it.
// (Watermill's own Deduplicator marks a message before its handler runs, and drops the redelivery of a failed one.)
//
// # What is one operation
//
// The key is the consumer's name and the message's UUID. The consumer's name is [core.TaskPolicy].Name or, if that is empty, the
// name of the Router's handler. So the middleware can be mounted on a whole Router, and two handlers of one topic both run for
// each message. Set Name if several handlers are one consumer (competing consumers of one topic), or if the names of handlers
// differ between processes or releases.
//
// The fingerprint is the payload, and the metadata that [Config].Metadata names. A message with a known UUID and another payload
// is refused.
//
// # What happens to a message
//
//	first delivery                runs
//	duplicate, done               does not run; the messages of the first run are produced again; acknowledged
//	duplicate, running            held for Config.Pause, then a temporary error; with core.Wait it first waits for the run
//	handler's error, panic        released; the error is returned unchanged; the redelivery runs
//	begun, never finished         runs again, with Attempt 2 (core.RunFrom(msg.Context()))
//	 … with Abandoned: Uncertain  a permanent error: uncertain
//	UUID with another payload     a permanent error: key_reused
//	no UUID                       a permanent error: key_missing
//	store can't be reached        does not run; held for Config.Pause, then a temporary error
//	engine is drained             the same
//
// After an error the Router nacks the message, so nothing is lost. An error of this package is a [RefusedError]; errors.Is
// matches its [codes.Code]. After a [Temporary] error the redelivery runs, or is a duplicate of a done message. A [Permanent]
// error comes back at each delivery: such messages belong in a poison queue.
//
// # What a handler produces
//
// The messages that a handler returns are stored with the result. A duplicate of a done message produces them again, with the
// same UUIDs: the Router publishes them after the record is completed, so if publishing fails, only the redelivery can publish
// them. They are therefore published at least once; under this middleware, the next consumer in the pipeline runs once for each.
//
// They are stored as JSON of at most [core.TaskPolicy].ResultLimit bytes. If they are larger, if a UUID or metadata is not valid
// UTF-8, or if the store has no room, they are not stored: a duplicate then gets the permanent error result_unavailable.
//
// With Duplicate: core.Reject("") nothing is stored, and a duplicate produces nothing. Use it for handlers that produce nothing:
// messages of other handlers are lost if the Router can't publish them.
//
// # Order of middleware
//
// Outermost first:
//
//   - Recoverer. A panic is a failure of the run, and continues outwards: Recoverer turns it into an error for the poison queue.
//     Recoverer may also be inside this middleware. (A Router without it nacks.)
//   - PoisonQueueWithFilter. Inside this middleware it would turn failures into successes, and a message that comes back from the
//     poison queue would count as done. With [Permanent] as its filter it gets the messages that can't be run. With a filter that
//     is true for all but [Temporary] errors it also gets those whose handler has failed, after the attempts of a Retry. A
//     PoisonQueue without a filter also takes messages that are still running, or that arrived while the store was down.
//   - This middleware.
//   - Retry. Its attempts are one run, under one claim. Outside this middleware, each attempt is a run, and temporary refusals are
//     retried too, each after Config.Pause and the Retry's own interval; ShouldRetry should then return false for Permanent errors.
//   - Timeout, Throttle, CircuitBreaker: anywhere. InstantAck gives up redelivery.
//
// # Brokers
//
// Most brokers redeliver a nacked message at once (the Go channel, AMQP, NATS without a NakDelay). The pause keeps a refused
// message from coming back in a tight loop. Meanwhile the message occupies the consumer, as a slow handler does. If the broker
// delays redelivery itself (NakDelay of NATS), set a negative Pause. The pause, and the limit of core.Wait, must be shorter than
// the broker waits for an acknowledgement (AckWaitTimeout of NATS).
//
// A broker that limits deliveries counts refused ones, too: the delivery limit of a quorum queue, MaxDeliver of NATS. The pause
// multiplied by that limit must be longer than a run takes, and longer than a crash blocks the message ([core.Record].Lease).
//
// Watermill's NATS subscriber needs nats.ManualAck() among its SubscribeOptions. Without it, the client acknowledges messages that
// the subscriber drops when it is closed, or when AckWaitTimeout passes.
//
// # What it cannot do
//
// The handler's work and its record are two steps. If the process dies between them, or the store can't be reached after the
// handler, the handler runs again after the lease. If the handler changes the database that holds the records, call sqlstore's
// RunTx with msg.Context(), which makes them one step. A result is kept for [core.Record].Retention, 24 hours by default. That
// must be longer than the broker may take to redeliver a message.
package watermillidem
