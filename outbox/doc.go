// Package outbox sends messages that belong to a change of a database: they are written in the
// transaction of the change, and a relay hands them to a broker, at least once and in order. It
// imports no driver, and no broker's client.
//
//	box, err := outbox.New(db, sqlstore.PostgreSQL, outbox.Options{})
//	if err != nil {
//		return err
//	}
//	err = box.Migrate(ctx) // or the statements of Schema, by a tool of one's own
//
// In the business transaction:
//
//	err = box.Write(ctx, tx, outbox.Message{Key: order, Topic: "order.created", Body: body})
//
// And in one process or in several, beside everything else:
//
//	relay, err := box.NewRelay(publisher, outbox.RelayOptions{Observe: outbox.LogEvents(slog.Default())})
//	if err != nil {
//		return err
//	}
//	err = relay.Run(ctx) // until ctx ends
//
// # What is promised
//
// A message is sent if its transaction was committed, and only then. It is sent at least once, each
// time with the same ID: a relay that dies between the broker's confirmation and the note of it
// leaves up to RelayOptions.Batch messages that are sent again. Consumers know duplicates by the ID;
// core.Do or sqlstore.DoTx, with the ID for a key, absorb them.
//
// The first occurrences of the messages of one key come in their order, whatever fails: a message is
// handed over when the broker has confirmed the one before it. A message that fails is tried again,
// with pauses that grow; those of its key wait, the others do not. (Unless it is parked, see
// RelayOptions.MaxAttempts, or brought back by Unpark.) The order is that of the calls of Write in
// transactions that follow each other. Of two transactions that overlap, nobody knows which is the
// first: lock what the key stands for, by the row of the order, say, before Write.
//
// # One relay at a time
//
// Relays of one outbox share a lease, a row of the database. The one that holds it sends; the others
// stand by, and one of them takes over when it ends, or, if it dies, when its lease has passed. A
// relay that can't reach the broker gives the lease back, too. Publish is given a context that ends
// before the lease does, and a relay that could not renew its lease begins no further call.
//
// What can't be had: no broker looks at the lease. A publisher that ignores its context, a process
// that is frozen between its look at the clock and the call, a database whose clock is set forward,
// bytes that are still on their way: then two relays send at once. That makes duplicates, and nothing
// worse. The order holds all the same, for each sends a message only when it knows that those before
// it are with the broker.
package outbox
