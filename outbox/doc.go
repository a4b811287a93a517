// Package outbox sends messages that belong to a database change. You write a message in the transaction of the change, and a
// relay passes it to a broker, at least once and in order. The package imports no driver and no broker's client.
//
//	box, err := outbox.New(db, sqlstore.PostgreSQL, outbox.Config{})
//	if err != nil {
//		return err
//	}
//	err = box.Migrate(ctx) // or run the statements of Schema with your migration tool
//
// In the transaction of the change:
//
//	err = box.Write(ctx, tx, outbox.Message{Key: order, Topic: "order.created", Body: body})
//
// In the background of one or several processes:
//
//	relay, err := box.NewRelay(publisher, outbox.RelayConfig{Observe: outbox.LogEvents(slog.Default())})
//	if err != nil {
//		return err
//	}
//	err = relay.Run(ctx) // until ctx ends
//
// # Guarantees
//
// A message is sent if its transaction was committed, and only then. It is sent at least once, each time with the same ID: if a
// relay dies between the broker's confirmation and marking the messages as sent, up to RelayConfig.Batch messages are sent again.
// Consumers recognise duplicates by the ID: use it as the key of core.Do or sqlstore.DoTx.
//
// The first occurrences of the messages of one key arrive in order, whatever fails: a message is published only when the broker
// has confirmed the one before it. A failed message is retried with growing pauses. Later messages of its key wait; others do not.
// Parking breaks the order (see RelayConfig.MaxAttempts), and so does Unpark. The order is that of the calls of Write in
// transactions that follow each other. Transactions that overlap have no order: before Write, lock what the key stands for, such
// as the order's row.
//
// # One relay at a time
//
// The relays of one outbox share a lease, a row of the database. The relay that holds it sends. The others stand by, and one takes
// over when the holder ends, or has died and its lease has passed. A relay that can't reach the broker also gives the lease back.
// The context of Publish ends before the lease does, and a relay that can't renew its lease publishes nothing more.
//
// The lease can't rule out that two relays send at once, because brokers do not check it: a publisher ignores its context, a
// process is frozen just before the call, the database's clock is set forward, or bytes are still on their way. The result is
// duplicates, and nothing worse: the order holds, because each relay sends a message only when it knows that the broker has those
// before it.
package outbox
