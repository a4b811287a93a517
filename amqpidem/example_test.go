package amqpidem_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/idem-go/idem/amqpidem"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store/sqlstore"
)

// A worker that charges for each order once, as in docs/messages.md. The engine has a store that all workers share. It ends in good
// order when ctx ends: make that with signal.NotifyContext.
func Example() {
	work := func(ctx context.Context, url string, engine *core.Engine, charge func(context.Context, []byte) error) error {
		publisher, err := amqpidem.NewPublisher(amqpidem.PublisherConfig{URL: url})
		if err != nil {
			return err
		}
		defer publisher.Close(context.Background())
		handler, err := amqpidem.NewHandler(amqpidem.Config{
			Task:      engine.MustTask(core.TaskPolicy{Name: "billing", Duplicate: core.Reject("")}),
			Topology:  amqpidem.Topology{Queue: "orders"},
			Publisher: publisher, // for copies in delay and dead-letter queues
		}, func(ctx context.Context, d *amqp.Delivery) error {
			return charge(ctx, d.Body)
		})
		if err != nil {
			return err
		}
		consumer, err := amqpidem.NewConsumer(handler, amqpidem.ConsumerConfig{URL: url})
		if err != nil {
			return err
		}
		return consumer.Run(ctx) // until ctx ends
	}
	_ = work
}

// In a loop of one's own the handler settles each delivery. What it could not settle the broker
// delivers again, when the channel is closed.
func ExampleHandler_Handle() {
	var (
		handler *amqpidem.Handler
		ch      *amqp.Channel
	)
	consume := func(ctx context.Context) error {
		deliveries, err := ch.ConsumeWithContext(ctx, "orders", "", false, false, false, false, nil)
		if err != nil {
			return err
		}
		for d := range deliveries {
			if err := handler.Handle(ctx, d); err != nil {
				return errors.Join(err, ch.Close())
			}
		}
		return nil
	}
	_ = consume
}

// The charge and the memory of it are one transaction: whatever dies when, there is one charge.
func ExampleNewHandler_inbox() {
	var (
		db    *sql.DB
		store *sqlstore.Store // in db, and the engine's
	)
	charge := func(ctx context.Context, d *amqp.Delivery) error {
		_, err := store.RunTx(ctx, db, func(tx *sql.Tx) ([]byte, error) {
			_, err := tx.ExecContext(ctx, "INSERT INTO charges (order_id) VALUES ($1)", d.MessageId)
			return nil, err
		})
		return err
	}
	_ = charge // the function of NewHandler
}

// What could not be published in time is returned, with the ids with which to publish it again.
func ExamplePublisher_Publish() {
	var publisher *amqpidem.Publisher
	publish := func(ctx context.Context, body []byte) error {
		err := publisher.Publish(ctx, amqpidem.Message{
			Exchange: "amq.topic", Key: "order.created",
			Publishing: amqp.Publishing{AppId: "shop", ContentType: "application/json", Body: body},
		})
		var failed *amqpidem.PublishError
		if errors.As(err, &failed) {
			for _, m := range failed.Unconfirmed {
				log.Printf("not known to be in a queue: %s", m.Publishing.MessageId)
			}
		}
		return err
	}
	_ = publish
}

func ExamplePermanent() {
	parse := func(body []byte) error {
		return amqpidem.Permanent(errors.New("no JSON")) // no further attempt will read it
	}
	fmt.Println(parse([]byte("<xml/>")))
	// Output: no JSON
}
