// Package watermillidem makes handlers of Watermill (github.com/ThreeDotsLabs/watermill) run once for each
// message, whatever the broker: one [message.HandlerMiddleware] for Kafka, NATS, AMQP, SQL and the rest.
//
//	engine, err := core.New(core.Config{Store: store}) // one that all consumers share
//	…
//	router.AddMiddleware(
//		middleware.Recoverer,
//		poison, // middleware.PoisonQueueWithFilter(publisher, "poison", watermillidem.Permanent)
//		watermillidem.MustNew(engine, watermillidem.Config{}),
//	)
//
// A message is marked when its handler has succeeded, and not before: what has failed runs again when the
// broker delivers it again. (Watermill's own Deduplicator marks a message before its handler runs, and drops the
// redelivery of one that has failed.)
//
// # What is one operation
//
// Its key is the consumer's name and the message's UUID. The consumer's name is [core.Policy].Name or,
// if that is empty, the name of the Router's handler: so the middleware can be mounted on a whole
// Router, and two handlers of one topic each run for each message. Set Name where several handlers
// are one consumer (competing consumers of one topic), and where the names of handlers are not the
// same in every process or release.
//
// The payload is the fingerprint, with the metadata that [Config].Metadata names: a message that has the
// UUID of another one and a payload of its own is refused.
//
// # What happens to a message
//
//	first delivery                runs
//	duplicate, done               is not run; what the first run has produced is produced again; acknowledged
//	duplicate, running            held for Config.Pause, then a temporary error; with core.Wait it waits for the run first
//	handler's error, panic        forgotten; the error goes on as it is; the redelivery runs
//	begun, never finished         runs again, with Attempt 2 (core.RunFrom(msg.Context()))
//	 … with Abandoned: Uncertain  a permanent error: uncertain
//	UUID with another payload     a permanent error: key_reused
//	no UUID                       a permanent error: key_missing
//	store can't be reached        not run; held for Config.Pause, then a temporary error
//	engine is drained             the same
//
// Every error makes the Router nack, so that nothing is lost. An error of this package is a
// [RefusedError], and errors.Is its [core.Code]. [Temporary] ones pass: the same message will run, or be a
// duplicate of what is done. [Permanent] ones come again with each delivery, and belong in a poison queue, with
// their reason.
//
// # What a handler produces
//
// The messages that a handler returns are stored with the result, and a duplicate of a done message
// produces them again, with the same UUIDs: the Router publishes after the mark, and if that fails the
// redelivery is all that is left to publish them. So what comes out is there at least once, and the next consumer
// in the pipeline, under this middleware too, runs once.
//
// They are stored as JSON, of at most [core.Policy].ResponseLimit bytes. Of more than that, of what is not valid
// UTF-8 in a UUID or in metadata, and when the store has no room, only the fact is kept: a
// duplicate then gets a permanent error, result_unavailable.
//
// With Duplicate: core.Reject nothing is stored, and a duplicate produces nothing. It is for handlers that
// produce nothing themselves: of others, what the Router could not publish is lost.
//
// # Order of middleware
//
// Outermost first:
//
//   - Recoverer. A panic is a failure of the run, and goes on: Recoverer makes an error of it for
//     the poison queue. It does so inside of this middleware as well. (A Router without it nacks.)
//   - PoisonQueueWithFilter, outside: inside, it turns failures into successes, and the message
//     that comes back from the poison queue would be taken for done. With [Permanent] as its filter it gets
//     what can't be run; with one that is true for all but [Temporary] errors also
//     what the handler has failed at, after the attempts of a Retry. A PoisonQueue without a filter also
//     takes away messages that are running at this moment, or that came while the store was down.
//   - This middleware.
//   - Retry: its attempts are one run, under one claim. Outside of this middleware each attempt is a
//     run; temporary refusals are tried again as well, each after Config.Pause and the Retry's own
//     interval, and ShouldRetry should say no to Permanent errors.
//   - Timeout, Throttle, CircuitBreaker: where they are wanted. InstantAck gives up redelivery.
//
// # Brokers
//
// Most brokers deliver at once what was nacked (the Go channel, AMQP, NATS without a NakDelay): it is the pause that
// keeps a refused message from going round and round. It occupies the consumer for as long, as a
// slow handler does. Where the broker delays by itself (NakDelay of NATS), a negative
// Pause leaves it to that. The pause, and the limit of core.Wait, must be shorter than
// the broker waits for an acknowledgement (AckWaitTimeout of NATS).
//
// A broker that counts deliveries counts refused ones, too: the delivery limit of a quorum queue, MaxDeliver
// of NATS. Pause times that limit must be longer than a run may take, and longer than a crash blocks the
// message ([core.Policy].Lease).
//
// Watermill's NATS subscriber needs nats.ManualAck() among its SubscribeOptions: without it the client
// acknowledges what the subscriber gives up when it is closed, or when AckWaitTimeout passes.
//
// # What it cannot do
//
// The record and what the handler does are two steps. When the process dies between them, or the store can't
// be reached after the handler, the handler runs again after the lease. What it does in the database that holds
// the records can be one step: sqlstore's RunTx, with msg.Context(). A result is remembered for
// [core.Policy].Retention, 24 hours unless it says otherwise: longer than the broker may deliver again.
package watermillidem
