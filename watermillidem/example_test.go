package watermillidem_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/watermillidem"
)

func Example() {
	engine := core.MustNew(core.Config{}) // with a Service, and a Store that all consumers share
	broker := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)

	router := message.NewDefaultRouter(nil)
	router.AddMiddleware(
		middleware.Recoverer,
		watermillidem.MustNew(engine, watermillidem.Config{}),
	)
	declined := true
	router.AddConsumerHandler("charge", "orders", broker, func(msg *message.Message) error {
		if declined {
			declined = false
			fmt.Println("declined")
			return errors.New("the card was declined") // the broker delivers it again
		}
		fmt.Println("charged", string(msg.Payload))
		return nil
	})
	go func() { _ = router.Run(context.Background()) }()
	<-router.Running()
	defer router.Close()

	order := message.NewMessage("order-1", []byte("5 euros"))
	for range 2 { // a producer that did not hear the first answer
		if err := broker.Publish("orders", order); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println("both acknowledged")
	// Output:
	// declined
	// charged 5 euros
	// both acknowledged
}

// The consumer of docs/messages.md.
func _(ctx context.Context, store store.Store, router *message.Router, publisher message.Publisher, subscriber message.Subscriber,
	charge func(context.Context, []byte) error) error {
	engine, err := core.New(core.Config{Service: "shop", Store: store}) // all consumers share the store
	if err != nil {
		return err
	}
	poison, err := middleware.PoisonQueueWithFilter(publisher, "poison", watermillidem.Permanent)
	if err != nil {
		return err
	}
	router.AddMiddleware(
		middleware.Recoverer,
		poison,
		watermillidem.MustNew(engine, watermillidem.Config{}),
		middleware.Retry{MaxRetries: 3, InitialInterval: time.Second}.Middleware,
	)
	router.AddConsumerHandler("charge", "orders", subscriber, func(msg *message.Message) error {
		return charge(msg.Context(), msg.Payload)
	})
	return router.Run(ctx)
}

// What can't be run goes to a poison queue, with its reason.
func ExamplePermanent() {
	engine := core.MustNew(core.Config{})
	broker := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)

	router := message.NewDefaultRouter(nil)
	poison, err := middleware.PoisonQueueWithFilter(broker, "poison", watermillidem.Permanent)
	if err != nil {
		fmt.Println(err)
		return
	}
	charge := router.AddConsumerHandler("charge", "orders", broker, func(msg *message.Message) error {
		fmt.Println("charged", string(msg.Payload))
		return nil
	})
	charge.AddMiddleware(middleware.Recoverer, poison, watermillidem.MustNew(engine, watermillidem.Config{}))
	router.AddConsumerHandler("report", "poison", broker, func(msg *message.Message) error {
		fmt.Println(string(msg.Payload), "of", msg.UUID)
		fmt.Println(msg.Metadata.Get(middleware.ReasonForPoisonedKey))
		return nil
	})
	go func() { _ = router.Run(context.Background()) }()
	<-router.Running()
	defer router.Close()

	for _, payload := range []string{"5 euros", "700 euros"} {
		if err := broker.Publish("orders", message.NewMessage("order-1", []byte(payload))); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// charged 5 euros
	// 700 euros of order-1
	// watermillidem: the message was not run: idem: key_reused: This idempotency key was used with other parameters.
}

// What the handler produces is stored, and a duplicate produces it again, with the same UUIDs: the
// next consumer runs once for it.
func ExampleNew_produce() {
	engine := core.MustNew(core.Config{})
	protect, err := watermillidem.New(engine, watermillidem.Config{Policy: core.TaskPolicy{Name: "charge"}})
	if err != nil {
		fmt.Println(err) // all faults of the policy
		return
	}
	charge := protect(func(msg *message.Message) ([]*message.Message, error) {
		run := core.RunFrom(msg.Context())
		fmt.Println("charging", msg.UUID, "in attempt", run.Attempt())
		return []*message.Message{message.NewMessage("receipt-17", []byte("5 euros"))}, nil
	})
	for range 2 {
		produced, err := charge(message.NewMessage("order-1", nil))
		fmt.Println(produced[0].UUID, err)
	}
	// Output:
	// charging order-1 in attempt 1
	// receipt-17 <nil>
	// receipt-17 <nil>
}
