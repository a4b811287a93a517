// Package amqpidem runs the messages of a RabbitMQ queue once each, and settles their deliveries: what
// is done is acknowledged, what fails comes back after a delay, what can't be done becomes a dead
// letter. It stands on [github.com/idem-go/idem/core] and rabbitmq/amqp091-go.
//
//	publisher, err := amqpidem.NewPublisher(amqpidem.PublisherConfig{URL: url})
//	handler, err := amqpidem.NewHandler(amqpidem.Config{
//		Task:      engine.MustTask(core.Policy{Name: "billing", Duplicate: core.Reject}),
//		Topology:  amqpidem.Topology{Queue: "orders"},
//		Publisher: publisher,
//	}, func(ctx context.Context, d *amqp.Delivery) error {
//		return charge(ctx, d.Body)
//	})
//	consumer, err := amqpidem.NewConsumer(handler, amqpidem.ConsumerConfig{URL: url})
//	err = consumer.Run(ctx) // until ctx ends
//
// A [Handler] decides about one delivery; [Handler.Handle] serves a loop of one's own. A [Consumer]
// is such a loop: it connects again, and drains. A [Topology] is a queue with the queues for its
// delays and dead letters. A [Publisher] publishes with confirms.
//
// An operation is the consumer's name (the policy's), the app id and the message id; its
// fingerprint is a digest of the body. The publisher has to choose the ids: the same one
// when it publishes a message again. [Publisher] does.
//
// # Exactly once
//
// The broker delivers at least once, and the store remembers what has been done. Between the end of the
// function and that memory a process can die, and the function runs again. If what it changes is in
// the database that holds the records, sqlstore's RunTx commits both together: call it in the
// function, and return its error. See docs/messages.md.
//
// # What comes back
//
// A message that comes back is published anew to a queue in which it waits, and from which the
// broker moves it back. That is confirmed before the delivery is acknowledged: nothing is
// held in the consumer meanwhile, and nothing is lost. Its headers say how many attempts it has had
// ([HeaderAttempts]). Nothing is ever given back to the queue by nack but at the end of a
// consumer, so that a delivery limit counts only what has ended with its consumer.
//
// The attempts of a message are those that have failed, and the runs that never came back, as far
// as the store has seen them begin. That the broker has delivered it again is no attempt: with a
// prefetch, a lost connection brings back many that nobody has begun with.
//
// Tested with RabbitMQ 3.10.8, of which a quorum queue's time to live is the newest thing that is
// needed. What newer brokers do otherwise is taken from their documentation: see
// docs/messages.md.
package amqpidem
