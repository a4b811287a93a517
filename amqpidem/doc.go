// Package amqpidem runs each message of a RabbitMQ queue once. It acknowledges a message that is done, delivers a failed one
// again after a delay, and dead-letters one that can't succeed. It is built on [github.com/idem-go/idem/core] and
// rabbitmq/amqp091-go.
//
//	publisher, err := amqpidem.NewPublisher(amqpidem.PublisherConfig{URL: url})
//	handler, err := amqpidem.NewHandler(amqpidem.Config{
//		Task:      engine.MustTask(core.TaskPolicy{Name: "billing", Duplicate: core.Reject("")}),
//		Topology:  amqpidem.Topology{Queue: "orders"},
//		Publisher: publisher,
//	}, func(ctx context.Context, d *amqp.Delivery) error {
//		return charge(ctx, d.Body)
//	})
//	consumer, err := amqpidem.NewConsumer(handler, amqpidem.ConsumerConfig{URL: url})
//	err = consumer.Run(ctx) // until ctx ends
//	err = engine.Drain(limited) // waits for results that the store has not taken yet
//
// A [Consumer] takes messages, reconnects, and drains at the end. A [Handler] decides about one delivery; to use a loop of your
// own instead of a Consumer, call [Handler.Handle]. A [Topology] is a queue with its delay and dead-letter queues. A [Publisher]
// publishes with confirms.
//
// An operation is the consumer's name (the policy's), the app id and the message id; its fingerprint is a digest of the body. The
// publisher must set message ids, and use the same id when it publishes a message again. [Publisher] does.
//
// # Exactly once
//
// The broker delivers at least once, and the store remembers what is done. If the process dies after the function and before the
// record is completed, the function runs again. If the function changes the database that holds the records, call sqlstore's
// RunTx in it, which commits both together, and return its error. See docs/messages.md.
//
// # Delays
//
// A message that must wait is published to a delay queue, from which the broker moves it back. The delivery is acknowledged when
// the broker has confirmed that copy: the consumer holds nothing meanwhile, and nothing is lost. The copy's headers count the
// message's attempts (x-idem-attempts). Deliveries are nacked only when a consumer ends, so a delivery limit counts only those
// that ended with their consumer.
//
// Attempts are failed runs, and runs that never finished if the store has seen them begin. A redelivery by the broker is not an
// attempt: with a prefetch, a lost connection brings back many messages on which no function has begun.
//
// Tested with RabbitMQ 3.10.8. The package needs 3.10, for a quorum queue's time to live. For what newer brokers change, by
// their documentation, see docs/messages.md.
package amqpidem
